"""What an adapter tells an audit about the application before its first round, and what is recorded of its rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import _validate, manifest
from coalmine.audit.conforming import Clients
from coalmine.audit.observe import MemoryRecord
from coalmine.audit.spec import AuditSpec
from coalmine.canaries.schedule import Schedule
from coalmine.canaries.setup import CANARY_NORM, CanarySetup
from coalmine.contracts import (
    Array,
    Caveat,
    Claim,
    Clip,
    Description,
    IndexArray,
    Noise,
    Observed,
    Release,
    RoundCanaries,
    Vector,
    plain,
)
from coalmine.errors import RunDirectoryError
from coalmine.mechanisms.gaussian import length
from coalmine.participation import Poisson, Repeated, Trace
from coalmine.runs import SCHEMA, RunDirectory
from coalmine.views import norms_of_unknown_clients

_AVERAGED = ("clients", "canaries", "places", "clip_norm", "canary_share")


@dataclass(frozen=True)
class Replies:
    """What a canary's reply says: how many clip norms long it is, and of how many examples.

    Code that weighs clients by their examples is at its worst with the largest number that a client may say: `examples`, by
    default the largest seen so far.
    """

    canary_norm: float = CANARY_NORM
    examples: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("canary_norm", self.canary_norm)
        if self.examples is not None:
            _validate.positive("examples", self.examples)


@dataclass(frozen=True)
class Stated:
    """What the application says of its privacy where its strategy does not: clipping and noise, or a claim (an epsilon)."""

    clip_norm: float | None = None
    noise_multiplier: float | None = None
    claim: float | None = None

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            _validate.clip_norm(self.clip_norm)
        if self.noise_multiplier is not None:
            _validate.non_negative("noise_multiplier", self.noise_multiplier)
        if self.claim is not None:
            _validate.non_negative("claim", self.claim)


@dataclass(frozen=True)
class Application:
    """What an adapter knows about the application before its first round."""

    name: str  # in words, as "FedAvg in DifferentialPrivacyServerSideFixedClipping"
    engine: str  # with its version
    initial: Vector
    groups: Mapping[str, slice]  # layers
    description: Description  # of the mechanism that the application says it has
    knows_others: bool  # whether the adapter can tell the clients' part of a release
    stated: Claim | None = None  # a claim of the application's own; else ours is computed from the description
    facts: Mapping[str, Any] = field(default_factory=dict)  # further settings, for the record
    unit: str = "client"  # who is protected, unless the audit was told
    rounds: int | None = None  # over how many canaries are spread, unless the audit was told
    rate: float | None = None  # of Poisson sampling, where canaries can be sampled as clients or examples are
    model: Callable[[], Vector] | None = None  # parameters now, of which a release is not simply added to the last ones
    shows_model: bool = True  # whether the parameters are known
    clients: Clients = field(default_factory=Clients)  # who was to take part, as the accountant was told
    closing: Callable[[], Mapping[str, Any]] | None = None  # facts that are known at the end, as an accountant's epsilon

    @property
    def noise(self) -> float:
        """As it is described, all that is released taken together; 0 where nothing is said of it."""
        return 0.0 if self.description.noise is None else self.description.noise.accounted


def described(clip_norm: float, noise_multiplier: float | None) -> Description:
    """Clipping of whole updates and fresh noise on their sum, in clip norms."""
    noise = None if noise_multiplier is None else Noise(noise_multiplier, noise_multiplier)
    return Description(Clip(clip_norm), noise)


def observed(
    number: int,
    vector: Vector,
    *,
    clip_norm: float,
    denominator: float,
    clients: int,
    inserted: int,
    places: int,
    assigned: IndexArray | None = None,
    others: Array | None = None,
    unclipped: int | None = None,
    releases: int = 1,
    resolution: float = 0.0,
    facts: Mapping[str, Any] | None = None,
) -> Observed:
    """A round as an engine shows it: the model after it minus the model before it (`difference`), and who took part.

    `places` are canaries that had a place in the round, whichever way their coins fell, `inserted` those whose updates are in
    it. Of clients that are not known (`others` None) nothing is recorded; the audit estimates what they may be.
    """
    together, scale = clients + places, denominator / clip_norm
    known: dict[str, Any] = {"releases": releases} if others is None else {"clients_norm": length(others) * scale}
    if unclipped is not None:
        known["unclipped_clients"] = unclipped / max(clients, 1)
        known["unclipped_with_canaries"] = (unclipped + places - inserted) / max(together, 1)
    record = {
        "clients": clients,
        "canaries": inserted,
        "places": places,
        "canary_share": inserted / max(together, 1),
        "clip_norm": clip_norm,
        "denominator": denominator,
        **known,
        "release_norm": length(vector),
        **(facts or {}),
    }
    return Observed(
        round=number,
        release=Release(number, vector, clip_norm, denominator),
        canaries=RoundCanaries(np.zeros(0, np.int64), assigned=assigned),  # orthogonal canaries do not see each other
        others=others,
        releases=releases,
        resolution=resolution,
        record=record,
    )


def difference(after: Vector, before: Vector) -> tuple[Vector, float]:
    """What changed in a model, and the step of its numbers: parameters of single precision hold no finer change."""
    largest = max(float(np.abs(each).max(initial=0.0)) for each in (after, before))
    return after - before, float(np.spacing(np.float32(largest)))


def summary(
    application: Application, rounds: int, events: Sequence[Mapping[str, Any]], *, unit: str = "client"
) -> dict[str, Any]:
    """What the training recorded, without times."""
    mean = {f"mean_{name}": float(np.mean([event[name] for event in events])) for name in _AVERAGED}
    mean["mean_clients_norm"] = float(np.mean(_clients_norms(application, events)))
    passed = [event["unclipped_clients"] for event in events if "unclipped_clients" in event]
    if passed:
        mean["mean_unclipped_clients"] = float(np.mean(passed))
    return {
        "model": application.name,
        "engine": application.engine,
        "parameters": application.initial.size,
        "rounds": rounds,
        "released": len(events),
        **mean,
        "largest_canary_share": max(event["canary_share"] for event in events),
        **({"unit": unit} if unit != "client" else {}),
        **application.facts,
    }


def sampled(schedule: Schedule, realised: Mapping[int, IndexArray], rate: float) -> Schedule:
    """Canaries that a sampler drew at a rate, in as many rounds as there were."""
    assigned = tuple(realised[number] for number in sorted(realised))
    return Schedule(Poisson(rate, len(assigned)), schedule.pool, assigned, schedule.inserted)


def as_it_was(schedule: Schedule, realised: Mapping[int, IndexArray]) -> Schedule:
    """The rounds that canaries took part in, where the engine decided about that; twice in one if it is of two releases."""
    nobody = np.zeros(0, np.int64)
    assigned = tuple(realised.get(number, nobody) for number in range(schedule.rounds))
    times = np.bincount(np.concatenate(assigned), minlength=schedule.pool)
    alike = times.min() == times.max() > 0
    pattern = Repeated(int(times.max())) if alike else Trace(tuple(tuple(each.tolist()) for each in assigned))
    return Schedule(pattern, schedule.pool, assigned, schedule.inserted)


def sections(application: Application, spec: AuditSpec, setup: CanarySetup) -> dict[str, Any]:
    """What the audit was told, and what the application said; no configuration of our own trainer."""
    clip, noise, schedule = application.description.clip.norm, application.description.noise, setup.schedule
    mechanism = {"clip_norm": clip, "noise_multiplier": None if noise is None else noise.multiplier}
    audit = {name: value for name, value in vars(spec).items() if name not in ("delta", "unit", "relation")}
    return {
        "application": plain({"name": application.name, "rounds": schedule.rounds, **application.facts}),
        "mechanism": {name: value for name, value in mechanism.items() if value is not None},
        "privacy": {"delta": spec.delta, "unit": spec.unit},
        "canaries": {
            "pool": schedule.pool,
            "presentations": schedule.pattern.most,
            "family": "transform",
            "canary_norm": setup.canary_norm,
        },
        "audit": plain(audit),
    }


def own_claim(application: Application, schedule: Schedule, unit: str) -> list[Caveat]:
    """What is claimed for clients or examples, where they take part otherwise than canaries do."""
    epsilon = application.facts.get("epsilon_of_clients")
    if epsilon is None or schedule.pattern.attendance == application.facts["participation"]:
        return []
    how = {"canaries": plain(schedule.pattern.attendance), "clients": plain(application.facts["participation"])}
    return [Caveat("canaries-participation", {**how, "epsilon": epsilon, "unit": unit})]


def refuse_old(out: Path) -> None:
    """A directory that holds something already."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunDirectoryError(
            f"{str(out)!r} already exists and is not empty: an audit writes into a directory of its own. "
            "Give Audit(out=...) another one, or remove it. (Training of another engine is not resumed.)"
        )


