"""Runs that train: made once in a directory, gone on with after a kill, only read when they are finished.

Experiments share their runs: each asks for the configurations that it needs by name, and finds those that another one made. The
secret seed of a run follows from the seed of the experiment and the run's name, so that the numbers can be repeated; such a run
is no private one, and its result says so.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from coalmine._random import stream
from coalmine.errors import RunDirectoryError
from coalmine.papers.kit.experiment import Ask
from coalmine.progress import duration
from coalmine.runs import RunDirectory
from coalmine.training import resume, run
from coalmine.training.config import Config, changed, fingerprint, located, parse_config, write_config

_BEFORE_THE_FIRST_ROUND = ("secret.json", "checkpoint", ".lock")  # what a run has before its configuration
_TIMED = 4  # rounds, of which the first does not count


def obtain(ask: Ask, wanted: Mapping[str, Config], *, apart: bool = False) -> dict[str, Path]:
    """The directories of all these runs, finished.

    With `apart`, and if they are quick, several run at once, each in a process of its own, which has no workers itself.
    """
    apart = apart or not ask.full
    if apart:
        wanted = {name: changed(config, ["run.workers=1"]) for name, config in wanted.items()}
    missing = {name: config for name, config in wanted.items() if not RunDirectory(_path(ask, name)).finished}
    if missing and not ask.quiet:
        _say(_forecast(ask, wanted, missing, apart))
    tasks = {name: _task(ask, name, config, ask.quiet or apart) for name, config in wanted.items()}
    for name in [name for name in wanted if name not in missing]:
        _make(tasks[name])  # is it the run that is wanted?
    if apart:
        ask.each(_make, [tasks[name] for name in missing], "runs")
    else:
        for place, name in enumerate(missing, start=1):
            if not ask.quiet:
                _say(f"run {place} of {len(missing)}: {name}")
            _make(tasks[name])
    return {name: _path(ask, name) for name in wanted}


@dataclass(frozen=True)
class _Task:
    path: str
    config: str
    secret: int
    quiet: bool


def _task(ask: Ask, name: str, config: Config, quiet: bool) -> _Task:
    return _Task(str(_path(ask, name)), write_config(config, {}), _secret(ask, name), quiet)


def _make(task: _Task) -> None:
    """Run, go on, or leave alone; a directory that was killed before it began is made again."""
    path, config = Path(task.path), parse_config(task.config)
    if not (path / "config.toml").is_file():
        _clear(path)
        run(config, path, secret_seed=task.secret, quiet=task.quiet)
        return
    before = RunDirectory.open(path)
    if fingerprint(parse_config(before.config, quiet=True)) != fingerprint(located(config)):
        raise RunDirectoryError(
            f"{task.path!r} is a run of another configuration than this experiment needs. Give another --out, or remove it."
        )
    if not before.finished:
        resume(path, workers=config.run.workers, quiet=task.quiet)


def _clear(path: Path) -> None:
    """Remove a directory that was killed before it began, and nothing else."""
    if not path.is_dir():
        return
    strange = [each.name for each in path.iterdir() if each.name not in _BEFORE_THE_FIRST_ROUND and each.suffix != ".part"]
    if strange:
        raise RunDirectoryError(
            f"{str(path)!r} is where a run of this experiment goes, and holds {strange[0]!r}, which no run left. Move it away, "
            "or give another --out."
        )
    with RunDirectory(path).locked():  # unless another process is just beginning it
        shutil.rmtree(path)


def _path(ask: Ask, name: str) -> Path:
    return ask.out / "runs" / f"{ask.scale}-{ask.seed}" / name


def _secret(ask: Ask, name: str) -> int:
    """By the run's name; one without canaries has the noise of the one with them, so that they differ in nothing else."""
    return int(stream(ask.seed, "secret of a paper's run", name.replace("-without", "-times1")).integers(2**63))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _forecast(ask: Ask, wanted: Mapping[str, Config], missing: Mapping[str, Config], apart: bool) -> str:
    """How long the missing runs will take, from a few rounds of one of each kind."""
    seconds, kinds = 0.0, dict[tuple[Any, ...], float]()
    for config in missing.values():
        kind: tuple[Any, ...] = (
            config.data.source,
            config.model.name,
            config.participation.pattern,
            bool(config.canaries.pool),
        )
        kind = (*kind, getattr(config.mechanism, "strategy", None))  # some make their noise from that of many rounds
        if kind not in kinds:
            kinds[kind] = _seconds(config)
        seconds += kinds[kind]
    if apart:
        seconds /= ask.workers
    there = len(wanted) - len(missing)
    return f"{len(missing)} runs to make ({there} are there), about {duration(seconds)}; a killed one goes on where it stopped"


def _seconds(config: Config) -> float:
    """Of a whole run, from a few of its rounds."""
    from coalmine.audit.observe import Recorder
    from coalmine.training.assembly import federation, load_task
    from coalmine.workers import Workers

    begun = time.monotonic()
    job = federation(config, load_task(config), 0)
    recorder = Recorder.of(config.spec, job.canary_setup, job.model.groups, 0) if job.canary_setup else None
    prepared = time.monotonic() - begun
    spent = []
    with Workers(config.run.workers, job.work()) as workers:
        last = time.monotonic()
        for finished in islice(job.rounds_from(0, job.start(), workers), _TIMED):
            if recorder is not None:
                recorder.rows(finished.observed)
            spent.append(time.monotonic() - last)
            last = time.monotonic()
    return prepared + job.rounds * float(np.median(spent[1:] or spent))
