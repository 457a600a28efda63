"""Any table, and any data in memory, grouped by a key: csv (comma, semicolon or tab), parquet, or arrays.

    user,age,income,bought
    ann,31,2100,1
    bob,44,1800,0
    ann,31,2150,0

    read_table("visits.csv", user="user", features=["age", "income"], target="bought")

Users are sorted: whole numbers by value if the key holds numbers (parquet, arrays), else as text. Rows of a user keep their
order. Columns that are not named are not read. Every cell that is read must hold something; only a text may be empty.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.contracts import IndexArray
from coalmine.data._files import broken, existing, needs
from coalmine.data.dataset import Examples, FederatedDataset, Stacked
from coalmine.data.texts import FederatedTexts, TextsInMemory
from coalmine.errors import InputFileError


def group_examples(key: ArrayLike, features: ArrayLike, targets: ArrayLike, *, name: str = "in memory") -> FederatedDataset:
    """Arrays (or columns of a data frame) with one row for each example, grouped by the key of each row.

    Features and targets that are fractions become float32, whole numbers int64.
    """
    users, place = _grouped(key)
    examples = Examples(_numbers(features, "features"), _numbers(targets, "targets"))
    if len(examples) != place.size:
        raise ValueError(f"{place.size} keys do not fit {len(examples)} examples.")
    starts: IndexArray = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(users)))])
    return FederatedDataset(name, users, Stacked(users, examples, np.argsort(place, kind="stable"), starts))


def group_texts(
    key: ArrayLike, texts: Iterable[str], *, labels: ArrayLike | None = None, name: str = "in memory"
) -> FederatedTexts:
    """Texts grouped by the key of each, with their classes if they have any."""
    users, place = _grouped(key)
    said = list(texts)
    if len(said) != place.size:
        raise ValueError(f"{place.size} keys do not fit {len(said)} texts.")
    if strange := [text for text in said if not isinstance(text, str)]:
        raise ValueError(f"texts must be text; found {strange[0]!r:.40}.")
    order = np.argsort(place, kind="stable")
    pieces = np.split(order, np.cumsum(np.bincount(place, minlength=len(users)))[:-1])
    grouped = {user: [said[row] for row in rows] for user, rows in zip(users, pieces, strict=True)}
    if labels is None:
        return FederatedTexts(name, users, TextsInMemory(grouped))
    classes = _numbers(labels, "labels")
    if len(classes) != len(said):
        raise ValueError(f"{len(classes)} labels do not fit {len(said)} texts.")
    source = TextsInMemory(grouped, {user: classes[rows] for user, rows in zip(users, pieces, strict=True)})
    return FederatedTexts(name, users, source)


def read_table(
    path: str | Path, *, user: str, features: str | Sequence[str], target: str, name: str | None = None
) -> FederatedDataset:
    """A csv or parquet file of numbers, grouped by the column `user`.

    `features` is a list of columns, one number each, or a single column, which in parquet may hold lists of equal length.
    """
    names = [features] if isinstance(features, str) else list(features)
    path, columns = _columns(path, [user, *names, target], key=user)
    try:
        parts = [_numbers(columns[each], each) for each in names]
        stacked = parts[0] if isinstance(features, str) else np.stack(parts, axis=1)
        return group_examples(columns[user], stacked, columns[target], name=path.stem if name is None else name)
    except ValueError as error:
        raise broken(path, error, what="a table of numbers with a key") from None


def read_text_table(
    path: str | Path, *, user: str, text: str, label: str | None = None, name: str | None = None
) -> FederatedTexts:
    """A csv or parquet file with a column of texts and optionally one of classes, grouped by the column `user`."""
    path, columns = _columns(path, [user, text, *([] if label is None else [label])], key=user, text=text)
    labels = None if label is None else columns[label]
    try:
        return group_texts(columns[user], columns[text], labels=labels, name=path.stem if name is None else name)
    except ValueError as error:
        raise broken(path, error, what="a table of texts with a key") from None


def _grouped(key: ArrayLike) -> tuple[tuple[str, ...], IndexArray]:
    """The users, sorted, and for each row the place of its user."""
    keys = np.asarray(key)
    if keys.ndim != 1:
        raise ValueError(f"a key has one entry for each row; got an array of shape {keys.shape}.")
    if keys.dtype.kind not in "iu":
        if strange := [each for each in keys.tolist() if not (isinstance(each, str) and each)]:
            raise ValueError(f"a key must be text or a whole number in every row; found {strange[0]!r:.40}.")
        keys = keys.astype(object)  # numpy's own text drops zero characters at the end
    known, place = np.unique(keys, return_inverse=True)
    return tuple(str(each) for each in known.tolist()), place.astype(np.int64)


def _numbers(values: ArrayLike, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind not in "iufb" or array.ndim == 0:
        raise ValueError(f"{name} must hold numbers, the same count in every row; got {array.dtype} of shape {array.shape}")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has NaN or infinity in row {np.argwhere(~np.isfinite(array))[0, 0]}")
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32)
        if not np.isfinite(narrow).all():
            raise ValueError(f"{name} has numbers beyond the range of float32")
        return narrow
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{name} has whole numbers beyond the range of int64")
    return array.astype(np.int64)


def _columns(path: str | Path, names: list[str], *, key: str, text: str | None = None) -> tuple[Path, dict[str, Any]]:
    """These columns of a file; all but the key and the text are numbers."""
    path = existing(path, what="a csv or parquet table")
    readers = {".csv": _csv_columns, ".tsv": _csv_columns, ".txt": _csv_columns, ".parquet": _parquet_columns}
    if path.suffix.lower() not in readers:
        raise InputFileError(f"{path.name!r}: the ending of a table must be one of {', '.join(readers)}.")
    return path, readers[path.suffix.lower()](path, list(dict.fromkeys(names)), key, text)


def _check_names(path: Path, found: list[str], names: list[str]) -> None:
    for name in names:
        if found.count(name) != 1:
            how = "no column" if name not in found else "more than one column"
            raise InputFileError(f"{path.name} has {how} {name!r}; found {', '.join(map(repr, found)) or 'none'}.")


def _csv_columns(path: Path, names: list[str], key: str, text: str | None) -> dict[str, Any]:
    cells: dict[str, list[str]] = {name: [] for name in names}
    lines: list[int] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = file.readline()
            separator = max(",;\t", key=header.count)
            found = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
            _check_names(path, found, names)
            places = [(cells[name], found.index(name)) for name in names]
            rows = csv.reader(file, delimiter=separator, strict=True)
            for row in rows:
                if not row:
                    continue
                if len(row) != len(found):
                    raise ValueError(f"line {rows.line_num + 1} has {len(row)} cells where the header has {len(found)}")
                lines.append(rows.line_num + 1)
                for column, place in places:
                    if not row[place].strip() and found[place] != text:
                        raise ValueError(f"line {rows.line_num + 1}: column {found[place]!r} is empty")
                    column.append(row[place])
    except (UnicodeDecodeError, ValueError, csv.Error) as error:
        raise broken(path, error, what="a readable csv table") from None
    return {name: column if name in (key, text) else _parsed(path, name, column, lines) for name, column in cells.items()}


def _parsed(path: Path, name: str, column: list[str], lines: list[int]) -> NDArray[Any]:
    """Cells as whole numbers if all of them are, else as fractions."""
    for kind, dtype in ((int, np.int64), (float, np.float64)):
        try:
            return np.array([kind(cell) for cell in column], dtype)
        except (ValueError, OverflowError):
            continue
    for cell, line in zip(column, lines, strict=True):
        try:
            float(cell)
        except ValueError:
            raise InputFileError(f"{path.name}, line {line}: {cell!r} in column {name!r} is not a number.") from None
    raise InputFileError(f"{path.name}: column {name!r} cannot be read as numbers.")


def _parquet_columns(path: Path, names: list[str], key: str, text: str | None) -> dict[str, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise needs("pyarrow", what="reading parquet", extra="parquet") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_names(path, list(file.schema_arrow.names), names)
            table = file.read(columns=names)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise broken(path, error, what="a readable parquet table") from None
    columns = {}
    for name in names:
        column = table.column(name)
        if column.null_count:
            raise InputFileError(f"{path.name}: column {name!r} has {column.null_count} empty cells; every row needs a value.")
        flat = pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
        try:
            columns[name] = column.to_numpy() if flat else np.array(column.to_pylist(), object if name in (key, text) else None)
        except ValueError as error:
            raise broken(path, f"column {name!r}: {error}", what="a table of numbers with a key") from None
    return columns
