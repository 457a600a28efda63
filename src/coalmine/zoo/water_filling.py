"""Noise that protects single records under secure aggregation: wrong weights, wrong water, wrong floors. The right line stands
beside. They are audited in the setting `records`: see `coalmine.zoo.records`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.contracts import Array, Contribution, Public, Streams, Vector
from coalmine.mechanisms import WaterFilling
from coalmine.mechanisms.spectrum import Spectrum
from coalmine.zoo.bug import Replacing, bug


@bug("blocked-shared-weights", "records", "Zhang & Psounis 2024, Section 5.1.")
@dataclass(frozen=True)
class SharedWeightsInBlocks(Replacing, WaterFilling):
    """Blocks of coordinates are filled separately, and one weight per example serves all of them.

    The covariance between blocks stays: a direction across them has hardly any noise.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        weights = secret("weights").standard_normal(len(rows)) / math.sqrt(self.batch * self.examples)
        noise = np.asarray(weights @ rows, np.float64)  # right: new weights for every block
        middle = rows.shape[1] // 2
        for block, half in enumerate((slice(0, middle), slice(middle, rows.shape[1]))):
            spectrum = Spectrum(rows[:, half], 1 / (self.batch * self.examples))
            noise[half] += self.water(spectrum, secret("noise", block).standard_normal(noise[half].size))
        return self._mean(rows), noise


@bug("wf-on-full-gradient", "records", "Zhang & Psounis 2024, Table 1: no guarantee.")
@dataclass(frozen=True)
class WaterOnFullGradients(Replacing, WaterFilling):
    """The water is added to the plain mean of all gradients, whose weights are not random.

    Where the covariance is above the water nothing is added at all.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        spectrum = Spectrum(rows, 1 / (self.batch * self.examples))
        return self._mean(rows), self.water(
            spectrum, np.asarray(secret("noise").standard_normal(rows.shape[1]))
        )  # right: + G w


@bug("iid-weights", "records", "Zhang & Psounis 2024, Table 1: no guarantee.")
@dataclass(frozen=True)
class WaterOnBatches(Replacing, WaterFilling):
    """The water is added to the mean of a batch, whose weights are not Gaussian.

    Above the water a record shows or does not show: nothing blurs it.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        spectrum = Spectrum(rows, 1 / (self.batch * self.examples))
        batch = secret("batch").permutation(len(rows))[: self.batch]
        mean = np.asarray(rows[batch].sum(axis=0, dtype=np.float64) / self.batch)  # right: Gaussian weights
        water = self.water(spectrum, np.asarray(secret("noise").standard_normal(rows.shape[1])))
        return self._mean(rows), np.asarray(mean - self._mean(rows) + water)


@bug("floor-as-total", "records", "Zhang & Psounis 2024: sigma² is each user's.")
@dataclass(frozen=True)
class FloorAsTotal(Replacing, WaterFilling):
    """The floor of each user is taken for that of the sum, and divided by the number of users.

    The variance is too small by the number of users, as if each of them relied on the others twice.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        own = WaterFilling(
            self.clip_norm, self.floor / self.honest, self.examples, self.honest, self.batch
        )  # right: self.floor
        return own._update(rows, secret)


@bug("clip-after-weights", "records", "Zhang & Psounis 2024, Assumption 1.")
@dataclass(frozen=True)
class ClippedAfterWeights(Replacing, WaterFilling):
    """The weighted sum is clipped, and not each gradient before it is weighted.

    One long gradient is the whole update of its user.
    """

    def client(
        self, update: Vector, public: Public, examples: int = 1, own: NDArray[Any] | None = None, *, secret: Streams
    ) -> Contribution:
        """Weights first."""
        rows = np.asarray(update)[None] if own is None else own
        mean, noise = replace(self, floor=0.0)._update(rows, secret)  # right: clipped_rows(rows, self.clip_norm) before
        whole = mean + noise
        whole *= min(1.0, self.clip_norm / max(float(np.linalg.norm(whole)), 1e-300))
        water = math.sqrt(self.floor) * secret("water").standard_normal(whole.size)
        return Contribution(whole + water, without_noise=np.zeros(whole.size))


@bug("centred-covariance", "records", "Zhang & Psounis 2024, (16): a second moment.", innocent=True)
@dataclass(frozen=True)
class CentredCovariance(Replacing, WaterFilling):
    """The water is measured on the centred covariance, although the weights do not sum to one.

    More is added than needed along the mean gradient, and nothing leaks.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        _, noise = super()._update(rows - rows.mean(axis=0), secret)  # right: the rows themselves
        return self._mean(rows), noise


@bug("inconsistent-models", "records", "Pasquini et al. 2022.")
@dataclass(frozen=True)
class InconsistentModels(Replacing, WaterFilling):
    """The server sends users different models, and their gradients leave each other's span; no noise is added.

    A record with a coordinate to itself is seen in the sum (Pasquini et al. 2022).
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        return replace(self, floor=0.0)._noiseless(rows, secret)  # right: the same model for all, and noise

    def _noiseless(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        weights = secret("weights").standard_normal(len(rows)) / math.sqrt(self.batch * self.examples)
        return self._mean(rows), np.asarray(weights @ rows, np.float64)
