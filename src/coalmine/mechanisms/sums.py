"""Sums that come out the same whatever the order: fixed point in whole numbers, as under secure aggregation.

Every contribution is rounded to multiples of 2^-40 clip norms and added in 64 bits. The rounding is far below the noise and
below the grain of float32 updates; a sum of floats would depend on which client came first, and on the number of workers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate, renamed
from coalmine.contracts import Array, Contribution, Vector
from coalmine.errors import NonFiniteError

GRAIN = 2.0**-40  # of a clip norm
_BLOCK = 1 << 14
_LARGEST = 2.0**22  # clip norms in one coordinate of one sum: 2^62 grains
_SMALL = 2.0**10  # clip norms in one coordinate: 2^50 grains, which the quick way can round
_SHIFT = 1.5 * 2.0**52  # added to a small number it leaves the nearest whole number, ties to even, in the lowest bits
_SHIFT_BITS = np.float64(_SHIFT).view(np.int64)


@renamed.accepting(**renamed.OF_MECHANISMS)
class FixedPointSum:
    """The sum of contributions, how many they are, and how many of them passed unclipped."""

    def __init__(self, dim: int, clip_norm: float):
        self.clip_norm = _validate.clip_norm(clip_norm)
        self._unit = GRAIN * self.clip_norm
        self._total = np.zeros(dim, dtype=np.int64)
        self._without_noise: NDArray[np.int64] | None = None  # where clients add noise, what they would have sent without
        self.count = 0
        self.unclipped = 0

    @classmethod
    def of(cls, total: NDArray[np.int64], clip_norm: float, count: int, unclipped: int) -> FixedPointSum:
        """A sum that travelled: its grains, and what was counted."""
        found = cls(0, clip_norm)
        found._total, found.count, found.unclipped = total.astype(np.int64), count, unclipped
        return found

    def copy(self) -> FixedPointSum:
        """The same sum, to go on with on its own."""
        made = FixedPointSum.of(self._total.copy(), self.clip_norm, self.count, self.unclipped)
        made._without_noise = None if self._without_noise is None else self._without_noise.copy()
        return made

    def add(self, contribution: Contribution) -> None:
        """One more client or canary."""
        noise_free = contribution.without_noise
        self.add_vector(contribution.vector, count=1, unclipped=int(contribution.unclipped), without_noise=noise_free)

    def add_vector(self, vector: Vector, *, count: int, unclipped: int, without_noise: Vector | None = None) -> None:
        """What `count` clients or canaries add together; and what it would be without the noise that they added, if any."""
        if without_noise is not None or self._without_noise is not None:
            if self._without_noise is None:
                self._without_noise = self._total.copy()
            self._add(self._without_noise, vector if without_noise is None else without_noise)
        self._add(self._total, vector)
        self.count += count
        self.unclipped += unclipped

    def _add(self, total: NDArray[np.int64], vector: Vector) -> None:
        largest = max(-float(vector.min()), float(vector.max())) if vector.size else 0.0
        if not largest <= _LARGEST / GRAIN * self._unit:
            what = "is NaN or infinite" if not np.isfinite(largest) else f"is beyond {_LARGEST:.3g} clip norms"
            raise NonFiniteError(f"a contribution {what} in some coordinate; it is not added.")
        whole = _small_grains if largest <= _SMALL / GRAIN * self._unit else _grains
        room = np.empty(min(_BLOCK, vector.size))
        for start in range(0, vector.size, _BLOCK):  # block by block, so that all steps happen in the cache
            part = room[: min(_BLOCK, vector.size - start)]
            np.multiply(vector[start : start + _BLOCK], 1 / self._unit, out=part)
            total[start : start + _BLOCK] += whole(part)

    def merge(self, other: FixedPointSum) -> None:
        """All that another sum of the same round holds."""
        if self._without_noise is not None or other._without_noise is not None:
            mine, theirs = (each._total if each._without_noise is None else each._without_noise for each in (self, other))
            self._without_noise = mine + theirs
        self._total += other._total
        self.count += other.count
        self.unclipped += other.unclipped

    def vector(self) -> Array:
        """The sum, in float64."""
        return self._as_floats(self._total)

    def without_noise(self) -> Array:
        """The sum without the noise that clients added."""
        return self._as_floats(self._total if self._without_noise is None else self._without_noise)

    def noise(self) -> Array:
        """The noise that clients added, all together."""
        return self._as_floats(np.zeros_like(self._total) if self._without_noise is None else self._total - self._without_noise)

    def _as_floats(self, grains: NDArray[np.int64]) -> Array:
        made = grains.astype(np.float64)
        made *= self._unit
        return made

    def total(self) -> NDArray[np.int64]:
        """The sum in grains, as secure aggregation would deliver it."""
        return self._total


def _grains(values: Array) -> NDArray[np.int64]:
    return np.rint(values, out=values).astype(np.int64)


def _small_grains(values: Array) -> NDArray[np.int64]:
    """The same for numbers below 2^51, in place and in half the time: the conversion is a reading of bits."""
    values += _SHIFT
    bits = values.view(np.int64)
    bits -= _SHIFT_BITS
    return bits
