"""Figure 3: epsilon of the final model on MNIST by writer, by noise and presentations."""

from __future__ import annotations

from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult
from coalmine.papers.one_shot.families import BY_WRITER, WRITERS, mnist
from coalmine.papers.one_shot.presentations import epsilons, grid_of

NOISES = (0.16, 0.18, 0.195)


def reproduce(ask: Ask) -> PaperResult:
    """A run for every noise and number of presentations."""
    return epsilons(ask, "figure3", f"Figure 3 on {BY_WRITER}", BY_WRITER, grid_of(ask, mnist, NOISES), WRITERS)
