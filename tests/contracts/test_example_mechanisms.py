"""Mechanisms that protect single examples, through one battery: law of the noise, clipping, order, JSON, kill and workers."""

import json
import math
from functools import partial
from importlib.resources import files

import numpy as np
import pytest
from scipy import stats

import coalmine
from coalmine import accounting
from coalmine._random import stream
from coalmine.contracts import Public
from coalmine.errors import NonFiniteError
from coalmine.mechanisms import BatchGradient, FixedPointSum, FullGradient, WaterFilling, fingerprint, read_description
from coalmine.mechanisms.spectrum import Spectrum
from coalmine.participation import Repeated
from coalmine.training import resume, run
from coalmine.training.config import read_config

pytestmark = pytest.mark.usefixtures("undrawn")

FALSE_ALARM = 1e-6
DIM, EXAMPLES = 40, 6
CASES = {
    "full-gradient": FullGradient(2.0, 0.5, EXAMPLES, 8),
    "batch-gradient": BatchGradient(2.0, 0.5, EXAMPLES, 8, 3),
    "water-filling": WaterFilling(2.0, 0.5, EXAMPLES, 8, 3),
    "blocks": WaterFilling(2.0, 0.5, EXAMPLES, 8, 3, blocks=4),
    "separate": WaterFilling(2.0, 0.5, EXAMPLES, 8, 3, separate=True),
}
every = pytest.mark.parametrize("mechanism", CASES.values(), ids=CASES)


def rows(count=EXAMPLES, dim=DIM, size=2.0):
    return (size * stream(0, "rows").standard_normal((count, dim)) / math.sqrt(dim)).astype(np.float32)


def sent(mechanism, own, seed, number=0):
    public = mechanism.announce(mechanism.init(own.shape[1]), number, 8.0)
    return mechanism.client(own.sum(0), public, len(own), own=own, secret=partial(stream, seed, "client", number))


@every
def test_descriptions_go_through_json_and_are_accounted(mechanism):
    said = mechanism.describe()
    assert read_description(json.loads(json.dumps(said.to_dict()))) == said
    claim = accounting.claim_of(said, Repeated(4), delta=1e-5, unit="example")
    half = accounting.claim_of(said.scaled(0.5), Repeated(4), delta=1e-5, unit="example")
    assert 0 < claim.epsilon < half.epsilon
    assert half.epsilon == pytest.approx(claim.at_noise(0.5), rel=1e-9)
    assert fingerprint(mechanism) is not None


@every
def test_one_example_moves_the_sum_by_what_is_announced(mechanism):
    """The same coins with one example replaced, in the noise-free part: at most 2 C/D, or 2 C/B if it is in the batch."""
    public = mechanism.announce(mechanism.init(DIM), 0, 8.0)
    mine, other = rows(size=50.0), rows(size=50.0)
    other[2] = -mine[2]
    moved = [
        np.linalg.norm(sent(mechanism, mine, seed).without_noise - sent(mechanism, other, seed).without_noise)
        / public.clip_norm
        for seed in range(20)
    ]
    assert max(moved) == pytest.approx(2.0, rel=1e-5)


@every
def test_what_is_sent_is_its_mean_and_noise_of_at_least_the_floor(mechanism):
    """Least variance over many draws, in the direction with the least of it. False alarm: FALSE_ALARM."""
    own, draws = rows(dim=8), 4000
    found = [sent(mechanism, own, 1, number) for number in range(draws)]
    noise = np.array([each.vector - each.without_noise for each in found])
    direction = np.linalg.eigh(np.cov(sent_covariance(mechanism, own)))[1][:, 0]
    spread = np.square(noise @ direction).sum() / mechanism.floor
    low, high = stats.chi2(draws).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    assert spread > low
    if mechanism.weights != "gaussian":
        assert spread < high
    centred = np.abs(noise.mean(axis=0)) / noise.std(axis=0) * math.sqrt(draws)
    assert centred.max() < stats.norm.isf(FALSE_ALARM / 2 / 8)


def sent_covariance(mechanism, own):
    """Any matrix of the right size: for isotropic noise all directions are the same."""
    return own.T if mechanism.weights == "gaussian" else np.eye(own.shape[1]) + 0.01 * own.T @ own


