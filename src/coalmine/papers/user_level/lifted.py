"""Lifted audits: k canaries in each of n models instead of one (Pillutla et al. 2023), in four parts.

    gaussian   bounds of the Gaussian mechanism by n and k, and how many models k canaries are worth
    fashion    the same on a model of Fashion-MNIST that is really trained
    bias       what more canaries cost: they disturb each other, and intervals stop shrinking
    debug      models that show a bug of the batch size: claimed 0.21, true 2.79

The paper's epsilons are of Rényi accounting and its batches are shuffled; ours are exact. Its numbers stand beside ours as
shapes, never as equals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult, PaperRow
from coalmine.papers.user_level.lifted_bias import bias
from coalmine.papers.user_level.lifted_debug import debug
from coalmine.papers.user_level.lifted_fashion import fashion
from coalmine.papers.user_level.lifted_gaussian import gaussian


def reproduce(ask: Ask) -> PaperResult:
    """All parts, or the one that is asked for."""
    parts = ask.parts(gaussian=gaussian, fashion=fashion, bias=bias, debug=debug)
    title = "Lifted audits: k canaries in each of n models, separate runs with and without, 95 % confidence"
    if ask.part == "debug":
        title = "What it takes to show a bug of the batch size: claimed epsilon 0.21, shown above 2.79 at confidence 1 - 1e-8"
    found = PaperResult.of(ask.named("lifted"), title, parts, error="standard error over seeds")
    figures = {"gaussian": "bounds", "fashion": "kinds", "bias": "widths"}
    return replace(found, figure=drawer(figures[ask.part], found.rows)) if ask.part in figures else found


def drawer(name: str, rows: tuple[PaperRow, ...]) -> Callable[[], Any]:
    """A picture of `pictures` by its name, made when it is asked for: it needs matplotlib, the numbers do not."""

    def draw() -> Any:
        from coalmine.papers.user_level import pictures

        return getattr(pictures, name)(rows)

    return draw
