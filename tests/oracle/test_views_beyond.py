"""The views that look beyond a canary's own rounds, against closed forms and densities."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pytest import approx
from scipy.stats import norm

from coalmine import Once, Periods, Poisson
from coalmine.accounting import plain_gaussian
from coalmine.audit.statements import audit_scores
from coalmine.views import Afterwards, KnownOthers, UnknownRounds
from coalmine.views.view import spreads_of

DELTA = 1e-5
FIVE_ERRORS = 5.0  # of a mean: a false alarm of 6e-7


def test_afterwards_adds_up_all_rounds_from_the_first_on(linear_run):
    """With independent noise a canary in round t of T has the mean 1/(noise sqrt(T - t)): one round has signal, T - t noise."""
    run = linear_run("transform", Once(), rounds=6, noise=0.25, seed=3, dim=6000, pool=600, spare=2000, kinds=("residual",))
    scores, first = run.scores(Afterwards()), run.schedule.presence.argmax(axis=0)
    for round_number in range(6):
        chosen = scores.inserted & (first[scores.labels["canary"]] == round_number)
        expected = 4 / math.sqrt(6 - round_number)
        assert abs(scores.value[chosen].mean() - expected) < FIVE_ERRORS / math.sqrt(chosen.sum()) + 0.03 * expected


def test_afterwards_is_known_others_for_canaries_that_are_always_there(linear_run):
    run = linear_run("transform", Periods(4), rounds=4, noise=1.0, seed=3, pool=100, kinds=("residual",))
    assert run.schedule.presence.all()
    assert run.scores(Afterwards()).value == approx(run.scores(KnownOthers()).value)


def test_afterwards_sees_what_a_mechanism_remembers(linear_run):
    """A release that holds nine tenths of what came before: twice as visible as in its own rounds."""
    run = linear_run("transform", Once(), rounds=20, noise=0.5, seed=4, dim=8000, pool=400, spare=2000, kinds=("residual",))
    seen = run.seen["residual"]
    own = seen.amplitude[:, None] * run.schedule.presence * run.schedule.inserted
    echo = np.zeros_like(own)
    for number in range(1, 20):
        echo[number] = 0.9 * (echo[number - 1] + own[number - 1])
    inner = seen.inner.copy()
    inner[:, : seen.pool] += echo
    norms = np.sqrt(seen.norm**2 + np.square(inner).sum(axis=1) - np.square(seen.inner).sum(axis=1))
    remembering = replace(run, seen={"residual": replace(seen, inner=inner, norm=norms)})
    own_rounds = remembering.scores(KnownOthers())
    afterwards = remembering.scores(Afterwards())
    assert own_rounds.inserted_values.mean() < 2.3
    assert afterwards.inserted_values.mean() > 1.5 * own_rounds.inserted_values.mean()


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_unknown_rounds_is_the_likelihood_ratio_of_the_sampled_gaussian(linear_run, rate):
    """Against densities: log of prod_t ((1-q) phi(x) + q phi(x - mu)) / phi(x)."""
    run = linear_run(
        "transform", Poisson(rate=rate, rounds=5), rounds=5, noise=0.8, seed=5, pool=80, spare=300, kinds=("residual",)
    )
    seen = run.seen["residual"]
    spreads = spreads_of(seen, run.schedule, run.canaries)[:, None]
    x, gap = seen.inner / spreads, seen.amplitude[:, None] / spreads
    ratio = ((1 - rate) * norm.pdf(x) + rate * norm.pdf(x - gap)) / norm.pdf(x)
    scores = run.scores(UnknownRounds())
    assert scores.value == approx(np.log(ratio).sum(axis=0)[scores.labels["canary"]], abs=1e-9)
    assert scores.null is None and scores.game.knowledge == "rounds unknown"


def test_unknown_rounds_of_canaries_that_are_always_there_is_a_plain_sum(linear_run):
    """A rate of 1 and little noise: log(1 - 1) must not get in."""
    run = linear_run("transform", Poisson(rate=1.0, rounds=4), rounds=4, noise=0.05, seed=8, pool=60, kinds=("residual",))
    values = run.scores(UnknownRounds()).inserted_values
    assert np.isfinite(values).all() and values.mean() > 500  # four rounds of mu²/2 = 200 each


def test_unknown_rounds_has_a_bound_and_no_estimate(linear_run):
    pattern = Poisson(rate=0.5, rounds=8)
    run = linear_run("transform", pattern, rounds=8, noise=0.3, seed=6, pool=200, spare=2000, kinds=("residual",))
    claim = UnknownRounds().claim(run.schedule, plain_gaussian(0.3), delta=DELTA)
    result = audit_scores(run.scores(UnknownRounds()), delta=DELTA, claim=claim)
    assert result.bound.epsilon > 2 and not result.estimates
    assert any("likelihood ratio" in caveat for caveat in result.caveats)


def test_who_knows_the_rounds_sees_more(linear_run):
    """Against the same claimless nothing: a bound that knows the rounds is higher, where few rounds are the canary's."""
    found = []
    for view in (KnownOthers(), UnknownRounds()):
        run = linear_run(
            "transform", Poisson(rate=0.1, rounds=30), rounds=30, noise=0.5, seed=7, pool=400, spare=3000, kinds=("residual",)
        )
        found.append(audit_scores(run.scores(view, "empirical"), delta=DELTA).bound.epsilon)
    assert found[0] > found[1] > 0
