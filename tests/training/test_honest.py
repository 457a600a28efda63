"""A run never says more than it could have seen: what hides the canaries, what was swapped, what cannot work."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Contribution
from coalmine.errors import RunDirectoryError
from coalmine.mechanisms import Gaussian
from coalmine.participation import Periods
from coalmine.training import resume, run
from coalmine.training.assembly import Task
from coalmine.training.config import read_config
from coalmine.training.facts import diverged

pytestmark = pytest.mark.usefixtures("undrawn")

QUICK = ("run.workers=1", "run.evaluate_every=0", "data.held_out=0", "canaries.pool=400", "participation.rounds=12")


@dataclass(frozen=True)
class LittleNoise(Gaussian):
    """Adds a thousandth of the noise that it claims."""

    @property
    def update_noise_multiplier(self):
        return self.noise_multiplier / 1000


@dataclass(frozen=True)
class OpenDoor(Gaussian):
    """Says that it cuts, and lets everything through."""

    def client(self, update, public, examples=1):
        return Contribution(update)


def audited(folder, *changes, mechanism=None):
    return run(read_config("tiny", [*QUICK, *changes]), folder / "run", mechanism=mechanism, secret_seed=5, quiet=True).result


def test_the_clients_door_is_audited_and_not_what_it_says_about_itself(tmp_path):
    """`cut` is inherited and right, `client` is wrong: canaries must go the clients' way to see that."""
    assert audited(tmp_path, mechanism=OpenDoor(1.0, 0.5)).verdict.word == "VIOLATED"


def test_a_run_that_diverged_says_so(tmp_path):
    """Noise lengthens updates, an adaptive clip norm follows them, and the noise follows it."""
    noisy = (
        "mechanism.noise_multiplier=20",
        "server.learning_rate=4",
        "participation.rounds=40",
        "mechanism.kind=adaptive",
    )
    (said,) = (each for each in audited(tmp_path, *noisy).caveats if each.startswith("diverged: "))
    assert "The clip norm went from 1 to " in said and said.endswith("less noise")


@pytest.mark.parametrize(
    ("losses", "adaptive", "words"),
    [
        ([2.3] * 9 + [1.0], False, None),
        ([2.3] * 10, True, None),
        (
            [2.3] * 5 + [4.7] * 5,
            False,
            "from 2.3 to 4.7, so that the model is worse than at its start. Lower the learning rates",
        ),
        (
            [2.3] * 5 + [9.0] * 5,
            True,
            "The clip norm went from 0.3 to 30: it follows long updates, and the noise follows it. Fix",
        ),
        ([2.3, None], False, None),
        ([0.02, 0.5, 0.4, 0.3, 0.045], False, None),
        ([-1.0] * 5 + [-3.0] * 5, False, None),
        ([None, None], False, None),
    ],
)
def test_what_is_said_of_losses(losses, adaptive, words):
    clips = np.geomspace(0.3, 30, len(losses))
    said = diverged(
        [{"training_loss": loss, "clip_norm": clip} for loss, clip in zip(losses, clips, strict=True)], adaptive=adaptive
    )
    assert said is None if words is None else words in said


def test_lines_that_are_no_rounds_are_not_looked_at():
    rounds = [{"training_loss": loss, "clip_norm": 0.3} for loss in [2.0] * 5 + [9.0] * 5]
    assert diverged([{"time": 1.0}, *rounds, {"time": 2.0}], adaptive=True) is not None


@pytest.mark.parametrize(
    "changes",
    [
        ("audit.view=final-model",),
        ("audit.view=known-rounds", "mechanism.clip_norm=0.02", "participation.rounds=1", "participation.epochs=1"),
        ("audit.view=every-release", "mechanism.clip_norm=0.02", "participation.rounds=1", "participation.epochs=1"),
    ],
    ids=["final-model", "known-rounds", "every-release"],
)
def test_a_view_that_hides_the_canaries_does_not_call_a_broken_mechanism_consistent(tmp_path, changes):
    clip = 0.02 if len(changes) > 1 else 1.0
    verdict = audited(tmp_path, *changes, mechanism=LittleNoise(clip, 0.5)).verdict
    assert verdict.word != "CONSISTENT"
    assert verdict.word == "VIOLATED" or verdict.noticeable_noise_factor > 2


@pytest.mark.parametrize("change", ["canaries.replace_clients=true", "canaries.canary_norm=0.01"])
def test_canaries_that_add_less_than_the_claim_allows_for_are_not_said_to_notice_half_the_noise(tmp_path, change):
    """The tests of the mechanism do not need canaries; what canaries would notice is said as it is."""
    verdict = audited(tmp_path, change).verdict
    assert (verdict.word, verdict.code) == ("CONSISTENT", "conforms")
    assert verdict.noticeable_noise_factor > 2


