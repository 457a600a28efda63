"""Appendices A and F: what the design pool is worth. Its size, its origin, steps of the design, and the likelihood ratio.

    paper               here
    (k Sigma)^-1 g      the direction that the likelihood ratio scores along, with the pool's covariance for Sigma, and noise

A foreign pool holds other data of the same shape: MNIST for Fashion-MNIST, and the other way round. Visibility is reach over
the spread of a score whose others are unknown, on clients that no design saw; the best there is, is 1 / noise.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from coalmine.canaries.crafted.likelihood import along
from coalmine.papers.canife.attack import OURS, Attack, Outcome, designed, mean_of, repeated
from coalmine.papers.canife.drawings import Line, lines
from coalmine.papers.canife.grounds import RECIPES, Where, ground
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow

NOISE, COHORT = 0.419, 100
FOREIGN = {"fashion": "writers", "writers": "fashion"}
Found = dict[Any, list[Outcome]]


def reproduce(ask: Ask) -> PaperResult:
    """On Fashion-MNIST with a dense network, and on MNIST by writer with the small convolutional one."""
    sizes, steps = ask.pick(full=(8, 24, 64), quick=(6, 18)), ask.pick(full=(20, 60, 150), quick=(3, 6))
    rows, checks, panels = [], [], {}
    for task, foreign in FOREIGN.items():
        where, words = Where.of(ask, task), RECIPES[task].words
        told = {**OURS, "iterations": steps[-1]}
        wanted: dict[Any, Attack] = {("mock clients", m): Attack(where, COHORT, m, NOISE, told) for m in sizes}
        wanted |= {("foreign mock clients", sizes[-1]): Attack(where, COHORT, sizes[-1], NOISE, told, foreign)}
        wanted |= {("steps", t): Attack(where, COHORT, sizes[-1], NOISE, {**told, "iterations": t}) for t in steps[:-1]}
        times = ask.pick(full=3 if task == "fashion" else 1, quick=1)
        found: Found = repeated(ask, wanted, times, f"pools, {words}")
        rows += [_row(task, words, what, number, each) for (what, number), each in found.items()]
        rows.append(_likelihood(wanted["mock clients", sizes[1]], words, found["mock clients", sizes[1]]))
        seen = [mean_of(found["mock clients", m], "efficiency") for m in sizes]
        panels[f"{words}: efficiency"] = {
            "mock clients": Line(sizes, [value for value, _ in seen], [error for _, error in seen])
        }
        checks.append(PaperCheck(f"{words}: more mock clients make a better canary", seen[-1][0] >= seen[0][0] - seen[-1][1]))
    return PaperResult(
        "canife-pools",
        "CANIFE, appendices A and F: the design pool",
        tuple(rows),
        "standard error over attacks",
        tuple(checks),
        (f"Cohorts of {COHORT}, noise {NOISE}: the best visibility is {1 / NOISE:.2f}. Efficiency is visibility over that.",),
        ask.about(),
        figure=partial(lines, panels, "mock clients", log_x=True),
    )


def _row(task: str, words: str, what: str, number: int, each: list[Outcome]) -> PaperRow:
    value, error = mean_of(each, "efficiency")
    overlap, health = (mean_of(each, name)[0] for name in ("overlap", "health"))
    note = f"visibility {value / NOISE:.3f}, overlap {overlap:.4f} clip norms, health {health:.3f}"
    return PaperRow(f"{words}, {number} {what}: efficiency", "", value, error or None, None, note,
                    {"task": task, "what": what, "number": number})  # fmt: skip


def _likelihood(attack: Attack, words: str, plain: list[Outcome]) -> PaperRow:
    """The same canary scored along the likelihood ratio's direction, with the pool's own covariance of rank m."""
    here = ground(attack.where)
    crafted = designed(here, attack)
    unit = crafted.directions.update(0).astype(np.float64)
    rows = np.concatenate(list(here._blocks(here.mock[: attack.pool]))).astype(np.float64)
    looking = along(unit, rows, noise=NOISE, cohort=attack.cohort)
    own = float(crafted.metrics["reach"][0]) * float(looking @ unit)
    x = here.projections(looking.astype(np.float32))
    value = NOISE * own / math.sqrt(NOISE**2 + attack.cohort * float(np.mean(x**2)))
    note = f"the same canary along its update: {plain[0]['efficiency']:.4f}"
    return PaperRow(f"{words}, {attack.pool} mock clients, likelihood ratio: efficiency", "", value, None, None, note,
                    {"task": attack.where.task, "what": "likelihood ratio", "number": attack.pool})  # fmt: skip
