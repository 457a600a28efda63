"""How checks are run: all of them even if one fails, and with the time of every directory at the end."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not (ROOT / ".ci" / "each").is_file(), reason="needs a checkout")


def each(*words):
    return subprocess.run([ROOT / ".ci" / "each", *words], capture_output=True, text=True, timeout=300)


def test_every_command_runs_and_failures_are_listed_at_the_end(tmp_path):
    broken = "echo FAILED tests/test_a.py::test_b - no; echo more; exit 2"
    done = each("first", broken, "second", f"echo second > {tmp_path}/ran", "third", f"cat {tmp_path}/none")
    assert done.returncode == 1
    assert (tmp_path / "ran").read_text() == "second\n"
    said = done.stdout.partition("== summary\n")[2].splitlines()
    assert [line.split()[:2] for line in said] == [
        ["FAILED", "first"],
        ["FAILED", "tests/test_a.py::test_b"],
        ["passed", "second"],
        ["FAILED", "third"],
        ["cat:", f"{tmp_path}/none:"],
    ]


def test_if_all_pass_so_does_the_whole():
    done = each("first", "true", "second", "echo FAILED in passing")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.partition("== summary\n")[2].splitlines()] == ["passed", "passed"]


@pytest.mark.parametrize("workers", [0, 2])
def test_time_is_shown_by_directory_and_fails_nothing(tmp_path, workers):
    """In a tree of its own, where a directory has no time at all."""
    for name in ("tests/slow/test_a.py", "tests/quick/test_b.py", "tests/test_c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("def test_one():\n    sum(range(10000))\n")
    text, count = re.subn(
        r"BUDGET = \{.*?\n\}", 'BUDGET = {"tests/slow": 0, "tests/quick": 1000}', (ROOT / "conftest.py").read_text(), flags=re.S
    )
    assert count == 1
    (tmp_path / "conftest.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        str(workers),
        "--rootdir",
        tmp_path,
        "tests",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if " of " in line}
    assert list(lines) == ["tests", "tests/quick", "tests/slow", "together"]
    assert lines["tests/slow"].endswith("over budget") and lines["tests/quick"].split()[-1] == "1000"
    assert lines["tests"].split()[-1] == "-" and lines["together"].split()[-1] == "1000"


def test_every_directory_has_a_budget_and_together_they_are_twenty_minutes_of_two_workers():
    budget = runpy.run_path(str(ROOT / "conftest.py"))["BUDGET"]
    here = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if list(path.glob("test_*.py"))} | {"tests", "src"}
    assert set(budget) == here
    assert sum(budget.values()) <= 2 * 20 * 60


def test_make_names_its_targets():
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make")
    shown = subprocess.run([make, "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300).stdout
    assert {"run", "test", "check", "flower", "lint"} <= {line.split()[0] for line in shown.splitlines()}


def test_the_quick_lane_names_directories_that_are_there():
    quick = re.search(r"^FAST\s*:= (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split()
    assert quick and all((ROOT / path).exists() for path in quick)
    row = next(line for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines() if "`make check` |" in line)
    assert all(f"`{path}`" in row for path in quick)
