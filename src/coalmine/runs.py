"""A run is a directory, and may be killed at any moment.

    config.toml             what was asked, resolved; versions; the public seed
    secret.json             the secret seed, readable by its owner alone
    events.jsonl            one line per round: when, how long, what was seen; the only file with times
    checkpoint/             the state after the last finished round, and what the canaries saw until then
    model.safetensors       the final model
    scores.npz, views/      one number per canary: of the primary view, of the others
    result.json             the audit
    training.json           what the training recorded; written last: with it the run is finished
    reference/              the same run without noise and canaries, if asked for

What is appended comes first, then the checkpoint, written aside and renamed: it says how much of the appended files counts.
After a kill, what was appended beyond that is cut off. So a kill loses the current round at most, and going on gives the same
bits as never having stopped. Nothing here is pickled, and nothing but `secret.json` holds the secret seed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coalmine.contracts import Array, State
from coalmine.errors import RunDirectoryError

SCHEMA = "coalmine-run/1"
_STATE = "checkpoint/state.safetensors"
_LAST = "training.json"


class _Log(NamedTuple):
    """How much of an appended file counts."""

    size: int
    check: int
    width: int  # numbers in a row


class RunDirectory:
    """The files of one run. Use `create` or `open`, then `locked` while writing."""

    def __init__(self, path: Path):
        self.path = path
        self._logs: dict[str, _Log] = {}

    @classmethod
    def create(cls, path: str | Path, *, config: str, secret_seed: int | None) -> RunDirectory:
        """A new directory with its configuration and its secret, if it keeps one of its own."""
        run = cls(Path(path))
        if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
            raise RunDirectoryError(
                f"{str(run.path)!r} already exists and is not empty. Choose another --out, or go on with `coalmine resume`."
            )
        with run._writing():
            run._checkpoint.mkdir(parents=True)
            if secret_seed is not None:
                run._write_secret(secret_seed)
            run.write("config.toml", config.encode())  # last: a directory without it was never begun
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """A directory that `create` made."""
        run = cls(Path(path))
        if not run.path.is_dir():
            raise RunDirectoryError(f"there is no run directory {str(path)!r}; `coalmine run --out` makes one.")
        if not (run.path / "config.toml").is_file():
            raise RunDirectoryError(
                f"{str(path)!r} is not a run directory: it has no config.toml. Start again with a new --out."
            )
        return run

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def config(self) -> str:
        """The text of config.toml."""
        return self._read("config.toml").decode(errors="replace")

    @property
    def secret_seed(self) -> int:
        """The secret seed; it may not be printed, logged or stored elsewhere."""
        try:
            stored = json.loads(self._read("secret.json"))
            return int(stored["secret_seed"], 16)
        except (ValueError, KeyError, TypeError):
            raise RunDirectoryError("secret.json is not what a run wrote; without it this run cannot go on.") from None

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
        path = self.path / name
        aside = path.with_name(path.name + ".part")
        with self._writing():
            path.parent.mkdir(exist_ok=True)
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)

    def save(self, rounds: int, state: State, rows: Mapping[str, Array], event: Mapping[str, Any]) -> None:
        """What a finished round leaves: a row for every log, a line of events, and then the checkpoint."""
        from safetensors.numpy import save

        with self._writing():
            for name, row in rows.items():
                self._append(name, row)
            events = self._append_event({"round": rounds - 1, **event})
        about = {"schema": SCHEMA, "rounds": rounds, "events": events, "logs": self._logs, "sha256": _digest(state)}
        packed = {name: np.ascontiguousarray(value) for name, value in state.items()}
        self.write(_STATE, save(packed, metadata={"coalmine": json.dumps(about, sort_keys=True)}))

    def load(self) -> tuple[int, State]:
        """(finished rounds, the state after them); everything beyond them is cut off. Before the first round: (0, nothing)."""
        about, state = self._read_checkpoint()
        with self._writing():
            self._cut(self.path / "events.jsonl", about["events"])
            self._logs = {name: _Log(*log) for name, log in about["logs"].items()}
            for path in self._checkpoint.glob("*.rows"):
                self._cut(path, self._logs[path.stem].size if path.stem in self._logs else 0)
        for name, log in self._logs.items():
            data = self._read(f"checkpoint/{name}.rows")
            if len(data) != log.size or zlib.crc32(data) != log.check:
                raise self._corrupted(f"checkpoint/{name}.rows")
        return about["rounds"], state

    def rows(self, name: str) -> Array:
        """All rows of a log."""
        data = np.frombuffer(self._read(f"checkpoint/{name}.rows"), dtype="<f8")
        return data.reshape(-1, self._logs[name].width).astype(np.float64)

    def has_rows(self, name: str) -> bool:
        """Whether a log has any row."""
        return name in self._logs

    def note(self, event: Mapping[str, Any]) -> None:
        """A line of events outside the rounds; a resumed run may cut it off again."""
        with self._writing():
            self._append_event(event)

    def events(self) -> list[dict[str, Any]]:
        """All lines of events.jsonl."""
        found = []
        for line in self._read("events.jsonl").decode(errors="replace").splitlines():
            with suppress(ValueError):  # the last line of a killed run may be half a line
                found.append(json.loads(line))
        return found

    def _append(self, name: str, row: Array) -> None:
        data = row.astype("<f8").tobytes()
        size, check, _ = self._logs.get(name, _Log(0, 0, 0))
        with (self._checkpoint / f"{name}.rows").open("ab") as file:
            file.write(data)
        self._logs[name] = _Log(size + len(data), zlib.crc32(data, check), row.size)

    def _append_event(self, event: Mapping[str, Any]) -> int:
        line = json.dumps({"time": round(time.time(), 3), **event}, allow_nan=False)
        with (self.path / "events.jsonl").open("ab") as file:
            file.write(line.encode() + b"\n")
            return file.tell()

    def _read_checkpoint(self) -> tuple[dict[str, Any], State]:
        if not (self.path / _STATE).is_file():
            return {"rounds": 0, "events": 0, "logs": {}}, {}
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path / _STATE, framework="numpy") as file:
                about = json.loads((file.metadata() or {})["coalmine"])
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
            schema, digest = about["schema"], about["sha256"]
        except (SafetensorError, ValueError, KeyError, TypeError, OSError):
            raise self._corrupted(_STATE) from None
        if schema != SCHEMA:
            raise RunDirectoryError(
                f"{str(self.path)!r} was written in the layout {schema!r}; this version reads {SCHEMA!r}. "
                "Finish it with the version that config.toml names, or start a new run."
            )
        if digest != _digest(state):
            raise self._corrupted(_STATE)
        return about, state

    def _write_secret(self, secret_seed: int) -> None:
        text = json.dumps({"schema": "coalmine-secret/1", "secret_seed": hex(secret_seed)}) + "\n"
        descriptor = os.open(self.path / "secret.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)

    def _read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise RunDirectoryError(f"cannot read {str(self.path / name)!r}: {error.strerror or error}.") from None

    def _cut(self, path: Path, size: int) -> None:
        if path.is_file() and path.stat().st_size > size:
            os.truncate(path, size)

    def _corrupted(self, name: str) -> RunDirectoryError:
        return RunDirectoryError(
            f"{str(self.path / name)!r} is damaged: it is not what the run wrote. Nothing was changed. "
            "Put back an intact copy of the directory, or start a new run."
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A disk that is full or a directory that may not be written is one message."""
        try:
            yield
        except OSError as error:
            reason = {errno.ENOSPC: "the disk is full", errno.EACCES: "permission denied", errno.EROFS: "it is read-only"}
            said = reason.get(error.errno or 0, error.strerror or str(error))
            raise RunDirectoryError(
                f"cannot write to {str(self.path)!r}: {said}. What was already written is intact; "
                "after mending this, `coalmine resume` goes on from the last finished round."
            ) from None


def _digest(state: State) -> str:
    """A fingerprint of the state."""
    digest = hashlib.sha256()
    for name in sorted(state):
        value = np.ascontiguousarray(state[name])
        digest.update(f"{name}|{value.dtype.str}|{value.shape}|".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()
