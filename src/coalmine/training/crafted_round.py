"""One round with crafted canaries among its clients: what each of them adds, and scores of what is left of a noisy sum.

A canary is data. It passes through the code of a client that all clients pass through: local training, clipping, sum. What
comes out of that alone is its known part; everything else that its presence changes stays in the scores.

Known others: what the clients would add without canaries is taken off, and the canaries' own parts are exact, so that a score
is own part + noise. Canaries are separated by the root of their Gram matrix. The scale of the noise is measured on all
directions that no canary has, and never taken from the claim: with the claim's noise, too little noise would be unseen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from coalmine.canaries.crafted.design import Crafted
from coalmine.conformance.laws import chi_square
from coalmine.contracts import Array, Attendance, Contribution, Finding, Game, Public, State
from coalmine.contracts.conformance import LEVEL, Side
from coalmine.data.dataset import Examples
from coalmine.estimators.band import contradicts_null
from coalmine.nulls import GaussianNull
from coalmine.scores import Scores
from coalmine.training.federation import Federation
from coalmine.training.guests import Guests, name_of
from coalmine.training.work import ClientBatch, contribute

VIEW = "crafted-canaries"
ROUNDING = 1e-5  # of a clip norm, by which a contribution may differ if others are trained beside it
LEAST_NOISE = 1e-6  # clip norms: what is left of a release without noise is the rounding of its arithmetic
DOUBT = 1e-3  # chance at which held-out scores contradict the law of the noise that was measured beside the canaries
STATISTIC = "inner product with a crafted canary, in standard deviations of the measured noise"


def check_mechanism(job: Federation) -> None:
    """Refuse what this arithmetic is not for."""
    said = job.mechanism.describe()
    if not said.fresh or said.examples is not None or job._noise_of_clients:
        raise ValueError(
            "crafted canaries need a mechanism whose server adds new noise in every round to a sum of clipped updates; "
            f'{type(job.mechanism).__name__} describes something else. Set crafting.mode = "off": direction canaries '
            "are for it."
        )


def mechanism_state(state: State) -> State:
    """What the mechanism keeps of a training's state."""
    return {key.removeprefix("mechanism."): value for key, value in state.items() if key.startswith("mechanism.")}


@dataclass(frozen=True)
class SumRow:
    """What one noisy sum shows of every canary, in clip norms."""

    coins: NDArray[np.bool_]
    values: Array
    square: float  # |noise|² beside the canaries' directions


