"""What all strategies of correlated noise share: a matrix, what it costs in accuracy, and how its noise is made round by round.

    symbol   here                  meaning
    C        matrix()              the strategy; its largest column norm is 1
    W        inverse()             noise_t = Σ_s W[t, s] z_s; the inverse of C where C is square
    A        workload(momentum)    what matters: the model after t rounds is a sum of releases (with momentum, a weighted one)
    B = A W  errors(...)           squared error of the model after each round, for noise of one clip norm

Everything that is released is a function of C x + noise: one Gaussian mechanism of sensitivity max |C s| over the sets of
rounds s that a client may take part in, also where x is chosen adaptively, since C is lower triangular (Denisov et al. 2022).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy  # its parts are loaded when they are used

from coalmine import _validate
from coalmine.contracts import Array, Constraint, State
from coalmine.mechanisms.strategies import sensitivity
from coalmine.mechanisms.strategies.sensitivity import Sensitivity

Draw = Callable[..., Array]  # names to a vector of standard normals of its own, always the same; `out`: where it is written
MOST_ROUNDS = 4096  # of a strategy that is a dense matrix
LONGEST = 100_000  # rounds of any strategy: errors and sensitivities take their square
MOST_SEARCHED = 1 << 23  # rounds · bands, or rounds · participations: a search of the best coefficients takes a minute
MOST_REGENERATED = 1 << 27  # rounds · parameters, where every round draws the normals of all rounds before it again
_ROUNDING = 1e-12  # of products of columns
DIGITS = 12  # significant digits of optimised coefficients, rounded before use: files hold all of them


@dataclass(frozen=True)
class Plan:
    """What a strategy is made for: rounds, how often and how far apart a client takes part, and the server's momentum."""

    rounds: int
    participations: int = 1
    separation: int = 1
    momentum: float = 0.0

    def __post_init__(self) -> None:
        _validate.whole("rounds", self.rounds, least=1, most=LONGEST)

    @staticmethod
    def of(constraint: Constraint, momentum: float = 0.0) -> Plan:
        """From the sets of rounds of a client: the smallest distance of two of them, or the length of a period."""
        return Plan(constraint.rounds, max(constraint.most, 1), sensitivity.distance(constraint), momentum)