@pytest.mark.parametrize("separate", [False, True])
def test_water_filling_has_the_law_that_it_says(separate):
    """20,000 updates: the variance in every eigenvector is max(lambda, floor), in the least one within 4 %."""
    mechanism = WaterFilling(1e9, 0.05, EXAMPLES, 8, 3, separate=separate)
    own = rows(dim=10).astype(np.float64)
    covariance = own.T @ own / (3 * EXAMPLES)
    values, vectors = np.linalg.eigh(covariance)
    noise = np.array([sent(mechanism, own, 2, number).vector for number in range(20_000)]) - own.mean(axis=0)
    found = np.square(noise @ vectors).mean(axis=0) / np.maximum(values, 0.05)
    assert (values > 0.05).any() and (values < 0.05).any()
    low, high = stats.chi2(20_000).ppf([FALSE_ALARM / 20, 1 - FALSE_ALARM / 20]) / 20_000
    assert ((found > low) & (found < high)).all() and abs(found[0] - 1) < 0.04
    correlation = np.corrcoef((noise @ vectors).T) - np.eye(10)
    assert np.abs(correlation).max() < stats.norm.isf(FALSE_ALARM / 90) / math.sqrt(20_000)


def test_the_spectrum_is_that_of_the_whole_covariance():
    for count, dim in ((5, 30), (30, 5), (8, 8)):
        own = stream(3, "spectrum", count).standard_normal((count, dim))
        spectrum = Spectrum(own, 0.25)
        known = np.linalg.eigvalsh(own.T @ own * 0.25)[-min(count, dim) :]
        assert spectrum.eigenvalues == pytest.approx(known, rel=1e-9)
        directions = spectrum.directions()
        assert directions.T @ directions == pytest.approx(np.eye(min(count, dim)), abs=1e-9)


def test_all_above_and_all_below_the_water():
    own = rows(dim=4)
    high = WaterFilling(2.0, 1e-300, EXAMPLES, 8, 3)
    below = WaterFilling(2.0, 1e6, EXAMPLES, 8, 3)
    spread = [np.std([sent(each, own, 4, number).vector[0] for number in range(300)]) for each in (high, below)]
    assert spread[0] < 10 and spread[1] == pytest.approx(1e3, rel=0.3)
    none = np.zeros((EXAMPLES, 4), np.float32)
    assert np.isfinite(sent(CASES["water-filling"], none, 5).vector).all()


@every
def test_bad_gradients_are_refused(mechanism):
    bad = rows()
    bad[3, 1] = np.nan
    with pytest.raises(NonFiniteError, match="example 3"):
        sent(mechanism, bad, 0)
    with pytest.raises(ValueError, match="made for 6"):
        sent(mechanism, rows(EXAMPLES + 1), 0)


def test_settings_that_make_no_sense_are_refused():
    for make in (
        lambda: WaterFilling(2.0, 0.5, 6, 8, 7),
        lambda: BatchGradient(2.0, 0.5, 6, 8, 7),
        lambda: WaterFilling(2.0, -1.0, 6, 8, 3),
        lambda: FullGradient(0.0, 1.0, 6, 8),
    ):
        with pytest.raises(ValueError, match="not allowed"):
            make()


@every
def test_the_sum_does_not_depend_on_the_order(mechanism):
    public, totals = Public(0, mechanism.share, 8.0), []
    for order in ((0, 1, 2), (2, 0, 1)):
        total = FixedPointSum(DIM, public.clip_norm)
        for each in order:
            total.add(sent(mechanism, rows() * (each + 1), 6, each))
        totals.append(total.total())
    assert np.array_equal(*totals)


class Killed:
    """A hook that interrupts after so many rounds."""

    def __init__(self, after):
        self.after = after

    def __call__(self, event):
        if event["event"] == "round" and event["round"] + 1 == self.after:
            raise KeyboardInterrupt


