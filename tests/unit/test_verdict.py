"""The verdict: every branch, what may not be compared, and the games of which a careless audit would convict correct code."""

import math

import numpy as np
import pytest
from pytest import approx

from coalmine import (
    Claim,
    GaussianNull,
    LowerBound,
    Once,
    Poisson,
    Repeated,
    Scores,
    audit_scores,
    bound_band,
    bound_bayesian,
    bound_pointwise,
    calibrate_noise,
    claim,
    gaussian_epsilon,
    gaussian_gap,
    judge,
    simulate_gaussian_mechanism,
)
from coalmine._random import stream
from coalmine.contracts import Game
from coalmine.errors import AuditError, MismatchError

DELTA = 1e-5
KNOWN = Game("client", "add-or-remove-one", "once", "rounds known")


def bound(epsilon, *, ceiling=math.inf, finds=None, delta=DELTA, valid=True):
    """A lower bound whose power is stated: it finds `finds` above any claim."""
    return LowerBound(
        epsilon, delta, 0.95, "made up", valid, (), ceiling, finder=None if finds is None else lambda claim: float(finds)
    )


def half_noise(epsilon):
    return float(gaussian_epsilon(0, 1, 2 * gaussian_gap(epsilon, DELTA), 1, DELTA))


def test_a_bound_above_the_claim_is_a_violation():
    found = judge(Claim(3.0, DELTA), bound(3.5, finds=9.0))
    assert found.word == "VIOLATED"
    assert found.reason == "with 95% confidence epsilon is at least 3.5, more than the 3 claimed"
    assert found.detectable == 9.0
    assert str(found) == f"VIOLATED: {found.reason}"


def test_a_bound_at_the_claim_is_no_violation():
    assert judge(Claim(3.0, DELTA), bound(3.0, finds=3.1)).word == "CONSISTENT"


def test_a_violation_needs_no_power():
    """What was found was found, even if it was not likely to be."""
    assert judge(Claim(3.0, DELTA), bound(3.5, ceiling=3.6, finds=math.inf)).word == "VIOLATED"
    assert judge(Claim(3.0, DELTA), bound(math.inf)).word == "VIOLATED"
    assert judge(Claim(0.0, DELTA), bound(0.1)).word == "VIOLATED"


def test_an_audit_that_would_have_seen_half_the_noise_is_consistent():
    found = judge(Claim(4.0, DELTA), bound(1.0, finds=half_noise(4.0) * 0.999))
    assert found.word == "CONSISTENT"
    assert found.noticeable_noise_factor == approx(2.0, rel=1e-2)
    assert "noise at 50% of its claimed strength would have been noticed" in found.reason


def test_an_audit_that_would_have_missed_half_the_noise_is_inconclusive():
    found = judge(Claim(4.0, DELTA), bound(1.0, finds=half_noise(4.0) * 1.001))
    assert found.word == "INCONCLUSIVE"
    assert "half the noise would probably have been missed" in found.reason
    assert found.noticeable_noise_factor > 2
    assert "would have noticed only noise at" in found.reason


def test_a_reason_does_not_contradict_its_verdict():
    assert judge(Claim(4.3772, DELTA), bound(4.3783, finds=9.0)).reason.endswith("at least 4.378, more than the 4.377 claimed")
    easy = judge(Claim(4.0, DELTA), bound(1.0, finds=3.0))
    assert easy.noticeable_noise_factor <= 1 and easy.reason == "no leak above the claim was found"


def test_a_claim_above_the_ceiling_is_inconclusive():
    for ceiling in (5.9, 6.0):
        found = judge(Claim(6.0, DELTA), bound(1.0, ceiling=ceiling, finds=1.0))
        assert found.word == "INCONCLUSIVE"
        assert "even perfect separation" in found.reason
        assert "more canaries or an exact null" in found.reason
        assert found.detectable == math.inf


def test_an_infinite_claim_is_inconclusive():
    found = judge(claim(Once(), noise_multiplier=0.0, delta=DELTA), bound(1e9, finds=1.0))
    assert (found.word, found.reason) == ("INCONCLUSIVE", "the claim is infinite: nothing could exceed it")


def test_a_bound_that_finds_nothing_is_inconclusive():
    assert judge(Claim(4.0, DELTA), bound(1.0, finds=math.inf)).word == "INCONCLUSIVE"
    assert judge(Claim(4.0, DELTA), bound(1.0)).reason == "no violation would have been noticed"
    # even where half the noise would be no privacy at all
    nearly_nothing = Claim(4.0, DELTA, question=lambda factor: math.inf)
    assert judge(nearly_nothing, bound(1.0, finds=math.inf)).word == "INCONCLUSIVE"
    assert judge(nearly_nothing, bound(1.0, finds=1e6)).word == "CONSISTENT"


def test_at_delta_zero_a_violation_can_be_shown_but_nothing_else():
    """The model that says what would have been noticed is Gaussian, and has no finite epsilon at delta = 0."""
    scores = Scores.of(np.linspace(2.0, 4.0, 100), null=GaussianNull())
    found = bound_band(scores, delta=0)
    assert judge(Claim(found.epsilon / 2, 0.0), found).word == "VIOLATED"
    quiet = judge(Claim(found.epsilon * 2, 0.0), found)
    assert (quiet.word, quiet.detectable) == ("INCONCLUSIVE", math.inf)
    assert "at delta = 0" in quiet.reason


