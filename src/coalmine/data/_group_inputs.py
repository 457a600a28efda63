"""What is grouped: files and iterables as batches of rows, each with the key of every row as text.

    input                                               read by
    .csv .tsv .txt, also .gz                            pyarrow.csv, in blocks; the key is text as it stands in the file
    .parquet                                            pyarrow.parquet, in batches of row groups
    .jsonl .ndjson .json (one object a line), also .gz  pyarrow.json, in blocks
    .arrow .feather                                     pyarrow.ipc, batch by batch; files and streams
    tables with the Arrow interface, Hugging Face data sets, iterables of dictionaries or batches      one after the other

A key is text or a whole number in every row; 1 and "1" do not mix. Other columns keep their types, without dictionaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from coalmine.data._files import broken, deepest, existing
from coalmine.data.users import arrow
from coalmine.errors import InputFileError

READ_ROWS = 1 << 16  # rows of a batch that is read; files do not depend on it
MOST_COLUMNS = 2_000  # beside the key: every bucket has a buffer for each
_WIDEST = 20_000  # columns of a csv file, of which few are kept
_SHOWN = 20  # columns in a message
_DEEPEST = 1_000  # brackets in one another
_BLOCK = 8 << 20  # bytes of a block of csv or JSON
_TEXTS = (".csv", ".tsv", ".txt")
_JSONS = (".jsonl", ".ndjson", ".json")
_ARROWS = (".arrow", ".feather")
_COMPRESSED = (".gz", ".zst", ".bz2")
_WHOLE = 2.0**53  # above it floating point leaves out whole numbers
KEY = "__user__"  # the column of the key while rows are sorted


@dataclass
class Keyed:
    """Rows with their keys: checked batches of several inputs, and what was left out."""

    user: str | None
    key: Callable[[Any], Any] | None
    columns: Sequence[str] | None
    missing_key: str
    order_by: str | None = None
    dropped: int = 0
    kind: str | None = None  # "text" or "whole number"
    schema: Any = None
    _where: str = ""
    _seen: dict[str, str] = field(default_factory=dict)

    def batches(self, inputs: Sequence[Any]) -> Iterator[Any]:
        """Batches of all inputs, in their order: the key as text in the first column, then the other columns."""
        for number, each in enumerate(inputs):
            self._where = Path(each).name if isinstance(each, str | Path) else f"input {number + 1}"
            row = 0
            for batch in read_batches(each, self.user, self._where):
                keyed = self._checked(batch, row)
                row += batch.num_rows
                if keyed.num_rows:
                    yield keyed

    def _checked(self, batch: Any, row: int) -> Any:
        pa = arrow("grouping data")
        names = batch.schema.names
        _check_names(names, self._where)
        for name in [each for each in (self.user, *(self.columns or ())) if each is not None]:
            if name not in names:
                raise InputFileError(f"{self._where} has no column {name!r}; found {_shown(names)}.")
        if KEY in names:
            raise InputFileError(f"{self._where} has a column {KEY!r}, a name that is used here; rename it.")
        found = batch.column(self.user) if self.key is None else self.key(batch)
        keys, kind = self._keys(pa, found, batch.num_rows, row)
        if self.kind not in (None, kind):
            before = next(iter(self._seen))
            raise InputFileError(
                f"keys of {self._where} are {kind}s and those of {before} are {self.kind}s; 1 and '1' may be two users or one. "
                "Convert the column in one of them."
            )
        self.kind = kind
        self._seen.setdefault(self._where, kind)
        others = [name for name in (self.columns or names) if name != self.user]
        if len(others) > MOST_COLUMNS:
            raise InputFileError(
                f"{self._where} has {len(others):,} columns; at most {MOST_COLUMNS:,} are grouped. Choose some with columns= "
                "(--column)."
            )
        arrays = [_plain(pa, batch.column(name)) for name in others]
        self._same_schema(pa, others, arrays)
        self._can_order(pa)
        made = pa.RecordBatch.from_arrays([keys, *self._ordered(others, arrays)], names=[KEY, *self.schema.names])
        return made.filter(keys.is_valid()) if keys.null_count else made

    def _keys(self, pa: Any, found: Any, rows: int, row: int) -> tuple[Any, str]:
        """The keys as text, null where one is missing; what kind of key it was."""
        keys = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else pa.array(found)
        keys = _plain(pa, keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys)
        if len(keys) != rows:
            raise ValueError(f"key= gave {len(keys)} keys for {rows} rows; it must give one for each.")
        kind, types = "text", pa.types
        if types.is_floating(keys.type):  # whole numbers with holes, as data frames write them
            values = keys.to_numpy(zero_copy_only=False).astype(np.float64)
            if not np.all(np.isnan(values) | (values == np.floor(values))):
                raise InputFileError(f"{self._where}: keys must be text or whole numbers; found fractions in {self._column}.")
            if np.any(np.abs(values) > _WHOLE):
                raise InputFileError(
                    f"{self._where}: {self._column} has floating-point numbers above 2**53, where different keys become one. "
                    "Save it as whole numbers or text."
                )
            keys = pa.array(values, from_pandas=True).cast(pa.int64())
        if types.is_null(keys.type):
            kind, keys = self.kind or "text", keys.cast(pa.string())
        elif types.is_integer(keys.type):
            kind, keys = "whole number", keys.cast(pa.string())
        elif types.is_large_string(keys.type) or types.is_binary(keys.type) or types.is_string_view(keys.type):
            keys = self._as_text(pa, keys)
        elif not types.is_string(keys.type):
            raise InputFileError(f"{self._where}: {self._column} is {keys.type}; keys must be text or whole numbers.")
        return self._present(pa, keys, row), kind

    def _as_text(self, pa: Any, keys: Any) -> Any:
        try:
            return keys.cast(pa.string())
        except pa.ArrowInvalid:
            raise InputFileError(f"{self._where}: {self._column} holds bytes that are not UTF-8.") from None

    def _present(self, pa: Any, keys: Any, row: int) -> Any:
        """Keys with null for those that are missing, which are counted or refused."""
        pc = pa.compute
        empty = pc.equal(pc.binary_length(keys), 0)
        missing = np.asarray(pc.fill_null(empty, True))
        if pc.any(pc.match_substring(keys, "\x00")).as_py():
            raise InputFileError(f"{self._where}: a key in {self._column} contains a NUL character.")
        if not missing.any():
            return keys
        if self.missing_key == "error":
            first = int(np.argmax(missing))
            raise InputFileError(
                f"{self._where}, row {row + first + 1}: {self._column} is empty. Every row needs a user; "
                'leave such rows out with missing_key="drop" (--missing-key drop), which counts them.'
            )
        self.dropped += int(missing.sum())
        return pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), keys)

    @property
    def _column(self) -> str:
        return "what key= gives" if self.user is None else f"column {self.user!r}"

    def _same_schema(self, pa: Any, names: list[str], arrays: list[Any]) -> None:
        found = pa.schema([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)])
        if self.schema is None:
            if not names:
                raise InputFileError(f"{self._where} has no column beside the key; nothing would be left of its rows.")
            self.schema = found
        elif {each.name: each.type for each in found} != {each.name: each.type for each in self.schema}:
            first = next(iter(self._seen))
            here, there = (", ".join(f"{each.name}: {each.type}" for each in schema) for schema in (found, self.schema))
            raise InputFileError(f"{self._where} has the columns {here}, but {first} has {there}. Make them the same.")

    def _can_order(self, pa: Any) -> None:
        """Before anything is written: whether rows can be sorted by this column."""
        if self.order_by is None:
            return
        if self.order_by not in self.schema.names:
            said = _shown(self.schema.names)
            raise InputFileError(
                f"{self._where}: rows cannot be ordered by {self.order_by!r}; columns beside the key are {said}."
            )
        kind = self.schema.field(self.order_by).type
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise InputFileError(f"{self._where}: rows cannot be ordered by {self.order_by!r}, whose values are {kind}.")

    def _ordered(self, names: list[str], arrays: list[Any]) -> list[Any]:
        found = dict(zip(names, arrays, strict=True))
        return [found[name] for name in self.schema.names]


def _check_names(names: Sequence[str], where: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputFileError(f"{where} has two columns {twice[0]!r}; rename one of them.")


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def read_batches(source: Any, user: str | None, where: str) -> Iterator[Any]:
    """The batches of one input."""
    pa = arrow("grouping data")
    if not isinstance(source, str | Path):
        yield from _batches_of(pa, source, where)
        return
    path = existing(source, what="data to group: csv, parquet, JSON lines or Arrow")
    ending = next((each for each in reversed(path.suffixes) if each.lower() not in _COMPRESSED), "").lower()
    readers = {
        **dict.fromkeys(_TEXTS, _csv),
        **dict.fromkeys(_JSONS, _json),
        ".parquet": _parquet,
        **dict.fromkeys(_ARROWS, _ipc),
    }
    if ending not in readers:
        raise InputFileError(f"{path.name!r}: the ending of data to group must be one of {', '.join(readers)}.")
    try:
        yield from readers[ending](pa, path, user)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise broken(path, error, what="a readable table") from None


def uncompressed_bytes(inputs: Sequence[Any], user: str | None) -> int | None:
    """About how many bytes the rows take in memory; None if nobody can know before they are read."""
    total = 0
    for each in inputs:
        if not isinstance(each, str | Path):
            return None
        path = existing(each, what="data to group: csv, parquet, JSON lines or Arrow")
        if path.suffix.lower() == ".parquet":
            total += _parquet_bytes(path, user)
        else:
            total += path.stat().st_size * (5 if path.suffix.lower() in _COMPRESSED else 1)
    return total


def _parquet_bytes(path: Path, user: str | None) -> int:
    """By the size of the first rows in memory: what is stored may be a hundred times smaller."""
    first = next(read_batches(path, user, path.name), None)
    if first is None or not first.num_rows:
        return 0
    import pyarrow.parquet

    rows: int = pyarrow.parquet.read_metadata(path).num_rows
    return int(first.nbytes / first.num_rows * rows)


def _csv(pa: Any, path: Path, user: str | None) -> Iterator[Any]:
    import pyarrow.csv

    with pa.input_stream(str(path), compression="detect") as file:
        header = file.read(_BLOCK).split(b"\n", 1)[0].decode("utf-8", "replace")
    separator = max(",;\t", key=header.count)
    if header.count(separator) >= _WIDEST:
        raise InputFileError(f"{path.name} has {header.count(separator) + 1:,} columns; at most {_WIDEST:,} are read.")
    reader = pyarrow.csv.open_csv(
        pa.input_stream(str(path), compression="detect"),
        read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK, use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types={} if user is None else {user: pa.string()}),
    )
    if wrong := [each.name for each in reader.schema if pa.types.is_binary(each.type)]:
        raise InputFileError(f"{path.name}: column {wrong[0]!r} holds bytes that are not UTF-8. Save the file as UTF-8.")
    last = None
    for batch in reader:
        last = batch if batch.num_rows else last
        yield batch
    if last is not None and _unclosed(pa, last, path):
        raise InputFileError(
            f"{path.name}: a quotation mark is opened and never closed; all rows after it are one value. "
            f"It begins {str(last.column(last.num_columns - 1)[-1])[:40]!r}."
        )


def _unclosed(pa: Any, last: Any, path: Path) -> bool:
    """Whether the file ends within quotation marks, which the reader takes for their end."""
    if "\n" not in str(last.column(last.num_columns - 1)[-1]):
        return False
    end = b""
    with pa.input_stream(str(path), compression="detect") as file:
        if path.suffix.lower() not in _COMPRESSED:
            file.seek(max(path.stat().st_size - 1024, 0))
        while block := file.read(_BLOCK):
            end = (end + block)[-1024:].rstrip(b"\r\n \t")
    return not end.endswith(b'"')


def _json(pa: Any, path: Path, user: str | None) -> Iterator[Any]:
    import pyarrow.json

    with pa.input_stream(str(path), compression="detect") as file:
        if file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            raise InputFileError(f"{path.name} is one JSON list; JSON lines are read here, one object a line.")
    with pa.input_stream(str(path), compression="detect") as file:
        if deepest(file) > _DEEPEST:  # which the reader does not survive
            raise InputFileError(f"{path.name} has values nested more than {_DEEPEST:,} deep; no table has such.")
    options = pyarrow.json.ReadOptions(block_size=_BLOCK, use_threads=False)
    yield from pyarrow.json.open_json(pa.input_stream(str(path), compression="detect"), read_options=options)


def _parquet(pa: Any, path: Path, user: str | None) -> Iterator[Any]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        _check_names(file.schema_arrow.names, path.name)
        yield from file.iter_batches(batch_size=READ_ROWS, use_threads=False)


def _ipc(pa: Any, path: Path, user: str | None) -> Iterator[Any]:
    mapped = pa.memory_map(str(path))
    if mapped.read(6) != b"ARROW1":  # the stream format, as Hugging Face writes it
        mapped.seek(0)
        yield from pa.ipc.open_stream(mapped)
        return
    reader = pa.ipc.open_file(mapped)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def _batches_of(pa: Any, source: Any, where: str) -> Iterator[Any]:
    """A table, a Hugging Face data set, or an iterable of dictionaries, tables or batches."""
    if hasattr(source, "with_format") and hasattr(source, "iter"):
        source = source.with_format("arrow").iter(batch_size=READ_ROWS)
    elif hasattr(source, "__arrow_c_stream__"):
        source = pa.RecordBatchReader.from_stream(source)
    rows = iter(source)
    for first in rows:
        if isinstance(first, pa.RecordBatch | pa.Table):
            yield from first.to_batches(READ_ROWS) if isinstance(first, pa.Table) else [first]
        elif isinstance(first, Mapping):
            yield from _of_dictionaries(pa, [first, *islice(rows, READ_ROWS - 1)], where)
        else:
            raise ValueError(
                f"{where}: rows must be dictionaries of columns, or Arrow batches and tables; found {type(first).__name__}."
            )


def _of_dictionaries(pa: Any, rows: list[Mapping[str, Any]], where: str) -> list[Any]:
    known = rows[0].keys()
    if more := next((set(row) - known for row in rows if not row.keys() <= known), None):
        raise ValueError(f"{where}: a row has a column {min(map(str, more))!r}, which the rows before it do not have.")
    try:
        return list(pa.Table.from_pylist([dict(row) for row in rows]).to_batches())
    except (pa.ArrowException, TypeError, UnicodeError) as error:
        raise ValueError(f"{where}: rows cannot be put into columns: {error}") from None


def _plain(pa: Any, column: Any) -> Any:
    """The values themselves where a column refers to a dictionary of them."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
