"""Skeleton of a lower bound: all thresholds at once (Massart 1990, "The tight constant in the DKW inequality").

With probability at least 1 - a, an empirical distribution function of n scores differs from the true one by at most
r = sqrt(log(1/a) / 2n) in one direction, at every threshold (a <= 1/2).

    paper        here       meaning
    lambda/√n    radius     what is added to an empirical error rate

Weaker than `bound_band` in the tails: an example, not an improvement. Copy, rename, change. Register it by a line
`Bound("dkw", bound_dkw)` in `BOUNDS` (src/coalmine/estimators/__init__.py).
"""

from __future__ import annotations

import math

import numpy as np

from coalmine import _validate
from coalmine.contracts import Array, LowerBound
from coalmine.estimators import _detect, _rates
from coalmine.scores import Scores, independent_scores


def bound_dkw(scores: Scores, *, delta: float, confidence: float = 0.95) -> LowerBound:
    """Lower bound on epsilon over all thresholds, valid at the stated confidence."""
    delta, confidence = _validate.delta(delta, allow_zero=True), _validate.confidence(confidence)
    scores = independent_scores(scores)  # refuses several scores of one canary
    risk = min(_rates.miss_share(scores, confidence), 0.5)  # of one error rate: half, if both are measured

    def log_upper(orders: _rates.Orders, count: int) -> Array:
        """By order j, the bound of an error rate with j - 1 errors in `count`."""
        radius = math.sqrt(math.log(1 / risk) / (2 * count))
        return np.asarray(np.log(np.minimum((orders - 1) / count + radius, 1.0)))

    def epsilon(table: Scores) -> float:
        orders = np.arange(1, int(table.inserted.sum()) + 1)
        return float(_rates.epsilon_of_rates(*_rates.sweep(table, orders, log_upper), delta).max())

    return LowerBound(
        epsilon=epsilon(scores),
        delta=delta,
        confidence=confidence,
        method="uniform band (Massart)",
        valid=True,
        assumptions=_rates.assumptions(scores),
        ceiling=_rates.ceiling(scores, log_upper, delta),
        multiplicity="all thresholds at once, by a uniform band",
        finder=_detect.finder_by_scores(lambda table, claim: epsilon(table) > claim, scores, delta),
    )
