"""Inserted against held-out scores as two rows of counts: what a terminal, a notebook and a page draw.

Scores are in units of the null: 0 is its centre, 1 its spread. Where a maximum over rounds has neither, the held-out scores
have, or else the law of one round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from coalmine.contracts import Array
from coalmine.drawing import Picture
from coalmine.nulls import of_one_round
from coalmine.scores import Scores

BINS = 48
_NULL = 4.0  # standard deviations of the null that are always on the picture
_FARTHEST = 1e12  # beyond this only the side matters, and edges would no longer be told apart

Histogram = Mapping[str, tuple[float, ...]]  # edges, inserted, held_out; empty where nothing was counted


def count_scores(scores: Scores) -> dict[str, tuple[float, ...]]:
    """`edges` of equally wide bins that span all scores, and how many scores of each kind are in each bin.

    >>> counted = count_scores(Scores.of([3.0, 9.0], [-1.0, 0.0, 1.0]))
    >>> counted["edges"][0], counted["edges"][-1], len(counted["edges"])
    (-4.0, 9.0, 49)
    >>> sum(counted["inserted"]), sum(counted["held_out"])
    (2, 3)
    """
    value = _in_units_of_the_null(scores)
    edges = np.linspace(math.floor(min(value.min(), -_NULL)), math.ceil(max(value.max(), _NULL)), BINS + 1)
    inserted, held_out = (np.histogram(value[chosen], edges)[0] for chosen in (scores.inserted, ~scores.inserted))
    return {"edges": tuple(edges.tolist()), "inserted": tuple(inserted.tolist()), "held_out": tuple(held_out.tolist())}


def check_histogram(found: Histogram) -> None:
    """Whether what a file holds is a histogram, or empty; a ValueError says what it is not."""
    if not found:
        return
    if set(found) != {"edges", "inserted", "held_out"}:
        raise ValueError(f"histogram must have edges, inserted and held_out, found {', '.join(sorted(found))}")
    edges, *counts = found["edges"], found["inserted"], found["held_out"]
    if not all(math.isfinite(edge) for edge in edges) or not all(low < high for low, high in pairwise(edges)):
        raise ValueError("histogram.edges must be numbers that increase")
    for row in counts:
        if len(row) != len(edges) - 1 or not all(isinstance(count, int) and count >= 0 for count in row):
            raise ValueError("histogram must have one whole number of at least 0 between each two edges")


def picture(found: Histogram, *, normal: bool, mark: float | None = None) -> Picture:
    """The counts as rows to be drawn; where nothing was held out, the null law stands in for it if it is `normal`."""
    if not found:
        return Picture((), {})
    rows: dict[str, tuple[float, ...]] = {"inserted": found["inserted"]}
    if any(found["held_out"]):
        rows = {"held out": found["held_out"], **rows}
    elif normal:
        expected = sum(found["inserted"])  # as many scores as there are inserted ones
        below = [expected * math.erfc(-edge / math.sqrt(2)) / 2 for edge in found["edges"]]
        rows = {"null law": tuple(high - low for low, high in pairwise(below)), **rows}
    return Picture(found["edges"], rows, mark)


def _in_units_of_the_null(scores: Scores) -> Array:
    largest = float(np.abs(scores.value).max()) or 1.0  # so that squares of very large scores do not overflow
    center, spread = _unit(scores, largest)
    with np.errstate(over="ignore"):
        return np.clip((scores.value / largest - center) / max(spread, 1e-300), -_FARTHEST, _FARTHEST)


def _unit(scores: Scores, largest: float) -> tuple[float, float]:
    """Centre and spread of the null, as shares of the largest score."""
    held_out = scores.held_out_values / largest
    if scores.null is not None:
        try:
            return scores.null.center / largest, scores.null.spread / largest
        except ValueError:  # a maximum over rounds
            if held_out.size < 2:
                law = of_one_round(scores.null)
                return law.center / largest, law.spread / largest
    center = float(held_out.mean())
    for measured in (held_out, scores.value / largest):  # held-out scores that are all equal have no spread
        if measured.size > 1 and np.ptp(measured) > 0:
            return center, float(measured.std(ddof=1))
    return center, 1.0
