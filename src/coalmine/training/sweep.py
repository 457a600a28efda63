"""Runs over a grid of settings, each in a directory with a secret of its own, and one comparison of all of them.

    GRID.toml     config = "tiny", and [grid] with a list for every key that varies, as mechanism.noise_multiplier = [0.5, 1.0]
    DIR/grid.toml     the grid as it was read
    DIR/run-0000 …    ordinary run directories, in the order of the grid: the last key varies fastest
    DIR/compare.html  the comparison

The same command goes on where a sweep stopped: finished runs are read, half-finished ones resumed.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coalmine import manifest
from coalmine.errors import CoalmineError, InputFileError, RunDirectoryError
from coalmine.report.compare import compare
from coalmine.runs import RunDirectory
from coalmine.training import campaign
from coalmine.training.config import (
    Config,
    changed,
    located,
    parse_config,
    parse_toml,
    read_config,
    read_toml,
    write_config,
)
from coalmine.workers import Workers

MOST = 1000  # runs of a sweep
_OURS = ("grid.toml", "compare.html", "slurm")
_KNOWN = ("config", "grid", "slurm")


@dataclass(frozen=True)
class Grid:
    """What varies, and the configuration of every run."""

    text: str
    changes: tuple[tuple[str, ...], ...]  # of every run, as for --set
    configs: tuple[Config, ...]
    slurm: Mapping[str, Any]


@dataclass(frozen=True)
class SweepRun:
    """A task: one run in one directory."""

    path: str
    config: str


@dataclass(frozen=True)
class OneRun:
    """The job of a sweep's workers: a run is made, continued or read. What went wrong is an answer, and stops no other run."""

    quiet: bool = True

    def prepare(self) -> None:
        """Nothing: a run prepares itself."""

    def __call__(self, task: SweepRun) -> str:
        """Empty, or why the run failed."""
        path = Path(task.path)
        try:
            if (path / "config.toml").is_file() or (path / "campaign.json").is_file():
                campaign.resume(path, quiet=self.quiet)
            else:
                if path.is_dir():
                    RunDirectory(path)._empty()  # killed before it began
                campaign.run(parse_config(task.config, quiet=True), path, quiet=self.quiet)
        except (CoalmineError, ValueError, OSError) as error:
            return str(error) or type(error).__name__
        return ""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep left: its directories, why some failed, and the comparison of the others."""

    directory: Path
    runs: tuple[dict[str, Any], ...]
    comparison: Any

    @property
    def failed(self) -> list[str]:
        """One line for every run that failed."""
        return [f"{each['run']} ({', '.join(each['set'])}): {each['failed']}" for each in self.runs if each["failed"]]

    def __str__(self) -> str:
        lines = [] if self.comparison is None else [str(self.comparison)]
        return "\n".join([*lines, *(f"FAILED  {line}" for line in self.failed)])

    def to_json(self) -> str:
        """As one JSON document."""
        compared = None if self.comparison is None else json.loads(self.comparison.to_json())
        return json.dumps({"runs": list(self.runs), "comparison": compared}, indent=2) + "\n"


def read_grid(source: str | Path) -> Grid:
    """The grid of a TOML file; every configuration of it is checked before anything runs."""
    path = Path(source)
    if not path.is_file():
        raise InputFileError(f"{str(source)!r} is no file; a sweep needs a TOML file with a section [grid].")
    text = read_toml(path)
    data = parse_toml(text, str(source))
    unknown = [name for name in data if name not in _KNOWN]
    if unknown:
        raise ValueError(f"{source}: unknown key {unknown[0]!r}. Known here: {', '.join(_KNOWN)}.")
    for name in ("grid", "slurm"):
        if not isinstance(data.get(name, {}), dict):
            raise ValueError(f"{source}: {name} = {data[name]!r}; write a section [{name}] with a key a line.")
    axes = dict(_leaves(data.get("grid", {}), ""))
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{source}: grid.{key} = {values!r}; write a list of values, as {key} = [0.5, 1.0].")
    if not axes:
        raise ValueError(
            f"{source} varies nothing. Write [grid] and a list for a key, as mechanism.noise_multiplier = [0.5, 1.0]."
        )
    count = math.prod(len(values) for values in axes.values())
    if count > MOST:
        raise ValueError(f"{source} has {count:,} runs; at most {MOST:,} are allowed. Shorten a list, or make several sweeps.")
    base = read_config(_base(data.get("config", "quickstart"), path))
    changes = tuple(
        tuple(f"{key}={_written(value)}" for key, value in zip(axes, point, strict=True))
        for point in itertools.product(*axes.values())
    )
    return Grid(text, changes, tuple(located(changed(base, each)) for each in changes), data.get("slurm", {}))


def sweep(
    grid: Grid,
    out: str | Path,
    *,
    workers: int = 1,
    make_workers: Callable[..., Any] = Workers,
    quiet: bool = False,
    track: Callable[[Sequence[Any]], Iterator[Any]] = iter,
) -> SweepResult:
    """All runs of a grid, `workers` at a time; a directory with the same grid goes on."""
    folder = _opened(Path(out), grid.text)
    tasks = []
    for number, config in enumerate(grid.configs):
        alone = config.model_copy(update={"run": config.run.model_copy(update={"workers": 1})})  # runs are side by side
        tasks.append(SweepRun(str((folder / f"run-{number:04d}").resolve()), write_config(alone, {})))
    answers: list[str] = []
    with make_workers(workers, OneRun()) as shared:
        for first in track(range(0, len(tasks), workers * 4)):
            answers += shared.map(tasks[first : first + workers * 4])
    runs = tuple(
        {"run": Path(task.path).name, "set": list(changes), "failed": answer or None}
        for task, changes, answer in zip(tasks, grid.changes, answers, strict=True)
    )
    good = [Path(task.path) for task, answer in zip(tasks, answers, strict=True) if not answer]
    good = [path for path in good if (path / "result.json").is_file()]  # without canaries there is nothing to compare
    comparison = compare(good) if len(good) > 1 else None
    if comparison is not None:
        manifest.put(folder / "compare.html", comparison.to_html())
    return SweepResult(folder, runs, comparison)


def _opened(folder: Path, text: str) -> Path:
    kept = folder / "grid.toml"
    if kept.is_file():
        if kept.read_text(encoding="utf-8") != text:
            raise RunDirectoryError(f"{str(folder)!r} has the runs of another grid. Choose another --out.")
        for path in folder.iterdir():  # a grid that somebody wrote by hand may lie among other files
            if path.name not in _OURS and not path.match("run-[0-9][0-9][0-9][0-9]"):
                raise RunDirectoryError(
                    f"{str(folder)!r} holds more than runs of this grid ({path.name!r}). Choose another --out."
                )
        return folder
    if folder.is_symlink() and not folder.exists():
        raise RunDirectoryError(f"{str(folder)!r} is a link that leads nowhere. Choose another --out.")
    if folder.exists() and not folder.is_dir():
        raise RunDirectoryError(f"{str(folder)!r} is not a directory. Choose another --out.")
    if folder.exists() and any(folder.iterdir()):
        raise RunDirectoryError(f"{str(folder)!r} already exists and is not empty. Choose another --out.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept.write_text(text, encoding="utf-8")
    return folder


def _base(name: Any, grid: Path) -> str:
    """A preset, or a file named from where the grid is."""
    if not isinstance(name, str):
        raise ValueError(f"{grid}: config = {name!r}; name a preset or a TOML file.")
    beside = grid.parent / name
    return str(beside) if beside.is_file() else name


def _leaves(section: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of a section and of those in it."""
    for key, value in section.items() if isinstance(section, dict) else ():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _written(value: Any) -> str:
    """A value as TOML, as --set reads it."""
    import tomli_w

    return tomli_w.dumps({"value": value}).partition("=")[2].strip()
