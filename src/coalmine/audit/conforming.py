"""The tests of a description inside an audit: what they are told before the first round, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from coalmine.audit.observe import Recorder
from coalmine.audit.spec import AuditSpec
from coalmine.canaries.setup import CanarySetup
from coalmine.conformance import CHECKS, Battery, Subject
from coalmine.contracts import Claim, Conformance, Description, Observed, Participation, RoundCanaries, State

STATE = "audit."  # names of what the checkpoint holds of an audit


@dataclass(frozen=True)
class Clients:
    """Who was to take part, as the accountant was told; and the public seed of the training, which anybody may guess."""

    participation: Participation | None = None
    population: int = 0
    seed: int = 0
    canaries: Participation | None = None  # how canaries take part; None: as they do


def make_battery(
    spec: AuditSpec,
    description: Description,
    setup: CanarySetup,
    groups: Mapping[str, slice],
    clients: Clients,
    state: State | None = None,
) -> Battery:
    """All tests of a description; they go on from what a checkpoint holds of them."""
    subject = Subject(
        description,
        setup.canaries.dim,
        groups,
        participation=clients.participation,
        population=clients.population,
        canaries=clients.canaries or setup.schedule.pattern,
        pool=setup.schedule.pool,
        rounds=setup.schedule.rounds,
        seed=clients.seed,
        kept=setup.kept,
        level=spec.conformance_level,
        confidence=spec.confidence,
    )
    kept = {name.removeprefix(STATE): value for name, value in (state or {}).items() if name.startswith(STATE)}
    return Battery(subject, CHECKS, kept)


def with_canaries(seen: Observed, recorder: Recorder) -> Observed:
    """The canaries' part of a release where the trainer does not know it: read off the release along their directions."""
    canaries, schedule = recorder.canaries, recorder.setup.schedule
    if seen.others is None or seen.canaries.part is not None or not canaries.orthogonal:
        return seen
    assigned = seen.canaries.assigned
    places = schedule.assigned[seen.round] if assigned is None else np.unique(assigned)
    present = places[schedule.inserted[places]]
    own = canaries.project(np.asarray(seen.release.vector - seen.others))[present] / canaries.norm
    part = np.asarray(canaries.combine(present, own / canaries.norm), dtype=np.float64)
    found = RoundCanaries(present, own / seen.releases, part, assigned=assigned, fitted=True)
    return replace(seen, canaries=found)


def in_words_of(conformance: Conformance, description: Description, unit: str = "client") -> Conformance:
    """Correlated noise is not new in every round; the tests see it whitened by its strategy, and their sentence says so.

    Where examples are protected, nothing is said of clients.
    """
    if unit != "client":
        findings = tuple(
            replace(each, where=each.where and each.where.replace("client", unit)) for each in conformance.findings
        )
        conformance = replace(conformance, findings=findings)
    if description.fresh:
        return conformance
    findings = tuple(
        replace(each, details={**each.details, "whitened": True}) if each.key == "noise-fresh" else each
        for each in conformance.findings
    )
    return replace(conformance, findings=findings)


def at_measured_noise(conformance: Conformance, claim: Claim | None) -> Conformance:
    """With the epsilon that the same accountant gives for the noise that was measured, and for the ends of its interval."""
    noise = conformance.noise
    if claim is None or noise is None or noise.measured is None or noise.low is None or noise.high is None:
        return conformance
    if not noise.claimed or not noise.low > 0:
        return conformance
    asked = [claim.at_noise(each / noise.claimed) for each in (noise.measured, noise.high, noise.low)]
    known = tuple(each for each in asked if each is not None and np.isfinite(each))
    return replace(conformance, epsilon_at_measured=known) if len(known) == len(asked) else conformance
