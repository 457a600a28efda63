"""Simultaneous upper bounds for a distribution function at its order statistics.

For k independent scores with distribution function F, F(X_(j)) is the j-th uniform order statistic (or below it, if
F has jumps), so the upper quantile b_j(a) of Beta(j, k-j+1) bounds F(X_(j)) with probability 1-a for one fixed j.
The band takes the one local level a for which ALL of them hold at once with the stated confidence ("equal local
levels", Berk & Jones 1979).

The local level solves P(some U_(j) > b_j(a)) = 1 - confidence, a boundary crossing of the uniform empirical process,
computed by the Poissonised recursion: let N(t) be a Poisson process of rate k; carry the law of N along b_1 < b_2 <
..., dropping at each b_j the paths with N(b_j) < j; condition on N(1) = k at the end. Only counts within some twelve
standard deviations matter, which makes the recursion exact to rounding and O(k^1.5).

Up to `FULL` scores every order statistic is used. Beyond that, the band lives on about 600 of them, geometrically
spaced from both ends, and the same recursion runs over those alone. The result is not an approximation: a band over
fewer thresholds is exactly simultaneous for those thresholds, and an order statistic in between takes the bound of
the next one above.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import signal, special
from scipy.optimize import brentq

from coalmine.contracts import Array

FULL = 2_000
_SPACING = 1.04
_WINDOW = 12.0


@lru_cache(maxsize=256)
def grid(count: int) -> NDArray[np.int64]:
    """The order statistics j (from 1) that the band uses for `count` scores."""
    if count <= FULL:
        return np.arange(1, count + 1)
    steps = np.unique(np.ceil(_SPACING ** np.arange(0, np.log(count) / np.log(_SPACING) + 1)).astype(np.int64))
    steps = steps[steps <= count // 2 + 1]
    return np.unique(np.concatenate([steps, count + 1 - steps]))


@lru_cache(maxsize=256)
def local_level(count: int, confidence: float) -> float:
    """The level of each order statistic's own bound that makes the whole band hold with `confidence`.

    >>> round(local_level(100, 0.95), 7)
    0.0024609
    """
    miss = 1.0 - confidence
    if grid(count).size == 1:
        return miss

    def excess(log_level: float) -> float:
        return crossing_probability(count, float(np.exp(log_level))) - miss

    low, high = np.log(miss / grid(count).size), np.log(miss)  # Bonferroni at the one end, no correction at the other
    return float(np.exp(brentq(excess, low, high, xtol=1e-9, rtol=1e-9)))


@lru_cache(maxsize=256)
def log_upper(count: int, confidence: float) -> Array:
    """log of the simultaneous upper bounds b_j for j = 1..count, followed by log 1 = 0 for j = count + 1."""
    used = grid(count)
    bounds = _beta_upper(local_level(count, confidence), used, count)
    filled = np.full(count + 1, 1.0)
    filled[used[0] - 1 : count] = bounds[np.searchsorted(used, np.arange(used[0], count + 1))]
    logs: Array = np.log(filled)
    logs.flags.writeable = False
    return logs


def crossing_probability(count: int, level: float) -> float:
    """P(U_(j) > b_j(level) for some j of the grid) for `count` independent uniforms."""
    used = grid(count)
    borders = _beta_upper(level, used, count)
    law, first, reached = np.ones(1), 0, 0.0  # P(N = first + i, no crossing yet), at the border reached so far
    for needed, border in zip(used, borders, strict=True):
        mean = count * border
        last = min(count, int(mean + _WINDOW * np.sqrt(mean) + 30))
        law, first = _advance(law, first, count * (border - reached), int(needed), last)
        reached = border
    arrivals = count - first - np.arange(law.size)
    survived = float(np.sum(law * _poisson(arrivals, count * (1 - reached))))
    return 1.0 - survived / float(_poisson(np.array([count]), float(count))[0])


def _advance(law: Array, first: int, rate: float, needed: int, last: int) -> tuple[Array, int]:
    """The law of the count after `rate` expected arrivals, limited to counts from `needed` to `last`."""
    most = int(rate + _WINDOW * np.sqrt(rate) + 30)
    least = max(0, int(rate - _WINDOW * np.sqrt(rate) - 30))
    kernel = _poisson(np.arange(least, most + 1), rate)
    spread = np.convolve(law, kernel) if law.size * kernel.size < 300_000 else np.maximum(signal.fftconvolve(law, kernel), 0.0)
    start = first + least
    keep_from, keep_to = max(needed, start), min(last, start + spread.size - 1)
    return spread[keep_from - start : keep_to - start + 1], keep_from


def _poisson(counts: NDArray[np.int64], rate: float) -> Array:
    """Poisson probabilities of `counts`."""
    if rate <= 0:
        return np.asarray(counts == 0, dtype=np.float64)
    return np.asarray(np.exp(special.xlogy(counts, rate) - rate - special.gammaln(counts + 1.0)))


def _beta_upper(level: float, order: NDArray[np.int64], count: int) -> Array:
    """The quantile 1-level of Beta(j, count-j+1), the law of the j-th of `count` uniform order statistics."""
    return np.asarray(special.betainccinv(order, count - order + 1.0, level))
