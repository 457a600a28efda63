"""What all canary families share: a pool of unit directions behind a secret seed, and the checks of what comes in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, Null, Vector
from coalmine.errors import NonFiniteError

DTYPES = ("float32", "float64")


class Secret:
    """The seed of the canaries, which no printing, logging or error message shows: whoever has it can look for them."""

    __slots__ = ("_seed",)

    def __init__(self, seed: Any):
        self._seed = _validate.secret("secret_seed", seed)

    def stream(self, *names: str | int) -> np.random.Generator:
        """The random numbers of the canaries called `names`; the same whoever asks first."""
        return stream(self._seed, "canary", *names)

    def __repr__(self) -> str:
        return "Secret(not shown)"


class Pool(ABC):
    """`count` secret unit directions of R^dim; see `coalmine.contracts.Canaries`.

    `dtype` is the precision of the vectors that come out (and, for transforms, of the arithmetic). It changes a canary by
    rounding only. Inner products come out in float64.
    """

    norm = 1.0
    orthogonal = False
    slack: float | None = None

    def __init__(self, dim: int, count: int, *, secret_seed: int, dtype: str = "float32"):
        self._dim = _validate.whole("dim", dim, least=2)
        self._count = _validate.whole("count", count, least=1)
        self._dtype = np.dtype(_validate.one_of("dtype", dtype, DTYPES))
        self._secret = Secret(secret_seed)

    @property
    def dim(self) -> int:
        """d, the number of parameters."""
        return self._dim

    @property
    def count(self) -> int:
        """k, the size of the pool: inserted and held-out canaries together."""
        return self._count

    @property
    @abstractmethod
    def spare(self) -> int:
        """How many further directions, never to be inserted, `project` can score at no extra cost."""

    @property
    @abstractmethod
    def null(self) -> Null | None:
        """The exact law of <canary, v> / |v| for a canary that took no part in v; None if only the spare ones tell."""

    def update(self, index: int) -> Vector:
        """One canary as a full vector."""
        return self.combine([index], [1.0])

    @abstractmethod
    def combine(self, indices: ArrayLike, weights: ArrayLike) -> Vector:
        """Weighted sum of canaries."""

    @abstractmethod
    def project(self, vector: Vector, *, spare: int = 0, group: slice | None = None) -> Array:
        """Inner products of all canaries with a vector, in float64."""

    @abstractmethod
    def norms(self, groups: Sequence[slice], *, spare: int = 0) -> Array:
        """Norms of the canaries limited to groups of coordinates."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim}, count={self.count}, dtype={self._dtype.name!r}, secret_seed=not shown)"

    def _totals(self, indices: ArrayLike, weights: ArrayLike) -> Array:
        """The total weight of every canary of the pool, so that neither order nor repetition matters."""
        which, weight = np.asarray(indices), np.asarray(weights, dtype=np.float64)
        if which.size == 0:
            which = which.astype(np.int64)
        if which.ndim != 1 or which.shape != weight.shape or not np.issubdtype(which.dtype, np.integer):
            raise ValueError(
                "indices and weights must be two equally long columns, whole numbers and numbers; "
                f"got shapes {which.shape} and {weight.shape}, indices of type {which.dtype}."
            )
        if which.size and not (which.min() >= 0 and which.max() < self.count):
            raise ValueError(f"indices must lie between 0 and {self.count - 1}; got {which.min()} to {which.max()}.")
        if not np.isfinite(weight).all():
            raise NonFiniteError(f"the weight of canary {which[~np.isfinite(weight)][0]} is NaN or infinite.")
        return np.bincount(which, weights=weight, minlength=self.count).astype(np.float64, copy=False)

    def _checked(self, vector: Vector, spare: int, group: slice | None) -> tuple[Vector, int, slice]:
        """The vector if it is finite and of dimension d, the number of spare directions, the coordinates to look at."""
        array = np.asarray(vector)
        if array.shape != (self.dim,) or not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"vector must hold {self.dim} floats in one row; got shape {array.shape}, type {array.dtype}.")
        if not (np.isfinite(array.min()) and np.isfinite(array.max())):
            bad = np.flatnonzero(~np.isfinite(array))
            raise NonFiniteError(
                f"the vector has {bad.size} NaN or infinite entries, the first at coordinate {bad[0]}. "
                "Canaries cannot be looked for in it: find the update or the release that was not finite."
            )
        return array, self._checked_spare(spare), slice(0, self.dim) if group is None else self._checked_group(group)

    def _checked_spare(self, spare: int) -> int:
        wanted = _validate.whole("spare", spare)
        if not wanted <= self.spare:
            raise ValueError(f"spare={wanted} is more than the {self.spare} unused directions of {self!r}.")
        return wanted

    def _checked_group(self, group: slice) -> slice:
        return _validate.span("group", group, self.dim)
