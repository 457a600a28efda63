"""Strategies whose matrix is the same along its diagonals: C = T(c), a column is the one before it, a round later.

    symbol   here             meaning
    c        coefficients()   first column of C, |c| = 1
    b        ...              first column of B = A C⁻¹: b = a / c as power series; e_t² = b_0² + … + b_t²

Sensitivity of k rounds that are b apart: for c_0 >= c_1 >= … >= 0 the worst are 0, b, 2b, … (Kalinin & Lampert 2024, Theorem
2), so |Σ_j T(c) e_{jb}|, exactly.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import scipy  # its parts are loaded when they are used

from coalmine.contracts import Array, Constraint, Explicit, PerPeriod
from coalmine.mechanisms.strategies.sensitivity import Sensitivity
from coalmine.mechanisms.strategies.strategy import MOST_ROUNDS, CorrelatedStrategy


@dataclass(frozen=True)
class ToeplitzStrategy(CorrelatedStrategy):
    """A strategy that its first column describes."""

    @abstractmethod
    def column(self) -> Array:
        """The first column of C, of any length up to `rounds`, in any unit: c_0 > 0."""

    def coefficients(self) -> Array:
        """The first column of C as long as it is not zero, normalised: |c| = 1."""
        raw = self.column()
        return np.asarray(raw / np.linalg.norm(raw))

    @property
    def first(self) -> float:
        """c_0."""
        return float(self.coefficients()[0])

    def matrix(self) -> Array:
        """C, dense."""
        self._check_dense()
        return np.asarray(scipy.linalg.toeplitz(self._whole(self.coefficients()), np.zeros(self.rounds)))

    def inverse(self) -> Array:
        """C⁻¹, dense."""
        self._check_dense()
        return np.asarray(scipy.linalg.toeplitz(self.inverse_column(), np.zeros(self.rounds)))

    def inverse_column(self) -> Array:
        """The first column of C⁻¹."""
        impulse = np.zeros(self.rounds)
        impulse[0] = 1.0
        return np.asarray(scipy.signal.lfilter([1.0], self.coefficients(), impulse))

    def row(self, number: int) -> Array:
        """Row t of W."""
        return self.inverse_column()[number::-1]

    @property
    def decreasing(self) -> bool:
        """Whether c_0 >= c_1 >= … >= 0, for which sensitivities are known exactly."""
        steps = np.diff(self.coefficients())
        return bool((steps <= 0).all() and self.coefficients()[-1] >= 0)

    def bound(self, constraint: Constraint) -> Sensitivity:
        """Exact for rounds that are so far apart, and for sets that are listed, if coefficients decrease."""
        self.check_rounds(constraint.rounds)
        if isinstance(constraint, Explicit) and self.decreasing:
            return Sensitivity(float(self.gaps(constraint.presence.astype(np.float64)).max(initial=0.0)), True)
        if isinstance(constraint, (Explicit, PerPeriod)) or not self.decreasing:
            return super().bound(constraint)
        times = min(constraint.times, -(-constraint.rounds // constraint.separation))
        moved, own = np.zeros(constraint.rounds), self._whole(self.coefficients())
        for place in range(0, times * constraint.separation, constraint.separation):
            moved[place:] += own[: constraint.rounds - place]
        return Sensitivity(float(np.linalg.norm(moved)), True)

    def gaps(self, presence: Array) -> Array:
        """|C s| by column."""
        seen = np.asarray(presence, dtype=np.float64)
        self.check_rounds(seen.shape[0])
        return np.asarray(np.linalg.norm(scipy.signal.lfilter(self.coefficients(), [1.0], seen, axis=0), axis=0))

    def least_column(self) -> float:
        """That of the last round, which has c_0 alone."""
        return self.first if self.decreasing else super().least_column()

    def errors(self, momentum: float = 0.0) -> Array:
        """By round, the squared error."""
        return np.asarray(np.cumsum(np.square(quotient(self.coefficients(), self.rounds, momentum))))

    def noise_of_sum(self, weights: Array) -> float:
        """The noise of a weighted sum of the releases."""
        return float(np.linalg.norm(scipy.signal.lfilter([1.0], self.coefficients(), weights[::-1])))

    def autocorrelation(self) -> Array:
        """Correlation of the noise of the last round with that of the rounds before it."""
        made = self.inverse_column()
        spreads = np.sqrt(np.cumsum(np.square(made)))
        covariance = scipy.signal.fftconvolve(made, made[::-1])[self.rounds - 1 :]
        return np.asarray(covariance / (spreads[::-1] * spreads[-1]))

    def _whole(self, values: Array) -> Array:
        return np.concatenate([values, np.zeros(self.rounds - values.size)])

    def _check_dense(self) -> None:
        if self.rounds > MOST_ROUNDS:
            raise ValueError(
                f"{self.rounds} rounds are more than the {MOST_ROUNDS} for which a sensitivity of this participation or "
                "strategy is computed. State a separation (pattern 'min-separation'), or train for fewer rounds."
            )


def quotient(coefficients: Array, rounds: int, momentum: float = 0.0) -> Array:
    """b = a / c: the first column of B, for prefix sums, or for those of releases with heavy-ball momentum."""
    return np.asarray(scipy.signal.lfilter([1.0], coefficients, workload(rounds, momentum)))


def workload(rounds: int, momentum: float = 0.0) -> Array:
    """a_t = 1 + m + … + m^t: what a release of t rounds ago is worth to the model."""
    if not momentum:
        return np.ones(rounds)
    return np.asarray((1 - momentum ** np.arange(1, rounds + 1)) / (1 - momentum))
