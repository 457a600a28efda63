"""A clip norm that follows a quantile of the clients' norms, and noise that is correlated over rounds.

    release_t = (sum of updates clipped to S_t + z_Delta S_t Σ_s W[t, s] z_s) / n

S_t, the clip norm of the round, is computed from what was released before, so that x_t, the sum in units of S_t, is chosen
adaptively, as the matrix mechanism allows. All that is released is C x + z_Delta z and the number of unclipped updates of every
round with noise sigma_b of its own: one Gaussian. A client with rounds s moves it by

    |C s|² / z_Delta² + |s| / (2 sigma_b)²    (squared, |s| rounds; an indicator minus one half moves a count by one half)

which is at most |C s|² / z² for every set of rounds, if

    1 / z_Delta² = 1 / z² - 1 / (2 sigma_b c)²,    c the smallest |C e_t| of a round

since |C s|² >= |s| c² where no two columns of C have a negative product. So z is accounted, as with a fixed clip norm, for
clients and canaries alike, whatever their rounds. (For the clients' own pattern of k rounds alone, k / sens² would do in the
place of 1 / c²; a canary that takes part once would then show more than is claimed for it.)

The noise of a round is in units of that round's clip norm. It cancels in the model only as far as the clip norm stands still.
Noise in absolute units, Σ_s W[t, s] S_s z_s, would cancel whatever the clip norm does, and is another mechanism: where clip
norms fall, later releases show an early round with more weight than its column has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coalmine import _validate
from coalmine.contracts import Clip, Context, Description, Extra, Noise, Public, Release, State, Streams, Total
from coalmine.mechanisms.adaptive import beside_a_count, followed
from coalmine.mechanisms.correlated import Correlated
from coalmine.mechanisms.gaussian import Gaussian

_ADAPTIVE = ("target_quantile", "clip_learning_rate", "count_noise")


@dataclass(frozen=True)
class AdaptiveCorrelated(Correlated):
    """Updates cut to an announced clip norm that follows their quantile, noise of a strategy in its units."""

    target_quantile: float = 0.5
    clip_learning_rate: float = 0.2
    count_noise: float = 10.0  # a tenth of a cohort of 100

    config_keys: ClassVar[tuple[str, ...]] = (*Correlated.config_keys, *_ADAPTIVE)
    of_the_run: ClassVar[tuple[str, ...]] = ("count_noise",)  # what `from_config` derives from the run where it is not stated

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.between("target_quantile", self.target_quantile, 0.0, 1.0)
        _validate.positive("clip_learning_rate", self.clip_learning_rate)
        _validate.non_negative("count_noise", self.count_noise)
        least = self.strategy.least_column()  # refuses what has no such bound
        if self.noise_multiplier > 0 and not 2 * least * self.count_noise > self.noise_multiplier:
            raise ValueError(
                f"count_noise={self.count_noise!r} uses up the whole budget of noise_multiplier={self.noise_multiplier!r}: "
                f"with strategy {self.strategy.kind!r} it must be above {self.noise_multiplier / (2 * least):.4g}; "
                f"{1 / least:.3g} twentieths of the cohort are the default."
            )

    @property
    def update_noise_multiplier(self) -> float:
        """z_Delta: more noise on the updates pays for the number of unclipped ones."""
        return self._claimed_multiplier

    @property
    def _claimed_multiplier(self) -> float:
        """z_Delta as it should be: what a subclass really adds is not what it describes."""
        return beside_a_count(self.noise_multiplier, self.count_noise * self.strategy.least_column())

    @classmethod
    def from_config(cls, options: Mapping[str, Any], context: Context) -> Gaussian:
        """As `Correlated`; a count has a twentieth of the cohort over the smallest column norm, unless noise is stated.

        So it takes the same part of the budget as with independent noise.
        """
        strategy = cls.strategy_of(options, context)
        usual = max(context.cohort / 20, options.get("noise_multiplier", 0.0)) / strategy.least_column()
        return super().from_config({"count_noise": usual, **options}, context)

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
