r"""Epsilon and delta between two arbitrary Gaussians.

For P = N(mean_p, std_p²) and Q = N(mean_q, std_q²) the hockey-stick divergence is

    delta(epsilon) = P(S) - e^epsilon Q(S),        S = {x : log p(x)/q(x) > epsilon},

and epsilon(delta) is its inverse. Balle & Wang (2018) treat equal widths; Andrew et al. (2024, one-shot empirical privacy
estimation) need unequal ones, since a fitted score distribution rarely has exactly the width of the null.

Everything is done in the standardised coordinate of P, x = mean_p + std_p·y, in which the privacy loss is a parabola:

    symbol   here   meaning
    m        m      |mean_p - mean_q| / std_q
    s, l     s, l   std_p / std_q and its logarithm
    L(y)     loss   a y² + b y + c,  a = (s²-1)/2,  b = m s,  c = m²/2 - l
    t        t      the point where S begins: L(t) = epsilon

Three things differ from the textbook form, all for accuracy:

* The search runs over t, not over epsilon. t is of the size of a normal quantile whatever the scales are, and it has a closed
  bracket: S is contained in {|y| > t} or {y > t}.
* On the border of S both densities satisfy p = e^epsilon q, so e^epsilon Q(S) is p's density times a Mills ratio
  R(x) = (1-Phi(x))/phi(x) of Q's coordinate. No term of the size of epsilon is ever cancelled against another.
* Where P(S) and e^epsilon Q(S) agree to three digits or more (nearly equal distributions, tiny delta) their difference is
  integrated as ∫ phi(y) (1 - e^{epsilon - L(y)}) dy, whose integrand is positive.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from coalmine import _validate

Array = NDArray[np.float64]
Order = Literal["both", "p||q", "q||p"]

_BEYOND_FLOAT = 1e150  # a standardised gap or a ratio of widths above this has epsilon > 1e299, reported as inf
_NEARLY_EQUAL = 1e-3  # below this relative difference of P(S) and e^epsilon Q(S) the difference is integrated
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)


def gaussian_epsilon(
    mean_p: ArrayLike, std_p: ArrayLike, mean_q: ArrayLike, std_q: ArrayLike, delta: ArrayLike, *, order: Order = "both"
) -> Any:
    """The smallest epsilon for which N(mean_p, std_p²) and N(mean_q, std_q²) are (epsilon, delta)-indistinguishable.

    `order="both"` takes the larger of the two directions, as differential privacy does; "p||q" bounds P by Q only.
    Arrays broadcast; scalars give a float. The value is 0 for equal distributions and for delta of at least their total
    variation distance, `inf` at delta=0 or where one of the widths is zero. It is never NaN.

    >>> gaussian_epsilon(0, 1, 1, 1, 1e-6)                # one Gaussian release with noise multiplier 1
    4.886554117...
    >>> gaussian_epsilon(0, 1, [0, 0, 1], [1, 2, 0.9], 1e-6)
    array([ 0.        , 34.34063243,  8.48918062])
    """
    parts = _checked(mean_p, std_p, mean_q, std_q, delta=delta)
    return _larger(_epsilon_one_way, parts, order)


def gaussian_delta(
    mean_p: ArrayLike, std_p: ArrayLike, mean_q: ArrayLike, std_q: ArrayLike, epsilon: ArrayLike, *, order: Order = "both"
) -> Any:
    """The smallest delta for which the two Gaussians are (epsilon, delta)-indistinguishable; epsilon >= 0, inf allowed.

    >>> gaussian_delta(0, 1, 1, 1, 4.886554117)
    1.0000000...e-06
    """
    parts = _checked(mean_p, std_p, mean_q, std_q, epsilon=epsilon)
    return _larger(_delta_one_way, parts, order)


def gaussian_gap(epsilon: float, delta: float) -> float:
    """The gap mu between two unit Gaussians whose epsilon at this delta is `epsilon`: the inverse of `gaussian_epsilon`.

    1 / mu is the noise multiplier of a single Gaussian release with that guarantee (Balle & Wang 2018).

    >>> 1 / gaussian_gap(10.0, 1e-6)
    0.541086831...
    """
    from scipy.optimize import brentq

    epsilon, delta = _validate.non_negative("epsilon", epsilon), _validate.delta(delta)

    def excess(mu: float) -> float:
        return float(gaussian_epsilon(0.0, 1.0, mu, 1.0, delta)) - epsilon

    hidden = float(np.sqrt(8) * special.erfinv(delta))  # here the total variation 2 Phi(mu/2) - 1 is delta, and epsilon 0
    if excess(hidden) >= 0:
        return hidden
    # at mu = hidden + sqrt(2 epsilon) the border of S is at most -hidden/2, so that delta(epsilon) is at least delta
    high = (hidden + np.sqrt(2 * epsilon)) * (1 + 1e-9)
    return float(brentq(excess, hidden, high, xtol=1e-300, rtol=1e-14, maxiter=2000))


def halfline_epsilon(mean_p: float, std_p: float, mean_q: float, std_q: float, delta: float) -> float:
    """Epsilon seen by threshold attacks alone: the formula of the first version of the one-shot paper.

        max_a max( log((F_p(a) - delta) / F_q(a)), log((1 - delta - F_q(a)) / (1 - F_p(a))) )

    with P the null and Q the inserted canaries, which are expected on the right. It is a lower bound of
    `gaussian_epsilon`, equal to it unless the optimal attack looks at both tails.

    >>> round(halfline_epsilon(0, 1, 0, 1.05, 1e-6), 4), round(gaussian_epsilon(0, 1, 0, 1.05, 1e-6), 4)
    (0.8722, 0.9402)
    """
    delta = _validate.delta(delta)
    (p_mean, p_std, q_mean, q_std, _) = (float(x) for x in _checked(mean_p, std_p, mean_q, std_q, delta=delta))
    if p_std == 0.0 or q_std == 0.0:
        return float(gaussian_epsilon(p_mean, p_std, q_mean, q_std, delta))

    def epsilon_at(p: Array, q: Array) -> Array:
        left = _log_minus(special.log_ndtr(p), np.log(delta)) - special.log_ndtr(q)
        right = _log_minus(special.log_ndtr(-q), np.log(delta)) - special.log_ndtr(-p)
        return np.asarray(np.maximum(left, right))

    # thresholds in the coordinate of P and in that of Q, each spaced finely around both centres
    unit = 1.0 if np.isfinite(q_mean - p_mean) else 0.5
    gap = unit * q_mean - unit * p_mean
    z = np.linspace(-40, 40, 8001)
    p = np.sort(np.concatenate([z, z * _capped(q_std, p_std) + _capped(gap, unit * p_std)]))
    q = np.sort(np.concatenate([z, z * _capped(p_std, q_std) - _capped(gap, unit * q_std)]))
    for _ in range(12):  # zoom in on the best threshold
        values = epsilon_at(p, q)
        best = int(np.argmax(values))
        low, high = max(best - 2, 0), min(best + 2, p.size - 1)  # not 1: the two sets of thresholds may coincide
        p, q = np.linspace(p[low], p[high], 65), np.linspace(q[low], q[high], 65)
    return float(max(values[best], 0.0))


class _Pair(NamedTuple):
    """The parabola of the privacy loss, one entry per pair of distributions."""

    m: Array
    s: Array
    l: Array  # noqa: E741 - the paper-free name of log s in every formula above
    a: Array
    b: Array
    c: Array

    @classmethod
    def of(cls, m: Array, l: Array) -> "_Pair":  # noqa: E741
        s = np.exp(l)
        return cls(m, s, l, np.expm1(2 * l) / 2, m * s, m * m / 2 - l)

    def loss(self, t: Array) -> Array:
        # (x² - t²)/2 - l with x = m + s t: the powers of t alone would cancel where x is small beside m
        return (self.m + np.expm1(self.l) * t) * (self.m + (1 + self.s) * t) / 2 - self.l

    def where(self, mask: NDArray[Any]) -> "_Pair":
        return _Pair(*(part[mask] for part in self))


def _checked(mean_p: ArrayLike, std_p: ArrayLike, mean_q: ArrayLike, std_q: ArrayLike, **last: ArrayLike) -> list[Array]:
    """All arguments as float64 arrays of one shape, or a ValueError that names the bad one."""
    named = {"mean_p": mean_p, "std_p": std_p, "mean_q": mean_q, "std_q": std_q, **last}
    arrays = {}
    for name, value in named.items():
        array = np.asarray(value, dtype=np.float64)
        if np.isnan(array).any():
            raise ValueError(f"{name} contains NaN; a number is needed.")
        if name != "epsilon" and np.isinf(array).any():
            raise ValueError(f"{name} contains infinity; a finite number is needed.")
        if not name.startswith("mean") and (array < 0).any():
            raise ValueError(f"{name}={array.min():g} is not allowed: it must be at least 0.")
        arrays[name] = array
    return list(np.broadcast_arrays(*arrays.values()))


def _larger(one_way: Callable[..., Array], parts: list[Array], order: Order) -> Any:
    """The larger value of the directions asked for, in the shape of the arguments."""
    shape = parts[0].shape
    found = np.max([one_way(*arranged) for arranged in _directions([part.ravel() for part in parts], order)], axis=0)
    return found.reshape(shape) if shape else float(found[0])


def _directions(columns: list[Array], order: Order) -> list[tuple[Array, Array, Array, Array]]:
    """(gap, std of the first, std of the second, delta or epsilon) for each order asked for."""
    _validate.one_of("order", order, ("both", "p||q", "q||p"))
    mean_p, std_p, mean_q, std_q, last = columns
    with np.errstate(over="ignore"):
        unit = np.where(np.isinf(mean_p - mean_q), 0.5, 1.0)  # half units where the gap is beyond the largest float
    gap, std_p, std_q = np.abs(unit * mean_p - unit * mean_q), unit * std_p, unit * std_q
    forward, backward = (gap, std_p, std_q, last), (gap, std_q, std_p, last)
    return {"both": [forward, backward], "p||q": [forward], "q||p": [backward]}[order]


def _standardise(gap: Array, std_p: Array, std_q: Array) -> tuple[Array, Array]:
    """m = gap / std_q and l = log(std_p / std_q), the latter without cancellation for nearly equal widths."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        m = gap / std_q
        near = np.abs(std_p - std_q) < 0.5 * std_q
        ratio = std_p / std_q
        apart = np.where((ratio > 1e-300) & (ratio < 1e300), np.log(ratio), np.log(std_p) - np.log(std_q))
        l = np.where(near, np.log1p((std_p - std_q) / std_q), apart)  # noqa: E741
    return m, l


