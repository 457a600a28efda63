"""What the views measure in linear rounds, against closed forms.

A release is the sum of its canaries, a vector X_t of the clients and noise. For a canary in one round the standardised score
then has the mean 1/sqrt(sigma² + |X_t|²/d) for transform canaries, with k_t/d more under the root for sphere canaries.
"""

import math

import numpy as np
import pytest
from pytest import approx

from coalmine import Once, Periods, Poisson, bound_band, estimate_gaussian
from coalmine.accounting import plain_gaussian
from coalmine.gaussian import gaussian_epsilon
from coalmine.nulls import CosineNull
from coalmine.views import EveryRelease, FinalModel, KnownOthers, KnownRounds, matched_filter
from coalmine.views.view import spreads_of

DELTA = 1e-5
THREE_ERRORS = 3.0  # for means against closed forms: a false alarm of 0.27 % each, with seeds that are fixed
FALSE_ALARM = 1e-3  # of each interval that must hold its closed form; the seeds are fixed
FAMILIES = ("transform", "sphere")


def standardised(scores):
    return scores.inserted_values / scores.null.spread


def present(run):
    """By round, how many canaries took part."""
    return np.array([run.schedule.taking_part(number).size for number in range(run.schedule.rounds)])


def once_gaps(run, noise, clients=0.0):
    """The closed form for every inserted canary that took part once, from what was recorded of its round."""
    sphere = run.canaries.null is not None
    crowd = present(run) / run.canaries.dim * sphere
    by_round = (noise**2 + clients**2 / run.canaries.dim + crowd) ** -0.5
    rounds = run.schedule.presence[:, run.schedule.inserted].argmax(axis=0)
    return by_round[rounds]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("view", [FinalModel(), KnownRounds(), KnownOthers()], ids=lambda view: view.key)
def test_one_round_without_clients_has_the_closed_moments(linear_run, family, view):
    run = linear_run(
        family, Once(), rounds=1, noise=0.7, seed=1, dim=8000, pool=400, kinds=("mean", "residual", "total_change")
    )
    z, count = standardised(run.scores(view)), run.schedule.inserted.sum()
    expected = (0.7**2 + (count / run.canaries.dim if family == "sphere" else 0.0)) ** -0.5
    assert abs(z.mean() - expected) < THREE_ERRORS * math.hypot(
        1 / math.sqrt(count), expected / math.sqrt(2 * run.canaries.dim)
    )
    assert abs(z.var() - 1) < THREE_ERRORS * math.sqrt(2 / count)


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("pattern", [Once(), Periods(8)], ids=str)
def test_known_others_shows_the_analytic_epsilon(linear_run, pattern, noise):
    run = linear_run("transform", pattern, rounds=16, noise=noise, seed=2, pool=600, clients=5.0, kinds=("residual",))
    claim = KnownOthers().claim(run.schedule, plain_gaussian(noise), delta=DELTA)
    for null in ("theory", "empirical"):
        found = estimate_gaussian(run.scores(KnownOthers(), null), delta=DELTA, confidence=1 - FALSE_ALARM)
        assert found.low < claim.epsilon < found.high, null
    assert bound_band(run.scores(KnownOthers()), delta=DELTA).epsilon < claim.epsilon


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("clients", [0.0, 60.0])
@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0, 3.0])
def test_known_rounds_show_what_the_clients_leave(linear_run, family, clients, noise):
    run = linear_run(family, Once(), rounds=5, noise=noise, seed=12, dim=4000, pool=200, clients=clients)
    z, expected = standardised(run.scores(KnownRounds())), once_gaps(run, noise, clients).mean()
    error = math.hypot(1 / math.sqrt(z.size), expected / math.sqrt(2 * run.canaries.dim))
    assert abs(z.mean() - expected) < THREE_ERRORS * error


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_eight_presentations_add_up(linear_run, family, noise):
    """Sphere canaries that meet m times are noise to each other in all of them: m²/(8 d) for each other canary."""
    run = linear_run(family, Periods(8), rounds=32, noise=noise, seed=4, dim=4000, pool=200, clients=20.0, spare=2000)
    scores = run.scores(KnownRounds())
    presence = run.schedule.presence[:, run.schedule.inserted].astype(float)
    meetings = presence.T @ presence
    np.fill_diagonal(meetings, 0.0)
    crowd = (meetings**2).sum(axis=0).mean() / (8 * run.canaries.dim) if family == "sphere" else 0.0
    z = standardised(scores)
    expected = math.sqrt(8 / (noise**2 + 20.0**2 / run.canaries.dim + crowd))
    error = math.hypot(1 / math.sqrt(z.size), expected / math.sqrt(2 * scores.null.directions))
    assert abs(z.mean() - expected) < THREE_ERRORS * error


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("noise", [0.2, 0.4])
def test_who_knows_more_finds_more(linear_run, family, noise):
    """Where the analytic epsilon is at least 12: known rounds, then all releases, then the final model."""
    run = linear_run(family, Once(), rounds=12, noise=noise, seed=5, dim=4000, pool=200, kinds=("mean", "total_change"))
    analytic = KnownRounds().claim(run.schedule, plain_gaussian(noise), delta=DELTA).epsilon
    views = KnownRounds(), EveryRelease(), FinalModel()
    known, every, final = (bound_band(run.scores(view), delta=DELTA).epsilon for view in views)
    assert analytic >= 12
    assert analytic > known >= every > final


