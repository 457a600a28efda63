"""How far one client moves all releases together, for any strategy C: max |C s| over its sets of rounds s.

With X = CᵀC, and a client whose updates may point anywhere, |C s|² is at most Σ |X_ij| over the rounds i, j of s; where no
entry of X is negative, equal updates in all rounds reach it.

    rounds of a client                 value                                                exact
    a list of sets (`Explicit`)        the largest of them                                  if X >= 0
    k rounds, b apart (`Separation`)   rows first: r_i = max_s Σ_j |X_ij| s_j, then of r    once; if X_ij = 0 for |i-j| >= b
    one in each period (`PerPeriod`)   the same with the periods' sets                      if only neighbours overlap

A sum over rounds that are b apart is maximised by dynamic programming; rows first is an upper bound, since each row may choose
a set of its own. In consecutive periods rounds can be neighbours, so that a root of k is wrong there for every strategy
but C = I.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coalmine.contracts import Array, Constraint, Explicit, PerPeriod

_ROWS = 512  # of X at once
_NOTHING = 1e-14  # of the largest entry: rounding


@dataclass(frozen=True)
class Sensitivity:
    """A sensitivity, and whether it is the value itself or an upper bound of it."""

    value: float
    exact: bool


def general(matrix: Array, constraint: Constraint) -> Sensitivity:
    """For any matrix: exact where that is known, else an upper bound."""
    gram = np.asarray(matrix.T @ matrix)
    positive = bool(gram.min(initial=0.0) >= -_NOTHING * max(gram.max(initial=0.0), 1.0))
    gram = np.abs(gram)
    if isinstance(constraint, Explicit):
        sets = constraint.presence.astype(np.float64)
        largest = float(np.einsum("tp,tp->p", sets, gram @ sets).max(initial=0.0))
        return Sensitivity(math.sqrt(largest), positive or constraint.most <= 2)
    if isinstance(constraint, PerPeriod):
        return per_period(gram, constraint.times, positive)
    times = min(constraint.times, -(-constraint.rounds // constraint.separation))
    return separated(gram, times, constraint.separation)


def distance(constraint: Constraint) -> int:
    """The smallest distance of two rounds of a client; of periods, their length, although neighbours may be closer."""
    if isinstance(constraint, PerPeriod):
        return max(constraint.rounds // constraint.times, 1)
    if not isinstance(constraint, Explicit):
        return constraint.separation
    found = constraint.rounds
    for column in constraint.presence.T:
        found = min(found, int(np.diff(np.flatnonzero(column)).min(initial=found)))
    return max(found, 1)


def separated(gram: Array, times: int, separation: int) -> Sensitivity:
    """At most `times` rounds, at least `separation` apart."""
    if times <= 1:
        return Sensitivity(math.sqrt(float(np.diag(gram).max(initial=0.0))), True)
    if bandwidth(gram) <= separation:
        return Sensitivity(math.sqrt(float(_most(np.diag(gram)[None], times, separation)[0])), True)
    rows = np.concatenate([_most(gram[first : first + _ROWS], times, separation) for first in range(0, gram.shape[0], _ROWS)])
    return Sensitivity(math.sqrt(float(_most(rows[None], times, separation)[0])), False)


def per_period(gram: Array, times: int, positive: bool) -> Sensitivity:
    """One round in each of `times` periods of nearly equal length."""
    rounds = gram.shape[0]
    borders = [rounds * number // times for number in range(times + 1)]
    places = [slice(first, end) for first, end in pairwise(borders)]
    own = np.diag(gram)
    if bandwidth(gram) <= 1 + min(place.stop - place.start for place in places):  # only neighbouring periods overlap
        best = own[places[0]]
        for before, here in pairwise(places):
            best = own[here] + (best[:, None] + 2 * gram[before, here]).max(axis=0)
        return Sensitivity(math.sqrt(float(best.max(initial=0.0))), positive or times <= 2)
    largest = np.stack([gram[:, place].max(axis=1) for place in places], axis=1)
    for number, place in enumerate(places):
        largest[place, number] = own[place]  # its own round, the only one in its period
    rows = largest.sum(axis=1)
    total = sum(float(rows[place].max()) for place in places)
    return Sensitivity(math.sqrt(total), times == 1)


def bandwidth(gram: Array) -> int:
    """The smallest distance from which on all entries are zero."""
    size = gram.shape[0]
    least = _NOTHING * float(gram.max(initial=0.0))
    rows, columns = np.nonzero(gram > least)
    return min(1 + int(np.abs(rows - columns).max(initial=0)), int(size))


def _most(weights: Array, times: int, separation: int) -> Array:
    """By row of weights >= 0, the largest sum over at most `times` places that are at least `separation` apart."""
    count, places = weights.shape
    columns = np.ascontiguousarray(weights.T)
    before = np.zeros((places + 1, count))  # with one place fewer: by how many rounds may be used
    for _ in range(times):
        after = np.empty_like(before)
        after[0] = 0.0
        for place in range(places):
            taken = columns[place] + before[max(place + 1 - separation, 0)]
            np.maximum(after[place], taken, out=after[place + 1])
        if np.array_equal(after, before):
            break
        before = after
    return np.asarray(before[-1])
