"""Buffered linear Toeplitz noise, BLT (Dvijotham et al. 2024; McMahan et al. 2024, "A Hassle-free Algorithm").

    c_0 = 1,  c_t = Σ_j ω_j θ_j^(t-1);        C⁻¹ has the same form with θ̂, ω̂

so that noise needs one vector for every buffer j, whatever the number of rounds. Decays are interlaced,
0 < θ̂_m < θ_m < … < θ̂_1 < θ_1 < 1; then all ω are positive and c decreases, and

    ω_i = Π_j (θ_i - θ̂_j) / Π_{j≠i} (θ_i - θ_j),        ω̂_i the same with θ and θ̂ exchanged (Dvijotham & McMahan 2025)

They are searched as -log(1 - ·) = cumulative sums of exp(p), from several starts, one of them with θ_1 almost 1: with repeated
participation the best strategy may need a buffer that forgets nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy  # its parts are loaded when they are used

from coalmine import _validate
from coalmine.contracts import Array, State
from coalmine.mechanisms.strategies._toeplitz import ToeplitzStrategy
from coalmine.mechanisms.strategies.banded import OBJECTIVES, weights_of
from coalmine.mechanisms.strategies.strategy import CorrelatedStrategy, Draw, Plan, check_search, rounded

_STARTS = (0.6, 0.8, 1.0)  # of log(rounds): where the slowest buffer forgets
_SLOWEST = 1e-7  # 1 - θ_1 of one more start
_SMALLEST_STEP = 1e-8  # of a complex-step derivative: no cancellation
_PIECE = 1 << 15  # coordinates at once, in the cache
_LARGEST = 1 - 1e-12  # of a decay: 1 itself would never forget
MOST_BUFFERS = 8
MOST_BLT_ROUNDS = 1 << 16  # their errors take time of the square of the rounds
_SERIES = 8  # participations whose sum takes as long as the rest of a step of the search


@dataclass(frozen=True)
class Blt(ToeplitzStrategy):
    """Decays and weights of the buffers, stored as they are used; `Blt.optimal` finds them."""

    decays: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    kind: ClassVar[str] = "blt"
    options: ClassVar[tuple[str, ...]] = ("buffers", "objective")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("decays", "weights"):
            object.__setattr__(self, name, tuple(float(each) for each in getattr(self, name)))
        if len(self.decays) != len(self.weights):
            raise ValueError(
                f"{len(self.decays)} decays and {len(self.weights)} weights do not fit: each buffer has one of both."
            )
        if not all(0 <= each < 1 for each in self.decays) or not np.isfinite(self.weights).all():
            raise ValueError("decays of buffers must be at least 0 and below 1, and their weights finite.")

    @classmethod
    def from_options(cls, options: Mapping[str, Any], plan: Plan) -> CorrelatedStrategy:
        """`buffers` and `objective`, for the participation that is planned."""
        return cls.optimal(
            plan.rounds,
            options.get("buffers", 3),
            options.get("objective", "mean"),
            plan.separation,
            plan.participations,
            plan.momentum,
        )

    @staticmethod
    def optimal(
        rounds: int,
        buffers: int = 3,
        objective: str = "mean",
        separation: int = 1,
        participations: int = 1,
        momentum: float = 0.0,
    ) -> Blt:
        """The best buffers for so many participations, at least `separation` rounds apart.

        >>> strategy = Blt.optimal(128, 2, "max")
        >>> round(strategy.max_error(), 5)
        2.61746
        """
        rounds = _validate.whole("rounds", rounds, least=1, most=MOST_BLT_ROUNDS)
        separation = _validate.whole("separation", separation, least=1)
        buffers = _validate.whole("buffers", buffers, least=1)
        if buffers > MOST_BUFFERS:
            raise ValueError(f"buffers={buffers} is not allowed: it must be at most {MOST_BUFFERS}; more than 4 gain nothing.")
        _validate.one_of("objective", objective, OBJECTIVES)
        if rounds < 2:
            return Blt(rounds)
        times = min(_validate.whole("participations", participations, least=1), -(-rounds // separation))
        size = rounds * (times + _SERIES)
        check_search(size, f"{rounds:,} rounds with {times:,} participations", "Plan for fewer, or farther apart (separation).")
        wanted = _Wanted(rounds, times, separation, weights_of(objective, rounds), momentum)
        tops = [share * math.log(rounds) for share in _STARTS] + [-math.log(_SLOWEST)]
        found = [_searched(wanted, _start(top, buffers, rounds)) for top in tops]
        best = min(found, key=lambda each: float(each.fun))
        decays, weights = _parts(best.x)[:2]
        return Blt(rounds, rounded(np.minimum(decays, _LARGEST)), rounded(weights))

    def column(self) -> Array:
        """c, with c_0 = 1."""
        powers = np.array(self.decays)[:, None] ** np.arange(self.rounds - 1)
        return np.concatenate([[1.0], np.array(self.weights) @ powers]) if self.decays else np.eye(1, self.rounds)[0]

    @property
    def memory(self) -> int:
        """Rows that whitening keeps."""
        return len(self.decays)

    @property
    def vectors(self) -> int:
        """One for every buffer."""
        return len(self.decays)

    @property
    def stored(self) -> int:
        """The same, and the newest noise."""
        return len(self.decays) + 1 if self.decays else 0

    def check_size(self, dim: int) -> None:
        """No limit in time."""

    def whiten(self, rows: Array, state: State) -> tuple[Array, State]:
        """The rows, and what the buffers remember of those before."""
        kept = state["buffers"] if "buffers" in state else np.zeros((len(self.decays), *rows.shape[1:]))
        made = np.array(rows, dtype=np.float64)
        after = np.empty_like(kept)
        for place, (decay, weight) in enumerate(zip(self.decays, self.weights, strict=True)):
            remembered = scipy.signal.lfilter([1.0], [1.0, -decay], rows, axis=0, zi=decay * kept[place][None])[0]
            made[1:] += weight * remembered[:-1]
            made[0] += weight * kept[place]
            after[place] = remembered[-1]
        return made * self.first, {"buffers": after}

    def init(self, dim: int) -> State:
        """Empty buffers, and in the last row no noise that they have yet to remember."""
        return {"buffers": np.zeros((self.stored, dim)), "seen": np.zeros(())} if self.decays else {}

    def noise(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """S_j ← θ_j S_j + w_{t-1}, then w_t = z_t - Σ_j ω_j S_j; in units of the normalised matrix.

        Buffers are written in place, since new memory takes longer than all the rest. They remember a round when the next one
        begins, and know how many they have seen: a round that is made again comes out the same.
        """
        made = draw("noise", number)
        if not self.decays:
            return made, state
        kept = {name: value if value.flags.writeable else value.copy() for name, value in state.items()}
        rows, behind, room = kept["buffers"], int(kept["seen"]) < number, np.empty(min(_PIECE, dim))
        kept["seen"][...] = number
        weights, decays, first = np.array(self.weights), np.array(self.decays)[:, None], self.first
        for start in range(0, dim, _PIECE):
            own, piece = made[start : start + _PIECE], rows[:, start : start + _PIECE]
            buffers, newest = piece[:-1], piece[-1]
            if behind:
                buffers *= decays
                buffers += newest
            remembered = room[: own.size]
            np.einsum("j,jd->d", weights, buffers, out=remembered)
            own -= remembered
            newest[...] = own
            own /= first
        return made, kept


@dataclass(frozen=True, eq=False)
class _Wanted:
    """What is minimised: log(sensitivity² · error)."""

    rounds: int
    times: int
    separation: int
    weights: Array
    momentum: float

    def loss(self, logs: Array) -> tuple[float, Array]:
        """The loss and its gradient: by hand down to decays and weights, from there by complex steps."""
        values, slopes = _parts(logs), _slopes(logs)
        value, by_column = self._sensitivity(_series(values[0], values[1], self.rounds))
        error, by_inverse = self._error(_series(values[2], values[3], self.rounds))
        gradient = np.concatenate([*_adjoint(values[0], values[1], by_column), *_adjoint(values[2], values[3], by_inverse)])
        return value + error, gradient @ slopes

    def _sensitivity(self, column: Array) -> tuple[float, Array]:
        moved = np.zeros(self.rounds)
        for place in range(0, self.times * self.separation, self.separation):
            moved[place:] += column[: self.rounds - place]
        total, slope = float(moved @ moved), np.zeros(self.rounds)
        for place in range(0, self.times * self.separation, self.separation):
            slope[: self.rounds - place] += 2 * moved[place:]
        return math.log(total), slope / total

    def _error(self, inverse: Array) -> tuple[float, Array]:
        poles = [1.0, -(1.0 + self.momentum), self.momentum]
        made = scipy.signal.lfilter([1.0], poles, inverse)
        total = float(self.weights @ np.square(made))
        slope = scipy.signal.lfilter([1.0], poles, (2 * self.weights * made)[::-1])[::-1]
        return math.log(total), np.asarray(slope / total)


def _series(decays: Array, weights: Array, rounds: int) -> Array:
    return np.concatenate([[1.0], weights @ decays[:, None] ** np.arange(rounds - 1)])


def _adjoint(decays: Array, weights: Array, slope: Array) -> tuple[Array, Array]:
    """Derivatives by decay and by weight, from those by coefficient."""
    steps = np.arange(slope.size - 1)
    powers = decays[:, None] ** steps
    lower = np.concatenate([np.zeros((decays.size, 1)), powers[:, :-1]], axis=1)
    return weights * (lower @ (steps * slope[1:])), powers @ slope[1:]


def _parts(logs: Array) -> tuple[Array, Array, Array, Array]:
    """(θ, ω, θ̂, ω̂) of parameters; complex ones give complex answers, for derivatives."""
    values = -np.expm1(-np.cumsum(np.exp(logs)))
    inner, outer = values[0::2], values[1::2]  # θ̂, θ in increasing order
    return outer, _weights(outer, inner), inner, _weights(inner, outer)


def _weights(own: Array, other: Array) -> Array:
    apart = own[:, None] - own
    np.fill_diagonal(apart, 1.0)
    return np.asarray((own[:, None] - other).prod(axis=1) / apart.prod(axis=1))


def _slopes(logs: Array) -> Array:
    """Derivatives of (θ, ω, θ̂, ω̂), a column for every parameter."""
    steps = np.eye(logs.size) * 1j * _SMALLEST_STEP
    return np.stack([np.concatenate(_parts(logs + step)).imag / _SMALLEST_STEP for step in steps], axis=1)


def _start(top: float, buffers: int, rounds: int) -> Array:
    usual = min(top, math.log(max(rounds, 3)))
    places = np.linspace(usual / (2 * buffers), usual, 2 * buffers)
    places[-1] = max(top, places[-1])
    return np.log(np.diff(places, prepend=0.0))


def _searched(wanted: _Wanted, start: Array) -> scipy.optimize.OptimizeResult:
    limits = [(-12.0, 3.0)] * start.size
    with np.errstate(all="ignore"):
        return scipy.optimize.minimize(
            wanted.loss, start, jac=True, method="L-BFGS-B", bounds=limits,
            options={"maxiter": 2000, "maxfun": 4000, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-9},
        )  # fmt: skip
