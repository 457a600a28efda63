"""The work of a round that processes share: local training, clipping and a sum; or an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from coalmine._random import stream
from coalmine.clients import LocalTraining, Trainer, quiet_threads
from coalmine.conformance import compare, compare_examples
from coalmine.contracts import Array, Compared, Contribution, Description, LowRank, Mechanism, Public, Streams, Vector
from coalmine.data.dataset import Examples, FederatedDataset
from coalmine.errors import CoalmineError, NonFiniteError
from coalmine.mechanisms.covariance import ExampleNoise, added
from coalmine.mechanisms.gaussian import length
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.models import Model


@dataclass(frozen=True, eq=False)
class ClientBatch:
    """A task: train these users and sum what they contribute."""

    public: Public
    parameters: Vector
    users: tuple[str, ...]
    compared: tuple[int, ...] = ()  # places of users whose contributions are compared with the clip of their updates
    guests: Mapping[str, Examples] = field(default_factory=dict)  # users that are no users of the data: crafted canaries
    covariance: bool = False  # whether the covariance of their noise is asked for, which depends on their data


@dataclass(frozen=True, eq=False)
class Evaluate:
    """A task: how well the model predicts for these held-out users."""

    parameters: Vector
    users: tuple[str, ...]
    public: ClassVar[None] = None  # nothing is announced for it


@dataclass(frozen=True, eq=False)
class Outcome:
    """A group's sum and, a row for every user, (loss, steps, examples); or the rows of an evaluation.

    `compared` has a row (sent, kept, difference) for every contribution that was looked at; `unclipped` is how many updates
    were no longer than the clip norm, counted here and not by the mechanism, where a quantile follows it.
    """

    total: FixedPointSum
    values: Array
    compared: Array = field(default_factory=lambda: np.zeros((0, 3)))
    unclipped: int = 0
    covariance: LowRank | None = None  # of these users' noise together


class Takes(Protocol):
    """A sum, or whatever else looks at every contribution."""

    def add(self, contribution: Contribution) -> None:
        """One more client."""


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
        quiet_threads(self.model.dim)

    @cached_property
    def trainer(self) -> Trainer:
        """Made where it is used: a module of torch does not travel."""
        return Trainer(self.model, self.training)

    def __call__(self, task: ClientBatch | Evaluate) -> Outcome:
        """One task."""
        if isinstance(task, Evaluate):
            return self._evaluate(task)
        total = self.nothing(task)
        return replace(self.fold(total, task), total=total)

    def nothing(self, task: ClientBatch) -> FixedPointSum:
        """An empty sum for the clients of a round."""
        return FixedPointSum(self.model.dim, task.public.clip_norm)

    def fold(self, total: Takes, task: ClientBatch) -> Outcome:
        """The clients of a task are added to `total`; what is left is small."""
        cohort = [task.guests[user] if user in task.guests else self.data.examples_of(user) for user in task.users]
        orders = [stream(self.seed, "order of examples", task.public.round, user) for user in task.users]
        rows, compared, unclipped, noises = [], [], 0, []
        trained = self.trainer.updates(task.parameters, cohort, orders)
        for place, (user, own, update) in enumerate(zip(task.users, cohort, trained, strict=True)):
            looked_at = place in task.compared
            before = update.vector.copy() if looked_at else update.vector  # code under audit may write into what it is given
            unclipped += self._counts and length(before) <= task.public.clip_norm
            try:
                streams = None if self.secret is None else partial(self.secret, "noise of a client", task.public.round, user)
                single = self.trainer.single_updates(task.parameters, own) if self.described.examples is not None else None
                if task.covariance and single is not None:
                    noises.append(ExampleNoise.of(self.described).covariance(single))
                kept_rows = single.copy() if looked_at and single is not None else single
                contribution = contribute(self.mechanism, update.vector, task.public, len(own), streams, single)
                if looked_at and (found := self._looked_at(before, kept_rows, contribution, task.public)):
                    compared.append((found.sent, found.kept, found.difference))
                total.add(contribution)
            except NonFiniteError as error:
                raise NonFiniteError(
                    f"round {task.public.round}, client {user!r}: {str(error).rstrip('.')}. Nothing of this round was "
                    "released. Lower the client's learning rate, or look at this client's data."
                ) from None
            rows.append((update.loss, update.steps, update.examples))
        kept = FixedPointSum(0, task.public.clip_norm)  # the sum itself is in `total`
        together = added(noises, self.model.dim) if task.covariance else None
        return Outcome(kept, np.array(rows, dtype=np.float64), np.array(compared).reshape(-1, 3), unclipped, together)

    def _looked_at(
        self, update: Vector, rows: NDArray[np.float32] | None, contribution: Contribution, public: Public
    ) -> Compared | None:
        """A client's contribution beside what the description makes of its update, or of its single examples."""
        examples = self.described.examples
        if rows is None or examples is None or self.described.clip.over != "example":
            return look(self.described, update, contribution, public, self.model.groups)
        if examples.weights != "equal":
            return None
        vector = contribution.vector if contribution.without_noise is None else contribution.without_noise
        return compare_examples(rows, vector, public.clip_norm, examples.count)

    @cached_property
    def described(self) -> Description:
        """What the mechanism says of itself."""
        return self.mechanism.describe()

    @cached_property
    def _counts(self) -> bool:
        """Whether a clip norm follows the number of unclipped updates."""
        return bool(self.described.extras)

    def _evaluate(self, task: Evaluate) -> Outcome:
        data = self.held_out
        found = (
            [self.trainer.evaluate(task.parameters, data.examples_of(user)) for user in task.users] if data is not None else []
        )
        rows = [(each.loss_sum, each.terms, each.correct, each.counted) for each in found]
        return Outcome(FixedPointSum(0, 1.0), np.array(rows, dtype=np.float64))


