"""Noise that clients share under secure aggregation: each adds a part, and the sum has all of it.

    symbol   here              meaning
    C        clip_norm         an update longer than this is cut to it
    sigma    noise_multiplier  noise on the sum in clip norms, where exactly `honest` noises are in it
    H        honest            clients whose noise the claim counts on; H = 1 is local differential privacy

Every client adds N(0, sigma² C² / H). With S of them in the sum its noise is sigma sqrt(S/H) clip norms: more survivors than
H give more noise than is claimed, fewer give less, and then the claim must be made again (`with_survivors`).

The noise is a float, rounded to multiples of 2^-40 clip norms on its way into the sum. That moves a client's part by at most
2^-41 clip norms in a coordinate, a relative 1e-9 of its noise even for sigma/sqrt(H) = 0.0005. A discrete Gaussian, whose
claim is exact for whole numbers, is therefore not implemented.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coalmine import _validate
from coalmine.contracts import ByClients, Context, Contribution, Description, Public, Release, State, Streams, Total, Vector
from coalmine.mechanisms.gaussian import Gaussian

_UNLIKELY = 1e-6  # that some round of a run has fewer clients


def least_cohort(context: Context) -> int:
    """Clients that are in every round: where chance decides how many there are, so many that a smaller cohort is unlikely."""
    sampling = context.participation.sampling
    if sampling is None or sampling.cohort_size is not None:
        return max(1, math.floor(context.cohort))
    from scipy.stats import binom

    rate = min(context.cohort / max(context.population, 1), 1.0)
    return max(1, int(binom.ppf(_UNLIKELY / max(context.rounds, 1), context.population, rate)))


@dataclass(frozen=True)
class Distributed(Gaussian):
    """Updates cut to `clip_norm`; each client adds its part of the noise, and the server adds none."""

    honest: int = 1

    of_the_run: ClassVar[tuple[str, ...]] = ("honest",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.whole("honest", self.honest, least=1)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], context: Context) -> Distributed:
        """From a section [mechanism]; all clients of a round are honest unless `honest` says how many are."""
        stated = {"honest": least_cohort(context), **options}
        return cls(**stated)

    def describe(self) -> Description:
        """The noise of `honest` clients together."""
        said = super().describe()
        if said.noise is None:
            return said
        return replace(said, noise=replace(said.noise, added_by=ByClients(self.honest, self.honest)))

    def with_survivors(self, survivors: int) -> Distributed:
        """The mechanism as it was if so many honest noises were in the sum: what may be claimed then.

        >>> Distributed(1.0, 2.0, honest=4).with_survivors(1).noise_multiplier
        1.0
        """
        there = _validate.whole("survivors", survivors, least=1)
        return replace(self, noise_multiplier=self.noise_multiplier * math.sqrt(there / self.honest), honest=there)

    @property
    def part(self) -> float:
        """The noise of one client, in clip norms."""
        return self.update_noise_multiplier / math.sqrt(self.honest)

    def client(self, update: Vector, public: Public, examples: int = 1, *, secret: Streams) -> Contribution:  # type: ignore[override]
        """The clipped update with this client's part of the noise."""
        clipped = super().client(update, public, examples)
        noise = self.part * public.clip_norm * self.noise(update.size, public, secret)
        return Contribution(clipped.vector + noise, clipped.unclipped, without_noise=clipped.vector)

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The mean; all noise is in it already."""
        divisor = float(max(total.count, 1)) if self.divide_by_actual_cohort else public.denominator
        return Release(public.round, total.vector() / divisor, public.clip_norm, divisor), state
