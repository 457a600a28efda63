"""Figures 1 and 4c: the composed epsilon against the accountant's, for a perfect canary."""

from __future__ import annotations

from coalmine.papers.canife.tasks import composed_row, shown
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult


def reproduce(ask: Ask) -> PaperResult:
    """The model alone: no data, no network."""
    found = shown(ask)
    lower = all(each.composed < each.epsilon for each in found)
    return PaperResult(
        "canife-figure1",
        "CANIFE, Figures 1 and 4c: composed epsilon of trainings to 10, 30 and 50, perfect canary",
        tuple(composed_row(each) for each in found),
        checks=(PaperCheck("a perfect canary stays below the accountant's epsilon in all nine", lower),),
        about=ask.about(),
    )
