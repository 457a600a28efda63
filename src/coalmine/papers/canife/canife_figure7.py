"""Figure 7: the estimate of one round against the accuracy of the attack, for normal scores."""

from __future__ import annotations

import itertools

from scipy.special import ndtr

from coalmine.estimators.composed import perfect_canary
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow

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
        about=ask.about(),
        error="standard deviation from round to round",
    )
