"""What a run of our own trainer recorded, for its result, and what a reader of the audit must know about it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from coalmine import accounting
from coalmine.contracts import ByClients, Caveat, Claim, plain
from coalmine.runs import RunDirectory
from coalmine.training import strategies
from coalmine.training.assembly import Task
from coalmine.training.config import Config, about_run, fingerprint
from coalmine.training.federation import Federation

_AVERAGED = ("clients", "canaries", "clients_norm", "clip_norm")
_SHARES = {
    "canary_share": ("clients", "canaries"),
    "unclipped_clients": ("clients",),
    "unclipped_with_canaries": ("clients", "canaries"),
}
_DIVERGED = 2.0  # how much larger the last losses are than the first


@dataclass(frozen=True, eq=False)
class Facts:
    """A finished training in its directory."""

    config: Config
    task: Task
    job: Federation
    directory: RunDirectory

    @cached_property
    def claim(self) -> Claim:
        """What is claimed for a client."""
        privacy = self.config.privacy
        return accounting.claim_of(
            self.job.mechanism.describe(),
            self.job.participation,
            delta=privacy.delta,
            unit=privacy.unit,
            relation=privacy.relation,
            rounds=self.job.rounds,
        )

    def summary(self, *, model_sha256: str, secret_seed: int) -> dict[str, Any]:
        """What the training recorded, without times."""
        rounds = [event for event in self.directory.events() if "round" in event]
        mean = {name: float(np.mean([event[name] for event in rounds])) for name in _AVERAGED}
        mean |= {name: _pooled(rounds, name, weight) for name, weight in _SHARES.items()}
        about = about_run(self.directory.config)
        fresh = about.get("secret") == "fresh"  # one that was given may be a small number, which a fingerprint would betray
        secret = hashlib.sha256(f"coalmine secret seed {secret_seed:x}".encode()).hexdigest() if fresh else None
        return {
            "model": self.task.model.name,
            "parameters": self.task.model.dim,
            "users": len(self.task.train),
            "rounds": self.job.rounds,
            "participation": self.job.participation.attendance,
            "epsilon_of_clients": self.claim.epsilon,
            **({"unit": self.config.privacy.unit} if self.config.privacy.unit != "client" else {}),
            **{f"mean_{name}": value for name, value in mean.items()},
            "largest_canary_share": max(event["canary_share"] for event in rounds),
            "model_sha256": model_sha256,
            "config_sha256": fingerprint(self.config),
            "inputs_sha256": about["inputs"] if self.job.canary_setup else None,
            "secret_sha256": secret,
            **self._learned(rounds[-1]),
        }

    def learned(self) -> dict[str, Any]:
        """What is known of the model's predictions now."""
        return self._learned(self.directory.events()[-1])

    def caveats(self) -> tuple[Caveat, ...]:
        """What a reader of the audit must know about this training."""
        said = [] if about_run(self.directory.config).get("secret") == "fresh" else [Caveat("secret-given")]
        setup, clients = self.job.canary_setup, self.job.participation.attendance
        description = self.job.mechanism.describe()
        if setup is not None and setup.schedule.pattern.attendance != clients:
            canaries = setup.schedule.pattern.attendance
            about = {"canaries": plain(canaries), "clients": plain(clients), "epsilon": self.claim.epsilon}
            said.append(Caveat("canaries-participation", about))
        lost = diverged(self.directory.events(), adaptive=description.clip.norm is None)
        said += [] if lost is None else [lost]
        said += [Caveat("actual-denominator")] if description.denominator == "realised" else []
        clip_norms = [event["clip_norm"] for event in self.directory.events() if "round" in event]
        said += strategies.caveats(description, clip_norms)
        return (*said, *self._fewer_noises())

    def _fewer_noises(self) -> Iterator[Caveat]:
        """That the claim counts on the noise of more clients than there were in some round, and what could be claimed."""
        noise, setup = self.job.mechanism.describe().noise, self.job.canary_setup
        if noise is None or not isinstance(noise.added_by, ByClients):
            return
        replaced = setup is not None and setup.replace  # canaries in the places of clients add their noise as well
        rounds = [event for event in self.directory.events() if "round" in event]
        counts = [event["clients"] + (event["canaries"] if replaced else 0) for event in rounds]
        if min(counts) < noise.added_by.honest:
            left = self.claim.at_noise(math.sqrt(min(counts) / noise.added_by.honest)) if min(counts) else None
            about = {"promised": noise.added_by.honest, "least": min(counts), "epsilon": math.inf if left is None else left}
            yield Caveat("fewer-noises", about)

    def _learned(self, last: Mapping[str, Any]) -> dict[str, Any]:
        """How well the model predicts, beside the simplest guess and beside the same training without noise and canaries."""
        if last.get("accuracy") is None or not self.task.classes:
            return {}
        found: dict[str, Any] = {name: last[name] for name in ("accuracy", "accuracy_error", "loss")}
        found["baseline_accuracy"], found["baseline_error"] = self.task.baseline
        found["held_out_kind"] = self.config.data.held_out_kind
        path = self.directory.path / "reference"
        if (path / "config.toml").is_file():
            events = RunDirectory.open(path).events() if (path / "events.jsonl").is_file() else []
            found["reference_finished"] = len(events) >= self.job.rounds
            if found["reference_finished"]:
                found["reference_accuracy"] = events[-1]["accuracy"]
                found["reference_error"] = events[-1]["accuracy_error"]
        return found


def counted(training: Mapping[str, Any], crafted: Mapping[str, Any]) -> dict[str, Any]:
    """What was recorded, with what crafted canaries show; published frozen draws count in the claim of clients."""
    draws = crafted.get("crafted", {}).get("frozen_draws", {})
    own = {"epsilon_of_clients": float(draws["if_published"])} if draws.get("release") == "published" else {}
    return {**training, **crafted, **own}


def diverged(records: Sequence[Mapping[str, Any]], *, adaptive: bool) -> Caveat | None:
    """That a training ended worse than it began, by the losses that clients report; None if it did not."""
    with_loss = [record for record in records if record.get("training_loss") is not None]
    losses = [float(record["training_loss"]) for record in with_loss]
    part = max(len(losses) // 10, 3)
    if len(losses) < 2 * part:
        return None
    begun, ended = (float(np.median(some)) for some in (losses[:part], losses[-part:]))
    if not (begun > 0 and ended > _DIVERGED * begun):
        return None
    numbers = {"begun": begun, "ended": ended}
    if adaptive:
        numbers["clip_begun"], numbers["clip_ended"] = (float(each["clip_norm"]) for each in (with_loss[0], with_loss[-1]))
    return Caveat("diverged", numbers)


def _pooled(rounds: list[dict[str, Any]], share: str, of: tuple[str, ...]) -> float:
    """A share over all rounds together, by how many each had."""
    weights = np.array([sum(event[name] for name in of) for event in rounds], dtype=np.float64)
    return float(weights @ np.array([event[share] for event in rounds]) / max(weights.sum(), 1.0))
