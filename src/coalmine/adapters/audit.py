"""What an application adds to be audited, whatever engine trains it.

    audit = Audit(delta=1e-5, rounds=30, pool=600, out="audit")
    audit.begin(Application(...))                       the engine's adapter: what is trained, and what it claims
    audit.planted(t), audit.update(i)                   who takes part in round t; what canary i sends, over-long
    audit.observe(Observed(...))                        what was released, round by round
    audit.conclude()                                    the same `AuditResult`, run directory and report as `coalmine run`

Engines divide by how many replies came, so that this number may not depend on a coin. It is therefore the same in every round
and known before: `places`. Each canary of the pool, whichever way its coin fell, has a place in each of its rounds. In the
place of an inserted canary its update is sent, in the place of a held-out one, and in places that are left over, an update of
(almost) nothing. Neighbours are training with a client's update and training with nothing in its place: the sum moves by at
most one clip norm while everything else stays as it is, which is what "add or remove one" means where the denominator is
fixed. The coins stay fair and independent of each other and of the rounds.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import _validate, config
from coalmine.adapters.application import Application, Job, Observed
from coalmine.adapters.options import AS_EVER, NOTHING, OVER_LONG_ONES, WITHOUT_OTHERS, Replies, Stated, Statement
from coalmine.adapters.shared_secret import secret
from coalmine.canaries import TransformCanaries
from coalmine.canaries.schedule import Schedule
from coalmine.config import Config
from coalmine.contracts import Array, Claim, IndexArray, Vector, plain
from coalmine.errors import MismatchError, NotEnoughCanariesError, RunDirectoryError
from coalmine.federation import CanarySetup
from coalmine.hooks import Hook, HookRunner, hooks_of
from coalmine.participation import Periods
from coalmine.recorder import Recorder, Running
from coalmine.result import AuditResult
from coalmine.runs import SCHEMA, RunDirectory
from coalmine.scorer import MemoryRecord, Scorer

_TRACE = 0.01  # a p-value above it is no trace of canaries
_BLIND = ("known-others", "afterwards", "unknown-rounds")  # views that subtract the clients' part


class Audit:
    """Canaries in an application's own training: who they are, what they send, what is seen of them, and what that proves.

    `rounds` is how many the application will train for, `presentations` in how many of them each canary of the `pool` has a
    place. A `Statement` chooses what decides, `Replies` what canaries say of themselves, and `Stated` holds what the
    application says of its privacy where its strategy does not; most audits need none of them.

    `out` is a new directory for all files, as `coalmine run` makes it; without it everything stays in memory. The secret comes
    fresh from the operating system. Where canaries are clients, both sides need the same one: a `secret_file`, which is made if
    it is not there, readable by its owner alone. A `secret_seed` makes an audit that can be repeated and is not private.

    >>> audit = Audit(delta=1e-5, rounds=30, pool=600)
    >>> audit.places     # replies that the audit adds to every round: what an application's cohort size must count
    20
    """

    def __init__(
        self,
        *,
        delta: float,
        rounds: int,
        pool: int = 600,
        presentations: int = 1,
        statement: Statement = AS_EVER,
        replies: Replies = OVER_LONG_ONES,
        stated: Stated = NOTHING,
        out: str | Path | None = None,
        secret_seed: int | None = None,
        secret_file: str | Path | None = None,
        hooks: Sequence[Hook | str] = (),
    ):
        self.rounds = _validate.whole("rounds", rounds, least=1)
        _validate.whole("pool", pool, least=1)
        for name, task, kind in (
            ("statement", statement, Statement),
            ("replies", replies, Replies),
            ("stated", stated, Stated),
        ):
            if not isinstance(task, kind):
                raise ValueError(f"{name} must be a {kind.__name__}(...) of coalmine.adapters; got {task!r}.")
        self.replies, self.stated = replies, stated
        sections = {
            "privacy": {"delta": delta},
            "canaries": {"pool": pool, "presentations": presentations, "over_long": replies.over_long},
            "audit": statement.section(),
            "participation": {"rounds": rounds},
        }
        self._config = config.checked(sections, where="Audit")
        self._auto = statement.view == "auto"
        self._given_secret = secret_seed is not None
        self._seed, self._made_here = secret(secret_seed, secret_file)
        self._planting = Schedule.draw(Periods(presentations), pool=pool, rounds=rounds, secret_seed=self._seed)
        self._out, self._hooks = out, hooks_of(hooks)
        self._pool: TransformCanaries | None = None
        self._realised: dict[int, IndexArray] = {}
        self._job: Job | None = None
        self._tell = HookRunner()  # nobody, until it begins
        self._notes: dict[str, list[int]] = {}
        self._result: AuditResult | None = None
        self._trouble: Exception | None = None

    def __repr__(self) -> str:
        return f"Audit(rounds={self.rounds}, pool={self._planting.pool}, delta={self.delta:g}, secret_seed=not shown)"

    @property
    def delta(self) -> float:
        """Of every statement."""
        return self._config.privacy.delta

    @property
    def places(self) -> int:
        """Canaries that have a place in a round, whichever way their coins fell: the same in every round."""
        return max(candidates.size for candidates in self._planting.assigned)

    @property
    def schedule(self) -> Schedule:
        """The rounds and the coins, as secret as the seed; where the engine decides about rounds, as it was in the end."""
        return self._planting if self._job is None else self._job.canary_setup.schedule

    @property
    def fingerprint(self) -> str:
        """By which two sides know that they have the same secret and the same pool."""
        about = f"coalmine audit {self._seed:x} {self._planting.pool} {self.rounds}"
        return hashlib.sha256(about.encode()).hexdigest()[:32]

    @property
    def alone(self) -> bool:
        """Whether nobody else can have this secret: it was made here, and no server has begun with this very audit."""
        return self._made_here and self._job is None

    @property
    def result(self) -> AuditResult:
        """What the audit says; it concludes with what was seen if the training ended early."""
        return self.conclude()

    def begin(self, application: Application) -> None:
        """Before the first round: the canaries are drawn, and the directory is made."""
        if self._job is not None:
            raise MismatchError("this audit has begun already: one audit is for one training. Make a new Audit(...).")
        self._job = self.job(application)
        config = self._job.config
        self._final = application.initial
        about = {"schema": SCHEMA, "engine": application.engine, "versions": _versions()}
        about["secret"] = "given: reproducible, not private" if self._given_secret else "fresh"
        self._directory: RunDirectory | None = None
        self._notebook = MemoryRecord()
        if self._out is not None:
            _refuse_old(Path(self._out))
            text = self._job.written(about)
            self._directory = RunDirectory.create(self._out, config=text, secret_seed=self._seed)
        self._running = Running(config, self._job, self._job.recorder, None)
        self._tell = HookRunner(self._hooks, self._directory.path if self._directory else Path())
        shown = {"directory": str(self._out), "config": config.model_dump(mode="json", exclude_none=True)}
        self._tell("start", {**shown, "rounds": self.rounds, "round": 0})
        self._began = time.monotonic()

    def job(self, application: Application) -> Job:
        """The application with its canaries; nothing is begun by that."""
        canaries, config = self.canaries(application.initial.size), self._resolved(application)
        canary_setup = CanarySetup(canaries, self._planting, as_vectors=True, over_long=config.canaries.over_long)
        return Job(application, config, canary_setup, Recorder.among(config, canary_setup, application.groups, self._seed))

    def taking_part(self, round_number: int) -> IndexArray:
        """The canaries whose updates are sent in a round; the other places send nothing."""
        if not 0 <= round_number < self.rounds:
            raise MismatchError(
                f"round {round_number + 1} of an audit of {self.rounds} rounds: give Audit(rounds=...) the number of rounds "
                "that the application trains for."
            )
        return self._planting.taking_part(round_number)

    def canaries(self, dim: int) -> TransformCanaries:
        """The pool, for a model of so many parameters."""
        pool = self._planting.pool
        if dim < 4 * pool:
            raise NotEnoughCanariesError(
                f"{pool} canaries need a model of at least {4 * pool} parameters; this one has {dim}. Take a smaller pool."
            )
        if self._pool is None or self._pool.dim != dim:
            self._pool = TransformCanaries(dim, pool, secret_seed=self._seed)
        return self._pool

    def update(self, index: int, clip_norm: float, dim: int) -> Vector:
        """What a canary sends: far longer than the clip norm, so that the code under audit must cut it."""
        canaries = self.canaries(dim)
        sent: Vector = canaries.update(index) * np.float32(self._config.canaries.over_long * clip_norm / canaries.norm)
        return sent

    def observe(self, seen: Observed) -> None:
        """What a round released."""
        rows, record = self._begun.rows(seen), seen.record()
        if seen.assigned is None:
            record |= self._running.after(self._begun.round_of(seen), rows)
        self.keep(seen.round, rows, record, moved=seen.vector, assigned=seen.assigned)

    def keep(
        self,
        number: int,
        rows: Mapping[str, Array],
        record: dict[str, Any],
        *,
        moved: Vector | float = 0.0,
        assigned: IndexArray | None = None,
    ) -> None:
        """What was seen of a round, and by how much the model moved; `assigned` where the engine decides who takes part."""
        self._result = None  # whoever looked before the end saw the rounds up to then
        if assigned is not None:
            self._realised[number] = assigned
        record["seconds"], self._began = round(time.monotonic() - self._began, 4), time.monotonic()
        self._final = self._final + moved
        if self._directory is not None:
            line = self._directory.save(number + 1, {}, rows, record)
        else:
            line = {"round": number, **record}
            self._notebook.seen.append(dict(rows))
            self._notebook.recorded.append(line)
        self._tell("round", line)

    def note(self, kind: str, round_number: int) -> None:
        """Something that a reader of the result must know; equal notes of several rounds become one."""
        self._notes.setdefault(kind, []).append(round_number)

    def give_up(self, trouble: Exception) -> None:
        """The audit cannot be concluded. Training goes on, or ends, without it; `result` says why."""
        self._trouble = trouble
        sys.stderr.write(f"coalmine: there is no audit of this training: {trouble}\n")

    def state(self, claim: Claim) -> None:
        """A claim that is known only while training goes on, as an accountant's."""
        if not math.isclose(claim.delta, self.delta, rel_tol=1e-9):
            raise MismatchError(f"the application claims for delta = {claim.delta:g}; give Audit(delta={claim.delta:g}).")
        self._begun.application = replace(self._begun.application, stated=replace(claim, delta=self.delta))

    def conclude(self) -> AuditResult:
        """What was seen, what that proves, and all files."""
        if self._trouble is not None:
            raise self._trouble
        if self._result is None:
            with self._tell:
                self._result = self._concluded(self._begun)
                self._tell("end", {"rounds": self.rounds, **plain(self._result.in_numbers)})
        return self._result

    def _concluded(self, job: Job) -> AuditResult:
        events = self._events()
        if not events:
            raise NotEnoughCanariesError(
                "no round released anything, so that there is nothing to look at. " + " ".join(self._said(self._notes))
            )
        if self._realised:
            if not any(present.size for present in self._realised.values()):
                raise NotEnoughCanariesError(
                    "no client was a canary in any round. Add canary_mod(...) to the mods of the ClientApp, and say who is a "
                    "canary: node configurations with a canary-id, or who=last_partitions(...)."
                )
            job.take_part(self._realised)
        record = self._directory or self._notebook
        scorer = Scorer(job.config, job, job.recorder, record, self._final, job.application.stated)
        deciding, beside = scorer.deciding(), scorer.beside()
        training = {**job.summary(events), "secret_sha256": self._digest, "notes": self._said(self._notes)}
        result = scorer.conclude(deciding, beside)
        caveats = (*self._caveats(job), *self._without_trace(result), *result.caveats)
        result = replace(result, training=plain(training), caveats=caveats)
        if self._directory is not None:
            scored = {"scores.npz": deciding[0].scores}
            scored |= {f"views/{_file(each.scores.view)}.npz": each.scores for each in (*deciding[1:], *beside)}
            for name, scores in scored.items():
                packed = BytesIO()
                scores.save(packed)
                self._directory.write(name, packed.getvalue())
            self._directory.write("result.json", result.to_json().encode())
            self._report(self._directory)
            recorded = {**training, "audited": True}
            self._directory.write("training.json", (json.dumps(plain(recorded), indent=2, sort_keys=True) + "\n").encode())
        return result

    def _report(self, directory: RunDirectory) -> None:
        """The page of the audit; without it the audit is still an audit."""
        try:
            from coalmine.report.page import report

            directory.write("report.html", report(directory.path).encode())
        except RunDirectoryError:  # the disk is full: what else is to be written would fail as well
            raise
        except Exception as error:  # a page is no reason to lose an audit
            sys.stderr.write(f"coalmine: no report.html was written: {type(error).__name__}, {error}\n")

    def _events(self) -> list[dict[str, Any]]:
        if self._directory is None:
            return [dict(event) for event in self._notebook.recorded]
        return self._directory.events() if self._directory.has_rows(self._begun.recorder.views[0].needs) else []

    @property
    def _digest(self) -> str | None:
        """A fingerprint of the secret seed; one that was given may be a small number, which a fingerprint would betray."""
        return None if self._given_secret else hashlib.sha256(f"coalmine secret seed {self._seed:x}".encode()).hexdigest()

    @property
    def _begun(self) -> Job:
        if self._job is None:
            raise MismatchError(
                "nothing was trained yet: hand this audit to an adapter, as audited(strategy, audit), and train. An observer "
                "on a client's side, client_view(...), concludes in the last round or by its conclude()."
            )
        return self._job

    def _resolved(self, application: Application) -> Config:
        """The configuration with what the application said; the deciding view is fixed here, before the first release."""
        config, known = self._config, application.knows_others
        if not known and not self._auto and config.audit.view in _BLIND:
            raise MismatchError(
                f"view {config.audit.view!r} must know what the clients sent, and {application.name} does not show it. "
                f"Use Statement(view='{WITHOUT_OTHERS}'), or 'auto'."
            )
        views = tuple(view for view in config.audit.views if known or view not in _BLIND)
        primary = WITHOUT_OTHERS if self._auto and not known else config.audit.view
        privacy = {"noise_multiplier": application.noise_multiplier, "clip_norm": application.clip_norm}
        return config.model_copy(
            update={
                "audit": config.audit.model_copy(update={"view": primary, "views": views}),
                "privacy": config.privacy.model_copy(update=privacy),
            }
        )

    def _caveats(self, job: Job) -> tuple[str, ...]:
        said = (
            ["secret seed: it was given, so that this result is reproducible and the run is not private"]
            if self._given_secret
            else []
        )
        stated = job.application.stated
        if stated is None:
            said.append(f"claim: computed here for the canaries from the noise multiplier that {job.application.name} states")
        else:
            said.append(f"claim: {stated.accountant}; it is the application's own and was not recomputed")
        seen = sum(int(event.get("releases", 1)) for event in self._events())
        if seen < self.rounds:
            said.append(f"rounds: {seen} of {self.rounds} released something; nothing is said about the others")
        return (*said, *self._said(self._notes))

    def _without_trace(self, result: AuditResult) -> tuple[str, ...]:
        """Canaries that are clients may have gone unplanted, and nobody but the result would know."""
        if not self._realised or result.estimate is None or result.estimate.p_value <= _TRACE:
            return ()
        return (
            "canaries: no trace of any of them was found. That is seen if noise hides them, and also if the clients have "
            "another secret than the server, or no canary_mod: then this result says nothing",
        )

    @staticmethod
    def _said(notes: Mapping[str, Sequence[int]]) -> list[str]:
        return [f"{kind} (round{'s' * (len(rounds) > 1)} {_list(rounds)})" for kind, rounds in notes.items()]


def _refuse_old(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunDirectoryError(
            f"{str(out)!r} already exists and is not empty: an audit writes into a directory of its own. "
            "Give Audit(out=...) another one, or remove it. (Training of another engine is not resumed.)"
        )


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("coalmine", "numpy", "scipy", "dp-accounting")}


def _file(view: str) -> str:
    return re.sub("[^a-z0-9]+", "-", view.lower())


def _list(rounds: Sequence[int]) -> str:
    """Rounds counted from one, the first few of them."""
    shown = ", ".join(str(number + 1) for number in rounds[:5])
    return shown + (f" and {len(rounds) - 5} more" if len(rounds) > 5 else "")
