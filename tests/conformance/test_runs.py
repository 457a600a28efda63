"""Real runs through the public door: a mechanism of one's own is tested without doing anything for it."""

import hashlib
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

import coalmine
from coalmine._random import stream
from coalmine.contracts import Contribution, Release
from coalmine.mechanisms import Gaussian
from coalmine.mechanisms.correlated import Correlated
from coalmine.training import resume
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config

pytestmark = pytest.mark.usefixtures("undrawn")

FEW = ("participation.rounds=4", "participation.epochs=1", "run.workers=1", "run.evaluate_every=0")


@pytest.fixture(autouse=True)
def quiet(one_thread):
    """As in a worker."""


def audited(path, mechanism=None, **options):
    return coalmine.run("tiny", path, set=FEW, mechanism=mechanism, secret_seed=1 << 100, quiet=True, **options).result


@dataclass(frozen=True)
class Laplace(Gaussian):
    def noise(self, dim, public, secret):
        return secret("laplace", public.round).laplace(0, np.sqrt(0.5), dim)


@dataclass(frozen=True)
class HalfNorm(Gaussian):
    def client(self, update, public, examples=1):
        norm = np.linalg.norm(update[: update.size // 2].astype(np.float64))
        return Contribution(update * min(1.0, public.clip_norm / max(norm, 1e-12)))


@dataclass(frozen=True)
class InPlace(Gaussian):
    """Writes into what it is given, and counts everybody half."""

    def client(self, update, public, examples=1):
        update *= np.float32(0.5 * min(1.0, public.clip_norm / np.linalg.norm(update.astype(np.float64))))
        return Contribution(update)


@dataclass(frozen=True)
class SumTwice(Gaussian):
    """Adds the sum to itself, where the auditor's own sum must not follow."""

    def release(self, state, total, public, secret):
        total.merge(total)
        return super().release(state, total, public, secret)


@dataclass(frozen=True)
class FixedKey(Gaussian):
    """Noise from a key that nobody but its owner can guess, which is not the run's secret."""

    def noise(self, dim, public, secret):
        return stream(1 << 94, "vendor", public.round).standard_normal(dim)


@dataclass(frozen=True)
class ContentSeed(Gaussian):
    """The seed is a hash of the sum: whoever guesses the sum can compute the release."""

    def release(self, state, total, public, secret):
        seed = int.from_bytes(hashlib.sha256(total.vector().tobytes()).digest(), "little")
        return super().release(state, total, public, partial(stream, seed))


@dataclass(frozen=True)
class OutliersOnly(Gaussian):
    """Cuts what is longer than fifty clip norms, as canaries are; no client of this run is between."""

    def client(self, update, public, examples=1):
        if np.linalg.norm(update.astype(np.float64)) < 50 * public.clip_norm:
            return Contribution(update)
        return super().client(update, public, examples)


@dataclass(frozen=True)
class QuietPeaks(Gaussian):
    """Less noise on the hundredth of the coordinates where the sum is largest."""

    def release(self, state, total, public, secret):
        noise, sums = self.noise(total.vector().size, public, secret), total.vector()
        noise[np.argsort(-np.abs(sums))[: sums.size // 100]] *= 0.5
        noisy = (sums + self.noise_multiplier * public.clip_norm * noise) / public.denominator
        return Release(public.round, noisy, public.clip_norm, public.denominator), state


BUFFER = {}


@dataclass(frozen=True)
class OneBuffer(Gaussian):
    """Right; writes all its releases into one vector, and a client's contributions into another."""

    def client(self, update, public, examples=1):
        made = super().client(update, public, examples)
        kept = BUFFER.setdefault("contribution", np.empty(update.size))
        kept[...] = made.vector
        return replace(made, vector=kept)

    def release(self, state, total, public, secret):
        made, state = super().release(state, total, public, secret)
        kept = BUFFER.setdefault("release", np.empty(made.vector.size))
        kept[...] = made.vector
        return replace(made, vector=kept), state


@dataclass(frozen=True)
class FollowsTheClients(Gaussian):
    """The clip norm falls where few updates are clipped, without noise: it is announced, and tells of the data."""

    def release(self, state, total, public, secret):
        made, state = super().release(state, total, public, secret)
        return made, {"clip_norm": state["clip_norm"] * (0.9 if total.unclipped > total.count / 4 else 1.0)}


def test_a_mechanism_may_write_over_its_last_release(tmp_path):
    found = audited(tmp_path / "run", OneBuffer(0.3, 0.5))
    assert found.verdict.word == "CONSISTENT" and not found.conformance.deviations


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (FollowsTheClients, "clipping"),
        (ContentSeed, "noise-unpredictable"),
        (OutliersOnly, "treated-alike"),
        (QuietPeaks, "noise-by-coordinate"),
        (Laplace, "noise-gaussian"),
        (HalfNorm, "treated-alike"),
        (InPlace, "treated-alike"),
        (SumTwice, "denominator"),
        (FixedKey, "noise-unpredictable"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_wrong_mechanism_is_found_and_the_sentence_is_named(tmp_path, kind, key):
    found = audited(tmp_path / "run", kind(10.0 if kind is OutliersOnly else 0.3, 0.5))
    assert found.conformance.finding(key).deviates
    assert found.verdict.failed


def test_a_right_run_passes_and_every_round_says_what_was_measured(tmp_path):
    result = audited(tmp_path / "run")
    about = result.conformance
    assert not about.deviations and result.verdict.word == "CONSISTENT"
    assert {each.code for each in about.not_tested} <= {"not-adaptive"}
    events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert len(events) == 4 and all('"noise_measured"' in line for line in events)
    epsilon, low, high = about.epsilon_at_measured
    assert low <= epsilon <= high and low < result.claim.epsilon < high


def test_a_run_that_was_stopped_finds_the_same(tmp_path, monkeypatch):
    whole = audited(tmp_path / "whole")
    from coalmine.audit.session import Session

    observe, seen = Session.observe, []

    def stops(self, observed, **more):
        line = observe(self, observed, **more)
        seen.append(line)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return line

    monkeypatch.setattr(Session, "observe", stops)
    with pytest.raises(KeyboardInterrupt):
        audited(tmp_path / "stopped")
    monkeypatch.undo()
    again = resume(tmp_path / "stopped", quiet=True).result
    assert again.conformance == whole.conformance
    assert replace(again, conformance=None).to_json() == replace(whole, conformance=None).to_json()


FTRL = (
    *("participation.reshuffled=false", "mechanism.kind=correlated", "mechanism.strategy=banded"),
    *("participation.rounds=16", "participation.epochs=2", "run.workers=1", "run.evaluate_every=0"),
)


@dataclass(frozen=True)
class LastLayer(Correlated):
    """Correlated noise, but for the ten biases of the last layer."""

    how: str = "right"

    def correlated(self, number, dim, draw, state):
        made, kept = super().correlated(number, dim, draw, state)
        if self.how == "independent":
            made[-10:] = draw("noise", number)[-10:]
        elif self.how == "stale":
            for past, weight in enumerate(self.strategy.row(number)):
                made[-10:] += weight * (draw("noise", past - past % 2) - draw("noise", past))[-10:]
        elif self.how == "taken back" and number + 1 == self.strategy.rounds:
            before = [weight * draw("noise", past)[-10:] for past, weight in enumerate(self._of_the_sum(number - 1))]
            made[-10:] = -np.sum(before, axis=0)
        return made, kept

    def _of_the_sum(self, last):
        """How the sum of all releases up to a round is made of the normals."""
        return np.sum([np.pad(self.strategy.row(number), (0, last - number)) for number in range(last + 1)], axis=0)


@pytest.mark.parametrize(
    ("how", "key"),
    [("right", None), ("independent", "noise-fresh"), ("stale", "noise-fresh"), ("taken back", "noise-by-coordinate")],
)
def test_correlated_noise_that_is_wrong_on_ten_coordinates_is_never_consistent(tmp_path, how, key):
    """They were CONSISTENT: 10 of 2,410 coordinates are nothing in cosines of whole rounds."""
    config = read_config("tiny", FTRL)
    own = federation(config, load_task(config), 1).mechanism
    wrong = LastLayer(own.clip_norm, own.noise_multiplier, own.divide_by_actual_cohort, own.strategy, how)
    found = coalmine.run(config, tmp_path / "run", mechanism=wrong, secret_seed=1 << 100, quiet=True).result
    assert [each.key for each in found.conformance.deviations] == ([] if key is None else [key])
    assert found.verdict.word == ("CONSISTENT" if key is None else "DEVIATES")