def _epsilon_one_way(gap: Array, std_p: Array, std_q: Array, delta: Array) -> Array:
    found = np.zeros(gap.shape)
    singular = (std_p == 0) | (std_q == 0)
    m, l = _standardise(gap, std_p, std_q)  # noqa: E741
    equal = ((gap == 0) & (std_p == std_q)) | ((m == 0) & (l == 0))  # the latter with a gap that underflows
    infinite = singular | (m > _BEYOND_FLOAT) | (l > np.log(_BEYOND_FLOAT))
    bounded = (delta == 0) & (l < 0) & ~infinite  # a narrower P has a bounded loss even at delta=0
    if bounded.any():
        with np.errstate(over="ignore"):
            found[bounded] = -l[bounded] - m[bounded] ** 2 / (2 * np.expm1(2 * l[bounded]))
    found[infinite | ((delta == 0) & (l >= 0))] = np.inf
    found[equal | (delta >= 1)] = 0.0
    open_ = ~(infinite | equal | (delta == 0) | (delta >= 1))
    if open_.any():
        found[open_] = _invert(_Pair.of(m[open_], l[open_]), np.log(delta[open_]))
    return found


def _delta_one_way(gap: Array, std_p: Array, std_q: Array, epsilon: Array) -> Array:
    found = np.zeros(gap.shape)
    singular = (std_p == 0) | (std_q == 0)
    m, l = _standardise(gap, std_p, std_q)  # noqa: E741
    equal = ((gap == 0) & (std_p == std_q)) | ((m == 0) & (l == 0))
    beyond = (m > _BEYOND_FLOAT) | (l > np.log(_BEYOND_FLOAT))
    found[~equal & (singular | (beyond & np.isfinite(epsilon)))] = 1.0
    open_ = ~(equal | singular | beyond) & np.isfinite(epsilon)
    if open_.any():
        pair = _Pair.of(m[open_], l[open_])
        t = _start_of(pair, epsilon[open_])
        reached = ~np.isnan(t)  # a narrower P never reaches a loss above its maximum
        value = np.zeros(t.shape)
        value[reached] = np.exp(_log_delta(t[reached], pair.where(reached))[0])
        found[open_] = value
    return found


