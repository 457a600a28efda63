"""Where a likelihood ratio looks, if the others of a round are not known (appendix A of the CANIFE paper).

    paper               here              meaning
    (k Sigma)^-1 g      `along`           the others' sum as a Gaussian with the pool's covariance; here with the noise

With noise the direction is (noise² I + K/m U'U)^-1 g for the m clipped updates U of mock clients and K clients in a round: a
score along it has less of what clients have in common. It is fixed by the pool before any draw, so that bounds stay valid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.contracts import Array


def along(direction: NDArray[Any], rows: NDArray[Any], *, noise: float, cohort: float) -> Array:
    """The unit vector that the likelihood ratio of a canary with this direction scores along.

    `rows` are clipped updates of mock clients in clip norms, `noise` is the multiplier, `cohort` the clients of a round.
    Nothing larger than rows × rows is inverted (Woodbury).

    >>> along(np.array([0.6, 0.8]), np.array([[1.0, 0.0]]), noise=0.1, cohort=100.0).round(3).tolist()    # away from the client
    [0.0, 1.0]
    """
    unit, seen = np.asarray(direction, np.float64), np.asarray(rows, np.float64)
    inner = np.eye(len(seen)) * noise**2 * len(seen) / cohort + seen @ seen.T
    found = unit - seen.T @ np.linalg.solve(inner, seen @ unit)
    return np.asarray(found / np.linalg.norm(found))
