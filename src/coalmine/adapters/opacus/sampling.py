"""Canaries that the loader's own Poisson sampler draws, with the same random numbers and at the same rate as examples.

The sampler is asked for as many examples as there are, and for the pool behind them. What lies behind is a canary: it is taken
out of the batch before the data set is asked for it, and waits for the step of that batch.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Sampler

from coalmine.contracts import IndexArray
from coalmine.errors import MismatchError


class CanarySampler(Sampler[list[int]]):
    """A batch sampler around Opacus's, which is asked for examples and canaries at once."""

    def __init__(self, sampler: Any):
        self.examples = int(sampler.num_samples)
        self.pool = 0  # until the audit has begun
        self._sampler = copy.copy(sampler)
        self._waiting: deque[IndexArray] = deque()

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
            self._waiting.append(drawn[drawn >= self.examples] - self.examples)
            yield drawn[drawn < self.examples].tolist()

    def next_step(self) -> IndexArray:
        """The canaries of the batch that is trained now; batches are loaded ahead, in order."""
        if not self._waiting:
            raise MismatchError("a step without a batch of the loader that make_private returned: train with that loader.")
        return self._waiting.popleft()


def with_canaries(loader: Any) -> tuple[Any, CanarySampler]:
    """The same loader, whose sampler draws canaries as well."""
    if not hasattr(loader.batch_sampler, "num_samples"):
        raise MismatchError(f"the sampler {type(loader.batch_sampler).__name__} is none of Opacus's for Poisson sampling.")
    sampler = CanarySampler(loader.batch_sampler)
    longer: DataLoader[Any] = copy.copy(loader)
    vars(longer)["batch_sampler"] = sampler  # a loader refuses a new sampler by its usual door
    return longer, sampler
