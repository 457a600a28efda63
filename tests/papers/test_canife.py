"""CANIFE's experiments: what an attack reads off its scores, the law of these scores, and the rules of the verdicts."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pytest import approx
from scipy import stats

from coalmine._random import stream
from coalmine.papers.canife import attack as attacking
from coalmine.papers.canife import canife_figure4, canife_figure9, drawings
from coalmine.papers.canife.attack import Attack, at_threshold, designed, draw, mean_of, perform, read
from coalmine.papers.canife.families import WRITERS, noises
from coalmine.papers.canife.grounds import RECIPES, Ground, Kept, Where, ground
from coalmine.papers.canife.monitoring import Monitored, composed, monitor
from coalmine.papers.canife.tasks import EPSILONS
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.registry import EXPERIMENTS
from coalmine.report.style import svg
from coalmine.scores import Scores
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config

pytestmark = pytest.mark.usefixtures("one_thread")
FALSE_ALARM = 1e-6
HERE = Where("toy", "", None, 0, True)
NOISE = 0.4


@pytest.fixture(scope="module")
def digits():
    """The bundled digits, an untrained network, and who is who."""
    config = read_config("tiny", ["canaries.pool=0"])
    job = federation(config, load_task(config), 1)
    users = tuple(job.data.users)
    return Ground(job, job.initial, None, users[:20], users[20:80])


@pytest.fixture
def on_digits(digits, monkeypatch):
    monkeypatch.setitem(RECIPES, "toy", replace(RECIPES["fashion"], steps=7))
    monkeypatch.setattr(attacking, "ground", lambda where: digits)


def test_steps_without_single_gradients():
    """One step is the sum of clipped single updates, by the trainer's own gradients; the next one has momentum."""
    from coalmine.clients import LocalTraining, Trainer
    from coalmine.data.dataset import Examples
    from coalmine.models import mlp
    from coalmine.training.clipped_steps import clipped_steps

    model, rng = mlp(shape=6, classes=3, hidden=(5,)), stream(0, "toy")
    examples = Examples(rng.random((8, 6), np.float32) * 3, rng.integers(0, 3, 8))
    told = {"batch": 4, "steps": 2, "clip_norm": 0.7, "noise_multiplier": 0.0, "learning_rate": 0.5, "momentum": 0.9}
    found = [each.copy() for _, each in clipped_steps(model, model.initial(1), examples, np.arange(8)[::-1], rng=rng, **told)]
    now, speed = model.initial(1), np.zeros(model.dim)
    for place in (slice(4, 8), slice(0, 4)):
        part = Examples(examples.features[place], examples.targets[place])
        rows = Trainer(model, LocalTraining(learning_rate=1.0)).single_updates(now, part)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True) / 0.7, 1)
        speed = 0.9 * speed + rows.sum(0) / 4
        now = now + 0.5 * speed
        assert found.pop(0) == approx(now, abs=1e-6)
    noisy = next(clipped_steps(model, model.initial(1), examples, np.arange(8), rng=rng, **{**told, "noise_multiplier": 1e3}))[
        1
    ]
    assert np.std(noisy) == approx(0.5 * 0.7e3 / 4, rel=0.5)  # 73 parameters


def test_pinned_names():
    figures = {f"canife-figure{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9)}
    assert figures | {"canife-table-perfect", "canife-table1", "canife-time", "canife-pools", "table6"} <= set(EXPERIMENTS)
    assert "canife-runs" in EXPERIMENTS["table6"].parts


def test_an_attack_is_read_by_hand():
    """Ten scores of each kind, one error of each: both rates are 0.1, delta is 0.05."""
    with_it, without = [*range(10, 19), -9.5], [*range(-9, 0), 15.5]
    found = read(Scores.of(with_it, without))
    assert found["accuracy"] == approx(0.9) and found["epsilon"] == approx(np.log((1 - 0.05 - 0.1) / 0.1))
    assert found["spread"] == approx((np.std(with_it) + np.std(without)) / 2)
    assert not found["infinite"] and found["low"] < found["epsilon"] < found["high"]
    apart = read(Scores.of([1.0] * 10, [0.0] * 10))
    assert apart["infinite"] and apart["epsilon"] == approx(np.log(0.85 / 0.1))  # the largest finite value


def test_a_threshold_from_elsewhere_is_no_better_than_the_best():
    scores = Scores.of([*range(10, 19), -9.5], [*range(-9, 0), 15.5])
    assert at_threshold(scores, 5.0) == approx(np.log(0.85 / 0.1))
    assert at_threshold(scores, 100.0) == 0.0  # nothing is ever told
    assert at_threshold(scores, 16.5) == approx(np.log((0.95 - 0.8) / 0.1))  # no false alarm counts as one


def test_outcomes_are_kept_by_all_that_they_depend_on(tmp_path, on_digits):
    one = Attack(HERE, 10, 20)
    assert one.file != replace(one, noise=0.1).file != replace(one, options={"iterations": 3}).file
    moved = replace(one, where=replace(HERE, folder=str(tmp_path)))
    assert moved.file.name == one.file.name and moved.file.parent == tmp_path
    kept = Kept("run", "", "model", "config", 7, 0, 20, 60)
    assert Attack(kept, 10, 20).file != Attack(replace(kept, steps=8), 10, 20).file


def test_other_models_have_other_coins():
    kept = Kept("run", "", "model", "config", 7, 0, 20, 60)
    places = [kept, replace(kept, steps=8), replace(kept, task="another"), replace(kept, seed=1)]
    coins = [stream(*Attack(where, 10, 20).names("draws")).random() for where in places]
    assert len({*coins, stream(*Attack(kept, 10, 20, number=1).names("draws")).random()}) == 5


def test_projections_are_those_of_clipped_updates(digits):
    from coalmine.clients import Trainer

    direction = stream(3, "direction").standard_normal(digits.job.model.dim).astype(np.float32)
    user = digits.others[5]
    order = [stream(digits.job.seed, "order of examples", user)]
    (update,) = Trainer(digits.job.model, digits.job.training).updates(digits.parameters, digits.examples([user]), order)
    clipped = update.vector / max(np.linalg.norm(update.vector), digits.clip)
    assert digits.projections(direction)[5] == approx(float(clipped @ direction), abs=1e-5)
    assert digits.projections(direction, mock=4).shape == (4,)


def test_the_law_of_scores(digits, on_digits):
    """Held-out scores are the cohort's sum and noise, inserted ones are larger by the reach: means and variance, fixed seed."""
    attack = Attack(HERE, 12, 20, NOISE, {"iterations": 30}, draws=400)
    crafted = designed(digits, attack)
    x = digits.projections(crafted.directions.update(0))
    scores = draw(digits, crafted, attack, x)
    mean, spread = attack.cohort * x.mean(), np.sqrt(NOISE**2 + attack.cohort * x.var())
    reach = float(crafted.metrics["reach"][0])
    for values, centre in ((scores.held_out_values, mean), (scores.inserted_values, mean + reach)):
        limit = stats.norm.isf(FALSE_ALARM / 2) / np.sqrt(values.size)
        assert values.mean() == approx(centre, abs=limit * spread)
        low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], values.size - 1) / (values.size - 1)
        assert low < values.var(ddof=1) / spread**2 < high


