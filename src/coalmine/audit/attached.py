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

Where the denominator is fixed anyway, as in DP-SGD, places mean nothing: inserted canaries join, and nobody else. An engine
that does not know its number of rounds before training says over how many the canaries are spread; later rounds have none.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coalmine import manifest
from coalmine.audit.application import (
    Application,
    Replies,
    Stated,
    in_rounds,
    make_record,
    own_claim,
    refuse_old,
    sections,
    summary,
)
from coalmine.audit.assignment import Assignment
from coalmine.audit.observe import Recorder
from coalmine.audit.planning import AuditPlan
from coalmine.audit.secret import secret
from coalmine.audit.session import Session
from coalmine.audit.spec import WITHOUT_OTHERS, AuditSpec, Statement
from coalmine.canaries import TransformCanaries
from coalmine.canaries.schedule import Schedule
from coalmine.canaries.setup import CanarySetup
from coalmine.contracts import Array, Caveat, Claim, Glance, IndexArray, Observed, Vector, plain
from coalmine.errors import MismatchError, NotEnoughCanariesError
from coalmine.hooks import Hook, HookRunner, hooks_of
from coalmine.result import AuditResult
from coalmine.views import VIEWS, UnknownRounds

_USUAL, _REPLIES, _NOTHING = Statement(), Replies(), Stated()


