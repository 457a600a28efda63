"""Hooks of real runs: what they hear, that they change nothing, and what the trackers themselves read back afterwards."""

import hashlib
import json
import os
import random
import shutil
import time

import numpy as np
import pytest
import torch

from coalmine.hooks import MLflow, TensorBoard, WeightsAndBiases
from coalmine.training import resume, run
from coalmine.training import running as training
from coalmine.training.config import read_config

pytestmark = pytest.mark.usefixtures("undrawn")

SECRET = 0x5EC2E7_0F_A11_7E575
ROUNDS = 6
SMALL = (
    *("data.users=60", f"participation.rounds={ROUNDS}", "participation.epochs=2", "canaries.pool=40", "audit.unused_rows=100"),
    *("run.workers=1", "run.evaluate_every=2", 'audit.views=["known-others","final-model"]', "audit.bound=anytime"),
)
SAME = ("model.safetensors", "scores.npz", "result.json", "training.json", "views/final-model.npz")


def train(out, *changes, hooks=()):
    return run(read_config("tiny", [*SMALL, *changes]), out, secret_seed=SECRET, hooks=hooks, quiet=True)


def digests(out):
    return {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in SAME}


def lines(out):
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def without_times(events):
    return [{name: value for name, value in event.items() if name not in ("time", "seconds")} for event in events]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A run that nobody listens to."""
    out = tmp_path_factory.mktemp("quiet") / "run"
    train(out)
    return out


def stop_after(number):
    """The user's Ctrl-C while a hook listens."""

    def stop(event):
        if event["event"] == "round" and event["round"] == number:
            raise KeyboardInterrupt

    return stop


def test_what_hooks_hear(tmp_path):
    heard = []
    finished = train(tmp_path / "run", "run.reference=true", hooks=[heard.append])
    assert [event["event"] for event in heard] == ["start", *["round"] * ROUNDS, "end"]
    start, *rounds, end = heard
    assert (start["round"], start["rounds"], start["directory"]) == (0, ROUNDS, str(tmp_path / "run"))
    assert start["config"]["mechanism"]["noise_multiplier"] == 0.5
    assert [{"event": "round", **line} for line in lines(tmp_path / "run")] == rounds
    assert {"training_loss", "canaries", "epsilon_claimed", "epsilon_measured", "clip_norm"} <= set(rounds[-1])
    assert "accuracy" in rounds[1] and "accuracy" not in rounds[0]
    result = finished.result
    assert (end["verdict"], end["claim"], end["lower_bound"]) == (
        result.verdict.word,
        result.claim.epsilon,
        result.bound.epsilon,
    )
    assert end["estimate"] == (result.estimate.epsilon if result.estimate else None)
    json.dumps(heard, allow_nan=False)


def test_no_event_holds_a_secret(tmp_path):
    heard = []
    train(tmp_path / "run", hooks=[heard.append])
    told = json.dumps(heard)
    assert str(SECRET) not in told and f"{SECRET:x}" not in told
    with np.load(tmp_path / "run" / "scores.npz", allow_pickle=False) as scores:
        assert not any(repr(float(value)) in told for value in scores["value"])
    numbers = [value for event in heard for value in event.values() if isinstance(value, list)]
    assert numbers == [], "no event lists anything by canary"


def test_a_run_without_canaries_ends_too(tmp_path):
    heard = []
    train(tmp_path / "run", "canaries.pool=0", hooks=[heard.append])
    assert heard[-1]["verdict"] == "NOT AUDITED" and "accuracy" in heard[-1]


def disturb(event):
    """All that a rude hook does."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    time.sleep(0.05)
    event.clear()


def test_hooks_change_no_bit(quiet, tmp_path, capsys):
    def fails(event):
        raise OSError("no")

    out = tmp_path / "run"
    train(out, hooks=[disturb, fails, "tensorboard"])
    assert digests(out) == digests(quiet)
    assert without_times(lines(out)) == without_times(lines(quiet))
    assert capsys.readouterr().err.count("coalmine: hook") == 1
    assert not (quiet / "hooks").exists()


class Clock:
    """Takes the place of `time` where rounds are timed: it goes on by a second whenever it is read."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


