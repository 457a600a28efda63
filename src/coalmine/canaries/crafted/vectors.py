"""The updates of crafted canaries as directions: a matrix, since they are few and were designed for one round."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.contracts import Array, Vector
from coalmine.errors import NonFiniteError

MOST_CONDITION = 1e4  # of the Gram matrix: beyond, some canary is nearly a combination of others


class CraftedCanaries:
    """Unit directions of some updates; keeps the contract `coalmine.contracts.Canaries`.

    They are not random, so that nothing is known of a held-out one's law in advance (`null` is None), and there are no spare
    directions. `lengths` are those of the updates, `gram` holds the cosines of the directions with each other.

    >>> canaries = CraftedCanaries(np.array([[3.0, 4.0], [0.0, 2.0]]))
    >>> canaries.lengths.tolist(), canaries.gram[0].round(6).tolist()
    ([5.0, 2.0], [1.0, 0.8])

    Args:
        updates: (canaries, dim): one update in each row.
    """

    norm, spare, null, orthogonal, slack = 1.0, 0, None, False, None

    def __init__(self, updates: ArrayLike) -> None:
        rows: NDArray[Any] = np.atleast_2d(np.asarray(updates, np.float64))
        if rows.ndim != 2 or not rows.size:
            raise ValueError(f"updates of shape {rows.shape} are not allowed: one row for each canary is needed.")
        self.lengths: Array = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        if not (np.isfinite(self.lengths).all() and (self.lengths > 0).all()):
            raise NonFiniteError("an update of a crafted canary is zero or not finite; it has no direction.")
        self._units: NDArray[np.float32] = (rows / self.lengths[:, None]).astype(np.float32)

    @cached_property
    def gram(self) -> Array:
        """The cosines of the directions with each other; canaries² × parameters operations, and not all callers need it."""
        units = self._units.astype(np.float64)
        return np.asarray(np.einsum("ik,jk->ij", units, units))

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return int(self._units.shape[1])

    @property
    def count(self) -> int:
        """Number of canaries."""
        return len(self._units)

    def combine(self, indices: ArrayLike, weights: ArrayLike) -> Vector:
        """The weighted sum of directions."""
        places, scale = np.asarray(indices, np.int64), np.asarray(weights, np.float64)
        return np.asarray(np.einsum("i,ij->j", scale, self._units[places].astype(np.float64)), np.float32)

    def project(self, vector: Vector, *, spare: int = 0, group: slice | None = None) -> Array:
        """Inner products of all directions with a vector."""
        if spare:
            raise ValueError(f"spare={spare} is not allowed: crafted canaries have no unused directions.")
        part = slice(None) if group is None else group
        return np.asarray(np.einsum("ij,j->i", self._units[:, part].astype(np.float64), np.asarray(vector[part], np.float64)))

    def update(self, index: int) -> Vector:
        """One direction."""
        return np.array(self._units[index])

    def norms(self, groups: Sequence[slice], *, spare: int = 0) -> Array:
        """Lengths of the directions within each group."""
        return np.stack([np.linalg.norm(self._units[:, group].astype(np.float64), axis=1) for group in groups])

    def roots(self) -> tuple[Array, Array]:
        """(G^½, G^-½) of the Gram matrix G; refuses canaries that are nearly combinations of each other."""
        values, vectors = np.linalg.eigh(self.gram)
        if not values[0] * MOST_CONDITION > values[-1]:
            raise ValueError(
                f"these {self.count} crafted canaries are nearly dependent (smallest eigenvalue of their Gram matrix "
                f"{values[0]:.2g}): design fewer of them, or with more iterations."
            )
        return (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
