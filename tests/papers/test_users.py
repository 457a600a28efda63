"""Experiments about users and many models: canaries that are examples, numbers of models, noise for users."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta, ks_2samp, norm

from coalmine import ExamplePoisson, claim
from coalmine._random import stream
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperRow
from coalmine.papers.user_level import lifted_canaries, lifted_debug, lifted_fashion, mitigations
from coalmine.papers.user_level.lifted_gaussian import at_once
from coalmine.papers.user_level.mitigations import DELTA, WAYS, Way
from coalmine.simulation import simulate_gaussian_mechanism

CLASSES, PIXELS = 3, 4
PUBLISHED = Path(__file__).parents[2] / "docs" / "papers" / "user-inference-secrets.json"


@pytest.mark.parametrize("kind", ["mislabelled", "crafted"])
def test_an_example_s_gradient_is_clipped_and_its_score_is_an_inner_product(kind):
    rng = stream(0, "examples as canaries", kind)
    images = np.concatenate([3 * rng.standard_normal((20, PIXELS)), np.ones((20, 1))], axis=1)
    labels = rng.integers(0, CLASSES, 20)
    made = lifted_canaries.make(kind, stream(1, kind), 6, images, labels, CLASSES)
    weights, seen = (rng.standard_normal((CLASSES, PIXELS + 1)) for _ in range(2))
    together, scores = made.at(weights), made.score(seen)
    total, unclipped = np.zeros_like(weights), 0
    for image, label, score in zip(made.images, made.labels, scores, strict=True):
        outputs = weights @ image
        chance = np.exp(outputs) / np.exp(outputs).sum()
        gradient = np.outer(np.eye(CLASSES)[label] - chance, image)
        length = np.linalg.norm(gradient)
        total, unclipped = total + gradient * min(1, 1 / length), unclipped + (length < 1)
        assert score == pytest.approx((gradient * seen).sum() / length, rel=1e-5)
    assert together == pytest.approx(total, rel=1e-5) and unclipped < 6
    if kind == "mislabelled":
        own = [np.flatnonzero((images == image).all(axis=1))[0] for image in made.images]
        assert np.all(labels[own] != made.labels)


def test_numbers_of_models_by_exact_limits():
    """The bound of expected counts at one threshold, by scipy's beta law; and the smallest number has it, one less has not."""
    gap, n = 2.0, 5000
    found, alarms = math.floor(n * norm.cdf(gap - gap)), math.ceil(n * norm.cdf(-gap))
    miss = (1 - lifted_debug.CONFIDENCE) / 2
    low, high = beta.ppf(miss, found, n - found + 1), beta.isf(miss, alarms + 1, n - alarms)
    assert lifted_debug._exact(gap, n) >= math.log((low - lifted_debug.DELTA) / high) - 1e-9
    needed = lifted_debug.smallest(lambda count: lifted_debug._exact(gap, count), 10**6)
    assert lifted_debug._exact(gap, needed) > lifted_debug.SHOWN
    assert lifted_debug._exact(gap, needed * 98 // 100) <= lifted_debug.SHOWN
    assert lifted_debug.smallest(lambda count: 1.0, 10**4) is None


def test_the_noise_of_examples_is_accounted_for_users():
    """A user with three texts moves the sum by three clip norms: the accountant of sampled examples says the same."""
    noise = Way(cap=3, protection="example", epsilon=4.0).noise()
    assert claim(ExamplePoisson(1.0, 1, 3), noise_multiplier=noise, delta=DELTA).epsilon == pytest.approx(4.0, rel=2e-3)
    assert Way(protection="user").noise() == 0.0 and WAYS["nothing"].claim == "none"


def test_the_published_exposures_are_described_as_the_code_describes_them(monkeypatch):
    """Notes and checks, with the published means in the place of simulations."""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    means = {(row["place"]["way"], row["place"]["times"]): row["ours"] for row in published["rows"]}
    done = {name: [[means[name, times]] for times in mitigations.TIMES] for name in WAYS}
    monkeypatch.setattr(mitigations, "exposed", lambda seed: done)
    found = mitigations.secrets(Ask(scale="full"))
    assert list(found.notes) == published["notes"]
    assert [check.text for check in found.checks] == [check["text"] for check in published["checks"]]
    assert found.about["candidates"] == published["about"]["candidates"]


def test_runs_that_are_simulated_together_have_the_same_law():
    """By Kolmogorov and Smirnov, of one canary and of whole runs; each fails by chance once in a million."""
    together = at_once(4, 1000, 60, 0.5, stream(0, "a test of runs together"))
    alone = [simulate_gaussian_mechanism(60, 4, 0.5, seed=seed).inserted_values for seed in range(1000)]
    assert together.shape == (1000, 4)
    assert ks_2samp(together[:, 0], np.array(alone)[:, 0]).pvalue > 1e-6
    assert ks_2samp(together.sum(axis=1), np.sum(alone, axis=1)).pvalue > 1e-6


@pytest.mark.parametrize("kind", ["mislabelled", "sphere"])
def test_held_out_canaries_are_scored_where_one_canary_is_missing(kind, monkeypatch):
    """Without noise, and with canaries that are all alike: models with and without differ by one canary, not by all of them."""
    monkeypatch.setattr(lifted_fashion, "IMAGES", 30)
    monkeypatch.setattr(lifted_fashion, "_noise", lambda: 0.0)
    monkeypatch.setattr(lifted_fashion, "CLASSES", 2)
    images, labels = np.full((60, PIXELS), 2.0, np.float32), np.zeros(60, np.int64)  # the wrong label is always 1
    scores = {}
    for took in (True, False):
        job = lifted_fashion._Job("", kind, took, 0, 8, 0, None)
        scores[took] = lifted_fashion._train(images, labels, job, str(took), 0)["known-others"].mean()
    if kind == "mislabelled":  # eight canaries of norm 1 in every step, and seven
        assert scores[True] == pytest.approx(8 * lifted_fashion.STEPS, rel=1e-5)
        assert scores[True] - scores[False] == pytest.approx(lifted_fashion.STEPS, rel=1e-5)
    else:
        assert scores[True] - scores[False] > 0


@pytest.mark.parametrize(
    ("name", "picture", "curves"),
    [
        ("user-inference-users", "by_texts", 3),
        ("user-inference-phrases", "by_string", 3),
        ("lifted-bias", "widths", 2),
        ("lifted-fashion", "kinds", 3),
    ],
)
def test_published_rows_are_drawn(name, picture, curves):
    """From rows alone: as many curves in the first panel as there are settings."""
    from coalmine.papers.user_level import pictures

    document = json.loads((PUBLISHED.parent / f"{name}.json").read_text(encoding="utf-8"))
    rows = [PaperRow(row["what"], row["paper"], row["ours"], row["error"], place=row["place"]) for row in document["rows"]]
    legend = getattr(pictures, picture)(rows).axes[0].get_legend()
    assert len(legend.get_texts()) == curves
