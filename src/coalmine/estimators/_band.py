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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special
from scipy.optimize import brentq

from coalmine.contracts import Array

AnyArray = TypeVar("AnyArray", bound=NDArray[Any])

FULL = 2_000
_SPACING = 1.04
_WINDOW = 12.0


@lru_cache(maxsize=256)
def grid(count: int) -> NDArray[np.int64]:
    """The order statistics j (from 1) that the band uses for `count` scores."""
    if count <= FULL:
        return _readonly(np.arange(1, count + 1))
    steps = np.unique(np.ceil(_SPACING ** np.arange(0, np.log(count) / np.log(_SPACING) + 1)).astype(np.int64))
    steps = steps[steps <= count // 2 + 1]
    return _readonly(np.unique(np.concatenate([steps, count + 1 - steps])))


@lru_cache(maxsize=256)
def local_level(count: int, confidence: float) -> float:
    """The level of each order statistic's own bound that makes the whole band hold with `confidence`.

    >>> round(local_level(100, 0.95), 7)
    0.0024609
    """
    miss = 1.0 - confidence
    if grid(count).size == 1:
        return miss

    @lru_cache(maxsize=2)  # the first is asked for twice
    def excess(log_level: float) -> float:  # in logarithms, where it is almost a straight line
        return float(np.log(crossing_probability(count, float(np.exp(log_level))) / miss))

    low, high = np.log(miss / grid(count).size), np.log(miss)  # Bonferroni at the one end, no correction at the other
    if excess(low) >= 0:  # confidence so near 1 that rounding decides; Bonferroni is never too large
        return float(np.exp(low))
    return float(np.exp(brentq(excess, low, high, xtol=1e-9, rtol=1e-9)))


def log_upper(orders: NDArray[np.int64], count: int, confidence: float) -> Array:
    """log of the simultaneous upper bounds b_j for j in `orders`, each from 1 to `count`."""
    return np.asarray(_log_upper_on_grid(count, confidence)[np.searchsorted(grid(count), orders)])


@lru_cache(maxsize=256)
def _log_upper_on_grid(count: int, confidence: float) -> Array:
    """The bounds at the grid alone: a few kilobytes, whatever the count."""
    return _readonly(np.log(_beta_upper(local_level(count, confidence), grid(count), count)))


def crossing_probability(count: int, level: float) -> float:
    """P(U_(j) > b_j(level) for some j of the grid) for `count` independent uniforms.

    Added up from the paths that are dropped, not one minus those that survive: accurate at any level.
    """
    used = grid(count)
    borders = _beta_upper(level, used, count)
    law, first, reached, crossed = np.ones(1), 0, 0.0, 0.0  # P(N = first + i, no crossing yet), at the border reached so far
    for needed, border in zip(used, borders, strict=True):
        mean = count * border
        last = min(count, int(mean + _WINDOW * np.sqrt(mean) + 30))
        law, first = _advance(law, first, count * (border - reached), last)
        reached, too_few = border, max(0, int(needed) - first)
        arrivals = count - first - np.arange(too_few)
        crossed += float(law[:too_few] @ _poisson(arrivals, count * (1 - border)))
        law, first = law[too_few:], first + too_few
    return crossed / float(_poisson(np.array([count]), float(count))[0])


def _advance(law: Array, first: int, rate: float, last: int) -> tuple[Array, int]:
    """The law of the count after `rate` expected arrivals, limited to counts up to `last`."""
    most = int(rate + _WINDOW * np.sqrt(rate) + 30)
    least = max(0, int(rate - _WINDOW * np.sqrt(rate) - 30))
    kernel = _poisson(np.arange(least, most + 1), rate)
    spread = np.convolve(law, kernel) if law.size * kernel.size < 300_000 else _convolve(law, kernel)
    return spread[: last - first - least + 1], first + least


def _convolve(law: Array, kernel: Array) -> Array:
    """The convolution by FFT, for long arrays (scipy.signal would do, but takes half a second to import)."""
    size = law.size + kernel.size - 1
    padded = fft.next_fast_len(size, real=True)
    product = fft.irfft(fft.rfft(law, padded) * fft.rfft(kernel, padded), padded)
    return np.asarray(np.maximum(product[:size], 0.0))


def _poisson(counts: NDArray[np.int64], rate: float) -> Array:
    """Poisson probabilities of `counts`."""
    if rate <= 0:
        return np.asarray(counts == 0, dtype=np.float64)
    return np.asarray(np.exp(special.xlogy(counts, rate) - rate - special.gammaln(counts + 1.0)))


def _beta_upper(level: float, order: NDArray[np.int64], count: int) -> Array:
    """The quantile 1-level of Beta(j, count-j+1), the law of the j-th of `count` uniform order statistics."""
    return np.asarray(special.betainccinv(order, count - order + 1.0, level))


def _readonly(array: AnyArray) -> AnyArray:
    """Shared by all callers through a cache, so nobody may write to it."""
    array.flags.writeable = False
    return array
