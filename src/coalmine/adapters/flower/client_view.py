"""`client_view`: the audit from the side of a client alone, without any help from the server.

A client receives the model whenever it is asked to train. What changed between two models that it received is what was released
in between, to everybody who takes part. One canary client, the observer, keeps what the canaries see of these differences:

    ClientApp(mods=[fixedclipping_mod, client_view(audit, ...), canary_mod(audit, labelled=False)])

What it can see: all releases from the first model that it receives to the last. It does not receive the model after the last
round. Where it is not asked in a round it sees two releases, or more, as their sum: each canary as often as there are releases
in it, and as much noise. The claim counts all of them. What it cannot see: the other clients' updates, which hide the canaries
from it (`known-rounds` decides); who else took part, so that all canaries must be asked in every round; and what the server
claims, which has to be told.

A client's process may end after every task. Everything is kept in the node's own state, which Flower saves: the first and the
last model, and a row of inner products for every model that came. In the last round the audit concludes by itself; if the
observer is not asked then, or the training ends early, `ClientView.conclude` does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType

from coalmine import _validate
from coalmine.adapters.flower.mod import Chosen, by_node_config
from coalmine.adapters.flower.reading import engine
from coalmine.adapters.flower.records import ArrayLayout, arrays_of
from coalmine.audit.application import Application, described, observed
from coalmine.audit.attached import AttachedAudit
from coalmine.contracts import Observed, Vector
from coalmine.errors import MismatchError, NotEnoughCanariesError
from coalmine.result import AuditResult

_FIRST, _LAST, _ROWS, _SEEN = "coalmine.first", "coalmine.last", "coalmine.rows", "coalmine.seen"
_KEPT = ("rounds", "releases", "norms", "kept")  # of every difference
_ROUND_KEY = "server-round"  # Flower's name for the number of the round


class ClientView:
    """A mod that watches and changes nothing; at the last round the audit concludes on the observer's node."""

    def __init__(
        self,
        audit: AttachedAudit | Callable[[Context], AttachedAudit],
        *,
        clip_norm: float,
        noise_multiplier: float,
        cohort: int,
        observer: int = 0,
        who: Chosen = by_node_config,
    ):
        self._audit, self._who, self._observer = audit, who, observer
        self._clip = _validate.clip_norm(clip_norm)
        self._noise = _validate.non_negative("noise_multiplier", noise_multiplier)
        self._cohort = _validate.whole("cohort", cohort, least=1)
        self._context: Context | None = None  # of the observer's node, in a process that saw it
        self._result: AuditResult | None = None

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Look at the model that came, then go on."""
        asked = message.metadata.message_type.split(".")[0] == MessageType.TRAIN
        if asked and self._who(context) == self._observer:
            self._context = context
            self._look(self._audit_of(context), arrays_of(message)[1], _round_of(message), context)
        return call_next(message, context)

    def conclude(self, context: Context | None = None) -> AuditResult:
        """What the observer saw so far, and what that proves: for trainings that end without it, or early.

        In a process that has not seen the observer at work, `context` is that of its node.
        """
        if self._result is None:
            context = context or self._context
            if context is None or _SEEN not in context.state:
                raise NotEnoughCanariesError(
                    f"the observer, canary {self._observer}, was not asked to train: no model came, nothing can be concluded. "
                    "Add client_view(...) to the mods of the ClientApp, take an observer that is asked, or, in another process "
                    "than its own, give conclude(context) the context of its node."
                )
            self._result = self._concluded(self._audit_of(context), context.state)
        return self._result

    def _audit_of(self, context: Context) -> AttachedAudit:
        return self._audit(context) if callable(self._audit) else self._audit

    def _look(self, audit: AttachedAudit, model: ArrayRecord, config: int | None, context: Context) -> None:
        layout, state = ArrayLayout.of(model), context.state
        if _FIRST not in state:
            number, self._result = config or 1, None  # a new training
            state[_FIRST], state[_ROWS] = _kept(model), ArrayRecord()
            nothing: dict[str, Any] = {name: [] for name in _KEPT}
            state[_SEEN] = ConfigRecord({"first": number, "last": number, "asked": 1, "told": config is not None, **nothing})
        else:
            seen = state[_SEEN]
            number = config or int(seen["last"]) + 1
            if not seen["last"] < number <= audit.rounds:  # a model that came twice, or after what is audited
                return
            self._compare(audit, layout, model, number, state)
            seen["last"], seen["asked"] = number, int(seen["asked"]) + 1
        state[_LAST] = _kept(model)
        if number == audit.rounds and state[_SEEN]["rounds"]:
            self.conclude(context)

    def _compare(self, audit: AttachedAudit, layout: ArrayLayout, model: ArrayRecord, number: int, state: Any) -> None:
        """A row for what was released since the last model that came."""
        seen, latest = state[_SEEN], number - 2  # the release before this round, counted from zero
        moved = layout.vector(model) - layout.vector(state[_LAST])
        norm = float(np.linalg.norm(moved))
        if norm == 0.0:  # nothing was released, as after a round that failed
            return
        releases = number - int(seen["last"])
        recorder = audit.recorder(self._application(layout, layout.vector(state[_FIRST])))
        rows = recorder.rows(self._observed(latest, moved, releases, audit))
        for kind, row in rows.items():
            state[_ROWS][f"{kind}/{latest}"] = Array(row)
        inserted = np.flatnonzero(audit.schedule.inserted)
        kept = float(recorder.kept(rows, inserted).mean()) if inserted.size and "mean" in rows else 0.0
        for name, value in (("rounds", latest), ("releases", releases), ("norms", norm), ("kept", kept)):
            seen[name] = [*seen[name], value]

    def _concluded(self, audit: AttachedAudit, state: Any) -> AuditResult:
        """Everything that was kept, into the audit; then what it proves."""
        seen, kept = state[_SEEN], state[_ROWS]
        _check_seen(seen, audit.rounds)
        layout = ArrayLayout.of(state[_FIRST])
        first, last = layout.vector(state[_FIRST]), layout.vector(state[_LAST])
        audit.begin(self._application(layout, first))
        for number, releases, norm, share in zip(*(seen[name] for name in _KEPT), strict=True):
            ending = f"/{number}"
            rows = {name.removesuffix(ending): kept[name].numpy() for name in kept if name.endswith(ending)}
            about = self._observed(number, np.array([norm]), releases, audit)  # of the length alone
            moved = last - first if number == seen["rounds"][-1] else 0.0
            record = {**about.record, "kept_share": share}
            audit.keep(number, rows, record, moved=moved, assigned=about.canaries.assigned)
            for earlier in range(number - releases + 1, number):
                audit.note(
                    "sums",
                    "the observer saw these releases only as a sum with the next one, not being asked after them",
                    earlier,
                )
        return audit.conclude()

    def _application(self, layout: ArrayLayout, first: Vector) -> Application:
        return Application(
            name="what one client sees of a Flower application",
            engine=engine(),
            initial=first,
            groups=layout.floats,
            description=described(self._clip, self._noise),
            knows_others=False,
        )

    def _observed(self, number: int, moved: Vector, releases: int, audit: AttachedAudit) -> Observed:
        pool = audit.schedule.pool
        return observed(
            number,
            moved,
            clip_norm=self._clip,
            denominator=float(self._cohort),
            clients=max(self._cohort - pool, 0),
            inserted=int(audit.schedule.inserted.sum()),
            places=pool,
            assigned=np.tile(np.arange(pool), releases),  # every canary is in each of them
            releases=releases,
        )


def client_view(audit: AttachedAudit | Callable[[Context], AttachedAudit], **config: Any) -> ClientView:
    """A mod for the audit from a client's side: `clip_norm`, `noise_multiplier` and `cohort` as the server states them.

    `observer` is the canary whose node keeps what is seen (0), `who` says who is a canary, as for `canary_mod`. Give the audit
    an `out` on that node; `audit.result` holds the result in a process that lives long enough. Where the observer may not be
    asked in the last round, keep what is returned here and call its `conclude` after the training.
    """
    return ClientView(audit, **config)


def _round_of(message: Message) -> int | None:
    """The number of the round, counted from one, where the server says it: in the configuration or as the message's group."""
    for record in message.content.values():
        if isinstance(record, ConfigRecord) and _ROUND_KEY in record:
            return int(record[_ROUND_KEY])
    group = message.metadata.group_id
    return int(group) if group.isdecimal() and int(group) > 0 else None


def _check_seen(seen: ConfigRecord, rounds: int) -> None:
    """Nothing can be concluded from one model, nor from models between which nobody knows how many releases there were."""
    if not seen["rounds"]:
        raise NotEnoughCanariesError(
            f"the observer saw the model of round {seen['first']} and no other one after it: what is released shows in the "
            "difference of two. Take an observer that is asked more often."
        )
    if not seen["told"] and int(seen["asked"]) < rounds:
        raise MismatchError(
            f"the observer was asked {seen['asked']} times in {rounds} rounds, and messages do not say their round: how many "
            f"releases are between two models is not known. Let the server send {_ROUND_KEY!r} in its configuration, as "
            "Flower's strategies do, or ask the observer in every round."
        )


def _kept(model: ArrayRecord) -> ArrayRecord:
    return ArrayRecord(dict(model.items()))
