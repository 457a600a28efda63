"""Noise that clients share: H - 1, H and H + 1 survivors, local privacy, and an audit whose estimate covers the claim."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from coalmine import accounting
from coalmine._random import stream
from coalmine.gaussian import gaussian_epsilon
from coalmine.mechanisms import Distributed, FixedPointSum
from coalmine.participation import Once
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


def test_the_estimate_of_an_audit_covers_the_claim(tmp_path):
    """All that are in the sum are honest, canaries too: more noises than are claimed for, so the factor is known."""
    config = read_config("tiny", ["participation.rounds=8", "participation.epochs=1", "canaries.pool=400", "run.workers=1",
                                  "audit.views=[]", "run.evaluate_every=0"])  # fmt: skip
    mechanism = Distributed(1.0, 0.5, honest=12)
    done = run(config, tmp_path / "run", mechanism=mechanism, secret_seed=11, quiet=True)
    result = done.result
    assert result.verdict.word != "VIOLATED" and result.claim.game.randomness == "noise of the clients"
    inside = next(each for each in result.estimates if each.key == "gaussian-mean")
    assert inside.low < result.claim.epsilon  # more noise than claimed can only lower it
    fewer = mechanism.with_survivors(37)  # about 12 clients and 25 canaries a round add their parts
    assert inside.low <= accounting.claim_of(fewer.describe(), Once(), delta=1e-5).epsilon * 1.2
