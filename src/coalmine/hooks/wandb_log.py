"""The log that Weights & Biases writes of an offline run: which rounds are in it, and whether it was written to its end.

The tracker writes in a process of its own, some seconds behind: a kill loses what was not yet written, and after a proper end
the file is whole a few milliseconds late. No package of the tracker reads these files, so that it is done here.

The layout is that of the logs of LevelDB: after a head of seven bytes come blocks of 32 kB, and records are cut into chunks so
that none crosses a block. Before a chunk stand a checksum (4 bytes), its size (2) and its kind (1): a whole record, or the
first, a middle or the last part of one.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_HEAD = b":W&B\xe1\xbe\x00"
_BLOCK = 32768
_CHUNK = struct.Struct("<IHB")
_WHOLE, _LAST = 1, 4


def read(data: bytes) -> tuple[list[Any], int] | None:
    """(the whole records of a log up to the first that is damaged, where the last of them ends); None for another layout."""
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record

    if not data.startswith(_HEAD):
        return None
    found: list[Any] = []
    place = end = len(_HEAD)
    parts = b""
    while place + _CHUNK.size <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < _CHUNK.size:  # the rest of a block in which no chunk can begin
            place += left
            continue
        _, size, kind = _CHUNK.unpack_from(data, place)
        place += _CHUNK.size + size
        if kind == 0 or place > len(data):  # not written to the end
            break
        parts += data[place - size : place]
        if kind in (_WHOLE, _LAST):
            try:
                found.append(Record.FromString(parts))
            except DecodeError:
                break
            parts, end = b"", place
    return found, end


def freeze(path: Path) -> int | None:
    """The last round in the log of an earlier process, -1 if there is none; None if the layout is not known.

    The tracker may outlive a process that was killed by a second or two and then still write. What it would write is about to
    be told again; so the log is replaced with a copy of what it holds now, and nothing is there twice.
    """
    data = path.read_bytes()
    found = read(data)
    if found is None:
        return None
    records, end = found
    if not _ended(records):
        aside = path.with_name(path.name + ".part")
        aside.write_bytes(data[:end])
        aside.replace(path)
    return max((int(record.history.step.num) for record in records if record.HasField("history")), default=-1)


def wait_for_its_end(path: Path, patience: float = 10.0) -> None:
    """Until the log is whole, for whoever reads it next; not for ever, since the disk may be full."""
    until = time.monotonic() + patience
    while path.is_file() and time.monotonic() < until:
        found = read(path.read_bytes())
        if found is None or _ended(found[0]):
            return
        time.sleep(0.01)


def _ended(records: Iterable[Any]) -> bool:
    return any(record.HasField("exit") for record in records)
