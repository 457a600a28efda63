"""How far a client moves all releases together, as a strategy of correlated noise says, and whether its own matrix agrees.

The strategies of the package are proved and tested. That of somebody else is believed in what it says of its noise, which the
tests of a run compare with the releases; its sensitivity no release shows, so that it is compared with its own whitening.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from coalmine.contracts import Array, Constraint, Explicit, PerPeriod

_NUMBERS = 4_000_000  # of a table of rounds by clients


def sensitivity_of(strategy: Any, constraint: Constraint) -> tuple[float, bool]:
    """The sensitivity, and whether it is exact, as the strategy says; less than what its own matrix shows is refused."""
    if hasattr(strategy, "bound"):
        found = strategy.bound(constraint)
        value, exact = float(found.value), bool(found.exact)
    else:
        value, exact = float(strategy.sensitivity(constraint)), True
    if not type(strategy).__module__.startswith("coalmine.") and (shown := _shown(strategy, constraint)) > value * (1 + 1e-9):
        raise ValueError(
            f"strategy {strategy.kind!r} states a sensitivity of {value:.6g} for {constraint.most} of {constraint.rounds} "
            f"rounds, but a client with such rounds shows {shown:.6g} in the rows that it whitens itself: an epsilon for "
            f"{value:.6g} would be too small. Correct its `bound` or `sensitivity`."
        )
    return value, exact


def _shown(strategy: Any, constraint: Constraint) -> float:
    """What clients with some of the allowed sets of rounds show for certain: a lower bound of the sensitivity."""
    if isinstance(constraint, Explicit):
        presence = np.asarray(constraint.presence, dtype=np.float64)
    else:
        presence = np.zeros((constraint.rounds, 1))
        if isinstance(constraint, PerPeriod):
            borders = [constraint.rounds * number // constraint.times for number in range(constraint.times + 1)]
            # the last round of a period and the first of the next one, by turns
            presence[[end - 1 if place % 2 == 0 else first for place, (first, end) in enumerate(pairwise(borders))]] = 1.0
        else:
            presence = _apart(constraint.rounds, constraint.times, constraint.separation)
    return float(np.linalg.norm(strategy.whiten(presence, {})[0], axis=0).max(initial=0.0))


def _apart(rounds: int, times: int, separation: int) -> Array:
    """Clients who come `separation` rounds apart, a column for every first round, or for as many of them as fit into memory."""
    last = max(rounds - (times - 1) * separation, 1)
    first = np.unique(np.linspace(0, last - 1, min(last, max(_NUMBERS // rounds, 2))).astype(np.int64))
    rows = first + separation * np.arange(times)[:, None]
    presence = np.zeros((rounds, first.size))
    columns = np.broadcast_to(np.arange(first.size), rows.shape)
    presence[rows[rows < rounds], columns[rows < rounds]] = 1.0
    return presence
