"""From what the canaries saw to what that proves: the same for a run in a directory and for one in memory.

`Examination` asks every view of a run for its scores and hands them, each beside the claim of its own game, to the audit.
`rehearse` is a whole run without files, for whoever needs hundreds of them; a `Notebook` stands in for the directory.
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
from coalmine.result import AuditResult
from coalmine.verdict import HALF_NOISE
from coalmine.views import View, choose_null
from coalmine.watch import Layer, Trained, Watch
from coalmine.workers import Workers


class Record(Protocol):
    """What was kept of the rounds."""

    def rows(self, name: str) -> Array:
        """All rows of a log of sightings."""

    def events(self) -> Sequence[Mapping[str, Any]]:
        """What was recorded of every round."""


@dataclass(frozen=True, eq=False)
class Notebook:
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
class Examination:
    """A finished training, and all that its canaries saw."""

    told: Config
    job: Trained
    watch: Watch
    record: Record
    parameters: Vector  # of the final model
    stated: Claim | None = None  # what was claimed, by the training's own accountant or in an examination; else ours speaks

    def deciding(self) -> list[Measured]:
        """The primary view, of everything and of each layer."""
        return [self._measured(self.watch.views[0], layer) for layer in (None, *self.watch.layers)]

    def beside(self) -> list[Measured]:
        """The other views."""
        return [self._measured(view, None) for view in self.watch.views[1:]]

    def conclude(self, deciding: Sequence[Measured], beside: Sequence[Measured]) -> AuditResult:
        """What these prove."""
        audit, planting = self.told.audit, self.watch.plants.planting
        how: dict[str, Any] = {"delta": self.told.privacy.delta, "method": audit.bound, "also": audit.also}
        how |= {"presentations": float(planting.times.mean()), "fit_maximum": audit.paper_views}
        return audit_views(deciding, beside, confidence=audit.confidence, **how)

    def _measured(self, view: View, layer: Layer | None) -> Measured:
        """What a view sees, scored against the null that was chosen before the run, and its claim."""
        watch, plants, privacy, noise = self.watch, self.watch.plants, self.told.privacy, self.job.noise_multiplier
        claim = self._claim(view.claim(plants.planting, noise_multiplier=noise, delta=privacy.delta))
        choice = self._null(claim) if self.told.audit.null == "auto" else self.told.audit.null
        if view.sees in ("drift", "model"):
            start = self.job.initial if view.sees == "drift" else np.float32(0)
            seen = watch.final(view.sees, self.parameters - start, self.job.rounds, layer)
        else:
            seen = watch.sightings(self.record, view.sees, layer)
        visible = watch.visible(view, self.record.events(), noise, privacy.delta) if noise else None
        if visible is not None:  # for `check`, which only has the result
            claim = replace(claim, half_noise_epsilon=visible(HALF_NOISE))
        share = 1.0 if layer is None else float(layer.reach.mean())
        return Measured(view.scores(seen, plants.planting, plants.canaries, null=choice), claim, visible, share)

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
        watch, audit = self.watch, self.told.audit
        if choose_null(claim.epsilon) == "law" or claim.half_noise_epsilon is None or audit.bound.startswith("one-run"):
            return "law"  # (unused directions had no coin, which one-run bounds need)
        pool = watch.canaries.count
        design = Design(max(pool // 2, 1), pool // 2 + (watch.unused.count if watch.unused else watch.spare))
        try:
            bound = design.bound(audit.bound, delta=claim.delta, confidence=audit.confidence)
        except AuditError:
            return "law"
        return "unused" if bound.detectable_above(claim.epsilon) <= claim.half_noise_epsilon else "law"


def rehearse(
    told: Config, job: Federation, watch: Watch, observe: Callable[[Round], None] = lambda finished: None
) -> Examination:
    """All rounds in this process, nothing written: what is left is what the canaries saw.

    Nothing is evaluated, and the seeds are those that `job` was made with. `observe` is shown every round.
    """
    notebook, state = Notebook(), job.start()
    with Workers(1, job.work()) as workers:
        for finished in job.rounds_from(0, state, workers):
            notebook.seen.append(watch.rows(finished))
            notebook.recorded.append(finished.record)
            observe(finished)
            state = finished.state
    return Examination(told, job, watch, notebook, state["parameters"])