def test_the_factor_of_the_usual_audit_is_that_of_its_claim(tmp_path):
    result = audited(tmp_path)
    assert result.verdict.word == "CONSISTENT"
    expected = replace(result.claim, question=None)
    from coalmine.verdict import judge

    usual = judge(expected, result.bound, result.game)
    assert result.verdict.noticeable_noise_factor == pytest.approx(usual.noticeable_noise_factor, rel=0.01)


def test_known_others_of_sphere_canaries_over_several_presentations(train):
    """The same pairs of canaries meet in round after round. Five standard errors: false-alarm rate 6e-7."""
    changes = ("canaries.family=sphere", "canaries.pool=300", "participation.rounds=8", "mechanism.noise_multiplier=0.5")
    config = train(*changes, "canaries.presentations=8", secret_seed=3)
    scores = config.scores("known-others")
    standardised = scores.inserted_values / scores.null.spread
    assert abs(standardised.mean() - np.sqrt(8) / 0.5) < 5 / np.sqrt(standardised.size) + 0.01 * np.sqrt(8) / 0.5


def test_resume_does_not_go_on_with_another_mechanism_or_model(tmp_path, monkeypatch):
    config = read_config("tiny", QUICK)
    from coalmine.training import running as training

    begun = training._Training.conclude
    monkeypatch.setattr(training._Training, "conclude", lambda self, **how: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "run", mechanism=LittleNoise(1.0, 0.5), secret_seed=5, quiet=True)
    monkeypatch.setattr(training._Training, "conclude", begun)
    with pytest.raises(RunDirectoryError, match="another model, mechanism"):
        resume(tmp_path / "run", quiet=True)
    task = training.load_task(config)
    fewer = Task(task.train.only(task.train.users[:-1]), None, task.model)
    with pytest.raises(RunDirectoryError, match="other data"):
        resume(tmp_path / "run", task=fewer, mechanism=LittleNoise(1.0, 0.5), quiet=True)
    assert resume(tmp_path / "run", mechanism=LittleNoise(1.0, 0.5), quiet=True).result.verdict.word == "VIOLATED"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["audit.bound=foo"], "'foo' is no bound"),
        (["audit.also=['nope']"], "'nope' is no bound"),
        (["audit.bound=pointwise"], "cannot decide"),
        (["audit.view=every-release", "audit.bound=anytime"], "not for the maximum"),
        (["audit.view=unknown-rounds", "audit.bound=one-run"], "does not go with view"),
        (["audit.view=unknown-rounds", "audit.also=['anytime']"], "does not go with view"),
        (["canaries.pool=1"], "at least 10, or 0"),
        (["audit.unused_rows=1"], "greater than or equal to 100"),
        (["participation.cohort_size=100"], "make cohorts of"),
        (["participation.pattern=poisson", "participation.cohort_size=1000"], "more than the"),
        (["participation.pattern=fixed-size", "participation.cohort_size=5.9"], "whole number"),
        (["privacy.unit=example"], "clients of one example"),
    ],
)
def test_what_cannot_work_is_said_before_there_is_a_directory(tmp_path, changes, said):
    with pytest.raises(ValueError, match=said):
        run(read_config("tiny", [*QUICK, *changes]), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_rounds_do_not_depend_on_the_coins():
    """The coins come from a stream of their own, after the rounds."""
    drawn = [Schedule.draw(Periods(2), pool=50, rounds=10, secret_seed=seed) for seed in (1, 1, 2)]
    flipped = replace(drawn[0], inserted=~drawn[0].inserted)
    assert all(np.array_equal(*pair) for pair in zip(drawn[0].assigned, flipped.assigned, strict=True))
    assert np.array_equal(drawn[0].inserted, drawn[1].inserted)
    assert not np.array_equal(drawn[0].inserted, drawn[2].inserted)


def test_a_reference_that_diverges_does_not_withhold_the_audit(tmp_path, monkeypatch):
    from coalmine.errors import NonFiniteError
    from coalmine.training import running as training

    def diverges(self, *, quiet):
        self.directory.inner("reference", config="[about]\n")
        raise NonFiniteError("round 0: not finite")

    monkeypatch.setattr(training._Training, "reference", diverges)
    changes = ("data.held_out=0.2", "run.reference=true")
    finished = run(read_config("tiny", [*QUICK, *changes]), tmp_path / "run", secret_seed=5, quiet=True)
    assert finished.result.verdict is not None
    assert "diverged" in finished.result.in_words["learned"]
