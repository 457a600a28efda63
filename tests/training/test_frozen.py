"""Frozen rounds: no leakage gives no bound, full leakage gives the claim, too little noise is seen, nothing else changes."""

import json
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

import coalmine
from coalmine._random import stream
from coalmine.canaries.crafted.likelihood import along
from coalmine.mechanisms import Gaussian
from coalmine.training import run
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config
from coalmine.training.crafting import Measuring, craft, design_for, how_of, measure, ratio_directions
from coalmine.training.frozen import Frozen
from coalmine.training.mock_clients import mock_clients

FALSE_ALARM = 1e-6
CONFIG = read_config("tiny")


@dataclass(frozen=True)
class HalfNoise(Gaussian):
    """Says one thing and adds half of it."""

    @property
    def update_noise_multiplier(self):
        return self.noise_multiplier / 2


@pytest.fixture(scope="module")
def frozen():
    """64 canaries for the first model of the tiny preset."""
    task = load_task(CONFIG)
    job = federation(CONFIG, task, 5)
    state, users = job.start(), list(job.data.users)
    crafted = coalmine.design_canaries(
        job.model,
        state["parameters"],
        job.training,
        [job.data.examples_of(user) for user in users[:30]],
        count=64,
        clip_norm=1.0,
        noise_multiplier=0.5,
        cohort_size=24,
        options=coalmine.Crafting(iterations=120),
        streams=partial(stream, 5, "design"),
    )
    return Frozen(job, state, crafted, 3, frozenset(users[:30]))


def secret(frozen, seed):
    return replace(frozen, federation=replace(frozen.federation, secret=partial(stream, seed)))


def test_without_insertion_bounds_are_zero_at_the_promised_rate(frozen):
    audits = 60
    above = sum(
        coalmine.bound_band(secret(frozen, seed).scores(1, insert=False), delta=1e-5).epsilon > 0 for seed in range(audits)
    )
    assert above <= stats.binom.isf(FALSE_ALARM, audits, 0.05)


def test_unknown_others_without_insertion(frozen):
    alone = replace(frozen, crafted=one_of(frozen.crafted))
    rows = secret(alone, 0)
    audits = 40
    above = 0
    for seed in range(audits):
        again = secret(rows, seed)
        again.__dict__["projections"] = rows.projections  # they do not depend on the secret
        above += coalmine.bound_band(again.scores(60, others="unknown", insert=False), delta=1e-5).epsilon > 0
    assert above <= stats.binom.isf(FALSE_ALARM, audits, 0.05)


def one_of(crafted):
    return replace(crafted, samples=crafted.samples[:1], updates=crafted.updates[:1])


def test_intervals_hold_the_claim_of_one_round(frozen):
    true = float(coalmine.gaussian_epsilon(0, 1, 2, 1, 1e-5))
    audits = 40
    missed = 0
    for seed in range(audits):
        found = coalmine.estimate_gaussian(secret(frozen, seed).scores(2), delta=1e-5)
        missed += not found.low <= true <= found.high
    assert missed <= stats.binom.isf(FALSE_ALARM, audits, 0.05)


def test_half_the_noise_is_seen_since_its_scale_is_measured(frozen):
    claimed = float(coalmine.gaussian_epsilon(0, 1, 2, 1, 1e-5))
    half = replace(frozen, federation=replace(frozen.federation, mechanism=HalfNoise(1.0, 0.5)))
    assert coalmine.bound_band(half.scores(8), delta=1e-5).epsilon > claimed
    assert coalmine.bound_band(frozen.scores(8), delta=1e-5).epsilon < claimed


def test_replicates_have_coins_noise_and_labels_of_their_own(frozen):
    scores = frozen.scores(3)
    table = scores.value.reshape(3, -1)
    assert not np.isclose(table[0], table[1]).any()
    assert len({tuple(row) for row in scores.inserted.reshape(3, -1)}) == 3
    assert scores.labels["replicate"].max() == 2
    assert set(scores.labels["round"]) == {3}
    assert scores.sha256 == frozen.scores(3).sha256