@dataclass(frozen=True, eq=False)
class CraftedRound:
    """The crafted canaries of round `number`, at the state before it."""

    federation: Federation
    state: State
    crafted: Crafted
    number: int

    def __post_init__(self) -> None:
        check_mechanism(self.federation)

    @property
    def count(self) -> int:
        """How many canaries there are."""
        return len(self.crafted.samples)

    @cached_property
    def public(self) -> Public:
        """What would be announced for this round."""
        return self.federation.mechanism.announce(mechanism_state(self.state), self.number, self.federation.denominator)

    @cached_property
    def examples(self) -> dict[str, Examples]:
        """By name, what each canary has."""
        return {name_of(place): sample for place, sample in enumerate(self.crafted.samples)}

    def guests(self, coins: NDArray[np.bool_], *key: object) -> Guests:
        """Those whose coin came up, at random places."""
        names = [name_of(int(place)) for place in np.flatnonzero(coins)]
        places = partial(self.federation.secret, "places of crafted canaries", self.number, *key)
        return Guests({name: self.examples[name] for name in names}, places, self.count / 2)

    @cached_property
    def contributions(self) -> list[Contribution]:
        """What the code of a client makes of every canary's data; of a forged update, what it makes of that."""
        if self.crafted.forged:
            send = partial(contribute, self.federation.mechanism, public=self.public, examples=1, secret=None)
            return [send(update.copy()) for update in self.crafted.updates]
        return [self._alone(name) for name in self.examples]

    def _alone(self, name: str) -> Contribution:
        """One canary by itself: its own worker, so that nothing is left of who came before."""
        task = ClientBatch(self.public, self.state["parameters"], (name,), guests={name: self.examples[name]})
        total = self.federation.work()(task).total
        return Contribution(total.without_noise().astype(np.float32), bool(total.unclipped))

    @cached_property
    def own(self) -> Array:
        """(canaries, canaries): <direction of the first, contribution of the second>, in clip norms."""
        directions = self.crafted.directions
        columns = [directions.project(each.vector) for each in self.contributions]
        return np.stack(columns, axis=1) / self.public.clip_norm

    @cached_property
    def inverse(self) -> Array:
        """What makes the noise of different canaries independent."""
        return self.crafted.directions.roots()[1]

    def known(self, coins: NDArray[np.bool_]) -> Array:
        """What these canaries add by themselves."""
        total = np.zeros(self.federation.model.dim)
        for place in np.flatnonzero(coins):
            total += self.contributions[place].vector
        return total

    def row(self, coins: NDArray[np.bool_], noise: Array) -> SumRow:
        """Scores of one noisy sum, of which `noise` is what is left without all known parts, in clip norms."""
        white = self.inverse @ self.crafted.directions.project(noise)
        parts = np.diagonal(self.inverse @ self.own) * coins
        return SumRow(coins, parts + white, float(np.einsum("i,i->", noise, noise)) - float(white @ white))

    def scale(self, rows: list[SumRow]) -> float:
        """The measured standard deviation of the noise, in clip norms."""
        beside = len(rows) * (self.federation.model.dim - self.count)
        if not beside > 1:
            raise ValueError(
                f"{self.count} canaries take all {self.federation.model.dim} directions of this model, and none is left to "
                "measure the noise on. Design fewer."
            )
        return max(float(np.sqrt(max(sum(row.square for row in rows), 0.0) / beside)), LEAST_NOISE)

    def noise_scale(self, rows: list[SumRow]) -> Finding:
        """The test that the noise is not smaller than claimed: few scores of large noise cannot tell, all directions can.

        More noise is no finding here: whatever else is in a release, its rounding too, only adds to it.
        """
        claimed = self.federation.described.noise
        assert claimed is not None
        square, beside = sum(row.square for row in rows), len(rows) * (self.federation.model.dim - self.count)
        chance = chi_square(max(square, 0.0) / claimed.multiplier**2, beside)[0]
        side: Side = "less" if chance <= LEVEL else "none"
        where = f"round {self.number}"
        return Finding("noise-scale", claimed.multiplier, self.scale(rows), None, None, chance, side, chance, where=where)

    def table(self, rows: list[SumRow], values: list[Array], unit: str | None, *, known: bool) -> Scores:
        """Rows of several draws as one table, in standard deviations of the measured noise."""
        directions = len(rows) * (self.federation.model.dim - self.count)
        found = Scores(
            np.concatenate(values) / self.scale(rows),
            np.concatenate([row.coins for row in rows]),
            labels={
                "canary": np.tile(np.arange(self.count), len(rows)),
                "round": np.full(self.count * len(rows), self.number),
                "replicate": np.repeat(np.arange(len(rows)), self.count),
            },
            assignment="coins",
            null=GaussianNull(1.0, directions=directions) if known else None,
            statistic=STATISTIC,
            view=VIEW,
            game=Game(unit, "add-or-remove-one", Attendance.of("once"), "rounds known"),
        )
        return by_law_or_held_out(found)


def trained_alone(apart: float, contributions: int, number: int) -> Finding:
    """The test that nobody's data reach the contributions of others: no chance is in it, only rounding."""
    wrong = not apart <= ROUNDING * contributions
    certain: float = 0.0 if wrong else 1.0
    side: Side = "less" if wrong else "none"
    return Finding("trained-alone", 0.0, apart, None, None, certain, side, certain, where=f"round {number}")


def by_law_or_held_out(scores: Scores) -> Scores:
    """The scores with the law of the measured noise, if the held-out scores do not contradict it.

    If they do, by their size or by their shape, what is left in the canaries' directions is not what is left beside them, and
    its scale is measured on the held-out scores; if these are not normal either, only they themselves may speak. Right code
    loses a little power in one table of 500; at a stricter level scores that are wider than the law accuse right code.
    """
    held_out = scores.held_out_values
    law: Any = scores.null  # of a table of this module: a Gaussian, or none
    if law is None or not held_out.size:
        return scores
    square = float(held_out @ held_out)
    if special.chdtrc(held_out.size, square / law.spread**2) > DOUBT and not contradicts_null(scores, 1 - DOUBT):
        return scores
    spread = float(np.sqrt(square / held_out.size))
    if not (spread > 0 and held_out.size > 1):
        return replace(scores, null=None)
    wider = replace(scores, null=GaussianNull(spread, directions=held_out.size))
    sides = (wider, replace(wider, value=-wider.value))
    return replace(scores, null=None) if any(contradicts_null(each, 1 - DOUBT) for each in sides) else wider
