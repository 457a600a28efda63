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
_SINGLE = 4  # bytes


@dataclass(frozen=True)
class ArrayLayout:
    """The arrays of a model, in their order: all of them floats of single precision or better."""

    shapes: Mapping[str, tuple[int, ...]]
    floats: Mapping[str, slice]  # where each array is in the vector

    @staticmethod
    def of(record: ArrayRecord) -> ArrayLayout:
        """The layout of a model; one that no canary could live in is refused."""
        shapes: dict[str, tuple[int, ...]] = {}
        floats: dict[str, slice] = {}
        start = 0
        for name, array in record.items():
            values = array.numpy()
            _check_kind(name, values.dtype)
            shapes[name] = values.shape
            floats[name] = slice(start, start + values.size)
            start += values.size
        return ArrayLayout(shapes, floats)

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
            before = array.numpy()
            after = before + update[self.floats[name]].reshape(before.shape)
            arrays[name] = Array(np.asarray(after, dtype=before.dtype))  # of a single number NumPy makes no array by itself
        return ArrayRecord(arrays)

    def unmoved(self, record: ArrayRecord, clip_norm: float) -> ArrayRecord:
        """The model with one parameter changed by almost nothing: Flower divides by the length of an update."""
        name = next(name for name, place in self.floats.items() if place.stop > place.start)
        values = record[name].numpy().copy()
        first = values.reshape(-1)[:1]
        first[:] = np.maximum(first + values.dtype.type(_WHISKER * clip_norm), np.nextafter(first, values.dtype.type(np.inf)))
        return ArrayRecord({**record, name: Array(values)})


def _check_kind(name: str, kind: np.dtype[Any]) -> None:
    """Flower computes lengths in the arrays' own precision, scales every array in place, and averages all into floats."""
    if np.issubdtype(kind, np.floating) and kind.itemsize >= _SINGLE:
        return
    if np.issubdtype(kind, np.integer) or np.issubdtype(kind, np.bool_):
        raise MismatchError(
            f"array {name!r} holds whole numbers ({kind}): Flower cannot clip an update that has such an array, as a canary's "
            "must be, and averages it into floats. Leave counters out of the record that clients send, or send them as float32."
        )
    raise MismatchError(
        f"array {name!r} is of kind {kind}; canaries live in float32 and float64. In half precision the length of a canary, "
        "which is far above the clip norm, is infinite, and Flower's clipping then cuts it to nothing: the audit would see no "
        "canary and find no fault. Send float32 arrays to the server and convert on the clients."
    )


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