def test_unknown_others_are_for_one_canary(frozen):
    with pytest.raises(ValueError, match="one canary"):
        frozen.scores(2, others="unknown")


def test_rows_of_one_canary_are_evidence_only_as_replicates_with_coins():
    labels = {"canary": [0, 0, 1, 1], "round": [0] * 4, "replicate": [0, 1, 0, 1]}
    about = {"value": [2.0, 1.0, 0.0, 0.1], "inserted": np.array([True, True, False, False]), "labels": labels}
    assert coalmine.bound_band(coalmine.Scores(**about, assignment="coins"), delta=1e-5).epsilon >= 0
    with pytest.raises(coalmine.errors.AuditError, match="one number per canary"):
        coalmine.bound_band(coalmine.Scores(**about, assignment="fixed"), delta=1e-5)


def test_measured_rounds_do_not_change_the_model(tmp_path, called):
    changes = ["participation.rounds=4", "participation.epochs=1", "run.workers=1", "run.evaluate_every=0"]
    plain = run(read_config("tiny", changes), tmp_path / "plain", secret_seed=3, quiet=True)
    crafting = ["mode=frozen", "every=2", "pool=20", "canaries=16", "options={iterations=20}"]
    more = [*changes, "run.keep_every=2", *(f"crafting.{each}" for each in crafting)]
    measured = run(read_config("tiny", more), tmp_path / "measured", secret_seed=3, quiet=True)
    assert plain.training["model_sha256"] == measured.training["model_sha256"]
    stored = json.loads((tmp_path / "measured" / "crafted-000002.json").read_text())
    again = craft(tmp_path / "measured", number=2)
    assert stored["scores_sha256"] == again["scores_sha256"]
    assert stored["confidence"] == pytest.approx(0.975)  # two measured rounds
    assert again["confidence"] == pytest.approx(0.95)
    with pytest.raises(coalmine.errors.RunDirectoryError, match="before 2, 4"):
        craft(tmp_path / "measured", number=1)
    said = called("craft", "measured", "--round", 2, "--json", folder=tmp_path)
    assert json.loads(said.stdout)["scores_sha256"] == again["scores_sha256"] and "designing 16 canaries" in said.stderr
    (tmp_path / "measured" / "result.json").write_text("{}")
    with pytest.raises(coalmine.errors.RunDirectoryError, match="is damaged"):
        craft(tmp_path / "measured", number=2)


def test_a_pool_needs_users():
    job = federation(CONFIG, load_task(CONFIG), 5)
    with pytest.raises(ValueError, match=r"crafting\.pool"):
        measure(job, job.start(), 0, Measuring(pool=1000), delta=1e-5, confidence=0.95, unit="client")


def test_a_likelihood_ratio_looks_along_the_inverse_covariance():
    """Oracle: the whole matrix."""
    rng = stream(1, "rows of a test")
    rows, unit = rng.standard_normal((7, 30)) * 0.3, rng.standard_normal(30)
    unit /= np.linalg.norm(unit)
    found = along(unit, rows, noise=0.4, cohort=20.0)
    direct = np.linalg.solve(0.16 * np.eye(30) + 20 / 7 * rows.T @ rows, unit)
    assert found == pytest.approx(direct / np.linalg.norm(direct), abs=1e-12)

    def visibility(looking):
        return looking @ unit / np.sqrt(0.16 + 20 * np.mean((rows @ looking) ** 2))

    assert visibility(found) > 1.2 * visibility(unit)  # it is the best there is for these clients


