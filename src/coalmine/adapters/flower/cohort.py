"""What the clients of a round sent, read before the strategy changes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message

from coalmine.adapters.flower.records import ArrayLayout, arrays_of, metrics_of
from coalmine.contracts import Array
from coalmine.errors import MismatchError
from coalmine.mechanisms.gaussian import length

LABEL = "coalmine"  # the record by which a canary that is a client makes itself known to the audit


class Cohort:
    """The clipped and weighted sum of the clients' updates, their weights, and the average of their metrics."""

    def __init__(self, total: Array, weights: Array, unclipped: int, metrics: dict[str, dict[str, Any]], weight_kind: Any):
        self.total, self.weights, self.unclipped = total, weights, unclipped
        self.metrics, self.weight_kind = metrics, weight_kind

    @property
    def count(self) -> int:
        """How many answered."""
        return int(self.weights.size)

    @staticmethod
    def of(
        replies: Sequence[Message], layout: ArrayLayout, before: ArrayRecord, clip_norm: float, key: str, *, cut: bool = True
    ) -> Cohort:
        """Clipped as the strategy says that it does, or as they came, where clients clip; one vector at a time."""
        start, total = layout.vector(before), np.zeros(layout.dim)
        records = [{name: dict(record.items()) for name, record in metrics_of(reply)} for reply in replies]
        kinds = [_weight(record, key) for record in records]
        weights, unclipped = np.array([float(kind) for kind in kinds]), 0
        for reply, weight in zip(replies, weights, strict=True):
            update = layout.vector(arrays_of(reply)[1]) - start
            size = length(update)
            unclipped += size <= clip_norm
            total += weight * (clip_norm / size if cut and size > clip_norm else 1.0) * update
        return Cohort(total, weights, unclipped, _averages(records, weights) if records else {}, kinds[0] if kinds else 1)


def weight_of(reply: Message, key: str) -> float:
    """By how much a reply counts."""
    return float(_weight({name: dict(record.items()) for name, record in metrics_of(reply)}, key))


def taken_label(reply: Message, fingerprint: str) -> int | None:
    """Which canary a reply is from, if from one; the label is taken off, so that the strategy does not see it."""
    label = reply.content.pop(LABEL, None)
    if label is None:
        return None
    if label.get("audit") != fingerprint:
        raise MismatchError(
            f"client canary {label['canary']} has another audit than the server: another secret, pool or number of rounds. "
            "Make the same Audit(...) on both sides, with one secret_file that is copied to the canaries' nodes."
        )
    return int(label["canary"])


def _weight(record: dict[str, dict[str, Any]], key: str) -> Any:
    return next((metrics[key] for metrics in record.values() if key in metrics), 1.0)


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
