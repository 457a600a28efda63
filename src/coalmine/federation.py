"""The round loop of federated averaging with canaries among the clients (Algorithms 2 and 3 of the one-shot papers).

    paper        here                          meaning
    theta_t      state["parameters"]           the model
    PROJ         mechanism.client, .cut        clipping, of clients and of canaries
    rho_t        Round.release                 the noisy mean
    n            public.denominator            the expected cohort, canaries included
    c_j          plants.canaries               what canary clients send, over-long, so that the code under audit must cut it

A round is a pure function of the state before it and of the seeds: whoever has both can go on from any round and gets the same
bits, with any number of workers. Clients are cut into groups by their place in the cohort; a group's result depends on the
group alone; sums are order-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from coalmine._random import stream
from coalmine.canaries.schedule import Schedule
from coalmine.clients import LocalTraining, Trainer, quiet_threads
from coalmine.contracts import (
    Array,
    Canaries,
    Contribution,
    IndexArray,
    Mechanism,
    Public,
    Release,
    Server,
    State,
    Streams,
    Vector,
)
from coalmine.data.dataset import FederatedDataset
from coalmine.errors import NonFiniteError
from coalmine.mechanisms.gaussian import length
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.models import Model
from coalmine.participation import FixedSize, Participation, Poisson
from coalmine.workers import Workers

_GROUPS = 48  # work items of a round, at most: enough to keep workers evenly busy, few enough that moving sums costs little
_SHARDS = 8  # work items of an evaluation
_ROUNDING = 1e-4  # of a clip norm, by which a canary may differ from what clipping by its length makes of it
_DIVERGED = 2.0  # how much larger the last losses are than the first
OVER_LONG = 1e4  # clip norms: a canary that already has the clip norm is blind to clipping bugs


@dataclass(frozen=True, eq=False)
class CanarySetup:
    """The canaries of a run: directions, rounds and coins, and how they join."""

    canaries: Canaries
    schedule: Schedule
    as_vectors: bool = False  # each as a full vector through the clients' door; else by the fast path, where clipping allows
    replace: bool = False  # a canary takes the place of a client
    over_long: float = OVER_LONG
    examples: int = 1  # how many a canary says it has: the largest number a client may have, for code that weighs by it


@dataclass(frozen=True, eq=False)
class Federation:
    """Everything about a training run that is fixed before it."""

    model: Model
    data: FederatedDataset
    training: LocalTraining
    participation: Participation
    rounds: int
    mechanism: Mechanism
    server: Server
    held_out: FederatedDataset | None = None  # for evaluations
    canary_setup: CanarySetup | None = None
    seed: int = 0  # public: initialisation, order of a client's examples, public sampling
    secret: Streams = field(default=partial(stream, 0), repr=False)  # noise, and sampling where privacy rests on it

    def __post_init__(self) -> None:
        if not self.denominator > 0:
            raise ValueError("nobody takes part in any round: neither clients nor canaries of their own.")

    @property
    def denominator(self) -> float:
        """The expected cohort, canaries included."""
        clients = self.participation.expected_size(len(self.data), self.rounds)
        added = self.canary_setup.schedule.expected_size if self.canary_setup and not self.canary_setup.replace else 0.0
        return clients + added

    @property
    def noise_multiplier(self) -> float:
        """What the accountant is told."""
        return self.mechanism.noise_multiplier

    @property
    def initial(self) -> Vector:
        """The parameters before the first round."""
        return self.model.initial(self.seed)

    def start(self) -> State:
        """The state before the first round."""
        dim = self.model.dim
        return {
            "parameters": self.initial,
            **{f"mechanism.{name}": value for name, value in self.mechanism.init(dim).items()},
            **{f"server.{name}": value for name, value in self.server.init(dim).items()},
        }

    def work(self) -> Work:
        """What workers need to know."""
        return Work(self.model, self.training, self.data, self.held_out, self.mechanism, self.seed)

    @cached_property
    def _group_size(self) -> int:
        return Trainer(self.model, self.training).group_size

    def rounds_from(self, number: int, state: State, workers: Workers[Group | Evaluate, Outcome]) -> Iterator[Round]:
        """Round after round, from `number` on."""
        secret = isinstance(self.participation, (Poisson, FixedSize))  # amplification rests on nobody knowing who took part
        streams = partial(self.secret, "cohorts") if secret else partial(stream, self.seed, "cohorts")
        cohorts = self.participation.cohorts(len(self.data), self.rounds, streams, start=number)
        for place, cohort in enumerate(cohorts, start=number):
            done = self._round(place, state, cohort, workers)
            state = done.state
            yield done

    def evaluate(self, parameters: Vector, workers: Workers[Group | Evaluate, Outcome]) -> Array:
        """A row for every held-out user: sum of losses, their number, right predictions, predictions that count."""
        users = self.held_out.users if self.held_out is not None else ()
        size = max(1, -(-len(users) // _SHARDS))
        tasks = [Evaluate(parameters, users[first : first + size]) for first in range(0, len(users), size)]
        return np.concatenate([np.zeros((0, 4)), *(outcome.values for outcome in workers.map(tasks))])

    def _round(self, number: int, state: State, cohort: IndexArray, workers: Workers[Group | Evaluate, Outcome]) -> Round:
        public = self.mechanism.announce(_part(state, "mechanism"), number, self.denominator)
        taking_part = self.canary_setup.schedule.taking_part(number) if self.canary_setup else np.zeros(0, np.int64)
        if self.canary_setup and self.canary_setup.replace and taking_part.size:
            leaving = self.secret("replaced", number).permutation(cohort.size)[: taking_part.size]
            cohort = np.delete(cohort, leaving)
        outcomes = workers.map(self._groups(cohort, state["parameters"], public))
        total = FixedPointSum(self.model.dim, public.clip_norm)
        for outcome in outcomes:
            total.merge(outcome.total)
        clients = total.vector()
        below_clients = total.below
        own = _plant(total, self.canary_setup, taking_part, self.mechanism, public) if self.canary_setup else np.zeros(0)
        release, mechanism = self.mechanism.release(_part(state, "mechanism"), total, public, self.secret)
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at next
            step, server = self.server.step(_part(state, "server"), release.vector)
            parameters = state["parameters"] + step
        if not (np.isfinite(parameters.min()) and np.isfinite(parameters.max())):
            raise NonFiniteError(f"round {number}: the model is not finite after the server's step. Lower the learning rates.")
        after = {
            "parameters": parameters,
            **{f"mechanism.{name}": value for name, value in mechanism.items()},
            **{f"server.{name}": value for name, value in server.items()},
        }
        losses = np.concatenate([outcome.values for outcome in outcomes]) if outcomes else np.zeros((0, 3))
        record = {
            "clients": int(cohort.size),
            "canaries": int(taking_part.size),
            "canary_share": taking_part.size / max(cohort.size + taking_part.size, 1),
            "clip_norm": public.clip_norm,
            "denominator": release.denominator,
            "unclipped_clients": below_clients / max(int(cohort.size), 1),
            "unclipped_with_canaries": total.below / max(total.count, 1),
            "clients_norm": length(clients) / public.clip_norm,
            "release_norm": length(release.vector),
            "training_loss": float(losses[:, 0].mean()) if losses.size else None,
            "examples": int(losses[:, 2].sum()),
        }
        divisor = release.denominator
        schedule = RoundCanaries(taking_part, own / divisor, (total.vector() - clients) / divisor)
        return Round(number, after, release, clients / divisor, schedule, step, record)

    def _groups(self, cohort: IndexArray, parameters: Vector, public: Public) -> list[Group]:
        users = [self.data.users[place] for place in cohort]
        groups = min(max(1, -(-len(users) // self._group_size)), _GROUPS)
        size = max(1, -(-len(users) // groups))
        return [Group(public, parameters, tuple(users[first : first + size])) for first in range(0, len(users), size)]


@dataclass(frozen=True, eq=False)
class RoundCanaries:
    """The canaries of a round: which, what each added to its own inner product with the release, and their part of it."""

    indices: IndexArray
    own: Array
    part: Array


@dataclass(frozen=True, eq=False)
class Round:
    """What a round left behind. `others` is the clients' part of the release, which only `KnownOthers` may subtract."""

    number: int
    state: State
    release: Release
    others: Array
    taking_part: RoundCanaries
    step: Vector
    record: dict[str, float | int | None]


