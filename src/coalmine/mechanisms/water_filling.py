r"""Water-filling noise with Gaussian sampling weights (Zhang & Psounis 2024, Section 5).

A client draws weights w ~ N(1/D, I/(BD)) and sends G w; in every direction in which this has less variance than `floor` it
adds noise up to it. G is never squared to K x K: with (lambda, v) of the Gram matrix, u = Gᵀv / sqrt(BD lambda), only
eigenpairs above the water matter,

    N(mean, Sigma+) = mean + sigma z + sum over lambda_k > sigma² of sqrt(lambda_k - sigma²) xi_k u_k,

which is equal in law to "sample, then add". With `separate` both steps stay apart, as an implementation would have them.

Plain Gaussian noise of the same floor on full gradients (`FullGradient`) has never more noise and never a larger provable
epsilon, and needs no decomposition. This mechanism is here to be audited, not recommended.

Where we depart, and why: the paper's decomposition by blocks of coordinates keeps one weight per example for all blocks.
Then the covariance between blocks stays, and some direction may have no noise at all. `blocks` draws new weights for every
block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.contracts import Array, AtLeast, Description, Streams
from coalmine.mechanisms.examples import FullGradient
from coalmine.mechanisms.spectrum import Spectrum

MOST_FLOATS = 1 << 29  # of a client's gradients in memory: two gigabytes in float32


@dataclass(frozen=True)
class WaterFilling(FullGradient):
    """Gaussian weights, and noise that lifts every eigenvalue of the update's covariance to `floor`."""

    batch: int = 32
    blocks: int = 1
    separate: bool = False

    weights: ClassVar[Literal["equal", "batch", "gaussian"]] = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.whole("blocks", self.blocks, least=1)
        if not _validate.whole("batch", self.batch, least=1) <= self.examples:
            raise ValueError(f"batch={self.batch!r} is not allowed: it must be at most examples={self.examples}.")

    @property
    def _batch(self) -> int:
        return self.batch

    def without_noise(self) -> FullGradient:  # type: ignore[override]
        """The mean itself: the weights are noise as well."""
        return FullGradient(self.clip_norm, 0.0, self.examples, self.honest)

    def describe(self) -> Description:
        """At least the floor in every direction; weights and noise of the clients."""
        said = super().describe()
        if said.noise is None:
            return said
        return replace(said, noise=replace(said.noise, coordinates=AtLeast(said.noise.multiplier, self.blocks)))

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        if rows.size > MOST_FLOATS:
            raise ValueError(
                f"{len(rows)} gradients of {rows.shape[1]} coordinates do not fit into memory: {MOST_FLOATS:.2g} numbers of a "
                "client are the most. Take fewer examples of a client (data.cap), or a smaller model."
            )
        mean = self._mean(rows)
        noise = np.empty(rows.shape[1])
        ends = np.linspace(0, rows.shape[1], self.blocks + 1).astype(int)
        for block, (start, stop) in enumerate(pairwise(ends)):
            noise[start:stop] = self._noise(rows[:, start:stop], secret, block)
        return mean, noise

    def _noise(self, rows: NDArray[Any], secret: Streams, block: int) -> Array:
        """Everything random of one block: that of the weights, and the water."""
        spectrum = Spectrum(rows, 1 / (self.batch * self.examples), above=0.0 if self.separate else self.floor)
        z: Array = np.asarray(secret("noise", block).standard_normal(rows.shape[1]))
        if self.separate:
            own = secret("weights", block).standard_normal(len(rows)) / math.sqrt(self.batch * self.examples)
            return np.asarray(np.asarray(own @ rows, np.float64) + self.water(spectrum, z))
        above = spectrum.eigenvalues > self.floor
        strength = np.sqrt(spectrum.eigenvalues[above] - self.floor)
        drawn = secret("weights", block).standard_normal(strength.size)
        return math.sqrt(self.floor) * z + spectrum.apply(strength * drawn, above)

    def water(self, spectrum: Spectrum, z: Array) -> Array:
        """Noise of covariance (floor - Sigma)+, made of standard normal numbers z."""
        level = math.sqrt(self.floor)
        lifted = np.sqrt(np.maximum(self.floor - spectrum.eigenvalues, 0.0)) - level
        return np.asarray(level * z + spectrum.apply(lifted * spectrum.inner(z)))
