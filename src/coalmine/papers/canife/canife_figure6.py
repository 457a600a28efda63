"""Figure 6: one round of Shakespeare, with noise (a) and without (b), for a perfect canary."""

from __future__ import annotations

from coalmine.estimators.composed import largest_finite
from coalmine.papers.canife.tasks import DELTA, DRAWS, gap_row, round_row, shown
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult, PaperRow, RowVerdict


def reproduce(ask: Ask) -> PaperResult:
    """The model alone: without noise, every finite estimate is at the limit of its number of scores."""
    last = shown(ask)[-1]
    limit = largest_finite(DRAWS // 2, DRAWS // 2, DELTA)
    verdict: RowVerdict = "exact" if f"{limit:.2f}" == "3.89" else "differs"
    without = PaperRow("without noise: limit of a finite estimate", "3.89", limit, verdict=verdict, place={"column": "limit"})
    return PaperResult(
        "canife-figure6",
        "CANIFE, Figure 6: one round of Shakespeare, perfect canary",
        (round_row(last), gap_row(last), without),
        notes=("A gap is model-based if a perfect canary has 4 to 5 too.",),
        about=ask.about(),
    )