def _start_of(pair: _Pair, epsilon: Array) -> Array:
    """The t with L(t) = epsilon at which S begins; NaN where the loss never reaches epsilon.

    The discriminant of L(y) = epsilon is m² + 2(s²-1)(l + epsilon), and the root is taken as (epsilon-c)/q with
    q = (b + sqrt(discriminant))/2 > 0, which does not cancel and has the right limit for s = 1. A wider P adds two squares
    here, which hypot does without underflow or overflow.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        narrow = np.sqrt(pair.m**2 + 4 * pair.a * (pair.l + epsilon))
        wide = np.hypot(pair.m, 2 * np.sqrt(pair.a) * np.sqrt(pair.l + epsilon))
        t = (epsilon - pair.c) / ((pair.b + np.where(pair.l < 0, narrow, wide)) / 2)
    return np.asarray(np.minimum(t, _BEYOND_FLOAT))


def _invert(pair: _Pair, log_delta: Array) -> Array:
    """Epsilon with log delta(epsilon) = log_delta: Newton's method for t inside a closed bracket.

    log delta is concave in t almost everywhere, so that Newton's method started at the upper end of the bracket descends
    to the root without leaving it; whatever leaves the bracket is bisected instead.
    """
    low = _start_of(pair, np.zeros_like(pair.m))
    wide = pair.l >= 0
    with np.errstate(divide="ignore", over="ignore"):
        vertex = np.where(wide, np.inf, -pair.m / (2 * np.sinh(pair.l)))
    high = np.where(wide, -special.ndtri_exp(log_delta - np.log(2)), np.minimum(-special.ndtri_exp(log_delta), vertex))
    hidden = ~(low < high)
    low = np.where(hidden, high, low)
    hidden |= _log_delta(low, pair)[0] <= log_delta  # total variation at most delta: epsilon is zero
    t = high.copy()
    active = np.flatnonzero(~hidden)
    for _ in range(200):
        if active.size == 0:
            break
        part, here = pair.where(active), t[active]
        value, log_q = _log_delta(here, part)
        error = value - log_delta[active]
        low[active] = np.where(error > 0, here, low[active])
        high[active] = np.where(error <= 0, here, high[active])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # d delta / d epsilon = -e^epsilon Q(S) exactly, and d epsilon / dt = L'(t)
            step = error * np.exp(value - log_q) / (2 * part.a * here + part.b)
        proposed = here + step
        inside = (proposed >= low[active]) & (proposed <= high[active])
        t[active] = np.where(inside, proposed, (low[active] + high[active]) / 2)
        moved = np.abs(t[active] - here)
        tolerance = 2e-15 * np.maximum(np.abs(here), 1e-3)
        settled = (moved <= tolerance) | (high[active] - low[active] <= tolerance)
        active = active[~settled]
    return np.where(hidden, 0.0, np.maximum(pair.loss(t), 0.0))


def _log_delta(t: Array, pair: _Pair) -> tuple[Array, Array]:
    """(log delta, log e^epsilon Q(S)) for epsilon = L(t)."""
    wide = pair.l >= 0
    if wide.all():
        return _log_delta_wide(t, pair)
    if not wide.any():
        return _log_delta_narrow(t, pair)
    value, log_q = np.empty(t.shape), np.empty(t.shape)
    value[wide], log_q[wide] = _log_delta_wide(t[wide], pair.where(wide))
    value[~wide], log_q[~wide] = _log_delta_narrow(t[~wide], pair.where(~wide))
    return value, log_q


def _log_delta_wide(t: Array, pair: _Pair) -> tuple[Array, Array]:
    """P is the wider one (or equal): S = {y > t} ∪ {y < -w}, and both parts contribute positively."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        w = np.minimum(t + pair.m / np.sinh(pair.l), _BEYOND_FLOAT)
        x_w = np.minimum(pair.s * t + pair.m / np.tanh(pair.l), _BEYOND_FLOAT)
    right, right_q = _log_halfline(t, pair.m + pair.s * t, pair, pair.b)
    left, left_q = _log_halfline(w, x_w, pair, -pair.b)
    return np.logaddexp(right, left), np.logaddexp(right_q, left_q)


