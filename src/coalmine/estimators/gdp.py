"""A lower bound under the assumption of a Gaussian trade-off curve (Nasr et al. 2023, "Tight auditing").

A mu-GDP mechanism has FNR >= Phi(Phi^-1(1 - FPR) - mu), so upper bounds on both rates give mu >= Phi^-1(1 - FPR) -
Phi^-1(FNR), and epsilon follows from mu (Dong, Roth & Su 2022, Corollary 2.13). Far stronger than the
assumption-free bound at small delta, and wrong if the true trade-off curve is not Gaussian: the assumption is part
of the statement.
"""

from functools import lru_cache

import numpy as np
from scipy import special

from coalmine import _validate
from coalmine.contracts import Array, LowerBound
from coalmine.estimators import _detect, _rates
from coalmine.estimators._rates import AllThresholds, Fixed, Split, Threshold
from coalmine.estimators.band import band_rates
from coalmine.estimators.threshold import choose, rates_at
from coalmine.gaussian import gaussian_epsilon, gaussian_gap
from coalmine.scores import Scores, independent_scores

SHAPE = "the trade-off curve of the audited release is Gaussian (mu-GDP)"


def bound_gdp(scores: Scores, *, delta: float, confidence: float = 0.95, threshold: Threshold | None = None) -> LowerBound:
    """Lower bound on epsilon if the mechanism is mu-GDP; all thresholds at once (by the band) unless one is given.

    Args:
        scores: The table of scores.
        delta: Of the statement, above 0 and below 1.
        confidence: With which the statement holds.
        threshold: `Fixed(t)`, `Split()` or `AllThresholds()`; None: the band.

    Returns:
        The lower bound with its assumptions, ceiling and power.
    """
    delta, confidence = _validate.delta(delta), _validate.confidence(confidence)
    scores = independent_scores(scores)
    threshold = AllThresholds() if threshold is None else threshold
    _rates.check_threshold(threshold, Fixed, Split, AllThresholds)
    mu, best, paid = _mu(scores, delta, confidence, threshold)
    standard = _detect.standardised(threshold, scores)
    needed = lru_cache(maxsize=1)(lambda claim: gaussian_gap(claim, delta))

    def exceeds(table: Scores, claim: float) -> bool:
        return _mu(table, delta, confidence, standard)[0] > needed(claim)

    return LowerBound(
        epsilon=_epsilon(mu, delta),
        delta=delta,
        confidence=confidence,
        method="Gaussian trade-off (Nasr et al.)",
        valid=True,
        assumptions=(SHAPE, *_rates.assumptions(scores)),
        ceiling=_epsilon(best, delta),
        multiplicity=paid,
        details={"mu": max(mu, 0.0)},
        finder=_detect.finder_by_scores(exceeds, scores, delta),
    )


def _mu(scores: Scores, delta: float, confidence: float, threshold: Threshold) -> tuple[float, float, str]:
    """(lower bound of mu, its value under perfect separation, how the choice of threshold was paid for)."""
    if isinstance(threshold, AllThresholds):
        log_fnr, log_fpr, log_upper = band_rates(scores, confidence)
        paid = "all thresholds at once, by a simultaneous band"
    else:
        scores, value, paid = choose(scores, threshold, delta=delta, confidence=confidence)
        level = _rates.miss_share(scores, confidence)
        log_fnr, log_fpr = rates_at(scores, value, level, "clopper-pearson")

        def log_upper(orders: _rates.Orders, count: int) -> Array:
            return _rates.log_binomial_upper(orders - 1, count, level, "clopper-pearson")

    fixed = threshold.value if isinstance(threshold, Fixed) else None
    best = float(_gap(*_rates.perfect_rates(scores, log_upper, fixed))[0])
    return float(_gap(log_fnr, log_fpr).max()), best, paid


def _gap(log_fnr: Array, log_fpr: Array) -> Array:
    """Phi^-1(1 - FPR) - Phi^-1(FNR); no gap where one of the rates is 1."""
    with np.errstate(invalid="ignore"):  # inf - inf where one rate is 0 and the other 1
        gap = -special.ndtri_exp(log_fpr) - special.ndtri_exp(log_fnr)
    return np.where((log_fnr >= 0) | (log_fpr >= 0), -np.inf, gap)


def _epsilon(mu: float, delta: float) -> float:
    if mu <= 0:  # no gap is no evidence; never the absolute value of a gap
        return 0.0
    return float("inf") if np.isinf(mu) else float(gaussian_epsilon(0.0, 1.0, mu, 1.0, delta))
