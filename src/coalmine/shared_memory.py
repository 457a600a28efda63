"""Memory that processes share: large arrays are written once, and read wherever they are needed."""

from __future__ import annotations

import mmap
import os
import tempfile
from io import BytesIO
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from pickle import PickleBuffer, loads
from typing import Any, NamedTuple

import numpy as np

_LARGE = 1 << 16  # bytes, from which on an array goes through shared memory
_ALIGNED = 64
_AT_ONCE = 1 << 30  # bytes of one write


class Packed(NamedTuple):
    """An object as bytes; its large arrays are elsewhere, at these places of a shared memory that is so large."""

    data: bytes
    places: tuple[tuple[int, int], ...] = ()
    size: int = 0


class Room:
    """Memory that processes share: a file without a name, which is gone with the last process that has it open.

    What was written is read until `clear`. Where files cannot be handed to other processes, everything stays in the pickle.
    """

    def __init__(self, file: int | None = None):
        self.file, self._end = _nameless() if file is None else file, 0
        self._known: dict[tuple[int, int], tuple[tuple[int, int], memoryview]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _room, (reduction.DupFd(self.file) if self.file >= 0 else None,)

    def clear(self) -> None:
        """What was written is not needed any more."""
        self._known, self._end = {}, 0

    def close(self) -> None:
        """In this process."""
        self.clear()
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def pack(self, what: Any) -> Packed:
        """As bytes; an array that was written before is not written again."""
        places: list[tuple[int, int]] = []

        def aside(buffer: PickleBuffer) -> bool:
            raw = buffer.raw()
            if self.file < 0 or raw.nbytes < _LARGE:
                return True
            places.append(self._place(raw))
            return False

        packed = BytesIO()
        ForkingPickler(packed, 5, True, aside).dump(what)
        return Packed(packed.getvalue(), tuple(places), self._end)

    def unpack(self, packed: Packed, *, private: bool = False) -> Any:
        """The object. Its large arrays are those of the room, read-only; or copies from the moment they are written to."""
        if not packed.places:
            return loads(packed.data)
        mapped = memoryview(mmap.mmap(self.file, packed.size, access=mmap.ACCESS_COPY if private else mmap.ACCESS_READ))
        return loads(packed.data, buffers=[mapped[start : start + size] for start, size in packed.places])

    def _place(self, raw: memoryview) -> tuple[int, int]:
        key = np.frombuffer(raw, np.uint8).ctypes.data, raw.nbytes
        if key not in self._known:
            for start in range(0, raw.nbytes, _AT_ONCE):
                part, done = raw[start : start + _AT_ONCE], 0
                while done < part.nbytes:
                    done += os.pwrite(self.file, part[done:], self._end + start + done)
            self._known[key] = (self._end, raw.nbytes), raw  # which keeps it: another array could get its address
            self._end += -(-raw.nbytes // _ALIGNED) * _ALIGNED
            if os.fstat(self.file).st_size < self._end:
                os.ftruncate(self.file, self._end)
        return self._known[key][0]


def _nameless() -> int:
    """A file of memory; -1 where there is none that other processes could get."""
    if not hasattr(reduction, "DupFd"):
        return -1
    if hasattr(os, "memfd_create"):
        return os.memfd_create("coalmine")  # no part of /dev/shm, which is small in containers
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _room(handle: Any) -> Room:
    return Room(-1 if handle is None else handle.detach())
