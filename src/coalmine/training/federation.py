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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import repeat

import numpy as np

from coalmine._random import stream
from coalmine.canaries.setup import CanarySetup
from coalmine.clients import LocalTraining, Trainer
from coalmine.contracts import (
    Array,
    ByClients,
    Compared,
    Description,
    IndexArray,
    Mechanism,
    Observed,
    Participation,
    Public,
    ServerOptimiser,
    State,
    Streams,
    Vector,
)
from coalmine.data.dataset import Examples, FederatedDataset
from coalmine.errors import NonFiniteError
from coalmine.mechanisms.gaussian import length
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.models import Model
from coalmine.training.answers import public_of, released, state_of
from coalmine.training.guests import NOBODY, Guests
from coalmine.training.inserted import ENOUGH, InsertedCanaries
from coalmine.training.known_noise import KnownNoise
from coalmine.training.trials import Trials
from coalmine.training.work import ClientBatch, Evaluate, Outcome, Work, summed
from coalmine.workers import Workers

_GROUPS = 48  # work items of a round, at most: enough to keep workers evenly busy, few enough that moving sums costs little
_SHARDS = 8  # work items of an evaluation
ALL_COMPARED = 100  # clients of a round, up to which every contribution is compared with the clip of its update
_HANDFUL = 8  # of a larger round at least


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
    guests_at: Callable[[int, State], Guests | None] | None = field(default=None, repr=False)  # data canaries of a round

    def __post_init__(self) -> None:
        if not self.denominator > 0:
            raise ValueError("nobody takes part in any round: neither clients nor canaries of their own.")
        said = self.mechanism.describe()
        if said.clip.over == "example" and said.examples is None:
            raise ValueError("a mechanism that clips single examples must say in its description what they have to do with it.")

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
            **{
                f"mechanism.{name}": value for name, value in state_of(self.mechanism, self.mechanism.init(dim), "init").items()
            },
            **{f"server.{name}": value for name, value in self.server.init(dim).items()},
        }

    def work(self) -> Work:
        """What workers need to know."""
        secret = self.secret if self._noise_of_clients else None
        return Work(self.model, self.training, self.data, self.held_out, self.mechanism, self.seed, secret)

    @cached_property
    def described(self) -> Description:
        """What the mechanism says of itself."""
        return self.mechanism.describe()

    @cached_property
    def _noise_of_clients(self) -> bool:
        noise = self.described.noise
        return noise is not None and isinstance(noise.added_by, ByClients)

    @property
    def _noise_of_canaries(self) -> bool:
        """Whether canaries add noise on which no claim counts: not where they take the places of clients."""
        return self._noise_of_clients and self.canary_setup is not None and not self.canary_setup.replace

    @cached_property
    def _known(self) -> KnownNoise:
        return KnownNoise(self.canary_setup, self.mechanism, self.secret)

    def without_noise_and_canaries(self) -> Federation:
        """The same training for comparison: what the privacy and the audit cost in accuracy."""
        return replace(self, mechanism=self.mechanism.without_noise(), canary_setup=None)

    @cached_property
    def _inserted(self) -> InsertedCanaries | None:
        if self.canary_setup is None:
            return None
        groups = self.model.groups
        return InsertedCanaries(self.canary_setup, self.mechanism, self.described, groups, self.secret, self._noise_of_clients)

    @cached_property
    def _group_size(self) -> int:
        return Trainer(self.model, self.training).group_size

    def rounds_from(
        self, number: int, state: State, workers: Workers[ClientBatch | Evaluate, Outcome]
    ) -> Iterator[RoundResult]:
        """Round after round, from `number` on."""
        secret = self.participation.sampling is not None  # amplification rests on nobody knowing who took part
        streams = partial(self.secret, "cohorts") if secret else partial(stream, self.seed, "cohorts")
        cohorts = self.participation.cohorts(len(self.data), self.rounds, streams, start=number)
        again: Iterator[IndexArray | None] = repeat(None)
        if secret and self.canary_setup:  # who could be computed without the secret comes out the same under another one
            streams = partial(self.secret, "cohorts drawn again")
            again = iter(self.participation.cohorts(len(self.data), self.rounds, streams, start=number))
        for place, cohort in enumerate(cohorts, start=number):
            done = self._round(place, state, cohort, workers)
            done = replace(done, observed=replace(done.observed, cohort_again=next(again, None)))
            state = done.state
            yield done
            del done  # its vectors are not kept while the next round is made

    def evaluate(self, parameters: Vector, workers: Workers[ClientBatch | Evaluate, Outcome]) -> Array:
        """A row for every held-out user: sum of losses, their number, right predictions, predictions that count."""
        users: Sequence[str] = self.held_out.users if self.held_out is not None else ()
        size = max(1, -(-len(users) // _SHARDS))
        tasks = [Evaluate(parameters, tuple(users[first : first + size])) for first in range(0, len(users), size)]
        return np.concatenate([np.zeros((0, 4)), *(outcome.values for outcome in workers.map(tasks))])

    def _round(
        self, number: int, state: State, cohort: IndexArray, workers: Workers[ClientBatch | Evaluate, Outcome]
    ) -> RoundResult:
        guests = NOBODY if self.guests_at is None else self.guests_at(number, state) or NOBODY
        announced = self.mechanism.announce(_part(state, "mechanism"), number, self.denominator + guests.expected)
        public = public_of(self.mechanism, announced, number)
        taking_part = self.canary_setup.schedule.taking_part(number) if self.canary_setup else np.zeros(0, np.int64)
        trials = Trials(self.mechanism, self.described, self.rounds, self.model.groups, self.secret)
        tried = list(trials.updates(public, self.model.dim)) if self.canary_setup else []  # before there are other vectors
        drawn, cohort = cohort, self._without_replaced(cohort, taking_part, number)
        total = FixedPointSum(self.model.dim, public.clip_norm)
        users, parameters = [self.data.users[place] for place in cohort], state["parameters"]
        outcomes = summed(workers, self._groups(users, parameters, public), total)
        alone = clients = total.without_noise()
        unclipped_clients, losses = total.unclipped, _losses(outcomes)
        if guests.examples:  # everybody again, beside the guests: what these do to the others is part of what they show
            total, users = FixedPointSum(self.model.dim, public.clip_norm), guests.among(users)
            outcomes = summed(workers, self._groups(users, parameters, public, guests.examples), total)
            clients = total.without_noise()
        counted = total.count, total.unclipped
        compared = [Compared(*row) for outcome in outcomes for row in outcome.compared.tolist()]
        own, looked_at, noise = np.empty(0), list[Compared](), None
        if self._inserted is not None:
            before = total.noise() if self._noise_of_canaries else None
            own, looked_at = self._inserted.plant(total, taking_part, public, compared)
            noise = None if before is None else total.noise() - before
        planted = total.without_noise()  # what was summed, before the code under audit has the sum in its hands
        planted -= clients
        contributors, passed = total.count, total.unclipped
        kept = _part(state, "mechanism")
        answer = self.mechanism.release(kept, total, public, self.secret)
        release, mechanism = released(self.mechanism, answer, number, self.model.dim)
        del total, answer
        bare = again = None
        if number + 1 == self.rounds and self.canary_setup is not None:
            of_canaries = contributors - counted[0], passed - counted[1]
            release = replace(release, vector=release.vector.copy())  # the mechanism may write the next one over it
            bare, again = trials.releases(kept, clients, planted, public, (counted, of_canaries))
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at next
            step, server = self.server.step(_part(state, "server"), release.vector)
            parameters = state["parameters"] + step
        if not (np.isfinite(parameters.min()) and np.isfinite(parameters.max())):
            raise NonFiniteError(
                f"round {number}: the model is not finite after the server's step. "
                "Lower the learning rates, or the noise and the clip norm if these are large."
            )
        after = {
            "parameters": parameters,
            **{f"mechanism.{name}": value for name, value in mechanism.items()},
            **{f"server.{name}": value for name, value in server.items()},
        }
        count = len(users) + int(taking_part.size)
        record = {
            "clients": int(cohort.size),
            "canaries": int(taking_part.size),
            "canary_share": (count - cohort.size) / max(count, 1),  # crafted canaries of the round are counted too
            "clip_norm": public.clip_norm,
            "denominator": release.denominator,
            "unclipped_clients": unclipped_clients / max(int(cohort.size), 1),
            "unclipped_with_canaries": passed / max(contributors, 1),
            "clients_norm": length(alone) / public.clip_norm,
            "release_norm": length(release.vector),
            "training_loss": float(losses[:, 0].mean()) if losses.size else None,
            "examples": int(losses[:, 2].sum()),
        }
        divisor = release.denominator
        beside = (clients - alone, release.vector * np.float64(divisor) - clients - planted) if guests.examples else ()
        planted /= divisor
        clients /= divisor
        observed = Observed(
            round=number,
            release=release,
            canaries=replace(
                self._known.canaries(taking_part, own / divisor, planted, public, outcomes),
                noise=None if noise is None else noise / divisor,
            ),
            covariance=self._known.covariance(outcomes, taking_part),
            others=clients,
            step=step,
            public=public,
            samples=(*looked_at, *compared, *tried),
            cohort=drawn,
            count=count,
            expected=self.denominator + guests.expected,
            unclipped=self._unclipped(outcomes, taking_part.size),
            bare=bare,
            again=again,
            record=record,
        )
        return RoundResult(observed, after, *beside)

    def _groups(
        self, users: Sequence[str], parameters: Vector, public: Public, guests: Mapping[str, Examples] | None = None
    ) -> list[ClientBatch]:
        groups = min(max(1, -(-len(users) // self._group_size)), _GROUPS)
        size = max(1, -(-len(users) // groups))
        compared = self._compared(len(users), public.round)
        return [
            ClientBatch(
                public,
                parameters,
                tuple(users[first : first + size]),
                tuple(place - first for place in compared if first <= place < first + size),
                {user: guests[user] for user in users[first : first + size] if user in guests} if guests else {},
                covariance=self._known.wanted(len(users)),
            )
            for first in range(0, len(users), size)
        ]

    def _compared(self, count: int, number: int) -> list[int]:
        """Whose contributions are compared with the clip of their updates in this round: a secret handful, or all clients."""
        if self.canary_setup is None:
            return []
        if count <= ALL_COMPARED:
            return list(range(count))
        handful = max(_HANDFUL, -(-ENOUGH // self.rounds))
        return sorted(self.secret("looked at", "clients", number).permutation(count)[:handful].tolist())

    def _unclipped(self, outcomes: list[Outcome], canaries: int) -> int | None:
        """Updates no longer than the clip norm, canaries included; None where nothing follows their number."""
        if not self.described.extras:
            return None
        short = self.canary_setup is not None and self.canary_setup.canary_norm <= 1
        return sum(outcome.unclipped for outcome in outcomes) + (canaries if short else 0)

    def _without_replaced(self, cohort: IndexArray, taking_part: IndexArray, number: int) -> IndexArray:
        """The cohort without the clients whose places canaries take, if they do."""
        if self.canary_setup is None or not self.canary_setup.replace or not taking_part.size:
            return cohort
        leaving = self.secret("replaced", number).permutation(cohort.size)[: taking_part.size]
        return np.delete(cohort, leaving)


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What a round left behind: what an audit may look at, and what the trainer goes on from."""

    observed: Observed
    state: State
    guests: Array | None = None  # what guests changed in the sum, if any joined the round
    noise: Array | None = None  # what the release added to that sum then

    @property
    def number(self) -> int:
        """The number of the round."""
        return self.observed.round


def _losses(outcomes: Sequence[Outcome]) -> Array:
    return np.concatenate([outcome.values for outcome in outcomes]) if outcomes else np.zeros((0, 3))


def _part(state: State, name: str) -> State:
    """The entries of one part of the state, without its name."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
