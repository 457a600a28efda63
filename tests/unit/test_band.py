"""The simultaneous band: is the probability of a crossing what it is said to be?

Three referees that share nothing with the Poissonised recursion: exact integrals with fractions, a recursion over binomial
counts, and brute force.
"""

import tracemalloc
from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from pytest import approx
from scipy import special
from scipy.stats import binom

from coalmine._random import stream
from coalmine.estimators import _band

FALSE_ALARM = 1e-6  # each brute-force test fails by chance once in a million runs
LEVELS = (0.3, 0.05, 1e-3, 1e-9)


def borders(count, level):
    orders = _band.grid(count)
    return special.betainccinv(orders, count - orders + 1.0, level)


def survival_by_integration(limits):
    """P(U_(1) <= limits[0], ..., U_(k) <= limits[-1]) by integrating polynomials, in fractions.

    k! ∫_0^{b_1} du_1 ∫_{u_1}^{b_2} du_2 ... ∫_{u_{k-1}}^{b_k} du_k, from the innermost integral outwards.
    """
    inner = [Fraction(1)]  # coefficients of a polynomial in the lower limit
    for limit in reversed([Fraction(float(limit)) for limit in limits]):
        primitive = [Fraction(0), *(value / (power + 1) for power, value in enumerate(inner))]
        at_limit = sum(value * limit**power for power, value in enumerate(primitive))
        inner = [at_limit, *(-value for value in primitive[1:])]
    return factorial(len(limits)) * inner[0]


def crossing_by_binomials(count, level):
    """The same probability by the exact law of the counts, which are binomial from one border to the next."""
    law, reached, crossed = np.eye(1, count + 1)[0], 0.0, 0.0
    for order, border in enumerate(borders(count, level), start=1):
        share = (border - reached) / (1 - reached)
        law = sum(
            law[n] * np.append(np.zeros(n), binom.pmf(np.arange(count - n + 1), count - n, share)) for n in range(count + 1)
        )
        crossed, reached = crossed + law[:order].sum(), border
        law[:order] = 0.0
    return crossed


def counts_allowed(trials, rate):
    """The two-sided range of a Binomial(trials, rate) count outside which it falls with probability FALSE_ALARM."""
    return binom.ppf(FALSE_ALARM / 2, trials, rate), binom.ppf(1 - FALSE_ALARM / 2, trials, rate)


@pytest.mark.parametrize("level", LEVELS)
def test_one_score_crosses_with_its_own_level(level):
    assert _band.crossing_probability(1, level) == approx(level, rel=1e-12)


