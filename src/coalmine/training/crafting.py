"""One measured round: canaries crafted for its model, frozen draws, and what they show beside the claim of one round.

The claim is that of one round in which a client takes part for sure, at the same delta: the one-round Gaussian claim.
Everything here is a function of the state before the round and of the seeds; the training does not notice it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coalmine.canaries.crafted.design import Crafted, design_canaries
from coalmine.canaries.crafted.options import Crafting
from coalmine.contracts import State, plain
from coalmine.errors import RunDirectoryError
from coalmine.estimators.band import bound_band
from coalmine.estimators.gaussian_fit import estimate_gaussian
from coalmine.gaussian import gaussian_epsilon
from coalmine.runs import RunDirectory
from coalmine.scores import Scores
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import Config, parse_config
from coalmine.training.federation import Federation
from coalmine.training.frozen import Frozen

NOISE_ASSUMPTION = "the noise is normal and the same in all directions: its scale was measured beside the canaries"


@dataclass(frozen=True)
class Measuring:
    """How a round is measured."""

    canaries: int = 128
    draws: int = 8
    pool: int = 64  # users that the design may look at; as many again judge it. None of them is in a frozen cohort
    others: str = "known"
    options: Crafting = field(default_factory=Crafting)


@dataclass(frozen=True, eq=False)
class Measured:
    """What a measured round shows."""

    round: int
    crafted: Crafted
    scores: Scores
    delta: float
    confidence: float
    claimed: float

    def statements(self) -> dict[str, Any]:
        """Estimate and bound beside the claim, at one delta, as plain data."""
        estimate = estimate_gaussian(self.scores, delta=self.delta, confidence=self.confidence)
        bound = bound_band(self.scores, delta=self.delta, confidence=self.confidence)
        measured = self.scores.null is not None
        return {
            "round": self.round,
            "delta": self.delta,
            "confidence": self.confidence,
            "claim": self.claimed,
            "estimate": {"epsilon": estimate.epsilon, "low": estimate.low, "high": estimate.high},
            "bound": {"epsilon": bound.epsilon, "valid": bound.valid},
            "assumptions": [*bound.assumptions, *([NOISE_ASSUMPTION] if measured else [])],
            "violated": bool(bound.valid and bound.epsilon > self.claimed),
            "scores": int(self.scores.value.size),
            "scores_sha256": self.scores.sha256,
            "design": plain(self.crafted.summary()),
        }


def measure(
    job: Federation, state: State, number: int, how: Measuring, *, delta: float, confidence: float, unit: str
) -> Measured:
    """Craft canaries for the model of `state`, before round `number`, and score them in frozen draws of that round."""
    noise = job.described.noise
    if noise is None or not noise.multiplier > 0:
        raise ValueError("crafted canaries are measured against noise; this mechanism adds none. Set its noise multiplier.")
    pool, judges = _mock_users(job, how.pool)
    public = job.mechanism.announce(
        {key.removeprefix("mechanism."): value for key, value in state.items() if key.startswith("mechanism.")},
        number,
        job.denominator,
    )
    crafted = design_canaries(
        job.model,
        state["parameters"],
        job.training,
        [job.data.examples_of(user) for user in pool],
        count=how.canaries,
        clip_norm=public.clip_norm,
        noise_multiplier=noise.multiplier,
        cohort_size=job.participation.expected_size(len(job.data), job.rounds),
        options=how.options,
        streams=partial(job.secret, "crafting", number),
        held_out=[job.data.examples_of(user) for user in judges],
    )
    frozen = Frozen(job, state, crafted, number, frozenset((*pool, *judges)))
    claimed = float(gaussian_epsilon(0.0, 1.0, 1 / noise.accounted, 1.0, delta))
    return Measured(number, crafted, frozen.scores(how.draws, others=how.others, unit=unit), delta, confidence, claimed)


def _mock_users(job: Federation, pool: int) -> tuple[list[str], list[str]]:
    """(users for the design, users who judge it), the same in every round; known to nobody outside."""
    if not 2 * pool < len(job.data):
        raise ValueError(f"crafting.pool={pool} needs more than {2 * pool} users; there are {len(job.data)}. Lower it.")
    order = job.secret("crafting", "pool").permutation(len(job.data))[: 2 * pool]
    users = [job.data.users[place] for place in np.asarray(order).tolist()]
    return users[:pool], users[pool:]


def how_of(config: Config) -> Measuring:
    """What a configuration says about measured rounds."""
    asked = config.crafting
    try:
        stated: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in asked.options.items()}
        options = Crafting(**stated)
    except TypeError:
        known = ", ".join(Crafting.__dataclass_fields__)
        raise ValueError(f"crafting.options has {', '.join(asked.options)}; it may have {known}.") from None
    return Measuring(asked.canaries, asked.draws, asked.pool, asked.others, options)


def measure_round(config: Config, job: Federation, directory: RunDirectory, number: int, state: State) -> None:
    """Measure the round that comes next, if it is the turn of one; what was found is a file of the run.

    Any of the measured rounds may contradict the claim, so that each has its share of the confidence.
    """
    if config.crafting.mode == "off" or number % config.crafting.every:
        return
    found = _measured(config, job, state, number, how_of(config), tests=job.rounds // config.crafting.every)
    directory.write(f"crafted-{number:06d}.json", _document(found))


def keep_model(directory: RunDirectory, every: int, number: int, state: State) -> None:
    """Keep the model before round `number`, for `craft`, if it is its turn."""
    if every and number % every == 0:
        from safetensors.numpy import save

        kept = {name: np.asarray(each) for name, each in state.items() if name == "parameters" or name.startswith("mechanism.")}
        directory.write(f"model-{number:06d}.safetensors", save(kept))


def craft(path: str | Path, *, number: int | None = None, canaries: int | None = None) -> dict[str, Any]:
    """Craft canaries for the model before round `number` of a run and measure them, without training it again.

    The model is the last checkpoint, or one that `run.keep_every` kept.
    """
    directory = RunDirectory.open(path)
    config = parse_config(directory.config, where=f"{path}/config.toml", quiet=True)
    job = federation(config, load_task(config), directory.secret_seed)
    done, state = directory.load()
    if number is not None and number != done:
        state = _kept(directory, number, done)
    how = how_of(config)
    if canaries is not None:
        how = Measuring(canaries, how.draws, how.pool, how.others, how.options)
    return _measured(config, job, state, done if number is None else number, how)


def _measured(config: Config, job: Federation, state: State, number: int, how: Measuring, *, tests: int = 1) -> dict[str, Any]:
    privacy, confidence = config.privacy, 1 - (1 - config.audit.confidence) / tests
    return measure(job, state, number, how, delta=privacy.delta, confidence=confidence, unit=privacy.unit).statements()


def _kept(directory: RunDirectory, number: int, done: int) -> State:
    from safetensors.numpy import load

    path = directory.path / f"model-{number:06d}.safetensors"
    if not path.is_file():
        kept = sorted(int(each.stem.removeprefix("model-")) for each in directory.path.glob("model-??????.safetensors"))
        there = ", ".join(map(str, sorted({*kept, done})))
        raise RunDirectoryError(
            f"the model before round {number} was not kept; there are those before {there}. "
            "Train with run.keep_every to keep more."
        )
    return dict(load(path.read_bytes()))


def in_words(found: Mapping[str, Any]) -> str:
    """A measured round for people."""
    estimate, design = found["estimate"], found["design"]
    return "\n".join(
        (
            f"round          {found['round']}, {design['canaries']} canaries, {found['scores']} scores",
            f"efficiency     {design['efficiency']:.3f} (visibility {design['visibility']:.3f}, reach {design['reach']:.3f}, "
            f"overlap {design['overlap']:.3f})",
            f"estimate       epsilon {estimate['epsilon']:.3f} ({estimate['low']:.3f} to {estimate['high']:.3f})",
            f"lower bound    epsilon {found['bound']['epsilon']:.3f} at {100 * found['confidence']:g} % confidence",
            f"claim          epsilon {found['claim']:.3f} of one round, at the same delta {found['delta']:g}",
            "verdict        "
            + ("VIOLATED: the bound is above the claim" if found["violated"] else "the claim is not contradicted"),
        )
    )


def _document(found: Mapping[str, Any]) -> bytes:
    return (json.dumps(plain(found), indent=2, sort_keys=True) + "\n").encode()
