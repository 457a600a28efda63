"""The errors that real runs are judged by, against what many simulated runs give."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from pytest import approx

from coalmine import Scores, bound_band, estimate_gaussian
from coalmine.papers.kit.trained import TrainedRun, linear_error
from coalmine.papers.one_shot.trained import OneShotRun
from coalmine.papers.one_shot.v1_table3 import _lower_and_wider

DRAWS, CANARIES = 300, 500
FACTOR = 4 * math.sqrt(1 / (2 * DRAWS))  # 4 standard errors of a standard deviation: a false alarm once in 15,000


def a_run(scores, *, noise=0.0, rounds=(), presentations=1, dim=1000):
    """A run with these scores in its only view."""
    config = SimpleNamespace(canaries=SimpleNamespace(presentations=presentations))
    evidence = SimpleNamespace(rounds=rounds)
    return SimpleNamespace(scores={"here": scores}.get, evidence=evidence, config=config, noise=noise, dim=dim)


def scores_of(rng, skewed):
    """Inserted canaries at 20, three wide, and held-out ones."""
    wide = rng.gamma(4.0, 0.5, CANARIES) - 2.0 if skewed else rng.standard_normal(CANARIES)
    return Scores.of(20 + 3 * wide, rng.standard_normal(CANARIES))


@pytest.mark.parametrize("skewed", [False, True])
def test_the_error_of_a_fitted_estimate_is_how_much_it_varies(skewed):
    rng, found, errors = np.random.default_rng(1), [], []
    for _ in range(DRAWS):
        scores = scores_of(rng, skewed)
        estimate = estimate_gaussian(scores, delta=1e-5, variance="fitted")
        held_out = scores.held_out_values
        inserted = (scores.inserted_values - held_out.mean()) / held_out.std(ddof=1)
        found.append(estimate.epsilon)
        errors.append(linear_error(estimate, inserted, held_out.size))
    assert np.std(found) == approx(np.mean(errors), rel=FACTOR + 0.05)  # linear, which epsilon is not


def test_the_error_of_a_gap_is_how_much_it_varies():
    rng = np.random.default_rng(2)
    found = np.array([TrainedRun.gap(a_run(scores_of(rng, skewed=False)), "here") for _ in range(DRAWS)])
    assert found[:, 0].std() == approx(found[:, 1].mean(), rel=FACTOR)
    assert found[:, 0].mean() == approx(20.0, abs=5 * found[0, 1] / math.sqrt(DRAWS) + 0.05)


@pytest.mark.parametrize("sure", [2.5, 4.0])
def test_how_sure_a_bound_is_above_its_claim(sure):
    """The claim is what the band shows at this confidence."""
    scores = scores_of(np.random.default_rng(3), skewed=False)
    bound = bound_band(scores, delta=1e-5)
    claim = bound_band(scores, delta=1e-5, confidence=math.erf(sure / math.sqrt(2))).epsilon
    run = a_run(scores)
    run.stated = lambda view: (None, bound, claim)
    assert TrainedRun.beyond(run, "here") == approx(sure, abs=0.11)
    run.stated = lambda view: (None, bound, bound.epsilon)
    assert TrainedRun.beyond(run, "here") == -math.inf


def test_what_clients_hide_is_what_a_simulation_gives():
    """Releases are canary + clients + noise in 400 dimensions, seen along the canary in units of other directions."""
    rng, dim, noise, lengths = np.random.default_rng(4), 400, 0.3, (2.0, 6.0)
    rounds = [{"clients_norm": length, "canaries": count} for length, count in zip(lengths, (1, 3), strict=True)]
    least = OneShotRun.least_gap.fget(a_run(None, noise=noise, rounds=rounds, presentations=4, dim=dim))
    seen = []
    for length in np.repeat(lengths, (1000, 3000)):
        clients = rng.standard_normal(dim)
        release = length * clients / np.linalg.norm(clients) + noise * rng.standard_normal(dim)
        spread = np.linalg.norm(release) / math.sqrt(dim)  # of its inner products with other directions
        seen.append((1.0 + release[0]) / spread)
    assert 2 * np.mean(seen) == approx(least, abs=2 * 4 * np.std(seen) / math.sqrt(len(seen)))  # sqrt(4) presentations


@pytest.mark.parametrize(
    ("first", "second", "passed"), [((3, 1), (1, 2), True), ((1, 1), (3, 2), False), ((3, 2), (1, 0.5), False)]
)
def test_a_split_estimate_that_is_higher_or_narrower_is_found(first, second, passed):
    rng = np.random.default_rng(5)
    biased, unbiased = (rng.normal(*law, 200) for law in (first, second))
    assert _lower_and_wider("here", biased, unbiased, 0.001).passed == passed
