"""The accountant reads a description and a pattern: correlated noise against brute force, and what it must refuse by name."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import toys
from pytest import approx

from coalmine import accounting
from coalmine.contracts import Clip, Description, Explicit, Noise, Opaque, PerPeriod, Separation
from coalmine.gaussian import gaussian_epsilon
from coalmine.mechanisms import Gaussian
from coalmine.participation import FixedSize, MinSeparation, Once, Periods, Poisson, Trace

DELTA, NOISE = 1e-5, 0.8
COUPLINGS = (0.0, 0.3, 1.0)


def matrix(coupling, rounds):
    """C, by definition."""
    whole = np.eye(rounds) + coupling * np.eye(rounds, k=-1)
    return whole / np.sqrt(1 + coupling**2)


def largest(coupling, rounds, sets):
    """|C · set| of the worst of these sets of rounds."""
    found = [np.linalg.norm(matrix(coupling, rounds)[:, list(each)].sum(axis=1)) for each in sets]
    return max(found, default=0.0)


def apart(rounds, times, separation):
    """All sets of at most `times` rounds that are at least `separation` rounds apart."""
    for size in range(1, times + 1):
        for each in combinations(range(rounds), size):
            if all(b - a >= separation for a, b in pairwise(each)):
                yield each


def per_period(rounds, times):
    borders = [rounds * number // times for number in range(times + 1)]
    for each in combinations(range(rounds), times):
        if all(first <= place < end for place, (first, end) in zip(each, pairwise(borders), strict=True)):
            yield each


def claimed(coupling, pattern, rounds, **how):
    description = toys.Correlated(1.0, NOISE, coupling=coupling).describe()
    return accounting.claim_of(description, pattern, delta=DELTA, rounds=rounds, **how)


def epsilon(sensitivity):
    return float(gaussian_epsilon(0.0, 1.0, sensitivity / NOISE, 1.0, DELTA))


def test_the_toy_whitens_by_its_matrix():
    rows = np.random.default_rng(0).standard_normal((7, 3))
    assert np.allclose(toys.TwoTap(0.6).whiten(rows, {})[0], matrix(0.6, 7) @ rows)
    assert np.linalg.norm(matrix(0.6, 7), axis=0).max() == approx(1.0)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("rounds", range(1, 11))
def test_sensitivity_is_that_of_the_worst_set_of_rounds(coupling, rounds):
    strategy = toys.TwoTap(coupling)
    for separation in (1, 2, 3, 7):
        for times in (1, 2, 3, rounds):
            expected = largest(coupling, rounds, apart(rounds, times, separation))
            assert strategy.sensitivity(Separation(times, separation, rounds)) == approx(expected, rel=1e-12)
    for times in range(1, rounds + 1):
        expected = largest(coupling, rounds, per_period(rounds, times))
        assert strategy.sensitivity(PerPeriod(times, rounds)) == approx(expected, rel=1e-12)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("rounds", [1, 2, 5, 10])
def test_the_claim_is_that_of_one_gaussian_of_the_worst_set(coupling, rounds):
    once = claimed(coupling, Once(), rounds)
    assert once.epsilon == approx(epsilon(largest(coupling, rounds, apart(rounds, 1, 1))), rel=1e-9)
    assert once.accountant == "analytic Gaussian" and once.game.knowledge == "rounds known"
    if rounds > 1:
        assert once.epsilon == approx(accounting.claim(Once(), noise_multiplier=NOISE, delta=DELTA).epsilon, rel=1e-9)
    for separation in (1, 2, 3):
        pattern = MinSeparation(separation, 1, rounds)
        expected = epsilon(largest(coupling, rounds, apart(rounds, pattern.most, separation)))
        assert claimed(coupling, pattern, rounds).epsilon == approx(expected, rel=1e-9)
    expected = epsilon(largest(coupling, rounds, per_period(rounds, min(3, rounds))))
    assert claimed(coupling, Periods(min(3, rounds)), rounds).epsilon == approx(expected, rel=1e-9)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_a_trace_is_claimed_for_its_worst_client(coupling):
    rng = np.random.default_rng(4)
    for _ in range(20):
        rounds = int(rng.integers(2, 11))
        members = tuple(tuple(np.flatnonzero(rng.random(5) < 0.4).tolist()) for _ in range(rounds))
        trace = Trace(members)
        sets = [[number for number in range(rounds) if client in members[number]] for client in range(5)]
        if not any(sets):
            continue
        assert isinstance(trace.constraint(rounds), Explicit)
        expected = epsilon(largest(coupling, rounds, [each for each in sets if each]))
        assert claimed(coupling, trace, rounds).epsilon == approx(expected, rel=1e-9)


def test_without_coupling_the_claim_is_that_of_fresh_noise():
    for pattern, rounds in ((Once(), 9), (MinSeparation(2, 1, 9), 9), (Periods(4), 9)):
        fresh = accounting.claim_of(Gaussian(1.0, NOISE).describe(), pattern, delta=DELTA, rounds=rounds)
        assert claimed(0.0, pattern, rounds).epsilon == approx(fresh.epsilon, rel=1e-9)


def test_replacing_a_client_moves_twice_as_much():
    twice = claimed(0.5, Periods(2), 6, relation="replace-one")
    expected = epsilon(2 * toys.TwoTap(0.5).sensitivity(PerPeriod(2, 6)))
    assert twice.epsilon == approx(expected, rel=1e-9)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("pattern", [Poisson(0.1, 10), FixedSize(2, 20, 10)])
def test_sampling_with_correlated_noise_is_refused_by_name(pattern, known):
    with pytest.raises(ValueError, match="no accountant for noise correlated over rounds \\('two-tap'\\)") as refused:
        claimed(0.5, pattern, 10, rounds_known=known)
    assert str(pattern) in str(refused.value)


def test_noise_that_is_lifted_or_of_an_unknown_kind_is_refused_by_name():
    with pytest.raises(ValueError, match="coordinates is of kind 'at-least' has no accountant"):
        accounting.claim_of(toys.Lifted(1.0, NOISE).describe(), Once(), delta=DELTA)
    for part, message in (
        ("coordinates", "coordinates is of kind 'strange'"),
        ("added_by", "added by is of kind 'strange'"),
        ("rounds", "'strange' is not known here: register its strategy"),
    ):
        described = Description(Clip(1.0), Noise(NOISE, NOISE, **{part: Opaque("strange", {})}))
        with pytest.raises(ValueError, match=message):
            accounting.claim_of(described, Once(), delta=DELTA)
    with pytest.raises(ValueError, match="states an epsilon and no noise"):
        accounting.claim_of(Description(Clip(1.0), None), Once(), delta=DELTA)


def test_noise_of_the_clients_is_claimed_and_named_in_the_game():
    claim = accounting.claim_of(toys.ByTheClients(1.0, NOISE).describe(), Once(), delta=DELTA)
    fresh = accounting.claim_of(Gaussian(1.0, NOISE).describe(), Once(), delta=DELTA)
    assert claim.epsilon == fresh.epsilon
    assert (claim.game.randomness, fresh.game.randomness) == ("noise of the clients", None)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_other_accountants_agree_with_the_formula(accountant):
    """Composition of Gaussians is a Gaussian: both find at least its epsilon, and not much more."""
    exact = claimed(0.5, Periods(2), 6).epsilon
    found = claimed(0.5, Periods(2), 6, accountant=accountant).epsilon
    assert exact * (1 - 1e-6) <= found <= 1.35 * exact