def make_record(
    out: str | Path | None, application: Application, about: Mapping[str, Any], settings: Mapping[str, Any], secret_seed: int
) -> RunDirectory | MemoryRecord:
    """A new directory with config.toml and the secret, or memory."""
    if out is None:
        return MemoryRecord()
    import tomli_w

    versions = {name: version(name) for name in ("coalmine", "numpy", "scipy", "dp-accounting")}
    head = {"schema": SCHEMA, "manifest": manifest.SCHEMA, "engine": application.engine, "versions": versions, **about}
    return RunDirectory.create(out, config=tomli_w.dumps({"about": head, **settings}), secret_seed=secret_seed)


def in_rounds(rounds: Sequence[int]) -> str:
    """Rounds counted from one, the first few of them."""
    shown = ", ".join(str(number + 1) for number in rounds[:5])
    more = f" and {len(rounds) - 5} more" if len(rounds) > 5 else ""
    return f"round{'s' * (len(rounds) > 1)} {shown}{more}"


def _clients_norms(application: Application, events: Sequence[Mapping[str, Any]]) -> Sequence[float] | Array:
    """Of the clients' sums, in clip norms; where they are not known, what noise and canaries leave of a release."""
    if all("clients_norm" in event for event in events):
        return [event["clients_norm"] for event in events]
    return norms_of_unknown_clients(events, application.noise, application.initial.size)
