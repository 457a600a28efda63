"""The round loop of federated averaging with canaries among the clients (Algorithms 2 and 3 of the one-shot papers).

    paper        here                          meaning
    theta_t      state["parameters"]           the model
    PROJ         mechanism.client              clipping, of clients and of canaries
    rho_t        observed.release              the noisy mean
    n            public.denominator            the expected cohort, canaries included
    c_j          canary_setup.canaries         what canary clients send, over-long, so that the code under audit clips it

A round is a pure function of the state before it and of the seeds: whoever has both can go on from any round and gets the same
bits, with any number of workers. Clients are cut into groups by their place in the cohort; a group's result depends on the
group alone; sums are order-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from coalmine._random import stream
from coalmine.canaries.setup import CanarySetup
from coalmine.clients import LocalTraining, Trainer
from coalmine.contracts import (
    Array,
    ByClients,
    Contribution,
    IndexArray,
    Mechanism,
    Observed,
    Participation,
    Public,
    RoundCanaries,
    ServerOptimiser,
    State,
    Streams,
    Vector,
)
from coalmine.data.dataset import FederatedDataset
from coalmine.errors import NonFiniteError
from coalmine.mechanisms.gaussian import length
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.models import Model
from coalmine.training.work import ClientBatch, Evaluate, Outcome, Work, contribute
from coalmine.workers import Workers

_GROUPS = 48  # work items of a round, at most: enough to keep workers evenly busy, few enough that moving sums costs little
_SHARDS = 8  # work items of an evaluation
_ROUNDING = 1e-4  # of a clip norm, by which a canary may differ from what clipping by its length makes of it


@dataclass(frozen=True, eq=False)
class Federation:
    """Everything about a training run that is fixed before it."""

    model: Model
    data: FederatedDataset
    training: LocalTraining
    participation: Participation
    rounds: int
    mechanism: Mechanism
    server: ServerOptimiser
    held_out: FederatedDataset | None = None  # for evaluations
    canary_setup: CanarySetup | None = None
    seed: int = 0  # public: initialisation, order of a client's examples, public sampling
    secret: Streams = field(default=partial(stream, 0), repr=False)  # noise, and sampling where privacy rests on it

    def __post_init__(self) -> None:
        if not self.denominator > 0:
            raise ValueError("nobody takes part in any round: neither clients nor canaries of their own.")
        if self.mechanism.describe().clip.over == "example":
            raise ValueError("a mechanism that clips single examples needs their gradients, which this trainer does not make.")

    @property
    def denominator(self) -> float:
        """The expected cohort, canaries included."""
        clients = self.participation.expected_size(len(self.data), self.rounds)
        added = self.canary_setup.schedule.expected_size if self.canary_setup and not self.canary_setup.replace else 0.0
        return clients + added

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
        secret = self.secret if self._noise_of_clients else None
        return Work(self.model, self.training, self.data, self.held_out, self.mechanism, self.seed, secret)

    @cached_property
    def _noise_of_clients(self) -> bool:
        noise = self.mechanism.describe().noise
        return noise is not None and isinstance(noise.added_by, ByClients)

    def without_noise_and_canaries(self) -> Federation:
        """The same training for comparison: what the privacy and the audit cost in accuracy."""
        return replace(self, mechanism=self.mechanism.without_noise(), canary_setup=None)

    @cached_property
    def _group_size(self) -> int:
        return Trainer(self.model, self.training).group_size

    def rounds_from(self, number: int, state: State, workers: Workers[ClientBatch | Evaluate, Outcome]) -> Iterator[Round]:
        """Round after round, from `number` on."""
        secret = self.participation.sampling is not None  # amplification rests on nobody knowing who took part
        streams = partial(self.secret, "cohorts") if secret else partial(stream, self.seed, "cohorts")
        cohorts = self.participation.cohorts(len(self.data), self.rounds, streams, start=number)
        for place, cohort in enumerate(cohorts, start=number):
            done = self._round(place, state, cohort, workers)
            state = done.state
            yield done

    def evaluate(self, parameters: Vector, workers: Workers[ClientBatch | Evaluate, Outcome]) -> Array:
        """A row for every held-out user: sum of losses, their number, right predictions, predictions that count."""
        users: Sequence[str] = self.held_out.users if self.held_out is not None else ()
        size = max(1, -(-len(users) // _SHARDS))
        tasks = [Evaluate(parameters, tuple(users[first : first + size])) for first in range(0, len(users), size)]
        return np.concatenate([np.zeros((0, 4)), *(outcome.values for outcome in workers.map(tasks))])

    def _round(self, number: int, state: State, cohort: IndexArray, workers: Workers[ClientBatch | Evaluate, Outcome]) -> Round:
        public = self.mechanism.announce(_part(state, "mechanism"), number, self.denominator)
        taking_part = self.canary_setup.schedule.taking_part(number) if self.canary_setup else np.zeros(0, np.int64)
        if self.canary_setup and self.canary_setup.replace and taking_part.size:
            leaving = self.secret("replaced", number).permutation(cohort.size)[: taking_part.size]
            cohort = np.delete(cohort, leaving)
        outcomes = workers.map(self._groups(cohort, state["parameters"], public))
        total = FixedPointSum(self.model.dim, public.clip_norm)
        for outcome in outcomes:
            total.merge(outcome.total)
        clients = total.without_noise()
        unclipped_clients = total.unclipped
        own = self._plant(total, taking_part, public)
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
            "unclipped_clients": unclipped_clients / max(int(cohort.size), 1),
            "unclipped_with_canaries": total.unclipped / max(total.count, 1),
            "clients_norm": length(clients) / public.clip_norm,
            "release_norm": length(release.vector),
            "training_loss": float(losses[:, 0].mean()) if losses.size else None,
            "examples": int(losses[:, 2].sum()),
        }
        divisor = release.denominator
        observed = Observed(
            round=number,
            release=release,
            canaries=RoundCanaries(taking_part, own / divisor, (total.without_noise() - clients) / divisor),
            others=clients / divisor,
            step=step,
            public=public,
            record=record,
        )
        return Round(observed, after)

    def _plant(self, total: FixedPointSum, taking_part: IndexArray, public: Public) -> Array:
        """Add the round's canaries; returns the inner product of each with its own contribution.

        The first always passes as a full vector through the code of a client. If what comes out is what clipping of whole
        updates makes of it, the others follow by one transform; if it is not, or the mechanism does not clip whole updates,
        each of them passes through that code as well.
        """
        own, setup = np.empty(taking_part.size), self.canary_setup
        if setup is None:
            return own
        canaries, whole = setup.canaries, self.mechanism.describe().clip.over == "update"
        fast = setup.kept * public.clip_norm if whole and not setup.full_vectors else None
        for place, index in enumerate(taking_part):
            canary = canaries.update(int(index))
            sent = canary * np.float32(setup.canary_norm * public.clip_norm / canaries.norm)
            secret = partial(self.secret, "noise of a canary", public.round, int(index)) if self._noise_of_clients else None
            contribution = contribute(self.mechanism, sent, public, setup.examples, secret)
            total.add(contribution)
            unit = canary.astype(np.float64) / canaries.norm
            added = contribution.vector if contribution.without_noise is None else contribution.without_noise
            own[place] = float(np.einsum("i,i->", unit, added, dtype=np.float64))
            if fast is not None and _as_said(contribution, unit, fast, public):
                rest = taking_part[place + 1 :]
                together = canaries.combine(rest, np.full(rest.size, fast / canaries.norm))
                total.add_vector(together, count=int(rest.size), unclipped=int(rest.size) if contribution.unclipped else 0)
                own[place + 1 :] = fast
                break
        return own

    def _groups(self, cohort: IndexArray, parameters: Vector, public: Public) -> list[ClientBatch]:
        users = [self.data.users[place] for place in cohort]
        groups = min(max(1, -(-len(users) // self._group_size)), _GROUPS)
        size = max(1, -(-len(users) // groups))
        return [ClientBatch(public, parameters, tuple(users[first : first + size])) for first in range(0, len(users), size)]


@dataclass(frozen=True, eq=False)
class Round:
    """What a round left behind: what an audit may look at, and what the trainer goes on from."""

    observed: Observed
    state: State

    @property
    def number(self) -> int:
        """The number of the round."""
        return self.observed.round


def _as_said(contribution: Contribution, unit: Array, kept: float, public: Public) -> bool:
    """Whether a canary came out of the door as long as clipping by its length makes it, in its own direction."""
    return length(contribution.vector - kept * unit) <= _ROUNDING * max(kept, public.clip_norm)


def _part(state: State, name: str) -> State:
    """The entries of one part of the state, without its name."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
