"""Texts that do not fit in memory: windows are cut when a client needs them, and the bits are those of windows in memory."""

from collections import Counter

import numpy as np
import pytest

from coalmine import data
from coalmine.data import SPECIAL, Vocabulary
from coalmine.training import run
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import checked, read_config

SMALL = (
    *(
        'data.source="stack-overflow-shape"',
        "data.options={users=24, seed=1}",
        "data.at_least=5",
        "data.cap=6",
        "data.held_out=4",
    ),
    *(
        "data.length=12",
        "model.options={embedding=4, hidden=8, tied=false}",
        "participation.epochs=1",
        "participation.rounds=3",
    ),
    *("canaries.pool=20", "audit.unused_rows=100", 'audit.views=["known-others"]', "run.reference=false", "run.workers=1"),
)
PACKINGS = ("separate", "joined", "first")


def config(in_memory, *changes):
    return read_config("quickstart", [*SMALL, f"data.in_memory={str(in_memory).lower()}", *changes])


@pytest.fixture
def encoded(monkeypatch):
    """How many texts were turned into tokens, since it was last cleared."""
    count = Counter()
    whole = Vocabulary.encode_all

    def counting(self, said):
        count["texts"] += len(said)
        count["calls"] += 1
        return whole(self, said)

    monkeypatch.setattr(Vocabulary, "encode_all", counting)
    return count


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_run_has_the_same_bits_with_and_without_windows_in_memory(packing, tmp_path):
    done = {
        how: run(config(how, f"data.packing={packing}"), tmp_path / str(how), secret_seed=5, quiet=True)
        for how in (True, False)
    }
    kept, cut = (done[how].result for how in (True, False))
    assert kept.setting["sha256"] == cut.setting["sha256"]
    for name in ("model_sha256", "accuracy", "loss", "baseline_accuracy", "inputs_sha256"):
        assert kept.training[name] == cut.training[name], name
    assert (tmp_path / "True/model.safetensors").read_bytes() == (tmp_path / "False/model.safetensors").read_bytes()


def test_nothing_is_cut_before_it_is_needed(encoded):
    """With a vocabulary that is known beforehand, reading the task cuts nothing; one user costs one user."""
    task = load_task(config(False))
    assert encoded["texts"] == 0
    user = task.train.users[3]
    task.train.examples_of(user)
    assert encoded == {"texts": 6, "calls": 1}
    encoded.clear()
    load_task(config(True))
    assert encoded["calls"] == len(task.train) + len(task.held_out), "in memory: everybody, at once"


def test_counting_windows_cuts_every_user_once_and_keeps_numbers_only(encoded):
    """How many examples a client has is public and fixed before the run."""
    asked = config(False)
    task = load_task(asked)
    job = federation(asked, task, 5)
    assert job.data.sizes.tolist() == load_task(config(True)).train.sizes.tolist()
    encoded.clear()
    _ = task.train.sizes, federation(asked, task, 6)
    assert encoded["calls"] == 0
    assert type(task.train.source).__name__ == "_Windows"


def test_a_counted_vocabulary_reads_the_texts_and_cuts_no_window(encoded):
    load_task(config(False, "data.unit=tokens", "data.vocabulary=50"))
    assert encoded["calls"] == 0


def test_the_most_frequent_target_is_found_user_by_user():
    """As over all targets together, ties included; the smallest of several is taken."""
    task = load_task(config(True, "data.unit=tokens", "data.vocabulary=50"))
    targets = np.concatenate([np.ravel(each.targets) for _, each in task.train])
    most = np.bincount(targets[targets >= SPECIAL].astype(int)).argmax()
    held_out = np.concatenate([np.ravel(each.targets) for _, each in task.held_out])
    held_out = held_out[held_out >= SPECIAL]
    assert task.baseline[0] == pytest.approx((held_out == most).mean(), rel=1e-12)


def test_of_many_users_in_files_only_those_held_out_are_read_before_a_round(tmp_path, encoded, monkeypatch):
    rows = [{"user": f"user-{place:02}", "text": "air turns bad"} for place in range(30)]
    data.group_by_user(rows, tmp_path / "grouped", user="user")
    told = {"source": "grouped", "vocabulary": "ascii", "unit": "characters", "length": 8, "held_out": 5}
    asked = checked(
        {
            "data": {**told, "options": {"path": str(tmp_path / "grouped"), "text": "text"}},
            "model": {"name": "chat-lstm"},
            "participation": {"pattern": "poisson", "rounds": 2, "cohort_size": 3},
        }
    )
    kept = load_task(asked).train
    assert encoded["texts"] == 30
    monkeypatch.setattr("coalmine.training.assembly.SAMPLED", 10)
    encoded.clear()
    lazy = load_task(asked).train
    assert encoded["texts"] == 5
    assert np.array_equal(lazy.examples_of(lazy.users[3]).features, kept.examples_of(kept.users[3]).features)
