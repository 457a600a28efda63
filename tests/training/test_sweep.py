"""Sweeps: every point a run with a secret of its own; resumable; the same on Slurm's local executor; bad grids are refused."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from coalmine.adapters.slurm import SlurmWorkers
from coalmine.cli import app
from coalmine.runs import RunDirectory
from coalmine.training.sweep import MOST, read_grid, sweep

GRID = """config = "tiny"
[slurm]
cluster = "local"
[grid]
mechanism.noise_multiplier = [0.5, 1.0]
participation.rounds = [4]
participation.epochs = [1]
canaries.pool = [40]
run.reference = [false]
"""


@pytest.fixture
def grid(tmp_path):
    (tmp_path / "grid.toml").write_text(GRID)
    return tmp_path / "grid.toml"


def test_a_sweep_makes_every_run_with_its_own_secret_and_goes_on(grid, tmp_path):
    out = tmp_path / "all"
    words = ["sweep", str(grid), "--out", str(out), "--json", "--quiet"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)
    assert [each["set"][0] for each in found["runs"]] == ["mechanism.noise_multiplier=0.5", "mechanism.noise_multiplier=1.0"]
    secrets = {RunDirectory.open(out / name).secret_seed for name in ("run-0000", "run-0001")}
    assert len(secrets) == 2
    assert (out / "compare.html").is_file()
    kept = (out / "run-0000" / "result.json").read_bytes()
    shutil.rmtree(out / "run-0001")  # as if the sweep had been killed before
    assert CliRunner().invoke(app, words).exit_code == 0
    assert (out / "run-0000" / "result.json").read_bytes() == kept
    assert (out / "run-0001" / "result.json").is_file()
    grid.write_text(GRID.replace("1.0", "2.0"))
    with pytest.raises(Exception, match="another grid"):
        sweep(read_grid(grid), out)


def test_a_run_that_fails_stops_no_other(grid, tmp_path):
    class Answers:
        def __init__(self, count, job):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def map(self, tasks):
            return ["it diverged", "and this one too"]

    found = sweep(read_grid(grid), tmp_path / "all", make_workers=Answers)
    assert found.comparison is None
    assert "FAILED  run-0000 (mechanism.noise_multiplier=0.5, " in str(found) and "it diverged" in str(found)


@pytest.mark.filterwarnings("default")  # of submitit
def test_jobs_of_slurm_on_its_local_executor(grid, tmp_path):
    with SlurmWorkers(tmp_path / "jobs", read_grid(grid).slurm, 2, lambda number: number * number) as workers:
        assert workers.map([3, 1, 2]) == [9, 1, 4]
    with pytest.raises(ValueError, match="Slurm cannot be used from here"):
        SlurmWorkers(tmp_path / "jobs", {"cluster": "local", "colour": 3}, 2, lambda number: number)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[grid]\n", "varies nothing"),
        ("[grid]\nrun.seed = 3\n", "write a list of values"),
        ("[grid]\nrun.seed = []\n", "write a list of values"),
        (f"[grid]\nrun.seed = {list(range(MOST + 1))}\n", "1,001 runs; at most 1,000"),
        ('config = "tiny"\n[grid]\nrun.sed = [1]\n', "unknown key 'run.sed'"),
        ('config = "tiny"\n[grid]\nmechanism.noise_multiplier = [0.5, "much"]\n', "noise_multiplier"),
        ("config = 3\n[grid]\nrun.seed = [1]\n", "name a preset"),
        ("colour = 3\n[grid]\nrun.seed = [1]\n", "unknown key 'colour'"),
        ("[grid\n", "is not TOML"),
    ],
)
def test_bad_grids_are_one_message_before_anything_runs(text, said, tmp_path):
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(ValueError, match=said) if "TOML" not in said else pytest.raises(Exception, match=said):
        read_grid(tmp_path / "grid.toml")
