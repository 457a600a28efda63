"""Intervals for the mean of exchangeable bits, several in each of several runs (Pillutla et al. 2023).

`coalmine.estimators.lifted` has the notation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from coalmine.contracts import Array

Kind = Literal["wilson", "bernstein"]
VarianceForm = Literal["exact", "published"]


@dataclass(frozen=True)
class XBern:
    """Moments of n runs of k exchangeable bits; `interval` bounds the mean on either side."""

    moments: tuple[float, ...]
    runs: int
    bits: int

    @classmethod
    def of(cls, means: Array, bits: NDArray[np.int64], order: int) -> "XBern":
        """From each run's share of ones and its number of bits; the smallest number of bits bounds the variance of all runs."""
        moment, moments = np.ones_like(means), []
        for power in range(order):
            moment = moment * (bits * means - power) / (bits - power)
            moments.append(float(moment.mean()))
        return cls(tuple(moments), means.size, int(bits.min()))

    def interval(self, miss: float, *, order: int, kind: Kind, variance: VarianceForm = "exact") -> tuple[float, float]:
        """(left, right): each side misses the mean with probability at most `miss`.

        >>> left, right = XBern((0.5, 0.25, 0.125, 0.0625), runs=1000, bits=10).interval(0.05, order=2, kind="wilson")
        >>> round(left, 6), round(right, 6)
        (0.484341, 0.512215)
        """
        n, k, mean = self.runs, self.bits, self.moments[0]
        if order == 1 or k == 1:
            return _solve(kind, mean, n, miss, 1.0, 0.0, 1.0)
        share = miss / order
        if order == 2:
            second = _solve(kind, self.moments[1], n, share, 1.0, 0.0, 1.0)[1]
        else:
            second = self._second_moment(share, kind, variance)
        return _solve(kind, mean, n, share, 1 / k, (k - 1) / k * second, 1.0)

    def _second_moment(self, miss: float, kind: Kind, variance: VarianceForm) -> float:
        """Upper bound of mu_2 from Var(m_2) = [2 mu_2 + 4(k-2) mu_3 + (k-2)(k-3) mu_4]/(k(k-1)) - mu_2²."""
        n, k = self.runs, self.bits
        third = _solve(kind, self.moments[2], n, miss, 1.0, 0.0, 1.0)[1]
        fourth = _solve(kind, self.moments[3], n, miss, 1.0, 0.0, 1.0)[1]
        pairs = k * (k - 1)
        if variance == "exact":
            constant, square = (4 * (k - 2) * third + (k - 2) * (k - 3) * fourth) / pairs, 1.0
        else:
            constant = (4 * (k - 2) * third + (k - 2) * (k - 3) * (fourth - third**2)) / pairs
            square = (2 + 4 * (k - 2)) / pairs
        return _solve(kind, self.moments[1], n, miss, 2 / pairs, constant, square)[1]


def _solve(kind: Kind, mean: float, n: int, miss: float, linear: float, constant: float, square: float) -> tuple[float, float]:
    """Interval for a mean whose variance is linear·x + constant - square·x² at the true mean x."""
    if kind == "wilson":
        return _wilson(mean, n, miss, linear, constant, square)
    return _bernstein(mean, n, miss, linear, constant, square)


def _wilson(mean: float, n: int, miss: float, linear: float, constant: float, square: float) -> tuple[float, float]:
    """The roots of n (x - mean)² = z² (linear·x + constant - square·x²), never wider than variance ¼ allows."""
    z = float(-special.ndtri(miss))
    a, b = n + square * z**2, 2 * n * mean + linear * z**2
    c = n * mean**2 - constant * z**2
    root = np.sqrt(max(b * b - 4 * a * c, 0.0))
    margin = z / (2 * np.sqrt(n))
    left, right = (b - root) / (2 * a), (b + root) / (2 * a)
    return float(max(left, mean - margin, 0.0)), float(min(right, mean + margin, 1.0))


def _bernstein(mean: float, n: int, miss: float, linear: float, constant: float, square: float) -> tuple[float, float]:
    """The x with |x - mean| = (2/3n) log(1/miss) + sqrt(2 var(x) log(1/miss)/n), the variance limited to [0, ¼]."""
    log_miss = -np.log(miss)

    def margin(x: float) -> float:
        variance = min(max(linear * x + constant - square * x * x, 0.0), 0.25)
        return float(2 / 3 * log_miss / n + np.sqrt(2 * variance * log_miss / n))

    left = 0.0 if mean - margin(0.0) < 0 else _root(lambda x: mean - x - margin(x), 0.0, mean)
    right = 1.0 if 1 - mean - margin(1.0) < 0 else _root(lambda x: x - mean - margin(x), mean, 1.0)
    return left, right


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-14))