def test_a_likelihood_ratio_is_a_score_of_unknown_others():
    asked = ["mode=frozen", "others=unknown", "canaries=1", "draws=16", "pool=40", "options={iterations=1}"]
    told = read_config("tiny", [f"crafting.{each}" for each in [*asked, "score=likelihood-ratio"]])
    job = federation(told, load_task(told), 5)
    state, how, mock = job.start(), how_of(told, job), mock_clients(job, 40)
    crafted = design_for(job, state, 0, how, mock)
    frozen = Frozen(job, state, crafted, 0, mock.users, ratio_directions(job, state, 0, how, crafted, mock))
    table, plain = frozen.scores(16, others="unknown"), replace(frozen, along=None).scores(16, others="unknown")
    assert table.null is None and "likelihood" in table.statistic and "likelihood" not in plain.statistic
    assert (table.inserted == plain.inserted).all() and not np.allclose(table.value, plain.value)
    clients = frozen.projections[frozen.cohort(0)].sum() * 2  # noise multiplier 0.5
    noise = frozen.looking.project(frozen.draw(0, table.inserted[:1]))[0] * 2
    scale = table.value[0] / (clients + noise + 2 * frozen.shown[0, 0] * table.inserted[0])
    assert scale == pytest.approx(1.0, abs=0.05)  # the noise is measured, and not quite 0.5
    with pytest.raises(ValueError, match="unknown"):
        frozen.scores(2, others="known")


def noise_of(frozen, seed, mechanism, draws=1):
    job = replace(frozen.federation, secret=partial(stream, seed), mechanism=mechanism)
    return replace(frozen, federation=job).measured(draws)[1]


def test_noise_that_is_right_is_rarely_found_too_small(frozen):
    """At the level of all tests of a description; and no deviation of it passes unseen where bounds cannot tell."""
    audits = 60
    found = [noise_of(frozen, seed, Gaussian(1.0, 1.0)) for seed in range(audits)]
    assert sum(each.deviates for each in found) <= stats.binom.isf(FALSE_ALARM, audits, 0.001)
    chances = np.array([each.p_value for each in found])
    assert stats.kstest(chances, "uniform").pvalue > FALSE_ALARM
    weak = noise_of(frozen, 0, HalfNoise(1.0, 1.0))
    assert weak.side == "less" and weak.measured == pytest.approx(0.5, rel=0.1) and weak.claimed == 1.0


def test_craft_says_that_the_noise_is_less_than_claimed_where_its_bound_cannot(tmp_path, monkeypatch):
    """At noise multiplier 1 a few scores do not convict half of the noise; the command must not call that uncontradicted."""
    from typer.testing import CliRunner

    from coalmine.cli import app
    from coalmine.training import crafting

    once = ["participation.rounds=2", "participation.epochs=1", "run.workers=1"]
    told = read_config("tiny", [*once, "mechanism.noise_multiplier=1"])
    run(told, tmp_path / "run", secret_seed=1, quiet=True)
    ask = ["craft", str(tmp_path / "run"), "--canaries", "16"]
    assert CliRunner().invoke(app, ask).exit_code == 0
    right = crafting.federation
    monkeypatch.setattr(crafting, "federation", lambda *about: replace(right(*about), mechanism=HalfNoise(1.0, 1.0)))
    shown = CliRunner().invoke(app, ask)
    assert shown.exit_code == 1 and "not contradicted" not in shown.output
    assert "DEVIATES: found false: the noise has the standard deviation that was claimed" in shown.output


def test_clients_trained_many_at_once_add_what_they_add_alone(frozen):
    users = list(frozen.users[:40])
    alone = np.stack([frozen.crafted.directions.project(frozen.trained([user]).without_noise()) for user in users])
    assert frozen.projections_of(users) == pytest.approx(alone, abs=1e-6)  # the sum is in steps, the clip norm is 1
    place = frozen.crafted.median
    one = frozen.projections_of(users, coalmine.CraftedCanaries(frozen.crafted.updates[place]))
    assert one[:, 0] == pytest.approx(alone[:, place], abs=1e-6)
    assert np.count_nonzero(frozen.crafted.metrics["visibility"] < frozen.crafted.metrics["visibility"][place]) <= 32  # of 64
