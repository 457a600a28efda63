"""`audited`: a strategy around yours that adds canary replies and observes what every round releases.

It stands outside of everything, the DP wrapper included: what comes out of the wrapped `aggregate_train` is what is released.
A canary reply has the shape of a client's: the current model plus the canary, far longer than the clip norm; the clients'
average for every metric, so that aggregated metrics do not change; and for the metric that replies are weighed by, the largest
number that a client may send. Places without a canary send (almost) the current model, with the same weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from coalmine.adapters.application import Application, Observed
from coalmine.adapters.audit import Audit
from coalmine.adapters.flower.reading import Reading, check_mods
from coalmine.adapters.flower.records import Layout, arrays_of, copied, metrics_of
from coalmine.contracts import Array
from coalmine.errors import MismatchError
from coalmine.mechanisms.gaussian import length


def audited(strategy: Strategy, audit: Audit, *, mods: Sequence[Any] = ()) -> Audited:
    """The same strategy, audited: canary replies are added on the server and every release is observed.

    Put it around everything else, the DP wrapper included. `mods` are those of the ClientApp that change what clients send
    (clipping, local noise), in the same order: canary replies pass through them, as a client's do.
    """
    return Audited(strategy, audit, mods=mods)


class Audited(Strategy):
    """A strategy that another one is wrapped in; `audit.result` holds what was found."""

    def __init__(self, strategy: Strategy, audit: Audit, *, mods: Sequence[Any] = ()):
        self.strategy, self.audit = strategy, audit
        self._reading = Reading(strategy, audit, check_mods(mods))
        self._reading.refuse_wrong_canaries()
        self._largest = audit.examples or 0.0
        self._asked: list[Message] = []
        self._layout: Layout | None = None  # until the first round

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """As the wrapped strategy does; the first call introduces the application to the audit."""
        self._before, self._clip = arrays, self._reading.clip_norm
        self._asked = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if self._layout is None:
            self._reading.refuse_wrong_cohort(len(self._asked))
            self._begin(arrays)
        return self._asked

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The wrapped strategy aggregates what clients and canaries sent; what comes out is observed."""
        number, replies = server_round - 1, list(replies)
        answered = [reply for reply in replies if reply.has_content()]
        self._note_missing(number, len(answered), sum(reply.has_error() for reply in replies))
        planted, cohort = self.audit.planted(number), None
        if answered:  # before the strategy changes what is in them
            cohort = _Cohort.of(answered, self._model, self._before, self._clip, self._reading.weight_key)
            self._largest = max(self._largest, float(cohort.weights.max())) if self.audit.examples is None else self._largest
            replies += self._canary_replies(planted, answered, cohort)
        arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        if arrays is None or cohort is None:
            self.audit.note("no release: the strategy aggregated nothing, since clients failed or none answered", number)
        else:
            self._observe(number, arrays, cohort, planted.size)
        if server_round == self.audit.rounds:
            self._conclude()
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

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *args: Any, **options: Any) -> Result:
        """Train as Flower does; canaries have their rounds already, so that there must be as many."""
        if num_rounds != self.audit.rounds:
            raise MismatchError(
                f"num_rounds={num_rounds}, and the audit has planted its canaries in {self.audit.rounds} rounds. "
                f"Give Audit(rounds={num_rounds})."
            )
        return super().start(grid, initial_arrays, num_rounds, *args, **options)

    def _begin(self, arrays: ArrayRecord) -> None:
        layout, said = Layout.of(arrays), self._reading
        self.audit.begin(
            Application(
                name=said.name,
                engine=said.engine,
                initial=layout.vector(arrays),
                groups=layout.floats,
                noise_multiplier=said.noise_multiplier,
                clip_norm=said.clip_norm,
                knows_others=said.knows_others,
                stated=said.stated,
                facts={"weighted_by": said.weight_key, "places": self.audit.places},
            )
        )
        self._layout = layout

    @property
    def _model(self) -> Layout:
        if self._layout is None:
            raise MismatchError("aggregate_train came before configure_train: train with strategy.start(...), or in its order.")
        return self._layout

    def _canary_replies(self, planted: Any, answered: Sequence[Message], cohort: _Cohort) -> list[Message]:
        """One for every place: canaries first, then nothing."""
        nothing = self._model.unmoved(self._before, self._clip)
        found = []
        for place in range(self.audit.places):
            arrays = nothing
            if place < planted.size:
                arrays = self._model.moved(self._before, self.audit.update(int(planted[place]), self._clip))
            found.append(self._through_mods(self._made_up(arrays, answered[0], cohort)))
        return found

    def _made_up(self, arrays: ArrayRecord, client: Message, cohort: _Cohort) -> Message:
        """A reply in the form of a client's."""
        content = RecordDict({arrays_of(client)[0]: arrays})
        for name, metrics in cohort.metrics.items():
            whole = isinstance(cohort.weight_kind, int) and float(self._largest).is_integer()
            weight = {self._reading.weight_key: int(self._largest) if whole else float(self._largest)}
            content[name] = MetricRecord({**metrics, **{key: value for key, value in weight.items() if key in metrics}})
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

    def _observe(self, number: int, arrays: ArrayRecord, cohort: _Cohort, inserted: int) -> None:
        if not self._model.fits(arrays):
            raise MismatchError(
                f"{self._reading.name} returned arrays of other names or shapes than the model's: it hides the aggregate, and "
                "nothing can be looked for in it. Wrap the strategy that returns the aggregated model itself."
            )
        private = self._reading.private
        places, denominator = self.audit.places, cohort.count + self.audit.places
        together = cohort.weights.sum() + places * self._largest
        self.audit.observe(
            Observed(
                round=number,
                vector=self._model.vector(arrays) - self._model.vector(self._before),
                clip_norm=self._clip,
                denominator=float(private.num_sampled_clients) if private is not None else float(denominator),
                clients=cohort.count,
                inserted=inserted,
                others=cohort.total / together if self._reading.knows_others else None,
                unclipped=cohort.unclipped,
                facts={"canary_weight": self._largest, "mean_weight": float(cohort.weights.mean())},
            )
        )

    def _note_missing(self, number: int, answered: int, failed: int) -> None:
        asked, private = len(self._asked), self._reading.private
        if failed:
            self.audit.note("failed clients: some replied with an error", number)
        if answered + failed < asked:
            self.audit.note("missing replies: some clients did not answer", number)
        expected = asked if private is None else int(private.num_sampled_clients) - self.audit.places
        if answered != expected:
            self.audit.note(
                "cohort: not as many replies as num_sampled_clients counts on, while the noise is scaled for that number",
                number,
            )

    def _conclude(self) -> None:
        spent = self._reading.spent()
        if spent is not None:
            self.audit.state(spent)
        self.audit.conclude()


