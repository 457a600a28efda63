r"""The numerics of `coalmine.gaussian`: the hockey-stick divergence of one Gaussian from another, and its inverse.

Everything is done in the standardised coordinate of P, x = mean_p + std_p·y, in which the privacy loss is a parabola:

    symbol   here   meaning
    m        m      |mean_p - mean_q| / std_q
    s, l     s, log_s   std_p / std_q and its logarithm
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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

BEYOND_FLOAT = 1e150  # a standardised gap or a ratio of widths above this has epsilon > 1e299, reported as inf
_NEARLY_EQUAL = 1e-3  # below this relative difference of P(S) and e^epsilon Q(S) the difference is integrated
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)


class Pair(NamedTuple):
    """The parabola of the privacy loss, one entry per pair of distributions."""

    m: Array
    s: Array
    log_s: Array
    a: Array
    b: Array
    c: Array
    reach: Array  # m / sinh log_s and m / tanh log_s: how far the other border of S is, in P's and in Q's coordinate
    far: Array

    @classmethod
    def of(cls, m: Array, log_s: Array) -> "Pair":
        s = np.exp(log_s)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return cls(m, s, log_s, np.expm1(2 * log_s) / 2, m * s, m * m / 2 - log_s, m / np.sinh(log_s), m / np.tanh(log_s))

    def loss(self, t: Array) -> Array:
        # (x² - t²)/2 - log_s with x = m + s t: the powers of t alone would cancel where x is small beside m
        return (self.m + np.expm1(self.log_s) * t) * (self.m + (1 + self.s) * t) / 2 - self.log_s

    def where(self, mask: NDArray[Any]) -> "Pair":
        return Pair(*(part[mask] for part in self))


def start_of(pair: Pair, epsilon: Array) -> Array:
    """The t with L(t) = epsilon at which S begins; NaN where the loss never reaches epsilon.

    The discriminant of L(y) = epsilon is m² + 2(s²-1)(l + epsilon), and the root is taken as (epsilon-c)/q with
    q = (b + sqrt(discriminant))/2 > 0, which does not cancel and has the right limit for s = 1. A wider P adds two squares
    here, which hypot does without underflow or overflow.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        narrow = np.sqrt(pair.m**2 + 4 * pair.a * (pair.log_s + epsilon))
        wide = np.hypot(pair.m, 2 * np.sqrt(pair.a) * np.sqrt(pair.log_s + epsilon))
        t = (epsilon - pair.c) / ((pair.b + np.where(pair.log_s < 0, narrow, wide)) / 2)
    return np.asarray(np.minimum(t, BEYOND_FLOAT))


def invert(pair: Pair, log_delta: Array) -> Array:
    """Epsilon with log delta(epsilon) = log_delta: Newton's method for t inside a closed bracket.

    log delta is concave in t almost everywhere, so that Newton's method started at the upper end of the bracket descends
    to the root without leaving it; whatever leaves the bracket is bisected instead.
    """
    low = start_of(pair, np.zeros_like(pair.m))
    wide = pair.log_s >= 0
    with np.errstate(divide="ignore", over="ignore"):
        vertex = np.where(wide, np.inf, -pair.reach / 2)
    high = np.where(wide, -special.ndtri_exp(log_delta - np.log(2)), np.minimum(-special.ndtri_exp(log_delta), vertex))
    hidden = ~(low < high)
    low = np.where(hidden, high, low)
    hidden |= log_divergence(low, pair)[0] <= log_delta  # total variation at most delta: epsilon is zero
    t = _first_guess(low, high, vertex, pair, log_delta)
    found, lanes = np.zeros(t.shape), np.flatnonzero(~hidden)
    t, low, high, target, pair = t[lanes], low[lanes], high[lanes], log_delta[lanes], pair.where(lanes)
    for _ in range(200):
        if lanes.size == 0:
            break
        proposed, low, high, settled = _step(t, low, high, target, pair)
        if settled.any():
            found[lanes[settled]] = np.maximum(pair.where(settled).loss(proposed[settled]), 0.0)
            on = ~settled
            lanes, low, high, target, pair, proposed = lanes[on], low[on], high[on], target[on], pair.where(on), proposed[on]
        t = proposed
    found[lanes] = np.maximum(pair.loss(t), 0.0)
    return found


