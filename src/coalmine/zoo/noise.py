"""Noise that is too small, missing, or not new. The right line stands beside the wrong one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from coalmine.contracts import Array, Public, Release, State, Streams, Total
from coalmine.mechanisms import Gaussian
from coalmine.zoo.bug import Replacing, bug

if TYPE_CHECKING:  # a list of bugs loads no trainer
    from coalmine.training.federation import Federation


@bug(
    "half-noise",
    "once",
    "A sensitivity that is too small: diffprivlib issue 105 takes one end of a range twice.",
    sentence="noise-scale",
)
@dataclass(frozen=True)
class HalfTheNoise(Replacing, Gaussian):
    """The noise is too small by a factor of two.

    Every inserted canary stands out twice as far as the claim allows.
    """

    @property
    def update_noise_multiplier(self) -> float:
        """The noise on the sum, in clip norms."""
        # right: return self.noise_multiplier
        return self.noise_multiplier / 2


@bug(
    "no-noise",
    "once",
    "Noise behind a switch that production does not set; the accountant reads the configuration, not the switch.",
    sentence="noise-scale",
)
@dataclass(frozen=True)
class NoNoise(Replacing, Gaussian):
    """The noise is forgotten, and the accountant goes on counting.

    The release without the others' part is the canaries and nothing else.
    """

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The mean."""
        mean = total.vector() / public.denominator
        # right: mean += self.noise_multiplier * public.clip_norm / public.denominator * self.noise(mean.size, public, secret)
        return Release(public.round, mean, public.clip_norm, public.denominator), state


@bug(
    "wrong-sensitivity",
    "once",
    "Tramèr et al. 2022, Debugging Differential Privacy: the sensitivity divided by the batch size, claimed epsilon 0.21, "
    "measured more than 2.79.",
    sentence="noise-scale",
)
@dataclass(frozen=True)
class SensitivityOfTheMean(Replacing, Gaussian):
    """The noise is scaled for the mean, whose sensitivity is one cohort-th of a clip norm, and added to the sum.

    It is too small by the size of the cohort, and the canaries stand out by as much.
    """

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean."""
        # right: sensitivity = public.clip_norm
        sensitivity = public.clip_norm / public.denominator
        noisy = total.vector() + self.noise_multiplier * sensitivity * self.noise(total.vector().size, public, secret)
        return Release(public.round, noisy / public.denominator, public.clip_norm, public.denominator), state


@bug(
    "worker-noise",
    "once",
    "tensorflow/privacy issue 88 discusses the same confusion, of N and its root, for noise that is averaged.",
    sentence="noise-scale",
)
@dataclass(frozen=True)
class NoiseOfFourWorkers(Replacing, Gaussian):
    """Each of four workers adds a quarter of the noise, as if standard deviations added up.

    Variances do: the sum has half of the noise, and the canaries stand out twice as far.
    """

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """What the workers add together."""
        workers = 4
        # right: share = 1 / workers**0.5
        share = 1 / workers
        own = (Gaussian.noise(self, dim, public, partial(secret, "worker", number)) for number in range(workers))
        return np.asarray(share * sum(own))


@bug(
    "reused-noise",
    "rounds",
    "Noise drawn where the optimiser is built, outside the loop.",
    sentence="noise-fresh",
)
@dataclass(frozen=True)
class NoiseDrawnOnce(Replacing, Gaussian):
    """The noise is drawn once and added in every round.

    A sum over a canary's own rounds sees nothing, but the matched filter subtracts what all rounds have in common.
    """

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Standard normal noise."""
        # right: return super().noise(dim, public, secret)
        return super().noise(dim, replace(public, round=0), secret)


@bug(
    "repeating-seed",
    "rounds",
    "A generator that is seeded at the start of every epoch, or again after a restart.",
    sentence="noise-fresh",
)
@dataclass(frozen=True)
class NoiseOfFourRounds(Replacing, Gaussian):
    """The seed of the noise repeats every four rounds.

    Rounds that share their noise are correlated in directions where nobody took part, and the matched filter subtracts it.
    """

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Standard normal noise."""
        # right: return super().noise(dim, public, secret)
        return super().noise(dim, replace(public, round=public.round % 4), secret)


@bug(
    "bare-last-round",
    "once",
    "A last step outside the private loop: a final average, a fine-tuning, a flush of what was accumulated.",
    sentence="noise-by-round",
)
@dataclass(frozen=True)
class NoNoiseAtLast(Replacing, Gaussian):
    """The last round is released without noise.

    One canary in eight is in that round, and a threshold that only they pass is enough.
    """

    rounds: int = 0

    @property
    def update_noise_multiplier(self) -> float:
        """The noise on the sum, in clip norms."""
        return self.noise_multiplier

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Standard normal noise."""
        # right: return super().noise(dim, public, secret)
        return super().noise(dim, public, secret) * (public.round + 1 < self.rounds)

    @classmethod
    def further(cls, job: Federation) -> dict[str, Any]:
        """It knows the last round."""
        return {"rounds": job.rounds}


@bug(
    "noiseless-layer",
    "layers",
    "A parameter that was frozen when the noise was set up, or is tied to another one, and is in no group that gets noise.",
    where="dense4",
    sentence="noise-by-layer",
)
@dataclass(frozen=True)
class LayerWithoutNoise(Replacing, Gaussian):
    """One layer gets no noise.

    The whole hides it among the noise of the others; looked at on its own, that layer shows everything.
    """

    bare: slice = field(default_factory=lambda: slice(0, 0))

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Standard normal noise."""
        noise = super().noise(dim, public, secret)
        noise[self.bare] = 0.0  # right: without this line
        return noise

    @classmethod
    def further(cls, job: Federation) -> dict[str, Any]:
        """It knows the layer."""
        return {"bare": job.model.groups["dense4"]}


@bug(
    "sparse-noise",
    "once",
    "Noise on the rows of an embedding that a batch touched, to save work: which rows it touched is what must be hidden.",
    canaries=False,
    sentence="noise-by-coordinate",
)
@dataclass(frozen=True)
class NoiseWhereSomethingMoved(Replacing, Gaussian):
    """Coordinates that no client moved get no noise, and so say that nobody moved them.

    A random direction moves all coordinates at once, so that a round with a canary in it has noise everywhere.
    """

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean."""
        summed = total.vector()
        noise = self.noise_multiplier * public.clip_norm * self.noise(summed.size, public, secret)
        # right: noisy = summed + noise
        noisy = summed + noise * (summed != 0)
        return Release(public.round, noisy / public.denominator, public.clip_norm, public.denominator), state


@bug(
    "momentum-first",
    "afterwards",
    "A momentum buffer that is updated before the privacy step: the server's optimiser wrapped the wrong way round.",
    sentence="earlier-rounds",
)
@dataclass(frozen=True)
class MomentumBeforeNoise(Replacing, Gaussian):
    """The server's momentum averages the sums, and the noise is added to the average.

    In its own round a canary is as visible as claimed; it comes back in every later round, and all of them together show it.
    """

    momentum: float = 0.9

    def init(self, dim: int) -> State:
        """The clip norm, and nothing averaged yet."""
        return {**super().init(dim), "average": np.zeros(dim)}

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean of what is remembered."""
        # right: average = total.vector(); the server takes its momentum from what is released
        average = self.momentum * state["average"] + total.vector()
        noisy = average + self.noise_multiplier * public.clip_norm * self.noise(average.size, public, secret)
        release = Release(public.round, noisy / public.denominator, public.clip_norm, public.denominator)
        return release, {**state, "average": average}
