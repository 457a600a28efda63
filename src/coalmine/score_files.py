"""File formats of scores: csv, npz, parquet, in two layouts.

Long, one row per canary (optional whole-number columns: canary, run, round, replicate, group):

    value,inserted
    0.0123,1
    -0.0040,0

Two columns of scores, which need not be equally long (the shorter one is padded with empty cells at the end):

    inserted,held_out
    0.0123,-0.0040
    0.0099,

`score` is accepted for `value`; `inserted` takes 1/0, true/false, yes/no. A column with another name is an error that shows
what was found: no row and no column is dropped silently. Files are read as data; nothing in them is executed or unpickled.
"""

import csv
import json
import zipfile
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from coalmine.errors import InputFileError

LABELS = ("canary", "run", "round", "replicate", "group")
_SHOWN = 20  # columns of a header in a message
MOST_BYTES = 1_000_000_000  # of a file, or of what it unpacks to
MOST_CELLS = 50_000_000  # of all columns
_LONGEST_LINE = 1 << 20  # characters; a file without line ends is not read as one line
_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_LAYOUTS = (
    "Known layouts: 'value,inserted' with one row per canary (and optionally " + ", ".join(LABELS) + "), "
    "or 'inserted,held_out' with one column of scores each, or 'inserted' alone together with dim."
)
# what numpy and zipfile raise for bytes that are no archive: RuntimeError for encryption and unknown compression
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError, RuntimeError, MemoryError)


def read_csv(path: str | Path) -> dict[str, Any]:
    """The columns of a csv file (comma, semicolon or tab), ready for `Scores`."""
    path = _existing(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = _lines(path, file)
            header_line = next(lines, "")
            if not header_line.strip():
                raise InputFileError(f"{path.name} is empty, or its first line is. {_LAYOUTS}")
            separator = max(",;\t", key=header_line.count)
            names = _names(path, next(csv.reader([header_line], delimiter=separator)))
            rows = csv.reader(lines, delimiter=separator)
            if "value" in names:
                return _long_columns(path, names, _cells(path, names, rows))
            return _two_columns(path, names, rows)
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path.name} is not a text file in UTF-8 ({error.reason}).") from None
    except csv.Error as error:
        raise InputFileError(f"{path.name} is not a readable csv file: {error}.") from None


def read_npz(path: str | Path) -> dict[str, Any]:
    """The columns of a numpy archive, ready for `Scores`."""
    path = _existing(path)
    columns = read_arrays(path, f"not named columns. {_LAYOUTS}")
    about = _about(path, columns.pop("about", None))
    return {**_from_arrays(path, columns), **about}


def read_arrays(path: str | Path, alone: str) -> dict[str, Any]:
    """The arrays of a numpy archive; `alone` ends the message about a file of one array."""
    path = _existing(path)
    try:
        with path.open("rb") as file:  # numpy leaves a file open that it cannot read
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise InputFileError(f"{path.name} holds a single array, {alone}")
            _check_size(path, sum(part.file_size for part in archive.zip.infolist()))
            return {name: np.asarray(archive[name]) for name in archive.files}
    except _UNREADABLE as error:
        reason = "it holds Python objects or is no archive; nothing is ever unpickled" if "pickle" in str(error) else error
        raise InputFileError(f"{path.name} is not a complete npz file ({reason}). Write it again with numpy.savez.") from None


def read_parquet(path: str | Path) -> dict[str, Any]:
    """The columns of a parquet file, ready for `Scores`."""
    path = _existing(path)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputFileError('reading parquet needs pyarrow: pip install "coalmine[parquet]"') from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_cells(path, file.metadata.num_rows * file.metadata.num_columns)
            table = file.read()
        found = table.column_names
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputFileError(f"{path.name} is not a readable parquet file: {str(error).partition(chr(10))[0]}") from None
    columns = {}
    names = _names(path, found)
    for name, column in zip(names, table.columns, strict=True):
        if "value" not in names:
            column = _without_padding(path, name, column)
        if column.null_count:
            raise InputFileError(f"{path.name}: column {name!r} has {column.null_count} empty cells; every row needs a value.")
        columns[name] = column.to_numpy()
    return _from_arrays(path, columns)