def preset(folder, kind):
    """The preset for tests, with another mechanism."""
    text = (files("coalmine") / "presets/tiny.toml").read_text()
    mechanism = f'kind = "{kind}"\nclip_norm = 1.0\nfloor = 0.02\nexamples = 10'
    path = folder / "config.toml"
    path.write_text(text.replace("noise_multiplier = 0.5\nclip_norm = 1.0", mechanism))
    return str(path)


KINDS = {
    "full-gradient": [],
    "batch-gradient": ["mechanism.batch=4"],
    "water-filling": ["mechanism.batch=4", "mechanism.blocks=2"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_killed_and_resumed_with_other_workers_the_bits_are_the_same(kind, tmp_path):
    changes = [
        "privacy.unit=example",
        "participation.rounds=4",
        "participation.epochs=1",
        "canaries.pool=100",
        "run.evaluate_every=0",
        "audit.views=[]",
        "data.users=24",
        *KINDS[kind],
    ]
    if kind == "batch-gradient":
        changes.append("canaries.replace_clients=true")
    whole = run(read_config(preset(tmp_path, kind), [*changes, "run.workers=1"]), tmp_path / "whole", secret_seed=7, quiet=True)
    with pytest.raises(KeyboardInterrupt):
        run(
            read_config(preset(tmp_path, kind), [*changes, "run.workers=2"]),
            tmp_path / "cut",
            secret_seed=7,
            quiet=True,
            hooks=[Killed(2)],
        )
    done = resume(tmp_path / "cut", workers=1, quiet=True)
    assert done.result.training["model_sha256"] == whole.result.training["model_sha256"]
    assert done.result.setting["sha256"] == whole.result.setting["sha256"]
    assert done.result.claim.game.unit == "example" and math.isfinite(done.result.claim.epsilon)
    assert whole.result.verdict.word != "VIOLATED"


def test_few_eigenpairs_above_the_water_are_found_without_the_others():
    own = stream(8, "few").standard_normal((64, 200)) * 0.1
    own += 3 * stream(8, "strong").standard_normal((64, 1)) * np.eye(200)[0]
    whole, few = Spectrum(own, 0.5), Spectrum(own, 0.5, above=60.0)
    assert few.eigenvalues.size < whole.eigenvalues.size
    assert few.eigenvalues[-1] == pytest.approx(whole.eigenvalues[-1], rel=1e-10)
    assert abs(few.directions()[:, -1] @ whole.directions()[:, -1]) == pytest.approx(1.0, rel=1e-9)
    assert Spectrum(own, 0.5, above=1e9).eigenvalues.size == 0
    assert few.apply(np.ones(few.eigenvalues.size)).shape == (200,) == Spectrum(own, 0.5, above=1e9).apply(np.zeros(0)).shape


class CutTooLate(FullGradient):
    """Clients' records are cut at a hundred times the clip norm, a canary's where it should be."""

    def client(self, update, public, examples=1, own=None, *, secret):
        norm = self.clip_norm * (1 if own is None else 100)
        return FullGradient(norm, self.floor, self.examples, self.honest).client(update, public, examples, own, secret=secret)


class CountedTwice(FullGradient):
    """Every client's first record counts twice."""

    def client(self, update, public, examples=1, own=None, *, secret):
        rows = own if own is None or len(own) == self.examples else np.concatenate([own, own[:1]])
        return super().client(update, public, examples, rows, secret=secret)


@pytest.mark.parametrize(("kind", "word"), [(FullGradient, "CONSISTENT"), (CutTooLate, "DEVIATES"), (CountedTwice, "DEVIATES")])
def test_contributions_are_compared_with_the_clip_of_their_records(kind, word, tmp_path):
    """False-alarm rate of the right one: that of the tests and of the bound together, below 0.052; the seed is fixed."""
    changes = ["run.workers=1", 'privacy.unit="example"', "client.batch_size=11"]
    mechanism = kind(clip_norm=0.05, floor=2.6e-7, examples=11, honest=24)
    result = coalmine.run("tiny", tmp_path / "run", mechanism=mechanism, secret_seed=4, quiet=True, set=changes).result
    assert result.verdict.word == word
    false = {each.key for each in result.conformance.deviations}
    assert ("treated-alike" in false) == (word == "DEVIATES")
