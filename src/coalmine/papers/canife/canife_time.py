"""Section 4.3: the time of a design. Seconds depend on the machine; the ratio to the paper's recipe in one process does not.

The recipe is that of the published code: 2,500 steps, for texts by Gumbel softmax. Where its steps are too dear to be run here,
so many are run as the table says, and the time of 2,500 is that of as many more.
"""

from __future__ import annotations

from coalmine.papers.canife.attack import OURS, PAPERS, Attack, Outcome, perform
from coalmine.papers.canife.grounds import RECIPES, Where, ground
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow

STEPS = 2500
NOISE = 0.2
PRINTED = {"fashion": "", "writers": "0.23 (ResNet18)", "shakespeare": "0.06 (Sent140)"}
_RUN = {"fashion": 2500, "writers": 250, "shakespeare": 40}  # steps of the recipe that are really run
_OURS = {"fashion": 250, "writers": 250, "shakespeare": 20}
_ENOUGH = 0.2  # A design of ours takes at most this share of the recipe's time, where both were run to their end


def reproduce(ask: Ask) -> PaperResult:
    """One design each, both ways, in this process."""
    rows, checks = [], []
    for task, recipe in RECIPES.items():
        if task not in PRINTED:
            continue
        run, own = (ask.pick(full=steps[task], quick=6) for steps in (_RUN, _OURS))
        where = Where.of(ask, task)
        if not all(each.file.is_file() for each in _attacks(ask, where, run, own)):
            perform(_attacks(ask, where, 2, 2)[0])  # what is made once, so that neither design pays for it
        theirs, ours = (perform(each) for each in _attacks(ask, where, run, own))
        whole = theirs["seconds"] * (STEPS / run if ask.full else 1.0)
        ratio = ours["seconds"] / whole
        rows += _rows(task, recipe.words, theirs, ours, run, own, ratio)
        if run == STEPS:
            better = ours["overlap"] <= theirs["overlap"]
            text = f"{recipe.words}: our design takes {ratio:.2f} of the recipe's time, at no more overlap"
            checks.append(PaperCheck(text, (ratio <= _ENOUGH and better) or not ask.full))
    return PaperResult(
        "canife-time",
        "CANIFE, section 4.3: time of a design, ours beside the recipe, one thread",
        tuple(rows),
        "",
        tuple(checks),
        ("Seconds are processor time of one design, training of its mock clients included.",),
        ask.about(noise=NOISE),
    )


def _attacks(ask: Ask, where: Where, run: int, own: int) -> tuple[Attack, Attack]:
    pool = min(ask.pick(full=64, quick=16), len(ground(where).mock))
    both = ({**PAPERS, "iterations": run}, {**OURS, "iterations": own})
    first, second = (Attack(where, 100, pool, NOISE, options) for options in both)
    return first, second


def _rows(task: str, words: str, theirs: Outcome, ours: Outcome, run: int, own: int, ratio: float) -> list[PaperRow]:
    place, worth = {"task": task}, "overlap {overlap:.4f}, efficiency {efficiency:.3f}"
    return [
        PaperRow(f"{words}, recipe, seconds per step", PRINTED[task], theirs["seconds"] / run, None, None,
                 f"{run} steps in {theirs['seconds']:.1f} s, {worth.format(**theirs)}",
                 {**place, "column": "recipe"}),
        PaperRow(f"{words}, ours, seconds of a design", "", ours["seconds"], None, None,
                 f"{own} steps, {worth.format(**ours)}", {**place, "column": "ours"}),
        PaperRow(f"{words}, ours over 2,500 steps of the recipe", "", ratio, None, None, "", {**place, "column": "ratio"}),
    ]  # fmt: skip
