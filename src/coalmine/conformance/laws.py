"""Laws of the statistics, if the description is true: every function returns a p-value, or a bound of one from above.

symbol   here     meaning
N        count    independent standard normals that went into a statistic
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, gammainc, gammaincc, gammaincinv, gammaln, ndtr, ndtri

from coalmine.contracts import Array, Side

_ORDER: dict[Side, int] = {"less": 0, "unknown": 1, "more": 2, "none": 3}  # which of equal tails is said
_CLEAR = 1e-6
_FAR = 38.0  # standard deviations at which float64 has no smaller tail


@dataclass(frozen=True)
class Tail:
    """How unlikely a statistic is under the description, on which side of it, and where it was found."""

    p_value: float
    side: Side = "unknown"
    where: str | None = None


def worst(tails: Sequence[Tail]) -> Tail:
    """The smallest of several p-values, times their number (Bonferroni).

    Where one of them clearly says "less", so does the whole: noise that is missing somewhere is not made up for elsewhere.
    """
    return least_likely(tails, len(tails))


def least_likely(tails: Sequence[Tail], tried: int) -> Tail:
    """The same where only the least likely of so many are known, of each side."""
    if not tails:
        return Tail(1.0)
    found = min(tails, key=lambda tail: (tail.p_value, _ORDER[tail.side]))
    less = [tail for tail in tails if tail.side == "less" and tail.p_value <= _CLEAR / tried]
    side, where = (less[0].side, less[0].where) if less and found.side == "more" else (found.side, found.where)
    return Tail(min(1.0, found.p_value * tried), side, where)


def both_sides(lower: float, upper: float, where: str | None = None, *, lower_only: bool = False) -> Tail:
    """Two tails of a measure of noise: too little of it is less protection than claimed."""
    if lower_only:
        return Tail(min(1.0, lower), "less", where)
    return Tail(min(1.0, 2 * min(lower, upper)), "less" if lower <= upper else "more", where)


def chi_square(total: float, count: float) -> tuple[float, float]:
    """(P(X <= total), P(X >= total)) of a sum of `count` squared standard normals."""
    return float(gammainc(count / 2, total / 2)), float(gammaincc(count / 2, total / 2))


def spread_interval(total: float, count: float, confidence: float) -> tuple[float, float]:
    """Interval of the standard deviation of `count` normals of mean zero whose squares sum to `total`."""
    tail = (1 - confidence) / 2
    return tuple(math.sqrt(total / (2 * gammaincinv(count / 2, each))) for each in (1 - tail, tail))  # type: ignore[return-value]


def noticed_factor(count: float, level: float, power: float = 0.8) -> float:
    """The largest factor on the standard deviation, below 1, that a two-sided test notices with this probability."""
    return math.sqrt(float(gammaincinv(count / 2, level / 2) / gammaincinv(count / 2, power)))


def normal_score(total: float, count: float) -> float:
    """A chi-square as the standard normal of the same tail."""
    lower, upper = chi_square(total, count)
    return float(np.clip(ndtri(lower) if lower < upper else -ndtri(upper), -_FAR, _FAR))


def normal(score: float, where: str | None = None) -> Tail:
    """Both tails of a standard normal."""
    return Tail(min(1.0, float(2 * ndtr(-abs(score)))), "unknown", where)


def binomial(found: float, count: float, probability: float) -> tuple[float, float]:
    """(P(X <= found), P(X >= found)) of a binomial."""
    lower = 1.0 if found >= count else float(betainc(count - found, found + 1, 1 - probability))
    upper = 1.0 if found <= 0 else float(betainc(found, count - found + 1, probability))
    return lower, upper


def hypergeometric_above(found: float, population: float, first: float, second: float) -> float:
    """P(X >= found) of the overlap of two sets of these sizes, drawn from `population`.

    >>> hypergeometric_above(2, 4, 2, 2) * 6
    1.0
    """
    least, most = max(first + second - population, 0.0), min(first, second)
    if found <= least:
        return 1.0
    each = np.arange(found, most + 1)
    log_ways = _log_choose(first, each) + _log_choose(population - first, second - each)
    return float(min(1.0, np.exp(log_ways - _log_choose(population, second)).sum()))


def _log_choose(count: float, taken: ArrayLike) -> Array:
    taken = np.asarray(taken, dtype=np.float64)
    return np.asarray(gammaln(count + 1) - gammaln(taken + 1) - gammaln(count - taken + 1))


def poisson_above(found: float, mean: float) -> float:
    """P(X >= found) of a Poisson."""
    return 1.0 if found <= 0 else float(gammainc(found, mean))


def cosine(value: float, dim: int) -> float:
    """P(|cosine| >= value) of two independent directions."""
    return float(betainc((dim - 1) / 2, 0.5, max(1 - value * value, 0.0)))


def cosine_square(value: float, dim: int) -> float:
    """A cosine of two independent directions as the squared standard normal of the same tail: chi-square, 1 degree of freedom.

    >>> round(cosine_square(0.0, 100), 12), round(cosine_square(2 / 10_000, 100_000_000), 6)
    (0.0, 4.0)
    """
    return float(np.clip(ndtri(cosine(min(abs(value), 1.0), dim) / 2), -_FAR, 0.0) ** 2) if dim > 1 else 1.0


def shifted_products(total: float, count: float) -> float:
    """Bound of P(|sum of `count` products of an N(0, 1) with its neighbour at a fixed distance| >= total) (Chernoff).

    log E exp(theta r) = -(N/2) log((1 + sqrt(1 - 4 theta²)) / 2); theta = sin(phi)/2, t = tan(phi/2) solves
    t (1 + t²) / (1 - t²) = r / N.
    """
    ratio, low, high = abs(total) / count, 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * (1 + middle**2) < ratio * (1 - middle**2) else (low, middle)
    theta = low / (1 + low**2)
    log_moment = -count / 2 * math.log((1 + math.sqrt(max(1 - 4 * theta**2, 0.0))) / 2)
    return min(1.0, 2 * math.exp(min(log_moment - theta * abs(total), 0.0)))


def kurtosis_score(fourth: float, count: float) -> float:
    """The ratio fourth moment / variance² of normals as a standard normal (Anscombe & Glynn 1983)."""
    n = count
    mean = 3 * (n - 1) / (n + 1)
    variance = 24 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    skew = 6 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * math.sqrt(6 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    a = 6 + 8 / skew * (2 / skew + math.sqrt(1 + 4 / skew**2))
    base = (1 - 2 / a) / (1 + (fourth - mean) / math.sqrt(variance) * math.sqrt(2 / (a - 4)))
    return float((1 - 2 / (9 * a) - math.copysign(abs(base) ** (1 / 3), base)) / math.sqrt(2 / (9 * a)))


def skewness_score(third: float, count: float) -> float:
    """The ratio third moment / deviation³ of normals as a standard normal (D'Agostino 1970)."""
    n = count
    y = third * math.sqrt((n + 1) * (n + 3) / (6 * (n - 2)))
    b = 3 * (n * n + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2) * (n + 5) * (n + 7) * (n + 9))
    w2 = math.sqrt(2 * (b - 1)) - 1
    return float(math.asinh(y / math.sqrt(2 / (w2 - 1))) / math.sqrt(math.log(math.sqrt(w2))))


def normal_mass(bound: ArrayLike) -> Array:
    """P(|N(0, 1)| > bound)."""
    return np.asarray(2 * ndtr(-np.asarray(bound, dtype=np.float64)))