def test_an_attack_is_made_once(tmp_path, on_digits, monkeypatch):
    attack = Attack(replace(HERE, folder=str(tmp_path)), 12, 20, NOISE, {"iterations": 3}, known=True)
    found = perform(attack)
    assert 0 < found["efficiency"] <= 1 and found["calibrated"] >= 0 and found["known"]["low"] < found["known"]["high"]
    monkeypatch.setattr(attacking, "_performed", None)
    assert perform(attack) == found == json.loads(attack.file.read_text())


def test_noise_for_an_epsilon():
    found = noises(WRITERS)
    assert [WRITERS.training().composed_exactly(noise) for noise in found.values()] == approx(list(EPSILONS), rel=0.01)


def test_measured_rounds_of_private_trainings(tmp_path):
    """The bundled digits, two rounds of eight."""
    toy = Monitored("digits", "toy", "tiny", (), ("participation.rounds=8",), 180, 24, 8, 4, 20, 60, {"iterations": 3})
    ask = Ask(out=tmp_path)
    found = monitor(ask, toy, {"some": 0.5}, [0, 1])["some"]
    assert [len(rounds) for rounds in found] == [2, 2]
    assert found[0][0]["with"] != found[0][1]["with"] and found[0][0]["with"] != found[1][0]["with"]
    assert 0 < composed(toy.training(), found[0]) < 100
    assert monitor(ask, toy, {"some": 0.5}, [0])["some"] == found[:1]  # only read
    part = canife_figure4.judged(toy, 0.5, found[0])
    assert [row.place["column"] for row in part.rows] == ["round", "perfect", "gap", "known others", "health", "efficiency"]
    assert "<svg" in svg(canife_figure4.picture(toy, 0.5, found[0]))


def made(**values):
    return {"accuracy": 1.0, "health": 0.9, "reach": 1.0, "overlap": 0.1} | values


def test_verdicts_of_shapes_can_fail():
    good = {
        ("covariance", c): [made(accuracy=a, health=h)] for c, a, h in ((1.0, 1.0, 0.9), (300.0, 0.8, 0.9), (1000.0, 0.6, 0.2))
    }
    bad = {("covariance", c): [made()] for c in (1.0, 300.0, 1000.0)}
    verdicts = [[row.verdict for row in canife_figure9._shapes(found, (1.0, 300.0, 1000.0))] for found in (good, bad)]
    assert verdicts == [["same shape"] * 3, ["same shape", "differs", "differs"]]


def test_a_mean_and_its_error():
    assert mean_of([{"v": 1.0}, {"v": 3.0}], "v") == approx((2.0, 1.0))
    assert mean_of([{"v": 1.0}], "v") == (1.0, 0.0)


def test_pictures():
    line = drawings.Line([1, 10], [0.1, 0.2], [0.01, 0.02])
    found = drawings.lines({"one": {"a": line, "b": line._replace(dashed=True)}}, "across", log_x=True, log_y=True)
    assert "across" in svg(found)
    assert "with it" in svg(drawings.histograms({"scores": {"with": [1.0, 1.1], "without": [0.0, 0.1]}}))


@pytest.mark.parametrize("task", ["fashion"])
def test_a_checkpoint_is_made_once(task, tmp_path):
    import os

    if not os.environ.get("COALMINE_DATA"):
        pytest.skip("needs Fashion-MNIST: set COALMINE_DATA to the folder with the published files")
    where = Where.of(Ask(out=tmp_path), task)
    found = ground(where)
    ground.cache_clear()
    again = ground(where)
    assert found.accuracy is not None and found.accuracy > 0.2
    assert np.array_equal(found.parameters, again.parameters) and not set(found.mock) & set(found.others)