@dataclass(frozen=True)
class CorrelatedStrategy(ABC):
    """A strategy for so many rounds. A run may be shorter; a longer one has columns that nobody normalised."""

    rounds: int
    kind: ClassVar[str] = ""
    options: ClassVar[tuple[str, ...]] = ()  # keys of a configuration that it is made from

    @classmethod
    @abstractmethod
    def from_options(cls, options: Mapping[str, Any], plan: Plan) -> CorrelatedStrategy:
        """The strategy for a plan, from the options that are stated."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", _validate.whole("rounds", self.rounds, least=1, most=LONGEST))

    # the matrix

    @abstractmethod
    def matrix(self) -> Array:
        """C: a column for every round, largest column norm 1."""

    @abstractmethod
    def inverse(self) -> Array:
        """W, whose row t says which normals the noise of round t is made of."""

    def after(self, rounds: int) -> Array:
        """C of a run that ended after so many rounds: rows that need later rounds were never released."""
        self.check_rounds(rounds)
        whole = self.matrix()
        return np.asarray(whole[~(whole[:, rounds:] != 0).any(axis=1), :rounds])

    @property
    def bands(self) -> int | None:
        """Columns of rounds that are so far apart, or further, are orthogonal; None: none are."""
        return None

    @property
    def first(self) -> float:
        """C[0, 0]. Others normalise it to 1, and then call noise_multiplier · this value the noise multiplier."""
        return float(self.matrix()[0, 0])

    # privacy

    def bound(self, constraint: Constraint) -> Sensitivity:
        """max |C s| over the allowed sets of rounds s, and whether it is exact or an upper bound."""
        return sensitivity.general(self.after(constraint.rounds), constraint)

    def sensitivity(self, constraint: Constraint) -> float:
        """The same, as a number: the accountant's mu is this over the noise multiplier."""
        return self.bound(constraint).value

    def gaps(self, presence: Array) -> Array:
        """|C s| of every column s of `presence`."""
        seen = np.asarray(presence, dtype=np.float64)
        return np.asarray(np.linalg.norm(self.after(seen.shape[0]) @ seen, axis=0))

    def least_column(self) -> float:
        """The smallest |C e_t| of a round, in a run that ends after it; |C s|² is at least its square for every round of s.

        Only where no two columns have a negative product.
        """
        whole = self.matrix()
        if (whole.T @ whole).min() < -_ROUNDING:
            raise ValueError(
                f"strategy {self.kind!r} has columns with negative products: rounds of a client hide each other, and there is "
                "no budget for the count that a clip norm follows. Take kind 'correlated', with a fixed clip norm."
            )
        ends = self.rounds - 1 - np.argmax(whole[:, ::-1] != 0, axis=1)  # the round after which a row is known
        squares = np.zeros(self.rounds)
        np.add.at(squares, ends, np.square(whole[np.arange(len(whole)), ends]))
        return float(np.sqrt(squares.min()))

    # accuracy

    def errors(self, momentum: float = 0.0) -> Array:
        """By round, the squared error of the model for noise of one clip norm: |row t of B|²."""
        made = scipy.signal.lfilter([1.0], [1.0, -(1.0 + momentum), momentum], self.inverse(), axis=0)
        return np.asarray(np.square(made).sum(axis=1))

    def scheduled_errors(self, rates: Array, momentum: float = 0.0) -> Array:
        """The same where the server's learning rate is another one in every round, as in a cooldown: A is not Toeplitz then.

        A[t, s] = Σ_{s<=r<=t} rates[r] momentum^(r-s). The claim does not depend on it.
        """
        steps = np.asarray(rates, dtype=np.float64)
        if steps.shape != (self.rounds,) or not np.isfinite(steps).all():
            raise ValueError(f"rates must be {self.rounds} finite numbers, a learning rate for every round.")
        velocity = scipy.signal.lfilter([1.0], [1.0, -momentum], self.inverse(), axis=0)
        return np.asarray(np.square(np.cumsum(steps[:, None] * velocity, axis=0)).sum(axis=1))

    def rms_error(self, momentum: float = 0.0) -> float:
        """Root of the mean squared error over rounds."""
        return float(np.sqrt(self.errors(momentum).mean()))

    def max_error(self, momentum: float = 0.0) -> float:
        """The largest error of a round."""
        return float(np.sqrt(self.errors(momentum).max()))

    @property
    def final_gap(self) -> float:
        """How far one participation moves the sum of all releases, in standard deviations of its noise."""
        return float(1.0 / self.noise_of_sum(np.ones(self.rounds)))

    def noise_of_sum(self, weights: Array) -> float:
        """The noise of a weighted sum of the releases: where weights vary over rounds, less of it cancels."""
        return float(np.linalg.norm(weights @ self.inverse()[: weights.size]))

    def autocorrelation(self) -> Array:
        """Correlation of the noise of the last round with that of the rounds before it, by distance."""
        made = self.inverse()
        covariance = made @ made[-1]
        spreads = np.linalg.norm(made, axis=1)
        return np.asarray((covariance / (spreads * spreads[-1]))[::-1])

    # the auditor

    @property
    def memory(self) -> int | None:
        """Vectors that whitening keeps from round to round; None: all of the past."""
        return None

    def whitening(self) -> Array:
        """The lower triangular matrix after which the noise is new in every round: C, or what the releases show of it."""
        return self.matrix()

    def whiten(self, rows: Array, state: State) -> tuple[Array, State]:
        """Rows of consecutive rounds, in units of multiplier · clip, to rows whose noise is N(0, I)."""
        past = np.concatenate([state["past"], rows]) if "past" in state else np.asarray(rows)
        self.check_rounds(past.shape[0])
        begin = past.shape[0] - rows.shape[0]
        return np.asarray(self.whitening()[begin : past.shape[0], : past.shape[0]] @ past), {"past": past}

    # the noise

    @property
    def vectors(self) -> int:
        """Vectors that making the noise keeps, or draws again in every round."""
        return self.rounds

    @property
    def stored(self) -> int:
        """Those of them that a checkpoint holds."""
        return 0

    def check_size(self, dim: int) -> None:
        """Whether the noise of so many parameters can be made in a bearable time."""
        if self.rounds * dim > MOST_REGENERATED:
            raise ValueError(
                f"strategy {self.kind!r} draws the noise of all earlier rounds again in every round: {self.rounds} rounds of "
                f"{dim:,} parameters are more than {MOST_REGENERATED:,} numbers. Use strategy 'blt' or 'banded'."
            )

    def init(self, dim: int) -> State:
        """The state before the first round."""
        return {}

    def noise(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """Row t of W times the normals of all rounds; a state that was used is not to be used again for an earlier round."""
        made = np.zeros(dim)
        for past, weight in enumerate(self.row(number)):
            if weight:
                made += weight * draw("noise", past)
        return made, state

    def row(self, number: int) -> Array:
        """Row t of W, up to the round itself."""
        return np.asarray(self.inverse()[number, : number + 1])

    def check_rounds(self, rounds: int) -> None:
        """A run must not be longer than the strategy."""
        if rounds > self.rounds:
            raise ValueError(
                f"{rounds} rounds are more than the {self.rounds} that strategy {self.kind!r} was made for: their columns are "
                f"not normalised. Make it for {rounds} rounds."
            )


def triangular_inverse(matrix: Array) -> Array:
    """The inverse of a lower triangular matrix."""
    return np.asarray(scipy.linalg.solve_triangular(matrix, np.eye(matrix.shape[0]), lower=True, check_finite=False))


def rounded(values: Array) -> tuple[float, ...]:
    """Numbers as a file holds them."""
    return tuple(float(f"{value:.{DIGITS}g}") for value in np.asarray(values, dtype=np.float64).ravel())


def check_search(size: int, what: str, instead: str) -> None:
    """Whether the best coefficients are found in a bearable time; `size` is what a step of the search costs."""
    if size > MOST_SEARCHED:
        raise ValueError(f"the best coefficients of {what} are not searched: that takes too long. {instead}")
