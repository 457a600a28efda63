"""Skeleton of a mechanism: clipping of whole updates, fresh Gaussian noise on their sum. Copy, rename, change.

Register it by a line in `MECHANISMS` (src/coalmine/mechanisms/registry.py), or name it "package.module:ClippedMean".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coalmine.contracts import (
    Clip,
    Contribution,
    Description,
    Noise,
    Public,
    Release,
    State,
    Streams,
    Total,
    Vector,
)


@dataclass(frozen=True)
class ClippedMean:
    """The fields are the keys of the section [mechanism]. Plain values only, so that a run can be resumed."""

    clip_norm: float = 1.0
    noise_multiplier: float = 1.0

    def describe(self) -> Description:
        """What the code below does: the claim is computed from this, and the audit compares with it."""
        return Description(Clip(self.clip_norm), Noise(accounted=self.noise_multiplier, multiplier=self.noise_multiplier))

    def without_noise(self) -> ClippedMean:
        """The same without noise, for the reference run."""
        return replace(self, noise_multiplier=0.0)

    def init(self, dim: int) -> State:
        """Arrays that go from round to round, by name: buffers of correlated noise, say. They are saved in the checkpoint."""
        return {}

    def announce(self, state: State, round_number: int, denominator: float) -> Public:
        """What everybody knows before the round."""
        return Public(round_number, self.clip_norm, denominator)

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """On a client, or for a canary: clip one update."""
        norm = float(np.linalg.norm(update.astype(np.float64)))
        return Contribution(update * min(1.0, public.clip_norm / max(norm, 1e-30)), unclipped=norm <= public.clip_norm)

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """On the server: noise and division. `secret(name, ...)` is a generator, the same in every process."""
        noisy = total.vector()
        noisy += self.noise_multiplier * public.clip_norm * secret("noise", public.round).standard_normal(noisy.size)
        return Release(public.round, noisy / public.denominator, public.clip_norm, public.denominator), state