def _log_halfline(t: Array, x: Array, pair: _Pair, b: Array) -> tuple[Array, Array]:
    """log of P(y > t) - e^epsilon Q(x' > x) and of its second term; x is t in Q's coordinate."""
    log_p = special.log_ndtr(-t)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = _mills(x) / (pair.s * _mills(t))
        value = log_p + np.log1p(-np.minimum(ratio, 1.0))
        log_q = log_p + np.log(ratio)
    near = ratio > 1 - _NEARLY_EQUAL
    if near.any():
        start, a, slope = t[near], pair.a[near], b[near]
        value[near] = _log_integral(start, np.inf, lambda y: (y - start) * (a * (y + start) + slope))
    return value, log_q


def _log_delta_narrow(t: Array, pair: _Pair) -> tuple[Array, Array]:
    """P is the narrower one: S = (t, u)."""
    with np.errstate(divide="ignore", over="ignore"):
        u = np.minimum(-pair.m / np.sinh(pair.l) - t, _BEYOND_FLOAT)
    log_p, log_q = _log_interval(t, u), _log_narrow_q(t, u, pair)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.exp(log_q - log_p)
        value = log_p + np.log1p(-np.minimum(ratio, 1.0))
    value = np.where(u > t, value, -np.inf)
    near = (u > t) & (~(ratio <= 1 - _NEARLY_EQUAL) | (u - t < 1e-2))
    if near.any():
        start, end, a = t[near], u[near], pair.a[near]
        value[near] = _log_integral(start, end, lambda y: -a * (y - start) * (end - y))
    return value, log_q


