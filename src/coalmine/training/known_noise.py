"""What an auditor knows of a round where noise depends on the data: for canaries that are aimed by it.

An auditor is all canary clients, and knows what they send. So none of their noise is left in what a canary is looked for in
but its own. A held-out canary is compared in the same way: as a client with a zero gradient, whose noise is drawn by the same
code and added to what was released. Then the two differ in one record, as the claim has it, and not in a client's noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from coalmine.canaries.setup import CanarySetup
from coalmine.contracts import AimedRound, Array, IndexArray, LowRank, Mechanism, Public, RoundCanaries, Streams
from coalmine.mechanisms.covariance import MOST_NUMBERS, ExampleNoise, added
from coalmine.training.work import Outcome, contribute

_SMALL = MOST_NUMBERS // 8  # numbers of gradients and canaries of a round, up to which their covariance is computed unasked


@dataclass(frozen=True, eq=False)
class KnownNoise:
    """Of a run whose canaries may be aimed; nothing is known, and nothing costs anything, where they are not."""

    setup: CanarySetup | None
    mechanism: Mechanism
    secret: Streams

    @property
    def aimed(self) -> bool:
        """Whether canaries are aimed."""
        return self.setup is not None and self.setup.aim is not None

    def wanted(self, clients: int) -> bool:
        """Whether the covariance of a round is computed: if it depends on the data of so many clients, and is not too large."""
        said = self.mechanism.describe()
        if self.setup is None or said.examples is None or not said.has_noise:
            return self.aimed
        size = (clients * said.examples.count + self.setup.schedule.expected_size) * self.setup.canaries.dim
        return self.aimed or (said.examples.weights == "gaussian" and size <= _SMALL)

    @cached_property
    def _noise(self) -> ExampleNoise:
        return ExampleNoise.of(self.mechanism.describe())

    def canaries(
        self, indices: IndexArray, own: Array, part: Array, public: Public, outcomes: Sequence[Outcome]
    ) -> RoundCanaries:
        """The canaries of a round, with what they must know if they are aimed."""
        if self.setup is None or not self.aimed:
            return RoundCanaries(indices, own, part)
        alone = LowRank(self._noise.floor, np.zeros((self.setup.canaries.dim, 0)))
        background = added([*_parts(outcomes), alone], self.setup.canaries.dim)
        return RoundCanaries(indices, own, part, aimed=AimedRound(self._sent(public), background, self._noise.lift))

    def covariance(self, outcomes: Sequence[Outcome], indices: IndexArray) -> LowRank | None:
        """Of everything that is random in the sum: clients and canaries; None where it was not asked for."""
        parts = _parts(outcomes)
        if self.setup is None or not parts or not self._noise.floor > 0:
            return None
        canaries, noise = self.setup.canaries, self._noise
        lifted = [canaries.update(int(index)) for index in indices] if noise.lift > 0 else []
        columns = np.array(lifted, np.float64).reshape(len(lifted), canaries.dim).T * (np.sqrt(noise.lift) / canaries.norm)
        return added([*parts, LowRank(noise.floor * indices.size, columns)], canaries.dim)

    def _sent(self, public: Public) -> Array:
        assert self.setup is not None
        canaries, assigned = self.setup.canaries, self.setup.schedule.assigned[public.round]
        if assigned.size * canaries.dim > MOST_NUMBERS:
            raise ValueError(
                f"{assigned.size} aimed canaries in a round of {canaries.dim} coordinates are more than fit into memory. Take "
                "a smaller canaries.pool, or more rounds."
            )
        found = np.empty((assigned.size, canaries.dim))
        scale = np.float32(self.setup.canary_norm * public.clip_norm / canaries.norm)
        for row, index in zip(found, assigned.tolist(), strict=True):
            update = (
                canaries.update(index) * scale if self.setup.schedule.inserted[index] else np.zeros(canaries.dim, np.float32)
            )
            secret = partial(self.secret, "noise of a canary", public.round, index)  # as it is in the round: the same numbers
            row[:] = contribute(self.mechanism, update, public, self.setup.examples, secret).vector
        return found


def _parts(outcomes: Sequence[Outcome]) -> list[LowRank]:
    return [each.covariance for each in outcomes if each.covariance is not None]
