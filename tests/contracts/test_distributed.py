"""Noise that clients share: H - 1, H and H + 1 survivors, local privacy, and an audit whose estimate covers the claim."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from coalmine import accounting
from coalmine._random import stream
from coalmine.contracts import Context
from coalmine.gaussian import gaussian_epsilon
from coalmine.mechanisms import Distributed, FixedPointSum
from coalmine.participation import Once, Poisson
from coalmine.training import run
from coalmine.training.config import read_config

FALSE_ALARM, DIM, HONEST = 1e-6, 20_000, 6


def noise_of(mechanism, survivors):
    public = mechanism.announce(mechanism.init(DIM), 0, float(survivors))
    total = FixedPointSum(DIM, public.clip_norm)
    for client in range(survivors):
        total.add(mechanism.client(np.ones(DIM), public, 1, secret=partial(stream, 5, "client", client)))
    return (total.vector() - total.without_noise()) / public.clip_norm


@pytest.mark.parametrize("survivors", [HONEST - 1, HONEST, HONEST + 1])
def test_the_noise_is_that_of_the_survivors_and_so_is_the_claim(survivors):
    mechanism = Distributed(2.0, 0.8, honest=HONEST)
    there = mechanism.with_survivors(survivors)
    square = np.square(noise_of(mechanism, survivors)).sum() / there.noise_multiplier**2
    low, high = stats.chi2(DIM).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    assert low < square < high
    claims = [accounting.claim_of(each.describe(), Once(), delta=1e-5).epsilon for each in (mechanism, there)]
    assert (claims[1] > claims[0]) == (survivors < HONEST) and (claims[1] == claims[0]) == (survivors == HONEST)


def test_one_honest_client_is_local_privacy():
    mechanism = Distributed(2.0, 0.8, honest=1)
    spread = noise_of(mechanism, 1).std()
    assert spread == pytest.approx(0.8, rel=0.03)
    known = gaussian_epsilon(0.0, 0.8, 1.0, 0.8, 1e-5)
    assert accounting.claim_of(mechanism.describe(), Once(), delta=1e-5).epsilon == pytest.approx(known)


CHANGES = ["participation.rounds=8", "participation.epochs=1", "canaries.pool=400", "run.workers=1", "audit.views=[]"]
CLIENTS = 18  # in every round of this setting


@pytest.fixture
def audited(tmp_path):
    def make(mechanism, *changes):
        config = read_config("tiny", [*CHANGES, "run.evaluate_every=0", *changes])
        return run(config, tmp_path / "run", mechanism=mechanism, secret_seed=11, quiet=True).result

    return make


def mean_only(result):
    return next(each for each in result.estimates if each.key == "gaussian-mean")


def test_the_estimate_of_an_audit_covers_the_claim(audited):
    """So many honest noises as are claimed for, and canaries whose own noise the auditor knows. False alarm: 5 %, one seed."""
    result = audited(Distributed(1.0, 0.5, honest=CLIENTS))
    found = mean_only(result)
    assert result.verdict.word == "CONSISTENT" and result.claim.game.randomness == "noise of the clients"
    assert found.low < result.claim.epsilon < found.high
    assert not any(caveat.code == "fewer-noises" for caveat in result.caveats)


def test_fewer_clients_than_the_claim_counts_on_are_found_and_accounted_for(audited):
    """24 were promised, and 18 are there: the noise is too small by the square root of 3/4."""
    result = audited(Distributed(1.0, 0.5, honest=24))
    assert result.verdict.word == "DEVIATES" and result.verdict.failed
    assert result.conformance.noise.measured < 0.48
    caveat = next(each for each in result.caveats if each.code == "fewer-noises")
    fewer = accounting.claim_of(Distributed(1.0, 0.5, honest=24).with_survivors(18).describe(), Once(), delta=1e-5)
    assert caveat.data["least"] == 18 and caveat.data["epsilon"] == pytest.approx(fewer.epsilon)
    assert "24 clients" in caveat and mean_only(result).high > fewer.epsilon > result.claim.epsilon


def test_one_client_too_few_is_enough(audited):
    """The noise is 2.7 % too small, which nobody would read off its size beside that of the canaries: clients are counted."""
    result = audited(Distributed(1.0, 0.5, honest=CLIENTS + 1))
    assert result.verdict.word == "DEVIATES"
    assert "with the noise of 18 clients for 19" in str(result)


def test_canaries_in_the_places_of_clients_are_honest_ones(audited):
    result = audited(Distributed(1.0, 0.5, honest=CLIENTS), "canaries.replace_clients=true", "canaries.pool=100")
    assert result.verdict.word == "CONSISTENT" and mean_only(result).low < result.claim.epsilon


def test_where_chance_decides_who_is_there_the_noise_is_that_of_a_small_cohort():
    context = Context(20.0, 100, 50, Poisson(0.2, 50), {})
    made = Distributed.from_config({"clip_norm": 1.0, "noise_multiplier": 0.5}, context)
    assert stats.binom.cdf(made.honest - 1, 100, 0.2) * 50 <= 1e-6 < stats.binom.cdf(made.honest, 100, 0.2) * 50
    fixed = Distributed.from_config({"clip_norm": 1.0, "noise_multiplier": 0.5}, replace(context, participation=Once()))
    assert fixed.honest == 20
