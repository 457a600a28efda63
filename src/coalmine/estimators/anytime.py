"""A lower bound that may be looked at after every round: a normal-mixture confidence sequence (Robbins 1970; Howard
et al. 2021).

Per-round scores of known participation are, given the past, an effect plus a projection of variance at most 1 in
units of the null. If that noise is sub-Gaussian, then for all n at once, with probability `confidence`,

    mean effect of the first n >= average_n - sqrt( (n rho² + 1)/(n² rho²) · log((n rho² + 1)/(2 miss)²) ),     rho²
    = 1/tuned_for.

Turning the mean effect into epsilon assumes a Gaussian trade-off curve; without that shape the running number is not
a bound. It does not apply to a maximum over rounds, nor to post-momentum deltas, whose noise is dependent (use increments).
"""

import numpy as np
from numpy.typing import ArrayLike

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, LowerBound
from coalmine.estimators import _detect
from coalmine.estimators.gaussian_fit import standardise
from coalmine.estimators.gdp import SHAPE
from coalmine.gaussian import gaussian_epsilon, gaussian_gap
from coalmine.scores import Scores

SUB_GAUSSIAN = "given the past, each score is its effect plus noise that is sub-Gaussian with the variance of the null"


def bound_anytime(scores: Scores, *, delta: float, confidence: float = 0.95, tuned_for: int = 200) -> LowerBound:
    """The running bound after all these scores, in order of `scores.labels["round"]` where there are rounds."""
    delta, confidence = _validate.delta(delta), _validate.confidence(confidence)
    standardised, null_count = standardise(scores)
    if "round" in scores.labels:
        standardised = standardised[np.argsort(scores.labels["round"][scores.inserted], kind="stable")]
    limit = float(anytime_gaps(standardised, confidence, tuned_for)[-1])
    width = float(standardised.mean() - limit)
    units = () if null_count is None else (f"the spread of {null_count} held-out scores is the spread of their law",)

    def find(claim: float) -> float:
        least, count = gaussian_gap(claim, delta), standardised.size
        noise = stream(0, "detectable anytime").standard_normal(_detect.REPLICATES) / np.sqrt(count)
        return _detect.smallest_detectable(lambda mu: float(np.mean(mu + noise - width > least)), claim, delta)

    return LowerBound(
        epsilon=float(gaussian_epsilon(0.0, 1.0, max(limit, 0.0), 1.0, delta)),
        delta=delta,
        confidence=confidence,
        method="anytime-valid confidence sequence",
        valid=True,
        assumptions=(SHAPE, SUB_GAUSSIAN, *units),
        ceiling=float("inf"),
        multiplicity="holds at all times at once",
        details={"mu": max(limit, 0.0), "scores": standardised.size},
        finder=find,
    )


def anytime_epsilons(standardised: ArrayLike, *, delta: float, confidence: float = 0.95, tuned_for: int = 200) -> Array:
    """The running lower bound on epsilon after each score, scores in units of the null."""
    delta, confidence = _validate.delta(delta), _validate.confidence(confidence)
    gaps = anytime_gaps(np.asarray(standardised, dtype=np.float64), confidence, tuned_for)
    return np.asarray(gaussian_epsilon(0.0, 1.0, np.maximum(gaps, 0.0), 1.0, delta))


def anytime_gaps(standardised: Array, confidence: float, tuned_for: int = 200) -> Array:
    """The running lower bound on the mean effect; tightest when about `tuned_for` scores have been seen."""
    rate = 1.0 / _validate.positive("tuned_for", tuned_for)
    n = np.arange(1, standardised.size + 1)
    inflated = n * rate + 1
    width = np.sqrt(inflated / (n**2.0 * rate) * np.log(inflated / (2 * (1 - confidence)) ** 2))
    return np.asarray(np.cumsum(standardised) / n - width)
