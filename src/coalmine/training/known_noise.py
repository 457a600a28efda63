"""What an auditor knows of a round's noise where it depends on the data: for canaries that are aimed by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coalmine.canaries.setup import CanarySetup
from coalmine.contracts import Description, LowRank
from coalmine.mechanisms.covariance import ExampleNoise, added
from coalmine.training.work import Outcome


def lift_of(setup: CanarySetup | None, described: Description) -> float:
    """What a canary adds to the variance along itself; 0 where canaries are not aimed."""
    return 0.0 if setup is None or setup.aim is None else ExampleNoise.of(described).lift


def covariance_of(setup: CanarySetup | None, described: Description, dim: int, outcomes: Sequence[Outcome]) -> LowRank | None:
    """Of the clients' noise, and of as many canaries as are expected: it must not depend on their coins."""
    if setup is None or setup.aim is None:
        return None
    parts = [outcome.covariance for outcome in outcomes if outcome.covariance is not None]
    expected = LowRank(ExampleNoise.of(described).floor * setup.schedule.expected_size, np.zeros((dim, 0)))
    return added([*parts, expected], dim)