@pytest.mark.parametrize("level", LEVELS)
def test_two_scores_by_hand(level):
    """P(U_(1) <= b_1, U_(2) <= b_2) = 2 b_1 b_2 - b_1², and b_1 = 1 - sqrt(level), b_2 = sqrt(1 - level)."""
    first, second = 1 - np.sqrt(level), np.sqrt(1 - level)
    survival = first * (2 * second - first)
    assert _band.crossing_probability(2, level) == approx(1 - survival, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_few_scores_by_exact_integration(count, level):
    crossing = 1 - survival_by_integration(borders(count, level))
    # the borders are doubles, which moves the tail beyond a border near 1 by a unit of the last place of 1
    assert _band.crossing_probability(count, level) == approx(float(crossing), rel=1e-10, abs=1e-15)


@pytest.mark.parametrize("level", [0.3, 1e-2, 1e-4])
@pytest.mark.parametrize("count", [30, 60])
def test_more_scores_by_a_recursion_over_binomial_counts(count, level):
    assert _band.crossing_probability(count, level) == approx(crossing_by_binomials(count, level), rel=1e-10)


@pytest.mark.parametrize(("count", "confidence", "trials"), [(3, 0.5, 40_000), (40, 0.9, 40_000), (400, 0.95, 10_000)])
def test_brute_force_crosses_as_often_as_stated(count, confidence, trials):
    uniforms = np.sort(stream(0, "band", count).random((trials, count)), axis=1)
    bounds = np.exp(_band.log_upper(np.arange(1, count + 1), count, confidence))
    low, high = counts_allowed(trials, 1 - confidence)
    assert low <= (uniforms > bounds).any(axis=1).sum() <= high


@pytest.mark.parametrize("count", [2_001, 2_500, 6_000])
def test_beyond_full_the_band_is_still_simultaneous_over_all_order_statistics(count):
    """The grid is sparse, the statement is not: every order statistic has a bound, and all hold at once at exactly 95 %."""
    trials, confidence = 3_000, 0.95
    orders, used = np.arange(1, count + 1), _band.grid(count)
    assert used.size < count
    bounds = np.exp(_band.log_upper(orders, count, confidence))
    rng, crossed = stream(0, "grid", count), 0
    for _ in range(trials):
        above = np.sort(rng.random(count)) > bounds
        assert above.any() == above[used - 1].any()  # in between, the bound of the next one above is never crossed alone
        crossed += above.any()
    low, high = counts_allowed(trials, 1 - confidence)
    assert low <= crossed <= high


@pytest.mark.parametrize("count", [1, 2, 3, 50, 1_000, 2_500])
def test_the_local_level_solves_its_equation(count):
    for confidence in (0.01, 0.5, 0.95, 0.999):
        level = _band.local_level(count, confidence)
        assert _band.crossing_probability(count, level) == approx(1 - confidence, rel=1e-7)
        assert (1 - confidence) / _band.grid(count).size <= level <= 1 - confidence  # Bonferroni; no correction at all


@pytest.mark.parametrize("count", [1, 2, 3, 10, 316, 2_500])
def test_more_confidence_is_a_wider_band(count):
    """Also at confidences so near 0 and 1 that rounding could decide."""
    confidences = (1e-9, 0.3, 0.5, 0.9, 0.95, 0.99, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12, 1 - 2.0**-53)
    orders = np.arange(1, count + 1)
    levels = [_band.local_level(count, confidence) for confidence in confidences]
    assert (np.diff(levels) < 0).all()
    bands = np.array([_band.log_upper(orders, count, confidence) for confidence in confidences])
    assert np.isfinite(bands).all()
    assert (bands <= 0).all()
    assert (np.diff(bands, axis=0) >= 0).all()


@pytest.mark.parametrize("count", [1, 2, 100, 2_000, 2_001, 100_000])
def test_bounds_increase_with_the_order(count):
    bounds = _band.log_upper(np.arange(1, count + 1), count, 0.95)
    assert bounds.shape == (count,)
    assert (np.diff(bounds) >= 0).all()
    assert (np.exp(bounds) > np.arange(1, count + 1) / (count + 1)).all()  # above the mean of the order statistic


def test_leaving_order_statistics_out_costs_little():
    """One score more than FULL, and the band lives on a grid: at the same order no bound may get much wider."""
    full = np.exp(_band.log_upper(np.arange(1, _band.FULL + 1), _band.FULL, 0.95))
    sparse = np.exp(_band.log_upper(np.arange(1, _band.FULL + 1), _band.FULL + 1, 0.95))
    used = _band.grid(_band.FULL + 1)
    assert (sparse[used[used <= _band.FULL] - 1] < full[used[used <= _band.FULL] - 1]).all()  # fewer thresholds to pay for
    assert (np.log(sparse / full) < np.log(_band._SPACING) + 0.01).all()


@pytest.mark.parametrize("count", [2_001, 10_000, 1_000_000])
def test_the_grid_is_small_and_spaced_from_both_ends(count):
    used = _band.grid(count)
    assert used.size < 600
    assert used[0] == 1
    assert used[-1] == count
    assert (np.diff(used) > 0).all()
    assert (used == count + 1 - used[::-1]).all()
    assert (np.diff(used) <= 1 + 0.05 * np.minimum(used[:-1], count + 1 - used[:-1])).all()


def test_a_million_scores_need_megabytes_not_gigabytes():
    count = 1_000_000
    tracemalloc.start()
    try:
        first = _band.log_upper(np.array([1, count]), count, 0.95)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6
    assert _band._log_upper_on_grid(count, 0.95).nbytes < 10_000
    assert np.exp(first[0]) == approx(-np.log(_band.local_level(count, 0.95)) / count, rel=1e-3)  # 1 - level^(1/count)
    assert first[1] < 0


def test_what_the_caches_share_cannot_be_written_to():
    for shared in (_band.grid(50), _band.grid(5_000), _band._log_upper_on_grid(50, 0.95)):
        with pytest.raises(ValueError, match="read-only"):
            shared[0] = 7
