"""Epsilon by how often canaries took part: within a run whose canaries differ in that, or across runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from coalmine.accounting import RELATIONS, claim_of
from coalmine.contracts import Claim, PointEstimate
from coalmine.errors import AuditError
from coalmine.estimators.gaussian_fit import estimate_gaussian
from coalmine.participation import Repeated
from coalmine.report.evidence import Evidence
from coalmine.result import AuditResult

LEAST_CANARIES = 20  # inserted canaries with the same number of presentations, below which no number is given


@dataclass(frozen=True)
class Presentations:
    """What canaries that took part so often show."""

    times: int
    estimate: PointEstimate
    claim: float | None = None
    series: str = ""  # what else is common to points that belong to one line, as "noise multiplier 0.5"


def within_run(evidence: Evidence) -> list[Presentations]:
    """Canaries of the primary view grouped by their number of presentations, each group with the claim for that number.

    Nothing if all took part equally often, or if the adversary does not know the rounds: there is one claim for all of them.
    """
    scores, claim = evidence.primary, evidence.result.claim
    if scores is None or claim is None or evidence.result.estimate is None or "group" not in scores.labels:
        return []
    if claim.game.knowledge != "rounds known" or claim.description is None or not claim.description.has_noise:
        return []
    times, found = scores.labels["group"], []
    for number in np.unique(times[scores.inserted]):
        chosen = times == number
        if number < 1 or (chosen & scores.inserted).sum() < LEAST_CANARIES:
            continue
        labels = {name: column[chosen] for name, column in scores.labels.items()}
        group = replace(scores, value=scores.value[chosen], inserted=scores.inserted[chosen], labels=labels)
        try:
            estimate = estimate_gaussian(group, delta=claim.delta, confidence=evidence.result.estimate.confidence)
        except AuditError:  # too few held-out ones in this group
            continue
        found.append(Presentations(int(number), estimate, claim_for(claim, int(number))))
    return found if len(found) > 1 else []


def across_runs(results: Iterable[AuditResult]) -> list[Presentations]:
    """One point for every audit with a fixed number of presentations and an estimate; a line for every noise multiplier."""
    found = []
    for result in results:
        times = presentations_of(result)
        if times is not None and result.estimate is not None and result.claim is not None:
            described = result.claim.description
            noise = described.noise if described is not None else None
            name = f"noise multiplier {noise.accounted:g}" if noise is not None else ""
            found.append(Presentations(times, result.estimate, result.claim.epsilon, name))
    return found if len({point.times for point in found}) > 1 else []


def presentations_of(result: AuditResult) -> int | None:
    """How often each canary took part, where all did equally often."""
    stated = (result.claim.game if result.claim is not None else result.game).participation
    return stated.times if stated is not None else None


def claim_for(claim: Claim, times: int) -> float | None:
    """What the accountant of this claim would say for so many presentations in known rounds."""
    if claim.description is None or not claim.description.has_noise or claim.game.relation not in (None, *RELATIONS):
        return None
    try:
        return claim_of(claim.description, Repeated(times), delta=claim.delta, relation=claim.game.relation).epsilon
    except ValueError:  # a mechanism that no accountant here knows
        return None
