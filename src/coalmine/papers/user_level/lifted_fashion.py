"""Lifted audits of models that are really trained: a linear model of Fashion-MNIST by DP-GD, 2,000 images, ten steps.

Every canary takes part in every step; noise for epsilon = 4 over ten steps. Canaries are random unit vectors, mislabelled
images or crafted images (`lifted_canaries`). Half of the models are trained with k canaries, which are scored; the others with
k - 1, and k fresh ones are scored there: one canary more or less is the whole difference, also where canaries resemble each
other. Two adversaries: one who knows what the images bring to every sum, one who sees the final model. Groups of runs are kept
as files, so that an interrupted experiment goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import data
from coalmine._random import stream
from coalmine.accounting import calibrate_noise
from coalmine.contracts import Array
from coalmine.estimators._rates import Fixed
from coalmine.estimators.lifted import bound_lifted
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperRow, ResultPart
from coalmine.papers.user_level.lifted_canaries import KINDS, LiftedCanaries, chances, make
from coalmine.papers.user_level.lifted_gaussian import separate
from coalmine.participation import Repeated

IMAGES, STEPS, EPSILON, DELTA, CLASSES = 2000, 10, 4.0, 1e-5, 10
CANARIES, AT_ONCE, RATE = 64, 10, 2.0
VIEWS = ("known-others", "final-model")
INTERVALS = ("wilson", "bernstein")
NAMES = {"sphere": "random unit vectors", "mislabelled": "mislabelled images", "crafted": "images of random pixels"}


def fashion(ask: Ask) -> ResultPart:
    """Bounds by kind of canaries, models and canaries of a model, means over resamplings of the runs."""
    samples, canaries = ask.pick(full=25, quick=10), ask.pick(full=CANARIES, quick=16)
    rows, accuracies, models = [], {}, 0
    for kind in KINDS:
        runs = ask.pick(full=500, quick=120) if kind == "sphere" else ask.pick(full=260, quick=110)
        scores, accuracies[kind] = _scores(ask, kind, runs, canaries)
        models += 2 * runs
        sizes = [n for n in (50, 100, 250) if n < runs]
        for view in VIEWS:
            for n in sizes if kind == "sphere" else sizes[-1:]:
                for k in [each for each in (1, 4, 16, 64) if each <= canaries]:
                    rows += [_row(scores[view], kind, view, n, k, interval, ask.seed, samples) for interval in INTERVALS]
    by = {tuple(row.place.values()): row.ours or 0.0 for row in rows}
    checks = []
    for kind in KINDS:
        lifted, alone = (by[kind, "known-others", sizes[-1], k, "wilson"] for k in (canaries, 1))
        said = f"{NAMES[kind]}, {sizes[-1]} models: {canaries} canaries give a larger mean Wilson bound than one"
        checks.append(PaperCheck(f"{said} ({lifted:.3f} and {alone:.3f})", lifted > alone))
    notes = (
        "± is the standard deviation over resamplings of the same runs, which are not independent of each other.",
        f"Every model is trained with {canaries} canaries, or with {canaries - 1} where fresh ones are scored; k count.",
        "Thresholds of unit vectors are fixed from the theory before any run; those of images are chosen on some of n runs.",
    )
    shares = {f"accuracy_{kind}": round(value, 3) for kind, value in accuracies.items()}
    return ResultPart(rows, checks, notes=notes, about=ask.about(models=models, canaries=canaries, epsilon=EPSILON, **shares))


def _scores(ask: Ask, kind: str, runs: int, canaries: int) -> tuple[dict[str, list[Array]], float]:
    """(scores of inserted and of held-out canaries by view, mean accuracy)."""
    folder = ask.out / "runs" / f"lifted-fashion-{ask.scale}-{ask.seed}-{kind}-{canaries}"
    folder.mkdir(parents=True, exist_ok=True)
    where = None if ask.data_dir is None else str(ask.data_dir)
    starts = [(took, first) for took in (True, False) for first in range(0, runs, AT_ONCE)]
    jobs = [_Job(str(folder), kind, took, first, canaries, ask.seed, where) for took, first in starts]
    done = ask.each(_group, jobs, f"lifted, models of Fashion-MNIST, {kind}")
    half = len(done) // 2
    scores = {view: [np.concatenate([each[view] for each in part]) for part in (done[:half], done[half:])] for view in VIEWS}
    return scores, float(np.mean([each["accuracy"] for each in done]))


def _row(both: list[Array], kind: str, view: str, n: int, k: int, interval: str, seed: int, samples: int) -> PaperRow:
    threshold = Fixed(_threshold(view)) if kind == "sphere" else None
    own = [_bound(both, n, k, interval, threshold, seed, number) for number in range(samples)]
    where = {"canaries": kind, "view": view, "n": n, "k": k, "kind": interval}
    what = f"{'' if kind == 'sphere' else kind + ' images, '}{view}, {interval}, n = {n}, k = {k}"
    return PaperRow(what, "", float(np.mean(own)), float(np.std(own, ddof=1)), None, "", where)


def _bound(both: list[Array], n: int, k: int, kind: str, threshold: Fixed | None, seed: int, number: int) -> float:
    rng = stream(seed, "resampled runs", n, k, number)
    took, did_not = (each[rng.choice(len(each), n, replace=False)][:, rng.permutation(each.shape[1])[:k]] for each in both)
    order = 1 if k == 1 else 2
    scores = separate(took, did_not)
    return bound_lifted(scores, delta=DELTA, design="separate", threshold=threshold, kind=kind, order=order).epsilon  # type: ignore[arg-type]


def _noise() -> float:
    return calibrate_noise(Repeated(STEPS), epsilon=EPSILON, delta=DELTA)


def _threshold(view: str) -> float:
    """A little above the mean of an inserted score, N(T, T noise²), from the theory and before any run."""
    return STEPS + 0.2 * math.sqrt(STEPS) * _noise() if view == "known-others" else STEPS + 0.45 * math.sqrt(STEPS) * _noise()


@dataclass(frozen=True)
class _Job:
    """A group of runs."""

    folder: str
    kind: str
    took: bool
    first: int
    canaries: int
    seed: int
    data_dir: str | None


def _group(job: _Job) -> dict[str, Any]:
    """A group of runs, made or read."""
    named = "with" if job.took else "without"
    path = Path(job.folder) / f"{named}-{job.first:04d}.npz"
    if not path.is_file():
        images, labels = _images(job.data_dir)
        found = [_train(images, labels, job, named, job.first + number) for number in range(AT_ONCE)]
        aside = path.with_name(path.stem + ".part.npz")
        stacked: Any = {name: np.stack([np.asarray(each[name]) for each in found]) for name in (*VIEWS, "accuracy")}
        np.savez(aside, **stacked)
        aside.replace(path)
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


@lru_cache(maxsize=1)
def _images(data_dir: str | None) -> tuple[Array, Any]:
    """Twice as many images as are trained on: canaries are made of the others."""
    source: Any = data.read("fashion-mnist", group=2 * IMAGES, **({} if data_dir is None else {"data_dir": data_dir}))
    examples = source.examples_of(source.users[0])
    features = examples.features.reshape(len(examples), -1)
    return np.concatenate([features, np.ones((len(features), 1), np.float32)], axis=1), examples.targets


def _canaries(images: Array, labels: Any, job: _Job, secret: np.random.Generator) -> tuple[LiftedCanaries, LiftedCanaries]:
    """(those that are scored, those that are trained on): the same k, or k fresh ones and k - 1 others of other images."""
    half, other = np.array_split(secret.permutation(len(images)), 2)
    scored = make(job.kind, secret, job.canaries, images[half], labels[half], CLASSES)
    if job.took:
        return scored, scored
    return scored, make(job.kind, secret, job.canaries - 1, images[other], labels[other], CLASSES)


def _train(images: Array, labels: Any, job: _Job, named: str, number: int) -> dict[str, Any]:
    """One model: scores of its canaries, or of fresh ones, by both adversaries, and its accuracy."""
    secret, noise = stream(job.seed, "secret of a lifted run", named, number), np.float32(_noise())
    canaries, trained = _canaries(images[IMAGES:], labels[IMAGES:], job, secret)
    images, labels = images[:IMAGES], labels[:IMAGES]
    wanted, lengths = np.eye(CLASSES, dtype=np.float32)[labels], np.linalg.norm(images, axis=1)
    weights: Array = np.zeros((CLASSES, images.shape[1]), np.float32)
    seen: Array = np.zeros(job.canaries)
    for _ in range(STEPS):
        wrong = wanted - chances(images @ weights.T)  # minus the gradient of each example, over its image
        norms = np.linalg.norm(wrong, axis=1) * lengths
        clipped = (wrong * np.minimum(1.0, 1.0 / np.maximum(norms, 1e-12))[:, None]).T @ images
        canaries.at(weights)
        own: Any = noise * secret.standard_normal(weights.size, np.float32).reshape(weights.shape)
        own = own + trained.at(weights)
        seen += canaries.score(own)
        weights += np.float32(RATE / IMAGES) * (clipped + own)
    accuracy = float(((images @ weights.T).argmax(axis=1) == labels).mean())
    moved = weights.astype(np.float64) * IMAGES / RATE
    return {"known-others": seen, "final-model": canaries.final(weights, moved), "accuracy": accuracy}
