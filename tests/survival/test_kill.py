"""`kill -9` at any moment, then `resume`: the model, the scores and the result have the bits of an uninterrupted run.

Moments are of three kinds: the n-th call of any function, n random with a fixed seed; a random time, by a signal from outside;
and the places that are most likely to be wrong, by name. That no process outlives a run is looked at after every child.
"""

import json

import pytest

from coalmine._random import stream

STATE = "checkpoint/state.safetensors"
OTHER = (  # more state than momentum alone, secret cohorts, and projections by layer
    *("server.optimiser=adam", "server.learning_rate=0.05", "mechanism.kind=adaptive", "participation.rounds=5"),
    *("participation.pattern=fixed-size", "participation.cohort_size=16", "audit.view=known-rounds", "audit.layers=true"),
    *('audit.views=["known-rounds","final-model"]', "data.users=60", "canaries.pool=40", "audit.unused_rows=100"),
    *("run.evaluate_every=2", "audit.bound=anytime"),
)


TRIALS = {"small": (0, 1, 2, 3, 6), "other": (4, 5, 7, 8, 9)}


def moment(ended, out, trial):
    """A random call: in trial 0 at any time, else while it trains or, every third, after that; in 6 after the audit."""
    counted = json.loads(ended.calls)
    names = ("config.toml", "model.safetensors", "result.json")
    begun, trained, audited = (counted["marks"][str(out / name)] for name in names)
    low, high = (begun, trained) if trial % 3 else (trained, audited)
    if trial == 6:
        low, high = audited, counted["calls"]
    return int(stream(3, "moment", trial).integers(low if trial else 1, high))


def killed_and_resumed(coalmine, out, same, expected, *, workers=1, then=1, drawn=False, **how):
    assert coalmine.run(out, workers=workers, drawn=drawn, **how).killed
    if not (out / "config.toml").exists():  # killed before there was a run
        coalmine.resume(out).said(4, "coalmine run" if not out.exists() else "Start again")
        return False
    assert not (out / "training.json").exists()
    assert coalmine.resume(out, workers=then, drawn=drawn).code in (0, 1)
    same(out, expected)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("sets", ["small", "other"])
def test_at_random_calls(coalmine, whole, same, small, tmp_path, sets):
    trials, sets = TRIALS[sets], {"small": small, "other": OTHER}[sets]
    expected, ended = whole(sets, counted=True)
    resumed = 0
    for trial in trials:
        fault = {"at": "calls", "number": moment(ended, expected, trial)}
        resumed += killed_and_resumed(coalmine, tmp_path / str(trial), same, expected, sets=sets, fault=fault)
    assert resumed >= len(trials) - (0 in trials)


def test_at_random_times(coalmine, whole, same, tmp_path):
    expected, _ = whole()
    for trial in range(4):
        out = tmp_path / str(trial)
        ended = coalmine.run(out, kill={"once": str(out / "config.toml"), "after": float(stream(4, trial).uniform(0, 0.3))})
        assert ended.killed or (out / "training.json").exists()
        assert coalmine.resume(out).code in (0, 1)
        same(out, expected)


PLACES = {
    "the first checkpoint of all": ("write", f"{STATE}.part", "half", 1),
    "half a configuration": ("write", "config.toml.part", "half", 1),
    "the configuration is not yet renamed": ("rename", "config.toml", "before", 1),
    "nothing but a configuration": ("rename", "config.toml", "after", 1),
    "half a row": ("write", "residual.rows", "half", 3),
    "rows, no event": ("write", "events.jsonl", "before", 3),
    "half an event": ("write", "events.jsonl", "half", 1),
    "rows and events, no checkpoint": ("write", f"{STATE}.part", "before", 4),
    "half of the first round's checkpoint": ("write", f"{STATE}.part", "half", 2),
    "half of a checkpoint": ("write", f"{STATE}.part", "half", 5),
    "a checkpoint that is not yet renamed": ("rename", STATE, "before", 5),
    "a checkpoint just renamed": ("rename", STATE, "after", 5),
    "the last round's checkpoint": ("rename", STATE, "after", 7),
    "half a model": ("write", "model.safetensors.part", "half", 1),
    "half the scores": ("write", "scores.npz.part", "half", 1),
    "half a view": ("write", "final-model.npz.part", "half", 1),
    "half a result": ("write", "result.json.part", "half", 1),
    "a result, not finished": ("rename", "result.json", "after", 1),
    "half a manifest": ("write", "manifest.json.part", "half", 1),
    "half a page": ("write", "report.html.part", "half", 1),
    "the very end": ("rename", "training.json", "before", 1),
}


