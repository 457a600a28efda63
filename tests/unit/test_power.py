"""Before the run: ceilings, what could be found, how many canaries and guesses it takes.

Statistical comparisons say how often they may fail by chance; those with a printed figure allow for the error of both sides.
"""

import math

import numpy as np
import pytest
from pytest import approx
from scipy.stats import beta, norm

from coalmine import (
    Claim,
    CosineNull,
    Design,
    GaussianNull,
    Guesses,
    MaxNull,
    Once,
    Scores,
    best_guesses,
    bound_band,
    canaries_needed,
    ceilings,
    claim,
    detectable,
    gaussian_epsilon,
    gaussian_gap,
    plan,
)
from coalmine._random import stream
from coalmine.estimators import BOUNDS, power
from coalmine.estimators.one_run import one_run_epsilon, right_guesses
from coalmine.estimators.power import chance_of_noticing, noticeable_noise_factor

FALSE_ALARM = 1e-6  # each comparison of two simulations fails by chance once in a million runs
Z = float(-norm.ppf(FALSE_ALARM / 2))


def share_above(limit, *, mu, canaries, delta, held_out=0, trials=1500, name=""):
    """How often the band exceeds `limit`, by brute force: whole tables of scores, the bound itself."""
    hits = 0
    for trial in range(trials):
        rng = stream(1, "brute force", name, canaries, trial)
        others = rng.standard_normal(held_out) if held_out else None
        scores = Scores.of(rng.standard_normal(canaries) + mu, others, null=None if held_out else GaussianNull())
        hits += bound_band(scores, delta=delta).epsilon > limit
    return hits / trials


# ceilings


@pytest.mark.parametrize(("count", "ceiling"), [(50, 3.2452), (100, 3.9454), (986, 6.2402), (1000, 6.2543), (5000, 7.8643)])
def test_the_largest_number_of_the_papers(count, ceiling):
    assert ceilings(Design(count, count), delta=1e-6)["pointwise"] == approx(ceiling, abs=5e-5)


@pytest.mark.parametrize(("count", "level"), [(50, 1.4741e-3), (100, 1.0938e-3), (316, 7.3154e-4), (1000, 5.3293e-4)])
def test_the_ceilings_of_the_band(count, level):
    """Each rate has half of the risk; `level` is the local level of the band at 97.5 %."""
    rate, found = 1 - level ** (1 / count), ceilings(Design(count, count), delta=1e-6)
    assert found["band"] == approx(math.log((1 - 1e-6 - rate) / rate), abs=1e-4)
    mu = 2 * float(norm.isf(rate))
    assert found["gdp"] == approx(float(gaussian_epsilon(0, 1, mu, 1, 1e-6)), rel=1e-4)
    bonferroni = float(beta.ppf(1 - 0.025 / count, 1, count))
    assert found["threshold"] == approx(math.log((1 - 1e-6 - bonferroni) / bonferroni), rel=1e-9)


def test_an_exact_null_has_no_ceiling_except_for_guesses():
    found = ceilings(Design(100), delta=1e-5)
    assert {name for name, value in found.items() if math.isfinite(value)} == {"one-run", "one-run-fdp"}
    assert found["one-run"] == one_run_epsilon(200, 40, 40, 1e-5, 0.95)


def test_every_bound_has_a_ceiling_except_the_one_that_needs_runs():
    assert set(ceilings(Design(30, 30), delta=1e-5)) == set(BOUNDS) - {"lifted"}


def test_ceilings_rise_with_canaries_and_fall_with_confidence():
    sizes = [ceilings(Design(count, count), delta=1e-5)["band"] for count in (10, 100, 1000)]
    levels = [ceilings(Design(100, 100), delta=1e-5, confidence=level)["band"] for level in (0.999, 0.95, 0.5)]
    assert sizes == sorted(sizes) and levels == sorted(levels)


def test_one_canary_of_each_kind_shows_nothing():
    assert ceilings(Design(1, 1), delta=1e-5)["band"] == 0.0
    assert detectable(0.0, Design(1, 1), delta=1e-5) == math.inf


# what could be found


@pytest.mark.parametrize(("canaries", "held_out", "limit"), [(1000, 0, 4.377), (100, 0, 1.0), (200, 200, 1.5)])
def test_what_is_called_detectable_is_found_four_times_of_five(canaries, held_out, limit):
    delta = 1e-5
    found = detectable(limit, Design(canaries, held_out or None), delta=delta)
    share = share_above(
        limit, mu=gaussian_gap(found, delta), canaries=canaries, held_out=held_out, delta=delta, trials=600, name="detectable"
    )
    error = math.sqrt(0.8 * 0.2 * (1 / 600 + 1 / 200))  # the search itself uses 200 simulations
    assert share == approx(0.8, abs=Z * error)


