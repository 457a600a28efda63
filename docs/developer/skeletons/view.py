"""Skeleton of a view: an adversary who sees the last release alone. Copy, rename, change.

Register it by its class in `VIEWS` (src/coalmine/views/__init__.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Canaries, Projections
from coalmine.scores import Scores
from coalmine.views.view import NullChoice, Threat, check, law_of_one, spreads_of, table


@dataclass(frozen=True)
class LastRelease(Threat):
    """The cosine with the release of the last round. The claim is computed from `knows_rounds` by the base class."""

    key: ClassVar[str] = "last-release"
    adversary: ClassVar[str] = "sees the last release alone"
    needs: ClassVar[str] = "mean"  # "mean", "residual", "step", "total_change" or "model"

    def scores(
        self, projections: Projections, schedule: Schedule, canaries: Canaries, *, null: NullChoice = "theory"
    ) -> Scores:
        """One number per column: the canaries of the pool first, then unused directions."""
        check(projections, schedule, canaries, self.needs, null)
        pool, norm = projections.pool, float(projections.norm[-1])
        cosines = projections.inner[-1] / norm if norm > 0 else np.zeros(projections.inner.shape[1])
        spread = float(spreads_of(projections, schedule, canaries)[-1]) / norm if norm > 0 else projections.dim**-0.5
        return table(
            self,
            "cosine",
            projections,
            schedule,
            members=np.arange(pool),
            values=cosines[:pool],
            law=law_of_one(canaries, projections, spread) if null == "theory" else None,
            columns=np.arange(pool, cosines.size),
            unused=cosines[pool:],
        )
