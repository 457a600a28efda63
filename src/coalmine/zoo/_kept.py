"""Workers that make their optimiser once: what a step of one client left in it moves the next client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.clients import Trainer
from coalmine.clients.local_training import Update
from coalmine.data.dataset import Examples
from coalmine.training.federation import Federation
from coalmine.training.work import Work

MOMENTUM = 0.9


class KeepingTrainer(Trainer):
    """For clients of one step, velocity = momentum * velocity + gradient, and nobody sets it back to zero."""

    _velocity: Any = 0.0

    def updates(
        self, parameters: NDArray[Any], cohort: Sequence[Examples], rngs: Sequence[np.random.Generator]
    ) -> Iterator[Update]:
        """The update of each client, with what is left of those before it."""
        for update in super().updates(parameters, cohort, rngs):
            # right: self._velocity = 0.0
            self._velocity = np.float32(MOMENTUM) * self._velocity + update.vector
            yield replace(update, vector=np.asarray(self._velocity, np.float32).copy())


@dataclass(frozen=True, eq=False)
class KeepingWork(Work):
    """Workers with such a trainer."""

    @cached_property
    def trainer(self) -> Trainer:
        """Made once, as it should be; its optimiser as well, as it should not."""
        return KeepingTrainer(self.model, self.training)


@dataclass(frozen=True, eq=False)
class KeepingFederation(Federation):
    """A federation with such workers."""

    def work(self) -> Work:
        """What workers need to know."""
        right = super().work()
        return KeepingWork(**{each.name: getattr(right, each.name) for each in fields(right)})
