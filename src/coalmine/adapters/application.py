"""What an adapter tells an audit: about the application before its first round, and about every round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coalmine.canaries.schedule import Schedule
from coalmine.config import Config
from coalmine.contracts import Array, Claim, IndexArray, Release, Vector, plain
from coalmine.federation import CanarySetup, Round, RoundCanaries
from coalmine.mechanisms.gaussian import length
from coalmine.participation import Repeated, Trace
from coalmine.recorder import Recorder, norms_of_unknown_clients

_AVERAGED = ("clients", "canaries", "places", "clip_norm", "canary_share")


@dataclass(frozen=True)
class Application:
    """What an adapter knows about the application before its first round."""

    name: str  # in words, as "FedAvg in DifferentialPrivacyServerSideFixedClipping"
    engine: str  # with its version
    initial: Vector
    groups: Mapping[str, slice]  # layers
    noise_multiplier: float  # on the sum, in clip norms, all that is released taken together
    clip_norm: float
    knows_others: bool  # whether the adapter can tell the clients' part of a release
    stated: Claim | None = None  # a claim of the application's own; else ours is computed from the numbers above
    facts: Mapping[str, Any] = field(default_factory=dict)  # further settings, for the record


@dataclass(frozen=True, eq=False)
class Observed:
    """What an adapter saw of a round."""

    round: int
    vector: Vector  # the model after the round minus the model before it; over several releases, minus that before the first
    clip_norm: float
    denominator: float  # what the application divides by
    clients: int  # whose updates are in it
    inserted: int  # canaries whose updates are in it
    places: int  # canaries that had a place in it, whichever way their coins fell
    assigned: IndexArray | None = None  # which, where the engine decides about that and not the audit: once for each release
    others: Array | None = None  # the clients' part of `vector`, where it is known
    unclipped: int | None = None  # clients whose update was short enough to pass, where that is known
    releases: int = 1  # that `vector` is the sum of; who had a place had it in all of them
    facts: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """What is written down of a round; of clients that are not known nothing, the audit estimates what they may be."""
        together, scale = self.clients + self.places, self.denominator / self.clip_norm
        known: dict[str, Any] = (
            {"releases": self.releases} if self.others is None else {"clients_norm": length(self.others) * scale}
        )
        if self.unclipped is not None:
            known["unclipped_clients"] = self.unclipped / max(self.clients, 1)
            known["unclipped_with_canaries"] = (self.unclipped + self.places - self.inserted) / max(together, 1)
        return {
            "clients": self.clients,
            "canaries": self.inserted,
            "places": self.places,
            "canary_share": self.inserted / max(together, 1),
            "clip_norm": self.clip_norm,
            "denominator": self.denominator,
            **known,
            "release_norm": length(self.vector),
            **self.facts,
        }


@dataclass(eq=False)
class Job:
    """A training that another engine runs, as the examination sees it."""

    application: Application
    config: Config
    canary_setup: CanarySetup
    recorder: Recorder
    _came: list[Array] = field(default_factory=list, repr=False)  # by round, what came through of every inserted canary

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.canary_setup.schedule.rounds

    @property
    def noise_multiplier(self) -> float:
        """What the accountant is told."""
        return self.application.noise_multiplier

    @property
    def initial(self) -> Vector:
        """The parameters before the first round."""
        return self.application.initial

    def round_of(self, seen: Observed) -> Round:
        """A round as our own loop would have left it."""
        release = Release(
            seen.round, seen.vector, seen.clip_norm, seen.denominator / seen.releases
        )  # a canary adds C/n in each
        others = np.zeros(1) if seen.others is None else seen.others
        nothing = RoundCanaries(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))  # orthogonal canaries do not see each other
        return Round(seen.round, {}, release, others, nothing, seen.vector, {})

    def rows(self, seen: Observed) -> dict[str, Array]:
        """What the canaries see of a round."""
        rows = self.recorder.rows(self.round_of(seen))
        if seen.others is None and "mean" in rows:
            amplitude, inner = rows["mean"][2], rows["mean"][3:]  # after the round and the norm
            self._came.append(inner[self._inserted(seen)] / amplitude)
            found = np.concatenate(self._came)
            self.recorder = replace(self.recorder, kept_share=float(found.mean()) if found.size else 0.0)
        return rows

    def _inserted(self, seen: Observed) -> IndexArray:
        """The canaries that are in a round."""
        schedule = self.canary_setup.schedule
        places = schedule.assigned[seen.round] if seen.assigned is None else np.unique(seen.assigned)
        return places[schedule.inserted[places]]

    def take_part(self, realised: Mapping[int, IndexArray]) -> None:
        """Canaries took part in other rounds than the audit would have given them: the engine decided about that."""
        self.canary_setup = replace(self.canary_setup, schedule=_as_it_was(self.canary_setup.schedule, realised))
        self.recorder = replace(self.recorder, canary_setup=self.canary_setup)

    def written(self, about: Mapping[str, Any]) -> str:
        """config.toml: what the audit was told, and what the application said. It is no configuration of our own trainer."""
        import tomli_w

        kept = self.config.model_dump(mode="json", exclude_none=True, include={"privacy", "canaries", "audit"})
        said = {"name": self.application.name, "rounds": self.rounds, **self.application.facts}
        return tomli_w.dumps({"about": dict(about), "application": plain(said), **kept})

    def summary(self, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What the training recorded, without times."""
        mean = {f"mean_{name}": float(np.mean([event[name] for event in events])) for name in _AVERAGED}
        mean["mean_clients_norm"] = float(np.mean(self._clients_norms(events)))
        application, dim = self.application, self.application.initial.size
        passed = [event["unclipped_clients"] for event in events if "unclipped_clients" in event]
        if passed:
            mean["mean_unclipped_clients"] = float(np.mean(passed))
        words = {
            "training": f"{len(events)} rounds of {mean['mean_clients']:.0f} clients, {dim:,} parameters; "
            f"{application.name} on {application.engine}",
            "canaries": f"{mean['mean_places']:.0f} places in a round for {mean['mean_canaries']:.1f} canaries on average, "
            f"{100 * mean['mean_canary_share']:.1f}% of a cohort"
            + (f"; unclipped clients {100 * float(np.mean(passed)):.0f}%" if passed else ""),
        }
        return {
            "model": application.name,
            "engine": application.engine,
            "parameters": dim,
            "rounds": self.rounds,
            **mean,
            "largest_canary_share": max(event["canary_share"] for event in events),
            **application.facts,
            "in_words": words,
        }

    def _clients_norms(self, events: Sequence[Mapping[str, Any]]) -> Sequence[float] | Array:
        """Of the clients' sums, in clip norms; where they are not known, what noise and canaries leave of a release."""
        if all("clients_norm" in event for event in events):
            return [event["clients_norm"] for event in events]
        return norms_of_unknown_clients(events, self.noise_multiplier, self.application.initial.size)


def _as_it_was(schedule: Schedule, realised: Mapping[int, IndexArray]) -> Schedule:
    """The rounds that canaries took part in, where the engine decided about that; twice in one if it is of two releases."""
    nobody = np.zeros(0, np.int64)
    assigned = tuple(realised.get(number, nobody) for number in range(schedule.rounds))
    times = np.bincount(np.concatenate(assigned), minlength=schedule.pool)
    alike = times.min() == times.max() > 0
    pattern = Repeated(int(times.max())) if alike else Trace(tuple(tuple(each.tolist()) for each in assigned))
    return Schedule(pattern, schedule.pool, assigned, schedule.inserted)
