"""Updates that are cut in the wrong place, by the wrong measure, or not at all. The right line stands beside the wrong one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coalmine.contracts import Contribution, Public, Release, State, Streams, Total, Vector
from coalmine.mechanisms import AdaptiveGaussian, Gaussian
from coalmine.mechanisms.gaussian import length
from coalmine.zoo.bug import Replacing, bug

if TYPE_CHECKING:  # a list of bugs loads no trainer
    from coalmine.training.federation import Federation


@bug(
    "clip-the-average",
    "once",
    "Clipping on a server that only sees the average, as under secure aggregation; clip_grad_norm_ on the gradient of a batch.",
    sentence="treated-alike",
)
@dataclass(frozen=True)
class ClippedAverage(Replacing, Gaussian):
    """The average is cut to the clip norm instead of every update.

    One update that is long enough is all that is left of the average; canaries are sent 10,000 clip norms long to find out.
    """

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """The update as it is."""
        # right: return super().client(update, public)
        return Contribution(update)

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean."""
        mean = total.vector() / public.denominator
        mean *= min(1.0, public.clip_norm / max(length(mean), 1e-12))
        spread = self.noise_multiplier * public.clip_norm / public.denominator
        mean += spread * self.noise(mean.size, public, secret)
        return Release(public.round, mean, public.clip_norm, public.denominator), state


@bug(
    "clip-by-value",
    "once",
    "clip_grad_value_ where clip_grad_norm_ was meant: every coordinate is cut, not the vector.",
    sentence="clipping",
)
@dataclass(frozen=True)
class ClippedByValue(Replacing, Gaussian):
    """Every coordinate is cut to the clip norm, so that an update may be as long as sqrt(d) clip norms.

    An over-long canary comes out many times as long as the claim assumes.
    """

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """The update, its coordinates cut."""
        # right: return super().client(update, public)
        return Contribution(np.clip(update, -public.clip_norm, public.clip_norm))


@bug(
    "clip-each-layer",
    "layers",
    "Per-layer clipping: the sensitivity is the norm of all layers' bounds together, as opacus issue 202 shows.",
    sentence="clipping",
)
@dataclass(frozen=True)
class ClippedLayerByLayer(Replacing, Gaussian):
    """Every layer is cut to the clip norm of the whole, so that all of them together may be sqrt(layers) times as long.

    No layer leaks more than claimed, but the canary as a whole does.
    """

    layers: tuple[slice, ...] = ()

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """The update, layer by layer cut."""
        cut = np.array(update, dtype=np.float64)
        for layer in self.layers:
            # right: bound = public.clip_norm / math.sqrt(len(self.layers))
            bound = public.clip_norm
            cut[layer] *= min(1.0, bound / max(length(cut[layer]), 1e-12))
        return Contribution(cut)

    @classmethod
    def further(cls, job: Federation) -> dict[str, Any]:
        """It knows the layers."""
        return {"layers": tuple(job.model.groups.values())}


@bug(
    "unclipped-group",
    "layers",
    "A parameter group that was added after the clipping was set up, as with adapters and new heads.",
    where="dense4",
    sentence="clipping",
)
@dataclass(frozen=True)
class GroupThatIsNotClipped(Replacing, Gaussian):
    """One group of parameters is left out of the norm and out of the clipping.

    There a canary stays as long as it was sent, and the view of that group shows it.
    """

    forgotten: slice = field(default_factory=lambda: slice(0, 0))

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """The update, cut but for one group."""
        counted = np.array(update, dtype=np.float64)
        counted[self.forgotten] = 0.0  # right: without this line, and the next but one
        cut = counted * min(1.0, public.clip_norm / max(length(counted), 1e-12))
        cut[self.forgotten] = update[self.forgotten]
        return Contribution(cut)

    @classmethod
    def further(cls, job: Federation) -> dict[str, Any]:
        """It knows the group."""
        return {"forgotten": job.model.groups["dense4"]}


@bug(
    "norm-of-half",
    "once",
    "A norm over the parameters that one optimiser holds, where two of them share the model.",
    canaries=False,
    sentence="treated-alike",
)
@dataclass(frozen=True)
class NormOverHalfOfTheParameters(Replacing, Gaussian):
    """The norm is taken over the first half of the parameters, and the whole update is scaled by it.

    An update that lies mostly in the other half comes out many times as long; a random direction lies in both.
    """

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """The update, cut by the norm of its first half."""
        # right: norm = length(update)
        norm = length(update[: update.size // 2])
        return Contribution(update * np.float64(min(1.0, public.clip_norm / max(norm, 1e-12))))


@bug(
    "stale-scale",
    "adaptive",
    "Noise whose scale is computed once, where the clip norm is configured, while the clip norm adapts.",
    sentence="noise-scale",
)
@dataclass(frozen=True)
class NoiseOfTheFirstClipNorm(Replacing, AdaptiveGaussian):
    """The clip norm grows from round to round, and the noise stays what the first clip norm asked for.

    Canaries are cut to the clip norm of their round, and stand out the further the later they come.
    """

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean, and the next clip norm."""
        # right: stale = public
        stale = replace(public, clip_norm=self.clip_norm)
        release, _ = super().release(state, total, stale, secret)
        _, following = super().release(state, total, public, secret)
        return replace(release, clip_norm=public.clip_norm), following


@bug(
    "bare-quantile",
    "adaptive",
    "Andrew et al. 2021 add noise to the number of unclipped updates; an adaptive clip norm without it is not accounted for.",
    canaries=False,
    sentence="quantile-noise",
)
@dataclass(frozen=True)
class QuantileWithoutNoise(Replacing, AdaptiveGaussian):
    """The clip norm follows the exact share of unclipped updates, without the noise that is accounted for it.

    The leak is in the clip norms, not along any canary: the release itself has all the noise it claims.
    """

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean, and the next clip norm."""
        release, _ = super().release(state, total, public, secret)
        # right: share = (total.unclipped - total.count / 2 + noise) / release.denominator + 0.5
        share = (total.unclipped - total.count / 2) / release.denominator + 0.5
        step = -self.clip_learning_rate * (min(max(share, 0.0), 1.0) - self.target_quantile)
        return release, {"clip_norm": np.array(public.clip_norm * math.exp(step))}
