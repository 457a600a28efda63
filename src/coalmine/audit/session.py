"""One training under audit, whoever trains: rounds go in, a result comes out.

session = Session(spec, setup, description, record)
session.begin(initial, groups, secret_seed)
session.observe(observed)          round after round
session.end(parameters, ...)       the same result, files and page for every trainer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coalmine.audit.conclude import conclude, finish
from coalmine.audit.conforming import STATE, Clients, in_words_of, make_battery, with_canaries
from coalmine.audit.observe import Record, Recorder, RunningEpsilon, with_schedule
from coalmine.audit.score import Scorer
from coalmine.audit.spec import AuditSpec
from coalmine.audit.statements import Measured
from coalmine.canaries.setup import CanarySetup
from coalmine.conformance import Battery
from coalmine.contracts import Array, Caveat, Claim, Conformance, Description, Finding, Glance, Observed, State, Vector
from coalmine.hooks import HookRunner
from coalmine.result import AuditResult


class Session:
    """The audit of one training; without canaries it only records."""

    def __init__(
        self,
        spec: AuditSpec,
        setup: CanarySetup | None,
        description: Description,
        record: Record,
        notify: HookRunner | None = None,
    ):
        self.spec, self.setup, self.description, self.record = spec, setup, description, record
        self._notify = notify or HookRunner()  # nobody
        self.recorder: Recorder | None = None
        self._running: RunningEpsilon | None = None
        self._battery: Battery | None = None
        self._kept: list[Array] = []  # by round, what came through of every inserted canary where clients are not known

    def begin(
        self,
        initial: Vector,
        groups: Mapping[str, slice],
        secret_seed: int,
        *,
        clients: Clients | None = None,
        state: State | None = None,
        tensors: Mapping[str, slice] | None = None,
    ) -> None:
        """Before the first round, or when a run goes on: what the record and the checkpoint (`state`) already hold counts.

        `tensors` are parts of `groups`, if these have any: the noise is tested in each of them.
        """
        self._initial = initial
        if self.setup is not None:
            self.recorder = Recorder.of(self.spec, self.setup, groups, secret_seed)
            parts = tensors or groups
            self._battery = make_battery(self.spec, self.description, self.setup, parts, clients or Clients(), state)
            self.spec.check_noise(self.description)
            if self.description.fresh or self.description.design is not None:  # else nobody knows how to whiten the noise
                self._running = RunningEpsilon(self.spec, self.description, self.recorder, self.record)

    def observe(
        self,
        seen: Observed,
        *,
        state: State | None = None,
        more: Mapping[str, Any] | None = None,
        checkpoint: bool = True,
    ) -> dict[str, Any]:
        """A round: rows for the canaries, a line for the record, an event for the hooks.

        `state` is what the trainer needs to go on from here, written if `checkpoint`; `more` is what it adds to the line.
        """
        rows = self.recorder.rows(seen) if self.recorder is not None else {}
        record = {**seen.record}
        if self._running is not None and seen.canaries.assigned is None:
            record |= self._running.after(seen.round, rows)
        if self.recorder is not None and seen.others is None and "mean" in rows:
            self._keep(seen, rows)
        if self._battery is not None and self.recorder is not None:
            record |= self._battery.observe(with_canaries(seen, self.recorder))
            if state is not None:
                state = {**state, **{f"{STATE}{name}": value for name, value in self._battery.state.items()}}
        return self.save(seen.round, rows, {**record, **(more or {})}, state=state, checkpoint=checkpoint)

    def look_on(self, seen: Observed) -> None:
        """A round after the canaries' last: the mechanism is tested, and nothing is kept."""
        if self._battery is not None and self.recorder is not None:
            self._battery.observe(seen)

    def glance(self, seen: Glance) -> None:
        """A step that is not audited, of which little was looked at."""
        if self._battery is not None:
            self._battery.glance(seen)

    def save(
        self,
        number: int,
        rows: Mapping[str, Array],
        record: Mapping[str, Any],
        *,
        state: State | None = None,
        checkpoint: bool = True,
    ) -> dict[str, Any]:
        """What was seen of a round, by whoever made the rows."""
        line = self.record.save(number + 1, state or {}, rows, record, checkpoint=checkpoint)
        self._notify("round", line)
        return line

    def end(
        self,
        parameters: Vector,
        training: Mapping[str, Any],
        caveats: Sequence[Caveat] = (),
        stated: Claim | None = None,
        setup: CanarySetup | None = None,
        last: bool = True,
        further: Sequence[Measured] = (),
        findings: Sequence[Finding] = (),
    ) -> AuditResult | None:
        """The result, its files and its page; None without canaries. `setup` is as it was, where an engine decided it.
        `further` are tables of scores that were made in another way, and may contradict their claims as well; `findings` are
        tests of the description that the trainer made itself.

        With this the run is finished, unless it is not the `last` word: then `finish` follows.
        """
        if self.recorder is None:
            if last:
                finish(self.record, training)
            return None
        if setup is not None:
            self.recorder = with_schedule(self.recorder, setup)
        scorer = self.scorer(parameters, stated, further).with_findings(findings)
        return conclude(scorer, training, caveats, engine_decided=setup is not None, last=last)

    def finish(self, result: AuditResult | None, training: Mapping[str, Any]) -> None:
        """A result to whose training something was added, in the place of the one before; with this the run is finished."""
        if result is not None:
            self.record.write("result.json", result.to_json().encode())
        finish(self.record, training, result)

    def scorer(self, parameters: Vector, stated: Claim | None = None, further: Sequence[Measured] = ()) -> Scorer:
        """All that the canaries saw, to be scored."""
        if self.recorder is None:
            raise ValueError("a run without canaries has nothing to look for.")
        found = np.concatenate(self._kept) if self._kept else np.zeros(0)
        kept = float(found.mean()) if found.size else (0.0 if self._kept else None)
        return Scorer(
            self.spec,
            self.description,
            self.recorder,
            self.record,
            self._initial,
            parameters,
            stated,
            kept_share=kept,
            further=tuple(further),
            conformance=None if self._battery is None else self._said(self._battery),
        )

    def _said(self, battery: Battery) -> Conformance:
        return in_words_of(battery.conclude(), self.description, self.spec.unit)

    def _keep(self, seen: Observed, rows: Mapping[str, Array]) -> None:
        if self.recorder is None:
            return
        schedule, assigned = self.recorder.setup.schedule, seen.canaries.assigned
        places = schedule.assigned[seen.round] if assigned is None else np.unique(assigned)
        self._kept.append(self.recorder.kept(rows, places[schedule.inserted[places]]))
