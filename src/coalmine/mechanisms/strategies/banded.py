"""Banded Toeplitz noise, BandMF (Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization").

c has `bands` coefficients. Rounds of a client that are at least `bands` apart have orthogonal columns, so that k of them count
as sqrt(k). They minimise log(|c|² · error) over c = reversed cumulative sums of exp(p): positive and decreasing. By the theorem
of Eneström and Kakeya such a c is minimum phase, so that C⁻¹ does not grow, and its sensitivity is known exactly. (A search
over c itself overflows in its line search.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy  # its parts are loaded when they are used

from coalmine import _validate
from coalmine.contracts import Array, State
from coalmine.mechanisms.strategies._toeplitz import ToeplitzStrategy, quotient
from coalmine.mechanisms.strategies.strategy import CorrelatedStrategy, Draw, Plan, rounded
from coalmine.mechanisms.strategies.toeplitz import Toeplitz

OBJECTIVES = ("mean", "max")
_PIECE = 1 << 16  # coordinates at once
_MANY = 32  # bands, beyond which several rounds read the ring together
_TOGETHER = 8  # rounds
_LEAST_STEP = 1e-300


@dataclass(frozen=True)
class Banded(ToeplitzStrategy):
    """So many coefficients, stored as they are used; `Banded.optimal` finds them."""

    values: tuple[float, ...] = (1.0,)
    kind: ClassVar[str] = "banded"
    options: ClassVar[tuple[str, ...]] = ("bands", "objective")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "values", tuple(float(each) for each in self.values))
        if not 1 <= len(self.values) <= self.rounds:
            raise ValueError(f"{len(self.values)} bands are not allowed: there must be 1 to {self.rounds}, the rounds.")
        if not (np.isfinite(self.values).all() and self.values[0] > 0):
            raise ValueError("the coefficients of a banded strategy must be finite, and the first one positive.")

    @classmethod
    def from_options(cls, options: Mapping[str, Any], plan: Plan) -> CorrelatedStrategy:
        """`bands`, by default as many as rounds of a client are apart, and `objective`."""
        bands = options.get("bands", min(plan.separation, plan.rounds))
        return cls.optimal(plan.rounds, bands, options.get("objective", "mean"), plan.momentum)

    @staticmethod
    def optimal(rounds: int, bands: int, objective: str = "mean", momentum: float = 0.0) -> Banded:
        """The best coefficients for prefix sums, or for those of a server with this momentum.

        >>> strategy = Banded.optimal(16, 4)
        >>> round(strategy.rms_error(), 6), round(strategy.max_error(), 6)
        (1.93753, 2.451207)
        """
        rounds, bands = _validate.whole("rounds", rounds, least=1), _validate.whole("bands", bands, least=1)
        _validate.one_of("objective", objective, OBJECTIVES)
        if bands > rounds:
            raise ValueError(f"bands={bands} is not allowed: there are {rounds} rounds, and a column has no more entries.")
        if bands == 1:
            return Banded(rounds, (1.0,))
        weights = weights_of(objective, rounds)
        begin = Toeplitz(rounds).column()[:bands]
        steps = np.append(-np.diff(begin), begin[-1])
        found = scipy.optimize.minimize(
            _loss, np.log(steps), args=(rounds, weights, momentum), jac=True, method="L-BFGS-B",
            options={"maxiter": 3000, "maxfun": 10000, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9},
        )  # fmt: skip
        best = _decreasing(found.x)
        return Banded(rounds, rounded(best / np.linalg.norm(best)))

    def column(self) -> Array:
        """c."""
        return np.array(self.values)

    def coefficients(self) -> Array:
        """c, normalised; one band is exactly 1, so that its noise has the bits of independent noise."""
        raw = self.column()
        return np.ones(1) if raw.size == 1 else np.asarray(raw / np.linalg.norm(raw))

    @property
    def bands(self) -> int:
        """The number of coefficients."""
        return len(self.values)

    @property
    def memory(self) -> int:
        """Rows that whitening keeps."""
        return self.bands - 1

    @property
    def vectors(self) -> int:
        """Vectors of noise that the next one is made from."""
        return self.bands - 1

    @property
    def stored(self) -> int:
        """The same, the newest, and what is known of later rounds."""
        return 0 if self.bands == 1 else self.bands + (_TOGETHER - 1) * (self.bands > _MANY)

    def check_size(self, dim: int) -> None:
        """No limit in time."""

    def whiten(self, rows: Array, state: State) -> tuple[Array, State]:
        """c_0 row_t + c_1 row_{t-1} + …"""
        kept = self.bands - 1
        past = state["past"] if "past" in state else np.zeros((kept, *rows.shape[1:]))
        every = np.concatenate([past, rows])
        made = np.zeros(rows.shape)
        for lag, value in enumerate(self.coefficients()):  # a filter of scipy would go through the columns one by one
            made += value * every[kept - lag : every.shape[0] - lag]
        return made, {"past": every[every.shape[0] - kept :]}

    def init(self, dim: int) -> State:
        """A ring of vectors, none made yet."""
        if self.bands == 1:
            return {}
        ring = {"past": np.zeros((self.bands, dim))}
        return ring if self.bands <= _MANY else {**ring, "ahead": np.zeros((_TOGETHER - 1, dim))}

    def noise(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """w_t = (z_t - c_1 w_{t-1} - …) / c_0.

        The ring has a place more than it needs: round t writes where round t does not read, so that the ring can be written in
        place, and a round that is made again comes out the same.
        """
        made, own = draw("noise", number), self.coefficients()
        if self.bands == 1:
            return made, state
        kept = {name: value if value.flags.writeable else value.copy() for name, value in state.items()}
        subtract = self._few if self.bands <= _MANY else self._many
        subtract(number, made, own, **kept)
        return made, kept

    def _few(self, number: int, made: Array, own: Array, past: Array) -> None:
        """Every round reads the whole ring; what is computed of a piece stays in the cache."""
        weights, room = self._weights(number, 0, own), np.empty(min(_PIECE, made.size))
        for start in range(0, made.size, _PIECE):
            part = made[start : start + _PIECE]
            summed = room[: part.size]
            np.einsum("j,jd->d", weights, past[:, start : start + _PIECE], out=summed)
            part -= summed
            part /= own[0]
            past[number % self.bands, start : start + _PIECE] = part

    def _many(self, number: int, made: Array, own: Array, past: Array, ahead: Array) -> None:
        """The ring is larger than any cache, and reading it takes the time: once for several rounds, as a product of matrices.

        `ahead` holds what vectors from before the first of these rounds give to the others; the few since then are added.
        """
        turn, size = number % _TOGETHER, _PIECE >> 3
        weights = np.stack([self._weights(number, later, own) for later in range(_TOGETHER)])
        for start in range(0, made.size, size):
            piece = slice(start, min(start + size, made.size))
            if turn == 0:
                sums = weights @ past[:, piece]
                ahead[:, piece], summed = sums[1:], sums[0]
            else:
                summed = ahead[turn - 1, piece].copy()
            for lag in range(1, turn + 1):
                summed += own[lag] * past[(number - lag) % self.bands, piece]
            made[piece] -= summed
            made[piece] /= own[0]
            past[number % self.bands, piece] = made[piece]

    def _weights(self, number: int, later: int, own: Array) -> Array:
        """By place in the ring, the coefficients with which vectors before this round count, so many rounds later."""
        weights = np.zeros(self.bands)
        places = (number - np.arange(1, self.bands - later)) % self.bands
        weights[places] = own[1 + later :]
        return weights


def weights_of(objective: str, rounds: int) -> Array:
    """By coefficient of b, how much its square counts: the mean over rounds of e_t², or the last of them."""
    return np.arange(rounds, 0, -1) / rounds if objective == "mean" else np.ones(rounds)


def _decreasing(log_steps: Array) -> Array:
    steps = np.maximum(np.exp(np.minimum(log_steps, 300.0)), _LEAST_STEP)
    return np.asarray(np.cumsum(steps[::-1])[::-1])


def _loss(log_steps: Array, rounds: int, weights: Array, momentum: float) -> tuple[float, Array]:
    """log(|c|² · error) and its gradient, by one adjoint solve."""
    own = _decreasing(log_steps)
    own /= np.linalg.norm(own)  # the loss does not depend on the length of c
    made = quotient(own, rounds, momentum)
    error = float(weights @ np.square(made))
    adjoint = scipy.signal.lfilter([1.0], own, (2 * weights * made)[::-1])[::-1]
    slopes = -np.array([float(adjoint[lag:] @ made[: rounds - lag]) for lag in range(own.size)])
    by_value = 2 * own + slopes / error  # of log |c|² + log error, at |c| = 1
    steps = -np.diff(np.append(own, 0.0))
    return float(np.log(error)), np.cumsum(by_value) * steps
