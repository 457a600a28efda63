"""An audited run, end to end: train with canaries, look for them in what is released, say what leaked.

`run` makes a run directory, `resume` goes on where a run stopped; both end with the same bits. What is decided here is the
order of things. What they are is decided below: `assembly` (objects from a configuration), `federation` (rounds), `audit` (what
the canaries saw, and what that proves), `runs` (files).
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy import fft

from coalmine import manifest, terminal
from coalmine.audit.conforming import Clients
from coalmine.audit.observe import MemoryRecord, in_words
from coalmine.audit.score import Scorer
from coalmine.audit.session import Session
from coalmine.audit.spec import AuditSpec
from coalmine.contracts import Array, Mechanism, Observed, plain
from coalmine.contracts.training_sentences import training_words
from coalmine.errors import CoalmineError, NonFiniteError, RunDirectoryError
from coalmine.hooks import Hook, HookRunner, hooks_of
from coalmine.progress import Rounds
from coalmine.result import AuditResult
from coalmine.runs import SCHEMA, RunDirectory, refuse_taken
from coalmine.training import strategies
from coalmine.training.aiming import FILE, as_file
from coalmine.training.assembly import Task, check_claims, clustered_accuracy, federation, inputs, load_task
from coalmine.training.beginning import check_inputs, check_versions, versions
from coalmine.training.checkpoints import Checkpoints
from coalmine.training.config import Config, about_run, located, parse_config, write_config
from coalmine.training.crafted_run import CraftedRun
from coalmine.training.crafted_run import check as check_crafting
from coalmine.training.crafting import keep_model
from coalmine.training.facts import Facts, counted
from coalmine.training.federation import Federation
from coalmine.training.work import OneSet
from coalmine.workers import Workers

_TOLD = ("rounds", "accuracy", "loss", "epsilon_of_clients")  # to hooks, beside the audit


@dataclass(frozen=True)
class RunResult:
    """What a run left: its directory, what was recorded, and the audit (none without canaries)."""

    directory: Path
    training: Mapping[str, Any]
    result: AuditResult | None

    def __str__(self) -> str:
        if self.result is not None:
            return str(self.result)
        return "\n".join(f"{name:<14}{text}" for name, text in training_words(self.training).items())

    @property
    def in_numbers(self) -> dict[str, Any]:
        """What hooks hear at the end."""
        about = {name: value for name, value in self.training.items() if name in _TOLD}
        audit = self.result.in_numbers if self.result else {"verdict": "NOT AUDITED", "reason": "a run without canaries"}
        return {**plain(about), **plain(audit)}

    @property
    def digest(self) -> str | None:
        """The digest of the manifest of the files; whoever keeps it can see later whether they were edited."""
        return manifest.digest(self.directory)

    def show(self) -> None:
        """Print for people; see `AuditResult.show`."""
        terminal.show(str(self)) if self.result is None else self.result.show()

    def to_json(self) -> str:
        """As one JSON document."""
        if self.result is not None:
            return self.result.to_json()
        return json.dumps(plain(self.training), indent=2, sort_keys=True) + "\n"


def run(
    config: Config,
    out: str | Path,
    *,
    task: Task | None = None,
    mechanism: Mechanism | None = None,
    secret_seed: int | None = None,
    hooks: Sequence[Hook | str] = (),
    quiet: bool = False,
    make_workers: Callable[..., Any] = Workers,
    check: Callable[[Federation], None] = lambda job: None,
    verdict: Callable[[RunResult], None] = lambda finished: None,
) -> RunResult:
    """Train and audit as the configuration says, in a new directory.

    `task` is data and a model of one's own instead of those of the configuration, `mechanism` what turns updates into
    releases, if not what the configuration describes: the claim is the one that it makes. Hand them to `resume` as well.
    `secret_seed` comes fresh from the operating system; giving it makes a run that can be repeated and is not private.
    `hooks` hear of every round, beside those that the configuration names; see `coalmine.hooks`. `make_workers` makes
    workers from their number and their job, for engines that share out the work in another way; `check` may refuse what such
    an engine cannot do, before there is a directory. `verdict` is shown the audit before the training without noise and
    canaries begins, where the configuration asks for that comparison.
    """
    refuse_taken(Path(out))  # before data are read
    listening = hooks_of((*config.run.hooks, *hooks))
    about: dict[str, Any] = {
        "schema": SCHEMA,
        "manifest": manifest.SCHEMA,
        "secret": "fresh" if secret_seed is None else "given: reproducible, not private",
        "versions": versions(),
    }
    if handed := _handed(task, mechanism):
        about["handed"] = handed
    config = located(config)
    task = task or load_task(config)
    seed = secrets.randbits(128) if secret_seed is None else secret_seed
    job = federation(config, task, seed, mechanism)  # a configuration that does not fit fails here, before there is a directory
    check_claims(config, job)
    check_crafting(config, job)
    check(job)
    about["inputs"] = inputs(job)
    del job  # it is made again, and its canaries take memory
    directory = RunDirectory.create(out, config=write_config(config, about), secret_seed=seed)
    return _go_on(directory, config, task, mechanism, listening, quiet=quiet, make_workers=make_workers, verdict=verdict)


def resume(
    path: str | Path,
    *,
    task: Task | None = None,
    mechanism: Mechanism | None = None,
    workers: int | None = None,
    hooks: Sequence[Hook | str] = (),
    quiet: bool = False,
    verdict: Callable[[RunResult], None] = lambda finished: None,
) -> RunResult:
    """Go on where a run stopped; a finished one is read."""
    directory = RunDirectory.open(path)
    if directory.finished:
        return _read(directory)
    engine = about_run(directory.config).get("engine")
    if engine is not None:
        raise RunDirectoryError(
            f"{str(path)!r} was trained by {engine}, which cannot be resumed from here. Run the application again, with a new "
            "directory for its audit."
        )
    check_versions(directory)
    config = parse_config(directory.config, where=f"{path}/config.toml")
    if workers is not None:
        config = config.model_copy(update={"run": config.run.model_copy(update={"workers": workers})})
    listening = hooks_of((*config.run.hooks, *hooks))
    return _go_on(directory, config, task or load_task(config), mechanism, listening, quiet=quiet, verdict=verdict)


def _go_on(
    directory: RunDirectory,
    config: Config,
    task: Task,
    mechanism: Mechanism | None,
    hooks: Sequence[Hook],
    *,
    quiet: bool,
    verdict: Callable[[RunResult], None],
    make_workers: Callable[..., Any] = Workers,
) -> RunResult:
    shown = directory.make_absolute()  # a hook may change the working directory
    with directory.locked(), HookRunner(hooks, directory.path) as tell:
        seed = directory.secret_seed
        job = federation(strategies.kept(directory, config), task, seed, mechanism)
        strategies.keep(directory, job)
        check_inputs(directory, job)
        work = _Training(config, task, job, directory, seed, tell, OneSet(make_workers, config.run.workers))
        with work.workers:
            work.train("training", quiet=quiet)
            finished = replace(work.conclude(last=not config.run.reference), directory=shown)
            if config.run.reference:
                verdict(finished)
                with suppress(NonFiniteError):  # a comparison that diverges is no reason to withhold the audit
                    work.reference(quiet=quiet)
                finished = replace(work.compared(finished), directory=shown)
        tell("end", finished.in_numbers)
        return finished


def _read(directory: RunDirectory) -> RunResult:
    name = "training.json"
    manifest.check(directory.path)
    try:
        training = json.loads((directory.path / name).read_bytes())
        audited, _ = training["audited"], training["rounds"]
        name = "result.json"
        return RunResult(directory.path, training, AuditResult.load(directory.path) if audited else None)
    except (ValueError, KeyError, TypeError, CoalmineError):
        remedy = "Remove training.json, and `coalmine resume` writes all results again from the checkpoint."
        raise directory.damaged(name, remedy) from None


def _handed(task: Task | None, mechanism: Mechanism | None) -> dict[str, str]:
    """By argument of `run`, what no configuration holds: without it a run cannot be made again."""
    names = {"task": task and task.model.name, "mechanism": mechanism and type(mechanism).__name__}
    return {name: found for name, found in names.items() if found}


class _Training:
    """One training in one directory, observed by one session."""

    def __init__(
        self,
        config: Config,
        task: Task,
        job: Federation,
        directory: RunDirectory,
        secret_seed: int,
        notify: HookRunner,
        workers: OneSet,
    ):
        self.config, self.task, self.job, self.directory, self.secret_seed = config, task, job, directory, secret_seed
        self.notify, self.workers = notify, workers
        self.crafted = CraftedRun(config, job, directory)
        self.session = Session(config.spec, job.canary_setup, job.mechanism.describe(), directory, notify)

    def train(self, description: str, *, quiet: bool) -> None:
        """All rounds that are not yet done."""
        done, state = self.directory.load()
        config = self.config.model_dump(mode="json", exclude_none=True)
        about = {"directory": str(self.directory.path), "config": config, "rounds": self.job.rounds, "round": done}
        self.notify("start", about)
        model, clients = self.job.model, clients_of(self.job)
        self.session.begin(
            self.job.initial, model.groups, self.secret_seed, clients=clients, state=state, tensors=model.tensors
        )
        if done == self.job.rounds:
            return
        if done:
            strategies.check_state(self.job.mechanism, state, model.dim)
        accuracy, workers = None, self.workers.of(self.job.work())
        saved = Checkpoints(self.directory, self.job.rounds, all_of_them=self.notify.listening)
        rounds = self.crafted.federation.rounds_from(done, state or self.job.start(), workers)
        del state  # that of the first round is not needed for long
        # while the server plants and looks, workers are idle: transforms may have their processors, and give the same bits
        with Rounds(description, self.job.rounds, done=done, quiet=quiet) as bar, fft.set_workers(self.config.run.workers):
            began = time.monotonic()
            for finished in rounds:
                more: dict[str, Any] = {}
                if self._evaluates(finished.number):
                    more = _evaluation(self.job.evaluate(finished.state["parameters"], workers))
                    accuracy = more["accuracy"]
                more["seconds"] = round(time.monotonic() - began, 4)
                keep_model(self.directory, self.config.run.keep_every, finished.number + 1, finished.state)
                self.crafted.after(finished)
                due = saved.due(finished.number + 1)
                line = self.session.observe(finished.observed, state=finished.state, more=more, checkpoint=due)
                bar.show(finished.number + 1, in_words(line, accuracy))
                del finished  # nor are its vectors while the next one is made
                began = time.monotonic()

    def reference(self, *, quiet: bool) -> None:
        """The same without noise and canaries, in a directory inside this one."""
        config = _reference_config(self.config)
        inner = self.directory.inner("reference", config=write_config(config, {}))
        job = self.job.without_noise_and_canaries()  # the same cohorts
        other = _Training(config, self.task, job, inner, self.secret_seed, HookRunner(), self.workers)
        other.train("the same without noise and canaries", quiet=quiet)

    def conclude(self, *, last: bool) -> RunResult:
        """The model, then the audit; last of all what was recorded, with which the run is finished, unless more follows."""
        from safetensors.numpy import save

        _, state = self.directory.load()
        parameters = state["parameters"]
        del state  # what the audit kept in it is a few vectors more
        model = save({"parameters": parameters}, metadata={"model": self.task.model.name})
        self.directory.write("model.safetensors", model)
        if self.job.canary_setup is not None and self.job.canary_setup.aim is not None:
            self.directory.write(FILE, as_file(self.job.canary_setup.aim))
        facts = Facts(self.config, self.task, self.job, self.directory)
        training = facts.summary(model_sha256=hashlib.sha256(model).hexdigest(), secret_seed=self.secret_seed)
        training = counted(training, self.crafted.summary())
        further, findings = self.crafted.statements(), self.crafted.findings()
        result = self.session.end(parameters, training, facts.caveats(), last=last, further=further, findings=findings)
        return RunResult(self.directory.path, plain(training) if result is None else result.training, result)

    def compared(self, finished: RunResult) -> RunResult:
        """The same with what the comparison found, with which the run is finished."""
        facts = Facts(self.config, self.task, self.job, self.directory)
        training = plain({**finished.training, **facts.learned()})
        result = None if finished.result is None else replace(finished.result, training=training)
        self.session.finish(result, training)
        return RunResult(self.directory.path, training, result)

    def _evaluates(self, number: int) -> bool:
        every, last = self.config.run.evaluate_every, number + 1 == self.job.rounds
        return self.task.held_out is not None and (last or bool(every and (number + 1) % every == 0))


def _reference_config(config: Config) -> Config:
    """What the comparison writes down as its configuration."""
    changes: dict[str, Any] = {"canaries": config.canaries.model_copy(update={"pool": 0})}
    changes["crafting"] = config.crafting.model_copy(update={"mode": "off"})
    if "noise_multiplier" in config.mechanism.options:  # else its own section does not say how to leave out the noise
        changes["mechanism"] = config.mechanism.model_copy(update={"noise_multiplier": 0.0})
    return config.model_copy(update=changes)


def _evaluation(rows: Array) -> dict[str, float]:
    """Loss and accuracy over all users, with the error of a sample of users."""
    loss, terms, right, counted = rows.T
    accuracy, error = clustered_accuracy(right, counted)
    return {"accuracy": accuracy, "accuracy_error": error, "loss": float(loss.sum() / max(terms.sum(), 1.0))}


def clients_of(job: Federation) -> Clients:
    """Who is to take part."""
    return Clients(job.participation, len(job.data), job.seed)


def run_in_memory(
    spec: AuditSpec,
    job: Federation,
    secret_seed: int,
    observe: Callable[[Observed], None] = lambda seen: None,
    clients: Clients | None = None,
) -> Scorer:
    """All rounds in this process, nothing written: what is left is what the canaries saw.

    Nothing is evaluated, and the seeds are those that `job` was made with. `observe` is shown every round. `clients`
    is what the accountant was told of who takes part, if that is not what the job does.
    """
    session, state = Session(spec, job.canary_setup, job.mechanism.describe(), MemoryRecord()), job.start()
    claimed, model = clients or clients_of(job), job.model
    session.begin(job.initial, model.groups, secret_seed, clients=claimed, tensors=model.tensors)
    with Workers(1, job.work()) as workers:
        for finished in job.rounds_from(0, state, workers):
            session.observe(finished.observed)
            observe(finished.observed)
            state = finished.state
    return session.scorer(state["parameters"])
