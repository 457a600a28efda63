"""The study of training with correlated noise: what it asks for, and what it makes of the answers. No run is made here."""

import json
from types import SimpleNamespace

import pytest
from pytest import approx

from coalmine import accounting
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.user_level import correlated_training as study
from coalmine.papers.user_level import training_families as families
from coalmine.training.assembly import federation, load_task

BEST = (1.0, 0.9)
_TASKS = {}


def task_of(config):
    """The data and the model of a configuration, read once for all tests."""
    if config.data.users not in _TASKS:
        _TASKS[config.data.users] = load_task(config)
    return _TASKS[config.data.users]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Runs that only say how accurate they were: by method, epsilon and how well they were tuned."""
    asked, verdicts = {}, {}

    def obtain(ask, wanted, apart):
        paths = {}
        for name, config in wanted.items():
            asked[name] = config
            noise, tuned = config.mechanism.noise_multiplier, (config.server.learning_rate, config.server.momentum)
            worth = {"independent": 0.5, "banded": 0.8, "blt": 0.7, "toeplitz": 0.6, "tree": 0.55}[config.mechanism.strategy]
            accuracy = worth / (1 + noise) + (0.1 if tuned == BEST else 0.0) + 0.001 * (config.run.seed % 3)
            paths[name] = tmp_path / name
            paths[name].mkdir(parents=True, exist_ok=True)
            (paths[name] / "training.json").write_text(json.dumps({"accuracy": accuracy}))
        return paths

    monkeypatch.setattr(study, "obtain", obtain)
    monkeypatch.setattr(study, "load_task", task_of)
    loaded = SimpleNamespace(
        load=lambda path: SimpleNamespace(verdict=SimpleNamespace(word=verdicts.get(path.name, "CONSISTENT")))
    )
    monkeypatch.setattr(study, "AuditResult", loaded)
    return SimpleNamespace(asked=asked, verdicts=verdicts)


def test_every_method_has_the_same_grid_and_the_epsilon_that_its_row_states(made):
    found = study.reproduce(Ask(part="chat"))
    tried = [name for name in made.asked if "-tuning" in name]
    silent = [name for name in made.asked if "-no-noise-" in name]
    assert len(tried) == (3 * len(study.QUICK_METHODS) + 1) * len(study.QUICK_GRID) * len(study.TUNING)
    assert len(made.asked) - len(tried) == (3 * len(study.QUICK_METHODS) + 1) * study.SEEDS
    assert all(not made.asked[name].canaries.pool for name in [*tried, *silent])
    assert all(not made.asked[name].mechanism.noise_multiplier for name in silent)
    assert {made.asked[name].run.seed for name in tried} == set(study.TUNING)
    audited = [name for name, config in made.asked.items() if config.canaries.pool]
    assert len(audited) == 3 * len(study.QUICK_METHODS) and all(name.endswith("-run0") for name in audited)
    for name in ("correlated-chat-eps2-banded-run0", "correlated-chat-eps16-toeplitz-run1", "correlated-chat-eps2-blt-run2"):
        config = made.asked[name]
        assert (config.server.learning_rate, config.server.momentum) == BEST
        job = federation(config, task_of(config), 0)
        limits = job.participation.constraint(job.rounds)
        claim = accounting.claim_of(job.mechanism.describe(), job.participation, delta=study.DELTA, constraint=limits)
        assert claim.epsilon == approx(2.0 if "eps2" in name else 16.0, rel=1e-6)
    by_place = {(row.place["epsilon"], row.place["method"], row.place.get("gain", False)): row for row in found.rows}
    assert len(by_place) == 3 * (2 * len(study.QUICK_METHODS) - 1) + 1
    assert by_place["none", "no noise", False].ours == approx(0.5 + 0.1 + 0.001)
    one, base = by_place[8.0, "banded", False], by_place[8.0, "independent", False]
    assert by_place[8.0, "banded", True].ours == approx(one.ours - base.ours)
    assert one.error == approx(0.001 / 3**0.5)  # of 0, 1 and 2 thousandths
    assert any("would hold with probability 0.50" in note for note in found.notes)
    assert any("Left out: tree." in note for note in found.notes) and any(
        "Without amplification" in note for note in found.notes
    )


def test_an_audit_that_accuses_correct_noise_fails_the_study(made):
    made.verdicts["correlated-chat-eps8-blt-run0"] = "DEVIATES"
    found = study.reproduce(Ask(part="chat"))
    failed = [check.text for check in found.checks if not check.passed]
    assert any("no audit of 12 is violated or deviates (11 CONSISTENT, 1 DEVIATES)" in text for text in failed)


def test_a_full_study_is_tuned_on_the_small_setting(made):
    study.reproduce(Ask(part="chat", scale="full"))
    sizes = {name: config.data.users for name, config in made.asked.items()}
    assert all((users == 300) == ("-tuning" in name) for name, users in sizes.items())
    assert len([name for name in sizes if "-eps2-" in name and "-tree-" in name]) == 6 * len(study.TUNING) + study.SEEDS
    assert all(made.asked[name].canaries.pool for name in sizes if "-run" in name and "-no-noise-" not in name)


def test_single_examples_are_those_of_cifar_or_the_note_says_why_not(monkeypatch, tmp_path):
    monkeypatch.delenv("COALMINE_DATA", raising=False)
    monkeypatch.setattr(families, "SOURCES", {})
    found, notes = families.family(Ask(), "example-level")
    assert found is families.FASHION and "no source 'cifar10'" in notes[0]

    def absent(data_dir):
        raise families.InputFileError(f"there is no data_batch_1.bin in {data_dir}")

    monkeypatch.setattr(families, "SOURCES", {"cifar10": absent})
    found, notes = families.family(Ask(data_dir=tmp_path), "example-level")
    assert found is families.FASHION and "data_batch_1.bin" in notes[0]
    monkeypatch.setattr(families, "SOURCES", {"cifar10": lambda data_dir: None})
    found, notes = families.family(Ask(data_dir=tmp_path), "example-level")
    assert found.title.startswith("CIFAR-10") and not notes
