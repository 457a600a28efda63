"""Runs with trackers, killed and resumed: the same bits, one run at every tracker, no round twice, at most one lost.

Weights & Biases loses none: it is told again what it does not have.
"""

import pytest

STATE = "checkpoint/state.safetensors"
TRACKED = 'run.hooks=["tensorboard","mlflow"]'
PLACES = {  # the rounds that trackers do not hear of: a round is told after it is saved
    "half of a checkpoint": (("write", f"{STATE}.part", "half", 5), []),
    "a round that was saved and not told": (("rename", STATE, "after", 5), [3]),
    "after the last round": (("write", "model.safetensors.part", "half", 1), []),
    "half a result": (("write", "result.json.part", "half", 1), []),
}


def steps(out):
    """By tracker, the rounds it knows."""
    from mlflow.tracking import MlflowClient
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(out / "hooks" / "tensorboard"))
    read.Reload()
    client = MlflowClient(tracking_uri=f"sqlite:///{out / 'hooks' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("coalmine").experiment_id])
    assert found.info.status == "FINISHED" and "verdict" in found.data.tags
    assert len(read.Scalars("final/lower_bound")) == 1
    history = client.get_metric_history(found.info.run_id, "training_loss")
    return {
        "tensorboard": sorted(point.step for point in read.Scalars("training_loss")),
        "mlflow": sorted(point.step for point in history),
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", ["a round that was saved and not told", "after the last round"])  # wandb: at all of them
def test_killed_and_resumed(coalmine, whole, same, small, tmp_path, place):
    (at, file, do, nth), lost = PLACES[place]
    out = tmp_path / "run"
    fault = {"at": at, "file": file, "do": do, "nth": nth}
    assert coalmine.run(out, sets=(*small, TRACKED), fault=fault).killed
    ended = coalmine.resume(out)
    assert ended.code in (0, 1) and "hook" not in ended.err
    same(out, whole()[0])
    rounds = [number for number in range(6) if number not in lost]
    assert steps(out) == {"tensorboard": rounds, "mlflow": rounds}


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_wandb_killed_and_resumed(coalmine, whole, same, small, tmp_path, place, read_wandb):
    """Its own process loses what it was told within the last seconds; it is told again, and then no round is missing."""
    (at, file, do, nth), _ = PLACES[place]
    out = tmp_path / "run"
    sets = (*small, 'run.hooks=["wandb"]')
    assert coalmine.run(out, sets=sets, fault={"at": at, "file": file, "do": do, "nth": nth}).killed
    ended = coalmine.resume(out)
    assert ended.code in (0, 1) and "hook" not in ended.err
    same(out, whole()[0])
    found = read_wandb(out / "hooks" / "wandb")
    assert len(found.parts) == 2 and found.steps == [*range(6)] and "final/verdict" in found.summary


@pytest.mark.slow
def test_the_option_of_the_command_line(coalmine, whole, same, tmp_path):
    out = tmp_path / "run"
    fault = {"at": "rename", "file": STATE, "do": "before", "nth": 4}
    words = ("--hook", "tensorboard", "--hook", "mlflow")
    assert coalmine.run(out, more=words, fault=fault).killed
    assert coalmine("resume", out, "--workers", 1, "--quiet", *words).code in (0, 1)
    same(out, whole()[0])
    assert steps(out) == {"tensorboard": list(range(6)), "mlflow": list(range(6))}


def test_a_name_that_is_no_hook_is_one_message(coalmine, small, tmp_path):
    coalmine.run(tmp_path / "run", more=("--hook", "telegraph")).said(2, "telegraph", "tensorboard, mlflow, wandb")
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_cannot_write_does_not_end_the_run(coalmine, whole, same, tmp_path):
    """A file is where its folder should be."""
    out = tmp_path / "run"
    fault = {"at": "rename", "file": STATE, "do": "before", "nth": 3}
    assert coalmine.run(out, fault=fault).killed
    (out / "hooks").write_text("in the way")
    ended = coalmine("resume", out, "--workers", 1, "--quiet", "--hook", "tensorboard")
    assert ended.code in (0, 1)
    assert ended.err.count("coalmine: hook tensorboard failed and is left out") == 1
    same(out, whole()[0])
