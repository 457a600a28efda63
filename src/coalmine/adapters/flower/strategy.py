"""`audited`: a strategy around yours that observes what every round releases, with canaries among its replies.

It stands outside of everything, the DP wrapper included: what comes out of the wrapped `aggregate_train` is what is released.

Canaries are replies that the server adds, or real clients (`canary_mod`). A reply that is added has the shape of a client's:
the current model plus the canary, far longer than the clip norm; the clients' average for every metric, so that aggregated
metrics do not change; and for the metric that replies are weighed by, the largest number that a client may send. Places
without a canary send (almost) the current model, with the same weight.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from coalmine import _validate
from coalmine.adapters.flower.cohort import LABEL, Cohort, taken_label, weight_of
from coalmine.adapters.flower.contributions import Asked, Contributions, watched
from coalmine.adapters.flower.reading import Reading, check_mods, concluded
from coalmine.adapters.flower.records import ArrayLayout, arrays_of, copied
from coalmine.audit.application import Application, described, difference, observed
from coalmine.audit.attached import AttachedAudit
from coalmine.contracts import Clip, Compared, IndexArray
from coalmine.errors import MismatchError


def audited(
    strategy: Strategy, audit: AttachedAudit, *, mods: Sequence[Any] = (), canaries: str = "replies"
) -> AuditedStrategy:
    """The same strategy, audited: every release is observed, and the canaries are looked for in it.

    Put it around everything else, the DP wrapper included. With canaries="replies" the server adds them to the clients'
    replies; `mods` are those of the ClientApp that change what clients send (clipping, local noise), in the same order:
    canary replies pass through them, as a client's do. With canaries="clients" they are real clients, by `canary_mod`.
    """
    kind = {"replies": WithReplies, "clients": WithClients}[_validate.one_of("canaries", canaries, ("replies", "clients"))]
    return kind(strategy, audit, mods=mods)


@dataclass(frozen=True)
class Joined:
    """The canaries of a round among its clients."""

    cohort: Cohort  # of the clients alone
    added: Sequence[Message]  # replies that the server makes up
    inserted: int
    places: int
    weight: float  # of everybody together
    assigned: IndexArray | None = None  # who had a place, where the engine decides about that
    sent: Mapping[int, ArrayRecord] = field(default_factory=dict)  # made-up replies before the mods, by their messages


class AuditedStrategy(Strategy):
    """A strategy that another one is wrapped in; `audit.result` holds what was found."""

    def __init__(self, strategy: Strategy, audit: AttachedAudit, *, mods: Sequence[Any] = ()):
        self.strategy, self.audit = strategy, audit
        self._reading = Reading(strategy, audit, check_mods(mods), isinstance(self, WithClients))
        self._asked: list[Message] = []
        self._who = Asked()
        self._nodes: list[int] = []
        self._layout: ArrayLayout | None = None  # until the first round

    @abstractmethod
    def _join(self, number: int, answered: Sequence[Message]) -> Joined:
        """The canaries of a round, made up or found among those that answered."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """As the wrapped strategy does; the first call introduces the application to the audit."""
        if server_round == 1 and self._layout is not None:
            raise MismatchError("this strategy has trained already, and an audit is for one training. Wrap it in a new Audit.")
        self._before, self._clip = arrays, self._reading.clip_norm
        self._asked = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._nodes = list(grid.get_node_ids())
        if self._layout is None:
            self._begin(arrays)
        return self._asked

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The wrapped strategy aggregates what clients and canaries sent; what comes out is observed."""
        number, replies = server_round - 1, list(replies)
        answered = [reply for reply in replies if reply.has_content()]
        self._note_missing(number, len(answered), sum(reply.has_error() for reply in replies))
        joined = self._join(number, answered) if answered else None  # before the strategy changes what is in them
        together = [*replies, *(joined.added if joined else ())]
        sent = {id(reply): arrays_of(reply)[1] for reply in (*answered, *(joined.added if joined else ()))}
        with watched(self._reading.chain[-1]) as averaged:
            arrays, metrics = self.strategy.aggregate_train(server_round, together)
        if arrays is None or joined is None:
            self.audit.note("no release", "the strategy aggregated nothing, since clients failed or none answered", number)
        else:
            self._observe(number, arrays, joined, self._compared(number, joined, {**sent, **joined.sent}, averaged))
            spent = self._reading.spent()
            if spent is not None:
                self.audit.state(spent)
        if server_round == self.audit.rounds:
            concluded(self.audit)
        return arrays, metrics

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """As the wrapped strategy does."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)  # type: ignore[no-any-return]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the wrapped strategy does."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """As the wrapped strategy does."""
        self.strategy.summary()

    def __getattr__(self, name: str) -> Any:
        """Whatever else the wrapped strategy has, as `privacy_spent()`."""
        if name.startswith("_") or name == "strategy":
            raise AttributeError(name)
        return getattr(self.strategy, name)

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *args: Any, **options: Any) -> Result:
        """Train as Flower does; canaries have their rounds already, so that there must be as many."""
        if num_rounds != self.audit.rounds:
            raise MismatchError(
                f"num_rounds={num_rounds}, and the audit has given its canaries places in {self.audit.rounds} rounds. "
                f"Give Audit(rounds={num_rounds})."
            )
        if type(self.strategy).start is not Strategy.start:
            self.audit.note("start", "the wrapped strategy has a start() of its own, and Flower's was used in its place", 0)
        return super().start(grid, initial_arrays, num_rounds, *args, **options)

    def _begin(self, arrays: ArrayRecord) -> None:
        layout, said = ArrayLayout.of(arrays), self._reading
        said.refuse_wrong_delta()
        said.refuse_wrong_cohort(len(self._asked))
        description = described(said.clip_norm, said.noise_multiplier(len(self._asked) + self._places))
        if said.follows_quantile:
            description = replace(description, clip=Clip(None))
        self.audit.begin(
            Application(
                name=said.name,
                engine=said.engine,
                initial=layout.vector(arrays),
                groups=layout.floats,
                description=description,
                knows_others=said.knows_others,
                stated=said.stated,
                facts={"weighted_by": said.weight_key},
                clients=self._who.begin(said.chain[-1], self._nodes, len(self._asked), self.audit.rounds),
            )
        )
        self._layout = layout

    @property
    def _model(self) -> ArrayLayout:
        if self._layout is None:
            raise MismatchError("aggregate_train came before configure_train: train with strategy.start(...), or in its order.")
        return self._layout

    def _compared(
        self, number: int, joined: Joined, sent: Mapping[int, ArrayRecord], averaged: Sequence[Message]
    ) -> tuple[Compared, ...]:
        """Replies beside what was averaged of them, where the mean is a plain one and clients add no noise of their own."""
        if not self._reading.knows_others or self._reading.local is not None or not joined.weight > 0:
            return ()
        share = self._denominator(joined) / joined.weight
        return Contributions(self._model, self._before, self._clip, self._reading.weight_key, share).compared(
            number, sent, averaged
        )

    def _denominator(self, joined: Joined) -> float:
        private = self._reading.private
        return float(private.num_sampled_clients if private is not None else joined.cohort.count + joined.places)

    def _observe(self, number: int, arrays: ArrayRecord, joined: Joined, compared: tuple[Compared, ...]) -> None:
        if not self._model.fits(arrays):
            raise MismatchError(
                f"{self._reading.name} returned arrays of other names or shapes than the model's: it hides the aggregate, and "
                "nothing can be looked for in it. Wrap the strategy that returns the aggregated model itself."
            )
        cohort = joined.cohort
        moved, resolution = difference(self._model.vector(arrays), self._model.vector(self._before))
        self.audit.observe(
            replace(
                observed(
                    number,
                    moved,
                    clip_norm=self._clip,
                    denominator=self._denominator(joined),
                    clients=cohort.count,
                    inserted=joined.inserted,
                    places=joined.places,
                    assigned=joined.assigned,
                    others=cohort.total / joined.weight if self._reading.knows_others else None,
                    unclipped=cohort.unclipped,
                    resolution=resolution,
                    facts=self._facts(joined),
                ),
                samples=compared,
                cohort=self._who.cohort(self._asked, self._nodes),
            )
        )

    def _cohort(self, clients: Sequence[Message]) -> Cohort:
        said = self._reading
        return Cohort.of(clients, self._model, self._before, self._clip, said.weight_key, cut=said.cuts)

    def _facts(self, joined: Joined) -> dict[str, float]:
        weights = joined.cohort.weights
        return {"mean_weight": float(weights.mean())} if weights.size else {}

    def _note_missing(self, number: int, answered: int, failed: int) -> None:
        asked, private = len(self._asked), self._reading.private
        if failed:
            self.audit.note("failed clients", "some replied with an error", number)
        if answered + failed < asked:
            self.audit.note("missing replies", "some clients did not answer", number)
        expected = asked if private is None else int(private.num_sampled_clients) - self._places
        if answered != expected:
            self.audit.note(
                "cohort",
                "not as many replies as num_sampled_clients counts on, while the noise is scaled for that number",
                number,
            )

    @property
    def _places(self) -> int:
        """Replies that are added to those of clients."""
        return 0


class WithReplies(AuditedStrategy):
    """Canaries are replies that the server adds."""

    def __init__(self, strategy: Strategy, audit: AttachedAudit, *, mods: Sequence[Any] = ()):
        super().__init__(strategy, audit, mods=mods)
        self._reading.refuse_wrong_canaries()
        self._largest = audit.replies.examples or 0.0

    @property
    def _places(self) -> int:
        return self.audit.places

    def _join(self, number: int, answered: Sequence[Message]) -> Joined:
        taking_part = self.audit.taking_part(number)
        if any(LABEL in reply.content for reply in answered):
            raise MismatchError(
                "canaries twice: clients have canary_mod(...), and the server adds replies. Take the mod off the clients, or "
                "say audited(strategy, audit, canaries='clients')."
            )
        cohort = self._cohort(answered)
        if self.audit.replies.examples is None:
            self._largest = max(self._largest, float(cohort.weights.max()))
        nothing = self._model.unmoved(self._before, self._clip)
        added, before = [], []
        for place in range(self._places):
            arrays = nothing
            if place < taking_part.size:
                update = self.audit.update(int(taking_part[place]), self._clip, self._model.dim)
                arrays = self._model.moved(self._before, update)
            added.append(self._through_mods(self._made_up(arrays, answered[0], cohort)))
            before.append(arrays)
        weight = float(cohort.weights.sum() + self._places * self._largest)
        sent = {id(reply): arrays for reply, arrays in zip(added, before, strict=True)}
        return Joined(cohort, added, int(taking_part.size), self._places, weight, sent=sent)

    def _facts(self, joined: Joined) -> dict[str, float]:
        return {**super()._facts(joined), "canary_weight": self._largest}

    def _made_up(self, arrays: ArrayRecord, client: Message, cohort: Cohort) -> Message:
        """A reply in the form of a client's."""
        content, key = RecordDict({arrays_of(client)[0]: arrays}), self._reading.weight_key
        whole = isinstance(cohort.weight_kind, int) and float(self._largest).is_integer()
        for name, metrics in cohort.metrics.items():
            weight = {key: int(self._largest) if whole else float(self._largest)} if key in metrics else {}
            content[name] = MetricRecord({**metrics, **weight})
        return Message(content, reply_to=self._asked[0])

    def _through_mods(self, reply: Message) -> Message:
        """What the mods of a ClientApp make of it."""
        asked, mods = self._asked[0], self._reading.mods
        if not mods:
            return reply
        act: Callable[[Message, Context], Message] = lambda message, context: reply  # noqa: E731 - the innermost of a chain
        for mod in reversed(mods):
            act = _around(mod, act)
        message = Message(
            copied(asked.content), dst_node_id=asked.metadata.dst_node_id, message_type=asked.metadata.message_type
        )
        context = Context(run_id=0, node_id=0, node_config={}, state=RecordDict(), run_config={})
        made = act(message, context)
        if made.has_error():
            raise MismatchError(f"the clients' mods refuse a canary reply: {made.error.reason}")
        return made


class WithClients(AuditedStrategy):
    """Canaries are real clients, that `canary_mod` makes; the server only looks, and learns from them who took part."""

    def _join(self, number: int, answered: Sequence[Message]) -> Joined:
        labels = [taken_label(reply, self.audit.fingerprint) for reply in answered]
        canaries = np.array(sorted(label for label in labels if label is not None), dtype=np.int64)
        twice = canaries[1:][np.diff(canaries) == 0]
        if twice.size:
            raise MismatchError(f"two clients are canary {twice[0]}: each needs a canary-id of its own, from 0 on.")
        clients = [reply for reply, label in zip(answered, labels, strict=True) if label is None]
        cohort = self._cohort(clients)
        weight = sum(weight_of(reply, self._reading.weight_key) for reply in answered)
        if canaries.size == 0:
            self.audit.note("canaries", "none of them answered", number)
        inserted = int(self.audit.schedule.inserted[canaries].sum())
        return Joined(cohort, (), inserted, int(canaries.size), weight, canaries)


def _around(mod: Any, act: Callable[[Message, Context], Message]) -> Callable[[Message, Context], Message]:
    return lambda message, context: mod(message, context, act)
