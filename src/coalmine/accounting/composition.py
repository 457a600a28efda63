"""From a Rényi curve to epsilon and delta, and the composition theorem of Kairouz, Oh & Viswanath.

    paper                    here                     meaning
    alpha                    order                    Rényi order, any real number above 1
    Mironov 2017, Prop. 3    conversion "mironov"     epsilon = curve(alpha) + log(1/delta) / (alpha - 1)
    Canonne et al. 2020      conversion "tight"       epsilon = curve(alpha) + log(1 - 1/alpha) - log(delta alpha)/(alpha-1)
    Kairouz et al. 2015      compose_optimal          Theorem 3.3: k releases, each (epsilon, delta)-DP

Both conversions hold for every order, so the smallest value over all orders does too. "mironov" is what papers print
(Lemma 1 of Zhang & Psounis 2024); "tight" is never larger, and is what dp-accounting uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from coalmine import _validate

Conversion = Literal["mironov", "tight"]
CONVERSIONS = ("mironov", "tight")
Curve = Callable[[float], float]  # a Rényi order to the divergence, infinite where it does not exist
_GRID = 400
_FARTHEST = 1e12  # orders beyond it change nothing
_NEAREST = 1e-9  # above order 1


def converted(curve: Curve, delta: float, most: float, conversion: str = "mironov") -> tuple[float, float]:
    """(epsilon, its order): the smallest epsilon over real orders between 1 and `most`; (inf, nan) where there is none.

    >>> epsilon, order = converted(lambda order: order * 0.02, 1e-5, math.inf)
    >>> round(epsilon, 6), round(order, 4)                      # rho + 2 sqrt(rho log(1/delta)) with rho = 0.02
    (0.979705, 24.9926)
    """
    _validate.one_of("conversion", conversion, CONVERSIONS)
    rest = _mironov if conversion == "mironov" else _tight

    def epsilon_at(order: float) -> float:
        value = curve(order)
        return max(value + rest(order, delta), 0.0) if math.isfinite(value) else math.inf

    return _smallest(epsilon_at, most)


def converted_delta(curve: Curve, epsilon: float, most: float, conversion: str = "mironov") -> float:
    """The delta at this epsilon by the same conversion, at most 1."""
    _validate.one_of("conversion", conversion, CONVERSIONS)

    def log_delta(order: float) -> float:
        value = curve(order)
        if not math.isfinite(value):
            return math.inf
        exponent = (order - 1) * (value - epsilon)
        return exponent if conversion == "mironov" else exponent + (order - 1) * math.log1p(-1 / order) - math.log(order)

    return math.exp(min(_smallest(log_delta, most)[0], 0.0))


def compose_optimal(epsilon: float, delta: float, times: int, total_delta: float) -> float:
    """Epsilon at `total_delta` of `times` releases, each (epsilon, delta)-DP; infinite where total_delta cannot be reached.

    Theorem 3.3: for i = 0 ... k/2 the composition is ((k - 2i) epsilon, 1 - (1-delta)^k (1-delta_i))-DP, with
    delta_i = sum_{l < i} C(k, l) (e^{(k-l) epsilon} - e^{(k-2i+l) epsilon}) / (1 + e^epsilon)^k.

    >>> round(compose_optimal(0.1, 1e-6, 100, 1e-4 + 1e-9), 9)
    5.8

    Args:
        epsilon: Of one release.
        delta: Of one release.
        times: Releases.
        total_delta: Of all together.

    Returns:
        Epsilon of all together.
    """
    epsilon, times = _validate.non_negative("epsilon", epsilon), _validate.whole("times", times, least=1)
    delta, total_delta = _validate.delta(delta, allow_zero=True), _validate.delta(total_delta, allow_zero=True)
    from scipy.special import gammaln, logsumexp

    whole = np.arange(times + 1.0)
    log_ways = gammaln(times + 1) - gammaln(whole + 1) - gammaln(times - whole + 1) - times * np.logaddexp(0.0, epsilon)
    found = math.inf
    for i in range(times // 2 + 1):
        lower = whole[:i]
        terms = log_ways[:i] + (times - lower) * epsilon
        if i and epsilon > 0:
            terms = terms + np.log(-np.expm1(-2 * (i - lower) * epsilon))
        inner = float(np.exp(logsumexp(terms))) if i and epsilon > 0 else 0.0
        if inner >= 1 or -math.expm1(times * math.log1p(-delta) + math.log1p(-inner)) > total_delta * (1 + 1e-12):
            break
        found = (times - 2 * i) * epsilon
    return found


def _mironov(order: float, delta: float) -> float:
    return -math.log(delta) / (order - 1)


def _tight(order: float, delta: float) -> float:
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def _smallest(value_at: Curve, most: float) -> tuple[float, float]:
    """(the smallest value, the order that has it) over orders from 1 to `most`, on a grid and then between its points."""
    from scipy.optimize import minimize_scalar

    if not most > 1:
        return math.inf, math.nan
    high = math.log(min(most - 1, _FARTHEST))
    places = np.linspace(min(math.log(_NEAREST), high - 30), high, _GRID)
    values = [value_at(1 + math.exp(place)) for place in places]
    best = int(np.argmin(values))
    if not math.isfinite(values[best]):
        return math.inf, math.nan
    around = (float(places[max(best - 1, 0)]), float(places[min(best + 1, _GRID - 1)]))
    found = minimize_scalar(
        lambda place: value_at(1 + math.exp(place)), bounds=around, method="bounded", options={"xatol": 1e-10}
    )
    if found.fun <= values[best]:
        return float(found.fun), 1 + math.exp(float(found.x))
    return float(values[best]), 1 + math.exp(float(places[best]))
