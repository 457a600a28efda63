"""Records of arrays as one vector, and back: the parameters that a canary lives in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from coalmine.contracts import Vector
from coalmine.errors import MismatchError

_WHISKER = 1e-6  # of the clip norm: what is sent in the place of a canary that is not there


@dataclass(frozen=True)
class Layout:
    """The arrays of a model, in their order; those of whole numbers (counters) are no part of the vector."""

    shapes: Mapping[str, tuple[int, ...]]
    floats: Mapping[str, slice]  # where each array of floats is in the vector

    @staticmethod
    def of(record: ArrayRecord) -> Layout:
        """The layout of a model."""
        shapes: dict[str, tuple[int, ...]] = {}
        floats: dict[str, slice] = {}
        start = 0
        for name, array in record.items():
            values = array.numpy()
            shapes[name] = values.shape
            if np.issubdtype(values.dtype, np.floating):
                floats[name] = slice(start, start + values.size)
                start += values.size
        return Layout(shapes, floats)

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return max((place.stop for place in self.floats.values()), default=0)

    def fits(self, record: ArrayRecord) -> bool:
        """Whether a record has the same arrays."""
        return {name: array.numpy().shape for name, array in record.items()} == dict(self.shapes)

    def vector(self, record: ArrayRecord) -> Vector:
        """The parameters as one vector, in the precision that they have."""
        return np.concatenate([record[name].numpy().reshape(-1) for name in self.floats])

    def moved(self, record: ArrayRecord, update: Vector) -> ArrayRecord:
        """The model after an update."""
        arrays = {}
        for name, array in record.items():
            place = self.floats.get(name)
            if place is None:
                arrays[name] = array
                continue
            before = array.numpy()
            arrays[name] = Array((before + update[place].reshape(before.shape)).astype(before.dtype))
        return ArrayRecord(arrays)

    def unmoved(self, record: ArrayRecord, clip_norm: float) -> ArrayRecord:
        """The model with one parameter changed by almost nothing: Flower divides by the length of an update."""
        name = next(name for name, place in self.floats.items() if place.stop > place.start)
        values = record[name].numpy().copy()
        first = values.reshape(-1)[:1]
        first[:] = np.maximum(first + values.dtype.type(_WHISKER * clip_norm), np.nextafter(first, values.dtype.type(np.inf)))
        return ArrayRecord({**record, name: Array(values)})


def arrays_of(message: Message) -> tuple[str, ArrayRecord]:
    """(its name, the one record of arrays that a message carries)."""
    found = [(name, record) for name, record in message.content.items() if isinstance(record, ArrayRecord)]
    if len(found) != 1:
        raise MismatchError(
            f"a message with {len(found)} records of arrays; the audit reads messages with exactly one, as Flower's strategies "
            "send them. Put all arrays into one ArrayRecord."
        )
    return found[0]


def metrics_of(message: Message) -> Iterator[tuple[str, MetricRecord]]:
    """The records of metrics that a message carries."""
    return ((name, record) for name, record in message.content.items() if isinstance(record, MetricRecord))


def copied(content: RecordDict) -> RecordDict:
    """Records of its own around the same values: strategies give one record to all messages, and mods take keys out of it."""
    return RecordDict({name: _copied(record) for name, record in content.items()})


def _copied(record: Any) -> Any:
    for kind in (ArrayRecord, ConfigRecord, MetricRecord):
        if isinstance(record, kind):
            return kind(dict(record.items()))
    return record
