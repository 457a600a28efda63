"""Views: canaries without effect rarely look like a leak, correct code is not accused, a layer without noise is found."""

from functools import cache

import pytest
from scipy.stats import binom

from coalmine import Once, Periods, Poisson, bound_band
from coalmine.accounting import plain_gaussian
from coalmine.audit.statements import audit_scores
from coalmine.canaries.schedule import Schedule
from coalmine.views import Afterwards, EveryRelease, FinalModel, KnownOthers, KnownRounds, UnknownRounds

FALSE_ALARM = 1e-4  # each of these tests fails for one seed in ten thousand; the seeds are fixed
DELTA = 1e-5
AUDITS = 60
FAMILIES = ("transform", "sphere")
VIEWS = (FinalModel(), EveryRelease(), KnownRounds(), KnownOthers(), Afterwards(), UnknownRounds())
SIZE = {"rounds": 4, "dim": 1500, "pool": 60, "spare": 150, "kinds": ("mean", "residual", "total_change")}
RUNS = {
    "once": {"pattern": Once()},
    "twice": {"pattern": Periods(2)},
    "poisson": {"pattern": Poisson(rate=0.4, rounds=4)},
    "reused noise": {"pattern": Periods(2), "reuse": True},  # the filter is not the plain sum, and its spread is measured
}


def allowed(audits, confidence=0.95):
    return int(binom.ppf(1 - FALSE_ALARM, audits, 1 - confidence))


@cache
def runs(simulate, family, name, effect, noise=1.0, clients=10.0):
    settings = {**SIZE, **RUNS[name], "noise": noise, "clients": clients, "effect": effect}
    return [simulate(family, seed=seed, **settings) for seed in range(AUDITS)]


@cache
def claimed(kind, pattern, noise):
    schedule = Schedule.draw(pattern, pool=1, rounds=getattr(pattern, "rounds", 32), secret_seed=0)
    return kind().claim(schedule, plain_gaussian(noise), delta=DELTA)


def claim_of(view, pattern, noise):
    """An accountant of sampling takes seconds: asked once for the views that know the rounds, once for the others."""
    return claimed(KnownRounds if view.knows_rounds else FinalModel, pattern, noise)


@pytest.mark.parametrize("null", ["theory", "empirical"])
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.key)
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("family", FAMILIES)
def test_canaries_without_effect_rarely_look_like_a_leak(linear_run, family, name, view, null):
    found = [bound_band(run.scores(view, null), delta=DELTA).epsilon for run in runs(linear_run, family, name, 0.0)]
    assert sum(epsilon > 0 for epsilon in found) <= allowed(AUDITS)


@pytest.mark.parametrize("null", ["theory", "empirical"])
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.key)
@pytest.mark.parametrize(("name", "noise"), [("once", 1.0), ("once", 0.3), ("twice", 1.0), ("poisson", 1.0)])
def test_correct_code_is_rarely_accused(linear_run, name, noise, view, null):
    audited = runs(linear_run, "transform", name, 1.0, noise)
    claim = claim_of(view, RUNS[name]["pattern"], noise)
    found = [bound_band(run.scores(view, null), delta=DELTA).epsilon for run in audited]
    assert sum(epsilon > claim.epsilon for epsilon in found) <= allowed(AUDITS)


@pytest.mark.parametrize("null", ["theory", "empirical"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pattern", [Periods(8), Poisson(rate=0.25, rounds=32)], ids=["8 times", "poisson"])
def test_a_correct_run_of_many_presentations_is_not_violated(linear_run, pattern, family, null):
    kinds = ("mean", "residual", "total_change")
    run = linear_run(family, pattern, rounds=32, noise=1.0, seed=1, clients=20.0, dim=2000, pool=100, spare=200, kinds=kinds)
    for view in VIEWS:
        claim = claim_of(view, pattern, 1.0)
        assert audit_scores(run.scores(view, null), delta=DELTA, claim=claim).verdict.word != "VIOLATED", view.key


LAYERS = {"first": slice(0, 800), "second": slice(800, 2000), "third": slice(2000, 3000)}


@pytest.mark.parametrize("view", [KnownRounds(), KnownOthers()], ids=lambda view: view.key)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_without_noise_is_found_and_the_others_are_not_accused(linear_run, family, view):
    """Once each, noise multiplier 1; each of the three layers is looked at with a third of the risk."""
    run = linear_run(
        family,
        Once(),
        rounds=10,
        noise=1.0,
        seed=2,
        dim=3000,
        clients=0.5,
        layers=LAYERS,
        silent=LAYERS["second"],
        kinds=(view.needs,),
    )
    claim = view.claim(run.schedule, plain_gaussian(1.0), delta=DELTA)
    for null in ("theory", "empirical"):
        bounds = {
            layer: bound_band(run.scores(view, null, layer), delta=DELTA, confidence=1 - 0.05 / 3).epsilon for layer in LAYERS
        }
        assert max(bounds["first"], bounds["third"]) < claim.epsilon
        if null == "theory":
            assert bounds["second"] > claim.epsilon
    assert bounds["second"] > max(bounds["first"], bounds["third"])


@pytest.mark.parametrize("null", ["theory", "empirical"])
@pytest.mark.parametrize("family", FAMILIES)
def test_layers_of_canaries_without_effect_rarely_look_like_a_leak(linear_run, family, null):
    """The trap: limited to a layer, rows of a transform are neither unit nor orthogonal."""
    size = {"rounds": 2, "noise": 1.0, "dim": 1500, "pool": 60, "spare": 200, "clients": 10.0, "effect": 0.0}
    alarms = 0
    for seed in range(AUDITS):
        run = linear_run(family, Once(), seed=seed, layers={"small": slice(300, 800)}, **size)
        alarms += bound_band(run.scores(KnownRounds(), null, "small"), delta=DELTA).epsilon > 0
    assert alarms <= allowed(AUDITS)
