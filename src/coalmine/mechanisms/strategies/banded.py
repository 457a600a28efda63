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
from coalmine.mechanisms.strategies.strategy import LONGEST, CorrelatedStrategy, Draw, Plan, check_search, rounded
from coalmine.mechanisms.strategies.toeplitz import Toeplitz

OBJECTIVES = ("mean", "max")
_PIECE = 1 << 16  # coordinates at once
_COLUMNS = 1 << 13  # coordinates of one product of matrices
_FEW = 8  # bands, up to which every round reads the ring by itself
_MANY = 32  # bands, beyond which twice as many rounds read it together
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
        rounds = _validate.whole("rounds", rounds, least=1, most=LONGEST)
        bands = _validate.whole("bands", bands, least=1)
        _validate.one_of("objective", objective, OBJECTIVES)
        if bands > rounds:
            raise ValueError(f"bands={bands} is not allowed: there are {rounds} rounds, and a column has no more entries.")
        if bands == 1:
            return Banded(rounds, (1.0,))
        check_search(rounds * bands, f"{bands:,} bands over {rounds:,} rounds", "Ask for fewer bands, or use strategy 'blt'.")
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
    def together(self) -> int:
        """Rounds whose noise is made at once: with many bands, reading the vectors of the past is what takes the time."""
        return 1 if self.bands <= _FEW else _TOGETHER if self.bands <= _MANY else 2 * _TOGETHER

    @property
    def stored(self) -> int:
        """The same, and those that are made together."""
        return 0 if self.bands == 1 else self.bands - 1 + self.together

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
        return {} if self.bands == 1 else {"past": np.zeros((self.stored, dim))}

    def noise(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """w_t = (z_t - c_1 w_{t-1} - …) / c_0.

        The ring has places for the rounds that are made together beside those that they read: it is written in place, and a
        round that is made again comes out the same.
        """
        if self.bands == 1:
            return draw("noise", number), state
        past = state["past"] if state["past"].flags.writeable else state["past"].copy()
        if self.together == 1:
            return self._made(number, draw("noise", number), past), {"past": past}
        if number % self.together == 0:
            self._make(number, draw, past)
        return past[number % self.stored].copy(), {"past": past}

    def _made(self, number: int, made: Array, past: Array) -> Array:
        """One round, in pieces that stay in the cache."""
        own, weights, room = self.coefficients(), np.zeros(self.bands), np.empty(min(_PIECE, made.size))
        weights[(number - np.arange(1, self.bands)) % self.bands] = own[1:]
        for start in range(0, made.size, _PIECE):
            part = made[start : start + _PIECE]
            summed = room[: part.size]
            np.einsum("j,jd->d", weights, past[:, start : start + _PIECE], out=summed)
            part -= summed
            part /= own[0]
            past[number % self.bands, start : start + _PIECE] = part
        return made

    def _make(self, number: int, draw: Draw, past: Array) -> None:
        """Several rounds as one product of matrices: normals are written where their noise belongs, then mixed."""
        places = (number + np.arange(1 - self.bands, self.together)) % self.stored
        new, weights = places[self.bands - 1 :], np.empty((self.together, self.stored))
        weights[:, places] = self._mixing()
        for later, place in enumerate(new):
            if number + later < self.rounds:
                draw("noise", number + later, out=past[place])
        for start in range(0, past.shape[1], _COLUMNS):
            piece = past[:, start : start + _COLUMNS]
            size = piece.shape[1]
            if size < _COLUMNS:  # products of other sizes add up in another order, which depends on the number of threads
                piece = np.pad(piece, ((0, 0), (0, _COLUMNS - size)))
            for place, row in zip(new, weights @ piece, strict=True):
                past[place, start : start + size] = row[:size]

    def _mixing(self) -> Array:
        """The last rows of [[1, 0], [-T⁻¹P, T⁻¹]]: noise of rounds by the noise of those before them, and by their normals.

        T is C of these rounds, and P what the rounds before them leave in them.
        """
        kept, column = self.bands - 1, np.zeros(self.bands - 1 + self.together)
        column[: self.bands] = self.coefficients()
        whole = scipy.linalg.toeplitz(column, np.zeros(column.size))[kept:]
        mixed = scipy.linalg.solve_triangular(whole[:, kept:], np.hstack([-whole[:, :kept], np.eye(self.together)]), lower=True)
        return np.asarray(mixed)


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
