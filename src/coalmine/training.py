"""An audited run, end to end: train with canaries, look for them in what is released, say what leaked.

`run` makes a run directory, `resume` goes on where a run stopped; both end with the same bits. What is decided here is the
order of things. What they are is decided in the rooms below: `assembly` (objects from a configuration), `federation` (rounds),
`views` (what adversaries see), `audit` (what that proves), `runs` (files).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import accounting, terminal
from coalmine.assembly import Task, clustered_accuracy, federation, inputs, load_task, reference_config
from coalmine.config import Config, about_run, fingerprint, located, parse_config, write_config
from coalmine.contracts import Array, Claim, Mechanism, Vector, plain
from coalmine.errors import CoalmineError, NonFiniteError, RunDirectoryError
from coalmine.federation import Federation, diverged
from coalmine.hooks import Hook, HookRunner, hooks_of
from coalmine.progress import Rounds
from coalmine.recorder import Recorder, Running
from coalmine.report.finish import write_page
from coalmine.result import AuditResult
from coalmine.runs import SCHEMA, RunDirectory
from coalmine.scorer import Scorer
from coalmine.scores import Scores
from coalmine.views import KnownOthers, KnownRounds
from coalmine.workers import Workers

_PACKAGES = ("coalmine", "numpy", "scipy", "torch", "dp-accounting")
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
        return "\n".join(f"{name:<14}{text}" for name, text in self.training["in_words"].items())

    @property
    def in_numbers(self) -> dict[str, Any]:
        """What hooks hear at the end."""
        about = {name: value for name, value in self.training.items() if name in _TOLD}
        audit = self.result.in_numbers if self.result else {"verdict": "NOT AUDITED", "reason": "a run without canaries"}
        return {**plain(about), **plain(audit)}

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
) -> RunResult:
    """Train and audit as the configuration says, in a new directory.

    `task` is data and a model of one's own instead of those of the configuration, `mechanism` what turns updates into
    releases, if not what the configuration describes: the claim is the one that it makes. Hand them to `resume` as well.
    `secret_seed` comes fresh from the operating system; giving it makes a run that can be repeated and is not private.
    `hooks` hear of every round, beside those that the configuration names; see `coalmine.hooks`. `make_workers` makes
    workers from their number and their job, for engines that share out the work in another way.
    """
    listening = hooks_of((*config.run.hooks, *hooks))
    about: dict[str, Any] = {
        "schema": SCHEMA,
        "secret": "fresh" if secret_seed is None else "given: reproducible, not private",
        "versions": _versions(),
    }
    if handed := _handed(task, mechanism):
        about["handed"] = handed
    config = located(config)
    task = task or load_task(config)
    seed = secrets.randbits(128) if secret_seed is None else secret_seed
    job = federation(config, task, seed, mechanism)  # a configuration that does not fit fails here, before there is a directory
    about["inputs"] = inputs(job)
    directory = RunDirectory.create(out, config=write_config(config, about), secret_seed=seed)
    return _go_on(directory, config, task, mechanism, listening, quiet=quiet, make_workers=make_workers)


def resume(
    path: str | Path,
    *,
    task: Task | None = None,
    mechanism: Mechanism | None = None,
    workers: int | None = None,
    hooks: Sequence[Hook | str] = (),
    quiet: bool = False,
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
    _same_versions(directory)
    config = parse_config(directory.config, where=f"{path}/config.toml")
    if workers is not None:
        config = config.model_copy(update={"run": config.run.model_copy(update={"workers": workers})})
    return _go_on(directory, config, task or load_task(config), mechanism, hooks_of((*config.run.hooks, *hooks)), quiet=quiet)


def _go_on(
    directory: RunDirectory,
    config: Config,
    task: Task,
    mechanism: Mechanism | None,
    hooks: Sequence[Hook],
    *,
    quiet: bool,
    make_workers: Callable[..., Any] = Workers,
) -> RunResult:
    shown = directory.make_absolute()  # a hook may change the working directory
    with directory.locked(), HookRunner(hooks, directory.path) as tell:
        seed = directory.secret_seed
        job = federation(config, task, seed, mechanism)
        if inputs(job) != about_run(directory.config).get("inputs"):
            raise RunDirectoryError(
                f"{str(directory.path)!r} was begun with other data, another model, mechanism or trace. "
                "Hand `resume` the same `task` and `mechanism`, and put back the files of the data."
            )
        work = _Training(config, task, job, directory, seed)
        work.tell, work.make_workers = tell, make_workers
        work.train("training", quiet=quiet)
        if config.run.reference:
            with suppress(NonFiniteError):  # a comparison that diverges is no reason to withhold the audit
                work.reference(quiet=quiet)
        finished = replace(work.conclude(), directory=shown)
        tell("end", finished.in_numbers)
        return finished


def _read(directory: RunDirectory) -> RunResult:
    name = "training.json"
    try:
        training = json.loads((directory.path / name).read_bytes())
        audited, _ = training["audited"], dict(training["in_words"])
        name = "result.json"
        return RunResult(directory.path, training, AuditResult.load(directory.path) if audited else None)
    except (ValueError, KeyError, TypeError, CoalmineError):
        remedy = "Remove training.json, and `coalmine resume` writes all results again from the checkpoint."
        raise directory.damaged(name, remedy) from None


def _versions() -> dict[str, str]:
    return {name: version(name) for name in _PACKAGES}


def _handed(task: Task | None, mechanism: Mechanism | None) -> dict[str, str]:
    """By argument of `run`, what no configuration holds: without it a run cannot be made again."""
    names = {"given": task and task.model.name, "mechanism": mechanism and type(mechanism).__name__}
    return {name: found for name, found in names.items() if found}


def _same_versions(directory: RunDirectory) -> None:
    """Other versions would give other bits."""
    then, now = about_run(directory.config)["versions"], _versions()
    changed = [f"{name} {then.get(name)} (here: {now[name]})" for name in now if then.get(name) != now[name]]
    if changed:
        raise RunDirectoryError(
            f"{str(directory.path)!r} was begun with {', '.join(changed)}; going on would not give the result of an "
            "uninterrupted run. Install the versions that config.toml names, or start a new run."
        )


class _Training:
    """One training in one directory."""

    tell = HookRunner()  # nobody
    make_workers: Callable[..., Any] = staticmethod(Workers)

    def __init__(self, config: Config, task: Task, job: Federation, directory: RunDirectory, secret_seed: int):
        self.config, self.task, self.job, self.directory, self.secret_seed = config, task, job, directory, secret_seed

    @cached_property
    def recorder(self) -> Recorder | None:
        """What the canaries look at."""
        return Recorder.of(self.config, self.job, self.secret_seed) if self.job.canary_setup else None

    def train(self, description: str, *, quiet: bool) -> None:
        """All rounds that are not yet done, each of them saved before the next."""
        done, state = self.directory.load()
        config = self.config.model_dump(mode="json", exclude_none=True)
        self.tell("start", {"directory": str(self.directory.path), "config": config, "rounds": self.job.rounds, "round": done})
        if done == self.job.rounds:
            return
        state = state or self.job.start()
        running = Running(self.config, self.job, self.recorder, self.directory)
        bar = Rounds(description, self.job.rounds, done=done, quiet=quiet)
        with bar, self.make_workers(self.config.run.workers, self.job.work()) as workers:
            began = time.monotonic()
            for finished in self.job.rounds_from(done, state, workers):
                rows = self.recorder.rows(finished) if self.recorder else {}
                record = {**finished.record, **running.after(finished, rows)}
                if self._evaluates(finished.number):
                    record |= _evaluation(self.job.evaluate(finished.state["parameters"], workers))
                record["seconds"] = round(time.monotonic() - began, 4)
                line = self.directory.save(finished.number + 1, finished.state, rows, record)
                bar.show(finished.number + 1, running.in_words(record))
                self.tell("round", line)
                began = time.monotonic()

    def reference(self, *, quiet: bool) -> None:
        """The same without noise and canaries, in a directory inside this one."""
        config = reference_config(self.config)
        inner = self.directory.inner("reference", config=write_config(config, {}))
        job = federation(config, self.task, self.secret_seed)  # the same cohorts
        other = _Training(config, self.task, job, inner, self.secret_seed)
        other.make_workers = self.make_workers
        other.train("the same without noise and canaries", quiet=quiet)

    def conclude(self) -> RunResult:
        """The model, the scores of every view, the audit; last of all what was recorded, with which the run is finished."""
        from safetensors.numpy import save

        _, state = self.directory.load()
        model = save({"parameters": state["parameters"]}, metadata={"model": self.task.model.name})
        self.directory.write("model.safetensors", model)
        training = {**self._summary(hashlib.sha256(model).hexdigest()), "audited": self.recorder is not None}
        result = None
        if self.recorder is not None:
            result = self._audit(self.recorder, state["parameters"])
            hidden = _hidden(result)
            if hidden is not None:
                training["hidden_by_the_others"] = hidden
                training["in_words"]["hidden"] = f"by the other clients: epsilon about {hidden:.3g}"
            result = replace(result, training=plain(training), caveats=(*self._caveats(), *result.caveats))
            self.directory.write("result.json", result.to_json().encode())
            write_page(self.directory)
        self.directory.write("training.json", (json.dumps(plain(training), indent=2, sort_keys=True) + "\n").encode())
        return RunResult(self.directory.path, training, result)

    def _audit(self, recorder: Recorder, parameters: Vector) -> AuditResult:
        """The scores of every view, saved; then what they prove."""
        scorer = Scorer(self.config, self.job, recorder, self.directory, parameters)
        deciding, beside = scorer.deciding(), scorer.beside()
        self._save_scores("scores.npz", deciding[0].scores)
        for each in (*deciding[1:], *beside):
            self._save_scores(f"views/{re.sub('[^a-z0-9]+', '-', each.scores.view.lower())}.npz", each.scores)
        return scorer.conclude(deciding, beside)

    def _save_scores(self, name: str, scores: Scores) -> None:
        packed = BytesIO()
        scores.save(packed)
        self.directory.write(name, packed.getvalue())

    def _evaluates(self, number: int) -> bool:
        every, last = self.config.run.evaluate_every, number + 1 == self.job.rounds
        return self.task.held_out is not None and (last or bool(every and (number + 1) % every == 0))

    def _caveats(self) -> tuple[str, ...]:
        said: tuple[str, ...] = ()
        if self._given_secret:
            said = ("secret seed: it was given, so that this result is reproducible and the run is not private",)
        canary_setup, clients = self.job.canary_setup, self.job.participation
        if canary_setup is not None and str(canary_setup.schedule.pattern) != str(clients):
            said += (
                f"participation: claim and measurement are those of the canaries, {canary_setup.schedule.pattern}; "
                f"clients take part {clients}, and their own claim is epsilon = {self._clients.epsilon:.3g}",
            )
        lost = diverged(self.directory.events(), adaptive=self.config.privacy.adaptive_clipping)
        return (*said, *([lost] if lost else []), *self.job.mechanism.flags)

    @property
    def _given_secret(self) -> bool:
        """Whether the secret seed was given: it may be a small number, which a fingerprint would betray."""
        return bool(about_run(self.directory.config)["secret"] != "fresh")

    @cached_property
    def _clients(self) -> Claim:
        """What is claimed for a client."""
        noise, privacy = self.job.mechanism.noise_multiplier, self.config.privacy
        return accounting.claim(self.job.participation, noise_multiplier=noise, delta=privacy.delta, unit=privacy.unit)

    def _summary(self, model_hash: str) -> dict[str, Any]:
        """What the training recorded, without times."""
        events = self.directory.events()
        rounds = [event for event in events if "round" in event]
        mean = {name: float(np.mean([event[name] for event in rounds])) for name in _AVERAGED}
        mean |= {name: _pooled(rounds, name, weight) for name, weight in _SHARES.items()}
        last = rounds[-1]
        clients = self._clients
        about: dict[str, Any] = {
            "model": self.task.model.name,
            "parameters": self.task.model.dim,
            "users": len(self.task.train),
            "rounds": self.job.rounds,
            "participation": str(self.job.participation),
            "epsilon_of_clients": clients.epsilon,
            **{f"mean_{name}": value for name, value in mean.items()},
            "largest_canary_share": max(event["canary_share"] for event in rounds),
            "model_sha256": model_hash,
            "config_sha256": fingerprint(self.config),
            "inputs_sha256": about_run(self.directory.config)["inputs"] if self.recorder else None,
            "secret_sha256": None
            if self._given_secret
            else hashlib.sha256(f"coalmine secret seed {self.secret_seed:x}".encode()).hexdigest(),
        }
        words = {
            "training": f"{self.job.rounds} rounds of {mean['clients']:.0f} clients, {self.task.model.dim:,} parameters; "
            f"a client's own claim: epsilon = {clients.epsilon:.3g} ({self.job.participation})",
            "canaries": f"{100 * mean['canary_share']:.1f}% of a cohort (at most {100 * about['largest_canary_share']:.1f}%); "
            f"unclipped updates {100 * mean['unclipped_clients']:.0f}%, "
            f"with canaries {100 * mean['unclipped_with_canaries']:.0f}%",
        }
        if last.get("accuracy") is not None and self.task.classes:
            about |= {name: last[name] for name in ("accuracy", "accuracy_error", "loss")}
            about["baseline_accuracy"], about["baseline_error"] = self.task.baseline
            words["learned"] = self._learned(about)
        return {**about, "in_words": words}

    def _learned(self, about: dict[str, Any]) -> str:
        shown = (
            f"accuracy {_percent(about['accuracy'], about['accuracy_error'])} on held-out {self.config.data.held_out_kind}; "
        )
        shown += f"always the most frequent: {_percent(about['baseline_accuracy'], about['baseline_error'])}"
        path = self.directory.path / "reference"
        if (path / "config.toml").is_file():
            events = RunDirectory.open(path).events() if (path / "events.jsonl").is_file() else []
            if len(events) < self.job.rounds:
                return f"{shown}; without noise and canaries it diverged"
            last = events[-1]
            about["reference_accuracy"], about["reference_error"] = last["accuracy"], last["accuracy_error"]
            shown += f"; without noise and canaries: {_percent(last['accuracy'], last['accuracy_error'])}"
        return shown


_AVERAGED = ("clients", "canaries", "clients_norm", "clip_norm")
_SHARES = {
    "canary_share": ("clients", "canaries"),
    "unclipped_clients": ("clients",),
    "unclipped_with_canaries": ("clients", "canaries"),
}


def _pooled(rounds: list[dict[str, Any]], share: str, of: tuple[str, ...]) -> float:
    """A share over all rounds together, by how many each had."""
    weights = np.array([sum(event[name] for name in of) for event in rounds], dtype=np.float64)
    return float(weights @ np.array([event[share] for event in rounds]) / max(weights.sum(), 1.0))


def _hidden(result: AuditResult) -> float | None:
    """By how much the estimate of whoever knows all other updates exceeds that of whoever knows the rounds only."""
    about = {result.setting["view"]: result.estimate, **{view.view: view.estimate for view in result.views}}
    others, rounds = about.get(KnownOthers().name), about.get(KnownRounds().name)
    if others is None or rounds is None or not (np.isfinite(others.epsilon) and np.isfinite(rounds.epsilon)):
        return None
    return max(others.epsilon - rounds.epsilon, 0.0)


def _evaluation(rows: Array) -> dict[str, float]:
    """Loss and accuracy over all users, with the error of a sample of users."""
    loss, terms, right, counted = rows.T
    accuracy, error = clustered_accuracy(right, counted)
    return {"accuracy": accuracy, "accuracy_error": error, "loss": float(loss.sum() / max(terms.sum(), 1.0))}


def _percent(share: float, error: float) -> str:
    return f"{100 * share:.1f} ± {100 * error:.1f}%"