@pytest.mark.parametrize(("noise", "canaries", "percent"), [(4.2, 1000, 34), (2.0, 1000, 91), (2.0, 316, 54), (1.0, 100, 78)])
def test_the_power_of_the_band_against_half_the_noise(noise, canaries, percent):
    """At delta = 1e-5; the printed figures are taken as shares of 200 simulations, rounded to a percent."""
    delta, trials = 1e-5, 1500
    limit = claim(Once(), noise_multiplier=noise, delta=delta).epsilon
    share, printed = share_above(limit, mu=2 / noise, canaries=canaries, delta=delta, trials=trials, name="half"), percent / 100
    assert share == approx(printed, abs=0.005 + Z * math.sqrt(printed * (1 - printed) * (1 / trials + 1 / 200)))


def test_detectable_grows_with_the_claim_and_falls_with_canaries():
    claims = [detectable(limit, Design(50), delta=1e-5) for limit in (0.0, 0.5, 2.0, 8.0)]
    sizes = [detectable(1.0, Design(count), delta=1e-5) for count in (500, 50, 5)]
    assert claims == sorted(claims) and sizes == sorted(sizes)
    assert all(found > limit for found, limit in zip(claims, (0.0, 0.5, 2.0, 8.0), strict=True))


def test_nothing_is_detectable_above_the_ceiling():
    top = ceilings(Design(50, 50), delta=1e-5)["band"]
    assert detectable(top, Design(50, 50), delta=1e-5) == math.inf
    assert math.isfinite(detectable(top / 2, Design(50, 50), delta=1e-5))


def test_slack_costs_power():
    exact, loose = (detectable(1.0, Design(50, slack=slack), delta=1e-5) for slack in (0.0, 1.157))
    assert exact < loose < detectable(1.0, Design(50, 50), delta=1e-5)


@pytest.mark.parametrize("method", [name for name in BOUNDS if name != "lifted"])
def test_every_bound_knows_what_it_can_detect(method):
    assert 0 < detectable(0.1, Design(40, 40), delta=1e-3, method=method) < math.inf


def test_the_design_of_scores():
    values, others = np.linspace(0, 1, 7), np.linspace(0, 1, 5)
    assert Design.of(Scores.of(values, others)) == Design(7, 5, pool=12)
    assert Design.of(Scores.of(values, others, dim=100)) == Design(7, None, pool=12)
    assert Design.of(Scores.of(values, null=MaxNull(CosineNull(100), 20))) == Design(7, None, math.log(20), pool=7)


def test_a_noise_factor_of_two_is_half_the_noise():
    limit = claim(Once(), noise_multiplier=2.0, delta=1e-5).epsilon
    twice = claim(Once(), noise_multiplier=1.0, delta=1e-5).epsilon
    assert noticeable_noise_factor(limit, twice, 1e-5) == approx(2.0, rel=1e-9)
    assert noticeable_noise_factor(limit, math.inf, 1e-5) == math.inf


# how many canaries


def test_more_canaries_are_needed_for_smaller_violations_and_smaller_claims():
    factors = [canaries_needed(10.0, delta=1e-5, noise_factor=factor) for factor in (4.0, 2.0)]
    claims = [canaries_needed(limit, delta=1e-5, noise_factor=3.0) for limit in (10.0, 3.0)]
    assert factors == sorted(factors) and factors[0] < factors[-1]
    assert claims == sorted(claims) and claims[0] < claims[-1]
    sampled, exact = (canaries_needed(2.0, delta=1e-3, noise_factor=4.0, sampled=sampled) for sampled in (True, False))
    assert sampled > exact


