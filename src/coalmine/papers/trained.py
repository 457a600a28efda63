"""Runs that train: made once in a directory, gone on with after a kill, only read when they are finished.

Experiments share their runs: each asks for the configurations that it needs by name, and finds those that another one made. The
secret seed of a run follows from the seed of the experiment and the run's name, so that the numbers can be repeated; such a run
is no private one, and its result says so.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from coalmine._random import stream
from coalmine.config import Config, fingerprint, located, parse_config, write_config
from coalmine.contracts import LowerBound, PointEstimate
from coalmine.errors import RunDirectoryError
from coalmine.estimators.diagnostics import anderson_darling
from coalmine.estimators.gaussian_fit import Variance, estimate_gaussian
from coalmine.federation import diverged
from coalmine.papers.experiment import Ask
from coalmine.papers.linear import left_by_canaries
from coalmine.papers.noise_model import STATISTICS, Seen
from coalmine.progress import duration
from coalmine.report.evidence import Evidence
from coalmine.result import AuditResult
from coalmine.runs import RunDirectory
from coalmine.scores import Scores
from coalmine.training import Finished, resume, run

LARGEST = "every release, after momentum"
FINAL = "final model, with its start"
_DRAWS = 60  # of a standard error
_RECORDED = (
    "model",
    "parameters",
    "users",
    "rounds",
    "participation",
    "accuracy",
    "accuracy_error",
    "baseline_accuracy",
    "loss",
    "mean_clients",
    "mean_canary_share",
    "mean_unclipped_clients",
    "mean_clients_norm",
    "config_sha256",
    "model_sha256",
)
_BEFORE_THE_FIRST_ROUND = ("secret.json", "checkpoint", ".lock")  # what a run has before its configuration
_TIMED = 4  # rounds, of which the first does not count


def obtain(ask: Ask, wanted: Mapping[str, Config], *, apart: bool = False) -> dict[str, Trained]:
    """All these runs, finished. With `apart`, and if they are quick, several run at once, each in a process of its own."""
    apart = apart or not ask.full
    missing = {name: told for name, told in wanted.items() if not RunDirectory(_path(ask, name)).finished}
    if missing and not ask.quiet:
        _say(_forecast(ask, wanted, missing, apart))
    tasks = {name: _task(ask, name, told, ask.quiet or apart) for name, told in wanted.items()}
    for name in [name for name in wanted if name not in missing]:
        _make(tasks[name])  # is it the run that is wanted?
    if apart:
        ask.each(_make, [tasks[name] for name in missing], "runs")
    else:
        for place, name in enumerate(missing, start=1):
            if not ask.quiet:
                _say(f"run {place} of {len(missing)}: {name}")
            _make(tasks[name])
    return {name: Trained(_path(ask, name)) for name in wanted}


def seconds_of(runs: Iterable[Trained]) -> int:
    """How long the rounds of all these runs took, whenever they were made."""
    return round(sum(run.seconds for run in runs))


def records(runs: Iterable[Trained]) -> dict[str, dict[str, Any]]:
    """By name, what is behind the numbers: for the JSON document of an experiment."""
    return {run.path.name: run.record for run in runs}


@dataclass(frozen=True)
class _Task:
    path: str
    config: str
    secret: int
    quiet: bool


def _task(ask: Ask, name: str, told: Config, quiet: bool) -> _Task:
    return _Task(str(_path(ask, name)), write_config(told, {}), _secret(ask, name), quiet)


def _make(task: _Task) -> None:
    """Run, go on, or leave alone; a directory that was killed before it began is made again."""
    path, told = Path(task.path), parse_config(task.config)
    if not (path / "config.toml").is_file():
        _clear(path)
        run(told, path, secret_seed=task.secret, quiet=task.quiet)
        return
    before = RunDirectory.open(path)
    if fingerprint(parse_config(before.config)) != fingerprint(located(told)):
        raise RunDirectoryError(
            f"{task.path!r} is a run of another configuration than this experiment needs. Give another --out, or remove it."
        )
    if not before.finished:
        resume(path, workers=told.run.workers, quiet=task.quiet)


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
    seconds, kinds = 0.0, {}
    for told in missing.values():
        kind = (told.data.source, told.model.name, told.participation.pattern, bool(told.canaries.pool))
        if kind not in kinds:
            kinds[kind] = _seconds(told)
        seconds += kinds[kind]
    if apart:
        seconds /= ask.workers
    there = len(wanted) - len(missing)
    return f"{len(missing)} runs to make ({there} are there), about {duration(seconds)}; a killed one goes on where it stopped"


def _seconds(told: Config) -> float:
    """Of a whole run, from a few of its rounds."""
    from coalmine.assembly import federation, material
    from coalmine.watch import Watch
    from coalmine.workers import Workers

    begun = time.monotonic()
    job = federation(told, material(told), 0)
    watch = Watch.of(told, job, 0) if job.plants else None
    prepared = time.monotonic() - begun
    spent = []
    with Workers(told.run.workers, job.work()) as workers:
        last = time.monotonic()
        for finished in islice(job.rounds_from(0, job.start(), workers), _TIMED):
            if watch is not None:
                watch.rows(finished)
            spent.append(time.monotonic() - last)
            last = time.monotonic()
    return prepared + job.rounds * float(np.median(spent[1:] or spent))


@dataclass(frozen=True)
class Trained:
    """A finished run, and the papers' numbers of it."""

    path: Path

    @cached_property
    def finished(self) -> Finished:
        """What it left."""
        return resume(self.path)

    @cached_property
    def evidence(self) -> Evidence:
        """Its scores."""
        return Evidence.of(self.path)

    @property
    def result(self) -> AuditResult:
        """Its audit."""
        found = self.finished.result
        if found is None:
            raise ValueError(f"{str(self.path)!r} had no canaries.")
        return found

    @property
    def noise(self) -> float:
        """The noise multiplier."""
        return float(self.evidence.config["privacy"]["noise_multiplier"])

    @property
    def delta(self) -> float:
        """Of all its statements."""
        return self.result.bound.delta

    @property
    def accuracy(self) -> tuple[float, float]:
        """(accuracy, standard error over clients)."""
        training = self.finished.training
        return float(training["accuracy"]), float(training["accuracy_error"])

    @property
    def learned(self) -> bool:
        """Whether it predicts better than always the most frequent, by two standard errors."""
        accuracy, error = self.accuracy
        return accuracy > float(self.finished.training["baseline_accuracy"]) + 2 * error

    @property
    def diverged(self) -> bool:
        """Whether it ended worse than it began."""
        found = RunDirectory.open(self.path)
        return diverged(found.events(), adaptive=parse_config(found.config).privacy.adaptive_clipping) is not None

    @property
    def seconds(self) -> float:
        """How long its rounds took."""
        return sum(float(event["seconds"]) for event in RunDirectory.open(self.path).events() if "seconds" in event)

    @property
    def record(self) -> dict[str, Any]:
        """What it trained, how well, and what each view says of it."""
        training, told = self.finished.training, parse_config(RunDirectory.open(self.path).config)
        kept: dict[str, Any] = {"noise": told.privacy.noise_multiplier, "presentations": told.canaries.presentations}
        kept |= {"adaptive_clipping": told.privacy.adaptive_clipping, "clip_norms": self.clip_norms}
        kept |= {name: training.get(name) for name in _RECORDED} | {"seconds": round(self.seconds)}
        if self.finished.result is None:
            return {**kept, "presentations": 0}
        said = {}
        for view in (self.result.setting["view"], *(each.view for each in self.result.views)):
            estimate, bound, claim = self.stated(view)
            about = (
                None if estimate is None else {name: getattr(estimate, name) for name in ("epsilon", "low", "high", "method")}
            )
            at_least = {"epsilon": bound.epsilon, "method": bound.method, "valid": bound.valid}
            said[view] = {"estimate": about, "bound": at_least, "claim": claim}
        cosines = self.seen.final
        final = {"canaries": cosines.size, "mean": self.mean_cosine, "width": float(cosines.std(ddof=1))}
        final |= {"predicted_mean": self.predicted_cosine, "anderson_darling": self.anderson_darling()}
        return {**kept, "delta": self.delta, "views": said, "final_cosines": final}

    @property
    def clip_norms(self) -> list[float]:
        """Of the first round, and of the last."""
        rounds = [event for event in RunDirectory.open(self.path).events() if "clip_norm" in event]
        return [float(rounds[place]["clip_norm"]) for place in (0, -1)]

    def pool(self, view: str) -> Scores:
        """The scores of the pool in a view, without directions that were never to be inserted."""
        scores = self.evidence.scores.get(view)
        if scores is None:
            raise RunDirectoryError(f"{str(self.path)!r} has no scores of {view!r} any more. Remove it, and it is made again.")
        keep = scores.labels["canary"] < self._pool
        return Scores.of(scores.value[keep & scores.inserted], scores.value[keep & ~scores.inserted])

    @property
    def _pool(self) -> int:
        return int(self.evidence.config["canaries"]["pool"])

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return int(self.finished.training["parameters"])

    @property
    def length(self) -> float:
        """Of the final model."""
        from safetensors.numpy import load_file

        return float(np.linalg.norm(load_file(self.path / "model.safetensors")["parameters"].astype(np.float64)))

    @cached_property
    def seen(self) -> Seen:
        """The papers' cosines: the largest over rounds, after momentum, and with the final model, in units of 1/sqrt(d)."""
        largest, final, root = self.pool(LARGEST), self.pool(FINAL), self.dim**0.5
        return Seen(self.dim, largest.inserted_values * root, largest.held_out_values * root, final.inserted_values * root)

    def column(self, name: str) -> float:
        """One of the papers' four columns."""
        return STATISTICS[name](self.seen, self.delta)

    def standard_error(self, name: str) -> float:
        """Of a column, by drawing canaries again. Near zero, where these estimates have a kink, it is too small."""
        rng = stream(0, "standard error", name)
        values = [STATISTICS[name](self.seen.drawn_again(rng), self.delta) for _ in range(_DRAWS)]
        return float(np.std(values)) if np.isfinite(values).all() else math.inf

    @property
    def mean_cosine(self) -> float:
        """Of inserted canaries with the final model, in units of the null's width."""
        return float(self.seen.final.mean())

    @property
    def mean_cosine_error(self) -> float:
        """Its standard error over canaries."""
        return float(self.seen.final.std(ddof=1)) / math.sqrt(self.seen.final.size)

    @cached_property
    def predicted_cosine(self) -> float:
        """The mean cosine of an inserted canary with the final model, if what it added stayed there; in the same units."""
        left = left_by_canaries(self.evidence.rounds, self.evidence.config["server"])
        return left / self.seen.final.size / self.length * math.sqrt(self.dim)

    def anderson_darling(self) -> float:
        """A* of the cosines with the final model, against a normal with their own mean and width."""
        cosines = self.seen.final
        return anderson_darling((cosines - cosines.mean()) / cosines.std(ddof=1))

    def stated(self, view: str) -> tuple[PointEstimate | None, LowerBound, float]:
        """(estimate, valid bound, claim) of one of our own views.

        With noise the estimate is by the mean alone in every run, so that runs can be compared; without noise, where canaries
        stand out unequally, it is by mean and width. An audit chooses by a test, and says which one.
        """
        result = self.result
        if result.setting["view"] == view:
            estimate, bound, claim = result.estimate, result.bound, result.claim
        else:
            beside: Any = next(each for each in result.views if each.view == view)
            estimate, bound, claim = beside.estimate, beside.bound, beside.claim
        scores = self.evidence.scores.get(view)
        if estimate is not None and scores is not None and not scores.maximum:
            variance: Variance = "null" if self.noise else "fitted"
            estimate = estimate_gaussian(scores, delta=estimate.delta, variance=variance, confidence=estimate.confidence)
        return estimate, bound, claim.epsilon if claim is not None else float("inf")
