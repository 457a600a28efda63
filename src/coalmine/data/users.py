"""Users of a store by their places in its index: millions of them without a Python object for each.

`IndexedUsers` is the sequence that `Federated.users` is for such sources. It is a selection of places in a `UserIndex`, which
is memory-mapped: what it keeps in memory is one whole number for each selected user, and nothing at all if all are selected.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from coalmine.contracts import IndexArray
from coalmine.data._files import broken, needs

INDEX_ROWS = 1 << 16  # rows in a batch of the index: the place of a row says in which batch it is


def arrow(what: str) -> Any:
    """The module pyarrow, which an installation may not have."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
    except ImportError:
        raise needs("pyarrow", what=what, extra="parquet") from None
    return pyarrow


class UserIndex:
    """The index of a store: for every user, in increasing order, bucket, first row and number of rows.

    It travels to other processes as its path, and is mapped into memory again there.
    """

    def __init__(self, path: str | Path, sha256: str):
        self.path, self.sha256 = Path(path), sha256
        pa = arrow("reading grouped data")
        try:
            self._parts = [_Part(batch) for batch in _batches(pa, self.path)]
        except (OSError, pa.ArrowException) as error:
            raise broken(self.path, error, what="the index of a grouped store") from None
        self._firsts = [part.user(0) for part in self._parts]
        self._size: int = sum(len(part) for part in self._parts)
        self._last: tuple[str, int | None] = "", None  # whoever is asked for is asked for again at once

    def __reduce__(self) -> tuple[Any, ...]:
        return UserIndex, (self.path, self.sha256)

    def __len__(self) -> int:
        return self._size

    def user(self, place: int) -> str:
        """The id of the user at a place."""
        return self._parts[place // INDEX_ROWS].user(place % INDEX_ROWS).decode()

    def users(self) -> Iterator[str]:
        """All ids, in increasing order."""
        for part in self._parts:
            yield from part.batch.column(0).to_pylist()

    def place(self, user: object) -> int | None:
        """The place of a user by binary search; None if there is no such user."""
        if not isinstance(user, str):
            return None
        if self._last[0] != user:
            self._last = user, self._search(user.encode("utf-8", "surrogatepass"))
        return self._last[1]

    def _search(self, user: bytes) -> int | None:
        number = bisect_right(self._firsts, user) - 1
        if number < 0:
            return None
        part, low, high = self._parts[number], 0, len(self._parts[number])
        while low + 1 < high:  # user[low] <= user < user[high]
            middle = (low + high) // 2
            low, high = (middle, high) if part.user(middle) <= user else (low, middle)
        return number * INDEX_ROWS + low if part.user(low) == user else None

    def row(self, place: int) -> tuple[int, int, int]:
        """(bucket, first row, number of rows) of the user at a place."""
        bucket, first, count = (int(column[place % INDEX_ROWS]) for column in self._parts[place // INDEX_ROWS].numbers)
        return bucket, first, count

    @cached_property
    def counts(self) -> IndexArray:
        """How many rows each user has: eight bytes for each."""
        return np.concatenate([np.zeros(0, np.int64), *(part.numbers[2] for part in self._parts)])


class _Part:
    """A batch of the index as it is mapped into memory: ids as bytes, whose order is that of the texts."""

    def __init__(self, batch: Any):
        self.batch = batch
        self.numbers = tuple(batch.column(place).to_numpy() for place in (1, 2, 3))
        _, offsets, data = batch.column(0).buffers()
        self._offsets, self._data = memoryview(offsets).cast("B").cast("i"), memoryview(data)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def user(self, row: int) -> bytes:
        """The id in a row."""
        return bytes(self._data[self._offsets[row] : self._offsets[row + 1]])


class IndexedUsers(Sequence[str]):
    """Some users of an index, in its order; `places` None means all of them."""

    def __init__(self, index: UserIndex, places: IndexArray | None = None):
        self.table, self.places = index, places

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexedUsers, (self.table, self.places)

    def __len__(self) -> int:
        return len(self.table) if self.places is None else self.places.size

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> IndexedUsers: ...
    def __getitem__(self, place: int | slice) -> str | IndexedUsers:
        if isinstance(place, slice):
            return self.taken(np.array(range(len(self))[place], np.int64))
        number = range(len(self))[place]  # negative places, and the error of one that is not there
        return self.table.user(number if self.places is None else int(self.places[number]))

    def __iter__(self) -> Iterator[str]:
        if self.places is None:
            return self.table.users()
        return (self.table.user(place) for place in self.places.tolist())

    def __contains__(self, user: object) -> bool:
        return self.place(user) is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexedUsers):
            return NotImplemented
        return self.digest == other.digest

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IndexedUsers({len(self):,} of {len(self.table):,}, {self.digest[:12]})"

    def place(self, user: object) -> int | None:
        """The place in the index of a user who is one of these; None for anybody else."""
        found = self.table.place(user)
        if found is None or self.places is None:
            return found
        number = int(np.searchsorted(self.places, found))
        return found if number < self.places.size and self.places[number] == found else None

    def taken(self, numbers: IndexArray) -> IndexedUsers:
        """The users at these numbers of this sequence, in its order."""
        chosen = np.sort(numbers)
        return IndexedUsers(self.table, chosen if self.places is None else self.places[chosen])

    def numbers_of(self, users: Iterable[str]) -> tuple[IndexArray, list[str]]:
        """(the numbers in this sequence of these users, those who are none of them)."""
        wanted = dict.fromkeys(users)
        found = {user: self.place(user) for user in wanted}
        places = np.array([place for place in found.values() if place is not None], np.int64)
        numbers = places if self.places is None else np.searchsorted(self.places, places)
        return numbers, sorted(user for user, place in found.items() if place is None)

    @cached_property
    def digest(self) -> str:
        """A fingerprint: of the index, and of which users of it these are."""
        chosen = b"all" if self.places is None else self.places.astype("<i8").tobytes()
        return hashlib.sha256(self.table.sha256.encode() + chosen).hexdigest()


def _batches(pa: Any, path: Path) -> list[Any]:
    """The batches of an index, mapped into memory."""
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    if [field.name for field in reader.schema] != ["user", "bucket", "first", "count"] or not batches:
        raise OSError("it has other columns than user, bucket, first, count, or no rows")
    if any(batch.num_rows != INDEX_ROWS for batch in batches[:-1]):
        raise OSError("its batches have another length")
    return batches
