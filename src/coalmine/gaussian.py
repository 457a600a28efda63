r"""Epsilon and delta between two arbitrary Gaussians.

For P = N(mean_p, std_p²) and Q = N(mean_q, std_q²) the hockey-stick divergence is

    delta(epsilon) = P(S) - e^epsilon Q(S),        S = {x : log p(x)/q(x) > epsilon},

and epsilon(delta) is its inverse. Balle & Wang (2018) treat equal widths; Andrew et al. (2024, one-shot empirical privacy
estimation) need unequal ones, since a fitted score distribution rarely has exactly the width of the null.

This file holds the questions, their edge cases and both orders; the numerics are in `coalmine._hockey_stick`.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from coalmine import _validate
from coalmine._hockey_stick import BEYOND_FLOAT, Array, Pair, invert, log_divergence, start_of

Order = Literal["both", "p||q", "q||p"]


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

    Args:
        mean_p: Mean of P.
        std_p: Standard deviation of P.
        mean_q: Mean of Q.
        std_q: Standard deviation of Q.
        delta: At which delta.
        order: "both", or one direction: "p||q", "q||p".

    Returns:
        A float, or an array where an argument is one.
    """
    return _larger(_epsilon_one_way, _checked(mean_p, std_p, mean_q, std_q, delta=delta), order)


def gaussian_delta(
    mean_p: ArrayLike, std_p: ArrayLike, mean_q: ArrayLike, std_q: ArrayLike, epsilon: ArrayLike, *, order: Order = "both"
) -> Any:
    """The smallest delta for which the two Gaussians are (epsilon, delta)-indistinguishable; epsilon >= 0, inf allowed.

    >>> gaussian_delta(0, 1, 1, 1, 4.886554117)
    1.0000000...e-06

    Args:
        mean_p: Mean of P.
        std_p: Standard deviation of P.
        mean_q: Mean of Q.
        std_q: Standard deviation of Q.
        epsilon: At which epsilon.
        order: "both", or one direction: "p||q", "q||p".

    Returns:
        A float, or an array where an argument is one.
    """
    return _larger(_delta_one_way, _checked(mean_p, std_p, mean_q, std_q, epsilon=epsilon), order)


def gaussian_gap(epsilon: float, delta: float) -> float:
    """The gap mu between two unit Gaussians whose epsilon at this delta is `epsilon`: the inverse of `gaussian_epsilon`.

    1 / mu is the noise multiplier of a single Gaussian release with that guarantee (Balle & Wang 2018).

    >>> 1 / gaussian_gap(10.0, 1e-6)
    0.541086831...

    Args:
        epsilon: Of the two Gaussians.
        delta: At which delta.

    Returns:
        The gap mu, in standard deviations.
    """
    from scipy.optimize import brentq

    epsilon, delta = _validate.non_negative("epsilon", epsilon), _validate.delta(delta)

    def excess(mu: float) -> float:
        return float(gaussian_epsilon(0.0, 1.0, mu, 1.0, delta)) - epsilon

    hidden = float(np.sqrt(8) * special.erfinv(delta))  # here the total variation 2 Phi(mu/2) - 1 is delta, and epsilon 0
    if excess(hidden) >= 0:
        return hidden
    # at mu = hidden + sqrt(2 epsilon) the border of S is at most -hidden/2, so that delta(epsilon) is at least delta
    high = (hidden + np.sqrt(2) * np.sqrt(epsilon)) * (1 + 1e-9)
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
    if order == "both" and (std_p == std_q).all():  # both directions are the same
        return [forward]
    return {"both": [forward, backward], "p||q": [forward], "q||p": [backward]}[order]


def _standardise(gap: Array, std_p: Array, std_q: Array) -> tuple[Array, Array]:
    """m = gap / std_q and l = log(std_p / std_q), the latter without cancellation for nearly equal widths."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        m = gap / std_q
        near = np.abs(std_p - std_q) < 0.5 * std_q
        ratio = std_p / std_q
        apart = np.where((ratio > 1e-300) & (ratio < 1e300), np.log(ratio), np.log(std_p) - np.log(std_q))
        log_s = np.where(near, np.log1p((std_p - std_q) / std_q), apart)
    return m, log_s


def _epsilon_one_way(gap: Array, std_p: Array, std_q: Array, delta: Array) -> Array:
    found = np.zeros(gap.shape)
    singular = (std_p == 0) | (std_q == 0)
    m, log_s = _standardise(gap, std_p, std_q)
    equal = ((gap == 0) & (std_p == std_q)) | ((m == 0) & (log_s == 0))  # the latter with a gap that underflows
    infinite = singular | (m > BEYOND_FLOAT) | (log_s > np.log(BEYOND_FLOAT))
    bounded = (delta == 0) & (log_s < 0) & ~infinite  # a narrower P has a bounded loss even at delta=0
    if bounded.any():
        with np.errstate(over="ignore"):
            found[bounded] = -log_s[bounded] - m[bounded] ** 2 / (2 * np.expm1(2 * log_s[bounded]))
    found[infinite | ((delta == 0) & (log_s >= 0))] = np.inf
    found[equal | (delta >= 1)] = 0.0
    open_ = ~(infinite | equal | (delta == 0) | (delta >= 1))
    for group in (open_ & (log_s >= 0), open_ & (log_s < 0)):  # P the wider one, P the narrower one
        if group.any():
            found[group] = invert(Pair.of(m[group], log_s[group]), np.log(delta[group]))
    return found


def _delta_one_way(gap: Array, std_p: Array, std_q: Array, epsilon: Array) -> Array:
    found = np.zeros(gap.shape)
    singular = (std_p == 0) | (std_q == 0)
    m, log_s = _standardise(gap, std_p, std_q)
    equal = ((gap == 0) & (std_p == std_q)) | ((m == 0) & (log_s == 0))
    beyond = (m > BEYOND_FLOAT) | (log_s > np.log(BEYOND_FLOAT))
    found[~equal & (singular | (beyond & np.isfinite(epsilon)))] = 1.0
    open_ = ~(equal | singular | beyond) & np.isfinite(epsilon)
    if open_.any():
        pair = Pair.of(m[open_], log_s[open_])
        t = start_of(pair, epsilon[open_])
        reached = ~np.isnan(t)  # a narrower P never reaches a loss above its maximum
        value = np.zeros(t.shape)
        value[reached] = np.exp(np.minimum(log_divergence(t[reached], pair.where(reached))[0], 0.0))
        found[open_] = value
    return found


def _capped(numerator: float, denominator: float) -> float:
    """A quotient, limited so that its square is a number."""
    with np.errstate(divide="ignore", over="ignore"):
        return float(np.clip(np.divide(numerator, denominator), -BEYOND_FLOAT, BEYOND_FLOAT))


def _log_minus(log_a: Array, log_b: Any) -> Array:
    """log(a - b), -inf where b >= a."""
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.minimum(log_b - log_a, 0.0)
        return np.asarray(
            log_a + np.where(difference > -np.log(2), np.log(-np.expm1(difference)), np.log1p(-np.exp(difference)))
        )
