"""Damped Toeplitz noise, ν-DP-FTRL (Choquette-Choo et al. 2023, "Correlated Noise Provably Beats Independent Noise").

    C(x) = (1 - (1 - ν) x)^(-1/2):    c_t = c_{t-1} (1 - 1/(2t)) (1 - ν),    w_t = w_{t-1} (1 - 3/(2t)) (1 - ν),   c_0 = w_0 = 1

ν = 0 is the square root of prefix sums (B = C), whose largest error is the best of all Toeplitz strategies (Fichtenberger et
al. 2023). For noise, the number of rounds matters only for the normalisation.

Where we depart, and why: a printed form of the noise coefficients, -t^(-3/2) (1 - ν)^t without the factor 1/(2 sqrt(pi)), is
not the inverse of anything tame: it has zeros inside the unit circle, and the sensitivity of its inverse grows beyond all
bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy  # its parts are loaded when they are used

from coalmine import _validate
from coalmine.contracts import Array
from coalmine.mechanisms.strategies._toeplitz import ToeplitzStrategy
from coalmine.mechanisms.strategies.strategy import CorrelatedStrategy, Plan


@dataclass(frozen=True)
class Toeplitz(ToeplitzStrategy):
    """C(x) = (1 - (1 - damping) x)^(-1/2).

    >>> strategy = Toeplitz(rounds=16, damping=0.0)
    >>> round(1 / strategy.first, 6), round(strategy.max_error() * strategy.first, 6)
    (1.394231, 1.394231)
    """

    damping: float = 0.0
    kind: ClassVar[str] = "toeplitz"
    options: ClassVar[tuple[str, ...]] = ("damping", "buffers")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= _validate.number("damping", self.damping) < 1:
            raise ValueError(f"damping={self.damping!r} is not allowed: it must be at least 0 and below 1.")

    @classmethod
    def from_options(cls, options: Mapping[str, Any], plan: Plan) -> CorrelatedStrategy:
        """`damping`. With `buffers` it is another strategy, see `make_strategy`."""
        return cls(plan.rounds, options.get("damping", 0.0))

    def column(self) -> Array:
        """c, with c_0 = 1."""
        return self._powers(0.5)

    def inverse_column(self) -> Array:
        """w, in units in which |c| = 1."""
        return np.asarray(self._powers(1.5) * np.linalg.norm(self.column()))

    def errors(self, momentum: float = 0.0) -> Array:
        """By round, the squared error: of a noise matrix that is known, in time of the rounds alone."""
        made = scipy.signal.lfilter([1.0], [1.0, -(1.0 + momentum), momentum], self.inverse_column())
        return np.asarray(np.cumsum(np.square(made)))

    def _powers(self, shift: float) -> Array:
        step = np.arange(1, self.rounds)
        return np.concatenate([[1.0], np.cumprod((1 - shift / step) * (1 - self.damping))])
