"""A state that is written after some rounds only: whoever resumes makes the others again, with the same bits."""

import pytest

from coalmine.runs import RunDirectory
from coalmine.training import checkpoints, resume, run
from coalmine.training.config import read_config
from coalmine.workers import Workers

pytestmark = pytest.mark.usefixtures("undrawn")

SHORT = ["participation.rounds=6", "participation.epochs=2", "canaries.pool=20", "run.workers=1", "run.evaluate_every=2"]
FILES = ("model.safetensors", "scores.npz", "result.json")


class Stopping(Workers):
    """Ends the process of a run, as far as its files are concerned, before its fifth round."""

    def fold(self, tasks, total):
        if tasks[0].public.round == 4:
            raise KeyboardInterrupt
        return super().fold(tasks, total)


def stopped(path, **how):
    """(rounds that are saved, lines of events) of a run that was stopped in its fifth round."""
    with pytest.raises(KeyboardInterrupt):
        run(read_config("tiny", SHORT), path, secret_seed=5, quiet=True, make_workers=Stopping, **how)
    directory = RunDirectory.open(path)
    return directory.look()[0], len(directory.events())


@pytest.fixture
def rarely(monkeypatch):
    """The state of `tiny` counts as a large one, and so little time passes that only the first round's is written."""
    monkeypatch.setattr(checkpoints, "_SMALL", 10_000)
    monkeypatch.setattr(checkpoints, "_RATE", 1e-3)


def test_rounds_after_the_last_checkpoint_are_made_again(tmp_path, rarely, one_thread, monkeypatch):
    assert stopped(tmp_path / "stopped") == (1, 4)
    resume(tmp_path / "stopped", quiet=True)
    monkeypatch.undo()
    run(read_config("tiny", SHORT), tmp_path / "whole", secret_seed=5, quiet=True)
    for name in FILES:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    rounds = [line["round"] for line in RunDirectory.open(tmp_path / "stopped").events()]
    assert rounds == list(range(6))


def test_the_state_of_a_small_model_is_written_after_every_round(tmp_path, one_thread):
    assert stopped(tmp_path / "stopped") == (4, 4)


def test_a_hook_hears_of_no_round_twice(tmp_path, rarely, one_thread):
    heard = []

    def hook(event):
        heard.append(event.get("round") if event["event"] == "round" else None)

    assert stopped(tmp_path / "stopped", hooks=[hook]) == (4, 4)
    resume(tmp_path / "stopped", quiet=True, hooks=[hook])
    assert [number for number in heard if number is not None] == list(range(6))


def test_a_minute_is_the_longest(tmp_path, monkeypatch):
    directory = RunDirectory.create(tmp_path / "run", config="", secret_seed=1)
    (tmp_path / "run" / "checkpoint" / "state.safetensors").write_bytes(bytes(17_000_000))
    now = [100.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    saved = checkpoints.Checkpoints(directory, 10, all_of_them=False)
    found = []
    for seconds, done in ((16.9, 1), (0.2, 2), (16.9, 3), (17.1, 4), (0.0, 10)):
        now[0] += seconds
        found.append(saved.due(done))
    assert found == [False, True, False, True, True]  # 17 MB: 17 seconds; the last round in any case
    monkeypatch.setattr(checkpoints, "_RATE", 1)
    for seconds, due in ((59.0, False), (1.1, True)):
        now[0] += seconds
        assert saved.due(5) is due