def summed(workers: Any, tasks: Sequence[ClientBatch], total: FixedPointSum) -> list[Outcome]:
    """The outcomes of the tasks, whose sums are added to `total`: by the workers, or here where they cannot do that."""
    if hasattr(workers, "fold"):
        outcomes: list[Outcome] = workers.fold(tasks, total)
        return outcomes
    outcomes = workers.map(tasks)
    for outcome in outcomes:
        total.merge(outcome.total)
    return outcomes


class OneSet:
    """Workers that start when they are first needed, and go on with one job after the other where they can."""

    def __init__(self, make_workers: Callable[..., Any], count: int):
        self._make, self._count = make_workers, count
        self._open, self._workers = ExitStack(), None

    def __enter__(self) -> OneSet:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def of(self, work: Work) -> Any:
        """Workers for this job."""
        if self._workers is not None and hasattr(self._workers, "give"):
            self._workers.give(work)
            return self._workers
        self._open.close()
        self._workers = self._open.enter_context(self._make(self._count, work))
        return self._workers


def look(
    described: Description,
    update: Vector,
    contribution: Contribution,
    public: Public,
    groups: Mapping[str, slice],
    *,
    canary: bool = False,
) -> Compared | None:
    """A contribution beside what the description makes of its update; noise that the client added is left out."""
    vector = contribution.vector if contribution.without_noise is None else contribution.without_noise
    return compare(update, vector, described.clip, public.clip_norm, groups, canary=canary)


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
        found = mechanism.client(update, public, examples, own=own, secret=secret)  # type: ignore[call-arg]
    elif secret is None:
        found = mechanism.client(update, public, examples)
    else:
        found = mechanism.client(update, public, examples, secret=secret)  # type: ignore[call-arg]
    if not isinstance(found, Contribution) or np.shape(found.vector) != update.shape:
        came = f"a vector of shape {np.shape(found.vector)}" if isinstance(found, Contribution) else f"{found!r:.60}"
        raise CoalmineError(
            f"{type(mechanism).__name__}.client gave {came}; it must return a Contribution (coalmine.contracts) whose vector "
            f"has the shape of the update, {update.shape}."
        )
    if np.asarray(found.vector).dtype.kind not in "biuf":
        raise CoalmineError(
            f"{type(mechanism).__name__}.client gave a vector of {np.asarray(found.vector).dtype}; it must be of real numbers."
        )
    return found
