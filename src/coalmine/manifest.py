"""manifest.json: a fingerprint of every file that a finished run wrote, which every reader compares.

It is written before the last file of a run, whose content it knows already: where the last file is, the manifest is as well.
Not in it are the secret, the page (it prints the manifest's digest and may be written again) and what hooks write. The digest
is the SHA-256 of manifest.json itself. Whoever can edit a run can write its manifest anew, so only a digest that was kept
elsewhere shows an edit that was meant; without one a manifest shows accidents.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from coalmine.errors import InputFileError, RunDirectoryError

SCHEMA = "coalmine-manifest/1"
FILE = "manifest.json"
_RUN = ("config.toml", "strategy.json", "events.jsonl", "checkpoint/*", "model.safetensors", "scores.npz", "views/*.npz")
_FILES = (
    *_RUN,
    "result.json",
    "training.json",
    "inference.json",
    "campaign.json",
    "model-*.safetensors",
    "crafted-*.json",
    "crafted-*.npz",
    *(f"reference/{name}" for name in _RUN),
    f"run-*/{FILE}",
)
_LAST = ("training.json", "result.json")  # a directory without either is not finished
_UNSEALED = (FILE, "secret.json")  # a run's own files too, without a fingerprint
_LONGEST = 10_000_000  # bytes of a manifest


@dataclass(frozen=True)
class Checked:
    """How the files of a directory compare with its manifest."""

    path: Path
    digest: str | None = None  # of the manifest; None: there is none
    files: int = 0
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    expected: str | None = None  # the digest that somebody kept

    @property
    def status(self) -> Literal["intact", "damaged", "unverified"]:
        """In one word; "intact" means: not damaged by accident."""
        if self.changed or self.missing or self.added or (self.digest is not None and self.expected not in (None, self.digest)):
            return "damaged"
        return "unverified" if self.digest is None else "intact"

    @property
    def sentence(self) -> str:
        """What was found, what it means, and what to do."""
        where = str(self.path)
        if str(self):
            return f"DAMAGED  {where}: {self}."
        if self.digest is None:
            return f"UNVERIFIED  {where}: there is no {FILE} to compare with; nobody can tell whether it was edited."
        if self.expected is None:
            return (
                f"NOT DAMAGED BY ACCIDENT  {where}: {self.files} files are those of its manifest. Whoever edits on purpose "
                f"can write the manifest anew: compare with the digest that the run printed, by --digest. Digest: {self.digest}"
            )
        if self.expected != self.digest:
            return f"ANOTHER RUN, OR EDITED  {where}: its digest is {self.digest}, not the {self.expected} that was expected."
        return f"VERIFIED  {where}: {self.files} files are those whose digest was given."

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "schema": "coalmine-verification/1",
            "status": self.status,
            "digest": self.digest,
            "digest_compared": self.expected is not None and self.digest is not None,
            "files": self.files,
            "changed": list(self.changed),
            "missing": list(self.missing),
            "added": list(self.added),
        }

    def __str__(self) -> str:
        parts = (("not what the run wrote", self.changed), ("missing", self.missing), ("not written by the run", self.added))
        return "; ".join(f"{said}: {', '.join(names)}" for said, names in parts if names)


def seal(path: Path, coming: Mapping[str, bytes]) -> bytes:
    """The manifest of a directory as it is once the files that are `coming` are written: the last ones."""
    hashes = {name: _hash(path / name) for name in _present(path)}
    hashes |= {name: hashlib.sha256(data).hexdigest() for name, data in coming.items()}
    return (json.dumps({"schema": SCHEMA, "files": hashes}, indent=1, sort_keys=True) + "\n").encode()


def write(path: Path, coming: Mapping[str, bytes]) -> None:
    """Write the manifest of a directory: the whole of it, or nothing."""
    aside = path / f"{FILE}.part"
    aside.write_bytes(seal(path, coming))
    aside.replace(path / FILE)


def digest(path: Path) -> str | None:
    """The digest of a directory's manifest; None without one."""
    file = path / FILE
    return _hash(file) if file.is_file() else None


def fingerprints(path: Path) -> dict[str, str]:
    """By name, what the manifest of a directory says of its files; {} without one."""
    return _read(path / FILE) or {}


def compare(path: str | Path) -> Checked:
    """A directory and its manifest. Without one it is unverified, unless its configuration says that it had one."""
    path = Path(path)
    if not path.is_dir():
        return compare(path.parent) if path.name == "result.json" and (path.parent / FILE).is_file() else Checked(path)
    if not (path / FILE).is_file():
        lost = (path / "training.json").is_file() and _had_manifest(path)
        return Checked(path, missing=(FILE,) if lost else ())
    return _compared(path, nested=True)


