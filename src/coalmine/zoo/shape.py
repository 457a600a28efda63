"""Noise of the right strength and the wrong shape or structure: canaries see none of it. The right line stands beside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coalmine.contracts import Array, Public, Release, State, Streams, Total
from coalmine.mechanisms import Gaussian
from coalmine.zoo.bug import Replacing, bug


@bug(
    "every-second-coordinate",
    "once",
    "A stride in a vectorised loop: half of the noise is drawn, and spread over half of the coordinates.",
    canaries=False,
    sentence="noise-by-coordinate",
)
@dataclass(frozen=True)
class NoiseOnEvenCoordinates(Replacing, Gaussian):
    """Odd coordinates get no noise, even ones twice the variance.

    A random direction sees the same noise as ever; whoever looks at odd coordinates sees the exact sum.
    """

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Noise of variance 1 on average."""
        # right: return super().noise(dim, public, secret)
        noise = super().noise(dim, public, secret) * np.sqrt(2)
        noise[1::2] = 0.0
        return np.asarray(noise)


@bug(
    "tiled-noise",
    "once",
    "A block of random numbers that is broadcast over the parameters, to save time.",
    canaries=False,
    sentence="noise-independent",
)
@dataclass(frozen=True)
class TiledNoise(Replacing, Gaussian):
    """1,024 noise numbers are repeated over all coordinates.

    Differences of coordinates that are 1,024 apart have no noise at all, and no random direction is such a difference.
    """

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """One tile, repeated."""
        # right: return super().noise(dim, public, secret)
        return np.resize(super().noise(1024, public, secret), dim)


@bug(
    "truncated-noise",
    "once",
    "Noise that is clipped as outliers are, or drawn by a truncated normal.",
    canaries=False,
    sentence="noise-gaussian",
)
@dataclass(frozen=True)
class TruncatedNoise(Replacing, Gaussian):
    """Noise beyond two standard deviations is drawn again, so that it has bounded support.

    A sum at a distance of more than four standard deviations is impossible, and tells two data sets apart for certain.
    """

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Standard normal noise, cut at two."""
        noise, again = super().noise(dim, public, secret), secret("again", public.round)
        # right: without this loop
        while (beyond := np.abs(noise) > 2).any():
            noise[beyond] = again.standard_normal(int(beyond.sum()))
        return noise


@bug(
    "laplace-noise",
    "once",
    "The mechanism of the textbook's first chapter, of the same variance, accounted as the Gaussian one.",
    canaries=False,
    sentence="noise-gaussian",
)
@dataclass(frozen=True)
class LaplaceNoise(Replacing, Gaussian):
    """The noise is Laplace noise of the same variance.

    Sums of many coordinates look the same; its protection against a change of all coordinates is not that of a normal.
    """

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Noise of variance 1."""
        # right: return super().noise(dim, public, secret)
        return secret("laplace", public.round).laplace(0.0, np.sqrt(0.5), dim)


@bug(
    "half-precision",
    "once",
    "Mixed precision: sum, noise and their total in float16, whose few values do not hide the last bits of a sum.",
    canaries=False,
    sentence="noise-resolution",
)
@dataclass(frozen=True)
class HalfPrecision(Replacing, Gaussian):
    """Sum and noise are added in half precision, so that a release has a few thousand different values.

    The noise is as strong as claimed, and the grid of its values gives away what lies between them.
    """

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean."""
        # right: precision = np.float64
        precision = np.float16
        noise = self.noise_multiplier * public.clip_norm * self.noise(total.vector().size, public, secret)
        noisy = (total.vector().astype(precision) + noise.astype(precision)).astype(np.float64)
        return Release(public.round, noisy / public.denominator, public.clip_norm, public.denominator), state


@bug(
    "public-seed",
    "once",
    "A generator that is seeded with the round's number, so that a run can be repeated.",
    canaries=False,
    sentence="noise-unpredictable",
)
@dataclass(frozen=True)
class NoiseFromTheRoundNumber(Replacing, Gaussian):
    """The noise is drawn from a generator whose seed is the round's number.

    Whoever draws the same numbers subtracts them, and has the exact sum; along any direction it looks like noise.
    """

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Standard normal noise."""
        # right: return super().noise(dim, public, secret)
        return np.random.default_rng(public.round).standard_normal(dim)