def test_a_slow_hook_is_not_the_training(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(training, "time", clock)

    def slow(event):
        clock.now += 1000.0

    train(tmp_path / "run", hooks=[slow])
    seconds = [line["seconds"] for line in lines(tmp_path / "run")]
    assert len(seconds) == ROUNDS and all(0 < each < 1000 for each in seconds) and clock.now > 1000 * ROUNDS


def test_going_on_repeats_no_round(quiet, tmp_path):
    out, first, second = tmp_path / "run", [], []
    with pytest.raises(KeyboardInterrupt):
        train(out, hooks=[first.append, stop_after(2)])
    resume(out, hooks=[second.append], quiet=True)
    assert [event.get("round") for event in first] == [0, 0, 1, 2]
    assert [event.get("round") for event in second] == [3, 3, 4, 5, None]
    assert digests(out) == digests(quiet)


def test_a_finished_run_has_nothing_to_tell(quiet):
    heard = []
    resume(quiet, hooks=[heard.append], quiet=True)
    assert heard == []


def test_a_wrong_hook_is_refused_before_there_is_a_directory(tmp_path):
    with pytest.raises(ValueError, match="no hook"):
        train(tmp_path / "run", hooks=["telegraph"])
    assert not (tmp_path / "run").exists()


# what the trackers read back


def expected(out, name):
    return [(line["round"], line[name]) for line in lines(out) if line.get(name) is not None]


def interrupted(out, *hooks, **more):
    """A run that was stopped after round 2 and went on."""
    with pytest.raises(KeyboardInterrupt):
        train(out, *more.get("changes", ()), hooks=[*hooks, stop_after(2)])
    return resume(out, hooks=hooks, quiet=True)


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return read


@pytest.mark.parametrize("given", [False, True])
def test_tensorboard_reads_every_round_once(quiet, tmp_path, given):
    pytest.importorskip("tensorboard")
    out, folder = tmp_path / "run", tmp_path / "elsewhere"
    finished = interrupted(out, TensorBoard(folder) if given else "tensorboard")
    read = scalars(folder if given else out / "hooks" / "tensorboard")
    for name in ("training_loss", "epsilon_claimed", "accuracy", "canaries"):
        # files of one second are read in the order of their numbers as text, 10 before 9
        found = sorted((point.step, point.value) for point in read.Scalars(name))
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected(out, name)] != []
    (last,) = read.Scalars("final/lower_bound")
    assert (last.step, last.value) == (ROUNDS, pytest.approx(finished.result.bound.epsilon, rel=1e-6))
    (text,) = read.Tensors("verdict")
    assert text.tensor_proto.string_val[0].decode().startswith(finished.result.verdict.word)
    assert digests(out) == digests(quiet)


def mlflow_client(uri):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


@pytest.mark.parametrize("given", [False, True])
def test_mlflow_has_one_run(quiet, tmp_path, given, capsys):
    pytest.importorskip("mlflow")
    out = tmp_path / "run"
    uri = f"sqlite:///{tmp_path / 'mine.db' if given else out / 'hooks' / 'mlflow.db'}"
    hook = MLflow(uri, experiment="mine", run_name="first") if given else "mlflow"
    finished = interrupted(out, hook)
    assert "hook mlflow" not in (said := capsys.readouterr().err), said
    client = mlflow_client(uri)
    place = client.get_experiment_by_name("mine" if given else "coalmine")
    (found,) = client.search_runs([place.experiment_id])
    assert (found.info.status, found.info.run_name) == ("FINISHED", "first" if given else "run")
    for name in ("training_loss", "epsilon_claimed", "accuracy"):
        history = sorted((point.step, point.value) for point in client.get_metric_history(found.info.run_id, name))
        assert history == expected(out, name) != []
    assert found.data.tags["verdict"] == finished.result.verdict.word
    assert found.data.metrics["final_lower_bound"] == finished.result.bound.epsilon
    assert found.data.params["mechanism.noise_multiplier"] == "0.5"
    assert digests(out) == digests(quiet)


