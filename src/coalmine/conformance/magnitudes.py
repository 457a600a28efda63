"""|z| without its sign, as a standard normal of its own: Φ⁻¹(2 Φ(|z|) − 1).

Numbers that come back with other signs do not correlate, yet they are the same noise. Under the description these are as
independent as z is, with the same law, so that every test of correlation holds for them too. Of a large model they are looked
at in two parts, its beginning and its middle.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from coalmine.contracts import Array

PART = 1 << 16  # coordinates of each of the two parts
_SURE = 5.0  # standard errors by which the strength of a round must differ from what is claimed before it is measured
_SMALLEST = 1e-16  # of 1 − P(|Z| > |z|)


def count_of(coordinates: int) -> int:
    """How many are looked at."""
    return min(coordinates, 2 * PART)


def of_round(values: Array, spread: float) -> Array:
    """Those of a round. Dividing by the measured strength of few coordinates would make them depend on each other."""
    if abs(spread - 1) * math.sqrt(2 * values.size) < _SURE:
        spread = 1.0
    middle = values.size // 2
    some = values if values.size <= 2 * PART else np.concatenate([values[:PART], values[middle : middle + PART]])
    return normal_scores(some / spread)


def normal_scores(values: Array) -> Array:
    """Standard normals of the magnitudes of standard normals.

    >>> (normal_scores(np.array([-0.6744897501960817, 0.6744897501960817, 1.0])).round(4) + 0.0).tolist()
    [0.0, 0.0, 0.4752]
    """
    beyond = 2 * ndtr(-np.abs(np.asarray(values, dtype=np.float64)))
    return np.asarray(-ndtri(np.clip(beyond, 1e-300, 1 - _SMALLEST)))
