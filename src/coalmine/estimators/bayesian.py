"""A credible lower limit for epsilon from error counts (Zanella-Béguelin et al. 2023, "Bayesian estimation of
differential privacy").

FNR and FPR get independent Jeffreys posteriors, Beta(½ + errors, ½ + successes). The posterior of epsilon is read
off the region of rates that an (epsilon, delta)-DP mechanism can have:

    G(epsilon) = P( lo(FNR) <= FPR <= hi(FNR) ),
    lo(x) = max(0, 1-delta-x e^epsilon, (1-delta-x) e^-epsilon),   hi(x) = min(1, 1+(delta-x) e^-epsilon, delta+(1-x)
    e^epsilon).

The limit is the quantile G^-1(1 - confidence). A credible statement at one threshold is not a confidence bound,
hence `valid=False`.
"""

from collections.abc import Callable

import numpy as np
from scipy import special
from scipy.optimize import brentq

from coalmine import _validate
from coalmine.contracts import Array, LowerBound
from coalmine.estimators import _detect, _rates
from coalmine.estimators._rates import Fixed, Split
from coalmine.estimators.threshold import choose, counts_at
from coalmine.scores import Scores, independent_scores

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
# shares of an interval, sin²(angle/2) with the angle at Gauss–Legendre nodes: removes square roots at both ends
_SHARES, _SHARE_WEIGHTS = np.sin(np.pi * (1 + _NODES) / 4) ** 2, np.sin(np.pi * (1 + _NODES) / 2) * _WEIGHTS * np.pi / 4
_NEGLIGIBLE = 1e-18  # probability
_DECADES = 10.0 ** -np.arange(1, 20)
_BELOW_ONE = 1 - 2.0**-53
_LARGEST = 700.0  # e^epsilon is still a number


def bound_bayesian(
    scores: Scores, *, delta: float, confidence: float = 0.95, threshold: Fixed | Split | None = None
) -> LowerBound:
    """Credible lower limit for epsilon at one threshold: `Fixed(t)`, or chosen on a `Split()` (default).

    Args:
        scores: The table of scores.
        delta: Of the statement, above 0 and below 1.
        confidence: Credibility.
        threshold: `Fixed(t)` or `Split()`.

    Returns:
        The lower bound with its assumptions, ceiling and power.
    """
    delta, confidence = _validate.delta(delta, allow_zero=True), _validate.confidence(confidence)
    scores = independent_scores(scores)
    threshold = Split() if threshold is None else threshold
    _rates.check_threshold(threshold, Fixed, Split)
    judged, value, paid = choose(scores, threshold, delta=delta, confidence=confidence)
    standard = _detect.standardised(threshold, scores)

    def exceeds(table: Scores, claim: float) -> bool:
        again, at, _ = choose(table, standard, delta=delta, confidence=confidence)
        return _limit(again, *counts_at(again, at), at, delta, confidence, above=claim) > claim

    return LowerBound(
        epsilon=_limit(judged, *counts_at(judged, value), value, delta, confidence),
        delta=delta,
        confidence=confidence,
        method="Bayesian credible limit (Zanella-Béguelin et al.)",
        valid=False,
        assumptions=(*_rates.assumptions(scores), "Jeffreys priors for both error rates"),
        ceiling=_limit(judged, 0, 0, value if isinstance(threshold, Fixed) else np.inf, delta, confidence),
        multiplicity=paid,
        finder=_detect.finder_by_scores(exceeds, scores, delta),
    )


def _limit(
    scores: Scores, missed: int, alarms: int, threshold: float, delta: float, confidence: float, above: float | None = None
) -> float:
    """The credible limit for these counts; with `above`, only as precisely as is needed to compare it with that number."""
    inserted, held_out = int(scores.inserted.sum()), int((~scores.inserted).sum())
    if scores.null is not None:
        log_fnr = _rates.log_binomial_upper(np.array([missed]), inserted, 1 - confidence, "jeffreys")
        log_fpr = np.array([-np.inf if np.isinf(threshold) else float(scores.null.logsf(threshold))])
        return float(_rates.epsilon_of_rates(log_fnr, log_fpr, delta)[0])
    counts = missed, inserted - missed, alarms, held_out - alarms
    if above is not None:
        return np.inf if _posterior(*counts, delta)(above) < 1 - confidence else 0.0
    return bayesian_quantile(*counts, delta, 1 - confidence)


def bayesian_quantile(missed: int, found: int, alarms: int, cleared: int, delta: float, probability: float) -> float:
    """The posterior quantile of epsilon given the confusion matrix (FN, TP, FP, TN).

    >>> round(bayesian_quantile(50, 950, 50, 950, 1e-5, 0.5), 3)
    3.013
    """
    posterior = _posterior(missed, found, alarms, cleared, delta)
    if posterior(0.0) >= probability:
        return 0.0
    high = 1.0
    while posterior(high) < probability:
        high *= 2
        if high > _LARGEST:  # the last digits of a probability next to 1
            return _LARGEST
    return float(brentq(lambda epsilon: posterior(epsilon) - probability, 0.0, high, xtol=1e-9))


def _posterior(missed: int, found: int, alarms: int, cleared: int, delta: float) -> Callable[[float], float]:
    """G, the posterior distribution function of epsilon: the integral over FNR of P(lo(FNR) <= FPR <= hi(FNR)).

    It is cut into pieces where lo or hi bend, or FNR or FPR come a decade nearer to 0 or 1, so that each piece is smooth.
    """
    fnr, fpr = (missed + 0.5, found + 0.5), (alarms + 0.5, cleared + 0.5)
    cuts, levels = _cuts(*fnr), _cuts(*fpr)

    def posterior(epsilon: float) -> float:
        bends = _bends(levels, epsilon, delta), 1 - _bends(1 - levels, epsilon, delta)
        edges = np.unique(np.clip(np.concatenate([cuts, *bends]), cuts.min(), cuts.max()))
        widths = np.diff(edges)[:, None]
        x = np.minimum(edges[:-1, None] + widths * _SHARES, _BELOW_ONE)
        density = np.exp(special.xlogy(fnr[0] - 1, x) + special.xlog1py(fnr[1] - 1, -x) - special.betaln(*fnr))
        inside = special.betainc(*fpr, 1 - _low(1 - x, epsilon, delta)) - special.betainc(*fpr, _low(x, epsilon, delta))
        return float(np.sum(widths * _SHARE_WEIGHTS * density * inside))

    return posterior


def _low(fnr: Array, epsilon: float, delta: float) -> Array:
    """lo(x); hi(x) is 1 - lo(1-x)."""
    return np.asarray(np.maximum(0.0, np.maximum(1 - delta - fnr * np.exp(epsilon), (1 - delta - fnr) * np.exp(-epsilon))))


def _bends(levels: Array, epsilon: float, delta: float) -> Array:
    """The x where lo(x) reaches 0 or one of the levels, on either of its branches, and where the branches meet."""
    grow, levels = np.exp(epsilon), np.append(levels, 0.0)
    return np.concatenate([(1 - delta - levels) / grow, 1 - delta - levels * grow, [(1 - delta) / (1 + grow)]])


def _cuts(a: float, b: float) -> Array:
    """The range of a Beta(a, b) variable, up to a negligible probability at either end, and the decades within."""
    low, high = special.betaincinv(a, b, _NEGLIGIBLE), special.betainccinv(a, b, _NEGLIGIBLE)
    decades = np.concatenate([_DECADES, 1 - _DECADES])
    return np.concatenate([[low, high], decades[(low < decades) & (decades < high)]])
