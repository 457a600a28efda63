"""Statements about measured rounds, against published numbers, brute force and the accountant.

Values of CANIFE (Maddock et al. 2023): 3.89 is printed in section 3.4. Those of perfect canaries were computed once by an
independent script with a coin for every draw (3,000 rounds each); they are compared to 3 %.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special
from scipy.stats import binom

import coalmine
from coalmine._random import stream
from coalmine.accounting.rounds import one_round_epsilon, one_round_noise
from coalmine.errors import AuditError
from coalmine.estimators.composed import largest_finite
from coalmine.gaussian import gaussian_epsilon

FALSE_ALARM = 1e-6
SETTINGS = {  # (population, cohort, rounds): noise, epsilon of a round, estimate of a perfect canary; an estimate, composed
    (59_214, 100, 8_895): [(0.483, 11.2, 3.47, 3.48, 1.6), (0.366, 15.8, 3.76, 3.75, 1.9), (0.321, 18.7, 3.85, 3.82, 1.9)],
    (8_408, 100, 2_550): [(0.684, 7.4, 3.00, 3.09, 4.7), (0.486, 11.1, 3.46, 3.45, 5.7), (0.419, 13.3, 3.63, 3.58, 6.1)],
    (1_016, 60, 510): [(1.00, 4.7, 2.49, 2.49, 8.7), (0.621, 8.3, 3.14, 3.14, 12.4), (0.516, 10.3, 3.39, 3.40, 14.1)],
}
MOST = {(59_214, 100, 8_895): 2.0, (8_408, 100, 2_550): 7.2, (1_016, 60, 510): 17.6}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_perfect_canary_shows_what_the_paper_prints(setting: tuple[int, int, int]) -> None:
    population, cohort, rounds = setting
    for noise, theory, shown, estimate, composed in SETTINGS[setting]:
        assert one_round_epsilon(noise, 1e-5) == pytest.approx(theory, abs=0.06)
        assert coalmine.perfect_canary(noise).mean == pytest.approx(shown, rel=0.03)
        total = coalmine.compose_canife([estimate], rounds, cohort / population, 1e-5)
        assert total.epsilon == pytest.approx(composed, abs=0.051)
    most = coalmine.compose_canife([largest_finite(50, 50, 0.01)], rounds, cohort / population, 1e-5)
    assert most.epsilon == pytest.approx(MOST[setting], abs=0.051)


def test_limits_of_a_hundred_scores() -> None:
    assert largest_finite(50, 50, 0.01) == pytest.approx(math.log(0.97 * 50))
    assert round(largest_finite(50, 50, 1e-5), 2) == 3.89
    perfect = coalmine.estimate_round_canife(coalmine.Scores.of([1.0] * 50, [0.0] * 50), interval="jeffreys")
    assert math.isinf(perfect.epsilon) and round(perfect.low, 2) == 2.96
    rate = 128 / 60_000
    assert round(coalmine.compose_canife([perfect.low] * 5, 469, rate, 1e-5).epsilon, 2) == 0.89
    assert round(coalmine.compose_canife([perfect.details["capped"]] * 5, 469, rate, 1e-5).epsilon, 2) == 1.53
    whole = coalmine.compose_canife([perfect] * 5, 469, rate, 1e-5)
    assert math.isinf(whole.epsilon) and round(whole.low, 2) == 0.89  # infinity is not replaced by what is claimed
    assert whole.flags[0].code == "not-a-bound"


def test_a_perfect_canary_has_as_many_draws_of_either_kind_as_the_round() -> None:
    """With 40 and 60 draws more can be shown than with 50 and 50, and a good canary would seem better than perfect."""
    even, uneven = coalmine.perfect_canary(0.287), coalmine.perfect_canary(0.287, inserted=40)
    assert uneven.ceiling == largest_finite(40, 60, 0.01) > even.ceiling and even.mean < uneven.mean <= uneven.ceiling
    simulations, total = 400, 0.0
    for seed in range(simulations):
        values = 0.287 * stream(seed, "forty of a hundred").standard_normal(100) + (np.arange(100) < 40)
        total += coalmine.estimate_round_canife(coalmine.Scores.of(values[:40], values[40:])).details["capped"]
    error = math.hypot(uneven.std / simulations**0.5, uneven.std / 2000**0.5)
    assert total / simulations == pytest.approx(uneven.mean, abs=5 * error)  # 5 standard errors
    with pytest.raises(ValueError, match="no draw without"):
        coalmine.perfect_canary(0.287, draws=10, inserted=10)


def test_estimate_by_hand() -> None:
    # thresholds with errors of both kinds: 0.5 (1 of 4 missed, 1 of 4 alarms) is the best
    found = coalmine.estimate_round_canife(coalmine.Scores.of([0.2, 0.6, 0.7, 0.8], [0.0, 0.1, 0.15, 0.5]), delta=0.1)
    assert found.epsilon == pytest.approx(math.log((1 - 0.1 - 0.25) / 0.25))
    assert found.details["accuracy"] == pytest.approx(0.875)
    upper = special.betaincinv(2, 3, 0.975)
    assert found.low == pytest.approx(max(math.log(max(1 - 0.1 - upper, 1e-9) / upper), 0.0))
    published = coalmine.estimate_round_canife(coalmine.Scores.of([0.0, 0.3], [0.1, 0.2]), delta=0.4, as_published=True)
    assert published.epsilon >= 0.15 and published.flags[-1].code == "as-published"


def test_null_of_the_estimate_and_of_the_bounds() -> None:
    """Nothing leaks: the p-value is below 5 % in 5 % of rounds, the bounds are above zero in 5 % at most."""
    audits, low, above, pooled = 100, 0, 0, 0
    for number in range(audits):
        rng = stream(0, "null of measured rounds", number)
        coins = rng.random(200) < 0.5
        labels = {"canary": np.zeros(200, int), "round": np.repeat([3, 9], 100), "replicate": np.tile(np.arange(100), 2)}
        scores = coalmine.Scores(rng.standard_normal(200), coins, labels, assignment="coins")
        first = coalmine.Scores(scores.value[:100], coins[:100])
        low += coalmine.estimate_round_canife(first).p_value <= 0.05
        above += max(each.epsilon for each in coalmine.bound_rounds(scores, delta=1e-5).values()) > 0
        pooled += coalmine.pooled_rounds(scores, delta=1e-5).epsilon > 0
    most = binom.isf(FALSE_ALARM, audits, 0.05)
    assert low <= most and above <= most and pooled <= most


def test_rounds_share_the_confidence_and_draws_must_be_distinct() -> None:
    rng = stream(0, "measured rounds")
    coins = rng.random(400) < 0.5
    labels = {"canary": np.zeros(400, int), "round": np.repeat([1, 2], 200), "replicate": np.tile(np.arange(200), 2)}
    scores = coalmine.Scores(rng.standard_normal(400) + 8 * coins, coins, labels, assignment="coins")
    found = coalmine.bound_rounds(scores, delta=1e-5)
    assert sorted(found) == [1, 2] and all(each.confidence == pytest.approx(0.975) and each.valid for each in found.values())
    assert coalmine.pooled_rounds(scores, delta=1e-5).epsilon > max(each.epsilon for each in found.values()) > 0
    with pytest.raises(AuditError, match="number of its own"):
        coalmine.bound_rounds(coalmine.Scores(scores.value, coins, {**labels, "replicate": np.zeros(400, int)}), delta=1e-5)


def test_noise_and_epsilon_of_a_round_are_inverse() -> None:
    assert one_round_noise(one_round_epsilon(0.7, 0.01), 0.01) == pytest.approx(0.7)
    assert math.isinf(one_round_noise(0.0, 0.01)) and one_round_noise(math.inf, 0.01) == 0.0


def test_composition_of_known_noise_is_the_accountants() -> None:
    exact = coalmine.claim(coalmine.Poisson(rate=0.1, rounds=20), noise_multiplier=1.0, delta=1e-5, accountant="rdp").epsilon
    found = coalmine.compose_canife([one_round_epsilon(1.0, 0.01)], 20, 0.1, 1e-5)
    assert found.epsilon == pytest.approx(exact, rel=2e-3)  # other orders
    upper = coalmine.claim(coalmine.Poisson(rate=0.1, rounds=20), noise_multiplier=1.0, delta=1e-5).epsilon
    lower = coalmine.compose_measured([1.0] * 20, 1, 0.1, 1e-5)
    assert 0.98 * upper < lower.epsilon <= upper
    fewer = coalmine.compose_measured([1.0, 0.5, 0.0], [5, 5, 10], 0.1, 1e-5)
    assert 0 < fewer.epsilon < lower.epsilon and any("between two" in each for each in fewer.assumptions)
    parts = (coalmine.compose_canife([2.0, 1.0], each, 0.1, 1e-5).epsilon for each in ([5, 15], np.array([5, 15])))
    assert len({*parts}) == 1
    with pytest.raises(ValueError, match="one number: give a list"):
        coalmine.compose_canife(2.0, 20, 0.1, 1e-5)


@pytest.mark.parametrize(("sigma", "q"), [(1.0, 0.5), (0.3, 0.3), (0.15, 0.2)])
def test_attack_against_all_subsets(sigma: float, q: float) -> None:
    x = stream(0, "projections", int(100 * sigma)).normal(0, 0.2, 8)
    taken = (np.arange(256)[:, None] >> np.arange(8)) & 1
    log_weight = taken.sum(1) * math.log(q) + (8 - taken.sum(1)) * math.log1p(-q)
    places = np.linspace(-2 - 10 * sigma, 3 + 10 * sigma, 12_001)

    def log_density(at: np.ndarray) -> np.ndarray:
        return special.logsumexp(log_weight - (at[:, None] - taken @ x) ** 2 / (2 * sigma**2), axis=1)

    log_p, log_q = log_density(places), log_density(places - 1.0)
    unit = (places[1] - places[0]) / (sigma * math.sqrt(2 * math.pi))
    found = coalmine.attack_epsilon(x, q, sigma, 1.0, 1e-5)
    at = found.epsilon
    deltas = [float(np.maximum(np.exp(a) - np.exp(at + b), 0).sum() * unit) for a, b in ((log_p, log_q), (log_q, log_p))]
    assert max(deltas) == pytest.approx(1e-5, rel=0.02)
    assert found.epsilon < found.details["perfect"]


def test_attack_on_many_alike_is_binomial() -> None:
    """Fifty clients that move the score by one lattice point or none: the law of their sum is binomial."""
    found = coalmine.attack_epsilon([0.25] * 50, 0.3, 0.25, 1.0, 1e-5)
    log_law = binom.logpmf(np.arange(51), 50, 0.3)
    places = np.linspace(-3, 17, 20_001)
    log_p = special.logsumexp(log_law - (places[:, None] - 0.25 * np.arange(51)) ** 2 / (2 * 0.25**2), axis=1)
    log_q = special.logsumexp(log_law - (places[:, None] - 1 - 0.25 * np.arange(51)) ** 2 / (2 * 0.25**2), axis=1)
    unit = (places[1] - places[0]) / (0.25 * math.sqrt(2 * math.pi))
    deltas = [
        float(np.maximum(np.exp(a) - np.exp(found.epsilon + b), 0).sum() * unit) for a, b in ((log_p, log_q), (log_q, log_p))
    ]
    assert max(deltas) == pytest.approx(1e-5, rel=0.02)


def test_attack_says_when_it_takes_a_normal() -> None:
    small = coalmine.attack_epsilon([0.001] * 100, 0.1, 0.5, 1.0, 1e-5)
    assert small.method == "one normal" and any("taken for normal" in each for each in small.assumptions)
    assert not small.valid and float(small) == pytest.approx(small.details["perfect"], rel=1e-3)
    with pytest.raises(ValueError, match="sampling rate"):
        coalmine.attack_epsilon([0.1], 1.5, 0.5, 1.0, 1e-5)


def test_many_small_projections_hide_little():
    """Far below a lattice point each: the law on the lattice is wider than theirs, and must not be cut off."""
    x = 0.0012 * stream(0, "small projections").standard_normal(2000)
    variance = 0.128 * 0.872 * float(x @ x) + 0.25
    found = coalmine.attack_epsilon(np.append(x, [0.05, -0.05]), 0.128, 0.5, 1.0, 1e-5)
    width = np.sqrt(variance + 0.128 * 0.872 * 0.005)
    assert found.method == "lattice law of the others"
    assert found.epsilon == pytest.approx(float(gaussian_epsilon(0, width, 1, width, 1e-5)), rel=0.005)
