"""Lifted audits of models that are really trained: a linear model of Fashion-MNIST by DP-GD, 2,000 images, ten steps.

Every canary is a random unit vector that takes part in every step; noise for epsilon = 4 over ten steps. A run without
canaries scores as many fresh ones. Two adversaries: one who knows the others' part of every sum, one who sees the final model.
Groups of runs are kept as files, so that an interrupted experiment goes on.
"""

from __future__ import annotations

import math
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
from coalmine.papers.user_level.lifted_gaussian import separate
from coalmine.participation import Repeated

IMAGES, STEPS, EPSILON, DELTA, CLASSES = 2000, 10, 4.0, 1e-5, 10
CANARIES, AT_ONCE, RATE = 64, 10, 2.0
VIEWS = ("known-others", "final-model")


def fashion(ask: Ask) -> ResultPart:
    """Bounds by models and canaries, means over resamplings of the runs."""
    runs, samples = ask.pick(full=500, quick=120), ask.pick(full=25, quick=10)
    canaries = ask.pick(full=CANARIES, quick=16)
    folder = ask.out / "runs" / f"lifted-{ask.scale}-{ask.seed}-{canaries}"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [
        (str(folder), kind, first, canaries, ask.seed, None if ask.data_dir is None else str(ask.data_dir))
        for kind in ("with", "without")
        for first in range(0, runs, AT_ONCE)
    ]
    done = ask.each(_group, jobs, "lifted, models of Fashion-MNIST")
    half = len(done) // 2
    scores = {view: [np.concatenate([each[view] for each in part]) for part in (done[:half], done[half:])] for view in VIEWS}
    accuracy = float(np.mean([each["accuracy"] for each in done]))
    thresholds = {view: Fixed(_threshold(view)) for view in VIEWS}
    sizes = [each for each in (50, 100, 250) if each < runs]
    rows = []
    for view in VIEWS:
        for n in sizes:
            for k in [each for each in (1, 4, 16, 64) if each <= canaries]:
                for kind in ("wilson", "bernstein"):
                    own = [_bound(scores[view], n, k, kind, thresholds[view], ask.seed, number) for number in range(samples)]
                    where = {"view": view, "n": n, "k": k, "kind": kind}
                    error = float(np.std(own, ddof=1))
                    rows.append(PaperRow(f"{view}, {kind}, n = {n}, k = {k}", "", float(np.mean(own)), error, None, "", where))
    by = {(row.place["view"], row.place["n"], row.place["k"], row.place["kind"]): row.ours or 0.0 for row in rows}
    most, n = max(k for _, _, k, _ in by), sizes[-1]
    lifted, alone = by["known-others", n, most, "wilson"], by["known-others", n, 1, "wilson"]
    check = PaperCheck(
        f"with {n} models, {most} canaries give a larger mean Wilson bound than one ({lifted:.3f} and {alone:.3f})",
        lifted > alone,
    )
    note = "± is the standard deviation over resamplings of the same runs, which are not independent of each other."
    about = ask.about(models=2 * runs, canaries=canaries, accuracy=round(accuracy, 3), epsilon=EPSILON)
    return ResultPart(rows, (check,), notes=(note,), about=about)


def _bound(both: list[Array], n: int, k: int, kind: str, threshold: Fixed, seed: int, number: int) -> float:
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


def _group(job: tuple[str, str, int, int, int, str | None]) -> dict[str, Any]:
    """A group of runs, made or read."""
    folder, kind, first, canaries, seed, data_dir = job
    path = Path(folder) / f"{kind}-{first:04d}.npz"
    if not path.is_file():
        images, labels = _images(data_dir)
        found = [_train(images, labels, kind == "with", canaries, seed, kind, first + number) for number in range(AT_ONCE)]
        aside = path.with_name(path.stem + ".part.npz")
        stacked: Any = {name: np.stack([np.asarray(each[name]) for each in found]) for name in (*VIEWS, "accuracy")}
        np.savez(aside, **stacked)
        aside.replace(path)
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _images(data_dir: str | None) -> tuple[Array, Any]:
    source: Any = data.read("fashion-mnist", group=IMAGES, **({} if data_dir is None else {"data_dir": data_dir}))
    examples = source.examples_of(source.users[0])
    features = examples.features.reshape(len(examples), -1)[:IMAGES]
    return np.concatenate([features, np.ones((len(features), 1), np.float32)], axis=1), examples.targets[:IMAGES]


def _train(images: Array, labels: Any, with_canaries: bool, count: int, seed: int, kind: str, number: int) -> dict[str, Any]:
    """One model: scores of its canaries by both adversaries, and its accuracy."""
    secret = stream(seed, "secret of a lifted run", kind, number)
    dim, noise = images.shape[1] * CLASSES, _noise()
    directions = secret.standard_normal((count, dim), np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    together = directions.sum(axis=0) if with_canaries else np.zeros(dim, np.float32)
    wanted, lengths = np.eye(CLASSES, dtype=np.float32)[labels], np.linalg.norm(images, axis=1)
    weights, seen = np.zeros((CLASSES, images.shape[1]), np.float32), np.zeros(dim)
    for _ in range(STEPS):
        outputs = images @ weights.T
        chances = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        wrong = wanted - chances / chances.sum(axis=1, keepdims=True)  # minus the gradient of each example, over its image
        norms = np.linalg.norm(wrong, axis=1) * lengths
        clipped = (wrong * np.minimum(1.0, 1.0 / np.maximum(norms, 1e-12))[:, None]).T @ images
        own = together + np.float32(noise) * secret.standard_normal(dim, np.float32)
        seen += own
        weights += RATE / len(images) * (clipped + own.reshape(weights.shape))
    accuracy = float(((images @ weights.T).argmax(axis=1) == labels).mean())
    moved = weights.ravel().astype(np.float64) * len(images) / RATE
    return {"known-others": directions @ seen, "final-model": directions @ moved, "accuracy": accuracy}
