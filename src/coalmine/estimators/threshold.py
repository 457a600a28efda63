"""Bounds from error counts at thresholds: fixed beforehand, chosen on a split, or all of them with the multiplicity paid.

`bound_pointwise` is the number that the one-shot papers print as epsilon_lo. It is here for comparison and says
itself that it is not a bound.
"""

from functools import lru_cache

import numpy as np

from coalmine import _validate
from coalmine.contracts import Array, LowerBound
from coalmine.estimators import _band, _detect, _rates
from coalmine.estimators._rates import AllThresholds, Fixed, Interval, Split, Threshold
from coalmine.scores import Scores, independent_scores

_UNLUCKY = 0.1  # a threshold is chosen for what the other canaries show unless they are as unlucky as this
_EVERY_THRESHOLD = 20_000  # bound_pointwise looks at every score up to this many canaries, at the band's grid beyond


def bound_threshold(
    scores: Scores,
    *,
    delta: float,
    confidence: float = 0.95,
    threshold: Threshold | None = None,
    interval: Interval = "clopper-pearson",
) -> LowerBound:
    """Lower bound on epsilon from binomial bounds on the two error rates.

    `threshold` is `Fixed(t)`, `Split()` or `AllThresholds()` (default). The risk is halved between the two rates
    unless the null is exact. With `interval="jeffreys"` the bound is approximate and `valid` is False.

    Args:
        scores: The table of scores.
        delta: 0 is allowed.
        confidence: With which the statement holds.
        threshold: `Fixed(t)`, `Split()` or `AllThresholds()`.
        interval: "clopper-pearson" or "jeffreys".

    Returns:
        The lower bound with its assumptions, ceiling and power.
    """
    delta, confidence = _validate.delta(delta, allow_zero=True), _validate.confidence(confidence)
    scores = independent_scores(scores)
    _validate.one_of("interval", interval, _rates.INTERVALS)
    threshold = AllThresholds() if threshold is None else threshold
    _rates.check_threshold(threshold, Fixed, Split, AllThresholds)
    level = _rates.miss_share(scores, confidence)
    if isinstance(threshold, AllThresholds):
        found, ceiling = _all_thresholds(scores, level, interval, delta)
        judged, paid = scores, "Bonferroni over the thresholds"
    else:
        judged, value, paid = choose(scores, threshold, delta=delta, confidence=confidence)
        log_fnr, log_fpr = rates_at(judged, value, level, interval)
        found = float(_rates.epsilon_of_rates(log_fnr, log_fpr, delta)[0])
        ceiling = _ceiling(judged, level, interval, delta, fixed=value if isinstance(threshold, Fixed) else None)
    return LowerBound(
        epsilon=found,
        delta=delta,
        confidence=confidence,
        method=f"{interval} at {_words(threshold)}",
        valid=interval == "clopper-pearson",
        assumptions=_rates.assumptions(scores),
        ceiling=ceiling,
        multiplicity=paid,
        finder=_finder(scores, delta, confidence, threshold, interval),
    )


def bound_pointwise(scores: Scores, *, delta: float, confidence: float = 0.95, interval: Interval = "jeffreys") -> LowerBound:
    """The papers' epsilon_lo: a pointwise bound, maximised over all thresholds without paying for it. Not a bound.

    Jeffreys intervals at the full level for each of the two rates, as in the code released with the one-shot paper.
    With no leakage at all it is above zero in about 3 of 4 runs with 1,000 canaries.

    Args:
        scores: The table of scores.
        delta: Of the statement, above 0 and below 1.
        confidence: Of each rate.
        interval: "jeffreys" or "clopper-pearson".

    Returns:
        A number with `valid=False`.
    """
    delta, confidence = _validate.delta(delta, allow_zero=True), _validate.confidence(confidence)
    scores = independent_scores(scores)
    _validate.one_of("interval", interval, _rates.INTERVALS)

    def log_upper(orders: _rates.Orders, count: int) -> Array:
        return _rates.log_binomial_upper(orders - 1, count, 1 - confidence, interval)

    def exceeds(table: Scores, claim: float) -> bool:
        return bound_pointwise(table, delta=delta, confidence=confidence, interval=interval).epsilon > claim

    count = int(scores.inserted.sum())
    orders = np.arange(1, count + 1) if count <= _EVERY_THRESHOLD else _band.grid(count)
    rates = _rates.sweep(scores, orders, log_upper)
    return LowerBound(
        epsilon=float(_rates.epsilon_of_rates(*rates, delta).max()),
        delta=delta,
        confidence=confidence,
        method=f"pointwise {interval}, best threshold (the papers' epsilon_lo)",
        valid=False,
        assumptions=_rates.assumptions(scores),
        ceiling=_rates.ceiling(scores, log_upper, delta),
        multiplicity="not paid: the threshold is chosen on the scores it is judged by",
        finder=_detect.finder_by_scores(exceeds, scores, delta),
    )