@dataclass(frozen=True, eq=False)
class Group:
    """A task: train these users and sum what they contribute."""

    public: Public
    parameters: Vector
    users: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Evaluate:
    """A task: how well the model predicts for these held-out users."""

    parameters: Vector
    users: tuple[str, ...]


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

    def prepare(self) -> None:
        """One thread for each worker: two workers with two threads each would be in each other's way."""
        quiet_threads()

    @cached_property
    def trainer(self) -> Trainer:
        """Made where it is used: a module of torch does not travel."""
        return Trainer(self.model, self.training)

    def __call__(self, task: Group | Evaluate) -> Outcome:
        """One task."""
        return self._evaluate(task) if isinstance(task, Evaluate) else self._train(task)

    def _train(self, task: Group) -> Outcome:
        total = FixedPointSum(self.model.dim, task.public.clip_norm)
        cohort = [self.data.examples_of(user) for user in task.users]
        orders = [stream(self.seed, "order of examples", task.public.round, user) for user in task.users]
        rows = []
        for user, own, update in zip(task.users, cohort, self.trainer.updates(task.parameters, cohort, orders), strict=True):
            try:
                total.add(self.mechanism.client(update.vector, task.public, len(own)))
            except NonFiniteError as error:
                raise NonFiniteError(
                    f"round {task.public.round}, client {user!r}: {str(error).rstrip('.')}. Nothing of this round was "
                    "released. Lower the client's learning rate, or look at this client's data."
                ) from None
            rows.append((update.loss, update.steps, update.examples))
        return Outcome(total, np.array(rows, dtype=np.float64))

    def _evaluate(self, task: Evaluate) -> Outcome:
        data = self.held_out
        found = (
            [self.trainer.evaluate(task.parameters, data.examples_of(user)) for user in task.users] if data is not None else []
        )
        rows = [(each.loss_sum, each.terms, each.correct, each.counted) for each in found]
        return Outcome(FixedPointSum(0, 1.0), np.array(rows, dtype=np.float64))


