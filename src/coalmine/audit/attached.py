"""What an application adds to be audited, whatever engine trains it.

    audit = Audit(delta=1e-5, rounds=30, pool=600, out="audit")
    audit.begin(Application(...))                       the engine's adapter: what is trained, and what it claims
    audit.taking_part(t), audit.update(i, ...)          who takes part in round t; what canary i sends, over-long
    audit.observe(observed(...))                        what was released, round by round
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
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine.audit.application import Application, Replies, Stated, as_it_was, sections, summary, written
from coalmine.audit.observe import MemoryRecord, Recorder
from coalmine.audit.secret import secret
from coalmine.audit.session import Session
from coalmine.audit.spec import LEAST_POOL, WITHOUT_OTHERS, AuditSpec, Statement
from coalmine.canaries import TransformCanaries
from coalmine.canaries.schedule import Schedule
from coalmine.canaries.setup import CanarySetup
from coalmine.contracts import Array, Caveat, Claim, IndexArray, Observed, Vector, plain
from coalmine.errors import MismatchError, NotEnoughCanariesError, RunDirectoryError
from coalmine.hooks import Hook, HookRunner, hooks_of
from coalmine.participation import Periods
from coalmine.result import AuditResult
from coalmine.runs import SCHEMA, RunDirectory
from coalmine.views import VIEWS

_USUAL, _REPLIES, _NOTHING = Statement(), Replies(), Stated()


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
        unit: str = "client",
        statement: Statement = _USUAL,
        replies: Replies = _REPLIES,
        stated: Stated = _NOTHING,
        out: str | Path | None = None,
        secret_seed: int | None = None,
        secret_file: str | Path | None = None,
        hooks: Sequence[Hook | str] = (),
    ):
        self.rounds = _validate.rounds(rounds)
        if _validate.whole("pool", pool, least=1) < LEAST_POOL:
            raise ValueError(f"canaries: a pool of {pool} shows nothing; at least {LEAST_POOL}.")
        for name, found, kind in (
            ("statement", statement, Statement),
            ("replies", replies, Replies),
            ("stated", stated, Stated),
        ):
            if not isinstance(found, kind):
                raise ValueError(f"{name} must be a {kind.__name__}(...) of coalmine.adapters; got {found!r}.")
        self.replies, self.stated = replies, stated
        self._spec, self._auto = statement.spec(delta, unit), statement.view == "auto"
        self._given_secret = secret_seed is not None
        self._seed, self._made_here = secret(secret_seed, secret_file)
        self._drawn = Schedule.draw(Periods(presentations), pool=pool, rounds=rounds, secret_seed=self._seed)
        self._schedule = self._drawn
        self._out, self._hooks = out, hooks_of(hooks)
        self._pool: TransformCanaries | None = None
        self._released: set[int] = set()  # rounds that were observed
        self._realised: dict[int, IndexArray] = {}
        self._application: Application | None = None
        self._session: Session | None = None
        self._notify = HookRunner()  # nobody, until it begins
        self._notes: dict[tuple[str, str], list[int]] = {}
        self._result: AuditResult | None = None
        self._trouble: Exception | None = None

    def __repr__(self) -> str:
        return f"Audit(rounds={self.rounds}, pool={self._drawn.pool}, delta={self.delta:g}, secret_seed=not shown)"

    @property
    def delta(self) -> float:
        """Of every statement."""
        return self._spec.delta

    @property
    def places(self) -> int:
        """Canaries that have a place in a round, whichever way their coins fell: the same in every round."""
        return max(candidates.size for candidates in self._drawn.assigned)

    @property
    def schedule(self) -> Schedule:
        """The rounds and the coins, as secret as the seed; where the engine decides about rounds, as it was in the end."""
        return self._schedule

    @property
    def fingerprint(self) -> str:
        """By which two sides know that they have the same secret and the same pool."""
        about = f"coalmine audit {self._seed:x} {self._drawn.pool} {self.rounds}"
        return hashlib.sha256(about.encode()).hexdigest()[:32]

    @property
    def alone(self) -> bool:
        """Whether nobody else can have this secret: it was made here, and no server has begun with this very audit."""
        return self._made_here and self._session is None

    @property
    def result(self) -> AuditResult:
        """What the audit says; it concludes with what was seen if the training ended early."""
        return self.conclude()

    def begin(self, application: Application) -> None:
        """Before the first round: the canaries are drawn, and the directory is made."""
        if self._session is not None:
            raise MismatchError("this audit has begun already: one audit is for one training. Make a new Audit(...).")
        spec, setup = self.resolved(application), self.setup(application.initial.size)
        settings = sections(application, spec, setup)
        record: RunDirectory | MemoryRecord = MemoryRecord()
        if self._out is not None:
            _refuse_old(Path(self._out))
            about = {"schema": SCHEMA, "engine": application.engine, "versions": _versions()}
            about["secret"] = "given: reproducible, not private" if self._given_secret else "fresh"
            record = RunDirectory.create(self._out, config=written(about, settings), secret_seed=self._seed)
        self._notify = HookRunner(self._hooks, record.path or Path())
        session = Session(spec, setup, application.description, record, self._notify)
        session.begin(application.initial, application.groups, self._seed)
        self._application, self._session, self._final = application, session, application.initial
        self._notify("start", {"directory": str(self._out), "config": settings, "rounds": self.rounds, "round": 0})
        self._began = time.monotonic()

    def setup(self, dim: int) -> CanarySetup:
        """The canaries of a model of so many parameters; nothing is begun by that."""
        return CanarySetup(self.canaries(dim), self._drawn, full_vectors=True, canary_norm=self.replies.canary_norm)

    def recorder(self, application: Application) -> Recorder:
        """What makes rows of an observed round, for an engine that cannot keep this audit in memory; nothing is begun."""
        return Recorder.of(self.resolved(application), self.setup(application.initial.size), application.groups, self._seed)

    def taking_part(self, round_number: int) -> IndexArray:
        """The canaries whose updates are sent in a round; the other places send nothing."""
        if not 0 <= round_number < self.rounds:
            raise MismatchError(
                f"round {round_number + 1} of an audit of {self.rounds} rounds: give Audit(rounds=...) the number of rounds "
                "that the application trains for."
            )
        return self._drawn.taking_part(round_number)

    def canaries(self, dim: int) -> TransformCanaries:
        """The pool, for a model of so many parameters."""
        pool = self._drawn.pool
        if dim < 4 * pool:
            raise NotEnoughCanariesError(
                f"{pool} canaries need a model of at least {4 * pool} parameters; this one has {dim}. Take a smaller pool."
            )
        if self._pool is None or self._pool.dim != dim:
            self._pool = TransformCanaries(dim, pool, secret_seed=self._seed)
        return self._pool

    def update(self, index: int, clip_norm: float, dim: int) -> Vector:
        """What a canary sends: far longer than the clip norm, so that the code under audit must clip it."""
        canaries = self.canaries(dim)
        sent: Vector = canaries.update(index) * np.float32(self.replies.canary_norm * clip_norm / canaries.norm)
        return sent

    def observe(self, seen: Observed) -> None:
        """What a round released."""
        session = self._begun
        self._note_round(seen.round, seen.canaries.assigned)
        session.observe(seen, more=self._seconds())
        self._final = self._final + seen.release.vector

    def keep(
        self,
        number: int,
        rows: Mapping[str, Array],
        record: Mapping[str, Any],
        *,
        moved: Vector | float = 0.0,
        assigned: IndexArray | None = None,
    ) -> None:
        """What was seen of a round, in rows that `recorder` made elsewhere, and by how much the model moved."""
        session = self._begun
        self._note_round(number, assigned)
        session.save(number, rows, {**record, **self._seconds()})
        self._final = self._final + moved

    def note(self, name: str, text: str, round_number: int) -> None:
        """Something that a reader of the result must know, under a name; equal notes of several rounds become one."""
        self._notes.setdefault((name, text), []).append(round_number)

    def give_up(self, trouble: Exception) -> None:
        """The audit cannot be concluded. Training goes on, or ends, without it; `result` says why."""
        self._trouble = trouble
        sys.stderr.write(f"coalmine: there is no audit of this training: {trouble}\n")

    def state(self, claim: Claim) -> None:
        """A claim that is known only while training goes on, as an accountant's."""
        if not math.isclose(claim.delta, self.delta, rel_tol=1e-9):
            raise MismatchError(f"the application claims for delta = {claim.delta:g}; give Audit(delta={claim.delta:g}).")
        self._application = replace(self._known, stated=replace(claim, delta=self.delta))

    def conclude(self) -> AuditResult:
        """What was seen, what that proves, and all files."""
        if self._trouble is not None:
            raise self._trouble
        if self._result is None:
            with self._notify:
                self._result = self._concluded(self._begun)
                self._notify("end", {"rounds": self.rounds, **plain(self._result.in_numbers)})
        return self._result

    def _concluded(self, session: Session) -> AuditResult:
        application = self._known
        if not self._released:
            raise NotEnoughCanariesError(
                "no round released anything, so that there is nothing to look at. " + " ".join(self._noted())
            )
        setup = None
        if self._realised:
            if not any(present.size for present in self._realised.values()):
                raise NotEnoughCanariesError(
                    "no client was a canary in any round. Add canary_mod(...) to the mods of the ClientApp, and say who is a "
                    "canary: node configurations with a canary-id, or who=last_partitions(...)."
                )
            self._schedule = as_it_was(self._drawn, self._realised)
            setup = replace(self.setup(application.initial.size), schedule=self._schedule)
        events = session.record.events()
        about = summary(application, self.rounds, events)
        training = {**about, "secret_sha256": self._digest, "notes": [str(note) for note in self._noted()]}
        result = session.end(self._final, training, self._caveats(events), application.stated, setup)
        assert result is not None  # an audit has canaries
        return result

    def _note_round(self, number: int, assigned: IndexArray | None) -> None:
        self._result = None  # whoever looked before the end saw the rounds up to then
        self._released.add(number)
        if assigned is not None:
            self._realised[number] = assigned

    def _seconds(self) -> dict[str, float]:
        taken, self._began = round(time.monotonic() - self._began, 4), time.monotonic()
        return {"seconds": taken}

    @property
    def _digest(self) -> str | None:
        """A fingerprint of the secret seed; one that was given may be a small number, which a fingerprint would betray."""
        return None if self._given_secret else hashlib.sha256(f"coalmine secret seed {self._seed:x}".encode()).hexdigest()

    @property
    def _begun(self) -> Session:
        if self._session is None:
            raise MismatchError(
                "nothing was trained yet: hand this audit to an adapter, as audited(strategy, audit), and train. An observer "
                "on a client's side, client_view(...), concludes in the last round or by its conclude()."
            )
        return self._session

    @property
    def _known(self) -> Application:
        assert self._begun and self._application is not None
        return self._application

    def resolved(self, application: Application) -> AuditSpec:
        """The specification with what the application said; the deciding view is fixed here, before the first release."""
        spec, known = self._spec, application.knows_others
        if known:
            return spec
        if not self._auto and VIEWS[spec.view].knows_others:
            raise MismatchError(
                f"view {spec.view!r} must know what the clients sent, and {application.name} does not show it. "
                f"Use Statement(view='{WITHOUT_OTHERS}'), or 'auto'."
            )
        return spec.without_others(WITHOUT_OTHERS if self._auto else None)

    def _caveats(self, events: Sequence[Mapping[str, Any]]) -> tuple[Caveat, ...]:
        said = [Caveat("secret-given")] if self._given_secret else []
        application = self._known
        if application.stated is None:
            said.append(Caveat("claim-computed", {"application": application.name}))
        else:
            said.append(Caveat("claim-own", {"accountant": application.stated.accountant}))
        seen = sum(int(event.get("releases", 1)) for event in events)
        if seen < self.rounds:
            said.append(Caveat("rounds-missing", {"released": seen, "rounds": self.rounds}))
        return (*said, *self._noted())

    def _noted(self) -> list[Caveat]:
        return [
            Caveat("note", {"name": name, "text": f"{text} ({_rounds(rounds)})"})
            for (name, text), rounds in self._notes.items()
        ]


def _refuse_old(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunDirectoryError(
            f"{str(out)!r} already exists and is not empty: an audit writes into a directory of its own. "
            "Give Audit(out=...) another one, or remove it. (Training of another engine is not resumed.)"
        )


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("coalmine", "numpy", "scipy", "dp-accounting")}


def _rounds(rounds: Sequence[int]) -> str:
    """Rounds counted from one, the first few of them."""
    shown = ", ".join(str(number + 1) for number in rounds[:5])
    more = f" and {len(rounds) - 5} more" if len(rounds) > 5 else ""
    return f"round{'s' * (len(rounds) > 1)} {shown}{more}"
