"""Experiments that train, end to end and very small: made, killed, gone on with, shared, only read."""

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pytest import approx

from coalmine.contracts import plain
from coalmine.errors import RunDirectoryError
from coalmine.papers.kit import making, rules
from coalmine.papers.kit.checking import by_kind
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.registry import experiment
from coalmine.papers.one_shot import families, run_checks, table3
from coalmine.papers.one_shot.numbers import TABLE2
from coalmine.papers.one_shot.trained import OneShotRun, obtain
from coalmine.runs import RunDirectory
from coalmine.training.config import changed, fingerprint, parse_config, read_config

FIRST_VERSION = Path(__file__).parent / "first_version"  # written by commit 0d7ec67
TINY = (
    "data.users=120",
    "data.held_out=10",
    "data.vocabulary=60",
    "model.options={embedding=16, hidden=24}",
    "participation.rounds=8",
    "canaries.pool=80",
    "audit.unused_rows=200",
)
ALIKE = dict.fromkeys((0.0, 0.1, 0.2), table3.UNKNOWN)
with_files = pytest.mark.skipif(not os.environ.get("COALMINE_DATA"), reason="needs the published files: set COALMINE_DATA")


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    return Ask(out=tmp_path_factory.mktemp("papers"), changes=TINY, simulations=2)


@pytest.fixture(scope="module")
def table2(ask):
    return experiment("table2")(ask)


def test_table2_end_to_end(table2):
    real = [row for row in table2.rows if row.place.get("how") == "runs"]
    assert len(real) == 4 * 4 + 4 * 3 - 1  # without noise known others sees rounding
    assert [row.paper for row in real if row.place["column"] == "est-all"] == [
        TABLE2.value(at, "est-all") for at in TABLE2.noises
    ]
    assert table2.passed, [str(check) for check in table2.checks if not check.passed]
    assert {row.place["how"] for row in table2.rows} == {"model", "model with one constant", "model, no momentum", "runs"}
    assert not any("stack overflow" in row.what.lower() for row in table2.rows)
    assert any("not Stack Overflow" in note for note in table2.notes)


def test_the_document_holds_what_the_runs_said(table2):
    runs = table2.to_dict()["runs"]
    assert list(runs) == [f"chat-noise{noise}-times1" for noise in ("0", "0.0496", "0.0986", "0.2317")]
    for run in runs.values():
        others = run["views"]["known others"]
        assert run["rounds"] == 8 and 0 <= run["accuracy"] <= 1 and len(run["model_sha256"]) == 64
        assert others["bound"]["valid"] and others["bound"]["epsilon"] <= float(others["claim"])  # without noise "Infinity"
    assert "secret" not in str(runs)


def test_every_noise_is_checked(table2, ask):
    """Views within their claims, and their order; what canaries leave, and clients; the analytic value where there is noise."""
    silent = OneShotRun(making._path(ask, families.chat(ask, 0.0)[0]))
    normal = sum(silent.normality(view) >= rules.RISK for view in run_checks.views_of(0.0))
    assert table2.checks[-1].text.startswith("all runs together: canaries left ")
    for noise, checks in (("0", 3 + normal), ("0.0496", 8), ("0.0986", 8), ("0.2317", 8)):
        assert sum(check.text.startswith((f"noise {noise},", f"noise {noise}:")) for check in table2.checks) == checks


def test_the_first_version_is_judged_by_its_own_estimates(table2, ask):
    found = experiment("v1-table2")(replace(ask, part="runs"))
    rows = {(row.place["noise"], row.place["column"]): row for row in found.rows}
    first, second = (OneShotRun(making._path(ask, families.chat(ask, noise)[0])) for noise in (0.0, 0.1023))
    assert rows[0.0, "est-final"].ours == first.column("v1-est-final") and rows[0.0, "est-final"].paper == "5.49"
    assert rows[0.1023, "est-all"].ours == second.column("v1-est-all") and rows[0.1023, "est-all"].paper == "84.0"
    noises = ("0", "0.0644", "0.1023", "0.1836", "0.2344")
    assert list(found.details["runs"]) == [f"chat-noise{noise}-times1" for noise in noises]
    assert sum(check.text.startswith("noise 0.1836") for check in found.checks) == 8


def test_a_finished_run_is_only_read(table2, ask, monkeypatch):
    def never(*_, **__):
        raise AssertionError("this run is finished")

    monkeypatch.setattr(making, "run", never)
    again = experiment("table2")(ask)
    assert again.rows == table2.rows and again.checks == table2.checks