def diverged(records: Sequence[Mapping[str, Any]], *, adaptive: bool) -> str | None:
    """What to say of a training that ended worse than it began, by the losses that clients report; None if it did not."""
    with_loss = [record for record in records if record.get("training_loss") is not None]
    losses = [float(record["training_loss"]) for record in with_loss]
    part = max(len(losses) // 10, 3)
    if len(losses) < 2 * part:
        return None
    begun, ended = (float(np.median(some)) for some in (losses[:part], losses[-part:]))
    if not (begun > 0 and ended > _DIVERGED * begun):
        return None
    said = f"diverged: the clients' loss rose from {begun:.3g} to {ended:.3g}, so that the model is worse than at its start. "
    if adaptive:
        clips = [float(record["clip_norm"]) for record in (with_loss[0], with_loss[-1])]
        said += f"The clip norm went from {clips[0]:.3g} to {clips[1]:.3g}: it follows long updates, and the noise follows it."
        said += " Fix it, or lower"
    else:
        said += "Lower"
    return f"{said} the learning rates, take more clients a round, or less noise"


def _plant(
    total: FixedPointSum, canary_setup: CanarySetup, taking_part: IndexArray, mechanism: Mechanism, public: Public
) -> Array:
    """Add the round's canaries; returns the inner product of each with its own contribution.

    The first always travels as a full vector through the clients' door. If what comes out is what `cut` says, the others follow
    by one transform; if it is not, or clipping is no function of the length, each of them goes through the door as well.
    """
    own = np.empty(taking_part.size)
    fast = None if canary_setup.as_vectors else mechanism.cut(canary_setup.over_long * public.clip_norm, public)
    for place, index in enumerate(taking_part):
        canary = canary_setup.canaries.update(int(index))
        sent = canary * np.float32(canary_setup.over_long * public.clip_norm / canary_setup.canaries.norm)
        contribution = mechanism.client(sent, public, canary_setup.examples)
        total.add(contribution)
        unit = canary.astype(np.float64) / canary_setup.canaries.norm
        own[place] = float(np.einsum("i,i->", unit, contribution.vector, dtype=np.float64))
        if fast is not None and _as_said(contribution, unit, fast, public):
            rest = taking_part[place + 1 :]
            together = canary_setup.canaries.combine(rest, np.full(rest.size, fast / canary_setup.canaries.norm))
            total.add_vector(together, count=int(rest.size), below=int(rest.size) if contribution.below else 0)
            own[place + 1 :] = fast
            break
    return own


def _as_said(contribution: Contribution, unit: Array, kept: float, public: Public) -> bool:
    """Whether a canary came out of the door as long as clipping by its length makes it, in its own direction."""
    return length(contribution.vector - kept * unit) <= _ROUNDING * max(kept, public.clip_norm)


def _part(state: State, name: str) -> State:
    """The entries of one part of the state, without its name."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
