"""Directions for canaries where the noise depends on the direction: an auditor who knows the covariance aims at its weak spots.

    aim            directions                                           finds
    least          eigenvectors of the least eigenvalues                the pair with the least noise
    top            eigenvectors of the largest ones                     noise that is only added below the water
    outside-span   directions in which nobody has anything              secure aggregation without noise

The covariance is a function of everybody's data. It is the auditor's, and goes to nobody else.
"""

from __future__ import annotations

import numpy as np

from coalmine import _validate
from coalmine.contracts import Array

AIMS = ("least", "top", "outside-span")
MOST = 64  # directions that are kept as full vectors
_NOTHING = 1e-10  # of the largest eigenvalue


def aimed_directions(covariance: Array, count: int, aim: str = "least") -> Array:
    """`count` orthonormal directions as columns.

    >>> aimed_directions(np.diag([3.0, 1.0, 2.0]), 1, "least").ravel().tolist()
    [0.0, 1.0, 0.0]
    """
    _validate.one_of("aim", aim, AIMS)
    if not 1 <= _validate.whole("count", count, least=1) <= MOST:
        raise ValueError(f"count={count!r} is not allowed: at most {MOST} directions are kept as full vectors.")
    values, vectors = np.linalg.eigh(covariance)
    if aim == "outside-span":
        inside = int((values <= _NOTHING * values[-1]).sum())
        if inside < count:
            raise ValueError(f"only {inside} directions are outside the span of all gradients, and {count} were asked for.")
    return np.asarray(vectors[:, -count:] if aim == "top" else vectors[:, :count])
