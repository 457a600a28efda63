"""Clipping to a fixed norm and noise that is correlated over rounds (DP-FTRL, matrix mechanisms).

    release_t = (sum of clipped updates + z C Σ_s W[t, s] z_s) / n

W is that of a strategy, normalised so that one participation is accounted as one Gaussian of noise z: `noise_multiplier` means
the same as for independent noise, and the noise of a single release is larger. It is the model that has less, since the noise
of later rounds takes back that of earlier ones.

The state holds what the strategy remembers, in double precision: in single precision, noise that should cancel after thousands
of rounds would not. Normals are counted by round, never drawn on: a resumed run makes the same noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from coalmine.contracts import Array, Context, Description, Fresh, Public, Release, State, Streams, Total
from coalmine.mechanisms.gaussian import Gaussian, normals
from coalmine.mechanisms.strategies import OPTIONS, CorrelatedStrategy, Independent, Plan, make_strategy, read_strategy
from coalmine.mechanisms.strategies.strategy import Draw

MOST_STATE = 512 * 2**20  # bytes that a checkpoint holds, every round
_PIECE = 1 << 14  # coordinates added at once, in the cache
_OWN = ("strategy", *OPTIONS, "momentum")
_DEFAULT = Independent(1)  # so that a dataclass may follow one whose fields have defaults


@dataclass(frozen=True)
class Correlated(Gaussian):
    """Updates cut to `clip_norm`, noise of a strategy on their sum."""

    strategy: CorrelatedStrategy = _DEFAULT

    config_keys: ClassVar[tuple[str, ...]] = ("clip_norm", "noise_multiplier", "divide_by_actual_cohort", *_OWN)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], context: Context) -> Gaussian:
        """From a section [mechanism]: a strategy by its name and options, for the rounds and the participation of the run."""
        stated = {name: value for name, value in options.items() if name not in _OWN}
        made = cls(**stated, strategy=cls.strategy_of(options, context))
        made.check_state(max((place.stop for place in context.groups.values()), default=0))
        return made

    @staticmethod
    def strategy_of(options: Mapping[str, Any], context: Context) -> CorrelatedStrategy:
        """The strategy that a section names, for the rounds and the participation of the run."""
        named = options.get("strategy")
        if named is None:
            raise ValueError('mechanism: correlated noise needs strategy, as strategy = "banded".')
        if isinstance(named, Mapping):
            return read_strategy(named)
        momentum = options.get("momentum")
        plan = Plan.of(context.participation.constraint(context.rounds), context.momentum if momentum is None else momentum)
        return make_strategy(named, {name: options[name] for name in OPTIONS if name in options}, plan)

    def describe(self) -> Description:
        """As `Gaussian`, with the strategy; one band is independent noise and nothing else."""
        said = super().describe()
        assert said.noise is not None
        rounds: Any = Fresh() if self.strategy.bands == 1 else self.strategy
        return replace(said, noise=replace(said.noise, rounds=rounds))

    def check_state(self, dim: int) -> None:
        """Whether checkpoints stay small enough to be written every round."""
        self.strategy.check_size(dim)
        size = 8 * self.strategy.stored * dim
        if size > MOST_STATE:
            raise ValueError(
                f"strategy {self.strategy.kind!r} keeps {self.strategy.stored} vectors of {dim:,} parameters, "
                f"{size / 2**20:.0f} MB in every checkpoint; at most {MOST_STATE // 2**20} MB are allowed. "
                "Use strategy 'blt', or fewer bands."
            )

    def init(self, dim: int) -> State:
        """The clip norm, and what the strategy remembers."""
        self.check_state(dim)
        return {**super().init(dim), **({} if self.noise_multiplier == 0 else _named(self.strategy.init(dim)))}

    def unknown_state(self, state: State, dim: int) -> str | None:
        """Why noise cannot go on from this state of a checkpoint: what another version remembers could not be taken back."""
        if type(self).init is not Correlated.init or self.noise_multiplier == 0:
            return None  # a class of somebody else remembers what it likes
        for name, wanted in self.strategy.init(dim).items():
            found = state.get(f"noise.{name}")
            if found is None or np.shape(found) != wanted.shape:
                kept = "nothing" if found is None else f"{(*np.shape(found), 1)[0]} vectors"
                return (
                    f"{kept} of past noise ({name}) where strategy {self.strategy.kind!r} of this version of coalmine keeps "
                    f"{(*wanted.shape, 1)[0]}"
                )
        return None

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean. `state` is used up: vectors in it may be written in place."""
        self.strategy.check_rounds(public.round + 1)
        noisy = total.vector()
        kept: State = {}
        if self.noise_multiplier > 0:
            remembered = {name.removeprefix("noise."): value for name, value in state.items() if name != "clip_norm"}
            draw = partial(normals, noisy.size, secret)
            made, kept = self.correlated(public.round, noisy.size, draw, remembered)
            scale = self.update_noise_multiplier * public.clip_norm
            for start in range(0, noisy.size, _PIECE):  # never in place: noise may be kept by whoever made it
                noisy[start : start + _PIECE] += scale * made[start : start + _PIECE]
        divisor = float(max(total.count, 1)) if self.divide_by_actual_cohort else public.denominator
        noisy /= divisor
        return Release(public.round, noisy, public.clip_norm, divisor), {"clip_norm": state["clip_norm"], **_named(kept)}

    def correlated(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """Σ_s W[t, s] z_s of a round, and what the next one needs of it."""
        return self.strategy.noise(number, dim, draw, state)


def _named(state: State) -> State:
    return {f"noise.{name}": value for name, value in state.items()}
