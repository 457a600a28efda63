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
from dataclasses import dataclass
from typing import Any, ClassVar

from coalmine.contracts import Context
from coalmine.mechanisms.adaptive import FollowsQuantile
from coalmine.mechanisms.correlated import Correlated
from coalmine.mechanisms.gaussian import Gaussian


@dataclass(frozen=True)
class AdaptiveCorrelated(FollowsQuantile, Correlated):
    """Updates cut to an announced clip norm that follows their quantile, noise of a strategy in its units."""

    count_noise: float = 10.0  # a tenth of a cohort of 100

    config_keys: ClassVar[tuple[str, ...]] = (*Correlated.config_keys, "target_quantile", "clip_learning_rate", "count_noise")

    @property
    def _least_column(self) -> float:
        """c of the module's formula; strategies that have no such bound refuse."""
        return self.strategy.least_column()

    def _customary(self, bound: float, least: float) -> str:
        return (
            f"with strategy {self.strategy.kind!r} it must be above {bound:.4g}; "
            f"{1 / least:.3g} twentieths of the cohort are the default."
        )

    @classmethod
    def from_config(cls, options: Mapping[str, Any], context: Context) -> Gaussian:
        """As `Correlated`; a count has a twentieth of the cohort over the smallest column norm, unless noise is stated.

        So it takes the same part of the budget as with independent noise.
        """
        strategy = cls.strategy_of(options, context)
        usual = max(context.cohort / 20, options.get("noise_multiplier", 0.0)) / strategy.least_column()
        return super().from_config({"count_noise": usual, **options}, context)