def choose(scores: Scores, threshold: Fixed | Split, *, delta: float, confidence: float) -> tuple[Scores, float, str]:
    """(scores to judge by, threshold, how the choice was paid for)."""
    if isinstance(threshold, Fixed):
        return scores, float(threshold.value), "one threshold, fixed beforehand"
    tuning, judged = _rates.halves(scores, threshold)
    orders, level = _band.grid(int(tuning.inserted.sum())), _rates.miss_share(scores, confidence)

    def log_promised(at: _rates.Orders, count: int) -> Array:
        return _log_promised(at - 1, count, threshold.fraction, level)

    best = int(np.argmax(_rates.epsilon_of_rates(*_rates.sweep(tuning, orders, log_promised), delta)))
    value = float(np.sort(tuning.inserted_values)[orders[best] - 1])
    return judged, value, f"threshold chosen on {threshold.fraction:.0%} of the canaries, judged on the others"


def _log_promised(errors: _rates.Orders, count: int, fraction: float, level: float) -> Array:
    """log of the bound on an error rate that the other canaries will give in about nine of ten cases.

    Not the bound from these canaries: with a known null law it is often largest at the very last score, which the
    others need not reach.
    """
    others = max(1, round(count * (1 - fraction) / fraction))
    rate = np.exp(_rates.log_binomial_upper(errors, count, _UNLUCKY, "clopper-pearson"))
    return _rates.log_binomial_upper(np.ceil(rate * others).astype(np.int64), others, level, "clopper-pearson")


def counts_at(scores: Scores, threshold: float) -> tuple[int, int]:
    """(inserted scores below the threshold, held-out scores at or above it)."""
    return int((scores.inserted_values < threshold).sum()), int((scores.held_out_values >= threshold).sum())


def rates_at(scores: Scores, threshold: float, level: float, interval: Interval) -> tuple[Array, Array]:
    """(log FNR, log FPR) bounds at one threshold."""
    missed, alarms = counts_at(scores, threshold)
    log_fnr = _rates.log_binomial_upper(np.array([missed]), int(scores.inserted.sum()), level, interval)
    if scores.null is not None:
        return log_fnr, np.atleast_1d(scores.null.logsf(threshold))
    return log_fnr, _rates.log_binomial_upper(np.array([alarms]), int((~scores.inserted).sum()), level, interval)


def _all_thresholds(scores: Scores, level: float, interval: Interval, delta: float) -> tuple[float, float]:
    def log_upper(orders: _rates.Orders, count: int) -> Array:
        return _bonferroni(count, level, interval)[np.searchsorted(_band.grid(count), orders)]

    orders = _band.grid(int(scores.inserted.sum()))
    found = _rates.epsilon_of_rates(*_rates.sweep(scores, orders, log_upper), delta)
    return float(found.max()), _rates.ceiling(scores, log_upper, delta)


@lru_cache(maxsize=64)
def _bonferroni(count: int, level: float, interval: Interval) -> Array:
    """log bounds at the order statistics of the grid, the risk shared equally among them."""
    used = _band.grid(count)
    return _rates.log_binomial_upper(used - 1, count, level / used.size, interval)


def _ceiling(scores: Scores, level: float, interval: Interval, delta: float, fixed: float | None) -> float:
    def log_upper(orders: _rates.Orders, count: int) -> Array:
        return _rates.log_binomial_upper(orders - 1, count, level, interval)

    return _rates.ceiling(scores, log_upper, delta, fixed)


def _finder(scores: Scores, delta: float, confidence: float, threshold: Threshold, interval: Interval) -> _detect.Finder:
    """Simulates standardised scores; a fixed threshold is carried over to their scale."""
    threshold = _detect.standardised(threshold, scores)

    def exceeds(table: Scores, claim: float) -> bool:
        found = bound_threshold(table, delta=delta, confidence=confidence, threshold=threshold, interval=interval)
        return found.epsilon > claim

    return _detect.finder_by_scores(exceeds, scores, delta)


def _words(threshold: Threshold) -> str:
    match threshold:
        case Fixed(value):
            return f"the fixed threshold {value:g}"
        case Split():
            return "a threshold chosen on a split"
        case _:
            return "all thresholds"
