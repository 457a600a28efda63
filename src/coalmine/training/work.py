"""The work of a round that processes share: local training, clipping and a sum; or an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from coalmine._random import stream
from coalmine.clients import LocalTraining, Trainer, quiet_threads
from coalmine.clients.local_training import Update
from coalmine.contracts import Array, Contribution, Mechanism, Public, Streams, Vector
from coalmine.data.dataset import Examples, FederatedDataset
from coalmine.errors import NonFiniteError
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.models import Model


@dataclass(frozen=True, eq=False)
class ClientBatch:
    """A task: train these users and sum what they contribute."""

    public: Public
    parameters: Vector
    users: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Evaluate:
    """A task: how well the model predicts for these held-out users."""

    parameters: Vector
    users: tuple[str, ...]
    public: ClassVar[None] = None  # nothing is announced for it


@dataclass(frozen=True, eq=False)
class Outcome:
    """A group's sum and, a row for every user, (loss, steps, examples); or the rows of an evaluation."""

    total: FixedPointSum
    values: Array


@dataclass(frozen=True, eq=False)
class Work:
    """The job of the workers: local training, clipping, and a sum; or an evaluation."""

    model: Model
    training: LocalTraining
    data: FederatedDataset
    held_out: FederatedDataset | None
    mechanism: Mechanism
    seed: int
    secret: Streams | None = None  # where clients add the noise; else workers know nothing secret

    def prepare(self) -> None:
        """One thread for each worker: two workers with two threads each would be in each other's way."""
        quiet_threads()

    @cached_property
    def trainer(self) -> Trainer:
        """Made where it is used: a module of torch does not travel."""
        return Trainer(self.model, self.training)

    def __call__(self, task: ClientBatch | Evaluate) -> Outcome:
        """One task."""
        return self._evaluate(task) if isinstance(task, Evaluate) else self._train(task)

    def _train(self, task: ClientBatch) -> Outcome:
        total = FixedPointSum(self.model.dim, task.public.clip_norm)
        cohort = [self.data.examples_of(user) for user in task.users]
        rows = []
        for user, own, update in zip(task.users, cohort, self._updates(task, cohort), strict=True):
            try:
                streams = None if self.secret is None else partial(self.secret, "noise of a client", task.public.round, user)
                single = self.trainer.single_updates(task.parameters, own) if self._of_examples else None
                total.add(contribute(self.mechanism, update.vector, task.public, len(own), streams, single))
            except NonFiniteError as error:
                raise NonFiniteError(
                    f"round {task.public.round}, client {user!r}: {str(error).rstrip('.')}. Nothing of this round was "
                    "released. Lower the client's learning rate, or look at this client's data."
                ) from None
            rows.append((update.loss, update.steps, update.examples))
        return Outcome(total, np.array(rows, dtype=np.float64))

    @cached_property
    def _of_examples(self) -> bool:
        return self.mechanism.describe().examples is not None

    def _updates(self, task: ClientBatch, cohort: Sequence[Examples]) -> Iterator[Update]:
        """The update of each client; where single examples are protected, that of one step over all of them."""
        orders = [stream(self.seed, "order of examples", task.public.round, user) for user in task.users]
        return self.trainer.updates(task.parameters, cohort, orders)

    def _evaluate(self, task: Evaluate) -> Outcome:
        data = self.held_out
        found = (
            [self.trainer.evaluate(task.parameters, data.examples_of(user)) for user in task.users] if data is not None else []
        )
        rows = [(each.loss_sum, each.terms, each.correct, each.counted) for each in found]
        return Outcome(FixedPointSum(0, 1.0), np.array(rows, dtype=np.float64))


def contribute(
    mechanism: Mechanism,
    update: Vector,
    public: Public,
    examples: int,
    secret: Streams | None,
    own: NDArray[np.float32] | None = None,
) -> Contribution:
    """What a client, or a canary, adds to the sum.

    `secret` where the mechanism has clients add the noise; `own`, a row for every example, where it protects these.
    """
    if own is not None:
        return mechanism.client(update, public, examples, own=own, secret=secret)  # type: ignore[call-arg]
    if secret is None:
        return mechanism.client(update, public, examples)
    return mechanism.client(update, public, examples, secret=secret)  # type: ignore[call-arg]
