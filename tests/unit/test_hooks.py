"""Hooks as such: each hears its own copy, none can raise into a run, and what is missing is said before it begins."""

import json
import subprocess
import sys

import pytest

from coalmine.hooks import HOOKS, HookRunner, hooks_of
from coalmine.hooks import trackers as hooks
from coalmine.hooks import wandb_log as _wandb_log
from coalmine.training.config import Config, fingerprint, read_config


def errors(directory):
    return [json.loads(line) for line in (directory / "hooks" / "errors.jsonl").read_text().splitlines()]


def test_every_hook_hears_every_event(tmp_path):
    first, second = [], []
    with HookRunner([first.append, second.append], tmp_path) as tell:
        tell("start", {"round": 0})
        tell("round", {"round": 0, "loss": 1.5})
    assert first == second == [{"event": "start", "round": 0}, {"event": "round", "round": 0, "loss": 1.5}]
    assert list(tmp_path.iterdir()) == []


def test_what_a_hook_does_to_its_event_is_its_own(tmp_path):
    heard = []

    def spoil(event):
        event["inner"].clear()
        event.clear()

    task = {"inner": {"deep": [1]}}
    with HookRunner([spoil, heard.append], tmp_path) as tell:
        tell("round", task)
    assert heard == [{"event": "round", "inner": {"deep": [1]}}] and task == {"inner": {"deep": [1]}}


class Odd(BaseException):
    """No Exception, so that `except Exception` does not catch it."""


@pytest.mark.parametrize(
    "error", [ValueError("two\n lines"), MemoryError(), SystemExit(3), Odd("x"), GeneratorExit()], ids=repr
)
def test_a_hook_that_raises_is_reported_once_and_left_out(tmp_path, capsys, error):
    calls, heard = [], []

    def bad(event):
        calls.append(event)
        raise error

    with HookRunner([bad, heard.append], tmp_path) as tell:
        for number in range(3):
            tell("round", {"round": number})
    assert (len(calls), len(heard)) == (1, 3)
    said = capsys.readouterr().err
    assert (
        said.count("\n") == 1 and said.startswith("coalmine: hook ") and "bad failed" in said and type(error).__name__ in said
    )
    (line,) = errors(tmp_path)
    assert "bad" in line["hook"] and line["error"] == " ".join(f"{type(error).__name__}: {error}".split())


def test_ctrl_c_is_the_users(tmp_path):
    def interrupted(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), HookRunner([interrupted], tmp_path) as tell:
        tell("round", {})


def test_hooks_are_closed_even_after_an_error_and_closing_may_fail(tmp_path, capsys):
    closed = []

    class Closing:
        def __init__(self, name, error=None):
            self.name, self.error = name, error

        def __call__(self, event):
            pass

        def close(self):
            closed.append(self.name)
            if self.error:
                raise self.error

    with pytest.raises(ZeroDivisionError), HookRunner([Closing("a", OSError("full")), Closing("b")], tmp_path):
        raise ZeroDivisionError
    assert closed == ["a", "b"]
    assert "hook a failed" in capsys.readouterr().err


def test_a_hook_that_failed_is_closed_once_whatever_that_does(tmp_path):
    closed = []

    class Bad:
        def __call__(self, event):
            raise ValueError("first")

        def close(self):
            closed.append(self)
            raise Odd("second")

    with HookRunner([Bad()], tmp_path) as tell:
        tell("start", {})
        assert len(closed) == 1
        tell("round", {})
    assert len(closed) == 1
    assert [line["error"] for line in errors(tmp_path)] == ["ValueError: first"]


def test_an_error_that_cannot_say_what_it_is_stays_in(tmp_path, capsys):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    def bad(event):
        raise Mute

    with HookRunner([bad], tmp_path) as tell:
        tell("round", {})
    assert "Mute: (its message cannot be shown)" in capsys.readouterr().err


def test_attributes_that_raise_stay_in(tmp_path, capsys):
    class Property:
        name = "property"

        def __call__(self, event):
            pass

        @property
        def close(self):
            raise RuntimeError("no close")

    class Everything:
        def __call__(self, event):
            pass

        def __getattr__(self, name):
            raise Odd(name)

    with HookRunner([Property(), Everything()], tmp_path) as tell:
        tell("round", {})
    said = capsys.readouterr().err
    assert "hook property failed and is left out: RuntimeError: no close" in said and "hook Everything failed" in said


def test_a_failure_that_cannot_be_reported_does_not_raise(tmp_path, monkeypatch):
    class Nameless:
        @property
        def name(self):
            raise RuntimeError

        def __call__(self, event):
            raise ValueError

    monkeypatch.setattr(sys, "stderr", None)
    (tmp_path / "hooks").write_text("a file where the folder should be")
    with HookRunner([Nameless()], tmp_path) as tell:
        tell("start", {})


def test_two_equal_hooks_are_two(tmp_path):
    """Only the one that failed is left out, also if the other calls itself equal."""

    class Equal:
        def __init__(self, fails):
            self.fails, self.heard = fails, 0

        def __eq__(self, other):
            return True

        __hash__ = None

        def __call__(self, event):
            self.heard += 1
            if self.fails:
                raise ValueError

    good, bad = Equal(False), Equal(True)
    with HookRunner(hooks_of([bad, good]), tmp_path) as tell:
        tell("start", {})
        tell("end", {})
    assert (bad.heard, good.heard) == (1, 2)


