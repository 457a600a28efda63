"""The run directory on its own; runs that are killed or hurt are in tests/survival."""

import errno
import json
import os
import stat

import numpy as np
import pytest

from coalmine.errors import RunDirectoryError
from coalmine.runs import SCHEMA, RunDirectory

STATE = {"parameters": np.arange(6, dtype=np.float32), "server.velocity": np.ones((2, 3)), "mechanism.clip_norm": np.array(0.5)}


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", config="[about]\n", secret_seed=2**100 + 1)


def again(run):
    return RunDirectory.open(run.path)


def test_what_is_created_is_opened(run):
    found = again(run)
    assert (found.config, found.secret_seed, found.finished) == ("[about]\n", 2**100 + 1, False)
    assert found.load() == (0, {})
    assert stat.S_IMODE((run.path / "secret.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoint", "config.toml", "secret.json"]


def test_a_state_comes_back_as_it_was(run):
    """Numbers of no dimension included: `mechanism.clip_norm` is one."""
    run.save(1, STATE, {}, {})
    rounds, state = again(run).load()
    assert rounds == 1 and state.keys() == STATE.keys()
    for name, value in STATE.items():
        assert (state[name].dtype, state[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(state[name], value)


def test_a_state_in_another_order_of_memory(run):
    value = np.arange(6.0).reshape(2, 3).T
    run.save(1, {"turned": value}, {}, {})
    np.testing.assert_array_equal(again(run).load()[1]["turned"], value)


def test_rows_and_events_are_those_of_finished_rounds(run):
    for number in range(3):
        run.save(number + 1, STATE, {"mean": np.full(4, number / 3), "step": np.array([number])}, {"loss": number})
    for name in ("events.jsonl", "checkpoint/mean.rows", "checkpoint/other.rows"):
        with (run.path / name).open("ab") as file:
            file.write(b'{"half of')  # of a round that was never finished
    found = again(run)
    assert found.load()[0] == 3
    np.testing.assert_array_equal(found.rows("mean"), np.outer(np.arange(3) / 3, np.ones(4)))
    np.testing.assert_array_equal(found.rows("step"), [[0], [1], [2]])
    assert found.has_rows("mean") and not found.has_rows("other")
    assert (run.path / "checkpoint" / "other.rows").stat().st_size == 0
    assert [(event["round"], event["loss"]) for event in found.events()] == [(0, 0), (1, 1), (2, 2)]
    found.save(4, STATE, {"mean": np.ones(4), "step": np.array([3])}, {"loss": 3})  # and it goes on from there
    assert again(run).load()[0] == 4


def test_events_of_a_run_that_is_writing(run):
    run.save(1, STATE, {}, {"loss": 1})
    with (run.path / "events.jsonl").open("ab") as file:
        file.write(b'{"round": 1, "lo')
    assert [event["round"] for event in again(run).events()] == [0]


def test_nothing_is_changed_where_something_is_damaged(run):
    run.save(1, STATE, {"mean": np.ones(3)}, {})
    for name in ("events.jsonl", "checkpoint/mean.rows"):
        with (run.path / name).open("ab") as file:
            file.write(b"beyond")
    data = (run.path / "checkpoint" / "mean.rows").read_bytes()
    (run.path / "checkpoint" / "mean.rows").write_bytes(b"?" + data[1:])
    with pytest.raises(RunDirectoryError, match=r"mean\.rows.*damaged or missing.*Nothing was changed"):
        again(run).load()
    assert (run.path / "events.jsonl").read_bytes().endswith(b"beyond")


@pytest.mark.parametrize("name", ["config.toml", "secret.json"])
def test_what_was_written_once_stays_what_it_was(run, name):
    with (run.path / name).open("a") as file:
        file.write(" ")
    with pytest.raises(RunDirectoryError, match=name):
        _ = again(run).config, again(run).secret_seed


def test_a_missing_checkpoint_is_no_beginning(run):
    """Else all that was appended would be cut off."""
    run.save(1, STATE, {}, {"loss": 1})
    (run.path / "checkpoint" / "state.safetensors").unlink()
    with pytest.raises(RunDirectoryError, match="damaged or missing"):
        again(run).load()
    assert len(run.events()) == 1


def test_a_whole_file_or_the_old_one(run, monkeypatch):
    run.write("views/final.npz", b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunDirectoryError, match="the disk is full"):
        run.write("views/final.npz", b"new")
    assert [(path.name, path.read_bytes()) for path in (run.path / "views").iterdir()] == [("final.npz", b"old")]


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EROFS, "read-only"), (errno.EACCES, "permission denied"), (errno.EIO, "Input/output error")]
)
def test_why_nothing_can_be_written(run, monkeypatch, number, words):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(RunDirectoryError, match=words):
        run.save(1, STATE, {}, {})


def test_one_at_a_time(run):
    with run.locked(), pytest.raises(RunDirectoryError, match="another process"), again(run).locked():
        pytest.fail("two at a time")
    with again(run).locked():
        pass


def test_a_run_inside_a_run(run):
    inner = run.inner("reference", config="a = 1\n")
    inner.save(1, STATE, {}, {})
    found = run.inner("reference", config="never looked at")
    assert (found.config, found.load()[0]) == ("a = 1\n", 1)
    assert not (inner.path / "secret.json").exists()
    with pytest.raises(RunDirectoryError, match=r"secret\.json"):
        _ = inner.secret_seed


def test_a_run_inside_a_run_that_was_killed_at_its_birth(run):
    (run.path / "reference" / "checkpoint").mkdir(parents=True)
    (run.path / "reference" / "config.toml.part").write_text("a =")
    assert run.inner("reference", config="a = 1\n").load() == (0, {})


def test_finished_is_what_has_its_last_file(run):
    run.write("training.json", b"{}")
    assert again(run).finished


def test_the_layout_is_named(run):
    from safetensors import safe_open

    with safe_open(run.path / "checkpoint" / "state.safetensors", framework="numpy") as file:
        assert json.loads(file.metadata()["coalmine"])["schema"] == SCHEMA


def test_what_is_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "precious").write_text("mine")
    with pytest.raises(RunDirectoryError, match="already exists and is not empty"):
        RunDirectory.create(tmp_path, config="", secret_seed=1)
    assert (tmp_path / "checkpoint" / "precious").read_text() == "mine"
