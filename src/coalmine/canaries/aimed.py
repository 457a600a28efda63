"""Canaries where the noise depends on the direction: an auditor who knows the covariance aims at its weak spots.

    aim            directions                                           finds
    least          eigenvectors of the least eigenvalues                the pair with the least noise
    top            eigenvectors of the largest ones                     noise that is only added below the water
    outside-span   directions in which nobody has anything              secure aggregation without noise

The covariance is a function of everybody's data. It is the auditor's, and goes to nobody else.

Directions are few and not random, so that nothing is known of the law of a held-out canary but what held-out canaries show:
the coin alone decides who was inserted. Views of random directions do not fit them: `coalmine.views.whitened` has others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from coalmine import _validate
from coalmine.canaries._pool import Pool
from coalmine.contracts import Array, IndexArray, LowRank, Vector

AIMS = ("least", "top", "outside-span")
MOST = 64  # directions that are kept as full vectors
_DENSE = 1500  # coordinates up to which the whole covariance is decomposed
_NOTHING = 1e-10  # of the largest eigenvalue


def aimed_directions(covariance: Array, count: int, aim: str = "least") -> Array:
    """`count` orthonormal directions as columns.

    >>> aimed_directions(np.diag([3.0, 1.0, 2.0]), 1, "least").ravel().tolist()
    [0.0, 1.0, 0.0]
    """
    _check(count, aim)
    values, vectors = np.linalg.eigh(covariance)
    if aim == "outside-span":
        _check_room(int((values <= _NOTHING * values[-1]).sum()), count)
    return np.asarray(vectors[:, -count:] if aim == "top" else vectors[:, :count])


def directions_of(covariance: LowRank, count: int, aim: str, rng: np.random.Generator) -> Array:
    """The same for floor · I + factors · factorsᵀ, without the whole matrix where there are many coordinates.

    Outside the factors all directions have the same, least, variance: there they are random. For "outside-span" the factors
    must be those of all gradients, whatever the floor is.
    """
    _check(count, aim)
    dim, rank = covariance.factors.shape
    if dim <= _DENSE or (aim == "least" and dim - rank < count):
        square = covariance.factors @ covariance.factors.T
        return aimed_directions(square if aim == "outside-span" else square + covariance.floor * np.eye(dim), count, aim)
    left, values, _ = np.linalg.svd(covariance.factors, full_matrices=False)
    left = left[:, values**2 > _NOTHING * float(values.max(initial=0.0)) ** 2]
    if aim == "top" and left.shape[1] >= count:
        return np.asarray(left[:, :count])
    _check_room(dim - left.shape[1], count)
    drawn = rng.standard_normal((dim, count))
    for _ in range(2):  # once more: what rounding left of the first time
        drawn -= left @ (left.T @ drawn)
    return np.asarray(np.linalg.qr(drawn)[0])


@dataclass(frozen=True, eq=False)
class Aim:
    """What the auditor knows before the first round, of one round at the first model; all of it depends on the data."""

    aim: str
    directions: Array = field(repr=False)  # orthonormal columns
    ground: Array = field(repr=False)  # eigenvalues of the noise that the weights make, falling, in squared units of the sum
    level: float  # of the water in the sum
    heights: Array = field(repr=False)  # variance of the sum along each direction
    epsilons: Array | None = field(default=None, repr=False)  # of every record, were there no noise; None: too many
    marks: tuple[tuple[str, float], ...] = ()  # epsilons to compare with, in words

    def places(self, count: int) -> IndexArray:
        """The direction of each of `count` canaries: in turn."""
        return np.asarray(np.arange(count) % self.directions.shape[1])


class AimedCanaries(Pool):
    """`count` canaries in the few directions of an `Aim`, in turn: canary i has direction i mod k."""

    def __init__(self, aim: Aim, count: int, *, secret_seed: int, dtype: str = "float32"):
        super().__init__(aim.directions.shape[0], count, secret_seed=secret_seed, dtype=dtype)
        self.aim = aim
        self.places = aim.places(count)

    spare = 0
    null = None

    def combine(self, indices: ArrayLike, weights: ArrayLike) -> Vector:
        """Weighted sum of canaries."""
        totals = self._totals(indices, weights)
        by_direction = np.bincount(self.places, weights=totals, minlength=self.aim.directions.shape[1])
        return np.asarray(self.aim.directions @ by_direction).astype(self._dtype, copy=False)

    def project(self, vector: Vector, *, spare: int = 0, group: slice | None = None) -> Array:
        """Inner products of all canaries with a vector."""
        array, _, group = self._checked(vector, spare, group)
        found = self.aim.directions[group].T @ array[group].astype(np.float64)
        return np.asarray(found[self.places])

    def norms(self, groups: Sequence[slice], *, spare: int = 0) -> Array:
        """Norms of the canaries limited to each group."""
        self._checked_spare(spare)
        checked = [self._checked_group(group) for group in groups]
        lengths = [np.linalg.norm(self.aim.directions[group], axis=0) for group in checked]
        return np.asarray(lengths).reshape(len(checked), -1)[:, self.places]


def _check(count: int, aim: str) -> None:
    _validate.one_of("aim", aim, AIMS)
    if not 1 <= _validate.whole("count", count, least=1) <= MOST:
        raise ValueError(f"count={count!r} is not allowed: at most {MOST} directions are kept as full vectors.")


def _check_room(there: int, count: int) -> None:
    if there < count:
        raise ValueError(f"only {there} directions are outside the span of all gradients, and {count} were asked for.")
