"""`coalmine infer`: a small attack from end to end, its files, and what it refuses."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from coalmine import ExamplePoisson
from coalmine._random import stream
from coalmine.attacks.fine_tuning import _Private
from coalmine.cli import app
from coalmine.scores import Scores
from coalmine.training import inference
from coalmine.training.config import read_config
from coalmine.training.inference import Setup, infer

SMALL = [
    "data.users=14", "data.cap=4", "data.length=24", "model.options.width=16", "model.options.heads=2",
    "model.options.layers=1", "inference.attack_texts=3", "inference.canary_users=8", "inference.shared=[4]",
    "inference.reference_users=6",
    "inference.reference_steps=2", "inference.epochs=1",
]  # fmt: skip


def test_an_attack_from_end_to_end(tmp_path, one_thread):
    changes = [word for change in SMALL for word in ("--set", change)]
    done = CliRunner().invoke(app, ["infer", *changes, "--out", str(tmp_path / "out"), "--secret-seed", "3", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert "fine-tuning: " in done.stderr and "training the reference model: " in done.stderr
    scores = Scores.from_npz(tmp_path / "out" / "scores.npz")
    assert scores.value.size == found["targets"] and scores.assignment == "coins" and set(scores.labels["group"]) == {0, 4}
    assert found["result"]["claim"] is None and len(found["result"]["rankings"]) == 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "How well are users ranked?" in page
    again = infer(read_config("infer-chat", SMALL), tmp_path / "again", secret_seed=3, quiet=True)
    assert (tmp_path / "again" / "scores.npz").read_bytes() == (tmp_path / "out" / "scores.npz").read_bytes()
    assert again.about["loss"] == found["loss"]


def test_the_claim_of_examples_is_for_the_largest_user_who_might_have_joined(one_thread, monkeypatch):
    """The pattern that is accounted has the windows of the largest target, whoever the coins chose."""
    asked = []
    monkeypatch.setattr(inference, "claim", lambda pattern, **how: asked.append(pattern))
    config = read_config("infer-chat", [*SMALL, "inference.protection=example", "mechanism.noise_multiplier=8.0"])
    setup = Setup(config, lambda *names: stream(3, *names))
    sizes = [len(setup._windows(target.training)) for target in setup.targets]
    vars(setup)["inserted"] = np.arange(len(sizes)) != int(np.argmax(sizes))  # everybody else joins
    setup.tuning()
    (pattern,) = asked
    assert isinstance(pattern, ExamplePoisson) and pattern.group_size == max(sizes)


@pytest.mark.parametrize("protection", ["user", "example"])
def test_private_training_does_not_depend_on_how_many_joined(protection, one_thread, monkeypatch):
    """Rate, steps, noise and divisor are those of all who might have joined: a rate of those who did would tell about them."""
    monkeypatch.setattr(inference, "claim", lambda pattern, **how: pattern)
    config = read_config("infer-chat", [*SMALL, f"inference.protection={protection}", "mechanism.noise_multiplier=8.0"])
    found = []
    for joined in (2, 12):
        setup = Setup(config, lambda *names: stream(3, *names))
        vars(setup)["inserted"] = np.arange(len(setup.targets)) < joined
        tuning, accounted, _ = setup.tuning()
        batches = _Private([setup._windows(own) for own in setup.joined], tuning, setup.secret)
        found.append((tuning, accounted, batches.rate, batches.rate * batches.expected))
    assert found[0] == found[1] and found[0][1].rate == found[0][2]
    assert found[0][0].units == pytest.approx(found[0][3] / found[0][2])


def test_canary_users_need_a_length():
    with pytest.raises(ValueError, match=r"inference\.shared"):
        read_config("infer-chat", ["inference.shared=[]"])


def test_more_guesses_than_users_are_refused(tmp_path, one_thread):
    with pytest.raises(ValueError, match=r"inference\.guesses=90 at each end"):
        infer(read_config("infer-chat", [*SMALL, "inference.guesses=90"]), tmp_path / "out", secret_seed=3, quiet=True)
