"""Power: the default bound reaches its reference medians, so that validity is not bought by saying nothing."""

import numpy as np
import pytest

from coalmine._random import stream
from coalmine.estimators.band import bound_band
from coalmine.estimators.threshold import bound_threshold
from coalmine.nulls import GaussianNull
from coalmine.scores import Scores

FALSE_ALARM = 1e-6  # each of these tests fails by chance at most once in a million times
DELTA, CANARIES, AUDITS = 1e-6, 1000, 400

# gap -> (median of the band, median of Bonferroni) from an independent implementation with 1,000 canaries and an exact null
MEDIANS = {0.25: (0.309, 0.204), 1.0: (2.381, 2.110), 2.0: (6.504, 6.041), 4.0: (18.1, 17.3)}


@pytest.mark.parametrize("gap", MEDIANS)
def test_medians_of_the_bounds(gap: float) -> None:
    found = []
    for audit in range(AUDITS):
        scores = Scores.of(stream(0, "power", audit).standard_normal(CANARIES) + gap, null=GaussianNull())
        found.append([bound(scores, delta=DELTA).epsilon for bound in (bound_band, bound_threshold)])
    for values, expected in zip(np.array(found).T, MEDIANS[gap], strict=True):
        # the reference medians come from samples too, of unknown size: both sides get the error of 400 audits
        spread = np.quantile(values, 0.75) - np.quantile(values, 0.25)
        error = 1.2533 * spread / 1.349 / np.sqrt(AUDITS)
        rounding = 0.05 if gap == 4.0 else 0.0005
        assert abs(np.median(values) - expected) < 4.9 * np.sqrt(2) * error + rounding


def test_band_beats_bonferroni_and_the_exact_null_beats_a_sample() -> None:
    rng = stream(0, "comparison")
    inserted, held_out = rng.standard_normal(CANARIES) + 2.0, rng.standard_normal(CANARIES)
    exact = Scores.of(inserted, held_out, null=GaussianNull())
    assert bound_band(exact, delta=DELTA).epsilon > bound_threshold(exact, delta=DELTA).epsilon
    assert bound_band(exact, delta=DELTA).epsilon > bound_band(exact.sampled(), delta=DELTA).epsilon
