"""Data of any size grouped by user on disk: `group_by_user` writes a store, `coalmine.data.grouped` reads it.

    DIR/bucket-0000.arrow …   rows: users of a bucket in the order of their bytes, rows of a user next to each other
    DIR/index.arrow           user, bucket, first row, number of rows; all users in the order of their bytes
    DIR/manifest.json         columns, numbers of rows and users, what was left out and why, SHA-256 of every file

The work is two passes over the data (see `_group_buckets`), in memory that does not grow with them. A build that was stopped
goes on when it is called again, and ends with the same bytes; it is finished when there is a manifest.
"""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coalmine import _validate
from coalmine.data._group_buckets import HASH, SortBucket, settle, write_durably, write_parts
from coalmine.data._group_inputs import Keyed, uncompressed_bytes
from coalmine.data._group_manifest import SCHEMA, check_files, read_manifest
from coalmine.data._group_manifest import GroupedInfo as GroupedInfo
from coalmine.data._group_manifest import read_info as read_info
from coalmine.data.users import INDEX_ROWS, arrow
from coalmine.errors import InputFileError
from coalmine.workers import Workers

MOST_BUCKETS = 1024  # files that are open at once
_UNKNOWN = 64  # buckets where nobody knows the size of the data
_LARGEST = 1 << 30  # bytes of a bucket: texts of 2 GB do not fit into one Arrow column
_AT_ONCE = 1 << 20  # users whose part of the index is sorted at once
_LEFT = ("lock", "begun.json", "parts", "progress", "bucket-", "index.arrow", "manifest.json.part")  # by a stopped build
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def group_by_user(
    inputs: Any,
    out: str | Path,
    *,
    user: str | None = None,
    key: Callable[[Any], Any] | None = None,
    columns: Sequence[str] | None = None,
    order_by: str | None = None,
    buckets: int | None = None,
    memory: str | int = "1GB",
    missing_key: str = "error",
    max_rows_per_user: int | None = None,
    dedup: bool = False,
    format: str = "arrow",
    workers: int = 1,
) -> GroupedInfo:
    """Group rows by user, in a folder that `open_grouped` reads.

    `inputs` is a file or a list of files (csv, parquet, JSON lines, Arrow), a table, a Hugging Face data set, or an iterable of
    dictionaries or Arrow batches. The user of a row is the column `user`, or what the function `key` gives for an Arrow
    batch. Rows without a user are refused, or left out and counted. Called again after an interruption it goes on, with rows
    from memory from the beginning; the files depend on the data and on these arguments, except `workers`.

    Args:
        inputs: Files, a table, a data set, or rows.
        out: The folder.
        user: Column of the user.
        key: Or a function of an Arrow batch.
        columns: That are kept; None: all.
        order_by: Column by which rows of a user are sorted.
        buckets: Files that rows are sorted into; None: as many as fit the memory.
        memory: Limit, as "1GB".
        missing_key: "error" or "drop".
        max_rows_per_user: First rows of a user that are kept, by `order_by` if there is one.
        dedup: Whether equal rows of a user are one.
        format: "arrow" or "parquet".
        workers: Processes.

    Returns:
        Counts of users and rows, and what was left out.
    """
    if (user is None) == (key is None):
        raise ValueError("give either user= (a column) or key= (a function of a batch), which say whose a row is.")
    _validate.one_of("missing_key", missing_key, ("error", "drop"))
    _validate.one_of("format", format, ("arrow", "parquet"))
    most = None if max_rows_per_user is None else _validate.whole("max_rows_per_user", max_rows_per_user, least=1)
    budget, given = parse_bytes(memory), _as_list(inputs)
    count = _buckets(given, user, budget) if buckets is None else _validate.whole("buckets", buckets, least=1)
    if count > MOST_BUCKETS:
        raise ValueError(f"buckets={count} is not allowed: at most {MOST_BUCKETS} files can be open at once.")
    folder = Path(out)
    keyed = Keyed(user, key, None if columns is None else _with(columns, order_by), missing_key, order_by)
    options: dict[str, Any] = {
        "user": user,
        "key": None if key is None else getattr(key, "__qualname__", "a function"),
        "columns": None if columns is None else list(columns),
        "order_by": order_by,
        "buckets": count,
        "budget": min(budget // 3, _LARGEST),
        "missing_key": missing_key,
        "max_rows_per_user": most,
        "dedup": bool(dedup),
        "format": format,
    }
    begun = {"schema": SCHEMA, "hash": HASH, "inputs": [_about(each) for each in given], "options": options}
    with _disk(folder, given, user), _locked(folder):
        if (folder / "manifest.json").is_file():
            _same_files(folder, begun)
        else:
            _same_beginning(folder, begun)
            rows = _first_pass(folder, keyed, given, count, budget)
            sort = SortBucket(folder.resolve(), order_by, most, bool(dedup), options["budget"], format)
            notes = _second_pass(sort, [bucket for bucket, size in enumerate(rows["rows"]) if size], workers)
            digest = _write_index(folder, [note["bucket"] for note in notes])
            _write_manifest(folder, begun, rows, notes, digest)
        for leftover in ("parts", "progress"):
            shutil.rmtree(folder / leftover, ignore_errors=True)
        (folder / "begun.json").unlink(missing_ok=True)
    return read_info(folder)


def parse_bytes(memory: str | int) -> int:
    """A number of bytes, as 1000000, "500MB" or "1GB".

    >>> parse_bytes("1.5GB")
    1500000000
    """
    text = str(memory).strip().upper()
    number = text.rstrip("KMGTB")
    unit = text[len(number) :]
    try:
        found = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise ValueError(f'memory={memory!r} is not allowed: write a number of bytes, as "500MB" or "1GB".') from None
    if found < 1_000_000:
        raise ValueError(f"memory={memory!r} is too little: at least 1MB.")
    return found


def _first_pass(folder: Path, keyed: Keyed, given: list[Any], count: int, budget: int) -> dict[str, Any]:
    """Rows of each bucket, missing keys and columns; done once, and again from the beginning if it was stopped."""
    done = folder / "progress" / "pass1.json"
    if not done.is_file():
        shutil.rmtree(folder / "parts", ignore_errors=True)
        shutil.rmtree(folder / "progress", ignore_errors=True)
        (folder / "progress").mkdir()
        rows = write_parts(keyed.batches(given), folder / "parts", count, budget // 4)
        if not any(rows):
            raise InputFileError("there is no row with a user: nothing to group.")
        schema = {field.name: str(field.type) for field in keyed.schema}
        said = {"rows": rows, "missing_key": keyed.dropped, "columns": schema, "key": keyed.kind}
        write_durably(done, json.dumps(said).encode())
    found: dict[str, Any] = json.loads(done.read_bytes())
    return found


def _second_pass(sort: SortBucket, buckets: list[int], workers: int) -> list[dict[str, Any]]:
    if workers == 1:
        return [sort(bucket) for bucket in buckets]
    with Workers(workers, sort) as pool:
        return pool.map(buckets)


def _write_index(folder: Path, buckets: list[int]) -> str:
    """All users in the order of their bytes, from the sorted users of every bucket; a range of users at a time."""
    pa = arrow("grouping data")
    pieces = [
        pa.ipc.open_file(pa.memory_map(str(folder / "progress" / f"index-{bucket:04d}.arrow"))).read_all() for bucket in buckets
    ]
    schema = pieces[0].schema
    aside, rest = folder / "index.arrow.part", schema.empty_table()
    with pa.ipc.new_file(str(aside), schema) as writer:
        for part in _ranges(pa, pieces):
            joined = pa.concat_tables([rest, part]).combine_chunks()
            whole = joined.num_rows // INDEX_ROWS * INDEX_ROWS
            if whole:
                writer.write_table(joined.slice(0, whole), max_chunksize=INDEX_ROWS)
            rest = joined.slice(whole)
        if rest.num_rows:
            writer.write_table(rest)
    return settle(aside, folder / "index.arrow")


def _ranges(pa: Any, pieces: list[Any]) -> Iterator[Any]:
    """Sorted tables of users, one range after the other; pieces are sorted already."""
    total = sum(piece.num_rows for piece in pieces)
    shares = -(-total // _AT_ONCE)
    longest = max(pieces, key=lambda piece: piece.num_rows)["user"]
    limits = [longest[longest.length() * share // shares].as_py() for share in range(1, shares)]
    starts = [0] * len(pieces)
    for limit in [*limits, None]:
        found = []
        for number, piece in enumerate(pieces):
            end = piece.num_rows if limit is None else _below(piece["user"], limit, starts[number])
            found.append(piece.slice(starts[number], end - starts[number]))
            starts[number] = end
        table = pa.concat_tables(found).combine_chunks()
        yield table.take(pa.compute.sort_indices(table["user"]))


def _below(column: Any, limit: str, low: int) -> int:
    """How many users of a sorted column come before the limit."""
    high = len(column)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if column[middle].as_py() < limit else (low, middle)
    return low


def _write_manifest(
    folder: Path, begun: dict[str, Any], first: dict[str, Any], notes: list[dict[str, Any]], index: str
) -> None:
    manifest = {
        **begun,
        "users": sum(note["users"] for note in notes),
        "rows": sum(note["rows"] for note in notes),
        "buckets": begun["options"]["buckets"],
        "key": first["key"],
        "columns": first["columns"],
        "dropped": {
            "missing_key": first["missing_key"],
            "duplicates": sum(note["duplicates"] for note in notes),
            "over_limit": sum(note["over_limit"] for note in notes),
        },
        "files": {**{note["file"]: note["sha256"] for note in notes}, "index.arrow": index},
    }
    write_durably(folder / "manifest.json", (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode())


def _as_list(inputs: Any) -> list[Any]:
    """Inputs one by one: a list of paths or tables, or a single one."""
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        several = list(inputs)
        if several and not all(isinstance(each, dict) for each in several):
            return several
        if not several:
            raise ValueError("there is no input: name at least one file.")
        return [several]
    return [inputs]


def _about(each: Any) -> dict[str, Any]:
    """What tells one input from another: name, size and time of a file."""
    if not isinstance(each, str | Path):
        return {"name": type(each).__name__}
    path = Path(each)
    if not path.is_file():
        raise InputFileError(f"there is no file {str(each)!r}; data to group are expected there.")
    return {"name": path.name, "bytes": path.stat().st_size, "modified": path.stat().st_mtime_ns}


def _buckets(given: list[Any], user: str | None, budget: int) -> int:
    """As many as make a bucket a third of the memory."""
    size = uncompressed_bytes(given, user)
    return _UNKNOWN if size is None else min(max(1, -(-size // min(budget // 3, _LARGEST // 2))), MOST_BUCKETS)


def _with(columns: Iterable[str], order_by: str | None) -> list[str]:
    return list(dict.fromkeys([*columns, *([] if order_by is None else [order_by])]))


def _same(folder: Path, begun: dict[str, Any], found: dict[str, Any]) -> None:
    if any(found.get(name) != begun[name] for name in ("hash", "inputs", "options")):
        raise InputFileError(
            f"{str(folder)!r} holds groups of other inputs, or made with other options. Name another folder, or remove it."
        )


def _unknown(begun: dict[str, Any]) -> bool:
    """Whether nothing tells that inputs are the same: of files name, size and time do, of rows and functions in memory not."""
    return begun["options"]["key"] is not None or any("bytes" not in each for each in begun["inputs"])


def _same_files(folder: Path, begun: dict[str, Any]) -> None:
    """Nothing to do for a finished store of these inputs, whose files are as they were written."""
    _same(folder, begun, read_manifest(folder))
    if _unknown(begun):
        raise InputFileError(
            f"{str(folder)!r} holds groups already, and rows or a function in memory cannot be compared with what they were "
            "made of. Name another folder, or remove it."
        )
    check_files(folder)


def _same_beginning(folder: Path, begun: dict[str, Any]) -> None:
    """What is continued has these inputs and options; what has not finished its first pass begins again, with any."""
    path = folder / "begun.json"
    if path.is_file() and (folder / "progress" / "pass1.json").is_file():
        _same(folder, begun, json.loads(path.read_bytes()))
        if not _unknown(begun):
            return
    left = _LEFT if path.is_file() else ("lock", "begun.json.part")
    if strange := sorted(each.name for each in folder.iterdir() if not each.name.startswith(left)):
        raise InputFileError(f"{str(folder)!r} is not empty ({strange[0]!r}). Name a new folder for the groups.")
    shutil.rmtree(folder / "progress", ignore_errors=True)
    for bucket in folder.glob("bucket-*"):
        bucket.unlink()
    write_durably(path, json.dumps(begun).encode())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the lock ends with the process."""
    if folder.exists() and not folder.is_dir():
        raise InputFileError(f"{str(folder)!r} is a file. Name a new folder for the groups.")
    if folder.is_symlink() and not folder.exists():
        raise InputFileError(f"{str(folder)!r} is a link that leads nowhere. Name a new folder for the groups.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputFileError(f"cannot make the folder {str(folder)!r}: {error.strerror}. Name another one.") from None
    with (folder / "lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputFileError(f"another process is grouping into {str(folder)!r}; wait for it, or stop it.") from None
        try:
            yield
        finally:
            (folder / "lock").unlink(missing_ok=True)


@contextmanager
def _disk(folder: Path, given: list[Any], user: str | None) -> Iterator[None]:
    """A disk that is full is one message."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        size = uncompressed_bytes(given, user)
        need = "about twice the size of the data in memory" if size is None else f"about {2 * size / 1e9:.1f} GB"
        raise InputFileError(
            f"the disk of {str(folder)!r} is full; grouping needs {need}. What is there stays: free space and call it again."
        ) from None
