"""A lower bound that may be looked at after every round: a normal-mixture confidence sequence (Robbins 1970; Howard
et al. 2021).

Per-round scores of known participation are, given the past, an effect plus a projection of variance at most 1 in
units of the null. If that noise is sub-Gaussian, then for all n at once, with probability `confidence`,

    mean effect of the first n >= average_n - z_n sqrt(n + tuned_for)/n,
    2 Phi(z_n) exp(z_n²/2) = sqrt(n/tuned_for + 1)/miss.

Where held-out scores stand in for a known law, their centre has such a sequence of its own, half the risk each.

Turning the mean effect into epsilon assumes a Gaussian trade-off curve; without that shape the running number is not
a bound. It does not apply to a maximum over rounds, nor to post-momentum deltas, whose noise is dependent (use increments).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, LowerBound
from coalmine.errors import AuditError
from coalmine.estimators import _detect
from coalmine.estimators._rates import EXCHANGEABLE
from coalmine.estimators.gaussian_fit import standardise
from coalmine.estimators.gdp import SHAPE
from coalmine.gaussian import gaussian_epsilon, gaussian_gap
from coalmine.scores import Scores

SUB_GAUSSIAN = "given the past, each score is its effect plus noise that is sub-Gaussian with the variance of the null"


def bound_anytime(scores: Scores, *, delta: float, confidence: float = 0.95, tuned_for: int = 200) -> LowerBound:
    """The running bound after all these scores, in order of `scores.labels["round"]` where there are rounds.

    Args:
        scores: The table of scores.
        delta: Of the statement, above 0 and below 1.
        confidence: With which the statement holds.
        tuned_for: Scores after which the bound is tightest.

    Returns:
        The lower bound with its assumptions, ceiling and power.
    """
    delta, confidence = _validate.delta(delta), _validate.confidence(confidence)
    if scores.maximum:
        raise AuditError("the anytime bound is for sums of scores, not for their maximum over rounds; use bound_band.")
    standardised, null_count = standardise(scores)
    if "round" in scores.labels:
        standardised = standardised[np.argsort(scores.labels["round"][scores.inserted], kind="stable")]
    count, shared, centre, variance = standardised.size, confidence, 0.0, 1 / standardised.size
    if null_count is not None:  # half of the risk for the centre of the held-out scores
        shared, variance = (1 + confidence) / 2, variance + 1 / null_count
        centre = float(_width(null_count, 1 - shared, tuned_for))
    limit = float(anytime_gaps(standardised, shared, tuned_for)[-1]) - centre
    width = float(standardised.mean() - limit)
    units = () if null_count is None else (EXCHANGEABLE, f"the spread of {null_count} held-out scores is that of their law")

    def find(claim: float) -> float:
        least = gaussian_gap(claim, delta)
        noise = stream(0, "detectable anytime").standard_normal(_detect.REPLICATES) * np.sqrt(variance)
        return _detect.smallest_detectable(lambda mu: float(np.mean(mu + noise - width > least)), claim, delta)

    return LowerBound(
        epsilon=float(gaussian_epsilon(0.0, 1.0, max(limit, 0.0), 1.0, delta)),
        delta=delta,
        confidence=confidence,
        method="anytime-valid confidence sequence",
        valid=null_count is None,  # a measured unit errs by mu/sqrt(2n), which the sequence does not know
        assumptions=(SHAPE, SUB_GAUSSIAN, *units),
        ceiling=float("inf"),
        multiplicity="holds at all times at once",
        details={"mu": max(limit, 0.0), "scores": count},
        finder=find,
    )


def anytime_epsilons(standardised: ArrayLike, *, delta: float, confidence: float = 0.95, tuned_for: int = 200) -> Array:
    """The running lower bound on epsilon after each score, scores in units of the null.

    Args:
        standardised: Scores in order, in units of the null.
        delta: Of the statement, above 0 and below 1.
        confidence: With which all bounds hold at once.
        tuned_for: Scores after which the bound is tightest.

    Returns:
        The bound after each score.
    """
    delta, confidence = _validate.delta(delta), _validate.confidence(confidence)
    gaps = anytime_gaps(np.asarray(standardised, dtype=np.float64), confidence, tuned_for)
    return np.asarray(gaussian_epsilon(0.0, 1.0, np.maximum(gaps, 0.0), 1.0, delta))


def anytime_gaps(standardised: Array, confidence: float, tuned_for: int = 200) -> Array:
    """The running lower bound on the mean effect; tightest when about `tuned_for` scores have been seen."""
    n = np.arange(1, standardised.size + 1)
    return np.asarray(np.cumsum(standardised) / n - _width(n, 1 - confidence, tuned_for))


def anytime_interval(count: int, total: float, confidence: float, tuned_for: int = 200) -> tuple[float, float]:
    """Bounds of the mean effect from below and from above, from the number of scores so far and their sum in order."""
    width = float(_width(count, 1 - confidence, tuned_for))
    return total / count - width, total / count + width


def _width(n: ArrayLike, miss: float, tuned_for: float) -> Array:
    """z_n sqrt(n + tuned_for)/n.

    z_n is one step from the two-sided boundary of twice the risk, which by itself is too narrow if the noise is not
    symmetric or looked at for ever. Phi there is below Phi(z_n), so the step ends above the solution: on the safe side.
    """
    n, tuned_for = np.asarray(n, dtype=np.float64), _validate.positive("tuned_for", tuned_for)
    inflated = n / tuned_for + 1
    two_sided = np.sqrt(np.maximum(np.log(inflated / (2 * miss) ** 2), 0.0))
    z = np.sqrt(np.log(inflated / (2 * miss * special.ndtr(two_sided)) ** 2))
    return np.asarray(z * np.sqrt(n + tuned_for) / n)
