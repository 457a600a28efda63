"""Crafted canaries in a run: same bits after an interruption, statements that decide, faults that only data canaries see."""

import json
import re
import shutil
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load, save
from scipy import stats

import coalmine
from coalmine._random import stream
from coalmine.accounting.rounds import one_round_epsilon
from coalmine.contracts.training_sentences import training_words
from coalmine.mechanisms import Gaussian
from coalmine.nulls import GaussianNull
from coalmine.report.page import report
from coalmine.scores import Scores
from coalmine.training import resume, run
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import parse_config, read_config, write_config
from coalmine.training.crafted_round import CraftedRound, by_law_or_held_out
from coalmine.training.crafted_run import CraftedRun
from coalmine.training.crafted_statements import MeasuredRound, whole_training
from coalmine.training.crafted_words import in_words
from coalmine.training.crafting import Measuring, craft, design_for, how_of
from coalmine.training.facts import counted
from coalmine.training.mock_clients import mock_clients
from coalmine.workers import Workers
from coalmine.zoo import BUGS, SETTINGS, audit_once
from coalmine.zoo._kept import KeepingFederation

FALSE_ALARM = 1e-6
SMALL = ["participation.rounds=4", "participation.epochs=1", "run.workers=1", "run.evaluate_every=0", "crafting.every=2"]
SMALL += [
    "run.keep_every=3",
    "crafting.pool=20",
    "crafting.canaries=16",
    "crafting.draws=2",
    "crafting.options={iterations=20}",
]


