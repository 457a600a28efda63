"""`canary_mod`: canaries that are real clients, for applications whose server may not add replies.

    app = ClientApp(mods=[fixedclipping_mod, canary_mod(audit, clip_norm=1.0)])      innermost: what clips must be outside of it

Flower's accountant and secure aggregation need as many replies as clients, so that canaries must be clients: nodes whose
configuration has a `canary-id`, or some of the partitions of a simulation. Where the coin of a canary came up, its reply is the
model plus the canary, in every round that it is asked in; else the model itself, moved by almost nothing. Both sides make the
same `Audit`, with the same `secret_file`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict

from coalmine import _validate
from coalmine.adapters.flower.cohort import LABEL
from coalmine.adapters.flower.records import ArrayLayout, arrays_of
from coalmine.audit.attached import AttachedAudit
from coalmine.errors import MismatchError

NODE_KEY = "canary-id"
CLIP_KEY = "clipping_norm"  # Flower's name for what wrappers with clipping on the clients send along
Chosen = Callable[[Context], int | None]


def by_node_config(context: Context) -> int | None:
    """A node that was started with --node-config "canary-id=3" is canary 3."""
    found = context.node_config.get(NODE_KEY)
    return None if found is None else int(found)


def last_partitions(count: int) -> Chosen:
    """The last so many partitions of a simulation are canaries."""
    count = _validate.whole("count", count, least=1)

    def chosen(context: Context) -> int | None:
        partition, partitions = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
        index = partition - (partitions - count)
        return index if index >= 0 else None

    return chosen


def canary_mod(
    audit: AttachedAudit | Callable[[Context], AttachedAudit],
    *,
    clip_norm: float | None = None,
    who: Chosen = by_node_config,
    metrics: Mapping[str, Any] | None = None,
    labelled: bool = True,
) -> Callable[[Message, Context, Callable[[Message, Context], Message]], Message]:
    """A mod that makes canaries of the clients that `who` names; all others go on as they are.

    `audit` may be a function of the node's context, for settings that come with the run.
    `clip_norm` is the application's, unless its messages carry it. `metrics` are what a canary reports, with the names that
    clients use; without them the application itself is asked, on the canary's own data, and its arrays are replaced.
    `labelled` replies tell `audited(..., canaries="clients")` on the server which canary they are from; leave it out if the
    server does not take part in the audit.
    """
    if clip_norm is not None:
        _validate.positive("clip_norm", clip_norm)

    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        index = who(context)
        if index is None or message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        name, before = arrays_of(message)
        mine = audit if isinstance(audit, AttachedAudit) else audit(context)
        _refuse_alone(mine)
        arrays = _sent(mine, index, before, _clip_of(message, clip_norm))
        if metrics is None:
            reply = call_next(message, context)
            if reply.has_error():
                return reply
            name = arrays_of(reply)[0]
            reply.content[name] = arrays
        elif name.startswith("fitins"):
            raise MismatchError("canary_mod(metrics=...) does not work with clients of the older API: leave metrics out.")
        else:
            reply = Message(RecordDict({name: arrays, "metrics": MetricRecord(dict(metrics))}), reply_to=message)
        if labelled:
            reply.content[LABEL] = ConfigRecord({"canary": index, "audit": mine.fingerprint})
        return reply

    return mod


def _refuse_alone(audit: AttachedAudit) -> None:
    """Canaries that nobody looks for: their audit was made here, with a secret that no other side has."""
    if audit.alone:
        raise MismatchError(
            "this client's audit has a secret of its own, made just now, that the server does not have. Give "
            "Audit(secret_file=...) on both sides, a file that is there before training: the server's, or make_secret(file)."
        )


def _sent(audit: AttachedAudit, index: int, before: ArrayRecord, clip_norm: float) -> ArrayRecord:
    """The canary, if its coin came up; else almost nothing."""
    schedule = audit.schedule
    if not 0 <= index < schedule.pool:
        raise MismatchError(
            f"canary {index} of a pool of {schedule.pool}: number canaries from 0, or give Audit(pool={index + 1})."
        )
    layout = ArrayLayout.of(before)
    if not schedule.inserted[index]:
        return layout.unmoved(before, clip_norm)
    return layout.moved(before, audit.update(index, clip_norm, layout.dim))


def _clip_of(message: Message, given: float | None) -> float:
    if given is not None:
        return given
    found = [record[CLIP_KEY] for record in message.content.values() if isinstance(record, ConfigRecord) and CLIP_KEY in record]
    if not found:
        raise MismatchError("messages do not say the clip norm; give canary_mod(audit, clip_norm=...), as the strategy has it.")
    return float(found[0])