def test_the_canaries_needed_are_enough_and_not_many_too_many():
    limit, worst = 3.0, float(gaussian_epsilon(0, 1, 3 * gaussian_gap(3.0, 1e-5), 1, 1e-5))
    needed = canaries_needed(limit, delta=1e-5, noise_factor=3.0)
    assert detectable(limit, Design(needed), delta=1e-5) <= worst < detectable(limit, Design(needed // 2), delta=1e-5)


def test_more_than_a_million_is_none(monkeypatch):
    monkeypatch.setattr(power, "LARGEST_DESIGN", 200)  # a million takes seconds
    assert canaries_needed(0.01, delta=1e-5) is None


@pytest.mark.parametrize("factor", [1.0, 0.5, math.nan, -2.0])
def test_a_noise_factor_that_is_no_violation_is_refused(factor):
    with pytest.raises(ValueError, match="noise_factor"):
        canaries_needed(3.0, delta=1e-5, noise_factor=factor)


# guesses for one-run bounds


def test_the_best_guesses_for_two_thousand_coins():
    """mu = 2, true epsilon 10 at delta = 1e-5: best 3.75 with 400 guesses; all guesses give 1.55, the cap is 6.45."""
    guesses, found = best_guesses(2000, 10.0, delta=1e-5)
    assert guesses == Guesses(200, 200)
    assert found == approx(3.75, abs=0.1)
    everything = []
    for number in range(25):
        rng = stream(2, "coins", number)
        coins = rng.random(2000) < 0.5
        scores = Scores(rng.standard_normal(2000) + 2.0 * coins, coins, assignment="coins", null=GaussianNull())
        everything.append(right_guesses(scores, Guesses(1000, 1000)))
    assert one_run_epsilon(2000, 2000, int(np.median(everything)), 1e-5, 0.95) == approx(1.55, abs=0.05)
    assert one_run_epsilon(2000, 2000, 2000, 1e-5, 0.95) == approx(6.45, abs=0.01)


def test_the_best_guesses_are_no_worse_than_the_default_and_need_no_scores():
    for epsilon in (1.0, 5.0):
        guesses, found = best_guesses(400, epsilon, delta=1e-5)
        assert 0 < guesses.total <= 400 and found >= 0
        assert best_guesses(400, epsilon, delta=1e-5) == (guesses, found)


@pytest.mark.parametrize("wrong", [{"canaries": 1}, {"epsilon": 0.0}, {"delta": 0.0}])
def test_guesses_need_sensible_numbers(wrong):
    task = {"canaries": 100, "epsilon": 3.0, "delta": 1e-5, "confidence": 0.95, **wrong}
    canaries, epsilon = task.pop("canaries"), task.pop("epsilon")
    with pytest.raises(ValueError, match=next(iter(wrong))):
        best_guesses(canaries, epsilon, **task)


# the plan


def test_a_plan_is_its_parts():
    found = plan(10.0, delta=1e-5, design=Design(100))
    assert found.noise_multiplier == approx(1 / gaussian_gap(10.0, 1e-5))
    assert found.detectable == detectable(10.0, Design(100), delta=1e-5)
    assert found.ceilings == ceilings(Design(100), delta=1e-5)
    assert found.canaries_needed == canaries_needed(10.0, delta=1e-5)
    assert found.sufficient == (found.canaries_needed <= 100)
    assert found.noise_factor == approx(noticeable_noise_factor(10.0, found.detectable, 1e-5))
    assert (found.guesses, found.guesses_bound) == best_guesses(200, 10.0, delta=1e-5)
    assert found.power["2"] == chance_of_noticing(10.0, Design(100), noise_factor=2.0, delta=1e-5)
    assert list(found.power.values()) == sorted(found.power.values())
    text = str(found)
    assert "epsilon = 10 at delta = 1e-05" in text and "100 inserted canaries, exact null law: no ceiling" in text
    assert "would be noticed" in text and len(text.splitlines()) == 7


def test_a_plan_says_when_nothing_can_be_found(monkeypatch):
    monkeypatch.setattr(power, "LARGEST_DESIGN", 200)
    text = str(plan(10.0, delta=1e-5, design=Design(20, 20)))
    assert "20 held-out canaries: ceiling 1.04" in text
    assert "no violation of any size" in text
    assert "would probably be missed" in text and "more than a million" in text


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"claim": 0.0}, "claim"),
        ({"claim": math.nan}, "claim"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"confidence": 95}, "confidence"),
    ],
)
def test_a_plan_needs_sensible_numbers(numbers, named):
    numbers = {"claim": 3.0, "delta": 1e-5, **numbers}
    with pytest.raises(ValueError, match=named):
        plan(numbers.pop("claim"), **numbers)


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(ValueError, match="'band', 'threshold'"):
        detectable(1.0, Design(10), delta=1e-5, method="magic")


def test_a_claim_of_one_mechanism_can_be_planned_for():
    stated = claim(Once(), noise_multiplier=1.0, delta=1e-5)
    assert isinstance(stated, Claim)
    assert detectable(stated.epsilon, Design(1000), delta=1e-5) < stated.at_noise(0.5)
