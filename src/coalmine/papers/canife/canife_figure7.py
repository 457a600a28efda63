"""Figure 7: the estimate of one round against the accuracy of the attack, for normal scores."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from scipy.special import ndtr

from coalmine.estimators.composed import largest_finite, perfect_canary
from coalmine.papers.canife.tasks import DRAWS
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow
from coalmine.papers.kit.rules import NOT_A_BOUND

NOISES = (4.0, 2.0, 1.0, 0.7, 0.5, 0.4, 0.3)


def reproduce(ask: Ask) -> PaperResult:
    """The paper has a picture and no numbers."""
    runs = ask.repeat(full=20_000, quick=2_000)
    found = [perfect_canary(noise, simulations=runs, seed=ask.seed) for noise in NOISES]
    rows = [
        PaperRow(f"accuracy {each.accuracy:.3f}", "", each.mean, each.std,
                 note=f"noise {noise:g}; accuracy of the middle threshold {ndtr(0.5 / noise):.3f}",
                 place={"noise": noise, "accuracy": each.accuracy})
        for noise, each in zip(NOISES, found, strict=True)
    ]  # fmt: skip
    rising = all(a.mean < b.mean and a.accuracy < b.accuracy for a, b in itertools.pairwise(found))
    return PaperResult(
        "canife-figure7",
        "CANIFE, Figure 7: estimate of one round against the best accuracy of 100 normal scores",
        tuple(rows),
        checks=(PaperCheck("the estimate grows with the accuracy", rising),),
        notes=(NOT_A_BOUND,),
        about=ask.about(),
        error="standard deviation from round to round",
        figure=partial(
            _picture, [each.accuracy for each in found], [each.mean for each in found], [each.std for each in found]
        ),
    )


def _picture(accuracies: list[float], means: list[float], errors: list[float]) -> Any:
    from coalmine.papers.canife.drawings import Line, lines  # needs matplotlib, the numbers do not

    limit = largest_finite(DRAWS // 2, DRAWS // 2, 1 / DRAWS)
    ends = [accuracies[0], accuracies[-1]]
    curves = {"normal scores": Line(accuracies, means, errors), "most that is finite": Line(ends, [limit, limit], dotted=True)}
    return lines({"estimate of one round, 100 scores, delta 0.01": curves}, "accuracy of the best threshold")
