"""From what the canaries saw to what that proves: the same for a run in a directory and for one in memory.

`Scorer` asks every view of a run for its scores and hands them, each beside the claim of its own game, to the audit.
`run_in_memory` is a whole run without files, for whoever needs hundreds of them; a `MemoryRecord` stands in for the directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from coalmine.audit import Measured, audit_views
from coalmine.config import Config
from coalmine.contracts import Array, Claim, Vector
from coalmine.errors import AuditError
from coalmine.estimators.power import Design
from coalmine.federation import Federation, Round
from coalmine.recorder import Layer, Recorder, Trained
from coalmine.result import AuditResult
from coalmine.verdict import HALF_NOISE
from coalmine.views import View, choose_null
from coalmine.workers import Workers


class Record(Protocol):
    """What was kept of the rounds."""

    def rows(self, name: str) -> Array:
        """All rows of a log of sightings."""

    def events(self) -> Sequence[Mapping[str, Any]]:
        """What was recorded of every round."""


@dataclass(frozen=True, eq=False)
class MemoryRecord:
    """A record in memory."""

    seen: list[dict[str, Array]] = field(default_factory=list)
    recorded: list[Mapping[str, Any]] = field(default_factory=list)

    def rows(self, name: str) -> Array:
        """All rows of a log of sightings."""
        return np.stack([row[name] for row in self.seen])

    def events(self) -> Sequence[Mapping[str, Any]]:
        """What was recorded of every round."""
        return self.recorded


@dataclass(frozen=True, eq=False)
class Scorer:
    """A finished training, and all that its canaries saw."""

    config: Config
    job: Trained
    recorder: Recorder
    record: Record
    parameters: Vector  # of the final model
    stated: Claim | None = None  # what was claimed, by the training's own accountant or in an examination; else ours speaks

    def deciding(self) -> list[Measured]:
        """The primary view, of everything and of each layer."""
        return [self._measured(self.recorder.views[0], layer) for layer in (None, *self.recorder.layers)]

    def beside(self) -> list[Measured]:
        """The other views."""
        return [self._measured(view, None) for view in self.recorder.views[1:]]

    def conclude(self, deciding: Sequence[Measured], beside: Sequence[Measured]) -> AuditResult:
        """What these prove."""
        audit, schedule = self.config.audit, self.recorder.canary_setup.schedule
        how: dict[str, Any] = {"delta": self.config.privacy.delta, "method": audit.bound, "also": audit.also}
        how |= {"presentations": float(schedule.times.mean()), "fit_maximum": audit.paper_views}
        return audit_views(deciding, beside, confidence=audit.confidence, **how)

    def _measured(self, view: View, layer: Layer | None) -> Measured:
        """What a view sees, scored against the null that was chosen before the run, and its claim."""
        recorder, canary_setup, privacy, noise = (
            self.recorder,
            self.recorder.canary_setup,
            self.config.privacy,
            self.job.noise_multiplier,
        )
        claim = self._claim(view.claim(canary_setup.schedule, noise_multiplier=noise, delta=privacy.delta))
        choice = self._null(claim) if self.config.audit.null == "auto" else self.config.audit.null
        if view.needs in ("total_change", "model"):
            start = self.job.initial if view.needs == "total_change" else np.float32(0)
            seen = recorder.final(view.needs, self.parameters - start, self.job.rounds, layer)
        else:
            seen = recorder.projections(self.record, view.needs, layer)
        visible = recorder.visible(view, self.record.events(), noise, privacy.delta) if noise else None
        if visible is not None:  # for `check`, which only has the result
            claim = replace(claim, half_noise_epsilon=visible(HALF_NOISE))
        share = 1.0 if layer is None else float(layer.norm_in_group.mean())
        return Measured(view.scores(seen, canary_setup.schedule, canary_setup.canaries, null=choice), claim, visible, share)

    def _claim(self, ours: Claim) -> Claim:
        """The claim in the game of a view, by the accountant that speaks. About a training without noise ours cannot speak."""
        stated = self.stated
        if stated is None:
            return ours
        half = ours.half_noise_epsilon if ours.noise_multiplier else None
        said = replace(ours, epsilon=stated.epsilon, accountant=stated.accountant, assumptions=stated.assumptions)
        return replace(said, half_noise_epsilon=half)

    def _null(self, claim: Claim) -> Literal["law", "unused"]:
        """Unused directions assume nothing; the law has no ceiling. Which one depends on nothing that the run can change.

        For small claims the unused directions speak, if so many of them could convict a mechanism of half the noise.
        """
        recorder, audit = self.recorder, self.config.audit
        if choose_null(claim.epsilon) == "law" or claim.half_noise_epsilon is None or audit.bound.startswith("one-run"):
            return "law"  # (unused directions had no coin, which one-run bounds need)
        pool = recorder.canaries.count
        design = Design(max(pool // 2, 1), pool // 2 + (recorder.unused.count if recorder.unused else recorder.spare))
        try:
            bound = design.bound(audit.bound, delta=claim.delta, confidence=audit.confidence)
        except AuditError:
            return "law"
        return "unused" if bound.detectable_above(claim.epsilon) <= claim.half_noise_epsilon else "law"


def run_in_memory(
    config: Config, job: Federation, recorder: Recorder, observe: Callable[[Round], None] = lambda finished: None
) -> Scorer:
    """All rounds in this process, nothing written: what is left is what the canaries saw.

    Nothing is evaluated, and the seeds are those that `job` was made with. `observe` is shown every round.
    """
    memory, state = MemoryRecord(), job.start()
    with Workers(1, job.work()) as workers:
        for finished in job.rounds_from(0, state, workers):
            memory.seen.append(recorder.rows(finished))
            memory.recorded.append(finished.record)
            observe(finished)
            state = finished.state
    return Scorer(config, job, recorder, memory, state["parameters"])
