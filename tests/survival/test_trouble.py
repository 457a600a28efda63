"""What goes wrong around a run is one clear message, and nothing is lost that was already written."""

import errno
import hashlib
import json
import os
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save, save_file

from coalmine import tensors
from coalmine._random import stream
from coalmine.runs import RunDirectory

STATE = "checkpoint/state.safetensors"
LONG = ("participation.rounds=20", "participation.epochs=8")


def contents(out):
    """Every file of a directory by its fingerprint; the lock is none of them."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture(scope="module")
def stopped(coalmine, tmp_path_factory):
    """A run that was killed in its fifth round."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    assert coalmine.run(out, fault={"at": "write", "file": f"{STATE}.part", "do": "before", "nth": 6}).killed
    return out


@pytest.fixture
def half(stopped, tmp_path):
    """A copy of it, which may be hurt."""
    return shutil.copytree(stopped, tmp_path / "half")


# Full disks


WRITES = ("residual.rows", "events.jsonl", f"{STATE}.part", "model.safetensors.part", "scores.npz.part", "result.json.part")


@pytest.mark.parametrize("file", WRITES)
def test_a_full_disk(coalmine, whole, same, tmp_path, file):
    """It is full after half of the bytes of a file; when there is room again the run goes on."""
    out = tmp_path / "run"
    nth = 3 if "result" not in file and "model" not in file and "scores" not in file else 1
    ended = coalmine.run(out, fault={"at": "write", "file": file, "do": errno.ENOSPC, "nth": nth})
    ended.said(4, "the disk is full", "intact", "coalmine resume", str(out))
    assert not list(out.rglob("*.part"))
    assert coalmine.resume(out).code in (0, 1)
    same(out, whole()[0])


def test_a_disk_that_is_full_from_the_beginning(coalmine, tmp_path):
    out = tmp_path / "run"
    for file in (f"{STATE}.part", "config.toml.part"):
        ended = coalmine.run(out, fault={"at": "write", "file": file, "do": errno.ENOSPC})
        ended.said(4, "the disk is full", "Nothing was begun", "start again")
        assert not out.exists() or not any(out.iterdir())
    assert coalmine.run(out).code in (0, 1)


def test_a_device_that_is_always_full(coalmine, half, whole, same):
    """No patch: writing to /dev/full fails as a full disk does."""
    (half / f"{STATE}.part").unlink(missing_ok=True)
    (half / f"{STATE}.part").symlink_to("/dev/full")
    before = RunDirectory.open(half).load()[0]
    coalmine.resume(half).said(4, "the disk is full", "intact")
    assert RunDirectory.open(half).load()[0] == before
    assert coalmine.resume(half).code in (0, 1)
    same(half, whole()[0])


