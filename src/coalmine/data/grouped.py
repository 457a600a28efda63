"""Grouped data read lazily: the users of a store that `group_by_user` wrote, each loaded when asked for.

The files are mapped into memory, not read: opening a store costs the same for a thousand users and for ten million. A source
travels to other processes as its path. `open_grouped` returns texts if a column of texts is named or if there is exactly one,
features and targets if these are named, and else the columns as they are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.contracts import IndexArray
from coalmine.data._files import broken
from coalmine.data._group_buckets import OUT_ROWS
from coalmine.data._group_manifest import describe, read_manifest
from coalmine.data.dataset import Examples, Federated, FederatedDataset, Rows
from coalmine.data.texts import FederatedTexts, Texts
from coalmine.data.users import IndexedUsers, UserIndex, arrow
from coalmine.errors import InputFileError

_TEXTS = ("string", "large_string", "string_view")
_OPEN = {"arrow": 8192, "parquet": 64}  # batches that are kept at hand: views of a mapped file, or rows in memory


class GroupedStore:
    """The rows of every user, as Arrow tables; travels as its path."""

    def __init__(self, path: str | Path):
        self.path = Path(path).resolve()
        self.manifest = read_manifest(self.path)
        self.index = UserIndex(self.path / "index.arrow", self.manifest["files"]["index.arrow"])
        if len(self.index) != self.manifest["users"]:
            raise InputFileError(
                f"{str(self.path)!r} is damaged: its index has {len(self.index):,} users. Group the data again."
            )
        self._files: dict[int, Any] = {}
        self._batches: OrderedDict[tuple[int, int], Any] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return GroupedStore, (self.path,)

    @property
    def users(self) -> IndexedUsers:
        """All users, in the order of their bytes."""
        return IndexedUsers(self.index)

    @property
    def columns(self) -> dict[str, str]:
        """Types of the columns by name."""
        found: dict[str, str] = self.manifest["columns"]
        return found

    @property
    def digest(self) -> str:
        """A fingerprint of all files."""
        return "|".join(f"{name} {digest}" for name, digest in sorted(self.manifest["files"].items()))

    def sizes(self, users: Sequence[str]) -> IndexArray:
        """How many rows each of these users has."""
        if isinstance(users, IndexedUsers):
            return self.index.counts if users.places is None else self.index.counts[users.places]
        return np.array([self._row(user)[2] for user in users], np.int64)

    def table(self, user: str, rows: Rows) -> Any:
        """Some rows of a user."""
        pa = arrow("reading grouped data")
        bucket, first, count = self._row(user)
        pieces, at = [], first
        while at < first + count:
            batch = self._batch(pa, bucket, at // OUT_ROWS)
            piece = batch.slice(at % OUT_ROWS, min(first + count - at, OUT_ROWS - at % OUT_ROWS))
            pieces.append(piece)
            at += piece.num_rows
        table = pa.Table.from_batches(pieces)
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(count)
            return table.slice(start, max(stop - start, 0))
        return table.take(pa.array(rows))

    def _row(self, user: str) -> tuple[int, int, int]:
        place = self.index.place(user)
        if place is None:
            raise ValueError(f"{user!r} is not one of the {len(self.index):,} users of {self.path.name}.")
        return self.index.row(place)

    def _batch(self, pa: Any, bucket: int, number: int) -> Any:
        at = bucket, number
        if at not in self._batches:
            if len(self._batches) >= _OPEN[self.manifest["options"]["format"]]:
                self._batches.popitem(last=False)
            self._batches[at] = self._read(pa, bucket, number)
        return self._batches[at]

    def _read(self, pa: Any, bucket: int, number: int) -> Any:
        form = self.manifest["options"]["format"]
        path = self.path / f"bucket-{bucket:04d}.{form}"
        try:
            if bucket not in self._files:
                self._files[bucket] = _opened(pa, path, form)
            file = self._files[bucket]
            return file.get_batch(number) if form == "arrow" else file.read_row_group(number).combine_chunks().to_batches()[0]
        except (OSError, pa.ArrowException) as error:
            raise broken(path, error, what="a bucket of a grouped store") from None


def _opened(pa: Any, path: Path, form: str) -> Any:
    if form == "arrow":
        return pa.ipc.open_file(pa.memory_map(str(path)))
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path, memory_map=True)


@dataclass(frozen=True, eq=False)
class _Source:
    """What all sources over a store share."""

    store: GroupedStore

    @property
    def users(self) -> IndexedUsers:
        return self.store.users

    @property
    def digest(self) -> str:
        """A fingerprint of the data."""
        return f"{type(self).__name__} {self.store.digest} {[value for name, value in vars(self).items() if name != 'store']}"

    def sizes(self, users: Sequence[str]) -> IndexArray:
        return self.store.sizes(users)


@dataclass(frozen=True, eq=False)
class GroupedTexts(_Source):
    """A column of texts, and one of classes if there is one."""

    text: str
    label: str | None = None

    def load(self, user: str, rows: Rows) -> Texts:
        """Some of a user's texts."""
        table = self.store.table(user, rows)
        column = table.column(self.text)
        if column.null_count:
            raise InputFileError(f"{self.store.path.name}: user {user!r} has a row without {self.text!r}.")
        labels = None if self.label is None else _numbers(table, [self.label], user)[:, 0]
        if self.store.columns[self.text] in _TEXTS:
            return Texts(tuple(column.to_pylist()), labels)
        pa = arrow("reading grouped data")
        try:
            return Texts(tuple(column.cast(pa.large_string()).to_pylist()), labels)  # bytes, as TFDS has them
        except pa.ArrowInvalid:
            raise InputFileError(
                f"{self.store.path.name}: {self.text!r} of user {user!r} holds bytes that are not UTF-8."
            ) from None