def test_other_experiments_find_the_runs(table2, ask):
    name, config = families.chat(ask, 0.0496)
    before = (making._path(ask, name) / "training.json").stat().st_mtime_ns
    obtain(ask, {name: config})
    assert (making._path(ask, name) / "training.json").stat().st_mtime_ns == before


def test_a_killed_run_goes_on_to_the_same_numbers(table2, ask, tmp_path, monkeypatch):
    name, config = families.chat(ask, 0.0986)
    other = Ask(out=tmp_path, changes=TINY, simulations=2)
    save, saved = RunDirectory.save, []

    def killed(self, rounds, *arguments, **options):
        if rounds == 4:
            raise KeyboardInterrupt
        saved.append(rounds)
        return save(self, rounds, *arguments, **options)

    monkeypatch.setattr(RunDirectory, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        obtain(other, {name: config})
    monkeypatch.undo()
    assert saved == [1, 2, 3] and not RunDirectory(making._path(other, name)).finished
    resumed = obtain(other, {name: config})[name]
    whole = OneShotRun(making._path(ask, name))
    assert resumed.result.to_json() == whole.result.to_json()
    assert resumed.column("est-all") == whole.column("est-all")


def test_a_run_that_never_began_is_made_again(ask, tmp_path, capsys):
    name, config = families.chat(ask, 0.0986)
    other = Ask(out=tmp_path, changes=TINY, quiet=False)
    path = making._path(other, name)
    path.mkdir(parents=True)
    (path / "secret.json").write_text("{}")
    assert obtain(other, {name: config})[name].finished.result is not None
    said = capsys.readouterr().err  # the time it will take comes first
    assert said.startswith("1 runs to make (0 are there), about ") and "goes on where it stopped" in said


def test_files_of_others_are_not_removed(ask, tmp_path):
    name, config = families.chat(ask, 0.0986)
    other = Ask(out=tmp_path, changes=TINY)
    path = making._path(other, name)
    path.mkdir(parents=True)
    (path / "thesis.txt").write_text("years")
    with pytest.raises(RunDirectoryError, match="thesis"):
        obtain(other, {name: config})
    assert (path / "thesis.txt").is_file()


def test_a_run_without_its_scores_is_named(table2, ask, tmp_path):
    name, _ = families.chat(ask, 0.0986)
    copied = tmp_path / name
    shutil.copytree(making._path(ask, name), copied)
    shutil.rmtree(copied / "views")
    with pytest.raises(RunDirectoryError, match="missing: views/"):
        OneShotRun(copied).column("est-all")


def test_a_run_of_another_configuration_is_refused(table2, ask):
    name, _ = families.chat(ask, 0.0496)
    _, other = families.chat(ask, 0.0986)
    with pytest.raises(RunDirectoryError, match="another configuration"):
        obtain(ask, {name: other})


def test_a_run_of_the_first_version_is_only_read(tmp_path, monkeypatch, capsys):
    """Its directory has other names, in its configuration as in its result; its numbers are those that were published then."""

    def never(*_, **__):
        raise AssertionError("this run is finished")

    monkeypatch.setattr(making, "run", never)
    monkeypatch.setattr(making, "resume", never)
    shutil.copytree(FIRST_VERSION / "runs", tmp_path / "runs")
    ask = Ask(out=tmp_path, changes=TINY)
    (run,) = obtain(ask, dict([families.chat(ask, 0.0496)])).values()
    published = json.loads((FIRST_VERSION / "record.json").read_text(encoding="utf-8"))
    assert plain(run.record) == published and list(run.record["views"]) == list(published["views"])
    assert capsys.readouterr().err == ""  # nobody is told of names that nobody wrote


def test_fixed_clipping_of_the_first_version_is_fixed_clipping():
    """It wrote what only adaptive clipping needs into every configuration."""
    written = (FIRST_VERSION / "fixed-clipping.toml").read_text(encoding="utf-8")
    _, config = families.chat(Ask(changes=TINY), 0.2317, canaries=False)
    assert fingerprint(parse_config(written)) == fingerprint(config)
    _, other = families.chat(Ask(changes=(*TINY, "mechanism.clip_norm=0.4")), 0.2317, canaries=False)
    assert fingerprint(parse_config(written)) != fingerprint(other)


def test_table3_end_to_end(ask):
    found = experiment("table3")(Ask(out=ask.out, changes=TINY, part="chat"))
    changes = [row for row in found.rows if row.place["column"] == "change by canaries"]
    assert len(changes) == 4 and found.name == "table3-chat"
    again = {name: run["model_sha256"] for name, run in found.details["runs"].items() if run["noise"] == 0.0496}
    assert len(again) == len(set(again.values())) == 4 and "chat-noise0.0496-without-again1" in again
    fixed = [run for name, run in found.details["runs"].items() if name.endswith("-fixed")]
    assert len(fixed) == 3 and not any(run["adaptive_clipping"] for run in fixed)
    assert sum(row.place["column"] == "without canaries, clip norm fixed" for row in found.rows) == 4
    for row in changes:
        nothing = "no better than always the most frequent" in row.note
        assert row.verdict == (None if nothing else "same shape" if abs(row.ours) <= 2 * row.error else "differs")
    if all(row.verdict is None for row in changes):  # nothing was learned: nothing is compared
        assert not found.checks and all(row.verdict is None for row in found.rows)
    panel = found.figure().axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0", "0.0496", "0.0986", "0.2317"]
    without = panel.containers[0].lines[0].get_ydata()
    assert list(without)[:-1] == [row.ours for row in found.rows if row.place["column"] == "without canaries"]
    (again,) = (run for name, run in found.details["runs"].items() if "again" in name)
    assert without[-1] == 100 * again["accuracy"]


def test_accuracies_have_a_verdict_where_something_was_learned():
    learned = {noise: (_Judged(0.2 - noise, 0.01), _Judged(0.2 - noise, 0.01)) for noise in (0.0, 0.1)}
    columns = [{noise: pair[column] for noise, pair in learned.items()} for column in (0, 1)]
    rows = table3._accuracies("chat", dict(zip(table3.COLUMNS, columns, strict=False)), ALIKE)
    assert [row.verdict for row in rows] == ["same shape"] * 4
    far = ALIKE | {0.1: table3.Apart.of([_Judged(0.2, 0.01), _Judged(0.1, 0.01), _Judged(0.16, 0.01)])}
    assert {row.verdict for row in table3._accuracies("chat", dict(zip(table3.COLUMNS, columns, strict=False)), far)} == {None}
    nothing = {"without canaries": {noise: _Judged(0.0, 0.0, learned=False) for noise in (0.0, 0.1)}}
    assert {row.verdict for row in table3._accuracies("chat", nothing, ALIKE)} == {None}


def test_only_runs_with_the_same_clipping_are_put_in_order():
    column = {0.0: _Judged(0.3, 0.01), 0.1: _Judged(0.2, 0.01), 0.2: _Judged(0.25, 0.01, adaptive=False)}
    rows = table3._accuracies("chat", {"without canaries": column}, ALIKE)
    assert [row.verdict for row in rows] == ["same shape", "same shape", None] and rows[-1].note == "clip norm fixed"


def test_a_change_is_more_than_runs_differ_by_themselves():
    one, worse = [_Judged(0.2, 0.01)], _Judged(0.1, 0.01)
    found = table3._change("chat", 0.1, one, worse, table3.UNKNOWN)
    assert found.row.verdict is None and found.distance == approx(0.1 / 0.01 / 2**0.5)  # runs may end as far apart as that
    assert table3._change("chat", 0.1, one, _Judged(0.19, 0.01), table3.UNKNOWN).row.verdict == "same shape"
    found = table3._change("chat", 0.1, one, worse, table3.Apart(0.001, 2))
    assert found.row.verdict == "differs" and not by_kind(table3._compared("chat", [found]))[0].passed
    several = [_Judged(0.8, 0.01), _Judged(0.84, 0.01), _Judged(0.86, 0.01)]
    far = table3.Apart.of(several)
    found = table3._change("chat", 0.1, several, _Judged(0.9, 0.01), far)
    assert found.row.verdict == "same shape" and found.row.ours == approx(100 * (0.9 - 2.5 / 3))
    assert "end at 80.0, 84.0 and 86.0" in found.row.note and far.freedom == 2
    lottery = [_Judged(0.8, 0.01), _Judged(0.1, 0.01), _Judged(0.2, 0.01)]
    found = table3._change("chat", 0.1, lottery, _Judged(0.9, 0.01), table3.Apart.of(lottery))
    assert found.row.verdict is None and table3.UNEQUAL in found.row.note and not table3._compared("chat", [found])
    sure = table3._change("chat", 0.1, [_Judged(0.2, 0.0)], _Judged(0.1, 0.0), table3.UNKNOWN)
    assert math.isinf(sure.distance)


def test_changes_by_chance_are_as_rare_as_stated():
    """Three runs without canaries and one with them, nothing else: of 20,000 changes 4.55 % are more than two errors.

    A false alarm of this test is rarer than 1e-4 (4 standard errors of a share of 20,000).
    """
    rng, beyond = np.random.default_rng(0), 0
    for alone, after in zip(rng.standard_normal((20_000, 3)), rng.standard_normal(20_000), strict=True):
        apart = table3.Apart(float(alone.std(ddof=1)), 2)
        error = apart.deviation * math.sqrt(4 / 3)
        beyond += table3.normal_distance(float(after - alone.mean()), error, apart.freedom_of(error, error)) > 2
    assert beyond / 20_000 == approx(0.0455, abs=4 * math.sqrt(0.0455 / 20_000))


class _Judged:
    """A run that ended with this accuracy."""

    def __init__(self, accuracy, error, *, learned=True, adaptive=True):
        self.accuracy, self.learned, self.diverged, self.adaptive = (accuracy, error), learned, False, adaptive
        self.baseline = 0.05
        self.finished = SimpleNamespace(training={"mean_canary_share": 0.05})


def test_presentations(ask):
    found = experiment("figure2")(ask)
    assert [(row.place["noise"], row.place["times"]) for row in found.rows] == [(0.0, 1), (0.0, 4), (0.2317, 1), (0.2317, 4)]
    kinds = [text for check in found.checks for text in (check.text,) if " comparisons; " in text]
    assert [int(text.rpartition(" comparisons; ")[0].rpartition(" ")[2]) for text in kinds[1:]] == [4, 6, 4, 2]  # by kind
    assert all(check.passed for check in found.checks if " comparisons; " in check.text), [str(check) for check in found.checks]
    assert sum("epsilon rises with presentations" in check.text for check in found.checks) == 2
    densities = experiment("figure1")(ask)
    assert densities.checks == found.checks[2:] and "all runs together" in densities.checks[-1].text
    assert [panel.get_title("left") for panel in densities.figure().axes] == ["noise 0", "noise 0.2317"]
    assert "on chats" in densities.figure().axes[-1].get_xlabel()
    assert all("% of a cohort" in row.note for row in (*found.rows, *densities.rows))


def test_canaries_are_in_the_model_as_they_were_put_there(ask):
    (run,) = obtain(ask, dict([families.chat(ask, 0.0, 4)])).values()
    assert run_checks.left("here", run).distance < rules.allowed(1)
    width = run.seen.final.std(ddof=1) / run.seen.final.size**0.5
    assert run.predicted_cosine > 3.3 * width  # without what canaries add the check would fail


@with_files
@pytest.mark.parametrize("name", ["table5", "table6", "figure3"])
def test_experiments_on_files(name, tmp_path):
    cut = ("data.users=60", "participation.cohort_size=10", "canaries.pool=80", "audit.unused_rows=200", "data.held_out=0.2")
    found = experiment(name)(Ask(out=tmp_path, changes=cut, part=None if name == "figure3" else "runs", simulations=2))
    assert all(row.ours is not None for row in found.rows if row.place["column"] != "canife")
    judged = [check for check in found.checks if "epsilon rises" not in check.text]  # so few canaries show no trend
    assert judged and all(check.passed for check in judged), [check.text for check in judged if not check.passed]
    assert "EMNIST" not in " ".join(row.what for row in found.rows)


@with_files
def test_table3_on_files(tmp_path):
    cut = (
        "data.users=40",
        "participation.epochs=1",
        "participation.cohort_size=10",
        "canaries.pool=40",
        "audit.unused_rows=100",
    )
    found = experiment("table3")(Ask(out=tmp_path, changes=cut, part="shakespeare"))
    columns = [row.place["column"] for row in found.rows]
    assert len(columns) == 3 * 4 + 2 + 1  # all noises; two with fixed clipping, and one with few canaries
    assert columns.count("without canaries, clip norm fixed") == 2 and columns.count("change by few") == 1


def test_runs_at_full_scale_that_are_made_at_once_have_no_workers_of_their_own(tmp_path):
    """Each is in a worker process, which may not start others: the configuration asks for two, as several presets do."""
    small = changed(read_config("tiny"), ["participation.rounds=8", "canaries.pool=0", "run.workers=2"])
    ask = Ask(scale="full", workers=2, out=tmp_path)
    paths = making.obtain(ask, {"first": small, "second": changed(small, ["run.seed=1"])}, apart=True)
    assert all(RunDirectory(path).finished for path in paths.values())
    before = [(path / "training.json").stat().st_mtime_ns for path in paths.values()]
    again = making.obtain(ask, {"first": small, "second": changed(small, ["run.seed=1"])}, apart=True)
    assert [(path / "training.json").stat().st_mtime_ns for path in again.values()] == before
