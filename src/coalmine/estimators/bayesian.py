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
from coalmine.contracts import LowerBound
from coalmine.estimators import _detect, _rates
from coalmine.estimators._rates import Fixed, Split
from coalmine.estimators.threshold import choose, counts_at
from coalmine.scores import Scores

_NODES = 20_000


def bound_bayesian(
    scores: Scores, *, delta: float, confidence: float = 0.95, threshold: Fixed | Split | None = None
) -> LowerBound:
    """Credible lower limit for epsilon at one threshold: `Fixed(t)`, or chosen on a `Split()` (default)."""
    delta, confidence = _validate.delta(delta, allow_zero=True), _validate.confidence(confidence)
    threshold = Split() if threshold is None else threshold
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
        ceiling=_limit(judged, 0, 0, np.inf, delta, confidence),
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
        return np.inf if _posterior(*counts, delta, nodes=2_000)(above) < 1 - confidence else 0.0
    return bayesian_quantile(*counts, delta, 1 - confidence)


def bayesian_quantile(missed: int, found: int, alarms: int, cleared: int, delta: float, probability: float) -> float:
    """The posterior quantile of epsilon given the confusion matrix (FN, TP, FP, TN).

    >>> round(bayesian_quantile(50, 950, 50, 950, 1e-5, 0.5), 3)
    3.013
    """
    posterior = _posterior(missed, found, alarms, cleared, delta, _NODES)
    if posterior(0.0) >= probability:
        return 0.0
    high = 1.0
    while posterior(high) < probability:
        high *= 2
    return float(brentq(lambda epsilon: posterior(epsilon) - probability, 0.0, high, xtol=1e-9))


def _posterior(missed: int, found: int, alarms: int, cleared: int, delta: float, nodes: int) -> Callable[[float], float]:
    """G, the posterior distribution function of epsilon, by the midpoint rule over quantiles of FNR, denser at both ends."""
    angle = np.pi * (np.arange(nodes) + 0.5) / nodes
    weights = np.sin(angle) * np.pi / (2 * nodes)
    fnr = special.betaincinv(missed + 0.5, found + 0.5, np.sin(angle / 2) ** 2)

    def posterior(epsilon: float) -> float:
        grow, shrink = np.exp(epsilon), np.exp(-epsilon)
        low = np.maximum(0.0, np.maximum(1 - delta - fnr * grow, (1 - delta - fnr) * shrink))
        high = np.minimum(1.0, np.minimum(1 + (delta - fnr) * shrink, delta + (1 - fnr) * grow))
        inside = special.betainc(alarms + 0.5, cleared + 0.5, high) - special.betainc(alarms + 0.5, cleared + 0.5, low)
        return float(weights @ inside)

    return posterior
