"""A run is a directory, and may be killed at any moment.

    config.toml             what was asked, resolved; versions; the public seed
    secret.json             the secret seed, readable by its owner alone
    events.jsonl            one line per round: when, how long, what was seen; the only file with times
    checkpoint/             the state after the last round that was saved, and what the canaries saw until then
    model.safetensors       the final model
    scores.npz, views/      one number per canary: of the primary view, of the others
    result.json             the audit
    report.html             the audit on one page
    manifest.json           fingerprints of all these files but the secret and the page; see `manifest`
    training.json           what the training recorded; written last: with it the run is finished
    reference/              the same run without noise and canaries, if asked for

What is appended comes first, then the checkpoint, written aside and renamed: it says how much of the appended files counts.
After a kill, what was appended beyond that is cut off. So a kill loses the current round (of large models, some seconds:
`training.checkpoints`), and going on gives the same bits as never having stopped. The checkpoint has fingerprints of all that
a run goes on from; they are looked at before anything is changed. No pickle; the secret seed is in `secret.json` alone.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coalmine import manifest
from coalmine.contracts import Array, State
from coalmine.errors import RunDirectoryError
from coalmine.tensors import digest, packed

SCHEMA = "coalmine-run/2"
FIRST_SCHEMA = "coalmine-run/1"  # finished runs of it are read, and unfinished ones do not go on
_CONFIG, _SECRET, _EVENTS, _LAST = "config.toml", "secret.json", "events.jsonl", "training.json"
STATE, _BEGUN = "checkpoint/state.safetensors", ("checkpoint", _SECRET, ".lock")  # the latter: before config.toml
_GO_ON = "What was already written is intact; after mending this, `coalmine resume` goes on from the last round that was saved."
_AGAIN = "Nothing was begun; after mending this, start again."


class _Log(NamedTuple):
    """How much of an appended file counts."""

    size: int = 0
    check: int = 0
    width: int = 0  # numbers in a row


def refuse_taken(path: Path) -> None:
    """Where no new run can be: a file, a loop of links, a directory with something in it."""
    if (path.exists() or path.is_symlink()) and not path.is_dir():
        raise RunDirectoryError(f"{str(path)!r} is not a directory. Choose another --out: a new or an empty one.")
    if path.exists() and any(path.iterdir()):
        raise RunDirectoryError(f"{str(path)!r} already exists and is not empty. Choose another --out, or `coalmine resume`.")


class RunDirectory:
    """The files of one run. Use `create` or `open`, then `locked` while writing."""

    def __init__(self, path: Path):
        self.path = path
        self._logs: dict[str, _Log] = {}  # by the name of the file

    @classmethod
    def create(cls, path: str | Path, *, config: str, secret_seed: int | None) -> RunDirectory:
        """A new directory with its configuration and its secret, if it keeps one of its own."""
        run = cls(Path(path))
        with run._writing(_AGAIN):
            refuse_taken(run.path)
            try:
                run._begin(config, secret_seed)
            except OSError:
                run._empty()
                raise
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """A directory that `create` made."""
        run = cls(Path(path))
        if not run.path.is_dir():
            raise RunDirectoryError(f"there is no run directory {str(path)!r}; `coalmine run --out` makes one.")
        if not (run.path / _CONFIG).is_file():
            raise RunDirectoryError(f"{str(path)!r} is not a run directory: it has no {_CONFIG}. Start again with a new --out.")
        return run

    def make_absolute(self) -> Path:
        """From now on the same directory, wherever the process goes; returns the path as it was given."""
        shown, self.path = self.path, self.path.absolute()
        return shown

    def inner(self, name: str, *, config: str) -> RunDirectory:
        """A run inside this one, without a secret of its own; one that was killed before it began is made again."""
        path = self.path / name
        if (path / _CONFIG).is_file():
            return RunDirectory.open(path)
        with self._writing():
            if path.is_dir():
                RunDirectory(path)._empty()
        return RunDirectory.create(path, config=config, secret_seed=None)

    @property
    def config(self) -> str:
        """The text of config.toml, as the run began with it."""
        return self._unchanged(_CONFIG).decode()

    @property
    def secret_seed(self) -> int:
        """The secret seed; it may not be printed, logged or stored elsewhere."""
        return int(json.loads(self._unchanged(_SECRET))["secret_seed"], 16)

    @property
    def finished(self) -> bool:
        """Whether all was written."""
        return (self.path / _LAST).is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time; the lock goes with the process, however that ends."""
        try:
            import fcntl
        except ImportError:  # no such locks on this system: then it is up to the user
            yield
            return
        with self._writing():
            file = (self.path / ".lock").open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunDirectoryError(f"another process is working on {str(self.path)!r}; wait for it, or stop it.") from None
            yield

    def write(self, name: str, data: bytes) -> None:
        """A whole file, or the old one: never half of it."""
        with self._writing():
            self._write(name, data)

    def save(
        self, rounds: int, state: State, rows: Mapping[str, Array], event: Mapping[str, Any], *, checkpoint: bool = True
    ) -> dict[str, Any]:
        """What a finished round leaves: a row for every log, a line of events (returned), and then the checkpoint, if asked."""
        line = {"time": round(time.time(), 3), "round": rounds - 1, **{name: _finite(value) for name, value in event.items()}}
        with self._writing():
            self._unfinish()
            for name, row in rows.items():
                self._append(_rows(name), row.astype("<f8").tobytes(), row.size)
            self._append(_EVENTS, json.dumps(line, allow_nan=False).encode() + b"\n")
            if checkpoint:
                self._write_checkpoint(rounds, state)
        return line

    def seal(self, name: str, data: bytes) -> None:
        """The manifest of all files and of the last one, which is to be written after it."""
        self.write(manifest.FILE, manifest.seal(self.path, {name: data}))

    def load(self) -> tuple[int, State]:
        """(finished rounds, the state after them); everything beyond them is cut off. Before the first round: (0, nothing)."""
        about, state = self._read_checkpoint()
        if about["schema"] == FIRST_SCHEMA and not self.finished:
            raise RunDirectoryError(
                f"{str(self.path)!r} was begun with the first version of coalmine, and an unfinished run of that version "
                f"cannot go on here. Finish it with the version that {_CONFIG} names, or start a new run."
            )
        logs = {name: _Log(*log) for name, log in about["logs"].items()}
        for name, log in logs.items():
            data = self._read(name)[: log.size]
            if len(data) != log.size or zlib.crc32(data) != log.check:
                raise self._damaged(name)
        with self._writing():
            for path in (self.path / _EVENTS, *self.path.glob(_rows("*"))):
                size = logs.get(path.relative_to(self.path).as_posix(), _Log()).size
                if path.is_file() and path.stat().st_size > size:
                    os.truncate(path, size)
        self._logs = logs
        return about["rounds"], state

    def look(self) -> tuple[int, State]:
        """The same for a reader, who changes no file: another process may be training."""
        return (found := self._read_checkpoint())[0]["rounds"], found[1]

    def rows(self, name: str) -> Array:
        """All rows of a log, read from the file as they are needed: a long run has more of them than memory."""
        return np.asarray(np.memmap(self.path / _rows(name), "<f8", "r").reshape(-1, self._logs[_rows(name)].width))

    def has_rows(self, name: str) -> bool:
        """Whether a log has any row."""
        return _rows(name) in self._logs

    def events(self) -> list[dict[str, Any]]:
        """All lines of events.jsonl."""
        found = []
        for line in self._read(_EVENTS).decode(errors="replace").splitlines():
            with suppress(ValueError):  # the last line of a killed run may be half a line
                found.append(json.loads(line))
        return found

    def damaged(self, name: str, remedy: str) -> RunDirectoryError:
        """That a file is not what the run wrote, and what can be done."""
        return RunDirectoryError(f"{str(self.path / name)!r} is damaged or missing: it is not what the run wrote. {remedy}")

    def _begin(self, config: str, secret_seed: int | None) -> None:
        """Everything before the first round; config.toml comes last, since a directory without it was never begun."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)  # the auditor's: much in it is not protected by the noise
        self.path.joinpath(STATE).parent.mkdir()
        files = {_CONFIG: config.encode()}
        if secret_seed is not None:
            files[_SECRET] = write_secret(self.path / _SECRET, secret_seed)
        self._seals = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        self._write_checkpoint(0, {})
        self._write(_CONFIG, files[_CONFIG])

    def _unfinish(self) -> None:
        """An engine may train on after somebody looked at its audit: until the next conclusion the run is not finished."""
        for name in (_LAST, manifest.FILE) if self.finished else ():
            (self.path / name).unlink(missing_ok=True)

    def _empty(self) -> None:
        """Remove what was made and not begun; whatever else is there belongs to somebody, and stays."""
        found = [*self.path.iterdir()] if self.path.is_dir() else []
        if strange := [path.name for path in found if path.name not in _BEGUN and path.suffix != ".part"]:
            raise RunDirectoryError(f"{str(self.path)!r} is no run and is not empty ({strange[0]!r}). Move it away first.")
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _write(self, name: str, *data: Any) -> None:
        path = self.path / name
        aside = path.with_name(path.name + ".part")
        path.parent.mkdir(exist_ok=True)
        try:
            with aside.open("wb") as file:
                for part in data:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except OSError:
            with suppress(OSError):  # half a file would only take up a disk that may be full
                aside.unlink()
            raise

    def _append(self, name: str, data: bytes, width: int = 0) -> None:
        log = self._logs.get(name, _Log())
        with (self.path / name).open("ab") as file:
            file.write(data)
        self._logs[name] = _Log(log.size + len(data), zlib.crc32(data, log.check), width)

    def _write_checkpoint(self, rounds: int, state: State) -> None:
        about = json.dumps({"schema": SCHEMA, "rounds": rounds, "logs": self._logs, "seals": self._seals}, sort_keys=True)
        self._write(STATE, *packed(state, {"coalmine": about, "sha256": digest(about, state)}))

    def _read_checkpoint(self) -> tuple[dict[str, Any], State]:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path / STATE, framework="numpy") as file:
                metadata = file.metadata() or {}
                about = json.loads(metadata["coalmine"])
                schema = about["schema"]
                if schema in (SCHEMA, FIRST_SCHEMA):
                    state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
                    intact = metadata["sha256"] == digest(metadata["coalmine"], state)
        except (SafetensorError, ValueError, KeyError, TypeError, OSError):
            raise self._damaged(STATE) from None
        if schema not in (SCHEMA, FIRST_SCHEMA):
            raise RunDirectoryError(
                f"{str(self.path)!r} was written in the layout {schema!r}; this version reads {SCHEMA!r}. "
                f"Finish it with the version that {_CONFIG} names, or start a new run."
            )
        if not intact:
            raise self._damaged(STATE)
        return about, state

    @cached_property
    def _seals(self) -> dict[str, str]:
        """Fingerprints of what is written once, before the first round."""
        seals: dict[str, str] = self._read_checkpoint()[0]["seals"]
        return seals

    def _unchanged(self, name: str) -> bytes:
        data = self._read(name)
        if hashlib.sha256(data).hexdigest() != self._seals.get(name):
            raise self._damaged(name)
        return data

    def _read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            raise self._damaged(name) from None
        except OSError as error:
            raise RunDirectoryError(f"cannot read {str(self.path / name)!r}: {error.strerror or error}.") from None

    def _damaged(self, name: str) -> RunDirectoryError:
        return self.damaged(name, "Nothing was changed. Put back an intact copy, or start a new run.")

    @contextmanager
    def _writing(self, then: str = _GO_ON) -> Iterator[None]:
        """A disk that is full or a directory that may not be written is one message."""
        try:
            yield
        except OSError as error:
            reason = {errno.ENOSPC: "the disk is full", errno.EACCES: "permission denied", errno.EROFS: "it is read-only"}
            said = reason.get(error.errno or 0, error.strerror or str(error))
            raise RunDirectoryError(f"cannot write to {str(self.path)!r}: {said}. {then}") from None


def write_secret(path: Path, secret_seed: int) -> bytes:
    """A new file that its owner alone can read; returns what is in it."""
    data = (json.dumps({"schema": "coalmine-secret/1", "secret_seed": hex(secret_seed)}) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return data


def read_secret(path: Path) -> int:
    """What `write_secret` wrote."""
    try:
        return int(json.loads(path.read_bytes())["secret_seed"], 16)
    except (OSError, ValueError, KeyError, TypeError):
        raise RunDirectoryError(f"{str(path)!r} is no file with a secret seed. Remove it, and a fresh one is made.") from None


def _rows(name: str) -> str:
    """The file of a log."""
    return f"checkpoint/{name}.rows"


def _finite(value: Any) -> Any:
    """The value; a number that is none is left open."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
