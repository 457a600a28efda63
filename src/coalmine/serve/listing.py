"""What runs there are below a folder, and how each stands."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coalmine.errors import CoalmineError, RunDirectoryError
from coalmine.report.evidence import drawable, read_rounds, run_config
from coalmine.result import AuditResult

DEEPEST = 6  # folders below the one that is served
MOST = 500  # runs in a list
_FOLDERS = 20_000  # that are looked into
_ROUNDS_BACK = 100  # among which the last loss is looked for: a round without clients has none
STALE = 120.0  # seconds without a round, after which a run is not said to be running
_MARKS = ("config.toml", "result.json")


class NoSuchRun(RunDirectoryError):
    """A name that is not one of a run below the folder, or that leads out of it."""


@dataclass(frozen=True)
class Listed:
    """One run of a list."""

    name: str  # its path below the folder that is served
    state: str  # "finished", "running", "not finished", "no audit", "damaged"
    word: str = ""  # the verdict
    result: AuditResult | None = None
    about: str = ""  # why it is damaged; how far it is
    rounds: int = 0
    of: int | None = None


def inside(root: Path, name: str) -> Path:
    """The run of a name; anything that is not a run below the root is refused, links out of it included."""
    root = root.resolve()
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise NoSuchRun("there is no run of this name.")
    path = root / name
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise NoSuchRun("there is no run of this name.") from None
    if not real.is_relative_to(root) or not real.is_dir() or not _is_run(path):
        raise NoSuchRun("there is no run of this name.")
    check_links(root, path)
    return path


def check_links(root: Path, path: Path) -> None:
    """A file of a run that is a link to somewhere else is not read."""
    root = root.resolve()
    for each in (path, *path.iterdir(), *(path / "views").glob("*"), *(path / "reference").glob("*")):
        if each.is_symlink() and not each.resolve().is_relative_to(root):
            raise NoSuchRun(f"{each.name} is a link out of the folder that is served: it is not read.")


def runs(root: Path) -> tuple[list[Listed], bool]:
    """(all runs below the folder, by name; whether there are more than a list holds)."""
    root = root.resolve()
    found: list[Path] = []
    for seen, (folder, inner, files) in enumerate(os.walk(root, followlinks=False)):
        here = Path(folder)
        depth = len(here.relative_to(root).parts)
        inner[:] = sorted(each for each in inner if not each.startswith(".") and not (here / each).is_symlink())
        if depth and any(mark in files for mark in _MARKS):
            found.append(here)
            inner.clear()
        if depth >= DEEPEST:
            inner.clear()
        if len(found) >= MOST or seen >= _FOLDERS:
            return [look(root, each) for each in found[:MOST]], True
    return [look(root, each) for each in found], False


def look(root: Path, path: Path) -> Listed:
    """How a run stands; damage is said, never raised."""
    name = path.relative_to(root).as_posix()
    try:
        check_links(root, path)
        if (path / "result.json").is_file():
            result = AuditResult.load(path)
            return Listed(name, "finished", result.verdict.word if result.verdict else "NO CLAIM", result)
        config, _ = run_config(path)
        if (path / "training.json").is_file():
            return Listed(name, "no audit", about="trained without canaries")
        rounds = read_rounds(path / "events.jsonl")
        total = config.get("run", {}).get("rounds", config.get("participation", {}).get("rounds"))
        state, since = _state(path)
        return Listed(name, state, about=since, rounds=len(rounds), of=total if drawable(total) else None)
    except (CoalmineError, OSError, ValueError, RecursionError) as error:
        return Listed(name, "damaged", about=_without_path(str(error), root))


def latest(rounds: tuple[Any, ...]) -> list[tuple[str, str]]:
    """The last round in words; of a round without clients, the last value that there was."""
    last: dict[str, Any] = {}
    for each in rounds[-_ROUNDS_BACK:]:
        last |= {key: value for key, value in each.items() if drawable(value)}
    names = (
        ("loss", "training_loss"), ("clip norm", "clip_norm"), ("epsilon claimed", "epsilon_claimed"),
        ("epsilon measured, about", "epsilon_estimated"), ("noise measured", "noise_measured"), ("clients", "clients"),
        ("canaries", "canaries"),
    )  # fmt: skip
    return [(said, f"{last[key]:.4g}") for said, key in names if drawable(last.get(key))]


def _is_run(path: Path) -> bool:
    return any((path / mark).is_file() for mark in _MARKS)


def _state(path: Path) -> tuple[str, str]:
    """By the age of what a run writes: its lock is not touched, which a run that begins would stumble over."""
    files = [path / "events.jsonl", path / "config.toml"]
    ages = [time.time() - each.stat().st_mtime for each in files if each.is_file()]
    age = max(min(ages, default=STALE), 0.0)
    return ("running", "") if age < STALE else ("not finished", f"nothing was written for {_long(age)}")


def _long(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _without_path(text: str, root: Path) -> str:
    """A message without where the folder lies on this machine."""
    return text.replace(f"{root}{os.sep}", "")