@pytest.mark.parametrize("place", PLACES)
def test_at_a_place(coalmine, whole, same, tmp_path, place):
    at, file, do, nth = PLACES[place]
    drawn = "page" in place
    fault = {"at": at, "file": file, "do": do, "nth": nth}
    begun = killed_and_resumed(coalmine, tmp_path / "run", same, whole(drawn=drawn)[0], drawn=drawn, fault=fault)
    assert begun == (list(PLACES).index(place) > 2)


REFERENCE = {
    "half a directory": ("write", f"reference/{STATE}.part", "half", 1),
    "no configuration yet": ("rename", "reference/config.toml", "before", 1),
    "half an event": ("write", "reference/events.jsonl", "half", 2),
    "half of a checkpoint": ("write", f"reference/{STATE}.part", "half", 4),
    "its last checkpoint": ("rename", f"reference/{STATE}", "after", 7),
}


@pytest.mark.parametrize("place", REFERENCE)
def test_in_the_reference_run(coalmine, whole, same, small, tmp_path, place):
    sets = (*small, "run.reference=true")
    at, file, do, nth = REFERENCE[place]
    expected = whole(sets)[0]
    assert "reference_accuracy" in json.loads((expected / "training.json").read_text())
    fault = {"at": at, "file": file, "do": do, "nth": nth}
    assert killed_and_resumed(coalmine, tmp_path / "run", same, expected, sets=sets, fault=fault)


def test_again_and_again(coalmine, whole, same, tmp_path):
    """The same run, killed at every second round, inside checkpoints and between them."""
    out, expected = tmp_path / "run", whole()[0]
    assert coalmine.run(out, fault={"at": "write", "file": f"{STATE}.part", "do": "half", "nth": 3}).killed
    for trial in range(8):
        at, do = [("write", "half"), ("rename", "before"), ("rename", "after"), ("write", "before")][trial % 4]
        name = f"{STATE}.part" if at == "write" else STATE
        fault = {"at": at, "file": name, "do": do, "nth": 1 + (trial == 2)}
        ended = coalmine.resume(out, fault=fault)
        assert ended.killed or ended.code in (0, 1)
    assert coalmine.resume(out).code in (0, 1)
    same(out, expected)


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(6))
def test_with_two_workers(coalmine, whole, same, tmp_path, trial):
    """By a signal while workers begin, work or wait, or at a place; going on with one worker or with two."""
    out, expected = tmp_path / "run", whole()[0]
    places = ["half a row", "half of a checkpoint", "a checkpoint just renamed", "half a result"]
    if trial < len(places):
        at, file, do, nth = PLACES[places[trial]]
        how = {"fault": {"at": at, "file": file, "do": do, "nth": nth}}
        assert killed_and_resumed(coalmine, out, same, expected, workers=2, then=1 + (trial == 1), **how)
        return
    kill = {"once": str(out / "config.toml"), "after": float(stream(5, trial).uniform(0, 4))}
    ended = coalmine.run(out, workers=2, kill=kill)
    assert ended.killed or (out / "training.json").exists()
    assert coalmine.resume(out).code in (0, 1)
    same(out, expected)