def test_a_small_file_system(coalmine, whole, same, small, secret, tmp_path):
    """A real one of 56 kB, in a name space of its own; then it grows."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    out, expected = disk / "run", whole()[0]
    sets = [word for change in small for word in ("--set", change)]
    run = ("run", "tiny", *sets, "--workers", 1, "--out", out, "--quiet", "--secret-seed", secret)
    resume = ("resume", out, "--quiet", "--workers", 1)
    ended = coalmine.several(run, resume, ("enlarge", "10m"), resume, ("copy", out, copy), tmpfs=[str(disk), "56k"])
    if ended.code == 77:
        pytest.skip("no file systems may be mounted here")
    assert ended.err.count("the disk is full") == 2 and "Traceback" not in ended.err, ended.err
    same(copy, expected)


def test_a_file_that_may_not_grow(coalmine, whole, same, tmp_path):
    """`ulimit -f`: the system refuses what is beyond it."""
    out = tmp_path / "run"
    coalmine.run(out, limits={"FSIZE": 3000}).said(4, "cannot write to", "File too large", "coalmine resume")
    assert coalmine.resume(out).code in (0, 1)
    same(out, whole()[0])


# Places where no run can be


def test_a_directory_that_may_not_be_written(coalmine, whole, half, same, tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    ended = coalmine.run(folder / "run", drop=os.geteuid() == 0)
    ended.said(4, "permission denied", "Nothing was begun")
    for path in (half / "checkpoint", half):
        path.chmod(0o555)
    coalmine.resume(half, drop=os.geteuid() == 0).said(4, "permission denied", "intact", "coalmine resume")
    for path in (half, half / "checkpoint"):
        path.chmod(0o755)
    assert RunDirectory.open(half).load()[0] == 4
    assert coalmine.resume(half).code in (0, 1)
    same(half, whole()[0])


def test_an_out_that_exists(coalmine, tmp_path, half):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    before = contents(half)
    coalmine.run(tmp_path / "file").said(4, "is not a directory", "--out")
    for name in ("full", "half"):
        coalmine.run(tmp_path / name).said(4, "already exists", "--out", "coalmine resume")
    coalmine.run(tmp_path / "file" / "run").said(4, "cannot write to", "Not a directory")
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / "thesis.txt").read_text() == "mine"
    assert contents(half) == before


def test_an_out_that_exists_and_is_empty(coalmine, whole, same, tmp_path):
    (tmp_path / "empty").mkdir()
    assert coalmine.run(tmp_path / "empty").code in (0, 1)
    same(tmp_path / "empty", whole()[0])


def test_what_is_no_run(coalmine, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    coalmine.resume(tmp_path / "nothing").said(4, "there is no run directory", "coalmine run --out")
    coalmine.resume(tmp_path / "file").said(4, "there is no run directory")
    coalmine.resume(tmp_path / "folder").said(4, "not a run directory", "no config.toml")
    (tmp_path / "folder" / "config.toml").write_text("[mine]\n")
    coalmine.resume(tmp_path / "folder").said(4, "damaged or missing")
    assert contents(tmp_path / "folder") == {"config.toml": hashlib.sha256(b"[mine]\n").hexdigest()}


def test_two_processes_on_one_directory(coalmine, whole, same, half):
    with RunDirectory.open(half).locked():
        before = contents(half)
        coalmine.resume(half).said(4, "another process is working on")
        assert contents(half) == before
    assert coalmine.resume(half).code in (0, 1)
    same(half, whole()[0])


def test_a_finished_run_is_read(coalmine, whole):
    out, _ = whole()
    before = contents(out)
    printed = coalmine("resume", out, "--json", "--quiet")
    assert printed.out == (out / "result.json").read_text()
    assert contents(out) == before


@pytest.mark.parametrize("name", ["training.json", "result.json"])
@pytest.mark.parametrize("harm", ["cut", "emptied", "text", "removed"])
def test_damaged_results_are_written_again(coalmine, whole, same, tmp_path, name, harm):
    out = shutil.copytree(whole()[0], tmp_path / "run")
    data = (out / name).read_bytes()
    (out / name).write_bytes({"cut": data[: len(data) // 2], "text": b"[1]", "emptied": b"", "removed": b""}[harm])
    if harm == "removed":
        (out / name).unlink()
    if (name, harm) != ("training.json", "removed"):
        coalmine.resume(out).said(4, name, "damaged", "Remove training.json")
        (out / "training.json").unlink()
    assert coalmine.resume(out).code in (0, 1)
    same(out, whole()[0])


# Damaged runs


def repacked(path, change):
    """The checkpoint, with something else in what it says about itself."""
    with safe_open(path, framework="numpy") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    metadata["coalmine"] = json.dumps(change(json.loads(metadata["coalmine"])), sort_keys=True)
    save_file(state, path, metadata=metadata)


def test_another_layout(coalmine, half):
    repacked(half / STATE, lambda about: {"schema": "coalmine-run/7", "future": [about]})
    before = contents(half)
    coalmine.resume(half).said(4, "layout 'coalmine-run/7'", "this version reads 'coalmine-run/2'")
    assert contents(half) == before


def test_an_unfinished_run_of_the_first_layout(coalmine, half):
    with safe_open(half / STATE, framework="numpy") as file:
        about = json.dumps({**json.loads(file.metadata()["coalmine"]), "schema": "coalmine-run/1"}, sort_keys=True)
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    (half / STATE).write_bytes(save(state, metadata={"coalmine": about, "sha256": tensors.digest(about, state)}))
    before = contents(half)
    coalmine.resume(half).said(4, "first version of coalmine", "start a new run")
    assert contents(half) == before


def test_other_versions(coalmine, tmp_path, half):
    """A run that another torch began would not end with the same bits."""
    text = (half / "config.toml").read_text()
    line = next(line for line in text.splitlines() if line.startswith("torch ="))
    seed = int(json.loads((half / "secret.json").read_text())["secret_seed"], 16)
    out = RunDirectory.create(tmp_path / "old", config=text.replace(line, 'torch = "1.0"'), secret_seed=seed).path
    before = contents(out)
    coalmine.resume(out).said(4, "torch 1.0 (here: ", "Install the versions")
    assert contents(out) == before


@pytest.mark.parametrize("change", [{"rounds": 3}, {"rounds": 5}, {"logs": {}}, {"seals": {}}, {"more": 1}])
def test_a_checkpoint_that_says_something_else(coalmine, half, change):
    repacked(half / STATE, lambda about: {**about, **change})
    coalmine.resume(half).said(4, "state.safetensors", "damaged or missing", "Nothing was changed")


GOES_ON_FROM = (STATE, "checkpoint/residual.rows", "config.toml", "secret.json", "events.jsonl")


def refused(out):
    """Whether a copy is recognised as damaged, without the cost of a process: what `resume` reads before it goes on."""
    from coalmine.errors import RunDirectoryError

    before = contents(out)
    try:
        run = RunDirectory.open(out)
        _ = run.config, run.secret_seed, run.load()
    except RunDirectoryError as error:
        assert "damaged or missing" in str(error) or "layout" in str(error), error
        assert contents(out) == before
        return True
    return False


@pytest.mark.parametrize("name", GOES_ON_FROM)
def test_flipped_bits_are_noticed(stopped, tmp_path, name):
    """One bit anywhere in what counts; beyond that nothing is read."""
    about, _ = RunDirectory.open(stopped)._read_checkpoint()
    rng = stream(6, "flips", name)
    size = about["logs"][name][0] if name in about["logs"] else (stopped / name).stat().st_size
    places = [0, size - 1, *rng.integers(0, size, 40)]
    if name == STATE:
        places += range(0, 700, 13)  # the header, where a flip has a meaning
    for number, place in enumerate(places):
        out = tmp_path / "copy"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(stopped, out)
        data = bytearray((out / name).read_bytes())
        data[place] ^= 1 << int(rng.integers(8))
        (out / name).write_bytes(data)
        assert refused(out), (number, place)


@pytest.mark.parametrize("name", GOES_ON_FROM)
def test_files_that_are_cut_or_gone(stopped, tmp_path, name):
    about, _ = RunDirectory.open(stopped)._read_checkpoint()
    size = about["logs"][name][0] if name in about["logs"] else (stopped / name).stat().st_size
    for keep in (None, 0, 1, 8, 9, size // 2, size - 1):
        out = tmp_path / f"copy-{keep}"
        shutil.copytree(stopped, out)
        if keep is None:
            (out / name).unlink()
        else:
            os.truncate(out / name, keep)
        if name == "config.toml" and keep is None:
            continue  # then it is no run directory at all, see above
        assert refused(out), keep


@pytest.mark.parametrize("name", GOES_ON_FROM)
def test_damage_is_one_message(coalmine, whole, same, half, name):
    """Through the command line; with an intact copy put back the run goes on."""
    good = (half / name).read_bytes()
    (half / name).write_bytes(good[:40] + bytes([good[40] ^ 4]) + good[41:])
    before = contents(half)
    coalmine.resume(half).said(4, name.split("/")[-1], "damaged or missing", "Nothing was changed", "intact copy")
    assert contents(half) == before
    (half / name).write_bytes(good)
    assert coalmine.resume(half).code in (0, 1)
    same(half, whole()[0])


# Numbers that are none


def test_an_update_that_turns_nan_in_round_17(coalmine, whole, same, small, tmp_path):
    sets = (*small, *LONG)
    out = tmp_path / "run"
    poison = {"at": "client", "round": 17}
    message = coalmine.run(out, sets=sets, fault=poison).said(
        4, "round 17, client '", "NaN", "coordinate 5", "Nothing of this round"
    )
    before = contents(out)
    assert RunDirectory.open(out).load()[0] == 17
    assert len((out / "events.jsonl").read_text().splitlines()) == 17
    assert coalmine.resume(out, fault=poison).said(4) == message  # as often as one tries
    assert contents(out) == before
    assert coalmine.resume(out).code in (0, 1)
    same(out, whole(sets)[0])


def test_the_same_from_a_worker(coalmine, small, tmp_path):
    """A learning rate beyond reason, two workers: the first client of the cohort is named, whoever came first."""
    sets = (*small, "client.learning_rate=1e38", "client.epochs=3")
    said = {
        coalmine.run(tmp_path / str(workers), sets=sets, workers=workers).said(4, "round 0, client '", "learning rate")
        for workers in (1, 2)
    }
    assert len(said) == 1
    assert RunDirectory.open(tmp_path / "2").load() == (0, {})


def test_the_server_runs_away(coalmine, small, tmp_path):
    sets = (*small, "server.learning_rate=1e300")
    coalmine.run(tmp_path / "run", sets=sets).said(4, "round ", "not finite", "learning rate")


def test_numbers_that_are_open_in_a_record(tmp_path):
    """A loss that is infinite says nothing about updates; it is recorded as open."""
    run = RunDirectory.create(tmp_path / "run", config="", secret_seed=None)
    run.save(1, {"parameters": np.zeros(2)}, {}, {"training_loss": float("inf"), "clients": 3})
    (event,) = run.events()
    assert (event["training_loss"], event["clients"]) == (None, 3)


# Ctrl-C


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interruption(coalmine, whole, same, tmp_path, workers):
    """It is no violation, whose exit code is 1, and no traceback; the run can be resumed."""
    out = tmp_path / "run"
    kill = {"once": str(out / "events.jsonl"), "after": 0.005, "signal": 2}
    ended = coalmine.run(out, workers=workers, kill=kill)
    assert (ended.code, ended.out) == (130, "") or (out / "training.json").exists(), ended
    assert "Traceback" not in ended.err
    assert coalmine.resume(out).code in (0, 1)
    same(out, whole()[0])
