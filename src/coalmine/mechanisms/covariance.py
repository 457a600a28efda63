r"""The covariance of a round's sum where it depends on the data: what a description and the gradients say.

A client whose examples have Gaussian weights and who fills up to `floor` sends noise of covariance

    Sigma+ = floor I + sum over lambda_k > floor of (lambda_k - floor) u_k u_kᵀ,      (lambda_k, u_k) of GᵀG/(BD),

which is a `LowRank`; that of a sum of clients is the sum of theirs. It is computed from the DESCRIPTION, by the auditor: code
with a bug has another one, and that is what an audit finds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.contracts import Array, AtLeast, ByClients, Description, LowRank
from coalmine.mechanisms.examples import clipped_rows
from coalmine.mechanisms.spectrum import Spectrum

MOST_NUMBERS = 1 << 26  # of the factors of one round: half a gigabyte
_LEAST = 1e-10  # of the largest eigenvalue: below, a direction counts as empty, and its noise as this


@dataclass(frozen=True)
class ExampleNoise:
    """What a description says of the noise of one client whose examples are protected; in units of what a client sends."""

    clip_norm: float  # of an example
    scale: float  # of the second moment: 1/(BD) with Gaussian weights, 0 where weights are not random
    floor: float
    share: float  # what one example adds to the mean
    blocks: int = 1

    @staticmethod
    def of(description: Description) -> ExampleNoise:
        """Refuses what has no examples, or noise of the server."""
        examples, noise, share = description.examples, description.noise, description.clip.norm
        if examples is None or not isinstance(share, float) or noise is None or not isinstance(noise.added_by, ByClients):
            raise ValueError(
                "aimed canaries are for mechanisms that protect single examples with noise of the clients: "
                'mechanism.kind = "water-filling", "full-gradient" or "batch-gradient".'
            )
        gaussian = examples.weights == "gaussian"
        size = examples.batch if examples.weights == "batch" else examples.count
        floor = (noise.accounted * share) ** 2 / noise.added_by.honest
        blocks = noise.coordinates.blocks if isinstance(noise.coordinates, AtLeast) else 1
        return ExampleNoise(share * size, 1 / (examples.batch * examples.count) if gaussian else 0.0, floor, share, blocks)

    @property
    def lift(self) -> float:
        """What one example of the clip norm adds to the variance in a direction that its client does not use otherwise."""
        return max(self.scale * self.clip_norm**2 - self.floor, 0.0)

    def covariance(self, rows: NDArray[Any]) -> LowRank:
        """Of one client with these gradients, a row for every example."""
        if not self.scale or not len(rows):
            return LowRank(self.floor, np.zeros((rows.shape[1], 0)))
        kept, _ = clipped_rows(rows, self.clip_norm)
        factors = []
        for start, stop in pairwise(np.linspace(0, rows.shape[1], self.blocks + 1).astype(int)):
            spectrum = Spectrum(kept[:, start:stop], self.scale, above=self.floor)
            above = spectrum.eigenvalues > self.floor
            inside = spectrum.directions(above) * np.sqrt(spectrum.eigenvalues[above] - self.floor)
            factors.append(np.pad(inside, ((start, rows.shape[1] - stop), (0, 0))))
        return LowRank(self.floor, np.hstack(factors))


def added(parts: Sequence[LowRank], dim: int) -> LowRank:
    """The covariance of a sum of independent parts; where it has more factors than coordinates, a square root of it."""
    floor = math.fsum(part.floor for part in parts)
    rank = sum(part.factors.shape[1] for part in parts)
    if dim * min(rank, dim) > MOST_NUMBERS:
        raise ValueError(
            f"the covariance of a round has {rank} factors of {dim} coordinates, and {MOST_NUMBERS:.1g} numbers are the most. "
            "Take a smaller model, fewer clients in a round, or a higher floor."
        )
    if rank <= dim:
        return LowRank(floor, np.hstack([np.zeros((dim, 0)), *(part.factors for part in parts)]))
    square = np.zeros((dim, dim))
    for part in parts:
        square += part.factors @ part.factors.T
    values, vectors = np.linalg.eigh(square)
    return LowRank(floor, vectors * np.sqrt(np.maximum(values, 0.0)))


@dataclass(frozen=True, eq=False)
class Whitening:
    """The inverse of a `LowRank` covariance: S⁻¹ v = (v - U diag(s²/(floor + s²)) Uᵀ v)/floor with F = U s Vᵀ."""

    covariance: LowRank

    @cached_property
    def _pairs(self) -> tuple[Array, Array]:
        """(s², U) of the factors."""
        factors = self.covariance.factors
        if not factors.shape[1]:
            return np.zeros(0), factors
        left, values, _ = np.linalg.svd(factors, full_matrices=False)
        kept = values > 0
        return values[kept] ** 2, left[:, kept]

    @cached_property
    def floor(self) -> float:
        """The least noise; of a covariance that is singular, what counts as nothing."""
        largest = float(self._pairs[0].max(initial=0.0))
        return max(self.covariance.floor, _LEAST * largest, np.finfo(np.float64).tiny)

    def inverse(self, vectors: Array) -> Array:
        """S⁻¹ times vectors, one or columns."""
        squares, left = self._pairs
        weights = squares / (self.floor + squares)
        inner = left.T @ vectors
        return np.asarray((vectors - left @ (weights * inner.T).T) / self.floor)

    def variances(self, directions: Array) -> Array:
        """c' S c for unit directions as columns."""
        return np.asarray(self.covariance.floor + np.square(self.covariance.factors.T @ directions).sum(axis=0))
