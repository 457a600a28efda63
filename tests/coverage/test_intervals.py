"""Intervals of the estimates contain the truth at the promised rate, and the p-value of no leakage is uniform."""

import numpy as np
import pytest
from scipy.stats import binom, kstest

from coalmine._random import stream
from coalmine.calibration import Case, misses
from coalmine.estimators.gaussian_fit import estimate_gaussian
from coalmine.nulls import GaussianNull
from coalmine.scores import Scores
from coalmine.simulation import simulate_gaussian_mechanism

FALSE_ALARM = 1e-4  # each of these tests fails for one seed in ten thousand; the seeds are fixed
AUDITS = 400


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("exact_null", [True, False], ids=["exact", "sampled"])
@pytest.mark.parametrize("canaries", [100, 1000])
@pytest.mark.parametrize("variance", ["null", "fitted"])
def test_intervals_cover_the_truth(variance: str, canaries: int, exact_null: bool, epsilon: float) -> None:
    case = Case("band", epsilon=epsilon, canaries=canaries, exact_null=exact_null)
    audits = AUDITS if variance == "null" else AUDITS // 2
    assert misses(case, variance, audits) <= binom.ppf(1 - FALSE_ALARM, audits, 0.05)


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_mean_only_intervals_are_not_too_wide(epsilon: float) -> None:
    """They miss about as often as promised: an interval that never misses would pass the test above."""
    audits = AUDITS
    missed = misses(Case("band", epsilon=epsilon), "null", audits, seed=1)
    assert missed >= binom.ppf(FALSE_ALARM, audits, 0.05)
    assert missed > 0


@pytest.mark.parametrize("sampled", [False, True])
def test_p_value_of_no_leakage_is_uniform(sampled: bool) -> None:
    values = []
    for audit in range(300):
        rng = stream(0, "p-values", int(sampled), audit)
        held_out = rng.standard_normal(200) if sampled else None
        scores = Scores.of(rng.standard_normal(200), held_out, null=None if sampled else GaussianNull())
        values.append(estimate_gaussian(scores, delta=1e-5).p_value)
    assert kstest(values, "uniform").pvalue > FALSE_ALARM


@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.0])
def test_the_gaussian_mechanism_is_estimated_within_its_interval(sigma: float) -> None:
    """Real cosines of Algorithm 1 in ten million dimensions, where the canaries hardly disturb each other."""
    from coalmine.gaussian import gaussian_epsilon

    audits, missed = 60, 0
    truth = gaussian_epsilon(0, 1, 1 / np.sqrt(sigma**2 + 400 / 1e7), 1, 1e-5)  # the canaries' own share of the noise
    for seed in range(audits):
        found = estimate_gaussian(simulate_gaussian_mechanism(10_000_000, 400, sigma, seed=seed), delta=1e-5)
        missed += not found.low <= truth <= found.high
    assert missed <= binom.ppf(1 - FALSE_ALARM, audits, 0.05)