@pytest.mark.parametrize("family", FAMILIES)
def test_leakage_falls_with_noise_and_rises_with_presentations(linear_run, family):
    """Neighbours differ by at least 0.8, their standard error is 0.14: a reversal has a chance below 1e-7."""

    def gap(pattern, noise):
        return standardised(linear_run(family, pattern, rounds=8, noise=noise, seed=6, dim=3000).scores(KnownRounds())).mean()

    assert (np.diff([gap(Once(), noise) for noise in (0.3, 0.5, 1.0)]) < 0).all()
    assert (np.diff([gap(Periods(times), 0.5) for times in (1, 2, 4)]) > 0).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pattern", [Once(), Poisson(rate=0.2, rounds=12)], ids=["once", "poisson"])
def test_the_matched_filter_sees_through_noise_that_is_reused(linear_run, family, pattern):
    run = linear_run(family, pattern, rounds=12, noise=1.0, seed=7, dim=3000, clients=5.0, reuse=True)
    claim = KnownRounds().claim(run.schedule, plain_gaussian(1.0), delta=DELTA)
    assert bound_band(run.scores(KnownRounds()), delta=DELTA).epsilon > 2 * claim.epsilon
    if pattern == Once():
        blind = linear_run(family, pattern, rounds=12, noise=1.0, seed=7, dim=3000, clients=5.0, reuse=True, spare=0)
        assert bound_band(blind.scores(KnownRounds()), delta=DELTA).epsilon < claim.epsilon  # a plain sum sees nothing


@pytest.mark.parametrize("family", FAMILIES)
def test_the_matched_filter_takes_what_correlated_noise_gives_away(linear_run, family):
    """For noise with correlation r^|t-s| the best gap is sqrt((1 + r²)/(1 - r²)) times that of independent noise."""
    found = []
    for seed in range(2):
        run = linear_run(family, Once(), rounds=16, noise=0.25, seed=seed, dim=4000, pool=200, spare=3000, correlation=0.8)
        found.append(standardised(run.scores(KnownRounds())).mean())
    best = math.sqrt((1 + 0.64) / (1 - 0.64)) / 0.25
    assert 0.85 * best < np.mean(found) < 1.04 * best  # a plain sum: 0.47; the first and the last round have one neighbour


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pattern", [Once(), Periods(4)], ids=str)
def test_with_independent_noise_the_filter_is_the_plain_sum(linear_run, family, pattern):
    sizes = np.linspace(0.5, 2.0, 12)
    run = linear_run(family, pattern, rounds=12, noise=1.0, seed=8, amplitude=sizes)
    seen, scores = run.seen["mean"], run.scores(KnownRounds(), "empirical")
    spreads = spreads_of(seen, run.schedule, run.canaries)
    weights = run.schedule.presence * (sizes / spreads**2)[:, None]
    sums, units = (weights * seen.inner[:, :200]).sum(axis=0), np.sqrt((weights**2 * spreads[:, None] ** 2).sum(axis=0))
    assert scores.value[:200] == approx(sums / units, rel=1e-9)


def test_the_filter_is_that_of_the_formula():
    """s'R⁻¹x / sqrt(s'R⁻¹s) with dense matrices, for a covariance that is known to be far from diagonal."""
    rng = np.random.default_rng(9)
    spreads, inner = np.array([1.0, 2.0, 0.5, 1.0]), rng.standard_normal((4, 4000))
    inner = (inner * 0.3 + rng.standard_normal(4000)) * spreads[:, None]
    presence = np.array([[1, 0], [0, 1], [0, 1], [0, 0]], dtype=bool)
    patterns = matched_filter.Patterns.among(presence, np.ones(4) / spreads)
    found = matched_filter.fit(patterns.signals, inner, spreads)
    covariance = inner @ inner.T / 4000
    scale = np.sqrt(np.diag(covariance)) / spreads
    for column, signal in enumerate(presence.T.astype(float)):
        best = np.linalg.solve(covariance, signal)
        mine = found.weights[:, patterns.of[column]] / spreads
        cosine = mine @ covariance @ best / math.sqrt((mine @ covariance @ mine) * (best @ covariance @ best))
        assert not found.diagonal and cosine > 0.99 and scale == approx(np.full(4, math.sqrt(1.09)), rel=0.1)


def test_one_presentation_of_a_sphere_canary_has_the_exact_law(linear_run):
    run = linear_run("sphere", Once(), rounds=5, noise=1.0, seed=10, dim=3000)
    scores = run.scores(KnownRounds())
    assert scores.null == CosineNull(3000) and scores.statistic == "cosine"
    row = run.schedule.presence.argmax(axis=0)
    seen = run.seen["mean"]
    assert scores.value == approx(seen.inner[row, np.arange(200)] / seen.norm[row], rel=1e-9)


def test_the_epsilon_of_known_others_is_that_of_two_normals(linear_run):
    """The mean-only estimate of the perfect score is the analytic Gaussian epsilon at its own gap."""
    run = linear_run("transform", Once(), rounds=4, noise=1.0, seed=11, kinds=("residual",))
    found = estimate_gaussian(run.scores(KnownOthers()), delta=DELTA)
    assert found.epsilon == approx(gaussian_epsilon(0.0, 1.0, found.details["mean"], 1.0, DELTA))