def test_names_become_writers_each_once():
    found = hooks_of(["tensorboard", print, "tensorboard"])
    assert [type(found[0]), found[1]] == [hooks.TensorBoard, print] and len(found) == 2


@pytest.mark.parametrize("wrong", ["tensorbord", 3, None])
def test_what_is_no_hook_is_refused(wrong):
    with pytest.raises(ValueError, match="tensorboard, mlflow, wandb"):
        hooks_of([wrong])


@pytest.mark.parametrize("name", HOOKS)
def test_a_missing_package_is_refused_with_what_to_do(name, monkeypatch):
    monkeypatch.setattr(hooks, "find_spec", lambda package: None)
    with pytest.raises(ValueError, match=rf'pip install "coalmine\[{name}\]"'):
        HOOKS[name]()


def test_a_folder_of_that_name_is_no_package(tmp_path):
    """W&B makes a folder `wandb` wherever it runs."""
    (tmp_path / "coalmine_no_such_package").mkdir()
    code = "from coalmine.hooks.trackers import _installed; print(_installed('coalmine_no_such_package'), _installed('json'))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "True"]


def test_writers_load_their_packages_when_a_run_starts():
    code = "from coalmine.hooks import hooks_of; hooks_of(['tensorboard', 'mlflow']); import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"tensorboard", "mlflow", "wandb", "sqlalchemy", "torch"} & set(loaded)


def test_only_finite_numbers_are_metrics():
    event = {"event": "round", "round": 3, "time": 1.0, "loss": 2, "accuracy": None, "on": True, "ceiling": "inf", "x": 1e400}
    assert hooks._metrics(event) == {"loss": 2.0}


def test_the_configuration_names_writers():
    config = read_config("tiny", ['run.hooks=["tensorboard", "wandb"]'])
    assert config.run.hooks == ("tensorboard", "wandb")
    assert fingerprint(config) == fingerprint(read_config("tiny")), "who listens does not change a result"
    with pytest.raises(ValueError, match=r"run\.hooks"):
        read_config("tiny", ['run.hooks=["telegraph"]'])


def test_the_names_of_the_configuration_are_those_of_the_hooks():
    (kind, _) = Config.model_fields["run"].annotation.model_fields["hooks"].annotation.__args__
    assert set(kind.__args__) == set(HOOKS)


# the log of Weights & Biases


def logged(folder, rounds):
    """The log that the tracker itself writes of so many rounds, without any training."""
    pytest.importorskip("wandb")
    hook = hooks.WeightsAndBiases()
    hook({"event": "start", "directory": str(folder), "config": {}, "rounds": rounds, "round": 0})
    for number in range(rounds):
        hook({"event": "round", "round": number, "loss": 1 / (number + 1), "a rather long name of something else": number**0.5})
    hook({"event": "end", "rounds": rounds, "verdict": "CONSISTENT", "reason": "none"})
    (log,) = folder.glob("hooks/wandb/offline-run-*/run-*.wandb")
    return log


def test_a_log_of_several_blocks_is_read_to_its_end(tmp_path, read_wandb):
    log = logged(tmp_path, 600)
    assert log.stat().st_size > 3 * 32768
    assert _wandb_log.freeze(log) == 599
    assert read_wandb(tmp_path / "hooks" / "wandb").steps == [*range(600)]


def test_a_log_that_was_cut_is_read_to_its_last_whole_row(tmp_path, read_wandb):
    log = logged(tmp_path, 400)
    whole = log.read_bytes()
    for size in (7, 8, 13, 14, 5000, 32765, 32768, 32770, 32775, 33000, 65536, len(whole) - 1):
        log.write_bytes(whole[:size])
        last = _wandb_log.freeze(log)
        assert whole.startswith(log.read_bytes()) and log.stat().st_size <= size
        assert read_wandb(tmp_path / "hooks" / "wandb").steps == [*range(last + 1)]


def test_a_log_that_was_damaged_is_read_up_to_there(tmp_path, read_wandb):
    log = logged(tmp_path, 400)
    whole = log.read_bytes()
    log.write_bytes(whole[:20000] + b"\xff" * 2000 + whole[22000:])
    last = _wandb_log.freeze(log)
    assert 0 < last < 399
    assert read_wandb(tmp_path / "hooks" / "wandb").steps == [*range(last + 1)]


def test_a_log_of_another_kind_is_left_alone(tmp_path):
    pytest.importorskip("wandb")
    path = tmp_path / "run-x.wandb"
    path.write_bytes(b":W&B\xe1\xbe\x07 what may come")
    assert _wandb_log.freeze(path) is None
    assert path.read_bytes() == b":W&B\xe1\xbe\x07 what may come"
    _wandb_log.wait_for_its_end(path)  # does not wait


class Clock:
    """Time passes by sleeping alone; what should happen in the meantime is done at a given second."""

    def __init__(self, at, act):
        self.now, self.at, self.act = 0.0, at, act

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        if self.act and self.now >= self.at:
            self.act()
            self.act = None


@pytest.mark.parametrize(("at", "until"), [(3.0, 3.0), (99.0, 10.0)], ids=["late", "never"])
def test_the_end_waits_for_the_log_but_not_for_ever(tmp_path, monkeypatch, at, until):
    log = logged(tmp_path, 3)
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) // 2])
    clock = Clock(at, lambda: log.write_bytes(whole))
    monkeypatch.setattr(_wandb_log, "time", clock)
    _wandb_log.wait_for_its_end(log, patience=10.0)
    assert clock.now == pytest.approx(until, abs=0.02)
    assert (log.read_bytes() == whole) == (at < 10)
