"""A lower bound that may be looked at after every round: a normal-mixture confidence sequence (Robbins 1970; Howard
et al. 2021).

Per-round scores of known participation are, given the past, an effect plus a projection of variance at most 1 in
units of the null. If that noise is sub-Gaussian, then for all n at once, with probability `confidence`,

    mean effect of the first n >= average_n - z_n sqrt(n + tuned_for)/n,
    2 Phi(z_n) exp(z_n²/2) = sqrt(n/tuned_for + 1)/miss.

Where the spread was measured on directions that took no part, a fifth of the risk is for its error: the spread counts as so
much larger that none of the scores' spreads is underestimated, but for that risk. Where held-out scores stand in for a known
law, their centre has such a sequence of its own, half the risk each, and the error of their spread is not allowed for.

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
from coalmine.nulls import measured_on
from coalmine.scores import Scores

_OF_THE_SPREAD = 0.2  # of the risk, where a spread was measured on directions
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
    directions = None if scores.null is None else measured_on(scores.null)
    units: tuple[str, ...] = ()
    if directions:  # their centre is known, their spread is not
        shared = 1 - (1 - confidence) * (1 - _OF_THE_SPREAD)
        standardised = standardised / spread_factor(directions, (1 - confidence) * _OF_THE_SPREAD / count)
        units = (f"the {directions} directions that the spread was measured on have normal scores",)
    elif null_count is not None:  # half of the risk for the centre of the held-out scores
        shared, variance = (1 + confidence) / 2, variance + 1 / null_count
        centre = float(_width(null_count, 1 - shared, tuned_for))
        units = (EXCHANGEABLE, f"the spread of {null_count} held-out scores is that of their law")
    limit = float(anytime_gaps(standardised, shared, tuned_for)[-1]) - centre
    width = float(standardised.mean() - limit)

    def find(claim: float) -> float:
        least = gaussian_gap(claim, delta)
        noise = stream(0, "detectable anytime").standard_normal(_detect.REPLICATES) * np.sqrt(variance)
        return _detect.smallest_detectable(lambda mu: float(np.mean(mu + noise - width > least)), claim, delta)

    return LowerBound(
        epsilon=float(gaussian_epsilon(0.0, 1.0, max(limit, 0.0), 1.0, delta)),
        delta=delta,
        confidence=confidence,
        method="anytime-valid confidence sequence",
        valid=null_count is None
        or bool(directions),  # the unit of held-out scores errs by mu/sqrt(2n), unknown to the sequence
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


def anytime_interval(count: float, total: float, confidence: float, tuned_for: int = 200) -> tuple[float, float]:
    """Bounds of the mean effect from below and from above, from the number of scores so far and their sum in order.

    Where scores have weights that are fixed before they are seen, `total` is their weighted sum, and `count` that of the
    squared weights: the variance of its noise.
    """
    width = float(_width(count, 1 - confidence, tuned_for))
    return total / count - width, total / count + width


def spread_factor(directions: int, risk: float) -> float:
    """How many times larger than the one measured on so many normal scores of mean zero the spread is, but for this risk.

    >>> round(spread_factor(8000, 1e-4), 3)
    1.03
    """
    return float(np.sqrt(directions / (2 * special.gammaincinv(directions / 2, risk))))


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
