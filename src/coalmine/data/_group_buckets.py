"""The two passes over grouped data: rows to buckets by a hash of their user, then each bucket sorted by user.

Pass 1 reads the input once and appends every row to the part file of its bucket. Pass 2 sorts the buckets, each on its own:
the users of a bucket in the order of their bytes, the rows of a user in the order of the input or of a column. It needs one
bucket in memory; a bucket that is larger than the budget (one user may be) is written in several ranges of its sorted rows,
reading its part once for each.

The hash is our own and fixed, so that files are the same everywhere: eight bytes of the key at a time, mixed as in the
finaliser of splitmix64 (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.contracts import IndexArray
from coalmine.data._group_inputs import KEY
from coalmine.data.users import arrow
from coalmine.errors import InputFileError

HASH = "mix64/1"
OUT_ROWS = 8192  # rows of a batch in a bucket
_SEEDS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def hash_texts(column: Any, seed: int = 0) -> NDArray[np.uint64]:
    """A fixed 64-bit hash of every text (or bytes) of an Arrow column."""
    pa = arrow("grouping data")
    column = column.cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    with np.errstate(over="ignore"):
        found = _mixed(np.uint64(_SEEDS[seed]) + lengths.astype(np.uint64))
        for place in range(0, int(lengths.max(initial=0)), 8):
            still = np.flatnonzero(lengths > place)
            at = starts[still, None] + place + np.arange(8)
            inside = at < (starts[still] + lengths[still])[:, None]
            words = np.where(inside, data[np.minimum(at, data.size - 1)], 0).astype(np.uint8).view("<u8")[:, 0]
            found[still] = _mixed(found[still] ^ words)
    return found


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    mixed: NDArray[np.uint64] = value ^ (value >> np.uint64(31))
    return mixed


def write_parts(batches: Iterable[Any], folder: Path, buckets: int, held: int) -> list[int]:
    """Pass 1: every row to the part of its bucket, in the order of the input; returns the rows of each bucket.

    About `held` bytes of rows are kept in memory before they are appended, so that parts have few large batches.
    """
    pa = arrow("grouping data")
    folder.mkdir(exist_ok=True)
    writers: dict[int, Any] = {}
    waiting: list[list[Any]] = [[] for _ in range(buckets)]
    rows, size, schema = [0] * buckets, 0, None

    def flush() -> None:
        for bucket, pieces in enumerate(waiting):
            if pieces:
                if bucket not in writers:
                    writers[bucket] = pa.ipc.new_stream(str(_part(folder, bucket)), schema)
                writers[bucket].write_table(pa.Table.from_batches(pieces).combine_chunks())
                pieces.clear()

    for batch in batches:
        schema = batch.schema if schema is None else schema
        where = (hash_texts(batch.column(KEY)) % np.uint64(buckets)).astype(np.int64)
        order = np.argsort(where, kind="stable")
        ordered, ends = batch.take(pa.array(order)), np.cumsum(np.bincount(where, minlength=buckets))
        for bucket in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            first = int(ends[bucket - 1]) if bucket else 0
            waiting[bucket].append(ordered.slice(first, int(ends[bucket]) - first))
            rows[bucket] += int(ends[bucket]) - first
        size += ordered.nbytes
        if size >= held:
            flush()
            size = 0
    flush()
    for writer in writers.values():
        writer.close()
    return rows


@dataclass(frozen=True)
class SortBucket:
    """Pass 2 for one bucket; a job of workers, whose result depends on the bucket alone."""

    folder: Path
    order_by: str | None
    max_rows: int | None
    dedup: bool
    budget: int  # bytes of rows in memory
    form: str  # "arrow" or "parquet"

    def prepare(self) -> None:
        """Nothing to prepare."""

    def __call__(self, task: int) -> dict[str, Any]:
        """Sorts a bucket, unless it is done; returns what its note says."""
        note = self.folder / "progress" / f"bucket-{task:04d}.json"
        if not note.is_file():
            said = self._sorted(task)
            write_durably(note, json.dumps(said, sort_keys=True).encode())
        _part(self.folder / "parts", task).unlink(missing_ok=True)
        found: dict[str, Any] = json.loads(note.read_bytes())
        return found

    def _sorted(self, bucket: int) -> dict[str, Any]:
        pa = arrow("grouping data")
        with pa.memory_map(str(_part(self.folder / "parts", bucket))) as mapped:
            batches = list(pa.ipc.open_stream(mapped))
            users, place = _users(pa, batches)
            order, dropped = self._order(pa, batches, place)
            counts = np.bincount(place[order], minlength=len(users))
            schema = batches[0].schema.remove(0).remove_metadata()
            name = f"bucket-{bucket:04d}.{self.form}"
            aside = self.folder / f"{name}.part"
            with _Writer(pa, aside, schema, self.form) as writer:
                for table in _in_order(pa, [batch.drop_columns([KEY]) for batch in batches], order, self.budget):
                    writer.write_table(table)
        self._write_index(pa, bucket, users, counts)
        digest = settle(aside, self.folder / name)
        return {"bucket": bucket, "file": name, "rows": int(order.size), "users": len(users), "sha256": digest, **dropped}

    def _order(self, pa: Any, batches: list[Any], place: IndexArray) -> tuple[IndexArray, dict[str, int]]:
        """The rows in the order in which they are written, and how many are left out for which reason."""
        rows = np.arange(place.size)
        if self.order_by is not None:
            by = pa.chunked_array([batch.column(self.order_by) for batch in batches])
            rows = rows[
                np.asarray(
                    pa.compute.sort_indices(pa.table({"by": by, "row": rows}), [("by", "ascending"), ("row", "ascending")])
                )
            ]
        order: IndexArray = rows[np.argsort(place[rows], kind="stable")]
        dropped = {"duplicates": 0, "over_limit": 0}
        if self.dedup:
            kept = _first_ones(batches, place, order)
            dropped["duplicates"], order = int(order.size - kept.size), kept
        if self.max_rows is not None:
            ends = np.cumsum(np.bincount(place[order]))
            within = np.arange(order.size) - (ends - np.bincount(place[order]))[place[order]]
            kept = order[within < self.max_rows]
            dropped["over_limit"], order = int(order.size - kept.size), kept
        return order, dropped

    def _write_index(self, pa: Any, bucket: int, users: Any, counts: IndexArray) -> None:
        first = np.cumsum(counts) - counts
        path = self.folder / "progress" / f"index-{bucket:04d}.arrow"
        columns = [users, pa.array(np.full(len(users), bucket, np.int32)), pa.array(first), pa.array(counts)]
        aside = path.with_name(path.name + ".part")
        table = pa.table(columns, names=["user", "bucket", "first", "count"])
        with pa.ipc.new_file(str(aside), table.schema) as writer:
            writer.write_table(table)
        settle(aside, path)


def _users(pa: Any, batches: list[Any]) -> tuple[Any, IndexArray]:
    """The users of a bucket in the order of their bytes, and for each row the place of its user."""
    encoded = pa.chunked_array([batch.column(KEY) for batch in batches]).dictionary_encode().unify_dictionaries()
    known = encoded.chunk(0).dictionary
    order = np.asarray(pa.compute.sort_indices(known))
    places = np.empty(len(known), np.int64)
    places[order] = np.arange(len(known))
    found = [places[chunk.indices.to_numpy()] for chunk in encoded.chunks]
    return known.take(pa.array(order)), np.concatenate(found)


def _first_ones(batches: list[Any], place: IndexArray, order: IndexArray) -> IndexArray:
    """The rows that no earlier row of the same user equals, by 128 bits of their content."""
    content = [np.concatenate([_row_hashes(batch, seed) for batch in batches]) for seed in (0, 1)]
    keys = np.stack([place.astype(np.uint64), *content], axis=1)[order]
    _, first = np.unique(keys, axis=0, return_index=True)
    return order[np.sort(first)]


def _row_hashes(batch: Any, seed: int) -> NDArray[np.uint64]:
    pa = arrow("grouping data")
    found = np.full(batch.num_rows, seed, np.uint64)
    for name in batch.schema.names[1:]:
        column, types = batch.column(name), pa.types
        if not (types.is_primitive(column.type) or types.is_string(column.type) or types.is_binary(column.type)):
            raise InputFileError(f"dedup: rows with a column of type {column.type} ({name!r}) cannot be compared.")
        there = np.asarray(column.is_valid())
        texts = column if not types.is_primitive(column.type) else column.cast(pa.string())
        with np.errstate(over="ignore"):
            hashes: NDArray[np.uint64] = np.where(there, hash_texts(texts.fill_null(""), seed), np.uint64(1))
            found = _mixed(np.bitwise_xor(found, hashes))
    return found


def _in_order(pa: Any, batches: list[Any], order: IndexArray, budget: int) -> Iterator[Any]:
    """Tables of rows in this order, none much larger than the budget."""
    size = sum(batch.nbytes for batch in batches)
    if size <= budget:
        table = pa.Table.from_batches(batches).combine_chunks()
        for first in range(0, order.size, 16 * OUT_ROWS):
            yield table.take(pa.array(order[first : first + 16 * OUT_ROWS]))
        return
    rank = np.full(sum(batch.num_rows for batch in batches), -1, np.int64)
    rank[order] = np.arange(order.size)
    step = max(OUT_ROWS, int(order.size * budget / size) // OUT_ROWS * OUT_ROWS)
    for low in range(0, order.size, step):
        pieces, ranks, row = [], [], 0
        for batch in batches:
            own = rank[row : row + batch.num_rows]
            row += batch.num_rows
            inside = np.flatnonzero((own >= low) & (own < low + step))
            if inside.size:
                pieces.append(batch.take(pa.array(inside)))
                ranks.append(own[inside])
        yield pa.Table.from_batches(pieces).combine_chunks().take(pa.array(np.argsort(np.concatenate(ranks))))


class _Writer:
    """A file of tables in batches of fixed length, as Arrow or parquet."""

    def __init__(self, pa: Any, path: Path, schema: Any, form: str):
        self._pa, self._rest, self._parquet = pa, schema.empty_table(), form == "parquet"
        if self._parquet:
            import pyarrow.parquet

            self._file = pyarrow.parquet.ParquetWriter(str(path), schema, compression="zstd")
        else:
            self._file = pa.ipc.new_file(str(path), schema)

    def __enter__(self) -> _Writer:
        return self

    def _put(self, table: Any) -> None:
        self._file.write_table(table, **{"row_group_size" if self._parquet else "max_chunksize": OUT_ROWS})

    def write_table(self, table: Any) -> None:
        """Adds rows; batches are full wherever the tables end."""
        joined = self._pa.concat_tables([self._rest, table]).combine_chunks()
        whole = joined.num_rows // OUT_ROWS * OUT_ROWS
        if whole:
            self._put(joined.slice(0, whole))
        self._rest = joined.slice(whole)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: object) -> None:
        if kind is None and self._rest.num_rows:
            self._put(self._rest)
        self._file.close()


def settle(aside: Path, path: Path) -> str:
    """Makes a file that was written aside durable and gives it its name; returns its SHA-256."""
    with aside.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    aside.replace(path)
    return digest.hexdigest()


def write_durably(path: Path, data: bytes) -> None:
    """A whole file, or none."""
    aside = path.with_name(path.name + ".part")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _part(folder: Path, bucket: int) -> Path:
    return folder / f"part-{bucket:04d}.arrow"
