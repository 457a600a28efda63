"""`client_view`: the audit from the side of a client alone, without any help from the server.

A client receives the model whenever it is asked to train. What changed between two models that it received is what was released
in between, to everybody who takes part. One canary client, the observer, keeps what the canaries see of these differences:

    ClientApp(mods=[fixedclipping_mod, client_view(audit, ...), canary_mod(audit, labelled=False)])

What it can see: all releases but the last, whose model it does not receive unless it is asked again. What it cannot: the other
clients' updates, which hide the canaries from it (`known-rounds` decides); who else took part, so that all canaries must be
asked in every round; and what the server claims, which has to be told.

A client's process may end after every task. Everything is kept in the node's own state, which Flower saves: the first and the
last model, and a row of inner products for every round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType

from coalmine import _validate
from coalmine.adapters.application import Application, Observed
from coalmine.adapters.audit import Audit
from coalmine.adapters.flower.mod import Chosen, by_node_config
from coalmine.adapters.flower.reading import engine
from coalmine.adapters.flower.records import Layout, arrays_of
from coalmine.contracts import Vector

_FIRST, _LAST, _ROWS, _ROUNDS = "coalmine.first", "coalmine.last", "coalmine.rows", "coalmine.rounds"
_ROUND_KEY = "server-round"  # Flower's name for the number of the round


class ClientView:
    """A mod that watches and changes nothing; at the last round the audit concludes on the observer's node."""

    def __init__(
        self,
        audit: Audit | Callable[[Context], Audit],
        *,
        clip_norm: float,
        noise_multiplier: float,
        cohort: int,
        observer: int = 0,
        who: Chosen = by_node_config,
    ):
        self._audit, self._who, self._observer = audit, who, observer
        self._clip = _validate.positive("clip_norm", clip_norm)
        self._noise = _validate.non_negative("noise_multiplier", noise_multiplier)
        self._cohort = _validate.whole("cohort", cohort, least=1)

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Look at the model that came, then go on."""
        asked = message.metadata.message_type.split(".")[0] == MessageType.TRAIN
        if asked and self._who(context) == self._observer:
            audit = self._audit if isinstance(self._audit, Audit) else self._audit(context)
            self._look(audit, arrays_of(message)[1], _round_of(message, context), context)
        return call_next(message, context)

    def _look(self, audit: Audit, model: ArrayRecord, number: int, context: Context) -> None:
        layout, state = Layout.of(model), context.state
        if _FIRST not in state:
            state[_FIRST] = _kept(model)
            state[_ROWS], state[_ROUNDS] = ArrayRecord(), ConfigRecord({"seen": []})
        else:
            application = self._application(layout, layout.vector(state[_FIRST]))
            moved = layout.vector(model) - layout.vector(state[_LAST])
            rows = audit.job(application).rows(self._observed(number - 2, moved, audit))
            for kind, row in rows.items():
                state[_ROWS][f"{kind}/{number - 2}"] = Array(row)
            norm = float(np.linalg.norm(moved))
            state[_ROUNDS] = ConfigRecord(
                {"seen": [*state[_ROUNDS]["seen"], number - 2], f"norm/{number - 2}": norm, **_norms(state)}
            )
        state[_LAST] = _kept(model)
        if number == audit.rounds:
            self._conclude(audit, layout, state)

    def _conclude(self, audit: Audit, layout: Layout, state: Any) -> None:
        """Everything that was kept, into the audit; then what it proves."""
        first, last = layout.vector(state[_FIRST]), layout.vector(state[_LAST])
        application = self._application(layout, first)
        audit.begin(application)
        pool, seen, kept = audit.planting.pool, list(state[_ROUNDS]["seen"]), state[_ROWS]
        for place, number in enumerate(seen):
            ending = f"/{number}"
            rows = {name.removesuffix(ending): kept[name].numpy() for name in kept if name.endswith(ending)}
            norm = float(state[_ROUNDS][f"norm{ending}"])
            record = self._observed(number, np.array([norm]), audit).record()  # of the length alone
            moved = last - first if place == len(seen) - 1 else 0.0
            audit.keep(number, rows, record, moved=moved, assigned=np.arange(pool))
        if len(seen) < audit.rounds - 1:
            audit.note("rounds that the observer was not asked in are seen together with the next one", audit.rounds - 1)
        audit.conclude()

    def _application(self, layout: Layout, first: Vector) -> Application:
        return Application(
            name="what one client sees of a Flower application",
            engine=engine(),
            initial=first,
            groups=layout.floats,
            noise_multiplier=self._noise,
            clip_norm=self._clip,
            knows_others=False,
        )

    def _observed(self, number: int, moved: Vector, audit: Audit) -> Observed:
        pool = audit.planting.pool
        return Observed(
            round=number,
            vector=moved,
            clip_norm=self._clip,
            denominator=float(self._cohort),
            clients=max(self._cohort - pool, 0),
            inserted=int(audit.planting.inserted.sum()),
            places=pool,
            assigned=np.arange(pool),
        )


def client_view(audit: Audit | Callable[[Context], Audit], **told: Any) -> ClientView:
    """A mod for the audit from a client's side: `clip_norm`, `noise_multiplier` and `cohort` as the server states them.

    `observer` is the canary whose node keeps what is seen (0), `who` says who is a canary, as for `canary_mod`. Give the audit
    an `out` on that node; `audit.result` holds the result in a process that lives long enough.
    """
    return ClientView(audit, **told)


def _round_of(message: Message, context: Context) -> int:
    """The number of the round, counted from one: as the server says, or how often this node was asked."""
    for record in message.content.values():
        if isinstance(record, ConfigRecord) and _ROUND_KEY in record:
            return int(record[_ROUND_KEY])
    if _FIRST not in context.state:
        return 1
    return len(context.state[_ROUNDS]["seen"]) + 2


def _norms(state: Any) -> dict[str, Any]:
    return {name: value for name, value in state[_ROUNDS].items() if name != "seen"}


def _kept(model: ArrayRecord) -> ArrayRecord:
    return ArrayRecord(dict(model.items()))
