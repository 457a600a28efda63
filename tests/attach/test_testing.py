"""`assert_conforms` on right and wrong steps. Right code fails with probability 0.001; seeds of noise are fixed."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import coalmine
from coalmine._random import stream
from coalmine.testing import assert_conforms, assert_samples

DIM = 1500
TOLD = {"dim": DIM, "clip_norm": 2.0, "noise_multiplier": 1.5, "steps": 20, "batch": 32, "seed": 4}


def step(noise=1.5, seen=slice(None), divisor=32.0, seed=1):
    rng = stream(seed, "noise of a test")

    def act(rows):
        factors = np.minimum(1.0, 2.0 / np.maximum(np.linalg.norm(rows[:, seen], axis=1), 1e-12))
        return (factors @ rows + noise * 2.0 * rng.standard_normal(DIM)) / divisor

    return act


@pytest.mark.parametrize("seed", range(5))
def test_right_code_passes(seed):
    found = assert_conforms(step(seed=seed), **TOLD)
    assert found.noise.measured == pytest.approx(1.5, rel=0.03)


def test_a_sum_passes_if_it_is_stated():
    assert_conforms(step(divisor=1.0), denominator=1, **TOLD)


def test_more_noise_passes():
    assert_conforms(step(noise=2.0), **TOLD)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (step(noise=0.75), "the noise has the standard deviation that was claimed: measured 0.7.*, claimed 1.5"),
        (
            step(seen=slice(0, DIM // 2)),
            "the sum of clipped gradients is in the release once, divided by .*: measured 1.*, claimed 32",
        ),
        (lambda rows: rows.mean(axis=0) + stream(0, "x", int(1e6 * abs(rows[0, 0]))).standard_normal(DIM), "clipped to it"),
        (step(divisor=1.0), r"measured 3\d.*state denominator=1"),
    ],
)
def test_wrong_code_fails_with_the_sentence_that_is_false(wrong, message):
    with pytest.raises(AssertionError, match=f"not as claimed: .*{message}"):
        assert_conforms(wrong, **TOLD)


def test_noise_that_repeats():
    noise = 3.0 * stream(2, "once").standard_normal(DIM)
    with pytest.raises(AssertionError, match="new in every round"):
        assert_conforms(lambda rows: step(noise=0.0)(rows) + noise / 32, **TOLD)


def test_what_a_step_may_return():
    torch = pytest.importorskip("torch")
    right = step()

    def as_tensors(rows):
        found = torch.tensor(right(rows))
        return [found[:500].reshape(10, 50), found[500:]]

    assert_conforms(as_tensors, **TOLD)
    with pytest.raises(ValueError, match="the step returned 3 numbers of type float64; it must return 1500 floats"):
        assert_conforms(lambda rows: np.zeros(3), **TOLD)
    with pytest.raises(AssertionError, match="NaN"):
        assert_conforms(lambda rows: np.full(DIM, np.nan), **TOLD)


def test_a_suite_of_somebody_else_gets_a_fixture(tmp_path):
    (tmp_path / "test_step.py").write_text(
        "import numpy as np\n"
        "def test_step(assert_conforms):\n"
        "    assert_conforms(lambda rows: rows.mean(axis=0), dim=100, clip_norm=1.0, noise_multiplier=1.0, steps=4)\n"
    )
    registered = any(found.value == "coalmine.testing.plugin" for found in entry_points(group="pytest11"))
    plugin = [] if registered else ["-p", "coalmine.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, str(tmp_path)]
    source = str(Path(coalmine.__file__).parents[1])
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": source})
    assert shown.returncode == 1
    assert "not as claimed: a gradient that is longer than the clip norm is clipped to it" in shown.stdout


POPULATION, RATE = 1280, 0.05


def by_poisson(rate=RATE, seed=1):
    rng = stream(seed, "a sampler of a test")
    return lambda: np.flatnonzero(rng.random(POPULATION) < rate)


def of_one_size(rng):
    return lambda: rng.permutation(POPULATION)[:64]


def in_turn(rng):
    """Batches of a shuffled epoch: everybody once."""
    while True:
        yield from rng.permutation(POPULATION).reshape(20, 64)


def favoured(rng):
    """Every tenth example twice as often."""
    rates = np.where(np.arange(POPULATION) % 10, RATE, 2 * RATE)
    return lambda: np.flatnonzero(rng.random(POPULATION) < rates * RATE / rates.mean())


@pytest.mark.parametrize("seed", range(3))
def test_right_samplers_pass(seed):
    found = assert_samples(by_poisson(seed=seed), population=POPULATION, rate=RATE)
    assert found.finding("cohorts").measured == pytest.approx(64, rel=0.05)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (by_poisson(rate=1.1 * RATE), "rate 0.05 of 1,280. Seen in: examples over all rounds; 70.* in a step, claimed 64"),
        (of_one_size(stream(1, "sizes")), "sizes of batches"),
        (in_turn(stream(1, "turns")), "how often each example came"),
        (favoured(stream(1, "favoured")), "how often each example came"),
        (lambda: np.arange(64), "example"),
    ],
)
def test_wrong_samplers_fail(wrong, message):
    with pytest.raises(AssertionError, match=f"not as claimed: .*{message}"):
        assert_samples(wrong, population=POPULATION, rate=RATE)


def test_the_sampler_of_opacus():
    torch = pytest.importorskip("torch")
    samplers = pytest.importorskip("opacus.utils.uniform_sampler")
    generator = torch.Generator().manual_seed(5)
    sampler = samplers.UniformWithReplacementSampler(num_samples=POPULATION, sample_rate=RATE, generator=generator)
    assert_samples(sampler, population=POPULATION, rate=RATE)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (iter([[1, 2], [3]]), "have ended"),
        (lambda: [POPULATION], "has example 1280 of 1,280"),
        (lambda: np.ones((2, 3), int), "must be a list of the numbers"),
    ],
)
def test_what_is_no_sampler(draw, message):
    with pytest.raises(ValueError, match=message):
        assert_samples(draw, population=POPULATION, rate=RATE)
