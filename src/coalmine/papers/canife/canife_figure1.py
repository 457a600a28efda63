"""Figures 1 and 4c: the composed epsilon against the accountant's, for a perfect canary and in private trainings."""

from __future__ import annotations

import numpy as np

from coalmine.papers.canife.tasks import EPSILONS, composed_row, shown
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart, RowVerdict
from coalmine.papers.kit.rules import NOT_A_BOUND


def reproduce(ask: Ask) -> PaperResult:
    """The model needs no data and no network."""
    return PaperResult.of(
        ask.named("canife-figure1"),
        ask.heading(
            "CANIFE, Figures 1 and 4c: composed epsilon of trainings to 10, 30 and 50,",
            model="perfect canary",
            runs="crafted canaries in private trainings",
        ),
        [ResultPart([], about=ask.about()), *ask.parts(model=_model, runs=_runs)],
        error="standard deviation over runs",
    )


def _model(ask: Ask) -> ResultPart:
    found = shown(ask)
    lower = all(each.composed < each.epsilon for each in found)
    check = PaperCheck("a perfect canary stays below the accountant's epsilon in all nine", lower)
    return ResultPart([composed_row(each) for each in found], (check,), (NOT_A_BOUND,))


def _runs(ask: Ask) -> ResultPart:
    from coalmine.papers.canife.families import FAMILIES, SHAKESPEARE, noises  # the rest needs torch, the model does not
    from coalmine.papers.canife.monitoring import composed, mean_perfect, monitor

    rows, checks = [], []
    for key, family in FAMILIES.items():
        training = family.training()
        own = noises(family)
        if ask.full and family is SHAKESPEARE:  # each training takes three processor minutes
            own = dict([list(own.items())[-1]])
        seeds = range(ask.pick(full=2 if key == "writers" else 1, quick=1))
        measured = monitor(ask, family, own, seeds)
        means = []
        for epsilon, (name, noise) in zip(EPSILONS[-len(own) :], own.items(), strict=True):
            values = [composed(training, rounds) for rounds in measured[name]]
            means.append(float(np.mean(values)))
            error = float(np.std(values, ddof=1)) if len(values) > 1 else None
            best = float(np.mean([training.composed(mean_perfect(noise, rounds)[0]) for rounds in measured[name]]))
            verdict: RowVerdict = "same shape" if means[-1] < epsilon else "differs"
            note = f"noise {noise:g}, {len(values)} runs of {len(measured[name][0])} measured rounds; perfect canary {best:.2f}"
            rows.append(PaperRow(f"{family.words}, epsilon {epsilon}, composed", f"below {epsilon}", means[-1], error, verdict,
                                 note, {"task": key, "epsilon": epsilon}))  # fmt: skip
        if len(means) > 1:
            rising = means[0] < means[-1]
            checks.append(PaperCheck(f"{family.words}: composed epsilon grows with the accountant's", rising or not ask.full))
    notes = ["Composed as printed: not a bound. A perfect canary, in the notes, has nearly the same gap."]
    if ask.full:
        notes.append("On Shakespeare's roles the training to epsilon 50 alone, which Figures 4 and 6 show as well.")
    return ResultPart(rows, checks, notes)
