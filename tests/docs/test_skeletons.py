"""The files of docs/developer/skeletons work as they are: whoever copies one begins with something correct."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import coalmine
from coalmine import participation, views
from coalmine._random import stream
from coalmine.audit import spec
from coalmine.estimators import Bound
from coalmine.training import config, sections

FOLDER = Path(__file__).parents[2] / "docs" / "developer" / "skeletons"
TINY = ["participation.rounds=6", "canaries.pool=100", "run.workers=1", "run.evaluate_every=0"]


def load(name):
    found = importlib.util.spec_from_file_location(f"skeleton_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    sys.modules[module.__name__] = module  # where dataclasses look for their annotations
    found.loader.exec_module(module)
    return module


def test_every_skeleton_is_described():
    page = (FOLDER.parent / "adding.md").read_text(encoding="utf-8")
    assert [path.name for path in FOLDER.glob("*.py") if f"skeletons/{path.name}" not in page] == []


def test_the_mechanism_is_claimed_by_its_description_and_audited(tmp_path):
    mine = load("mechanism").ClippedMean(clip_norm=1.0, noise_multiplier=0.5)
    result = coalmine.run("tiny", tmp_path / "mine", set=TINY, mechanism=mine, secret_seed=1, quiet=True).result
    assert result.claim.epsilon == pytest.approx(9.997, abs=1e-3)
    assert 0 < result.bound.epsilon < result.claim.epsilon
    assert not mine.without_noise().describe().has_noise


def test_the_view_sees_the_last_round_and_is_shown(tmp_path, monkeypatch):
    view = load("view").LastRelease
    monkeypatch.setitem(views.VIEWS, view.key, view)
    assert spec.VIEWS is views.VIEWS
    changes = [*TINY, 'audit.views=["last-release"]']
    result = coalmine.run("tiny", tmp_path / "run", set=changes, secret_seed=1, quiet=True).result
    (shown,) = result.views
    assert shown.view == "last-release"
    assert shown.bound.epsilon <= result.claim.epsilon


def test_the_pattern_keeps_its_constraint(tmp_path, monkeypatch):
    pattern = load("pattern").RoundRobin
    robin = pattern(cohort_size=3, population=10, rounds=9)
    presence = np.zeros((10, 9), bool)
    for number, cohort in enumerate(robin.cohorts(10, 9, 0)):
        presence[cohort, number] = True
    assert presence.sum(axis=1).max() == robin.most == 3
    assert min(np.diff(np.flatnonzero(row)).min() for row in presence) == robin.constraint(9).separation
    assert [list(cohort) for cohort in robin.cohorts(10, 9, 0, start=8)] == [[4, 5, 6]]
    monkeypatch.setitem(participation.PATTERNS, "round-robin", pattern)
    assert sections.PATTERNS is participation.PATTERNS
    changed = config.read_config("tiny", [*TINY, "participation.pattern=round-robin", "participation.cohort_size=30"])
    result = coalmine.run(changed, tmp_path / "run", secret_seed=1, quiet=True).result
    assert result.verdict.word != "VIOLATED"
    with pytest.raises(ValueError, match="does not fit"):
        robin.cohorts(9, 9, 0)


def test_the_bound_is_below_the_band_and_quiet_on_noise():
    bound = Bound("dkw", load("bound").bound_dkw)
    rng = stream(0, "skeleton")
    for leak, held_out in ((3.0, None), (3.0, 400), (0.0, None), (0.0, 400)):
        rest = {"null": coalmine.GaussianNull()} if held_out is None else {}
        inserted = rng.standard_normal(400) + leak
        scores = coalmine.Scores.of(inserted, None if held_out is None else rng.standard_normal(held_out), **rest)
        found = bound(scores, delta=1e-5)
        assert found.key == "dkw"
        assert 0 <= found.epsilon <= found.ceiling
        assert (found.epsilon > 0) == (leak > 0)


def test_the_source_groups_by_user(tmp_path):
    module = load("source")
    rng = np.random.default_rng(0)
    arrays = {"user": np.repeat(np.arange(5), 4), "features": rng.normal(size=(20, 3)), "target": np.arange(20) % 2}
    np.savez(tmp_path / "visits.npz", **arrays)
    found = module.read_visits(tmp_path)
    assert (len(found), int(found.sizes.sum())) == (5, 20)
    (tmp_path / "visits.npz").write_bytes(b"no archive")
    with pytest.raises(coalmine.errors.InputFileError, match=r"visits\.npz"):
        module.read_visits(tmp_path)