class AttachedAudit:
    """Canaries in an application's own training: who they are, what they send, what is seen of them, and what that proves.

    `rounds` is how many the application will train for, `presentations` in how many of them each canary of the `pool` has a
    place; an engine's adapter may know both. A `Statement` chooses what decides, `Replies` what canaries say of themselves,
    and `Stated` holds what the application says of its privacy where its strategy does not; most audits need none of them.
    With `Statement(view="unknown-rounds")` canaries are sampled as examples are, and the amplified claim is tested.

    `out` is a new directory for all files, as `coalmine run` makes it; without it everything stays in memory. The secret comes
    fresh from the operating system. Where canaries are clients, both sides need the same one: a `secret_file`, which is made if
    it is not there, readable by its owner alone. A `secret_seed` makes an audit that can be repeated and is not private.

    >>> audit = AttachedAudit(delta=1e-5, rounds=30, pool=600)
    >>> audit.places     # replies that the audit adds to every round: what an application's cohort size must count
    20
    """

    def __init__(
        self,
        *,
        delta: float,
        rounds: int | None = None,
        pool: int | None = None,
        presentations: int = 1,
        unit: str | None = None,
        statement: Statement = _USUAL,
        replies: Replies = _REPLIES,
        stated: Stated = _NOTHING,
        out: str | Path | None = None,
        secret_seed: int | None = None,
        secret_file: str | Path | None = None,
        hooks: Sequence[Hook | str] = (),
    ):
        kinds: Any = (("statement", statement, Statement), ("replies", replies, Replies), ("stated", stated, Stated))
        for name, found, kind in kinds:
            if not isinstance(found, kind):
                raise ValueError(f"{name} must be a {kind.__name__}(...) of coalmine.adapters; got {found!r}.")
        self.replies, self.stated = replies, stated
        self._spec, self._auto, self._unit = statement.spec(delta, unit or "client"), statement.view == "auto", unit
        self._given_secret = secret_seed is not None
        self._seed, self._made_here = secret(secret_seed, secret_file)
        sampled = {"sampled": self._spec.view == UnknownRounds.key}
        self._who = Assignment(rounds, pool, presentations, **sampled, replies=replies, seed=self._seed)
        self._schedule: Schedule | None = None  # where the engine decided about rounds, as it was in the end
        self._out, self._hooks = out, hooks_of(hooks)
        self._later = 0  # rounds after the canaries' last
        self._released: set[int] = set()  # rounds that were observed
        self._realised: dict[int, IndexArray] = {}
        self._application: Application | None = None
        self._session: Session | None = None
        self._notify = HookRunner()  # nobody, until it begins
        self._notes: dict[tuple[str, str], list[int]] = {}
        self._result: AuditResult | None = None
        self._trouble: Exception | None = None

    def __repr__(self) -> str:
        return f"Audit({self._who}, delta={self.delta:g}, secret_seed=not shown)"

    @property
    def delta(self) -> float:
        """Of every statement."""
        return self._spec.delta

    @property
    def rounds(self) -> int:
        """Over how many rounds the canaries are spread."""
        return self._who.rounds

    @property
    def settled(self) -> bool:
        """Whether every round must be audited: their number was given, or canaries are sampled in all of them."""
        return self._who.settled

    @property
    def sampled(self) -> bool:
        """Whether canaries are sampled as examples are, in rounds that the adversary does not know."""
        return self._who.sampled

    @property
    def places(self) -> int:
        """Canaries that have a place in a round, whichever way their coins fell: the same in every round."""
        return max(candidates.size for candidates in self._who.schedule.assigned)

    @property
    def schedule(self) -> Schedule:
        """The rounds and the coins, as secret as the seed; where the engine decides about rounds, as it was in the end."""
        return self._who.schedule if self._schedule is None else self._schedule

    @property
    def fingerprint(self) -> str:
        """By which two sides know that they have the same secret and the same pool."""
        about = f"coalmine audit {self._seed:x} {self._who.schedule.pool} {self.rounds}"
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
        if self._out is not None:
            refuse_old(Path(self._out))
        spec = self.resolved(application)
        self._who.settle(application, spec)
        setup = self.setup(application.initial.size)
        if application.rounds is not None:  # else the application's author has planned it
            sys.stderr.write(f"coalmine: {self._who.plan(application, spec)}\n")
        settings = sections(application, spec, setup)
        about = {"secret": "given: reproducible, not private" if self._given_secret else "fresh"}
        record = make_record(self._out, application, about, settings, self._seed)
        self._notify = HookRunner(self._hooks, record.path or Path())
        session = Session(spec, setup, application.description, record, self._notify)
        session.begin(application.initial, application.groups, self._seed, clients=application.clients)
        self._application, self._session, self._final = application, session, application.initial
        self._notify("start", {"directory": str(self._out), "config": settings, "rounds": self.rounds, "round": 0})
        self._began = time.monotonic()

    def plan(self) -> AuditPlan:
        """What this audit can decide, in one line; known as soon as an adapter has said what is trained."""
        return self._who.plan(self._known, self._begun.spec)

    def setup(self, dim: int) -> CanarySetup:
        """The canaries of a model of so many parameters; nothing is begun by that."""
        return self._who.setup(dim)

    def recorder(self, application: Application) -> Recorder:
        """What makes rows of an observed round, for an engine that cannot keep this audit in memory; nothing is begun."""
        return Recorder.of(self.resolved(application), self.setup(application.initial.size), application.groups, self._seed)

    def taking_part(self, round_number: int) -> IndexArray:
        """The canaries whose updates are sent in a round; the other places send nothing."""
        return self._who.taking_part(round_number)

    def canaries(self, dim: int) -> TransformCanaries:
        """The pool, for a model of so many parameters."""
        return self._who.canaries(dim)

    def update(self, index: int, clip_norm: float, dim: int) -> Vector:
        """What a canary sends: far longer than the clip norm, so that the code under audit must clip it."""
        return self._who.update(index, clip_norm, dim)

    def observe(self, seen: Observed) -> None:
        """What a round released."""
        session = self._begun
        if seen.round >= self.rounds and not self.sampled:
            session.look_on(seen)  # all canaries had their rounds
            self._later, self._result = self._later + 1, None
            return
        self._note_round(seen.round, seen.canaries.assigned)
        session.observe(seen, more=self._seconds())
        if self._known.model is None:
            self._final = self._final + seen.release.vector

    def glance(self, seen: Glance) -> None:
        """What was looked at of a step between two audited ones."""
        self._begun.glance(seen)
        self._result = None

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
                " ".join(["no round released anything, so that there is nothing to look at.", *map(str, self._noted())])
            )
        setup = None
        if self._realised:
            self._schedule = self._who.as_it_was(self._realised, application.rate)
            setup = self._who.setup(application.initial.size, self._schedule)
        if application.model is not None:
            self._final = application.model()
        if application.closing is not None:
            application = self._application = replace(application, facts={**application.facts, **application.closing()})
        events = session.record.events()
        about = summary(application, self.rounds, events, unit=session.spec.unit)
        about |= {"later_rounds": self._later} if self._later else {}
        training = {**about, "secret_sha256": self._digest, "notes": [str(note) for note in self._noted()]}
        result = session.end(self._final, training, self._caveats(events), application.stated, setup)
        assert result is not None  # an audit has canaries
        if session.record.path is not None:
            sys.stderr.write(f"coalmine: digest of the audit's files: {manifest.digest(session.record.path)}\n")
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
        spec = replace(self._spec, unit=self._unit or application.unit)
        if not application.shows_model:
            spec = spec.without_model()
        if application.knows_others:
            return spec
        if not self._auto and VIEWS[spec.view].knows_others:
            raise MismatchError(
                f"view {spec.view!r} must know what the clients sent, and {application.name} does not show it. "
                f"Use Statement(view='{WITHOUT_OTHERS}'), or 'auto'."
            )
        return spec.without_others(WITHOUT_OTHERS if self._auto else None)

    def _caveats(self, events: Sequence[Mapping[str, Any]]) -> tuple[Caveat, ...]:
        said, application = [Caveat("secret-given")] if self._given_secret else [], self._known
        if application.stated is None:
            said.append(Caveat("claim-computed", {"application": application.name}))
        else:
            said.append(Caveat("claim-own", {"accountant": application.stated.accountant}))
        seen = sum(int(event.get("releases", 1)) for event in events)
        if seen < self.rounds and not self.sampled:
            said.append(Caveat("rounds-missing", {"released": seen, "rounds": self.rounds}))
        said += own_claim(application, self.schedule, self._begun.spec.unit)
        return (*said, *self._noted())

    def _noted(self) -> list[Caveat]:
        return [
            Caveat("note", {"name": name, "text": f"{text} ({in_rounds(rounds)})"})
            for (name, text), rounds in self._notes.items()
        ]
