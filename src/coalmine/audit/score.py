"""From what the canaries saw to tables of scores, each beside the claim of its own game."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from coalmine.audit.observe import Layer, Record, Recorder
from coalmine.audit.spec import AuditSpec
from coalmine.audit.statements import Measured
from coalmine.contracts import Caveat, Claim, Conformance, Description, Finding, Game, Vector
from coalmine.errors import AuditError
from coalmine.estimators import BOUNDS
from coalmine.estimators.power import Design
from coalmine.verdict import HALF_NOISE
from coalmine.views import Hiding, Threat, choose_null
from coalmine.views.filters import gaps_seen

_WHITENED = ("mean", "residual")  # kinds of which the description speaks: after momentum, noise is correlated in another way


@dataclass(frozen=True, eq=False)
class Scorer:
    """A finished training, and all that its canaries saw."""

    spec: AuditSpec
    description: Description
    recorder: Recorder
    record: Record
    initial: Vector
    final: Vector  # parameters, before and after
    stated: Claim | None = None  # what was claimed, by the training's own accountant or in a study; else ours speaks
    kept_share: float | None = None  # of a canary, where the engine does not show the others
    conformance: Conformance | None = None  # tests of the description
    further: tuple[Measured, ...] = ()  # scores that were made in another way, as of crafted canaries; they decide as well

    def with_findings(self, findings: Sequence[Finding]) -> Scorer:
        """The same with further tests of the description."""
        if self.conformance is None or not findings:
            return self
        return replace(self, conformance=replace(self.conformance, findings=(*self.conformance.findings, *findings)))

    def deciding(self) -> list[Measured]:
        """The primary view, of everything and of each layer; and what else decides."""
        views = [self._measured(self.recorder.views[0], layer) for layer in (None, *self.recorder.layers)]
        return [*views, *self.further]

    def gaps_seen(self) -> list[Caveat]:
        """Where noise is correlated over rounds: what the primary view could see of its canaries, beside what is claimed."""
        view, noise, setup = self.recorder.views[0], self.description.noise, self.recorder.setup
        if self.description.design is None or noise is None or not (view.needs == "residual" and view.knows_rounds):
            return []
        seen = replace(self.recorder.projections(self.record, view.needs, None), design=self.description.design)
        found = gaps_seen(seen, setup.schedule, noise.accounted, setup.kept, noise.multiplier)
        return [Caveat("correlated-seen", {"strategy": self.description.design.kind, **found})] if found else []

    def beside(self) -> list[Measured]:
        """The other views."""
        return [self._measured(view, None) for view in self.recorder.views[1:]]

    def _measured(self, view: Threat, layer: Layer | None) -> Measured:
        """What a view sees, scored against the null that was chosen before the run, and its claim."""
        recorder, setup, delta = self.recorder, self.recorder.setup, self.spec.delta
        ours = view.claim(setup.schedule, self.description, delta=delta) if self.description.noise is not None else None
        claim = self._claim(ours, view.game(setup.schedule))
        choice = self._null(claim) if self.spec.null == "auto" else self.spec.null
        if view.needs in ("total_change", "model"):
            start = self.initial if view.needs == "total_change" else np.float32(0)
            seen = recorder.final(view.needs, self.final - start, setup.schedule.rounds, layer)
        else:
            seen = recorder.projections(self.record, view.needs, layer)
            seen = replace(seen, design=self.description.design if view.needs in _WHITENED else None)
        visible = view.visible(replace(self._hiding, gaps=seen.amplitude)) if self.description.has_noise else None
        share = 1.0 if layer is None else float(layer.norm_in_group.mean())
        null: Literal["theory", "empirical"] = "theory" if choice == "theory" else "empirical"
        return Measured(view.scores(seen, setup.schedule, setup.canaries, null=null), claim, visible, share)

    @property
    def _hiding(self) -> Hiding:
        noise = self.description.noise
        return Hiding(
            records=self.record.events(),
            setup=self.recorder.setup,
            noise=0.0 if noise is None else noise.accounted,
            delta=self.spec.delta,
            independent=self.recorder.unused is not None,
            design=self.description.design,
            kept_share=self.kept_share,
        )

    def _claim(self, ours: Claim | None, game: Game) -> Claim:
        """The claim in the game of a view, by the accountant that speaks. About a training without noise ours cannot speak."""
        stated = self.stated
        if stated is None:
            if ours is None:
                raise AuditError("nothing is claimed: the application states neither its noise nor an epsilon.")
            return ours
        if ours is None:
            return replace(stated, game=game, description=self.description)
        question = ours.question if self.description.has_noise else None
        return replace(
            ours, epsilon=stated.epsilon, accountant=stated.accountant, assumptions=stated.assumptions, question=question
        )

    def _null(self, claim: Claim) -> Literal["theory", "empirical"]:
        """Unused directions assume nothing; the law has no ceiling. Which one depends on nothing that the run can change.

        For small claims the unused directions speak, if so many of them could convict a mechanism of half the noise.
        """
        recorder, half = self.recorder, claim.at_noise(1 / HALF_NOISE)
        if choose_null(claim.epsilon) == "theory" or half is None or BOUNDS[self.spec.bound].needs_coins:
            return "theory"  # (unused directions had no coin, which one-run bounds need)
        pool = recorder.canaries.count
        design = Design(max(pool // 2, 1), pool // 2 + (recorder.unused.count if recorder.unused else recorder.spare))
        try:
            bound = design.bound(self.spec.bound, delta=claim.delta, confidence=self.spec.confidence)
        except AuditError:
            return "theory"
        return "empirical" if bound.detectable_above(claim.epsilon) <= half else "theory"
