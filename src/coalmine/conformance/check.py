"""What a check is: the test of one sentence of a description, fed with one round after the other.

A check has no state of its own: what it must remember is a dictionary of arrays, which is saved in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from coalmine.conformance.laws import Tail
from coalmine.contracts import Array, Description, Finding, IndexArray, NotTested, Observed, Participation

BLOCK = 1 << 15  # coordinates that are handled at a time
_SHORT = 1 << 22  # coordinates of a sum that is kept: 32 MB
FAMILY = 17  # tests of the whole family at most, for what would have been noticed
Memory = dict[str, NDArray[Any]]  # what a check remembers, as arrays that can be saved


@dataclass(frozen=True, eq=False)
class Subject:
    """What is tested: a description, who was to take part, and the sizes of things."""

    description: Description
    dim: int
    groups: Mapping[str, slice] = field(default_factory=dict)  # layers, or their tensors
    participation: Participation | None = None  # as the accountant was told
    population: int = 0
    canaries: Participation | None = None  # how canaries take part, as the accountant was told
    pool: int = 0
    rounds: int = 0
    seed: int = 0  # the public one, which anybody may guess
    kept: float = 1.0  # clip norms that are left of a canary
    level: float = 0.001
    confidence: float = 0.95


@dataclass(frozen=True, eq=False)
class Moments:
    """Of the noise of a round: by layer, the number of coordinates and the sums of powers; then of all of them."""

    sizes: Array
    sums: Array  # (4, layers): first to fourth powers

    @property
    def count(self) -> float:
        """Coordinates."""
        return float(self.sizes.sum())

    @property
    def totals(self) -> Array:
        """Sums of powers over everything."""
        return np.asarray(self.sums.sum(axis=1))

    @property
    def spread(self) -> float:
        """Root mean square."""
        return float(np.sqrt(self.totals[1] / max(self.count, 1.0)))


@dataclass(frozen=True, eq=False)
class RoundNoise:
    """The noise of a round, as the description makes it standard normal: whitened, in standard deviations.

    `at_least`: other things may be in it, which can only add to its variance. `rounding` is what the arithmetic adds.
    """

    values: Array
    moments: Moments
    at_least: bool = False
    rounding: float = 0.0

    @property
    def spread(self) -> float:
        """Root mean square: 1 under the description."""
        return self.moments.spread

    @property
    def silent(self) -> bool:
        """Whether there is nothing but rounding, of which no shape can be tested."""
        return not self.spread > max(100 * self.rounding, 1e-9)


@dataclass(frozen=True, eq=False)
class Summed:
    """A weighted sum of vectors that is made where it is read, block by block: as a vector it would be two more of the model.

    A short one is made once, since several checks read it.

    >>> Summed(((2.0, np.arange(4)), (-1.0, np.ones(4))))[1:3].tolist()
    [1.0, 3.0]
    """

    terms: tuple[tuple[float, Array], ...]

    @property
    def size(self) -> int:
        """Coordinates."""
        return int(self.terms[0][1].size)

    def __getitem__(self, where: slice | IndexArray) -> Array:
        return self._whole[where] if self.size <= _SHORT else self._made(where)

    @cached_property
    def _whole(self) -> Array:
        made = self._made(slice(None))
        made.flags.writeable = False  # what one check reads, the next one reads too
        return made

    def _made(self, where: slice | IndexArray) -> Array:
        (weight, first), *others = self.terms
        made = np.multiply(first[where], weight, dtype=np.float64)
        for weight, vector in others:
            made += np.multiply(vector[where], weight, dtype=np.float64)
        return made

    def blocks(self, within: slice | None = None) -> Iterator[tuple[slice, Array]]:
        """Piece by piece, of everything or of some neighbours, so that all steps happen in the cache."""
        first, end = (0, self.size) if within is None else (within.start, within.stop)
        for start in range(first, end, BLOCK):
            block = slice(start, min(start + BLOCK, end))
            yield block, self[block]


@dataclass(frozen=True, eq=False)
class Round:
    """A round, prepared once for all checks. Vectors are in clip norms; None: not known, or hidden by rounding."""

    seen: Observed
    clip_norm: float
    denominator: float  # by which the description divides
    noise: RoundNoise | None = None
    total: Summed | None = None  # the sum of all contributions
    part: Array | None = None  # the canaries' part of it, over `scale`: as it was seen, so that it is not copied
    scale: float = 1.0
    bare: Summed | None = None  # noise that the mechanism adds to the clients alone, as `noise.values`
    again: Summed | None = None  # noise that it adds to the same sum under another secret
    released: Array | None = None  # noise that is correlated over rounds, before it was whitened

    @property
    def clients(self) -> Summed | None:
        """The clients' part of the sum of all contributions."""
        return None if self.total is None else Summed(self.total.terms[:1])

    @property
    def apart(self) -> Summed | None:
        """What was summed as far as it is known apart from the noise: without canaries that were read off the release.

        The noise along these is counted with them, and missing in `noise`, which would seem to keep off the sum of all.
        """
        return self.clients if self.seen.canaries.fitted else self.total

    @property
    def shaped(self) -> RoundNoise | None:
        """Noise whose law is known in full; not what is only known to be at least so large, nor silence."""
        noise = self.noise
        return None if noise is None or noise.at_least or noise.silent else noise


class Check(Protocol):
    """The test of one sentence."""

    key: ClassVar[str]  # of `coalmine.contracts.finding_sentences.FINDINGS`

    def applies(self, subject: Subject) -> str | None:
        """None, or the code of the reason why there is nothing to test."""

    def init(self, subject: Subject) -> Memory:
        """What is remembered before the first round."""

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round; what is remembered changes in place."""

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """What was found; `shared` is what all checks remember together (`coalmine.conformance.totals`)."""


def needs_noise(subject: Subject) -> str | None:
    """Why the noise of a description cannot be tested."""
    if subject.description.noise is None:
        return "not-described"
    return None if subject.description.has_noise else "no-noise"


def found(
    key: str,
    tail: Tail,
    *,
    claimed: float | None = None,
    measured: float | None = None,
    interval: tuple[float | None, float | None] = (None, None),
    detectable: float | None = None,
    **details: Any,
) -> Finding:
    """A finding, whose side is that of the tail until the whole family is judged."""
    low, high = interval
    p_value = float(min(max(tail.p_value, 0.0), 1.0))
    return Finding(
        key=key,
        claimed=claimed,
        measured=measured,
        low=low,
        high=high,
        p_value=p_value,
        side=tail.side,
        where=tail.where,
        detectable=detectable,
        details=details,
    )
