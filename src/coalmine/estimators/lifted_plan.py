"""Before many runs: the largest bound that they can show, whatever comes out.

It is the bound of scores that tell inserted canaries without a mistake, with the threshold chosen on other runs. Where it is
below the claim, no outcome contradicts the claim; Bernstein intervals of fewer than a hundred runs show nearly nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import percent
from coalmine.errors import NotEnoughCanariesError
from coalmine.estimators.lifted import bound_lifted
from coalmine.scores import Scores

_MOST = 4_000_000  # scores of a design that is looked at in the search for enough runs
_MOST_PLANNED = 10_000_000  # scores of a design that is asked for


@dataclass(frozen=True)
class LiftedPlan:
    """What so many runs can show."""

    claim: float
    delta: float
    confidence: float
    runs: int
    canaries: int
    design: str
    ceilings: dict[str, float]  # by interval and order; what decides stands first
    runs_needed: int | None  # for a ceiling above the claim; None: more than were looked at

    @property
    def ceiling(self) -> float:
        """The largest bound by the interval that decides."""
        return next(iter(self.ceilings.values()))

    def __str__(self) -> str:
        shown = ", ".join(f"{value:.3g} ({name})" for name, value in self.ceilings.items())
        said = "an outcome can contradict the claim"
        if self.ceiling <= self.claim:
            said = "below the claim: INCONCLUSIVE, whatever comes out"
        needed = "more than can be looked at" if self.runs_needed is None else f"about {self.runs_needed:,} runs"
        return "\n".join(
            [
                f"Plan for a claim: epsilon = {self.claim:g} at delta = {self.delta:g}, confidence {percent(self.confidence)}",
                f"  design             {self.runs:,} runs, {self.canaries:,} canaries in each, {self.design}, split threshold",
                f"  can show           at most {shown}",
                f"  so                 {said}",
                f"  above the claim    {needed}",
            ]
        )


def plan_lifted(
    claim: float, *, delta: float, runs: int, canaries: int, design: str = "coins", confidence: float = 0.95
) -> LiftedPlan:
    """The largest lifted bounds of a design, and how many runs would do.

    Args:
        claim: The epsilon to be tested.
        delta: Of the claim.
        runs: In all; with design "separate" half of them have inserted canaries.
        canaries: Of a run.
        design: "coins", "separate" or "same-run".
        confidence: With which the statement will hold.

    Returns:
        The ceilings, and the runs needed.
    """
    _validate.positive("claim", claim)
    size, count = _validate.whole("runs", runs, least=2), _validate.whole("canaries", canaries, least=1)
    ways = [("bernstein", 2), ("bernstein", 4), ("bernstein", 1), ("wilson", 2)]
    ways = [way for way in ways if way[1] <= count] or [("bernstein", 1), ("wilson", 1)]

    def ceiling(kind: str, order: int, size: int) -> float:
        return lifted_ceiling(size, count, delta=delta, design=design, confidence=confidence, kind=kind, order=order)

    ceilings = {f"{kind}, order {order}": ceiling(kind, order, size) for kind, order in ways}
    high = 4
    while high * count <= _MOST and ceiling(*ways[0], high) <= claim:
        high *= 2
    low, needed = high // 2, None if high * count > _MOST else high
    while needed is not None and needed - low > max(1, needed // 50):
        middle = (low + needed) // 2
        low, needed = (low, middle) if ceiling(*ways[0], middle) > claim else (middle, needed)
    return LiftedPlan(float(claim), float(delta), float(confidence), size, count, design, ceilings, needed)


def lifted_ceiling(runs: int, canaries: int, *, delta: float, design: str = "coins", **how: Any) -> float:
    """The largest bound of so many runs; 0 where they are too few to split. `how` is passed to `bound_lifted`."""
    try:
        return bound_lifted(_told(runs, canaries, design), delta=delta, design=design, **how).ceiling
    except NotEnoughCanariesError:
        return 0.0


def _told(runs: int, canaries: int, design: str) -> Scores:
    """Scores that say exactly who was inserted."""
    if runs * canaries > _MOST_PLANNED:
        raise ValueError(
            f"{runs:,} runs of {canaries:,} canaries are not planned: together at most {_MOST_PLANNED:,} scores are looked at. "
            "Give fewer runs, or fewer canaries."
        )
    run = np.repeat(np.arange(runs), canaries)
    if design == "separate":
        inserted = run % 2 == 0
    elif design == "same-run":
        inserted = np.tile(np.arange(canaries) % 2 == 0, runs)
    else:
        inserted = stream(0, "plan of lifted bounds", runs).random(run.size) < 0.5
    return Scores(inserted.astype(float), inserted, {"run": run}, assignment="coins" if design == "coins" else "fixed")