def read(path: str | Path) -> dict[str, Any]:
    """The columns of a score file, by its ending."""
    readers = {".csv": read_csv, ".tsv": read_csv, ".txt": read_csv, ".npz": read_npz, ".parquet": read_parquet}
    ending = Path(path).suffix.lower()
    if ending not in readers:
        raise InputFileError(f"{str(path)!r}: the ending must be one of {', '.join(readers)}.")
    return readers[ending](path)


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file():
        known = ": it is a pipe, a device or a folder" if path.exists() else ""
        raise InputFileError(f"there is no file {str(path)!r}{known}.")
    _check_size(path, path.stat().st_size)
    return path


def _check_size(path: Path, size: int) -> None:
    if size > MOST_BYTES:
        raise InputFileError(f"{path.name} has {size / 1e6:,.0f} MB; at most {MOST_BYTES / 1e6:,.0f} MB are read.")


def _check_cells(path: Path, cells: int) -> None:
    if cells > MOST_CELLS:
        raise InputFileError(
            f"{path.name} has {cells:,} cells; at most {MOST_CELLS:,} are read. An audit needs far fewer canaries."
        )


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a text file, none of them of any length."""
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE and not line.endswith("\n"):
            raise InputFileError(f"{path.name} has a line of more than {_LONGEST_LINE:,} characters: it is no file of scores.")
        yield line


def _names(path: Path, found: list[str]) -> list[str]:
    """The header, normalised; an error that shows it if it fits no layout."""
    shown = ", ".join(repr(name) for name in found[:_SHOWN]) + f" and {len(found) - _SHOWN:,} more" * (len(found) > _SHOWN)
    names = [name.strip().lower() for name in found]
    names = ["value" if name == "score" else name for name in names]
    if len(set(names)) < len(names):
        raise InputFileError(f"{path.name}: a column name occurs twice. Found the columns {shown}.")
    is_long = {"value", "inserted"} <= set(names) <= {"value", "inserted", *LABELS}
    is_two = set(names) in ({"inserted", "held_out"}, {"inserted"})
    if not (is_long or is_two):
        raise InputFileError(f"{path.name}: the columns do not fit. Found {shown}. {_LAYOUTS}")
    return names


def _cells(path: Path, names: list[str], rows: Any) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each row that is not blank, each with as many cells as the header."""
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(names):
            raise InputFileError(f"{path.name}, line {line}: {len(row)} cells where the header has {len(names)}.")
        if line * len(names) > MOST_CELLS:
            _check_cells(path, line * len(names))
        yield line, row


def _long_columns(path: Path, names: list[str], cells: Iterator[tuple[int, list[str]]]) -> dict[str, Any]:
    values, truths = array("d"), array("b")
    labels = {name: array("q") for name in names if name in LABELS}
    value_at, truth_at = names.index("value"), names.index("inserted")
    labels_at = [(labels[name], names.index(name)) for name in labels]
    for line, row in cells:
        try:
            values.append(_score(row[value_at]))
            truths.append(_truth(row[truth_at]))
            for column, place in labels_at:
                column.append(int(row[place]))
        except (ValueError, KeyError, OverflowError):
            expected = "value a number, inserted 1/0 or true/false, the other columns whole numbers"
            raise InputFileError(f"{path.name}, line {line}: cannot read {row!r}; expected {expected}.") from None
    columns = {
        name: np.frombuffer(column, dtype=np.int64) if len(column) else np.zeros(0, np.int64) for name, column in labels.items()
    }
    return {"value": np.array(values), "inserted": np.array(truths).astype(bool), "labels": columns}


def _score(cell: str) -> float:
    """A number as other programs write it; Python alone would read 1_0 as 10."""
    if "_" in cell:
        raise ValueError
    return float(cell)


def _truth(cell: str) -> bool:
    """1/0, true/false, yes/no, and the numbers 1 and 0 however they are written."""
    word = cell.strip().lower()
    if word in _TRUTH:
        return _TRUTH[word]
    return {1.0: True, 0.0: False}[float(word)]