class _Cohort:
    """What the clients of a round sent, put together before the strategy changes it."""

    def __init__(self, total: Array, weights: Array, unclipped: int, metrics: dict[str, dict[str, Any]], weight_kind: Any):
        self.total = total  # weighted sum of their updates, each clipped
        self.weights, self.unclipped, self.metrics, self.weight_kind = weights, unclipped, metrics, weight_kind

    @property
    def count(self) -> int:
        """How many answered."""
        return int(self.weights.size)

    @staticmethod
    def of(replies: Sequence[Message], layout: Layout, before: ArrayRecord, clip_norm: float, key: str) -> _Cohort:
        """Clipped as the strategy says that it does; one vector at a time."""
        start, total = layout.vector(before), np.zeros(layout.dim)
        records = [{name: dict(record.items()) for name, record in metrics_of(reply)} for reply in replies]
        kinds = [next((each[key] for each in record.values() if key in each), 1.0) for record in records]
        weights, unclipped = np.array([float(kind) for kind in kinds]), 0
        for reply, weight in zip(replies, weights, strict=True):
            update = layout.vector(arrays_of(reply)[1]) - start
            size = length(update)
            unclipped += size <= clip_norm
            total += weight * min(1.0, clip_norm / size if size > 0 else 1.0) * update
        return _Cohort(total, weights, unclipped, _averages(records, weights), kinds[0])


def _averages(records: Sequence[dict[str, dict[str, Any]]], weights: Array) -> dict[str, dict[str, Any]]:
    """By record and metric, the weighted mean over clients: added to them, it does not change their mean."""
    shares = weights / weights.sum() if weights.sum() > 0 else np.full(weights.size, 1 / weights.size)
    found: dict[str, dict[str, Any]] = {}
    for name, metrics in records[0].items():
        found[name] = {}
        for key, value in metrics.items():
            values: list[Any] = [record.get(name, {}).get(key, value) for record in records]
            if isinstance(value, list):
                same = all(len(each) == len(value) for each in values)
                found[name][key] = (shares @ np.array(values, dtype=float)).tolist() if same else value
            else:
                found[name][key] = float(shares @ np.array(values, dtype=float))
    return found


def _around(mod: Any, act: Callable[[Message, Context], Message]) -> Callable[[Message, Context], Message]:
    return lambda message, context: mod(message, context, act)