def _step(t: Array, low: Array, high: Array, target: Array, pair: Pair) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """One step of Newton's method inside the bracket, or of bisection: (next t, low, high, settled)."""
    value, log_q = log_divergence(t, pair)
    error = value - target
    low, high = np.where(error > 0, t, low), np.where(error <= 0, t, high)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # d delta / d epsilon = -e^epsilon Q(S) exactly, and d epsilon / dt = L'(t)
        proposed = t + error * np.exp(value - log_q) / (2 * pair.a * t + pair.b)
    inside = (proposed > low) & (proposed < high)  # strictly: no going to and fro between the ends
    proposed = np.where(inside, proposed, (low + high) / 2)
    exact = np.abs(error) <= 2e-16 - 1e-15 * target  # the rounding of log delta itself
    proposed = np.where(exact, t, proposed)
    tolerance = 2e-14 * np.maximum(np.abs(t), 0.2)  # of the size of the rounding of log delta
    settled = exact | (np.abs(proposed - t) <= tolerance) | (high - low <= tolerance)
    if (pair.log_s < 0).any():  # near the largest loss t matters no more
        settled |= pair.loss(high) - pair.loss(low) <= 1e-16 * pair.loss(high)
    return proposed, low, high, settled


def _first_guess(low: Array, high: Array, vertex: Array, pair: Pair, log_delta: Array) -> Array:
    """The upper end of the bracket; where that is the point of largest loss, the t from which S is long enough.

    There S = (vertex - w/2, vertex + w/2) is short and delta is close to phi(vertex) |a| w³ / 6.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        w = np.exp((log_delta + np.log(6 / np.abs(pair.a)) + vertex**2 / 2 + _LOG_SQRT_2PI) / 3)
        guess = vertex - w / 2
    return np.where((high == vertex) & (guess > low), guess, high)


def log_divergence(t: Array, pair: Pair) -> tuple[Array, Array]:
    """(log delta, log e^epsilon Q(S)) for epsilon = L(t)."""
    wide = pair.log_s >= 0
    if wide.all():
        return _log_delta_wide(t, pair)
    if not wide.any():
        return _log_delta_narrow(t, pair)
    value, log_q = np.empty(t.shape), np.empty(t.shape)
    value[wide], log_q[wide] = _log_delta_wide(t[wide], pair.where(wide))
    value[~wide], log_q[~wide] = _log_delta_narrow(t[~wide], pair.where(~wide))
    return value, log_q


def _log_delta_wide(t: Array, pair: Pair) -> tuple[Array, Array]:
    """P is the wider one (or equal): S = {y > t} ∪ {y < -w}, and both parts contribute positively."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        w = np.minimum(t + pair.reach, BEYOND_FLOAT)
        x_w = np.minimum(pair.s * t + pair.far, BEYOND_FLOAT)
    # Q's centre is outside S, whatever the rounding of a large gap against a large ratio says
    right, right_q = _log_halfline(t, np.maximum(pair.m + pair.s * t, 0.0), pair, pair.b)
    seen = (w - t) * (w + t) < 160  # else the left part is smaller by e^-80
    if seen.any():
        left, left_q = _log_halfline(w[seen], np.maximum(x_w[seen], 0.0), pair.where(seen), -pair.b[seen])
        right[seen], right_q[seen] = np.logaddexp(right[seen], left), np.logaddexp(right_q[seen], left_q)
    return right, right_q


