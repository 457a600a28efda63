"""Clipping and Gaussian noise (McMahan et al. 2018), with a fixed clip norm or one that adapts (Andrew et al. 2021).

    paper          here                        meaning
    S, C           clip_norm                   an update longer than this is cut to it
    z              noise_multiplier            what is accounted: noise on the sum in clip norms
    z_Delta        update_noise_multiplier     the noise on the sum of updates
    sigma_b        count_noise                 the noise on the number of unclipped updates
    gamma          target_quantile             the share of updates that should pass unclipped
    eta_C          clip_learning_rate          how fast the clip norm follows

Algorithm 2 of the one-shot papers: mean = (sum of clipped updates + N(0, (z C)²)) / n, every client with the same weight,
canaries among them.

Where we depart, and why: n is the expected cohort, fixed before the round. The realised one, as printed, reveals under random
sampling how many took part; `realised_denominator=True` divides by it all the same, and the audit says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coalmine import _validate
from coalmine.contracts import Array, Contribution, Public, Release, State, Streams, Total, Vector
from coalmine.errors import NonFiniteError

_BLOCK = 1 << 20  # coordinates whose noise comes from one stream
_PIECE = 1 << 14  # coordinates squared at once, in the cache
REALISED = (
    "denominator: the sum is divided by the number of updates that came, as Algorithm 2 is printed; under random sampling "
    "that number is itself a release which no noise protects"
)


def length(vector: Vector) -> float:
    """The Euclidean norm, accumulated in float64 in a fixed order (BLAS would depend on its number of threads).

    >>> length(np.array([3.0, 4.0], dtype=np.float32))
    5.0
    """
    total, room = 0.0, np.empty(min(_PIECE, vector.size))
    for start in range(0, vector.size, _PIECE):
        part = room[: min(_PIECE, vector.size - start)]
        part[...] = vector[start : start + _PIECE]  # converted first: numpy's own conversion on the way takes twice as long
        part *= part
        total += float(part.sum())
    return math.sqrt(total)


@dataclass(frozen=True)
class Gaussian:
    """Updates cut to `clip_norm`, Gaussian noise of `noise_multiplier` clip norms on their sum."""

    clip_norm: float
    noise_multiplier: float
    realised_denominator: bool = False

    def __post_init__(self) -> None:
        _validate.positive("clip_norm", self.clip_norm)
        _validate.non_negative("noise_multiplier", self.noise_multiplier)

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of the audit must know about this mechanism."""
        return (REALISED,) if self.realised_denominator else ()

    @property
    def update_noise_multiplier(self) -> float:
        """The noise on the sum of updates, in clip norms."""
        return self.noise_multiplier

    def init(self, dim: int) -> State:
        """The clip norm."""
        return {"clip_norm": np.array(self.clip_norm)}

    def announce(self, state: State, round_number: int, denominator: float) -> Public:
        """The clip norm of this round and the expected cohort."""
        return Public(round_number, float(state["clip_norm"]), denominator)

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """The update, cut to the clip norm if it is longer; every client counts the same, whatever examples it has."""
        norm = length(update)
        if not math.isfinite(norm):
            bad = np.flatnonzero(~np.isfinite(update))
            where = f"{bad.size} NaN or infinite entries, the first at coordinate {bad[0]}" if bad.size else "an infinite norm"
            raise NonFiniteError(f"an update has {where}")
        kept = self.cut(norm, public)
        return Contribution(update if kept == norm else update * np.float64(kept / norm), below=norm <= public.clip_norm)

    def cut(self, norm: float, public: Public) -> float:
        """The length that an update of length `norm` keeps."""
        return min(norm, public.clip_norm)

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean."""
        noisy = total.vector()
        noisy += self.update_noise_multiplier * public.clip_norm * self.noise(noisy.size, public, secret)
        divisor = float(max(total.count, 1)) if self.realised_denominator else public.denominator
        noisy /= divisor
        return Release(public.round, noisy, public.clip_norm, divisor), state

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Standard normal noise, a stream of its own for every round and block."""
        noise = np.empty(dim)
        for block, start in enumerate(range(0, dim, _BLOCK)):
            part = noise[start : start + _BLOCK]
            secret("noise", public.round, block).standard_normal(out=part)
        return noise


@dataclass(frozen=True)
class AdaptiveGaussian(Gaussian):
    """The clip norm follows the `target_quantile` of the norms of the updates, over-long canaries included.

    Every client also sends whether it passed unclipped. The number of those gets noise of its own, `count_noise`, and shares
    the budget: z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2), since an indicator minus one half moves the sum by one half.
    """

    target_quantile: float = 0.5
    clip_learning_rate: float = 0.2
    count_noise: float = 5.0  # a twentieth of a cohort of 100

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.between("target_quantile", self.target_quantile, 0.0, 1.0)
        _validate.positive("clip_learning_rate", self.clip_learning_rate)
        _validate.non_negative("count_noise", self.count_noise)
        if self.noise_multiplier > 0 and not 2 * self.count_noise > self.noise_multiplier:
            raise ValueError(
                f"count_noise={self.count_noise!r} uses up the whole budget of noise_multiplier={self.noise_multiplier!r}: "
                f"it must be above {self.noise_multiplier / 2:g}; a twentieth of the cohort is customary."
            )

    @property
    def update_noise_multiplier(self) -> float:
        """z_Delta: a little more noise on the updates pays for the number of unclipped ones."""
        if self.noise_multiplier == 0:
            return 0.0
        return float((self.noise_multiplier**-2 - (2 * self.count_noise) ** -2) ** -0.5)

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean; and the clip norm of the next round, from a noisy share of unclipped updates."""
        release, _ = super().release(state, total, public, secret)
        spread = self.count_noise if self.noise_multiplier > 0 else 0.0
        centred = total.below - total.count / 2 + spread * float(secret("count noise", public.round).standard_normal())
        share = min(max(centred / release.denominator + 0.5, 0.0), 1.0)  # noise may lead beyond, which means no more
        clip_norm = public.clip_norm * math.exp(-self.clip_learning_rate * (share - self.target_quantile))
        return release, {"clip_norm": np.array(clip_norm)}