def verify(path: str | Path, expected: str | None = None) -> Checked:
    """As `compare`, and with a digest that was kept elsewhere: what nobody can write anew."""
    path = Path(path)
    if not path.is_dir() and not path.is_file():
        raise RunDirectoryError(f"there is no file or directory {str(path)!r}; `verify` takes the directory of a finished run.")
    if expected is not None:
        expected = expected.strip().lower().removeprefix("sha256:")
        if not re.fullmatch(r"[0-9a-f]{64}", expected):
            raise ValueError(f"digest={expected!r} is no digest: 64 digits 0-9 and a-f, as the run's last line prints it.")
    found = replace(compare(path), expected=expected)
    if found.digest is None and path.is_dir() and not any((path / name).is_file() for name in _LAST):
        raise RunDirectoryError(f"{str(path)!r} is not the directory of a finished run; `coalmine resume` goes on with one.")
    return found


def content(path: Path, most: int = 500_000_000) -> bytes:
    """The bytes of a file: of a pipe or a device nobody knows when they end, and a result is never so large."""
    about = path.stat()
    if not path.is_dir() and not path.is_file():
        raise InputFileError(f"{str(path)!r} is a pipe or a device; save what it gives to a file, and name that.")
    if about.st_size > most:
        raise InputFileError(f"{str(path)!r} has {about.st_size / 1e6:,.0f} MB; at most {most / 1e6:,.0f} MB are read.")
    return path.read_bytes()


def put(path: str | Path, text: str) -> None:
    """Write the whole of a file, or leave the old one. A device, as /dev/null, is written to; a link stays a link."""
    given, path = Path(path), Path(os.path.realpath(path))
    path = given if given.exists() and not path.exists() else path  # /dev/stdout may be a pipe, which has no path
    aside = path.with_name(path.name + ".part") if path.is_file() or not path.exists() else path
    try:
        if path.is_fifo():
            _write_pipe(path, text)
            return
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        if aside != path:
            with suppress(OSError):
                aside.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write_pipe(pipe: Path, text: str) -> None:
    """One that nobody reads would be waited for without end."""
    try:
        opened = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        raise OSError(error.errno, "it is a pipe that nobody reads" if error.errno == errno.ENXIO else error.strerror) from None
    os.set_blocking(opened, True)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        file.write(text)


def run_of(path: Path) -> Path | None:
    """The run directory whose own file this is, or would be: a result of something else may not stand there."""
    path = Path(os.path.realpath(path))  # of a loop of links too
    for folder in (path.parent, path.parent.parent):
        if (folder / "config.toml").is_file():
            name = path.relative_to(folder).as_posix()
            if _of_a_run(name) or name in _UNSEALED:
                return folder
    return None


def check(path: str | Path) -> None:
    """Refuse a directory whose files are not those that its run wrote; all of them are named."""
    found = compare(path)
    if found.status == "damaged":
        again = "Remove training.json, and `coalmine resume` writes all results again, if the checkpoint is intact."
        raise RunDirectoryError(
            f"{str(found.path)!r} is damaged, or was edited after its run: {found}. Put back the files that the run wrote. "
            + again * (found.path / "checkpoint").is_dir()
        )


def _compared(path: Path, *, nested: bool) -> Checked:
    stated = _read(path / FILE)
    if stated is None:
        return Checked(path, changed=(FILE,))
    present = set(_present(path))
    changed = [name for name in stated if name in present and _hash(path / name) != stated[name]]
    missing, added = sorted(set(stated) - present), sorted(present - set(stated))
    count = len(stated)
    for name in sorted(present & set(stated)) if nested else ():
        if name.endswith(f"/{FILE}"):  # a run of a campaign; its own manifest says what is in it
            inner, found = PurePosixPath(name).parent, _compared((path / name).parent, nested=False)
            changed += [str(inner / each) for each in found.changed]
            missing += [str(inner / each) for each in found.missing]
            added += [str(inner / each) for each in found.added]
            count += found.files
    return Checked(path, digest(path), count, tuple(sorted(changed)), tuple(missing), tuple(added))


def _read(file: Path) -> dict[str, str] | None:
    """By name, the fingerprints; None where this is no manifest. Files are data: no name may lead out of the directory."""
    try:
        if file.stat().st_size > _LONGEST:
            return None
        stated = json.loads(file.read_bytes())
        files = stated["files"]
        known = stated["schema"] == SCHEMA and all(
            isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) and _of_a_run(name) for name, value in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return dict(files) if known else None


def _present(path: Path) -> Iterator[str]:
    """The files of a run that are there, but for what is being written."""
    for pattern in _FILES:
        for file in sorted(path.glob(pattern)):
            if file.is_file() and file.suffix != ".part":
                yield file.relative_to(path).as_posix()


def _of_a_run(name: str) -> bool:
    place = PurePosixPath(name)
    fits = any(len(place.parts) == len(PurePosixPath(each).parts) and place.match(each) for each in _FILES)
    return fits and ".." not in place.parts and "\0" not in name


def _had_manifest(path: Path) -> bool:
    try:
        about: Any = tomllib.loads((path / "config.toml").read_text(encoding="utf-8")).get("about")
        return isinstance(about, dict) and about.get("manifest") == SCHEMA
    except (OSError, ValueError, RecursionError):
        return False


def _hash(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise RunDirectoryError(f"cannot read {str(file)!r}: {error.strerror or error}.") from None
