"""Figure 3: one example per client. Scores without noise (a) and with it (b); their spread by mock clients and cohort (c).

On CIFAR-10 with a small network, and on Fashion-MNIST; the paper has ResNet18 on CIFAR-10.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from coalmine.papers.canife.attack import OURS, PAPERS, Attack, Outcome, mean_of, repeated
from coalmine.papers.canife.drawings import Line, histograms, lines
from coalmine.papers.canife.grounds import RECIPES, Where, ground
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart, RowVerdict

COHORT, NOISE = 64, 0.423
SPREAD, NOISY_SPREAD = 0.006, 0.478
RESNET18 = 11_177_538  # parameters, by appendix B of the paper
_NEAR = 1.02  # of the noise: how wide scores may be
TASKS = ("fashion", "cifar")


def reproduce(ask: Ask) -> PaperResult:
    """Both data sets, or the part that is asked for."""
    found = {task: _found(ask, task) for task in TASKS if ask.part in (None, task)}
    result = PaperResult.of(
        ask.named("canife-figure3"),
        "CANIFE, Figure 3: attacks on clients of one example, frozen model, 100 draws",
        [ResultPart([], about=ask.about(cohort=COHORT)), *(_judged(ask, task, each) for task, each in found.items())],
        error="standard error over attacks",
    )
    first = next(iter(found.values()))
    figure, further = partial(_picture, first), {"sweep": partial(_sweep, ask, found)}
    return PaperResult(**{**result.__dict__, "figure": figure, "further": further})


def _sizes(ask: Ask) -> tuple[Any, Any, int]:
    """(cohorts, pools, the largest pool)."""
    cohorts, pools = ask.pick(full=((16, 64, 256), (32, 512)), quick=((8, 32), (12, 24)))
    return cohorts, pools, pools[-1]


def _found(ask: Ask, task: str) -> dict[Any, list[Outcome]]:
    where, (cohorts, pools, pool) = Where.of(ask, task), _sizes(ask)
    ours = {**OURS, "iterations": ask.pick(full=250, quick=10)}
    recipe = {**PAPERS, "iterations": ask.pick(full=2500 if task == "fashion" else 1000, quick=20)}
    wanted: dict[Any, Attack] = {
        "silent": Attack(where, COHORT, pool, 0.0, ours),
        "noisy": Attack(where, COHORT, pool, NOISE, ours),
    }
    once: dict[Any, Attack] = {(m, k): Attack(where, k, m, 0.0, ours) for m in pools for k in cohorts}
    once["recipe"] = Attack(where, COHORT, pool, 0.0, recipe)
    done = repeated(ask, wanted, ask.pick(full=3 if task == "fashion" else 2, quick=1), f"attacks, {RECIPES[task].words}")
    return done | repeated(ask, once, 1, f"sweep, {RECIPES[task].words}")


def _judged(ask: Ask, task: str, found: dict[Any, list[Outcome]]) -> ResultPart:
    words, (cohorts, pools, _) = RECIPES[task].words, _sizes(ask)
    rows = []
    for key, text in (
        ("silent", "a: no noise, our design"),
        ("recipe", f"a: no noise, the recipe, {found['recipe'][0]['steps']} steps"),
    ):
        mean, error = mean_of(found[key], "spread")
        verdict: RowVerdict = "same shape" if mean <= SPREAD else "differs"
        rows.append(PaperRow(f"{words}, {text}, spread", f"{SPREAD}", mean, error or None, verdict,
                             f"health {mean_of(found[key], 'health')[0]:.4f}", {"task": task, "panel": key}))  # fmt: skip
    random, most = _random_direction(Where.of(ask, task)), math.sqrt(COHORT / RESNET18)
    note = f"sqrt(cohort / parameters) times the clients' length; {most:.4f} at most for the paper's ResNet18"
    rows.append(PaperRow(f"{words}, a: no noise, a random direction, spread", "", random, note=note,
                         place={"task": task, "panel": "random"}))  # fmt: skip
    mean, error = mean_of(found["noisy"], "spread")
    overlap, _ = mean_of(found["noisy"], "overlap")
    predicted = math.hypot(NOISE, overlap)
    verdict = "same shape" if predicted <= _NEAR * NOISE else "differs"
    note = f"noise {NOISE}; by the canary's overlap with all others {predicted:.3f}, allowed {_NEAR * NOISE:.3f}"
    rows.append(PaperRow(f"{words}, b: noise {NOISE}, spread", f"{NOISY_SPREAD}", mean, error or None, verdict, note,
                         {"task": task, "panel": "noisy"}))  # fmt: skip
    swept = {key: mean_of(each, "spread") for key, each in found.items() if isinstance(key, tuple)}
    for (m, k), (value, error) in swept.items():
        rows.append(PaperRow(f"{words}, c: {m} mock clients, cohort {k}", "", value, error or None, None, "",
                             {"task": task, "panel": "c", "pool": m, "cohort": k}))  # fmt: skip
    by_cohort = swept[pools[-1], cohorts[-1]][0] / swept[pools[-1], cohorts[0]][0]
    by_pool = swept[pools[0], cohorts[-1]][0] / swept[pools[-1], cohorts[-1]][0]
    rows.append(PaperRow(f"{words}, c: spread, cohort {cohorts[-1]} over cohort {cohorts[0]}", "larger", by_cohort, None,
                         "same shape" if by_cohort > 1 else "differs", "", {"task": task, "panel": "c by cohort"}))  # fmt: skip
    rows.append(PaperRow(f"{words}, c: spread, {pools[0]} mock clients over {pools[-1]}", "larger", by_pool, None,
                         "same shape" if by_pool > 1 else "differs", "", {"task": task, "panel": "c by pool"}))  # fmt: skip
    separated = min(each["accuracy"] for each in found["silent"])
    check = PaperCheck(f"{words}: without noise every draw is told, accuracy {separated:.2f}", separated == 1.0)
    about = {f"{task}_accuracy": round(found["silent"][0]["model_accuracy"], 3), f"{task}_steps": Where.of(ask, task).steps}
    note = "c: without noise, one attack for each number; cohorts are drawn with replacement, as from many clients."
    return ResultPart(rows, (check,), (note,), about)


def _random_direction(where: Where) -> float:
    """What the others add to a score along a direction that nobody chose, in clip norms."""
    here = ground(where)
    squares = [float(row @ row) for block in here._blocks(here.others) for row in block]
    return math.sqrt(COHORT * sum(squares) / len(squares) / here.job.model.dim)


def _picture(found: dict[Any, list[Outcome]]) -> Any:
    return histograms({"without noise": found["silent"][0], f"with noise {NOISE}": found["noisy"][0]})


def _sweep(ask: Ask, found: dict[str, dict[Any, list[Outcome]]]) -> Any:
    cohorts, pools, _ = _sizes(ask)
    panels = {}
    for task, each in found.items():
        curves = {}
        for m in pools:
            values = [mean_of(each[m, k], "spread") for k in cohorts]
            curves[f"{m} mock clients"] = Line(cohorts, [value for value, _ in values], [error for _, error in values])
        panels[f"{RECIPES[task].words}: spread of scores, in clip norms"] = curves
    return lines(panels, "clients in a round", log_x=True, log_y=True)
