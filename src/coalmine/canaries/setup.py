"""The canaries of a run: directions, rounds and coins, and how they join."""

from __future__ import annotations

from dataclasses import dataclass

from coalmine.canaries.aimed import Aim
from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Canaries

CANARY_NORM = 1e4  # clip norms: a canary that already has the clip norm is blind to clipping bugs


@dataclass(frozen=True, eq=False)
class CanarySetup:
    """The canaries of a run: directions, rounds and coins, and how they join."""

    canaries: Canaries
    schedule: Schedule
    full_vectors: bool = False  # each canary is a full vector that passes through the client's code; slower, same release
    replace: bool = False  # a canary takes the place of a client
    canary_norm: float = CANARY_NORM  # clip norms that a canary sends
    examples: int = 1  # how many a canary says it has: the largest number a client may have, for code that weighs by it

    aim: Aim | None = None  # canaries are aimed by a covariance, which is then known of every round

    @property
    def kept(self) -> float:
        """Clip norms that are left of a canary after right clipping."""
        return min(self.canary_norm, 1.0)