def config(*changes, preset="tiny"):
    return read_config(preset, [*SMALL, *(f"crafting.{each}" for each in changes)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run of each mode, and where it is."""
    places = {mode: tmp_path_factory.mktemp(mode) / "run" for mode in ("frozen", "running")}
    return {
        mode: (run(config(f"mode={mode}", "pool_public=true"), place, secret_seed=3, quiet=True), place)
        for mode, place in places.items()
    }


@pytest.mark.parametrize("mode", ["frozen", "running"])
def test_an_interrupted_run_ends_with_the_same_bits(mode, finished, tmp_path, monkeypatch):
    right, whole = finished[mode]
    after = CraftedRun.after

    def killed(self, done):
        after(self, done)
        if done.number == 1:
            raise KeyboardInterrupt  # the files of the measured round are there, the checkpoint is not

    with monkeypatch.context() as patched:
        patched.setattr(CraftedRun, "after", killed)
        with pytest.raises(KeyboardInterrupt):
            run(config(f"mode={mode}", "pool_public=true"), tmp_path / "run", secret_seed=3, quiet=True)
    again = resume(tmp_path / "run", quiet=True)
    assert again.result.to_json() == right.result.to_json()
    for path in sorted(whole.glob("crafted-*")):
        assert (tmp_path / "run" / path.name).read_bytes() == path.read_bytes(), path.name
    assert len(list(whole.glob("crafted-*.json"))) == 2


def test_running_rounds_have_canaries_among_their_clients(finished):
    """The same seeds with and without: rounds are equal until the first canaries join, and the model is not."""
    events = {
        mode: [json.loads(line) for line in (place / "events.jsonl").read_text().splitlines()]
        for mode, (_, place) in finished.items()
    }
    assert events["frozen"][0]["release_norm"] == events["running"][0]["release_norm"]
    assert events["frozen"][1]["release_norm"] != events["running"][1]["release_norm"]
    assert events["running"][1]["denominator"] == events["running"][0]["denominator"] + 8  # half of 16
    assert events["running"][1]["clients"] == events["frozen"][1]["clients"]


@pytest.mark.parametrize("mode", ["frozen", "running"])
def test_all_statements_are_in_the_result(mode, finished):
    result = finished[mode][0].result
    crafted = result.training["crafted"]
    view = next(each for each in result.views if each.view == "crafted-canaries")
    assert view.claim.epsilon == pytest.approx(float(coalmine.gaussian_epsilon(0, 1, 2, 1, 1e-5)))
    assert view.bound.valid and view.estimate.low < view.claim.epsilon < view.estimate.high
    assert result.bound.confidence == pytest.approx(0.975)  # two statements decide
    for each in crafted["rounds"]:
        assert 0 <= each["held_out_bound"]["epsilon"] <= each["held_out_bound"]["ceiling"] < each["claim"]  # of 16 or 32 scores
        assert each["bound"]["valid"] and each["confidence"] == pytest.approx(0.975)  # two rounds were measured
        assert each["printed"]["note"].endswith("not a bound")
        assert each["printed"]["perfect_canary"]["epsilon"] <= each["printed"]["ceiling"]
        assert each["noise"]["measured"] == pytest.approx(0.5, rel=0.1)
        assert (each["computed"] is None) == (mode == "running")
    assert crafted["composed"]["printed"]["note"].endswith("not a bound")
    assert ("frozen_draws" in crafted) == (mode == "frozen")
    words = training_words(result.training)
    assert "a perfect canary would show" in words["as printed"]
    assert "Crafted canaries, round by round" in report(result)


def test_a_result_that_somebody_edited_still_has_a_page(finished):
    result = finished["frozen"][0].result
    broken = {**result.training, "crafted": {"rounds": [{}], "mode": 3}}
    assert "Crafted canaries, round by round" not in report(replace(result, training=broken))


@dataclass(frozen=True)
class HalfNoise(Gaussian):
    """Says one thing and adds half of it."""

    @property
    def update_noise_multiplier(self):
        return self.noise_multiplier / 2


def crafted_round(mechanism=None, count=24):
    job = federation(config("mode=running"), load_task(config("mode=running")), 5, mechanism)
    state = job.start()
    crafted = design_for(job, state, 0, Measuring(count, options=coalmine.Crafting(iterations=40)), mock_clients(job, 20))
    return CraftedRound(job, state, crafted, 0)


def one_round(here, seed, joined, coins, kind=None):
    """Scores of one round under another secret, with these canaries among its clients."""
    job = replace(here.federation, secret=partial(stream, seed), guests_at=lambda number, state: here.guests(joined))
    job = job if kind is None else kind(**job.__dict__)
    with Workers(1, job.work()) as workers:
        done = next(job.rounds_from(0, here.state, workers))
    row = here.row(coins & joined, (done.guests + done.noise - here.known(joined)) / here.public.clip_norm)
    return here.table([replace(row, coins=coins)], [row.values], "client", known=True)


def test_running_scores_without_leakage_are_above_zero_at_the_promised_rate():
    """All canaries join and their own parts are taken off, so that nothing but noise is left, whatever the coins say."""
    here, audits, above = crafted_round(), 40, 0
    everybody = np.ones(here.count, bool)
    for seed in range(audits):
        coins = stream(seed, "coins of a test").random(here.count) < 0.5
        row = one_round(here, seed, everybody, coins)
        value = row.value - np.diagonal(here.inverse @ here.own) * coins / 0.5
        above += coalmine.bound_band(replace(row, value=value), delta=1e-5).epsilon > 0
    assert above <= stats.binom.isf(FALSE_ALARM, audits, 0.05)


@pytest.mark.parametrize("wide", [1.0, 2.0, 4.0])
def test_scores_wider_than_the_measured_noise_do_not_pass_for_leakage(wide):
    """Their scale is then measured on those that were held out; with the law of the noise, 30 % would be above zero at 2."""
    audits, above, coins = 200, 0, np.arange(128) % 2 == 0
    for seed in range(audits):
        values = wide * stream(seed, "wider scores of a test").standard_normal(128)
        told = Scores(values, coins, assignment="coins", null=GaussianNull(1.0, directions=10**6))
        above += coalmine.bound_band(by_law_or_held_out(told), delta=1e-5).epsilon > 0
    assert above <= stats.binom.isf(FALSE_ALARM, audits, 0.05)


def test_held_out_scores_alone_need_no_law_of_the_noise(finished):
    """Noise that is not normal, and canaries of which all or none took part."""
    audits, above, coins = 200, 0, np.arange(128) % 2 == 0
    for seed in range(audits):
        values = stream(seed, "Laplace scores of a test").laplace(0, 2, 128)
        above += coalmine.bound_band(Scores(values, coins, assignment="coins"), delta=1e-5).epsilon > 0
    assert above <= stats.binom.isf(FALSE_ALARM, audits, 0.05)
    claim, law = finished["frozen"][0].result.views[-1].claim, GaussianNull(1.0, directions=10**6)
    apart, everybody = Scores(9.0 * coins, coins, null=law), Scores(np.ones(16), np.ones(16, bool), null=law)
    free, none = (MeasuredRound(0, None, each, 1e-5, 0.95, claim, None)._without_law() for each in (apart, everybody))
    assert free["epsilon"] == pytest.approx(free["ceiling"]) and 2 < free["ceiling"] < 3 and none["epsilon"] == 0


def test_held_out_scores_that_are_not_normal_are_the_only_null():
    rng, coins = stream(0, "scores of a test that are not normal"), np.arange(1024) % 2 == 0
    values = rng.standard_normal(1024) * np.where(rng.random(1024) < 0.05, 6.0, 1.0)
    law = GaussianNull(1.0, directions=10**6)
    told = Scores(values, coins, assignment="coins", null=law)
    assert by_law_or_held_out(told).null is None
    assert by_law_or_held_out(replace(told, value=rng.standard_normal(1024))).null is law


def test_a_round_shows_its_canaries_and_too_little_noise():
    coins = np.arange(24) % 2 == 0
    here = crafted_round()
    right = one_round(here, 1, coins, coins)
    assert right.inserted_values.mean() == pytest.approx(2.0, abs=5 / 12**0.5)  # 5 standard errors
    assert right.held_out_values.mean() == pytest.approx(0.0, abs=5 / 12**0.5)
    wrong = one_round(replace(here, federation=replace(here.federation, mechanism=HalfNoise(1.0, 0.5))), 1, coins, coins)
    assert wrong.inserted_values.mean() > 3


def test_what_a_canary_leaves_in_others_is_seen_in_a_running_round():
    coins, here = np.arange(24) % 2 == 0, crafted_round()
    kept = one_round(here, 1, coins, coins, KeepingFederation)
    assert kept.inserted_values.mean() > 2.0 + 5 / 12**0.5


def test_momentum_that_is_kept_is_missed_without_data_canaries():
    """With them, `tests/zoo` has it VIOLATED."""
    missed = audit_once(SETTINGS["once"], BUGS["momentum-kept"], 0)
    assert missed.verdict.word == "CONSISTENT" and not missed.conformance.deviations


def test_published_draws_count_in_the_claim_of_clients(finished):
    inside = finished["frozen"][0].training
    draws = inside["crafted"]["frozen_draws"]
    expected = float(coalmine.gaussian_epsilon(0, 1, 2 * 5**0.5, 1, 1e-5))  # once, and in 2 draws of 2 rounds
    assert draws["if_published"] == pytest.approx(expected, rel=1e-6)
    assert inside["epsilon_of_clients"] == pytest.approx(draws["epsilon"])
    outside = counted(inside, {"crafted": {**inside["crafted"], "frozen_draws": {**draws, "release": "published"}}})
    assert outside["epsilon_of_clients"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("preset", ["canife-fashion", "canife-writers", "canife-shakespeare"])
def test_the_published_recipe_is_the_same_after_a_preset_and_in_a_stored_configuration(preset):
    told = read_config(preset, ["crafting.as_published=true"])
    for each in (told, parse_config(write_config(told, {}), quiet=True)):
        how = how_of(each)
        assert (how.canaries, how.draws, how.others, how.options.resolved().loss) == (1, 100, "unknown", "covariance")


def test_the_published_code_composes_backwards_and_takes_the_claim_for_what_it_cannot_see(finished):
    job = federation(config("mode=frozen"), load_task(config("mode=frozen")), 5)
    printed = {"low": 0.0, "high": 9.0, "delta": 0.01, "as_published": True, "perfect_canary": {"epsilon": 3.0}}
    rounds = [
        {**each, "round": number, "printed": {**printed, "epsilon": epsilon, "capped": 3.88}}
        for each, number, epsilon in zip(finished["frozen"][0].training["crafted"]["rounds"], (1, 3), (2.0, "inf"), strict=True)
    ]
    found = whole_training(job, rounds, delta=1e-5, confidence=0.95)
    claimed = one_round_epsilon(0.5, 0.01)
    expected = coalmine.compose_canife([2.0, claimed], [1, 2], found["q"], 1e-5).epsilon  # of four rounds
    assert found["as_published"]["epsilon"] == pytest.approx(expected) and found["printed"]["epsilon"] == "inf"
    training = finished["frozen"][0].training
    assert "as_published" not in training["crafted"]["composed"]
    words = training_words({**training, "crafted": {**training["crafted"], "composed": found}})
    assert "each estimate for the rounds before it" in words["as published"]


def test_poisson_sampling_has_a_composed_bound(finished):
    told = read_config("tiny", ["participation.pattern=poisson", "participation.cohort_size=24", "participation.rounds=2"])
    rounds = finished["frozen"][0].training["crafted"]["rounds"]
    composed = whole_training(federation(told, load_task(told), 5), rounds, delta=1e-5, confidence=0.95)
    assert 0 < composed["bound"]["epsilon"] <= composed["bound_if_constant"]["epsilon"]
    assert "Poisson sampling" in " ".join(composed["bound"]["assumptions"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["mode=running", "others=unknown"], 'others must be "known"'),
        (["mode=running", "as_published=true"], "frozen"),
        (["mode=running", "release=published"], "frozen draws"),
        (["mode=frozen", "others=unknown"], "one canary"),
        (["mode=running", "canaries=4"], "at least 16"),
        (["mode=frozen", "score=likelihood-ratio"], 'others = "unknown"'),
        (["mode=frozen", "every=9"], "measures none of 4 rounds"),
        (["mode=frozen", "pool=1000"], r"crafting\.pool=1000"),
        (["mode=running", "options={undo_learning_rate=true}"], "forged"),
        (["mode=frozen", "options={los='log'}"], "it may have loss"),
        (["mode=frozen", "as_published=true", "options={as_published=false}"], "crafting.as_published alone"),
        (["mode=frozen", "options={as_published=true}"], "crafting.as_published alone"),
        (["mode=frozen", "options={unroll='no'}"], "unroll='no'"),
        (["mode=frozen", "pool_source=chat"], "pool_source='chat'"),
    ],
)
def test_refusals_come_before_there_is_a_directory(changes, said, tmp_path):
    with pytest.raises((ValueError, coalmine.errors.CoalmineError), match=said):
        run(config(*changes), tmp_path / "run", secret_seed=1, quiet=True)
    assert not (tmp_path / "run").exists()


def test_crafting_needs_an_audit_and_noise(tmp_path):
    with pytest.raises((ValueError, coalmine.errors.CoalmineError), match=r"canaries\.pool"):
        read_config("tiny", [*SMALL, "crafting.mode=frozen", "canaries.pool=0"])
    silent = read_config("tiny", [*SMALL, "crafting.mode=frozen", "mechanism.noise_multiplier=0"])
    with pytest.raises((ValueError, coalmine.errors.CoalmineError), match="noise"):
        run(silent, tmp_path / "run", secret_seed=1, quiet=True)


def test_a_public_data_set_may_be_the_pool():
    told = config("mode=frozen", "pool_source=digits", "pool_options={group=10}")
    job = federation(told, load_task(told), 5)
    mock = mock_clients(job, 20, how_of(told, job).foreign)
    assert len(mock.pool) == 20 and len(mock.users) == 20  # only the judges are users of the training
    assert (
        design_for(job, job.start(), 0, Measuring(4, options=coalmine.Crafting(iterations=5)), mock).metrics["reach"].size == 4
    )


def test_few_canaries_get_more_draws_and_no_infinite_epsilon_is_printed(finished):
    """Eight scores show nothing; sixteen without an error have no finite value by the paper's formula."""
    found = craft(finished["frozen"][1], canaries=1)
    assert found["scores"] == 16 and found["draws"] == {"made": 16, "asked": 2}
    assert "16 draws in place of 2: 2 scores are too few" in in_words(found)
    silent = {"epsilon": "inf", "capped": 1.872, "delta": 1 / 16, "ceiling": 1.872, "perfect_canary": {"epsilon": 1.789}}
    shown = {**found, "printed": {**silent, "at_mock_threshold": silent}}
    shown["composed"] = {**found["composed"], "printed": {"epsilon": "inf", "capped": 9.1, "perfect_canary": 10.1}}
    words = in_words(shown)
    assert "no error among the scores" in words and "capped at epsilon 1.87" in words and "epsilon 9.100 of the whole" in words
    assert re.search(r"\binf", words) is None


def test_craft_only_reads_so_that_another_process_may_be_training(finished, tmp_path):
    """What a trainer appended before its checkpoint is not cut off."""
    live = tmp_path / "live"
    shutil.copytree(finished["frozen"][1], live)
    for name in ("training.json", "result.json", "manifest.json"):  # not finished
        (live / name).unlink()
    with (live / "events.jsonl").open("ab") as file:
        file.write(b'{"round": 4}\n')
    before = {path: path.read_bytes() for path in sorted(live.rglob("*")) if path.is_file()}
    said: list[str] = []
    assert craft(live, number=3, canaries=16, say=said.append)["round"] == 3
    assert {path: path.read_bytes() for path in sorted(live.rglob("*")) if path.is_file()} == before
    assert said == ["designing 16 canaries for the model before round 3, then 2 draws of that round"]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_kept_model_that_is_not_what_the_run_wrote(sealed, finished, tmp_path):
    hurt = tmp_path / "hurt"
    shutil.copytree(finished["frozen"][1], hurt)
    files = json.loads((hurt / "manifest.json").read_text())["files"]
    assert {"model-000003.safetensors", "crafted-000002.npz", "crafted-000004.json"} <= set(files)
    kept = load((hurt / "model-000003.safetensors").read_bytes())
    if sealed:  # a whole model, and another one
        (hurt / "model-000003.safetensors").write_bytes(save({**kept, "parameters": 2 * kept["parameters"]}))
    else:  # half of one, of a run that was not finished
        (hurt / "model-000003.safetensors").write_bytes((hurt / "model-000003.safetensors").read_bytes()[:200])
        for name in ("training.json", "result.json", "manifest.json"):
            (hurt / name).unlink()
    with pytest.raises(coalmine.errors.RunDirectoryError, match="model-000003"):
        craft(hurt, number=3, canaries=16)


def test_a_run_says_no_infinite_epsilon_either(finished):
    crafted = finished["frozen"][0].result.training["crafted"]
    last = {**crafted["rounds"][-1], "printed": {**crafted["rounds"][-1]["printed"], "epsilon": "inf"}}
    composed = {**crafted["composed"], "printed": {**crafted["composed"]["printed"], "epsilon": "inf"}}
    training = {**finished["frozen"][0].result.training, "crafted": {**crafted, "rounds": [last], "composed": composed}}
    words = training_words(training)["as printed"]
    assert "no error among the scores" in words and re.search(r"\binf", words) is None