def test_mlflow_says_that_a_run_was_interrupted(tmp_path):
    client_of = pytest.importorskip("mlflow.tracking").MlflowClient
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", hooks=["mlflow", stop_after(1)])
    client = client_of(tracking_uri=f"sqlite:///{tmp_path / 'run' / 'hooks' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("coalmine").experiment_id])
    assert found.info.status == "KILLED"


def test_wandb_has_one_run_offline(quiet, tmp_path, capsys, read_wandb):
    out = tmp_path / "run"
    finished = interrupted(out, WeightsAndBiases("mine", tags=["audit"]))
    assert "hook wandb" not in (said := capsys.readouterr().err), said
    found = read_wandb(out / "hooks" / "wandb")
    begun = [record.run for record in found.records if record.HasField("run")]
    assert len(found.parts) == 2 and {each.run_id for each in begun} == {(out / "hooks" / "wandb.id").read_text()}
    assert {each.project for each in begun} == {"mine"}
    assert [[row["_step"] for row in rows] for rows in found.rows_by_part] == [[0, 1, 2], [3, 4, 5]]
    for name in ("training_loss", "epsilon_claimed", "accuracy"):
        assert [(row["_step"], row[name]) for row in found.rows if name in row] == expected(out, name) != []
    assert found.summary["final/verdict"] == finished.result.verdict.word
    assert digests(out) == digests(quiet)


def stopped_after_two(out):
    """The log that Weights & Biases wrote about a run which was stopped after round 2."""
    with pytest.raises(KeyboardInterrupt):
        train(out, hooks=["wandb", stop_after(2)])
    (log,) = (out / "hooks" / "wandb").glob("offline-run-*/run-*.wandb")
    return log


HEAD = 7  # bytes of a log without any record, which is what a kill leaves


@pytest.mark.parametrize("left", [0, 1, 2])
def test_wandb_is_told_again_what_it_lost(tmp_path, read_wandb, left):
    """A kill cuts its log at any place: here in the middle of a row, so that as many are left."""
    out = tmp_path / "run"
    log = stopped_after_two(out)
    size = log.stat().st_size
    while len(read_wandb(out / "hooks" / "wandb").rows) > left:
        size -= 5
        os.truncate(log, size)
    resume(out, hooks=["wandb"], quiet=True)
    found = read_wandb(out / "hooks" / "wandb")
    assert [[row["_step"] for row in rows] for rows in found.rows_by_part] == [[*range(left)], [*range(left, ROUNDS)]]
    for name in ("training_loss", "epsilon_claimed", "accuracy"):
        assert [(row["_step"], row[name]) for row in found.rows if name in row] == expected(out, name) != []


def test_wandb_has_no_row_twice_if_its_process_writes_late(tmp_path, read_wandb):
    """It lives a little longer than the run, and may write rows that were told again in the meantime."""
    out = tmp_path / "run"
    log = stopped_after_two(out)
    whole = log.read_bytes()
    log.write_bytes(whole[:HEAD])
    with log.open("ab") as late:
        resume(out, hooks=["wandb"], quiet=True)
        late.write(whole[HEAD:])
    assert read_wandb(out / "hooks" / "wandb").steps == [*range(ROUNDS)]


def test_wandb_is_not_told_again_what_was_taken_away(tmp_path, read_wandb):
    """Whoever uploads an offline run and removes it has its rounds."""
    out = tmp_path / "run"
    shutil.rmtree(stopped_after_two(out).parent)
    resume(out, hooks=["wandb"], quiet=True)
    assert read_wandb(out / "hooks" / "wandb").steps == [3, 4, 5]


def test_wandb_begins_where_it_is_first_named(tmp_path, read_wandb):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(out, hooks=[stop_after(2)])
    resume(out, hooks=["wandb"], quiet=True)
    assert read_wandb(out / "hooks" / "wandb").steps == [3, 4, 5]


class Server:
    """Stands for a run at a server, which says what it expects next."""

    offline = False

    def __init__(self, step):
        self.step, self.heard, self.summary = step, [], {}

    def log(self, values, *, step, commit):
        self.heard.append(step)

    def finish(self, **how):
        pass


@pytest.mark.parametrize(
    ("mode", "step", "heard"),
    [("online", 3, [3, 4, 5]), ("online", 1, [1, 2, 3, 4, 5]), ("online", 0, [*range(6)]), ("shared", 0, [3, 4, 5])],
)
def test_a_server_of_wandb_is_told_again_what_it_lacks(tmp_path, monkeypatch, mode, step, heard):
    wandb = pytest.importorskip("wandb")
    out = tmp_path / "run"
    server = Server(step)
    monkeypatch.setattr(wandb, "init", lambda **told: server)
    with pytest.raises(KeyboardInterrupt):
        train(out, hooks=[WeightsAndBiases(mode=mode), stop_after(2)])
    assert server.heard == [0, 1, 2]
    server.heard.clear()
    resume(out, hooks=[WeightsAndBiases(mode=mode)], quiet=True)
    assert server.heard == heard


def test_the_secret_is_in_no_file_of_a_tracker(tmp_path):
    out = tmp_path / "run"
    train(out, hooks=["tensorboard", "mlflow"])
    size = (SECRET.bit_length() + 7) // 8
    traces = [str(SECRET).encode(), f"{SECRET:x}".encode(), *(SECRET.to_bytes(size, order) for order in ("little", "big"))]
    files = [path for path in (out / "hooks").rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert [path.name for path in files if any(trace in path.read_bytes() for trace in traces)] == []


def test_a_hook_that_leaves_the_working_directory_does_not_take_the_run_along(tmp_path, quiet, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def leave(event):
        monkeypatch.chdir(tmp_path / "elsewhere")

    finished = train("run", hooks=[leave])
    assert str(finished.directory) == "run"
    assert digests(tmp_path / "run") == digests(quiet)
    assert not list((tmp_path / "elsewhere").iterdir())
