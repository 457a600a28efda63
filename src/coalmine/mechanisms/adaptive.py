"""A clip norm that follows a quantile of the clients' norms (Andrew et al. 2021, "Differentially private learning with
adaptive clipping").

    paper          here                        meaning
    z              noise_multiplier            what is accounted: noise on the sum in clip norms
    z_Delta        update_noise_multiplier     the noise on the sum of updates
    sigma_b        count_noise                 the noise on the number of unclipped updates
    gamma          target_quantile             the share of updates that should pass unclipped
    eta_C          clip_learning_rate          how fast the clip norm follows
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coalmine import _validate
from coalmine.contracts import Clip, Context, Description, Extra, Noise, Public, Release, State, Streams, Total
from coalmine.mechanisms.gaussian import Gaussian


@dataclass(frozen=True)
class FollowsQuantile(Gaussian):
    """Whose clip norm follows a quantile, whatever the noise on the updates: `AdaptiveGaussian`, `AdaptiveCorrelated`.

    Every client also sends whether it passed unclipped. The number of those gets noise of its own, `count_noise`, and shares
    the budget: z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2), since an indicator minus one half moves the sum by one half.
    """

    target_quantile: float = 0.5
    clip_learning_rate: float = 0.2
    count_noise: float = 5.0  # a twentieth of a cohort of 100

    of_the_run: ClassVar[tuple[str, ...]] = ("count_noise",)  # what `from_config` derives from the run where it is not stated

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.between("target_quantile", self.target_quantile, 0.0, 1.0)
        _validate.positive("clip_learning_rate", self.clip_learning_rate)
        _validate.non_negative("count_noise", self.count_noise)
        least = self._least_column
        if self.noise_multiplier > 0 and not 2 * least * self.count_noise > self.noise_multiplier:
            raise ValueError(
                f"count_noise={self.count_noise!r} uses up the whole budget of noise_multiplier={self.noise_multiplier!r}: "
                f"{self._customary(self.noise_multiplier / (2 * least), least)}"
            )

    @property
    def _least_column(self) -> float:
        """How far the updates of one round move what is released, in clip norms: 1 unless noise is correlated over rounds."""
        return 1.0

    def _customary(self, bound: float, least: float) -> str:
        """The end of an error: above what the noise of the count must be, and what it usually is."""
        return f"it must be above {bound:g}; a twentieth of the cohort is customary."

    @property
    def update_noise_multiplier(self) -> float:
        """z_Delta: a little more noise on the updates pays for the number of unclipped ones."""
        return self._claimed_multiplier

    @property
    def _claimed_multiplier(self) -> float:
        """z_Delta as it should be: what a subclass really adds is not what it describes."""
        return beside_a_count(self.noise_multiplier, self.count_noise * self._least_column)

    def describe(self) -> Description:
        """The clip norm is announced in every round, and follows a number that has noise of its own."""
        said = super().describe()
        assert said.noise is not None
        count = Extra("quantile", self.count_noise, target=self.target_quantile, rate=self.clip_learning_rate)
        noise = Noise(accounted=self.noise_multiplier, multiplier=self._claimed_multiplier, rounds=said.noise.rounds)
        return replace(said, clip=Clip(None), noise=noise, extras=(count,))

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean; and the clip norm of the next round, from a noisy share of unclipped updates."""
        release, kept = super().release(state, total, public, secret)
        spread = self.count_noise if self.noise_multiplier > 0 else 0.0
        clip_norm = followed(total, public, release.denominator, self.target_quantile, self.clip_learning_rate, spread, secret)
        return release, {**kept, "clip_norm": np.array(clip_norm)}


@dataclass(frozen=True)
class AdaptiveGaussian(FollowsQuantile):
    """The clip norm follows the `target_quantile` of the norms of the updates, over-long canaries included."""

    @classmethod
    def from_config(cls, options: Mapping[str, Any], context: Context) -> Gaussian:
        """From a section [mechanism]; `count_noise` is a twentieth of the cohort unless it is stated."""
        stated = dict(options)
        if stated.get("count_noise") is None:
            stated["count_noise"] = max(context.cohort / 20, stated.get("noise_multiplier", 0.0))
        return cls(**stated)


def beside_a_count(noise_multiplier: float, count_noise: float) -> float:
    """z_Delta: the noise on updates beside which a count with this noise leaves a round at `noise_multiplier`.

    >>> round(beside_a_count(1.0, 5.0), 6)
    1.005038
    """
    if noise_multiplier == 0:
        return 0.0
    return float((noise_multiplier**-2 - (2 * count_noise) ** -2) ** -0.5)


def followed(total: Total, public: Public, divisor: float, target: float, rate: float, spread: float, secret: Streams) -> float:
    """The clip norm of the next round, by the noisy share of updates that passed unclipped in this one."""
    centred = total.unclipped - total.count / 2 + spread * float(secret("count noise", public.round).standard_normal())
    share = min(max(centred / divisor + 0.5, 0.0), 1.0)  # noise may lead beyond, which means no more
    return public.clip_norm * math.exp(-rate * (share - target))
