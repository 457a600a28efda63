"""Canaries that are independent and uniform on the unit sphere (Andrew et al. 2024, "One-shot empirical privacy estimation").

    paper         here                  meaning
    k             count                 pool of canaries, inserted and held out
    c_i           update(i)             Algorithm 1, line 1: g / |g| with g ~ N(0, I_d)
    <c_i, rho>    project(rho)          Algorithm 1, line 4, before the division by |rho|

A canary that took no part in a vector v has the exact law <c, v> / |v| ~ `CosineNull(d)` (Proposition 3.1).

Where we depart, and why:

* The papers hold k x d numbers. Here the canaries are regenerated in blocks from counter-based streams whenever they are
  needed: memory for one block and one vector, time O(k d) for every call. That is the price of the exact null; where it is
  too high, `TransformCanaries` costs the same as one of these canaries.
* Normals are drawn in float32 and used in float64. Their grain (about 1e-7) is far below what any test on k scores can see.
* Sums run coordinate by coordinate in a fixed order, not through BLAS, so that the number of threads cannot change a bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.canaries._pool import Pool
from coalmine.contracts import Array, Vector
from coalmine.nulls import CosineNull

_BLOCK = 1 << 20  # normals in a block of canaries, unless one canary has more
_PIECE = 1 << 14  # coordinates handled at once in float64


class SphereCanaries(Pool):
    """`count` independent canaries, uniform on the unit sphere of R^dim.

    >>> canaries = SphereCanaries(1000, 20, secret_seed=1)
    >>> canaries.null
    CosineNull(dim=1000)
    >>> total = canaries.combine([3, 4], [1.0, 1.0])
    >>> (canaries.project(total) > 0.5).nonzero()[0].tolist()
    [3, 4]

    Args:
        dim: Dimensions.
        count: Canaries.
        secret_seed: From which they are drawn; as secret as the canaries.
        dtype: Of the vectors.
    """

    slack = 0.0

    spare = 0  # every further canary would cost as much as the others

    @property
    def null(self) -> CosineNull:
        """The cosine of a random direction with any vector, exactly."""
        return CosineNull(self.dim)

    def combine(self, indices: ArrayLike, weights: ArrayLike) -> Vector:
        """Weighted sum of canaries, accumulated in float64; only blocks with a weight are made."""
        totals = self._totals(indices, weights)
        result = np.zeros(self.dim)
        for members, block in self._blocks(totals != 0):
            scale = totals[members] / np.sqrt(_squares(block))
            for piece in self._pieces():
                result[piece] += np.einsum("i,ij->j", scale, block[:, piece].astype(np.float64))
        return result.astype(self._dtype, copy=False)

    def project(self, vector: Vector, *, spare: int = 0, group: slice | None = None) -> Array:
        """Inner products of all canaries with a vector: one pass over all blocks, O(count · dim)."""
        array, _, group = self._checked(vector, spare, group)
        result = np.empty(self.count)
        for members, block in self._blocks():
            products = np.zeros(len(block))
            for piece in self._pieces(group):
                products += np.einsum("ij,j->i", block[:, piece].astype(np.float64), array[piece].astype(np.float64))
            result[members] = products / np.sqrt(_squares(block))
        return result

    def norms(self, groups: Sequence[slice], *, spare: int = 0) -> Array:
        """Norms of the canaries limited to each group: one pass over all blocks, whatever the number of groups."""
        self._checked_spare(spare)
        checked = [self._checked_group(group) for group in groups]
        result = np.empty((len(checked), self.count))
        for members, block in self._blocks():
            whole = _squares(block)
            for row, group in enumerate(checked):
                result[row, members] = np.sqrt(_squares(block[:, group]) / whole)
        return result

    def _blocks(self, wanted: NDArray[np.bool_] | None = None) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """The canaries before normalisation, block by block, as (which, one row each); only up to the last one wanted."""
        size = max(1, _BLOCK // self.dim)
        for number, start in enumerate(range(0, self.count, size)):
            stop = min(start + size, self.count)
            if wanted is not None:
                places = np.flatnonzero(wanted[start:stop])
                if places.size == 0:
                    continue
                stop = start + int(places[-1]) + 1
            rng = self._secret.stream(number)
            yield slice(start, stop), rng.standard_normal((stop - start, self.dim), dtype=np.float32)

    def _pieces(self, group: slice | None = None) -> Iterator[slice]:
        start, stop = (group.start, group.stop) if group else (0, self.dim)
        for low in range(start, stop, _PIECE):
            yield slice(low, min(low + _PIECE, stop))


def _squares(block: NDArray[np.float32]) -> Array:
    """The squared norm of every row, in float64."""
    total = np.zeros(len(block))
    for low in range(0, block.shape[1], _PIECE):
        part = block[:, low : low + _PIECE].astype(np.float64)
        total += np.einsum("ij,ij->i", part, part)
    return total