def _log_narrow_q(t: Array, u: Array, pair: _Pair) -> Array:
    """log e^epsilon Q(S) for S = (t, u), each case without a difference of nearly equal numbers."""
    x_t, width = pair.m + pair.s * t, pair.s * (u - t)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x_u = np.minimum(-pair.m / np.tanh(pair.l) - pair.s * t, _BEYOND_FLOAT)
        # from the border of S nearest to Q's centre; L(t) = L(u) turns the difference of x² into one of y²
        tail = _mills(x_t) - np.exp((t - u) * (t + u) / 2) * _mills(x_u)
        outside = -t * t / 2 - _LOG_SQRT_2PI - pair.l + np.log(np.maximum(tail, 0.0))
        # Q's centre in S: epsilon is at most -l, and the two sides of the centre add up
        inside = pair.loss(t) + np.log((special.erf(x_u / np.sqrt(2)) - special.erf(x_t / np.sqrt(2))) / 2)
        # S so short that Q's density hardly varies on it: Simpson's rule
        fall, full_fall = np.exp(-width * (x_t / 2 + width / 8)), np.exp(-width * (x_t + width / 2))
        short = -t * t / 2 - _LOG_SQRT_2PI + np.log((u - t) * (1 + 4 * fall + full_fall) / 6)
    return np.asarray(np.where(width * np.maximum(np.abs(x_t), 1) < 1e-3, short, np.where(x_t >= 0, outside, inside)))


def _log_integral(start: Array, end: Any, excess: Callable[[Array], Array]) -> Array:
    """log ∫ phi(y) (1 - exp(-excess(y))) dy from start to end, by Gauss–Legendre with a positive integrand."""
    peak = np.maximum(start, 0.0)  # phi is largest here, and smaller by e^-38 at the ends of the range
    low, high = np.maximum(start, peak - 8.7), np.minimum(end, np.hypot(peak, 8.7))
    half = (high - low) / 2
    total = np.zeros(low.shape)
    base = np.where((low < 0) & (high > 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        y = (low + high) / 2 + half * node
        total += weight * np.exp((base - y) * (base + y) / 2) * -np.expm1(-np.maximum(excess(y), 0.0))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(total * half) - base * base / 2 - _LOG_SQRT_2PI)


def _log_interval(low: Array, high: Array) -> Array:
    """log P(low < y < high) for high >= |low|."""
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = special.log_ndtr(-low)
        right = tail + np.log1p(-np.exp(np.minimum(special.log_ndtr(-high) - tail, 0.0)))
        straddling = np.log1p(-np.minimum(special.ndtr(low) + special.ndtr(-high), 1.0))
    return np.asarray(np.where(low > 0, right, straddling))


def _mills(x: Array) -> Array:
    """(1 - Phi(x)) / phi(x), the Mills ratio."""
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(np.pi / 2) * special.erfcx(x / np.sqrt(2)))


def _capped(numerator: float, denominator: float) -> float:
    """A quotient, limited so that its square is a number."""
    with np.errstate(divide="ignore", over="ignore"):
        return float(np.clip(np.divide(numerator, denominator), -_BEYOND_FLOAT, _BEYOND_FLOAT))


def _log_minus(log_a: Array, log_b: Any) -> Array:
    """log(a - b), -inf where b >= a."""
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.minimum(log_b - log_a, 0.0)
        return np.asarray(
            log_a + np.where(difference > -np.log(2), np.log(-np.expm1(difference)), np.log1p(-np.exp(difference)))
        )
