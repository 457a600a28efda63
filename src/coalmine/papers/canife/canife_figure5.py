"""Figure 5: attacks without noise by start and mock clients (a), by steps of the design (b), by what the model has learned (c).

On MNIST by writer with the paper's small network; the paper has CelebA, and Sent140 for the last panel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from coalmine.papers.canife.attack import OURS, PAPERS, Attack, Outcome, mean_of, repeated
from coalmine.papers.canife.drawings import Line, lines
from coalmine.papers.canife.grounds import RECIPES, Where
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, RowVerdict

TASK, COHORT = "writers", 100
ENOUGH = 250  # steps in which our design must be told without an error
STARTS = ("random", "sample")
LOSSES = {"log": OURS, "recipe": PAPERS}
Found = dict[Any, list[Outcome]]


def reproduce(ask: Ask) -> PaperResult:
    """All three panels."""
    pools = ask.pick(full=(16, 64), quick=(12, 24))
    steps = ask.pick(full=(50, 250, 1000), quick=(5, 10))
    shares = ask.pick(full=(0.0, 0.1, 1.0), quick=(0.0, 1.0))
    times, pool = ask.pick(full=2, quick=1), pools[1]
    here = Where.of(ask, TASK)
    ours = {**OURS, "iterations": ask.pick(full=150, quick=10)}
    starts: Found = repeated(
        ask,
        {(start, m): Attack(here, COHORT, m, 0.0, {**ours, "init": start}) for start in STARTS for m in pools},
        times,
        "starts and mock clients",
    )
    design: Found = repeated(
        ask,
        {
            (loss, t): Attack(here, COHORT, pool, 0.0, {**LOSSES[loss], "iterations": t})
            for loss in LOSSES
            for t in steps
            if loss == "recipe" or t <= ENOUGH
        },
        times,
        "steps of the design",
    )
    learned: Found = repeated(
        ask, {share: Attack(Where.of(ask, TASK, share), COHORT, pool, 0.0, ours) for share in shares}, times, "checkpoints"
    )
    rows = [*_of_starts(starts, pools), *_of_steps(design), *_of_models(learned)]
    panels = {
        "a: spread of scores, in clip norms": _curves(starts, "spread", pools, "{} start"),
        "b: accuracy of the attack": _curves(design, "accuracy", steps, "{}"),
    }
    across = [found[0]["model_accuracy"] for found in learned.values()]
    seen = [mean_of(found, "accuracy") for found in learned.values()]
    curve = Line(across, [value for value, _ in seen], [error for _, error in seen])
    return PaperResult(
        "canife-figure5",
        "CANIFE, Figure 5: ablations without noise, MNIST by writer for CelebA and Sent140, 100 draws",
        tuple(rows),
        "standard error over attacks",
        (_check(ask, design),),
        ("Spreads are those of scores with and without the canary; cohorts of 100.",),
        ask.about(cohort=COHORT, attacks=times, accuracy=round(across[-1], 3), steps=here.steps),
        figure=partial(lines, {title: panel for title, panel in panels.items() if title[0] == "a"}, "mock clients", log_x=True),
        further={
            "steps": partial(lines, {title: each for title, each in panels.items() if title[0] == "b"}, "steps", log_x=True),
            "models": partial(lines, {"c: accuracy of the attack": {"our design": curve}}, "accuracy of the model"),
        },
    )


def _curves(found: Found, name: str, places: Any, words: str) -> dict[str, Line]:
    curves = {}
    for key in dict.fromkeys(first for first, _ in found):
        own = [place for place in places if (key, place) in found]
        values = [mean_of(found[key, place], name) for place in own]
        curves[words.format(key)] = Line(own, [value for value, _ in values], [error for _, error in values])
    return curves


def _of_starts(found: Found, pools: Any) -> list[PaperRow]:
    rows = []
    for (start, m), each in found.items():
        value, error = mean_of(each, "spread")
        rows.append(PaperRow(f"a: {start} start, {m} mock clients, spread", "", value, error or None, None,
                             f"accuracy {mean_of(each, 'accuracy')[0]:.2f}",
                             {"panel": "a", "start": start, "pool": m}))  # fmt: skip
    both = [[value for m in pools for value in _all(found[start, m], "spread")] for start in STARTS]
    change, error = _difference(*both)
    rows.append(PaperRow("a: spread, random less sample start", "no difference", change, error, _none(change, error), "",
                         {"panel": "a", "start": "difference"}))  # fmt: skip
    ends = [[value for start in STARTS for value in _all(found[start, m], "spread")] for m in (pools[0], pools[-1])]
    change, error = _difference(*ends)
    rows.append(PaperRow(f"a: spread, {pools[0]} less {pools[-1]} mock clients", "no difference", change, error,
                         _none(change, error), "", {"panel": "a", "pool": "difference"}))  # fmt: skip
    return rows


def _all(found: list[Outcome], name: str) -> list[float]:
    return [float(each[name]) for each in found]


def _difference(one: list[float], other: list[float]) -> tuple[float, float]:
    """(difference of means, its standard error)."""
    (first, error), (second, further) = (mean_of([{"v": value} for value in values], "v") for values in (one, other))
    return first - second, (error**2 + further**2) ** 0.5


def _none(change: float, error: float) -> RowVerdict:
    """Whether a change cannot be told from none, by three standard errors."""
    return "same shape" if abs(change) <= 3 * error or not error else "differs"


def _of_steps(found: Found) -> list[PaperRow]:
    printed = {("recipe", 1000): ("95 %", 0.95)}
    rows = []
    for (loss, steps), each in found.items():
        value, error = mean_of(each, "accuracy")
        paper, least = printed.get((loss, steps), ("", 0.0))
        verdict: RowVerdict | None = None if not paper else ("same shape" if value >= least else "differs")
        words = "our design" if loss == "log" else "the recipe"
        rows.append(PaperRow(f"b: {words}, {steps} steps, accuracy", paper, value, error or None, verdict,
                             f"spread {mean_of(each, 'spread')[0]:.3f}, health {mean_of(each, 'health')[0]:.3f}",
                             {"panel": "b", "loss": loss, "steps": steps}))  # fmt: skip
    return rows


def _of_models(found: Found) -> list[PaperRow]:
    rows = []
    for share, each in found.items():
        value, error = mean_of(each, "accuracy")
        what = f"c: model with accuracy {each[0]['model_accuracy']:.2f}, accuracy of the attack"
        rows.append(PaperRow(what, "", value, error or None, None,
                              f"spread {mean_of(each, 'spread')[0]:.3f}", {"panel": "c", "share": share}))  # fmt: skip
    first, last = (mean_of(found[share], "accuracy")[0] for share in (min(found), max(found)))
    verdict: RowVerdict = "same shape" if last > first else "differs"
    rows.append(PaperRow("c: accuracy of the attack, trained less untrained model", "above 0", last - first, None, verdict, "",
                         {"panel": "c", "share": "difference"}))  # fmt: skip
    return rows


def _check(ask: Ask, found: Found) -> PaperCheck:
    steps = max(t for loss, t in found if loss == "log" and t <= ENOUGH)
    least = min(each["accuracy"] for each in found["log", steps])
    return PaperCheck(
        f"our design is told without an error after {steps} steps on {RECIPES[TASK].words}: accuracy {least:.2f}",
        least == 1.0 or not ask.full,
    )
