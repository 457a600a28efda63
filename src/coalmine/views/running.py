"""The epsilon measured so far: scores that may be looked at after every round.

Every presentation of an inserted canary gives one number: its inner product with the released mean of that round, in units of
what a direction that took no part would show. Given the past these are an effect plus noise of variance at most 1, so that
`coalmine.estimators.anytime.anytime_epsilons` of all numbers so far is a lower bound at all times at once, for one
presentation and under a Gaussian trade-off curve.
"""

from __future__ import annotations

import numpy as np

from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Array, Canaries, Projections
from coalmine.errors import MismatchError
from coalmine.views.projections import ProjectionRow, check_finite, stack
from coalmine.views.view import spreads_of


def round_scores(seen: ProjectionRow, schedule: Schedule, canaries: Canaries, round_number: int) -> Array:
    """The standardised scores of the canaries that took part in one round; none if nobody did."""
    row = stack([seen], kind="mean", rounds=[round_number], amplitude=1.0, pool=schedule.pool, dim=canaries.dim)
    check_finite(row)
    return _of_row(row, schedule, canaries)


def anytime_scores(projections: Projections, schedule: Schedule, canaries: Canaries) -> Array:
    """The standardised scores of all presentations of inserted canaries, in the order of their rounds."""
    if projections.kind not in ("mean", "residual"):  # after momentum the noise of a round is not new
        raise MismatchError(f"running scores need projections of kind 'mean' or 'residual'; these are {projections.kind!r}.")
    check_finite(projections)
    return _of_row(projections, schedule, canaries)


def _of_row(projections: Projections, schedule: Schedule, canaries: Canaries) -> Array:
    spreads = spreads_of(projections, schedule, canaries)
    found = []
    for row in np.argsort(projections.rounds, kind="stable"):
        present = schedule.taking_part(int(projections.rounds[row]))
        inner = projections.inner[row, present]
        found.append(np.divide(inner, spreads[row]) if spreads[row] > 0 else np.zeros(inner.size))
    return np.concatenate(found) if found else np.empty(0)
