"""`coalmine zoo` as a user calls it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def in_its_own_process(*words, folder):
    command = [Path(sys.executable).with_name("coalmine"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_study_writes_its_page_and_says_what_came_out(called, tmp_path):
    done = called("zoo", "half-noise", "--seeds", "1", "--correct", "1", "--workers", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "half-noise" in done.stdout and "1/1" in done.stdout and "as it must be" in done.stdout
    assert "runs/zoo/zoo.html" in done.stderr
    assert json.loads((tmp_path / "runs/zoo/zoo.json").read_text())["passed"] is True
    assert "The bug zoo" in (tmp_path / "runs/zoo/zoo.html").read_text()


def test_a_place_that_cannot_be_written_is_said_before_the_runs(called, tmp_path):
    (tmp_path / "taken").write_text("")
    done = called("zoo", "half-noise", "--out", "taken", folder=tmp_path)
    assert done.returncode == 4 and "taken" in done.stderr and "zoo: " not in done.stderr


def test_json_is_one_document(tmp_path):
    words = ("zoo", "no-noise", "--seeds", "1", "--correct", "0", "--workers", "1", "--json", "--quiet")
    done = in_its_own_process(*words, "--out", "here", folder=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    rows = json.loads(done.stdout)["rows"]
    assert [(row["name"], row["violated"], row["runs"]) for row in rows] == [("no-noise", 1, 1)]


def test_the_list_explains_and_needs_no_run(called, tmp_path):
    done = called("zoo", "--list", folder=tmp_path)
    assert done.returncode == 0 and "clip-the-average" in done.stdout and not list(tmp_path.iterdir())
    named = called("zoo", "--list", "reused-noise", folder=tmp_path)
    assert "# right:" in named.stdout and "clip-the-average" not in named.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["half-nois"], "'half-nois' is not allowed"),
        (["--list", "nobody"], "'nobody' is not allowed"),
        (["half-noise", "--seeds", "0"], "seeds"),
        (["half-noise", "--correct", "-1"], "correct"),
        (["half-noise", "--workers", "0"], "workers"),
    ],
)
def test_mistakes_are_one_message(called, tmp_path, words, said):
    done = called("zoo", *words, folder=tmp_path)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