@dataclass(frozen=True, eq=False)
class GroupedExamples(_Source):
    """Columns of numbers as features, and one as target."""

    features: tuple[str, ...]
    target: str

    def load(self, user: str, rows: Rows) -> Examples:
        """Some of a user's examples."""
        table = self.store.table(user, rows)
        features = _numbers(table, self.features, user)
        return Examples(features, _numbers(table, [self.target], user)[:, 0])


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of one user as they are."""

    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True, eq=False)
class GroupedColumns(_Source):
    """All columns as they are."""

    def load(self, user: str, rows: Rows) -> Columns:
        """Some of a user's rows."""
        table = self.store.table(user, rows)
        return Columns({name: table.column(name).to_numpy() for name in table.schema.names})


@dataclass(frozen=True, eq=False)
class FederatedColumns(Federated[Columns]):
    """Users with columns of any types."""

    def __iter__(self) -> Iterator[tuple[str, Columns]]:
        """Each user with their rows, one after the other."""
        for user in self.users:
            yield user, self.load(user)


def open_grouped(
    path: str | Path,
    *,
    text: str | None = None,
    label: str | None = None,
    features: str | Sequence[str] | None = None,
    target: str | None = None,
    name: str | None = None,
) -> FederatedTexts | FederatedDataset | FederatedColumns:
    """The users of a folder that `group_by_user` or `coalmine group` wrote, each loaded when asked for.

    Name the column `text` for texts, `features` and `target` for examples; of a store with exactly one column of texts and
    nothing named, that one is taken.

    Args:
        path: The folder.
        text: Column of texts.
        label: Column of their labels.
        features: Columns of features.
        target: Column of the target.
        name: Of the data set, for reports.

    Returns:
        Users, each loaded when asked for.
    """
    store = GroupedStore(path)
    called = store.path.name if name is None else name
    chosen = [features] if isinstance(features, str) else list(features or ())
    for column in [each for each in (text, label, target, *chosen) if each is not None]:
        _validate.one_of("a column", column, store.columns)
    if (target is None) != (not chosen):
        raise ValueError("features and target belong together; name both, or neither.")
    if chosen and target is not None:
        if text is not None:
            raise ValueError("name text, or features and target, not both.")
        return FederatedDataset(called, store.users, GroupedExamples(store, tuple(chosen), target))
    if text is not None and store.columns[text] not in (*_TEXTS, "binary", "large_binary"):
        raise ValueError(f"the column {text!r} has values of type {store.columns[text]}; texts are needed.")
    texts = [column for column, kind in store.columns.items() if kind in _TEXTS]
    if text is None and len(texts) == 1:
        text = texts[0]
    if text is None:
        return FederatedColumns(called, store.users, GroupedColumns(store))
    return FederatedTexts(called, store.users, GroupedTexts(store, text, label))


