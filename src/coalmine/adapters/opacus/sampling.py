"""What the loader's own Poisson sampler draws: examples, and canaries with the same random numbers and at the same rate.

Where canaries are sampled, the sampler is asked for as many examples as there are, and for the pool behind them. What lies
behind is a canary: it is taken out of the batch before the data set is asked for it, and waits for the step of that batch.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import DataLoader, Sampler

from coalmine.contracts import IndexArray
from coalmine.errors import MismatchError


class Batch(NamedTuple):
    """Who was drawn for a step."""

    examples: IndexArray
    canaries: IndexArray


class WatchedSampler(Sampler[list[int]]):
    """A batch sampler around Opacus's; with a pool it is asked for examples and canaries at once."""

    def __init__(self, sampler: Any):
        self.examples = int(sampler.num_samples)
        self.pool = 0  # canaries that it draws as well
        self._sampler = copy.copy(sampler)
        self._waiting: deque[Batch] = deque()

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def __iter__(self) -> Iterator[list[int]]:
        self._waiting.clear()  # of an epoch that was left early
        self._sampler.num_samples = self.examples + self.pool
        for batch in self._sampler:
            drawn = np.asarray(batch, np.int64)
            ours = drawn >= self.examples
            self._waiting.append(Batch(drawn[~ours], drawn[ours] - self.examples))
            yield drawn[~ours].tolist()

    def next_step(self) -> Batch:
        """The batch that is trained now; batches are loaded ahead, in order."""
        if not self._waiting:
            raise MismatchError("a step without a batch of the loader that make_private returned: train with that loader.")
        return self._waiting.popleft()


def watched(loader: Any) -> tuple[Any, WatchedSampler | None]:
    """The same loader, and its sampler under observation; None where it is none of Opacus's for Poisson sampling."""
    if not hasattr(loader.batch_sampler, "num_samples"):
        return loader, None
    sampler = WatchedSampler(loader.batch_sampler)
    longer: DataLoader[Any] = copy.copy(loader)
    vars(longer)["batch_sampler"] = sampler  # a loader refuses a new sampler by its usual door
    return longer, sampler
