"""Views: small cases by hand, what is refused, who is compared with whom, and the edges."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pytest import approx
from scipy.stats import binom

from coalmine import Epochs, FixedSize, GaussianNull, Once, Periods, Poisson, Repeated, Scores, bound_anytime, bound_band
from coalmine.accounting import claim, game, plain_gaussian
from coalmine.audit.statements import audit_scores
from coalmine.canaries import SphereCanaries, TransformCanaries
from coalmine.canaries.schedule import Schedule
from coalmine.errors import AssignmentError, AuditError, MismatchError, NonFiniteError, NotEnoughCanariesError
from coalmine.estimators import bound_one_run
from coalmine.estimators.anytime import anytime_epsilons
from coalmine.estimators.gaussian_fit import estimate_gaussian
from coalmine.gaussian import gaussian_delta
from coalmine.nulls import CosineNull, MaxNull, describe, described, measured_on
from coalmine.verdict import judge
from coalmine.views import (
    VIEWS,
    EveryRelease,
    EveryStep,
    FinalModel,
    KnownOthers,
    KnownRounds,
    WholeModel,
    anytime_scores,
    choose_null,
    groups_of,
    matched_filter,
    norms_in_group,
    project_row,
    round_scores,
    stack,
)

DELTA = 1e-5
ALL = [
    FinalModel(),
    WholeModel(),
    EveryRelease(),
    EveryStep(),
    KnownRounds(),
    KnownOthers(),
]
PATTERNS = [Once(), Periods(8), Epochs(2), Poisson(rate=0.1, rounds=16), FixedSize(cohort_size=4, population=30, rounds=16)]


def schedule(pattern, pool=30, rounds=16, seed=1):
    return Schedule.draw(pattern, pool=pool, rounds=rounds, secret_seed=seed)


@pytest.mark.parametrize("view", ALL, ids=lambda view: view.key)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: type(pattern).__name__)
def test_the_game_of_a_view_is_that_of_its_claim(view, pattern):
    taking_part = schedule(pattern)
    found = view.claim(taking_part, plain_gaussian(2.0), delta=DELTA)
    assert found.game == view.game(taking_part)
    sampled = isinstance(pattern, (Poisson, FixedSize))
    assert found.game.knowledge == ("rounds unknown" if sampled and not view.knows_rounds else "rounds known")
    assert found.game.participation == str(pattern)


def test_canaries_that_replace_clients_have_another_relation(linear_run):
    run = linear_run("transform", Once(), rounds=2, noise=1.0, seed=1, dim=1000, pool=30, spare=100)
    view = KnownRounds(relation="replace-one", unit="example")
    scores = run.scores(view)
    assert scores.game == game(Once(), relation="replace-one", unit="example")
    assert view.claim(run.schedule, plain_gaussian(1.0), delta=DELTA).epsilon == approx(9.997, abs=1e-3)
    with pytest.raises(MismatchError, match="relation"):
        judge(KnownRounds().claim(run.schedule, plain_gaussian(1.0), delta=DELTA), bound_band(scores, delta=DELTA), scores.game)


def test_known_rounds_under_sampling_are_claimed_by_the_mean_over_their_number():
    """E[delta_t(epsilon) | t >= 1] = delta, written out; between the amplified claim and that of the most frequent canary."""
    rate, rounds, noise = 0.05, 40, 1.5
    found = claim(Poisson(rate, rounds), noise_multiplier=noise, delta=DELTA, rounds_known=True)
    times = np.arange(1, rounds + 1)
    mean = binom.pmf(times, rounds, rate) @ gaussian_delta(0.0, 1.0, np.sqrt(times) / noise, 1.0, found.epsilon)
    assert mean / binom.sf(0, rounds, rate) == approx(DELTA, rel=1e-4)
    amplified = claim(Poisson(rate, rounds), noise_multiplier=noise, delta=DELTA)
    most = claim(Repeated(10), noise_multiplier=noise, delta=DELTA)
    assert amplified.epsilon < found.epsilon < most.epsilon and found.at_noise(0.5) > found.epsilon
    always = claim(Poisson(1.0, 7), noise_multiplier=noise, delta=DELTA, rounds_known=True)
    assert always.epsilon == approx(claim(Repeated(7), noise_multiplier=noise, delta=DELTA).epsilon, rel=1e-5)
    assert claim(Poisson(0.1, 7), noise_multiplier=0.0, delta=DELTA, rounds_known=True).epsilon == math.inf
    replaced = claim(FixedSize(2, 40, rounds), noise_multiplier=2 * noise, delta=DELTA, rounds_known=True)
    assert replaced.epsilon == approx(found.epsilon, rel=1e-6) and replaced.game.relation == "replace-one"
    with pytest.raises(ValueError, match="accountant"):
        claim(Poisson(0.1, 7), noise_multiplier=1.0, delta=DELTA, rounds_known=True, accountant="pld")


@pytest.mark.parametrize("family", ["transform", "sphere"])
def test_the_two_nulls_fill_the_table_differently(linear_run, family):
    run = linear_run(
        family, Periods(2), rounds=4, noise=1.0, seed=1, dim=1000, pool=30, spare=100, kinds=("mean", "total_change")
    )
    for view in (FinalModel(), EveryRelease(), KnownRounds()):
        law, unused = run.scores(view), run.scores(view, "empirical")
        assert law.null is not None and law.assignment == "coins" and law.value.size == 30
        assert unused.null is None and unused.assignment == "fixed" and unused.value.size == 130
        assert unused.labels["canary"].tolist() == list(range(130)) and not unused.inserted[30:].any()
        assert (law.inserted == run.schedule.inserted).all() and law.dim == 1000 and law.view == view.key
        with pytest.raises(AssignmentError):  # unused directions had no coin
            bound_one_run(unused, delta=DELTA)


def test_the_laws(linear_run):
    runs = {
        family: linear_run(
            family, Once(), rounds=3, noise=1.0, seed=1, dim=1000, pool=30, spare=100, kinds=("mean", "total_change")
        )
        for family in ("transform", "sphere")
    }
    sphere, transform = runs["sphere"], runs["transform"]
    assert sphere.scores(FinalModel()).null == sphere.scores(KnownRounds()).null == CosineNull(1000)
    assert sphere.scores(EveryRelease()).null == MaxNull(CosineNull(1000), 3)
    slack = math.log(3.18)
    assert transform.scores(EveryRelease()).null == MaxNull(GaussianNull(1000**-0.5, slack=slack), 3)
    assert transform.scores(KnownRounds()).null == GaussianNull(slack=slack)
    seen, inserted = transform.seen["total_change"], transform.schedule.inserted
    rest = seen.norm[0] ** 2 - (seen.inner[0, :30][inserted] ** 2).sum()
    expected = math.sqrt(rest / (1000 - inserted.sum())) / seen.norm[0]
    final = transform.scores(FinalModel()).null
    assert final.spread == approx(expected) and final == GaussianNull(final.spread, slack=slack)


def test_a_measured_spread_widens_both_sides_of_the_law():
    known, measured = GaussianNull(2.0), GaussianNull(2.0, directions=500)
    assert (measured.logsf([-3.0, -0.5, 0.5, 9.0]) > known.logsf([-3.0, -0.5, 0.5, 9.0])).all()
    assert measured.logsf(0.0) == known.logsf(0.0) and known.widening == 1.0
    assert measured.widening == approx(1 + 3.89 / math.sqrt(1000), rel=0.02)
    assert "500 unused directions" in measured.name
    for law in (known, measured, MaxNull(measured, 5)):
        assert described(describe(law)) == law
    assert measured_on(MaxNull(measured, 5)) == 500 and measured_on(CosineNull(5)) is measured_on(None) is None
    with pytest.raises(ValueError, match="directions"):
        GaussianNull(directions=1)
    values = np.random.default_rng(0).normal(8.0, 2.0, 400)
    sharp, wide = (estimate_gaussian(Scores.of(values, null=law), delta=DELTA) for law in (known, measured))
    assert wide.epsilon == sharp.epsilon and wide.low < sharp.low and wide.high > sharp.high
    result = audit_scores(Scores.of(values, null=measured), delta=DELTA)
    assert result.design.directions == 500 and "500 unused directions" in str(result)
    assert (
        bound_band(Scores.of(values, null=measured), delta=DELTA).epsilon
        < bound_band(Scores.of(values, null=known), delta=DELTA).epsilon
    )


@pytest.mark.parametrize("null", ["theory", "empirical"])
def test_a_maximum_is_known_as_one_whatever_its_null(linear_run, null):
    scores = linear_run("sphere", Once(), rounds=3, noise=0.3, seed=1, dim=1000, pool=40, spare=100).scores(
        EveryRelease(), null
    )
    assert scores.maximum and not replace(scores, null=CosineNull(1000), combined="sum").maximum
    with pytest.raises(AuditError, match="maximum"):
        estimate_gaussian(scores, delta=DELTA)
    with pytest.raises(AuditError, match="maximum"):
        bound_anytime(scores, delta=DELTA)
    fitted = estimate_gaussian(scores, delta=DELTA, variance="fitted")
    assert any(flag.startswith("maximum:") for flag in fitted.flags)
    result = audit_scores(scores, delta=DELTA)
    assert result.estimates == () and any("maximum" in caveat for caveat in result.caveats)


def test_the_null_is_chosen_by_the_claim():
    assert [choose_null(value) for value in (0.0, 7.99, 8.0, math.inf)] == ["empirical", "empirical", "theory", "theory"]
    with pytest.raises(ValueError, match="NaN"):
        choose_null(math.nan)


def test_what_does_not_belong_together_is_refused(linear_run):
    run = linear_run("transform", Once(), rounds=3, noise=1.0, seed=1, dim=1000, pool=30, spare=50)
    seen, taking_part, canaries = run.seen["mean"], run.schedule, run.canaries
    with pytest.raises(MismatchError, match="'residual'"):
        KnownOthers().scores(seen, taking_part, canaries)
    with pytest.raises(MismatchError, match="one run"):
        KnownRounds().scores(seen, schedule(Once(), pool=29, rounds=3), canaries)
    with pytest.raises(MismatchError, match="rounds"):
        KnownRounds().scores(seen, schedule(Once(), rounds=2), canaries)
    with pytest.raises(MismatchError, match="one vector"):
        FinalModel().scores(replace(seen, kind="total_change"), taking_part, canaries)
    with pytest.raises(ValueError, match="null='exact'"):
        KnownRounds().scores(seen, taking_part, canaries, null="exact")
    broken = seen.inner.copy()
    broken[2, 7] = np.nan
    with pytest.raises(NonFiniteError, match="round 2"):
        EveryRelease().scores(replace(seen, inner=broken), taking_part, canaries)
    with pytest.raises(MismatchError, match="'mean' or 'residual'"):
        anytime_scores(replace(seen, kind="step"), taking_part, canaries)


def test_several_rounds_have_no_law_without_unused_directions(linear_run):
    run = linear_run("sphere", Periods(2), rounds=4, noise=1.0, seed=1, dim=1000, pool=30, spare=0)
    with pytest.raises(NotEnoughCanariesError, match="unused directions"):
        run.scores(KnownRounds())
    assert run.scores(KnownRounds(), "empirical").value.size == 30  # the pool's own held-out canaries


def test_a_vector_of_zeros_has_cosine_zero(linear_run):
    run = linear_run(
        "transform",
        Once(),
        rounds=1,
        noise=0.0,
        seed=1,
        dim=1000,
        pool=20,
        effect=0.0,
        spare=50,
        kinds=("mean", "total_change"),
    )
    for view in (FinalModel(), EveryRelease(), KnownRounds()):
        for null in ("theory", "empirical"):
            assert (run.scores(view, null).value == 0).all()
    assert (anytime_scores(run.seen["mean"], run.schedule, run.canaries) == 0).all()


@pytest.mark.parametrize("family", ["transform", "sphere"])
@pytest.mark.parametrize(
    "pattern", [Once(), Periods(2), Poisson(rate=0.3, rounds=4)], ids=lambda pattern: type(pattern).__name__
)
def test_without_noise_the_separation_is_huge_and_nothing_breaks(linear_run, family, pattern):
    """Warnings are errors in these tests."""
    run = linear_run(family, pattern, rounds=4, noise=0.0, seed=1, dim=4000, pool=30, spare=300, kinds=("residual",))
    scores = run.scores(KnownOthers())
    assert np.isfinite(scores.value).all()
    assert scores.inserted_values.min() / scores.null.spread > 8
    assert bound_band(scores, delta=DELTA).epsilon > 20


@pytest.mark.parametrize("family", ["transform", "sphere"])
def test_one_round_and_one_canary(linear_run, family):
    seed = next(seed for seed in range(9) if Schedule.draw(Once(), pool=1, rounds=1, secret_seed=seed).inserted[0])
    run = linear_run(
        family, Once(), rounds=1, noise=0.1, seed=seed, dim=1000, pool=1, spare=50, kinds=("mean", "residual", "total_change")
    )
    for view in (FinalModel(), EveryRelease(), KnownRounds(), KnownOthers()):
        assert run.scores(view).value.shape == (1,) and run.scores(view, "empirical").value.shape == (51,)
    other = next(seed for seed in range(9) if not Schedule.draw(Once(), pool=1, rounds=1, secret_seed=seed).inserted[0])
    with pytest.raises(NotEnoughCanariesError, match="was inserted"):
        linear_run(family, Once(), rounds=1, noise=0.1, seed=other, dim=1000, pool=1, spare=50).scores(KnownRounds())


def test_canaries_without_a_round_are_left_out_where_rounds_are_known(linear_run):
    run = linear_run("transform", Poisson(rate=0.2, rounds=4), rounds=4, noise=1.0, seed=1, dim=1000, pool=60, spare=100)
    somewhere = np.flatnonzero(run.schedule.times > 0)
    assert 0 < somewhere.size < 60
    assert run.scores(KnownRounds()).labels["canary"].tolist() == somewhere.tolist()
    assert run.scores(EveryRelease()).value.size == 60
    nowhere = replace(run.schedule, assigned=tuple(np.empty(0, dtype=np.int64) for _ in range(4)))
    with pytest.raises(NotEnoughCanariesError, match="any of these rounds"):
        KnownRounds().scores(run.seen["mean"], nowhere, run.canaries)


def test_the_largest_cosine_by_hand():
    canaries = TransformCanaries(1000, 2, secret_seed=1)
    taking_part = Schedule(Once(), 2, (np.array([0]), np.array([1]), np.array([], dtype=np.int64)), np.array([True, False]))
    vectors = [canaries.update(0) * 3 + canaries.update(1) * 4, -canaries.update(0), np.zeros(1000, dtype=np.float32)]
    rows = [project_row(canaries, vector) for vector in vectors]
    seen = stack(rows, kind="mean", rounds=[0, 1, 2], amplitude=1.0, pool=2, dim=1000)
    assert EveryRelease().scores(seen, taking_part, canaries).value == approx([0.6, 0.8], abs=1e-5)
    assert EveryRelease().scores(replace(seen, inner=-seen.inner), taking_part, canaries).value == approx([1.0, 0.0], abs=1e-5)


def test_a_group_limits_what_is_seen():
    canaries, unused, place = SphereCanaries(1200, 5, secret_seed=1), TransformCanaries(1200, 7, secret_seed=2), slice(100, 700)
    vector = np.random.default_rng(0).standard_normal(1200)
    norm_in_group = norms_in_group(canaries, place, unused=unused)
    seen = project_row(canaries, vector, unused=unused, group=place, norm_in_group=norm_in_group)
    assert seen.norm == approx(np.linalg.norm(vector[place]), rel=1e-12) and seen.inner.shape == (12,)
    inside = canaries.update(3).astype(float)[place]
    assert seen.inner[3] == approx(inside @ vector[place] / np.linalg.norm(inside), rel=1e-4)
    with pytest.raises(ValueError, match="belong together"):
        project_row(canaries, vector, group=place)
    with pytest.raises(ValueError, match="one entry per direction"):
        project_row(canaries, vector, group=place, norm_in_group=norm_in_group)
    taking_part = Schedule(Once(), 5, (np.arange(5),), np.array([True, False, True, False, True]))
    rows = stack([seen], kind="mean", rounds=[0], amplitude=1.0, pool=5, dim=600, group="layer", norm_in_group=norm_in_group)
    scores = KnownRounds().scores(rows, taking_part, canaries)
    assert (scores.view, scores.layer) == ("known-rounds", "layer") and scores.null == CosineNull(600) and scores.dim == 600
    assert scores.value == approx(seen.inner[:5] / seen.norm)


def test_layers_below_500_parameters_are_not_judged():
    layers = {"a": slice(0, 499), "b": slice(499, 999), "c": slice(999, 5000)}
    assert list(groups_of(layers)) == ["b", "c"] and list(groups_of(layers, least=400)) == ["a", "b", "c"]


def test_rows_that_do_not_fit_are_refused():
    canaries = TransformCanaries(1000, 3, secret_seed=1)
    vector = np.ones(1000)
    with pytest.raises(ValueError, match="same columns"):
        stack(
            [project_row(canaries, vector), project_row(canaries, vector, spare=2)],
            kind="mean",
            rounds=[0, 1],
            amplitude=1.0,
            pool=3,
            dim=1000,
        )
    with pytest.raises(ValueError, match="one whole number"):
        stack([project_row(canaries, vector)], kind="mean", rounds=[0, 1], amplitude=1.0, pool=3, dim=1000)
    with pytest.raises(ValueError, match="kind"):
        stack([project_row(canaries, vector)], kind="median", rounds=[0], amplitude=1.0, pool=3, dim=1000)


@pytest.mark.parametrize("family", ["transform", "sphere"])
def test_running_scores_come_round_by_round(linear_run, family):
    run = linear_run(family, Periods(2), rounds=6, noise=0.5, seed=1, dim=2000, pool=60, spare=100)
    seen, taking_part = run.seen["mean"], run.schedule
    whole = anytime_scores(seen, taking_part, run.canaries)
    assert whole.size == taking_part.times[taking_part.inserted].sum()
    unused = TransformCanaries(2000, 100, secret_seed=1 + 10**6) if family == "sphere" else None
    parts = []
    for number, row in enumerate(seen.inner):
        found = type(project_row(run.canaries, np.ones(2000), unused=unused))(row, float(seen.norm[number]))
        parts.append(round_scores(found, taking_part, run.canaries, number))
    assert np.concatenate(parts) == approx(whole, rel=1e-12)
    assert abs(whole.mean() - 2.0) < 5 * whole.size**-0.5 + 0.1 and whole.std() < 1.3
    assert (np.diff(anytime_epsilons(whole, delta=DELTA)[20:]) > -0.5).all() and anytime_epsilons(whole, delta=DELTA)[-1] > 0


def test_patterns_that_coincide_are_filtered_once():
    presence = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0]], dtype=bool)
    found = matched_filter.Patterns.among(presence, np.array([1.0, 2.0, 3.0]))
    assert found.signals.shape == (3, 3)
    assert found.signals[:, found.of].tolist() == (presence * np.array([[1.0], [2.0], [3.0]])).tolist()


def test_every_view_is_listed_and_says_what_it_sees():
    assert {kind.needs for kind in VIEWS.values()} == {"total_change", "mean", "residual", "model", "step", "whitened", "ratio"}
    assert all(kind.key == key and kind.adversary for key, kind in VIEWS.items())
    assert WholeModel().needs == "model" and EveryStep().needs == "step"
    assert len({view.key for view in ALL}) == len(ALL)


@pytest.mark.parametrize("size", [2**16, 2**16 + 1, 99_991, 2**18 + 24])
def test_the_norm_in_pieces_is_that_of_the_whole_to_the_last_bit(size):
    vector = np.random.default_rng(size).standard_normal(size)
    seen = project_row(TransformCanaries(size, 1, secret_seed=1), vector)
    assert seen.norm == np.sqrt(np.square(vector).sum())
