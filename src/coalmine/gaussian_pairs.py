r"""Epsilon, delta and Rényi divergence of two Gaussians in any number of dimensions.

Every pair of Gaussians is, in suitable coordinates, P = N(means, diag(variances)) and Q = N(0, I) (`standard_pair`). Its
privacy loss L = log p(x)/q(x), x ~ P, is a generalised chi-square variable, whose cumulants are known:

    K(s) = log E_P e^{sL} = sum_k  s(1+s) m_k² / (2 (1 + s(1-a_k)))  -  log(1 + s(1-a_k)) / 2  -  s log(a_k) / 2,

    delta(epsilon) = E_P[(1 - e^{epsilon - L})+] = (1 / 2 pi i) ∫ e^{K(s) - s epsilon} / (s (s+1)) ds     along Re s = c > 0.

    symbol   here        meaning
    a_k      variances   of P, in units of those of Q
    m_k      means       of P
    K(s)     _cumulants  of the privacy loss under P; that of n independent copies is n K(s)
    l        _limit      the exponential part of e^{K(s)} for large s: where the variances are below 1, the largest loss

The integral runs through the saddle point c along a hyperbola, on which the trapezoidal rule converges geometrically. Nothing
is subtracted, so that a delta of 1e-70 has as many digits as one of 0.1. The derivative d delta/d epsilon is the same integral
without 1/s, which makes Newton's method for epsilon nearly free. Cost: nodes times rank for each evaluation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine import _validate

Array = NDArray[np.float64]
Order = Literal["both", "p||q", "q||p"]

_REACH = 22.0  # of the hyperbola's parameter: the integrand falls at least as e^{-u} there
_NODES = np.linspace(0.0, _REACH, 353)
_STEP = float(_NODES[1])
_BLOCK = 1 << 16  # ranks whose terms are in memory together, times the number of nodes
_RANGE = 745.0  # e^-745 is the smallest float
_LIKELY = 0.1  # a delta above this is found as 1 minus an integral
_FLAT = 3.0  # a path that rises no more than this above its beginning is as good as the best
_SLOPE = 0.5  # real over imaginary part of the hyperbola's asymptote


def standard_pair(mean_p: ArrayLike, cov_p: ArrayLike, mean_q: ArrayLike, cov_q: ArrayLike) -> tuple[Array, Array]:
    """(variances, means) of P in coordinates in which Q is standard normal, for two covariance matrices of full rank.

    >>> variances, means = standard_pair([1.0], [[2.0]], [0.0], [[4.0]])
    >>> float(variances[0]), float(means[0])
    (0.5, 0.5)

    `mean_p` and `cov_p` are mean and covariance of P, `mean_q` and `cov_q` of Q.

    Returns:
        What `pair_epsilon` takes: two vectors.
    """
    from scipy.linalg import LinAlgError, eigh

    first, second = _covariance("cov_p", cov_p), _covariance("cov_q", cov_q)
    gap = np.asarray(mean_p, np.float64) - np.asarray(mean_q, np.float64)
    if first.shape != second.shape or gap.shape != first.shape[:1] or not np.isfinite(gap).all():
        raise ValueError(f"finite means are needed, and shapes that fit: means {gap.shape}, {first.shape} and {second.shape}.")
    try:
        variances, vectors = eigh(first, second)
    except LinAlgError:
        raise ValueError(
            "cov_q is singular: a change outside its span is seen with certainty, and epsilon is infinite."
        ) from None
    return np.maximum(variances, 0.0), vectors.T @ gap


def pair_delta(variances: ArrayLike, means: ArrayLike, epsilon: ArrayLike, order: Order = "both", times: int = 1) -> Any:
    """The smallest delta for which N(means, diag(variances)) and N(0, I) are (epsilon, delta)-indistinguishable.

    `times` independent releases of the same pair are composed exactly. `order` is that of `gaussian_delta`.

    >>> round(pair_delta([1.0], [1.0], 4.886554117), 12)
    1e-06

    Args:
        variances: Of P, by coordinate.
        means: Of P, by coordinate.
        epsilon: At which epsilon.
        order: "both", or one direction: "p||q", "q||p".
        times: Independent releases.

    Returns:
        A float, or an array where epsilon is one.
    """
    pairs = _pairs(variances, means, order, times)
    asked = np.asarray(epsilon, np.float64)
    if not (asked >= 0).all():
        raise ValueError(f"epsilon={epsilon!r} is not allowed: it must be at least 0.")
    found = np.array([max(math.exp(min(pair.log_delta(float(each))[0], 0.0)) for pair in pairs) for each in asked.ravel()])
    return found.reshape(asked.shape) if asked.shape else float(found[0])


def pair_epsilon(variances: ArrayLike, means: ArrayLike, delta: float, order: Order = "both", times: int = 1) -> float:
    """The smallest epsilon for which N(means, diag(variances)) and N(0, I), `times` times, are (epsilon, delta)-close.

    >>> pair_epsilon([1.2], [0.3], 1e-6, order="p||q", times=50)
    16.13942519...

    `variances`, `means`, `order` and `times` are those of `pair_delta`; `delta` is that of the statement.

    Returns:
        Epsilon.
    """
    delta = _validate.number("delta", delta)
    if delta >= 1.0:
        raise ValueError(f"delta={delta!r} is not allowed: it must be below 1.")
    delta = _validate.delta(delta, allow_zero=True)
    return max(pair.epsilon(delta) for pair in _pairs(variances, means, order, times))


def renyi_divergence(
    variances: ArrayLike, means: ArrayLike, renyi_order: float, order: Order = "p||q", times: int = 1
) -> float:
    """The Rényi divergence of N(means, diag(variances)) from N(0, I), `times` times; infinite where it does not exist.

    `renyi_order` is above 0; at 1 it is the Kullback-Leibler divergence. Differential privacy needs both directions.

    >>> renyi_divergence([1.0], [2.0], 3.0)                     # alpha mu² / 2
    6.0

    `variances`, `means`, `order` and `times` are those of `pair_delta`.

    Returns:
        Nats.
    """
    at = _validate.positive("renyi_order", renyi_order)
    return max(pair.renyi(at) for pair in _pairs(variances, means, order, times))


def loss_logsf(variances: ArrayLike, means: ArrayLike, value: float, times: int = 1) -> float:
    """log Q(L >= value) for the summed loss L = log p/q of `times` draws from Q: the tail of a likelihood ratio's null.

    d delta/d epsilon = -e^epsilon Q(L > epsilon), so that the integral of delta has it as well; also at values below 0.
    """
    pair = _pairs(variances, means, "p||q", times)[0]
    value = _validate.number("value", value)
    if pair.a.size == 0 or pair.singular:
        return 0.0 if value <= 0 and not pair.singular else -math.inf
    log_delta, slope = pair.log_delta(value)
    if not slope < 0:
        return -math.inf
    return min(log_delta + math.log(-slope) - value, 0.0)


def loss_moments(variances: ArrayLike, means: ArrayLike, times: int = 1) -> tuple[float, float]:
    """(mean, variance) of the summed loss log p/q of `times` draws from Q."""
    pair = _pairs(variances, means, "p||q", times)[0]
    return pair._slopes(-1.0)


@dataclass(frozen=True, eq=False)
class _Pair:
    """One direction: P = N(m, diag a) against N(0, I), `times` times, without the coordinates in which they are equal."""

    a: Array
    m: Array
    times: int

    @property
    def singular(self) -> bool:
        return bool((self.a == 0).any())

    @property
    def most(self) -> float:
        """The largest s at which the cumulants exist."""
        widest = float(self.a.max(initial=0.0))
        return 1 / (widest - 1) if widest > 1 else math.inf

    @property
    def _limit(self) -> float:
        """The linear part of K(s) for large |s|, coordinates of equal variance left out."""
        apart = self.a != 1
        a, m = self.a[apart], self.m[apart]
        with np.errstate(over="ignore"):
            return self.times * float(np.sum(m * m / (2 * (1 - a)) - np.log(a) / 2))

    @property
    def bounded(self) -> bool:
        """Whether the privacy loss has a largest value, which is `_limit`."""
        return bool((self.a < 1).all())

    def _cumulants(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """K(s) at each of `s`, in blocks of coordinates."""
        found = np.zeros(s.shape, s.dtype)
        block = max(1, _BLOCK // s.size)
        for start in range(0, self.a.size, block):
            a, m = self.a[start : start + block, None], self.m[start : start + block, None]
            inner = s * (1 - a)
            found += np.sum(s * (1 + s) * m * m / (2 * (1 + inner)) - np.log1p(inner) / 2 - s * np.log(a) / 2, axis=0)
        return self.times * found

    def _slopes(self, s: float) -> tuple[float, float]:
        """(K'(s), K''(s)) on the real axis."""
        a, square = self.a, self.m * self.m
        gap, inner = 1 - a, 1 + s * (1 - a)
        first = square * (1 + 2 * s + s * s * gap) / (2 * inner**2) - gap / (2 * inner) - np.log(a) / 2
        second = square * a / inner**3 + gap**2 / (2 * inner**2)
        return self.times * float(first.sum()), self.times * float(second.sum())

    def renyi(self, at: float) -> float:
        """D_at = K(at - 1) / (at - 1)."""
        if self.a.size == 0:
            return 0.0
        if self.singular or not at - 1 < self.most:
            return math.inf
        if at == 1.0:
            return self._slopes(0.0)[0]
        return float(self._cumulants(np.array([at - 1.0]))[0]) / (at - 1)

    def log_delta(self, epsilon: float) -> tuple[float, float]:
        """(log delta, d log delta / d epsilon)."""
        if self.singular:
            return 0.0, 0.0
        if self.a.size == 0 or math.isinf(epsilon) or (self.bounded and epsilon >= self._limit):
            return -math.inf, 0.0
        mean = self._slopes(0.0)[0]
        if mean > max(epsilon, 2 * _LIKELY**2):  # left of the pole at 0 the integral is delta - 1: better unless delta is small
            peak, term = self._terms(self._saddle(epsilon, -1.0, 0.0), epsilon)
            whole, slope = math.exp(peak) * float(np.sum(term[0]).imag), math.exp(peak) * float(np.sum(term[1]).imag)
            if 1 + whole > _LIKELY:
                return math.log(1 + whole), -slope / (1 + whole)
        peak, term = self._terms(self._saddle(epsilon, 0.0, self.most), epsilon)
        whole, slope = float(np.sum(term[0]).imag), float(np.sum(term[1]).imag)
        return peak + math.log(whole), -slope / whole

    def _terms(self, c: float, epsilon: float) -> tuple[float, NDArray[np.complex128]]:
        """(log of the integrand at c, terms of both integrals) on the hyperbola that bends to where the integrand decays.

        Far out that is decided by `_limit`; where a variance is nearly 1 the way there may lead over a mountain, and a path
        without a bend, or with the other one, is better. All of them have the same integral: the flattest one is taken.
        """
        scale = (self._slopes(c)[1] + c**-2 + (1 + c) ** -2) ** -0.5
        outwards = -1.0 if self._limit > epsilon else 1.0
        best = (math.inf, 0.0, np.zeros((2, 1), np.complex128))
        for bend in (outwards * _SLOPE, 0.0, outwards * _SLOPE / 8, -outwards * _SLOPE):
            s = c + scale * (1j * np.sinh(_NODES) + bend * (np.cosh(_NODES) - 1))
            ds = scale * (1j * np.cosh(_NODES) + bend * np.sinh(_NODES))
            log_top = self._cumulants(s) - s * epsilon
            peak = float(log_top[0].real)
            with np.errstate(under="ignore", over="ignore", invalid="ignore"):
                fallen = np.where(log_top.real - peak < -_RANGE, -np.inf, log_top - peak)
                term = np.exp(fallen) * ds / (s * (1 + s)) * (_STEP / math.pi)
                term[0] /= 2  # the other half of the path is the mirror image
                size = np.abs(term)
                height = float((size.max() + 1e15 * size[-1]) / size[1])  # an end that is not negligible is as bad as a rise
            if height < best[0]:
                best = (height, peak, np.stack([term, term * s]))
            if best[0] < _FLAT:
                break
        return best[1], best[2]

    def _saddle(self, epsilon: float, least: float, most: float) -> float:
        """Where K(s) - s epsilon - log|s| - log(1+s), which is convex, has its minimum between two poles."""
        from scipy.optimize import brentq

        def place(u: float) -> float:
            return math.exp(u) if math.isinf(most) else (most + least * math.exp(-u)) / (1 + math.exp(-u))

        def falls(u: float) -> float:
            s = place(u)
            return (self._slopes(s)[0] - epsilon) * s * (1 + s) - 1 - 2 * s

        sign = 1.0 if least == 0 else -1.0  # s is negative left of the pole at 0

        def slope(u: float) -> float:
            return sign * falls(u)

        low, high = -1.0, 1.0
        while slope(low) > 0 and low > -600:
            low *= 2
        while slope(high) < 0 and high < (600 if math.isinf(most) else 30):
            high *= 2
        if slope(low) > 0 or slope(high) < 0:
            return place(low if slope(low) > 0 else high)
        return place(float(brentq(slope, low, high, xtol=1e-6)))

    def epsilon(self, delta: float) -> float:
        """Newton's method on log delta, which is concave: from the right it does not pass the root."""
        if self.a.size == 0:
            return 0.0
        if self.singular or (delta == 0 and not self.bounded):
            return math.inf
        if delta == 0:
            return max(self._limit, 0.0)
        wanted = math.log(delta)
        low, high = 0.0, self._chernoff(wanted)
        if high <= 0 or self.log_delta(0.0)[0] <= wanted:
            return 0.0
        epsilon = high
        for _ in range(100):
            value, slope = self.log_delta(epsilon)
            excess = value - wanted
            low, high = (epsilon, high) if excess > 0 else (low, epsilon)
            following = epsilon - excess / slope if slope < 0 and math.isfinite(excess) else math.nan
            if not low <= following <= high:
                following = (low + high) / 2
            if abs(following - epsilon) <= 4e-15 * epsilon or high - low <= 4e-15 * high:
                return following
            epsilon = following
        return high  # an upper bound, where rounding keeps Newton's method from coming to rest

    def _chernoff(self, log_delta: float) -> float:
        """An upper bound of epsilon: the smallest (K(s) - log delta) / s; the largest loss where that is smaller."""
        places = np.exp(np.linspace(-30, 30, 241))
        if math.isfinite(self.most):
            places = self.most * places / (1 + places)
        bounds = (self._cumulants(places) - log_delta) / places
        best = float(np.nanmin(bounds.real))
        return min(best, self._limit) if self.bounded else best


def _pairs(variances: ArrayLike, means: ArrayLike, order: Order, times: int) -> list[_Pair]:
    """The directions asked for: Q against P is again such a pair, with variances 1/a and means m/sqrt(a)."""
    _validate.one_of("order", order, ("both", "p||q", "q||p"))
    times, a, m = _validate.whole("times", times, least=1), np.asarray(variances, np.float64), np.asarray(means, np.float64)
    if a.ndim and m.ndim and a.shape != m.shape:
        raise ValueError(f"variances {a.shape} and means {m.shape} differ in shape: give as many, or one number for all.")
    a, m = (np.atleast_1d(each).ravel() for each in np.broadcast_arrays(a, m))
    if not (np.isfinite(a).all() and (a >= 0).all()):
        raise ValueError("variances must be finite numbers of at least 0.")
    if not np.isfinite(m).all():
        raise ValueError("means must be finite numbers.")
    a, m = (each[(a != 1) | (m != 0)] for each in (a, m))
    forward = _Pair(a, m, times)
    if forward.singular:
        return [forward]
    with np.errstate(over="ignore"):
        backward = _Pair(1 / a, m / np.sqrt(a), times)
    if not (np.isfinite(backward.a).all() and np.isfinite(backward.m).all()):
        raise ValueError("variances below 1e-300 cannot be told from 0: leave them out, or state 0.")
    return {"both": [forward, backward], "p||q": [forward], "q||p": [backward]}[order]


def _covariance(name: str, value: ArrayLike) -> Array:
    """A symmetric matrix without negative eigenvalues, within rounding; never mended silently."""
    matrix = np.asarray(value, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be a square matrix of finite numbers.")
    allowed = 1e-8 * float(np.trace(matrix))
    if not np.abs(matrix - matrix.T).max(initial=0.0) <= allowed:
        raise ValueError(f"{name} is not symmetric.")
    least = float(np.linalg.eigvalsh(matrix).min(initial=0.0))
    if not least >= -allowed:
        raise ValueError(f"{name} is no covariance: it has the eigenvalue {least:.3g}.")
    return np.asarray((matrix + matrix.T) / 2)
