"""Our own presets on Flower: the same bits as with the embedded engine, on a grid in this process and on the simulation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coalmine.adapters.flower import LocalGrid
from coalmine.adapters.flower.engine import GridWorkers, client_app
from coalmine.errors import CoalmineError
from coalmine.training import run
from coalmine.training.config import read_config, write_config

SHORT = ["participation.epochs=1", "participation.rounds=6", "canaries.pool=60", "run.workers=1"]
FILES = ("result.json", "scores.npz", "model.safetensors", "training.json")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    out = tmp_path_factory.mktemp("embedded") / "run"
    run(read_config("tiny", SHORT), out, secret_seed=5, quiet=True)
    return out


def test_nodes_of_a_grid_give_the_same_bits_as_our_workers(embedded, tmp_path, one_thread):
    config = read_config("tiny", SHORT)
    grid = LocalGrid(client_app(write_config(config, {})), 3)
    run(config, tmp_path / "run", secret_seed=5, quiet=True, make_workers=lambda count, work: GridWorkers(grid))
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (embedded / name).read_bytes(), name


def test_a_node_that_fails_is_one_message(tmp_path):
    config = read_config("tiny", SHORT)

    def broken(message, context):
        raise RuntimeError("no memory left")

    with pytest.raises(CoalmineError, match="a node of Flower failed: RuntimeError: no memory left"):
        run(
            config,
            tmp_path / "run",
            secret_seed=5,
            quiet=True,
            make_workers=lambda count, work: GridWorkers(LocalGrid(broken, 2)),
        )


def test_nodes_that_do_not_answer_are_one_message(tmp_path):
    config = read_config("tiny", SHORT)
    grid = LocalGrid(client_app(write_config(config, {})), 2)
    grid.silent = {1}
    with pytest.raises(CoalmineError, match="tasks came back"):
        run(config, tmp_path / "run", secret_seed=5, quiet=True, make_workers=lambda count, work: GridWorkers(grid))


@pytest.mark.slow
def test_the_simulation_gives_the_same_bits(embedded, tmp_path):
    changes = [part for change in SHORT for part in ("--set", change)]
    command = [sys.executable, "-c", "from coalmine.cli import main; main()", "run", "tiny", *changes, "--engine", "flower"]
    command += ["--secret-seed", "5", "--out", str(tmp_path / "run"), "--json", "--quiet"]
    paths = [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "FLWR_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["method"] == "band"
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (embedded / name).read_bytes(), name