def _two_columns(path: Path, names: list[str], rows: Any) -> dict[str, Any]:
    columns = {name: array("d") for name in names}
    ended: dict[str, int] = {}  # column -> line of its first empty cell
    for line, row in _cells(path, names, rows):
        for name, cell in zip(names, row, strict=True):
            if not cell.strip():
                ended.setdefault(name, line)
            elif name in ended:
                raise InputFileError(
                    f"{path.name}, line {ended[name]}: column {name!r} has an empty cell followed by a score on line {line}; "
                    "only the end of the shorter column may be empty."
                )
            else:
                try:
                    columns[name].append(_score(cell))
                except ValueError:
                    raise InputFileError(f"{path.name}, line {line}: {cell!r} in column {name!r} is not a number.") from None
    return _joined(np.array(columns["inserted"]), np.array(columns.get("held_out", array("d"))))


def _from_arrays(path: Path, columns: dict[str, Any]) -> dict[str, Any]:
    names = _names(path, list(columns))
    columns = dict(zip(names, columns.values(), strict=True))
    for name, column in columns.items():
        if column.ndim != 1 or column.dtype.kind not in "iufb":
            raise InputFileError(
                f"{path.name}: {name!r} must be a flat column of numbers; got {column.dtype} of shape {column.shape}."
            )
    if "value" not in columns:
        return _joined(columns["inserted"], columns.get("held_out", np.zeros(0)))
    lengths = {name: column.size for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputFileError(f"{path.name}: columns of different lengths: {lengths}.")
    truth = columns["inserted"]
    if truth.dtype != np.bool_ and not np.isin(truth, (0, 1)).all():
        raise InputFileError(f"{path.name}: 'inserted' must hold 1/0 or true/false beside 'value'; found other numbers.")
    labels = {name: whole_numbers(column) for name, column in columns.items() if name in LABELS}
    for name, label in labels.items():
        if label is None:
            raise InputFileError(f"{path.name}: {name!r} must hold whole numbers.")
    return {"value": _floats(columns["value"]), "inserted": truth.astype(bool), "labels": labels}


def whole_numbers(column: Any) -> Any:
    """The column as int64, or None if it holds anything but whole numbers of that range."""
    if column.dtype.kind not in "iufb":
        return None
    with np.errstate(invalid="ignore"):
        whole = column.astype(np.int64)
    same = (whole == column) & ((whole < 0) == (column < 0))  # numbers from 2**63 on come out negative
    return whole if same.all() else None


def _floats(column: Any) -> Any:
    with np.errstate(over="ignore"):  # a wider float beyond the range becomes infinite, which `Scores` refuses
        return column.astype(np.float64)


def _about(path: Path, written: Any) -> dict[str, Any]:
    """What `Scores.save` wrote about the scores, as plain data; nothing if the file is from elsewhere."""
    if written is None:
        return {}
    try:
        about = json.loads(str(written))
    except (ValueError, RecursionError):
        about = None
    known, later = {"null", "game", "assignment", "dim", "statistic", "view"}, {"layer", "combined"}
    if not isinstance(about, dict) or not known <= set(about):
        raise InputFileError(
            f"{path.name}: its entry 'about' is not what Scores.save writes. Leave it out, or write the file again."
        )
    return {"about": {name: value for name, value in about.items() if name in known | later}}  # others: of a later version


def _joined(inserted: Any, held_out: Any) -> dict[str, Any]:
    values = np.concatenate([_floats(inserted), _floats(held_out)])
    return {"value": values, "inserted": np.arange(values.size) < inserted.size}


def _without_padding(path: Path, name: str, column: Any) -> Any:
    """A column without the empty cells at its end (the shorter one of two columns of scores)."""
    kept = len(column) - column.null_count
    if column.slice(0, kept).null_count:
        raise InputFileError(f"{path.name}: column {name!r} has empty cells before its end; only the end may be empty.")
    return column.slice(0, kept)