def test_half_the_noise_is_that_of_the_mechanism_where_it_is_known():
    """Amplification by sampling: half the noise costs more than a factor of two there."""
    sampled = Claim(1.0, DELTA, question=lambda factor: 20.0)
    plain = Claim(1.0, DELTA)
    assert judge(sampled, bound(0.5, finds=10.0)).word == "CONSISTENT"
    assert judge(plain, bound(0.5, finds=10.0)).word == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("unit", "example"),
        ("relation", "replace-one"),
        ("participation", "8 times"),
        ("knowledge", "rounds unknown"),
    ],
)
def test_each_difference_of_the_games_is_an_error(field, value):
    stated = claim(Once(), noise_multiplier=1.0, delta=DELTA)
    measured = Game(**{**KNOWN.__dict__, field: value})
    with pytest.raises(MismatchError, match=f"{field}: {str(getattr(KNOWN, field))!r} against {value!r}"):
        judge(stated, bound(9.0), measured)
    assert judge(stated, bound(9.0), KNOWN).word == "VIOLATED"


def test_all_differences_are_told_at_once_with_the_remedy():
    with pytest.raises(MismatchError, match=r"unit.*relation.*participation.*knowledge.*Account the canaries of this view"):
        judge(Claim(1.0, DELTA, game=KNOWN), bound(0.0), Game("example", "replace-one", "8 times", "rounds unknown"))


def test_what_one_side_does_not_state_is_no_difference():
    assert judge(Claim(1.0, DELTA), bound(2.0), KNOWN).word == "VIOLATED"
    assert judge(Claim(1.0, DELTA, game=KNOWN), bound(2.0)).word == "VIOLATED"
    assert judge(Claim(1.0, DELTA, game=KNOWN), bound(2.0), Game(unit="client")).word == "VIOLATED"


def test_another_delta_is_an_error():
    with pytest.raises(MismatchError, match=r"delta = 1e-06.*delta = 1e-05"):
        judge(Claim(1.0, 1e-6), bound(2.0))


@pytest.mark.parametrize("approximate", [bound_bayesian, bound_pointwise])
def test_an_approximate_number_cannot_decide(approximate):
    scores = Scores.of(np.linspace(4, 5, 40), np.linspace(0, 1, 40))
    with pytest.raises(MismatchError, match="approximate and cannot decide"):
        judge(Claim(0.1, DELTA), approximate(scores, delta=DELTA))
    with pytest.raises(MismatchError, match="make a valid bound primary"):
        judge(Claim(0.1, DELTA), bound(2.0, valid=False))


def test_a_mismatch_is_an_audit_error_and_a_value_error():
    assert issubclass(MismatchError, AuditError)
    assert issubclass(MismatchError, ValueError)


# "The claim must match the canaries' game": k = 1,000 canaries, sigma = 1, delta = 1e-5, correct code.


def rounds_known(presentations, replicate, game):
    """Scores of an adversary who adds up the rounds that each canary took part in: N(sqrt(r), 1) after r presentations."""
    gaps = np.sqrt(np.broadcast_to(presentations, 1000))
    values = stream(0, "known rounds", str(game.participation), replicate).standard_normal(1000) + gaps
    return Scores(values, np.ones(1000, bool), null=GaussianNull(), game=game)


def median_band(presentations, game):
    found = [bound_band(rounds_known(presentations, number, game), delta=DELTA).epsilon for number in range(15)]
    return float(np.median(found))


def test_a_correct_poisson_run_beside_the_wrong_claim_is_an_error_and_not_a_violation():
    sampling = Poisson(rate=0.01, rounds=1000)
    amplified = claim(sampling, noise_multiplier=1.0, delta=DELTA, accountant="rdp")  # 1.83 by loss distributions
    game = Game("client", "add-or-remove-one", str(sampling), "rounds known")
    assert amplified.epsilon == approx(2.10, abs=0.01)
    assert median_band(10, game) == approx(12.6, abs=1.0)  # ten rounds each, as expected at this rate
    times = stream(0, "poisson").binomial(1000, 0.01, 1000)
    assert bound_band(rounds_known(times, 0, game), delta=DELTA).epsilon > 5 * amplified.epsilon
    with pytest.raises(MismatchError, match="knowledge: 'rounds unknown' against 'rounds known'"):
        audit_scores(rounds_known(times, 0, game), delta=DELTA, claim=amplified)


def test_a_correct_run_with_eight_presentations_beside_the_claim_for_one():
    game = Game("client", "add-or-remove-one", "8 times", "rounds known")
    once, eight = (claim(pattern, noise_multiplier=1.0, delta=DELTA) for pattern in (Once(), Repeated(8)))
    assert once.epsilon == approx(4.38, abs=0.01)
    assert median_band(8, game) == approx(10.8, abs=0.6)
    with pytest.raises(MismatchError, match="participation: 'once' against '8 times'"):
        audit_scores(rounds_known(8, 0, game), delta=DELTA, claim=once)
    for replicate in range(5):  # the claim of its own game is above the band in all but 1 of 1,000 such runs
        assert audit_scores(rounds_known(8, replicate, game), delta=DELTA, claim=eight).verdict.word == "CONSISTENT"


def test_right_noise_is_consistent_and_half_the_noise_is_a_violation():
    stated = claim(Once(), noise_multiplier=1.0, delta=DELTA)
    for noise, word in ((1.0, "CONSISTENT"), (0.5, "VIOLATED")):
        scores = simulate_gaussian_mechanism(1_000_000, 1000, noise, seed=3)
        assert audit_scores(scores, delta=DELTA, claim=stated).verdict.word == word


def test_too_few_canaries_are_inconclusive():
    stated = Claim(1.0, DELTA)
    scores = simulate_gaussian_mechanism(1_000_000, 30, calibrate_noise(Once(), epsilon=1.0, delta=DELTA), seed=3)
    assert audit_scores(scores, delta=DELTA, claim=stated).verdict.word == "INCONCLUSIVE"
