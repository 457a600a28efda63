"""AUROC: by hand and by all pairs, its interval's coverage, and what has no interval."""

import numpy as np
import pytest
from scipy import stats

import coalmine
from coalmine._random import stream
from coalmine.errors import NonFiniteError, NotEnoughCanariesError

FALSE_ALARM = 1e-6
TRIALS = 3000


def by_pairs(took, did_not):
    """AUROC and DeLong's standard error from the matrix of all pairs."""
    a, b = np.asarray(took, float)[:, None], np.asarray(did_not, float)[None, :]
    psi = (a > b) + (a == b) / 2
    error = psi.mean(1).var(ddof=1) / a.size + psi.mean(0).var(ddof=1) / b.size
    return psi.mean(), error**0.5


def test_the_worked_example():
    found = coalmine.estimate_auroc([3, 2, 1.5, 0.5], [0, 1, 2, -1, 0.2])
    assert found.auroc == pytest.approx(0.825, abs=1e-15)
    assert found.standard_error == pytest.approx(0.149303940560, abs=1e-12)
    assert not found.valid


@pytest.mark.parametrize("seed", range(5))
def test_ranks_give_what_all_pairs_give(seed):
    rng = stream(seed, "pairs")
    took, did_not = rng.integers(0, 8, 31) + 1.0, rng.integers(0, 8, 47)  # many ties
    found = coalmine.estimate_auroc(took, did_not, 0.9)
    auroc, error = by_pairs(took, did_not)
    assert (found.auroc, found.standard_error) == pytest.approx((auroc, error), rel=1e-12)
    z, logit = stats.norm.ppf(0.95), np.log(auroc / (1 - auroc))
    ends = [logit + sign * z * error / (auroc * (1 - auroc)) for sign in (-1, 1)]
    assert (found.low, found.high) == pytest.approx([1 / (1 + np.exp(-end)) for end in ends], rel=1e-9)


@pytest.mark.parametrize("count", [20, 80])
@pytest.mark.parametrize("auroc", [0.556, 0.856])
def test_the_interval_covers(count, auroc):
    gap, rng, hits = 2**0.5 * stats.norm.ppf(auroc), stream(count, "coverage", str(auroc)), 0
    for _ in range(TRIALS):
        found = coalmine.estimate_auroc(rng.standard_normal(count) + gap, rng.standard_normal(count))
        hits += found.low is not None and found.low <= auroc <= found.high
    # true coverage lies between 93 and 97.5 %: limits that a binomial with these rates leaves once in a million
    assert stats.binom.ppf(FALSE_ALARM / 2, TRIALS, 0.93) <= hits <= stats.binom.isf(FALSE_ALARM / 2, TRIALS, 0.975)


def test_texts_as_units_alarm_far_too_often():
    """20 + 20 users with 10 texts each, correlation 1/2, no effect: why the unit is the user."""
    wrong = right = 0
    for trial in range(400):
        rng = stream(trial, "texts as units")
        users = rng.standard_normal((40, 1))
        texts = (users + rng.standard_normal((40, 10))) / 2**0.5
        for unit in ("texts", "users"):
            value = texts if unit == "texts" else texts.mean(axis=1)
            found = coalmine.estimate_auroc(value[:20].ravel(), value[20:].ravel())
            alarm = not found.low <= 0.5 <= found.high
            wrong, right = wrong + (alarm and unit == "texts"), right + (alarm and unit == "users")
    assert wrong > 100 and right <= stats.binom.isf(FALSE_ALARM, 400, 0.07)


def test_below_one_half_is_reported_as_it_is():
    assert coalmine.estimate_auroc([0.0, 1.0, 3.0], [2.0, 4.0, 5.0]).auroc == pytest.approx(1 / 9)


@pytest.mark.parametrize(
    ("took", "did_not", "auroc"), [([3, 4], [1, 2], 1.0), ([1, 2], [3, 4], 0.0), ([1, 1], [1, 1], 0.5), ([1], [0, 2], 0.5)]
)
def test_where_there_is_no_interval_it_says_so(took, did_not, auroc):
    found = coalmine.estimate_auroc(took, did_not)
    assert (found.auroc, found.low, found.high) == (auroc, None, None)
    assert found.unavailable and "no interval" in str(found)


def test_small_false_alarm_rates_need_enough_held_out_scores():
    rng = stream(0, "tpr")
    found = coalmine.estimate_auroc(rng.standard_normal(50) + 2, rng.standard_normal(100))
    assert found.tpr_at["0.001"] is None and 0 < found.tpr_at["0.01"] < found.tpr_at["0.1"] <= 1
    held_out = np.arange(100.0)
    assert coalmine.estimate_auroc([98.5, 97.5], held_out).tpr_at["0.01"] == 0.5  # above it: 99 alone


def test_bad_scores_are_refused():
    with pytest.raises(NonFiniteError, match="position 1"):
        coalmine.estimate_auroc([0.0, np.nan], [1.0])
    with pytest.raises(NotEnoughCanariesError, match="held_out is empty"):
        coalmine.estimate_auroc([0.0], [])
    with pytest.raises(ValueError, match="one score per user"):
        coalmine.estimate_auroc([[0.0]], [1.0])
