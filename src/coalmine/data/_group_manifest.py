"""What a finished store of grouped data says about itself, and whether its files are still those that were written."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coalmine.errors import InputFileError

SCHEMA = "coalmine-grouped/1"
_HAS = ("users", "rows", "buckets", "columns", "dropped", "files", "options", "inputs", "hash")


@dataclass(frozen=True)
class GroupedInfo:
    """What a store of grouped data holds."""

    path: Path
    users: int
    rows: int
    buckets: int
    columns: dict[str, str]  # name to type
    dropped: dict[str, int]  # rows that were left out, by reason

    def __str__(self) -> str:
        lost = ", ".join(f"{count:,} rows: {reason.replace('_', ' ')}" for reason, count in self.dropped.items() if count)
        text = f"{self.path}: {self.users:,} users, {self.rows:,} rows in {self.buckets} bucket{'s' * (self.buckets != 1)}"
        return text + (f"; left out: {lost}" if lost else "")


def read_manifest(path: str | Path) -> dict[str, Any]:
    """What a finished store says about itself."""
    folder = Path(path)
    if not (folder / "manifest.json").is_file():
        said = "was not finished: call group_by_user again" if (folder / "begun.json").is_file() else "is no grouped data"
        raise InputFileError(f"{str(folder)!r} {said}. `coalmine group IN... --user COLUMN --out DIR` writes such a folder.")
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
        schema = manifest["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputFileError(f"{str(folder / 'manifest.json')!r} is damaged. Group the data again.") from None
    if not str(schema).startswith(f"{SCHEMA.partition('/')[0]}/"):  # of something else, as of a run
        raise InputFileError(
            f"{str(folder)!r} is no grouped data. `coalmine group IN... --user COLUMN --out DIR` writes such a folder."
        )
    if schema != SCHEMA:
        raise InputFileError(f"{str(folder)!r} was written in the layout {schema!r}; this version reads {SCHEMA!r}.")
    if lacks := [name for name in _HAS if name not in manifest]:
        raise InputFileError(f"{str(folder / 'manifest.json')!r} is damaged: it has no {lacks[0]!r}. Group the data again.")
    return manifest


def read_info(path: str | Path) -> GroupedInfo:
    """What a finished store holds."""
    said = read_manifest(path)
    return GroupedInfo(Path(path), said["users"], said["rows"], said["buckets"], said["columns"], said["dropped"])


def check_files(folder: Path) -> None:
    """Whether all files are those that the manifest names: one that was damaged would be read as if it were not."""
    for name, digest in read_manifest(folder)["files"].items():
        path = folder / name
        if not path.is_file() or digest_of(path) != digest:
            said = "is damaged" if path.is_file() else "is missing"
            raise InputFileError(f"{str(path)!r} {said}. Remove {str(folder)!r} and group the data again.")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def describe(values: Any) -> dict[str, float]:
    """Quantiles and mean of numbers, for `coalmine group --stats`."""
    if not len(values):
        return {}
    named = {"smallest": 0, "p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99, "largest": 1}
    return {**{name: float(np.quantile(values, share)) for name, share in named.items()}, "mean": float(np.mean(values))}
