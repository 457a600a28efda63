"""Lifted bounds of the Gaussian mechanism by numbers of models and canaries, and what that is worth in models.

Runs are simulated: k random unit vectors of R^d, noise for epsilon = 4, inner products; runs without the canary score fresh
ones, whose law is that of any random direction. The threshold is the mean of an inserted score, fixed beforehand.

The factor of k canaries is n(1)/n: how many models with one canary each give the mean bound that n models with k give. Its
interval is a bootstrap over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from coalmine._random import stream
from coalmine.contracts import Array
from coalmine.estimators._rates import Fixed
from coalmine.estimators.lifted import bound_lifted
from coalmine.gaussian import gaussian_gap
from coalmine.nulls import CosineNull
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperRow, ResultPart
from coalmine.scores import Scores
from coalmine.simulation import simulate_gaussian_mechanism

DIM, EPSILON, DELTA = 10_000, 4.0, 1e-5
_FEW, _AT_ONCE = 64, 2_000_000  # canaries of runs that are simulated together, and numbers in memory
METHODS = {"Wilson": "wilson", "Bernstein": "bernstein"}


def gaussian(ask: Ask) -> ResultPart:
    """Mean bounds by n and k, and the factor of k canaries."""
    seeds = ask.repeat(full=25, quick=8)
    models = _models(ask.full)
    alone, canaries = models[1], list(models)
    jobs = [((k, ask.seed * 1_000 + number), models[k]) for k in canaries for number in range(seeds)]
    found = ask.each(_bounds, jobs, "lifted, Gaussian mechanism")
    table = {k: np.array(found[place * seeds : (place + 1) * seeds]) for place, k in enumerate(canaries)}  # by seed, kind, n
    rows = []
    for kind, name in enumerate(METHODS):
        for k, block in table.items():
            for column, n in enumerate(models[k]):
                own, where = block[:, kind, column], {"kind": name, "k": k, "n": n}
                error = float(own.std(ddof=1) / math.sqrt(seeds))
                rows.append(PaperRow(f"{name}, n = {n}, k = {k}", "", float(own.mean()), error, None, "", where))
    rows += _factors(table, alone, ask.seed)
    lifted, one = (float(table[k][:, 0, 0].mean()) for k in (canaries[-1], 1))
    check = PaperCheck(
        f"with {alone[0]} models, {canaries[-1]} canaries have a larger mean Wilson bound than one ({lifted:.3f}, {one:.3f})",
        lifted > one,
    )
    about = ask.about(seeds=seeds, epsilon=EPSILON, delta=DELTA, dim=DIM)
    return ResultPart(rows, (check,), about=about, details={"bounds": {str(k): block.tolist() for k, block in table.items()}})


def _models(full: bool) -> dict[int, tuple[int, ...]]:
    """Numbers of models by number of canaries: more with one canary, to find the factor; fewer where canaries are many."""
    if not full:
        return {1: (128, 256, 512, 1024, 2048, 4096), **dict.fromkeys((4, 16, 64), (128, 256, 512))}
    sizes = (256, 512, 1024, 2048, 4096)
    return {1: (*sizes, 8192, 16384), **dict.fromkeys((4, 16, 64), sizes), 256: sizes[:3], 1024: sizes[:2]}


def _factors(table: dict[int, Array], models: Sequence[int], seed: int) -> list[PaperRow]:
    """For every k, method and two numbers of models, how many models with one canary one with k is worth."""
    rows = []
    for kind, name in enumerate(METHODS):
        for k in [each for each in table if each > 1]:
            for column in range(2):
                curve, own = table[1][:, kind], table[k][:, kind, column]
                rng, drawn = stream(seed, "bootstrap over seeds", name, k), []
                for _ in range(400):
                    some = rng.integers(0, len(own), len(own))
                    drawn.append(factor(curve[some], own[some], models, models[column]))
                value, known = factor(curve, own, models, models[column]), [each for each in drawn if each is not None]
                note = "none within the numbers of models looked at"
                if value is not None and len(known) > 380:
                    note = f"95 % interval [{np.quantile(known, 0.025):.2f}, {np.quantile(known, 0.975):.2f}] over seeds"
                what, paper = f"{name}, n = {models[column]}: models with one canary for one with {k}", "5" if k >= 16 else ""
                rows.append(PaperRow(what, paper, value, None, None, note, {"kind": name, "k": k, "n": models[column]}))
    return rows


def factor(alone: Array, lifted: Array, models: Sequence[int], n: int) -> float | None:
    """n(1)/n for equal mean bounds; None outside the numbers of models that were looked at.

    >>> round(factor(np.array([[0.1, 0.2, 0.4]]), np.array([0.3]), (100, 200, 400), 100), 9)
    2.828427125
    """
    curve, wanted = np.maximum.accumulate(alone.mean(axis=0)), float(lifted.mean())
    if not curve[0] < wanted <= curve[-1]:
        return None
    return float(np.exp(np.interp(wanted, curve, np.log(np.asarray(models, dtype=float)))) / n)


def simulated(k: int, runs: int, seed: int, gap: float) -> tuple[Array, Array]:
    """Scores of `runs` models with k canaries, and of as many without: cosines in units of 1/sqrt(d)."""
    took = np.stack(
        [
            simulate_gaussian_mechanism(DIM, k, 1 / gap, seed=seed * 100_003 + number).inserted_values * math.sqrt(DIM)
            for number in range(runs)
        ]
    )
    return took, absent(k, runs, seed)


def absent(k: int, runs: int, seed: int) -> Array:
    """Scores of canaries that took no part."""
    return np.asarray(CosineNull(DIM).rvs(runs * k, rng=stream(seed, "runs without", k))).reshape(runs, k) * math.sqrt(DIM)


def at_once(k: int, runs: int, dim: int, sigma: float, rng: np.random.Generator) -> Array:
    """Cosines of k canaries with the release of each of many runs, by the law of `simulate_gaussian_mechanism`."""
    found = []
    for start in range(0, runs, size := max(1, _AT_ONCE // (k + 1) ** 2)):
        count = min(size, runs - start)
        rows = np.tril(rng.standard_normal((count, k + 1, k + 1)), -1)
        rows[:, np.arange(k + 1), np.arange(k + 1)] = np.sqrt(rng.chisquare(dim - np.arange(k + 1), (count, k + 1)))
        canaries = rows[:, :-1] / np.linalg.norm(rows[:, :-1], axis=2, keepdims=True)
        release = canaries.sum(axis=1) + sigma * rows[:, -1]
        found.append(np.einsum("rkj,rj->rk", canaries, release) / np.linalg.norm(release, axis=1, keepdims=True))
    return np.concatenate(found)


def separate(took: Array, did_not: Array) -> Scores:
    """One table of scores of separate runs."""
    runs, k = took.shape
    value = np.concatenate([took.ravel(), did_not.ravel()])
    inserted = np.arange(value.size) < took.size
    return Scores(value, inserted, {"run": np.repeat(np.arange(2 * runs), k)}, assignment="fixed")


def _bounds(job: tuple[tuple[int, int], tuple[int, ...]]) -> list[list[float]]:
    (k, seed), models = job
    gap = gaussian_gap(EPSILON, DELTA)
    runs = max(models)
    if k <= _FEW:
        took = at_once(k, runs, DIM, 1 / gap, stream(seed, "runs of few canaries", k)) * math.sqrt(DIM)
        did_not = absent(k, runs, seed)
    else:
        took, did_not = simulated(k, runs, seed, gap)
    order = 1 if k == 1 else 2
    how = {"delta": DELTA, "design": "separate", "threshold": Fixed(gap), "order": order}
    return [
        [bound_lifted(separate(took[:n], did_not[:n]), kind=kind, **how).epsilon for n in models]  # type: ignore[arg-type]
        for kind in METHODS.values()
    ]