def _log_halfline(t: Array, x: Array, pair: Pair, b: Array) -> tuple[Array, Array]:
    """log of P(y > t) - e^epsilon Q(x' > x) and of its second term; x is t in Q's coordinate."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mills = _mills(t)
        log_p = np.log(mills) - t * t / 2 - _LOG_SQRT_2PI
        center = ~(t > 1)  # there the terms would cancel; log_ndtr alone is slower
        log_p[center] = special.log_ndtr(-t[center])
        ratio = _mills(x) / (pair.s * mills)
        value = log_p + np.log1p(-np.minimum(ratio, 1.0))
        log_q = log_p + np.log(ratio)
    near = ratio > 1 - _NEARLY_EQUAL
    if near.any():
        start, a, slope = t[near], pair.a[near], b[near]
        value[near] = _log_integral(start, np.inf, lambda y: (y - start) * (a * (y + start) + slope))
    return value, log_q


def _log_delta_narrow(t: Array, pair: Pair) -> tuple[Array, Array]:
    """P is the narrower one: S = (t, u)."""
    with np.errstate(divide="ignore", over="ignore"):
        u = np.minimum(-pair.reach - t, BEYOND_FLOAT)
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


def _log_narrow_q(t: Array, u: Array, pair: Pair) -> Array:
    """log e^epsilon Q(S) for S = (t, u), each case without a difference of nearly equal numbers."""
    x_t, width = pair.m + pair.s * t, pair.s * (u - t)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x_u = np.minimum(-pair.far - pair.s * t, BEYOND_FLOAT)
        # from the border of S nearest to Q's centre; L(t) = L(u) turns the difference of x² into one of y²
        tail = _mills(x_t) - np.exp((t - u) * (t + u) / 2) * _mills(x_u)
        found = -t * t / 2 - _LOG_SQRT_2PI - pair.log_s + np.log(np.maximum(tail, 0.0))
        centre = x_t < 0
        if centre.any():  # Q's centre in S: epsilon is at most -log_s, and the two sides of the centre add up
            sides = special.erf(x_u[centre] / np.sqrt(2)) - special.erf(x_t[centre] / np.sqrt(2))
            found[centre] = pair.where(centre).loss(t[centre]) + np.log(sides / 2)
        short = width * np.maximum(np.abs(x_t), 1) < 1e-3
        if short.any():  # Q's density hardly varies on S: Simpson's rule
            y, w, x = t[short], width[short], x_t[short]
            mean = (1 + 4 * np.exp(-w * (x / 2 + w / 8)) + np.exp(-w * (x + w / 2))) / 6
            found[short] = -y * y / 2 - _LOG_SQRT_2PI + np.log((u[short] - y) * mean)
    return np.asarray(found)


def _log_integral(start: Array, end: Any, excess: Callable[[Array], Array]) -> Array:
    """log ∫ phi(y) (1 - exp(-excess(y))) dy from start to end, by Gauss–Legendre with a positive integrand."""
    peak = np.maximum(start, 0.0)  # phi is largest here, and smaller by e^-38 at the ends of the range
    low, high = np.maximum(start, peak - 8.7), np.minimum(end, np.hypot(peak, 8.7))
    half = (high - low) / 2
    total = np.zeros(low.shape)
    base = np.where((low < 0) & (high > 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    for some in range(0, _NODES.size, 16):  # a few rows at once: fast for few pairs, little memory for many
        y = (low + high) / 2 + half * _NODES[some : some + 16, None]
        total += _WEIGHTS[some : some + 16] @ (np.exp((base - y) * (base + y) / 2) * -np.expm1(-np.maximum(excess(y), 0.0)))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(total * half) - base * base / 2 - _LOG_SQRT_2PI)


def _log_interval(low: Array, high: Array) -> Array:
    """log P(low < y < high) for high >= |low|."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log1p(-np.minimum(special.ndtr(low) + special.ndtr(-high), 1.0))
        right = low > 0
        if right.any():
            tail = special.log_ndtr(-low[right])
            found[right] = tail + np.log1p(-np.exp(np.minimum(special.log_ndtr(-high[right]) - tail, 0.0)))
    return np.asarray(found)


def _mills(x: Array) -> Array:
    """(1 - Phi(x)) / phi(x), the Mills ratio."""
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(np.pi / 2) * special.erfcx(x / np.sqrt(2)))
