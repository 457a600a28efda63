"""What a design could have found: the smallest true epsilon that a bound shows above a claim with probability 0.8.

The model of the search is one Gaussian release: held-out scores N(0, 1), inserted scores N(mu, 1), epsilon =
epsilon(mu; delta).
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from coalmine._random import stream
from coalmine.contracts import Null
from coalmine.estimators._rates import Fixed, Threshold
from coalmine.gaussian import gaussian_epsilon, gaussian_gap
from coalmine.nulls import GaussianNull, measured_on, of_one_round
from coalmine.scores import Scores

Finder = Callable[[float], float]  # claim -> smallest detectable epsilon
Exceeds = Callable[[Scores, float], bool]  # (scores, claim) -> does the bound show more than the claim?

AnyThreshold = TypeVar("AnyThreshold", bound=Threshold)

POWER = 0.8
REPLICATES = 200
_LARGEST_GAP = 1e4


def smallest_detectable(share_above: Callable[[float], float], claim: float, delta: float) -> float:
    """The epsilon of the smallest gap mu with share_above(mu) >= 0.8; share_above must use common random numbers.

    Nothing but that comparison is asked of share_above: it may stop counting as soon as the answer is known.
    """
    if delta <= 0.0:  # a Gaussian gap has infinite epsilon at delta = 0
        return float("inf")
    low = gaussian_gap(claim, delta)
    high = max(2 * low, 0.01)
    while share_above(high) < POWER:
        low, high = high, 2 * high
        if high > _LARGEST_GAP:
            return float("inf")
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if share_above(middle) >= POWER else (middle, high)
    return float(gaussian_epsilon(0.0, 1.0, high, 1.0, delta))


def finder_by_scores(exceeds: Exceeds, scores: Scores, delta: float) -> Finder:
    """A finder that simulates whole tables of scores of the same design and asks the bound about each."""
    inserted, held_out = int(scores.inserted.sum()), int((~scores.inserted).sum())
    null = standard_null(scores.null)
    replicates = int(np.clip(4e6 / (inserted + held_out), 20, REPLICATES))

    def find(claim: float) -> float:
        def share_above(mu: float) -> float:
            hits = 0
            for replicate in range(replicates):
                rng = stream(0, "detectable", replicate)
                values = rng.standard_normal(inserted), rng.standard_normal(held_out)
                table = Scores.of(values[0] + mu, values[1], null=null, assignment="coins")
                hits += exceeds(table, claim)
                most = (hits + replicates - 1 - replicate) / replicates  # if all others exceed the claim
                if hits / replicates >= POWER or most < POWER:
                    break
            return hits / replicates

        return smallest_detectable(share_above, claim, delta)

    return find


def standard_null(null: Null | None) -> GaussianNull | None:
    """The null of the simulated design: a standard normal with the same slack, or none if held-out canaries are the null."""
    if null is None:
        return None
    return GaussianNull(slack=null.slack, directions=measured_on(null))


def standardised(threshold: AnyThreshold, scores: Scores) -> AnyThreshold | Fixed:
    """A threshold for simulated scores that corresponds to `threshold` for these."""
    if not isinstance(threshold, Fixed):
        return threshold
    center, spread = location(scores)
    return Fixed((threshold.value - center) / spread)


def location(scores: Scores) -> tuple[float, float]:
    """(centre, spread) of the held-out scores, from the null law if it has them, else from the sample."""
    if scores.null is not None:
        null = of_one_round(scores.null)  # standard_null puts the union bound into its slack
        return null.center, null.spread
    held_out = scores.held_out_values
    return float(held_out.mean()), float(held_out.std()) or 1.0