@wraps(open_grouped)  # the same arguments
def read_grouped(path: str | Path, **columns: Any) -> FederatedTexts | FederatedDataset:
    """As `open_grouped`, for training: the store must have texts, or features and target must be named."""
    found = open_grouped(path, **columns)
    if isinstance(found, FederatedColumns):
        raise ValueError(
            f"{str(path)!r} has the columns {', '.join(found.source.store.columns)}; say which to train on, by "  # type: ignore[attr-defined]
            'data.options.text = "COLUMN", or data.options.features = [...] and data.options.target = "COLUMN".'
        )
    return found


def statistics(path: str | Path) -> dict[str, Any]:
    """Sizes of a store: users, rows, rows of a user, and words and characters of its texts."""
    store, pa = GroupedStore(path), arrow("reading grouped data")
    found: dict[str, Any] = {
        "users": len(store.index),
        "rows": store.manifest["rows"],
        "dropped": store.manifest["dropped"],
        "rows_of_a_user": describe(store.index.counts),
    }
    for column, kind in store.columns.items():
        if kind in _TEXTS:
            words, characters = (np.concatenate(each) for each in zip(*_lengths(pa, store, column), strict=True))
            found[column] = {
                "words": int(words.sum()),
                "characters": int(characters.sum()),
                "words_of_a_row": describe(words),
            }
    return found


def _lengths(pa: Any, store: GroupedStore, column: str) -> Iterator[tuple[IndexArray, IndexArray]]:
    """(words, characters) of the texts of every batch, bucket by bucket."""
    form = store.manifest["options"]["format"]
    for name in sorted(each for each in store.manifest["files"] if each.startswith("bucket-")):
        file = _opened(pa, store.path / name, form)
        parts = (file.get_batch(i) for i in range(file.num_record_batches)) if form == "arrow" else file.iter_batches()
        for batch in parts:
            texts = pa.compute.fill_null(batch.column(batch.schema.get_field_index(column)), "")
            words = pa.compute.list_value_length(pa.compute.utf8_split_whitespace(pa.compute.utf8_trim_whitespace(texts)))
            empty = np.asarray(pa.compute.equal(pa.compute.utf8_length(pa.compute.utf8_trim_whitespace(texts)), 0))
            yield (
                np.where(empty, 0, np.asarray(words)).astype(np.int64),
                np.asarray(pa.compute.utf8_length(texts)).astype(np.int64),
            )


def _numbers(table: Any, names: Sequence[str], user: str) -> NDArray[Any]:
    """Columns of numbers side by side; a single column of lists as a matrix."""
    parts = []
    for name in names:
        column = table.column(name)
        if column.null_count:
            raise InputFileError(f"user {user!r} has a row without {name!r}; every row needs a value.")
        values = column.to_numpy()
        if values.dtype == object:
            try:
                values = np.stack([np.asarray(each) for each in values]) if len(values) else np.zeros((0, 0), np.float32)
            except ValueError:
                raise InputFileError(f"user {user!r}: lists in {name!r} have different lengths.") from None
        parts.append(values)
    joined = parts[0] if len(parts) == 1 and parts[0].ndim > 1 else np.stack(parts, axis=1)
    if joined.dtype.kind == "f":
        return joined.astype(np.float32)
    return joined.astype(np.int64)
