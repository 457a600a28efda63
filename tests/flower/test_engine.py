"""Our own presets on Flower: the same bits as with the embedded engine, by messages to a grid in this process."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from coalmine.adapters.flower import LocalGrid
from coalmine.adapters.flower.engine import GridWorkers, client_app, on_grid
from coalmine.adapters.flower.engine import run as run_on_flower
from coalmine.adapters.flower.sending import packed, read_mechanism, task_of, written_mechanism
from coalmine.contracts import AtLeast, ByClients, Contribution, Noise, Public
from coalmine.errors import CoalmineError, MismatchError
from coalmine.mechanisms import AdaptiveGaussian, Gaussian
from coalmine.training import run
from coalmine.training.config import read_config, write_config
from coalmine.training.work import ClientBatch, Evaluate

SHORT = ["participation.epochs=1", "participation.rounds=6", "canaries.pool=60", "run.workers=1"]
FILES = ("result.json", "scores.npz", "model.safetensors", "training.json")


@dataclass(frozen=True)
class Shrinking(Gaussian):
    """Clips as said, and sends a share of what is left: another client than that of the configuration."""

    share: float = 0.5
    inner: object = AtLeast(0.25)
    rates: tuple = (1, 0.5, (None, "text", True))

    @cached_property
    def looked_up(self):
        return self.share

    def client(self, update, public, examples=1):
        kept = super().client(update, public, examples)
        return Contribution(kept.vector * np.float64(self.looked_up), kept.unclipped)


@dataclass(frozen=True)
class NoiseOfClients(Gaussian):
    def describe(self):
        noise = Noise(self.noise_multiplier, self.noise_multiplier, added_by=ByClients(count=5, honest=4))
        return replace(super().describe(), noise=noise)


@dataclass
class Changing:
    clip_norm: float = 1.0

    def describe(self):
        return Gaussian(1.0, 1.0).describe()


@dataclass(frozen=True)
class Scaling(Gaussian):
    """Its values are not what it was made from."""

    def __post_init__(self):
        object.__setattr__(self, "clip_norm", 2 * self.clip_norm)


class Plain:
    def describe(self):
        return Gaussian(1.0, 1.0).describe()


def with_more():
    made = Shrinking(1.0, 1.0)
    object.__setattr__(made, "secretly", 3)
    return made


class Outer:
    @dataclass(frozen=True)
    class Inner(Gaussian):
        pass


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    out = tmp_path_factory.mktemp("embedded") / "run"
    run(read_config("tiny", SHORT), out, secret_seed=5, quiet=True)
    return out


def on_local_grid(config, out, mechanism=None, nodes=3):
    grid = LocalGrid(client_app(write_config(config, {})), nodes)
    return run(config, out, mechanism=mechanism, secret_seed=5, quiet=True, **on_grid(grid, mechanism))


def same_files(one, other, inside=""):
    for name in FILES:
        assert (one / inside / name).read_bytes() == (other / inside / name).read_bytes(), name


def test_nodes_of_a_grid_give_the_same_bits_as_our_workers(embedded, tmp_path, one_thread):
    on_local_grid(read_config("tiny", SHORT), tmp_path / "run")
    same_files(tmp_path / "run", embedded)


@pytest.mark.parametrize(("name", "option"), [("banded", "mechanism.bands=3"), ("blt", "mechanism.buffers=2")])
def test_correlated_noise_has_the_same_bits_on_a_grid(name, option, tmp_path, one_thread):
    """The state of the noise lives on the server and goes from round to round; nodes only clip."""
    config = read_config(
        "tiny",
        [*SHORT, "mechanism.kind=correlated", f"mechanism.strategy={name}", option, "canaries.pattern=separated"],
    )
    run(config, tmp_path / "ours", secret_seed=5, quiet=True)
    on_local_grid(config, tmp_path / "flower")
    same_files(tmp_path / "ours", tmp_path / "flower")


def test_nodes_clip_with_the_mechanism_that_was_handed_over(embedded, tmp_path, one_thread):
    """Also in the run without noise and canaries that is made for comparison."""
    config, mine = read_config("tiny", [*SHORT, "run.reference=true"]), Shrinking(0.3, 0.7)
    run(config, tmp_path / "ours", mechanism=mine, secret_seed=5, quiet=True)
    on_local_grid(config, tmp_path / "flower", mine)
    same_files(tmp_path / "ours", tmp_path / "flower")
    assert (tmp_path / "flower" / "model.safetensors").read_bytes() != (embedded / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "mechanism",
    [
        Gaussian(0.1, 1 / 3),
        AdaptiveGaussian(0.1, 0.7, count_noise=np.float64(2.5), divide_by_actual_cohort=True),
        Shrinking(0.1, 0.7, share=np.float32(0.1), inner=AtLeast(0.1)),
    ],
)
def test_a_mechanism_travels_with_all_its_values(mechanism):
    assert repr(read_mechanism(written_mechanism(mechanism))) == repr(mechanism)


@pytest.mark.parametrize(
    ("mechanism", "why"),
    [
        (Plain(), "neither a number"),
        (Changing(), "can change"),
        (Scaling(1.0, 1.0), "other values"),
        (Shrinking(1.0, 1.0, inner=np.ones(2)), r"array\(\[1., 1.\]\) is neither"),
        (with_more(), "has secretly beside its fields"),
        (Outer.Inner(1.0, 1.0), "no .*Outer.Inner to import"),
        (make_dataclass("Lost", [], bases=(Gaussian,), frozen=True)(1.0, 1.0), "to import"),
    ],
    ids=["no dataclass", "not frozen", "not its values", "an array", "more than fields", "inside a class", "no module"],
)
def test_a_mechanism_that_cannot_travel_is_refused_before_anything_starts(mechanism, why, tmp_path):
    with pytest.raises(MismatchError, match=rf"{type(mechanism).__name__} cannot be sent to nodes: .*{why}.*frozen dataclass"):
        run_on_flower(read_config("tiny", SHORT), tmp_path / "run", mechanism=mechanism)
    assert not (tmp_path / "run").exists()


def test_noise_of_the_clients_is_refused(tmp_path):
    with pytest.raises(MismatchError, match="no secret for it: train with the embedded engine"):
        run_on_flower(read_config("tiny", SHORT), tmp_path / "run", mechanism=NoiseOfClients(1.0, 1.0))
    named = [*SHORT, f"mechanism.kind={__name__}:NoiseOfClients"]
    with pytest.raises(MismatchError, match="no secret for it"):
        on_local_grid(read_config("tiny", named), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_mechanism_that_the_configuration_names_is_made_on_the_nodes(tmp_path, one_thread):
    config = read_config("tiny", [*SHORT, f"mechanism.kind={__name__}:Shrinking", "mechanism.share=0.25"])
    run(config, tmp_path / "ours", secret_seed=5, quiet=True)
    on_local_grid(config, tmp_path / "flower")
    same_files(tmp_path / "ours", tmp_path / "flower")


def test_data_that_are_handed_over_are_refused(tmp_path):
    with pytest.raises(MismatchError, match="data and a model that are handed over"):
        run_on_flower(read_config("tiny", SHORT), tmp_path / "run", task=object())
    assert not (tmp_path / "run").exists()


def test_a_task_travels_with_all_that_was_announced():
    public = Public(**{each.name: np.float32(place + 0.5) for place, each in enumerate(fields(Public))})
    public = replace(public, round=3)
    task = ClientBatch(public, np.arange(4, dtype=np.float32), ("one", "two"))
    back = task_of(packed(task, 0))
    assert back.public == public
    assert type(back.public.round) is int
    assert back.users == task.users
    assert (back.parameters == task.parameters).all()
    assert task_of(packed(Evaluate(task.parameters, ("one",)), 0)).users == ("one",)


@dataclass(frozen=True)
class Announced(Public):
    quantile: float = 0.5


@pytest.mark.parametrize(
    ("public", "message"),
    [
        (Announced(1, 1.0, 5.0), "announces a Announced, and nodes of Flower know Public alone"),
        (Public(1, np.ones(3), 5.0), "announces clip_norm, a ndarray"),
        (Public(1, None, 5.0), "announces clip_norm, a NoneType"),
    ],
)
def test_what_a_node_would_not_be_told_is_refused(public, message):
    with pytest.raises(MismatchError, match=message):
        packed(ClientBatch(public, np.zeros(2), ("one",)), 0)


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


def in_a_process_of_its_own(command, tmp_path):
    paths = [str(Path(__file__).parents[2] / "src"), str(tmp_path), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "FLWR_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_command_gives_the_same_bits(embedded, tmp_path):
    changes = [part for change in SHORT for part in ("--set", change)]
    command = ["-c", "from coalmine.cli import main; main()", "run", "tiny", *changes, "--engine", "flower"]
    command += ["--secret-seed", "5", "--out", str(tmp_path / "run"), "--json", "--quiet"]
    assert json.loads(in_a_process_of_its_own(command, tmp_path))["method"] == "band"
    assert not (tmp_path / "home").exists(), "no SuperLink, no simulation of Flower's own"
    same_files(tmp_path / "run", embedded)


OWN_MODULE = """
from dataclasses import dataclass

from coalmine.contracts import Contribution
from coalmine.mechanisms import Gaussian


@dataclass(frozen=True)
class Shrinking(Gaussian):
    share: float = 0.5

    def client(self, update, public, examples=1):
        kept = super().client(update, public, examples)
        return Contribution(kept.vector * self.share, kept.unclipped)
"""
OWN_PROGRAM = """
import sys

from own_mechanism import Shrinking

from coalmine.adapters.flower.engine import run as on_flower
from coalmine.training import run
from coalmine.training.config import read_config

if __name__ == "__main__":
    out, *changes = sys.argv[1:]
    for name, train in (("ours", run), ("flower", on_flower)):
        train(read_config("tiny", changes), f"{out}/{name}", mechanism=Shrinking(0.3, 0.7), secret_seed=5, quiet=True)
"""


def test_a_program_hands_over_a_mechanism_of_a_module_of_its_own(tmp_path):
    (tmp_path / "own_mechanism.py").write_text(OWN_MODULE)
    (tmp_path / "own_program.py").write_text(OWN_PROGRAM)
    in_a_process_of_its_own([str(tmp_path / "own_program.py"), str(tmp_path), *SHORT], tmp_path)
    same_files(tmp_path / "ours", tmp_path / "flower")
