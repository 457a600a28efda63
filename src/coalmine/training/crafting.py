"""One measured round: canaries crafted for its model, scored in frozen draws, and what they show beside the claim of one round.

The claim is that of one round in which a client takes part for sure, at the same delta: the one-round Gaussian claim.
Everything here is a function of the state before the round and of the seeds; the training does not notice it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import _validate, manifest
from coalmine.audit.statements import Measured as Statement
from coalmine.canaries.crafted.design import Crafted, check_count, design_canaries
from coalmine.canaries.crafted.likelihood import along
from coalmine.canaries.crafted.options import Crafting
from coalmine.canaries.crafted.vectors import CraftedCanaries
from coalmine.clients import Trainer, quiet_threads
from coalmine.contracts import Finding, State
from coalmine.data.dataset import Examples
from coalmine.errors import RunDirectoryError
from coalmine.runs import RunDirectory
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import Config, parse_config
from coalmine.training.crafted_round import check_mechanism, mechanism_state
from coalmine.training.crafted_statements import MeasuredRound, one_round_claim, release_cost, whole_training
from coalmine.training.crafting_section import LEAST_SCORES
from coalmine.training.federation import Federation
from coalmine.training.frozen import Frozen
from coalmine.training.mock_clients import MockData, mock_clients

_MOST_PROJECTED = 2000  # clients whose part in the scores is computed one by one, or four cohorts if that is more


@dataclass(frozen=True)
class Measuring:
    """How a round is measured."""

    canaries: int = 128
    draws: int = 8
    pool: int = 64  # users that the design may look at; as many again judge it. None of them is in a frozen cohort
    others: str = "known"
    score: str = "inner-product"  # or "likelihood-ratio", of unknown others
    options: Crafting = field(default_factory=Crafting)
    foreign: tuple[Examples, ...] = field(default=(), repr=False)  # clients of a public data set, in place of a pool of users


def measure(
    job: Federation, state: State, number: int, how: Measuring, *, delta: float, confidence: float, unit: str
) -> MeasuredRound:
    """Craft canaries for the model of `state`, before round `number`, and score them in frozen draws of that round."""
    mock = mock_clients(job, how.pool, how.foreign)
    crafted = design_for(job, state, number, how, mock)
    frozen = Frozen(job, state, crafted, number, mock.users, ratio_directions(job, state, number, how, crafted, mock))
    scores, noise = frozen.measured(how.draws, others=how.others, unit=unit)
    expected = job.participation.expected_size(len(job.data), job.rounds)
    if how.others == "unknown":
        projections = frozen.projections
    else:
        order = job.secret("crafting", "population").permutation(len(frozen.users))
        some = np.sort(order[: max(_MOST_PROJECTED, round(4 * expected))])
        median = CraftedCanaries(crafted.directions.update(crafted.median))
        projections = frozen.projections_of([frozen.users[place] for place in some.tolist()], median)
    return MeasuredRound(
        number,
        crafted,
        scores,
        delta,
        confidence,
        one_round_claim(job, delta=delta, unit=unit),
        noise,
        projections=projections,
        q=min(1.0, expected / len(projections)),
        mock=frozen.scores(how.draws, others=how.others, unit=unit, first=how.draws),
        alone=frozen.finding,
        as_published=how.options.as_published,
        shown=float(frozen.shown[0, 0]) if frozen.along is not None else None,
    )


def ratio_directions(
    job: Federation, state: State, number: int, how: Measuring, crafted: Crafted, mock: MockData
) -> CraftedCanaries | None:
    """Where a likelihood ratio looks, from the clipped updates of the mock clients: (mock clients) × parameters floats."""
    if how.score != "likelihood-ratio":
        return None
    from coalmine.canaries.crafted.pool import clipped_updates

    public = job.mechanism.announce(mechanism_state(state), number, job.denominator)
    rows = clipped_updates(Trainer(job.model, job.training), state["parameters"], mock.pool, public.clip_norm)
    noise, cohort = job.described.noise, job.participation.expected_size(len(job.data), job.rounds)
    assert noise is not None
    directions = [crafted.directions.update(place) for place in range(len(crafted.samples))]
    seen = np.stack(rows)
    return CraftedCanaries(np.stack([along(each, seen, noise=noise.multiplier, cohort=cohort) for each in directions]))


def frozen_round(config: Config, job: Federation, state: State, number: int) -> tuple[Statement, Finding]:
    """What of one frozen round decides about a run, and nothing else: for studies of many runs."""
    how, privacy = how_of(config, job), config.privacy
    mock = mock_clients(job, how.pool, how.foreign)
    frozen = Frozen(job, state, design_for(job, state, number, how, mock), number, mock.users)
    claim = one_round_claim(job, delta=privacy.delta, unit=privacy.unit)
    return Statement(frozen.scores(how.draws, others=how.others, unit=privacy.unit), claim), frozen.finding


def design_for(job: Federation, state: State, number: int, how: Measuring, mock: MockData) -> Crafted:
    """Canaries for the model before a round."""
    check_mechanism(job)
    noise = job.described.noise
    if noise is None or not noise.multiplier > 0:
        raise ValueError("crafted canaries are measured against noise; this mechanism adds none. Set its noise multiplier.")
    public = job.mechanism.announce(mechanism_state(state), number, job.denominator)
    return design_canaries(
        job.model,
        state["parameters"],
        job.training,
        mock.pool,
        count=how.canaries,
        clip_norm=public.clip_norm,
        noise_multiplier=noise.multiplier,
        cohort_size=job.participation.expected_size(len(job.data), job.rounds),
        options=how.options,
        streams=partial(job.secret, "crafting", number),
        held_out=mock.judges,
    )


def how_of(config: Config, job: Federation | None = None) -> Measuring:
    """What a configuration says about measured rounds."""
    asked = config.crafting
    if asked.options.get("as_published", asked.as_published) != asked.as_published:
        raise ValueError(
            "crafting.options: as_published says something else than crafting.as_published, which is the whole recipe (one "
            "canary, 100 draws, unknown others, its design). Set crafting.as_published alone."
        )
    try:
        stated: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in asked.options.items()}
        options = Crafting(**({"as_published": True} if asked.as_published else {}) | stated)
    except TypeError:
        known = ", ".join(Crafting.__dataclass_fields__)
        raise ValueError(f"crafting.options has {', '.join(asked.options)}; it may have {known}.") from None
    how = Measuring(asked.canaries, asked.draws, asked.pool, asked.others, asked.score, options)
    if asked.pool_source is not None and job is not None:
        from coalmine.training.mock_clients import foreign_clients

        how = replace(how, foreign=foreign_clients(config, job.model))
    return how


def keep_model(directory: RunDirectory, every: int, number: int, state: State) -> None:
    """Keep the model before round `number`, for `craft`, if it is its turn."""
    if every and number % every == 0:
        from safetensors.numpy import save

        kept = {name: np.asarray(each) for name, each in state.items() if name == "parameters" or name.startswith("mechanism.")}
        directory.write(f"model-{number:06d}.safetensors", save(kept))


def craft(
    path: str | Path,
    *,
    number: int | None = None,
    canaries: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Craft canaries for the model before round `number` of a run and measure them, without training it again.

    The model is the last checkpoint, or one that `run.keep_every` kept. Fewer scores than a run would accept show no epsilon:
    a few canaries get more draws. `say` hears what is done, which may take minutes. The run's files are only read.
    """
    quiet_threads()
    number = None if number is None else _validate.whole("round", number, least=1)
    directory = RunDirectory.open(path)
    if directory.finished:
        manifest.check(directory.path)
    config = parse_config(directory.config, where=f"{path}/config.toml", quiet=True)
    job = federation(config, load_task(config), directory.secret_seed)
    done, state = directory.look()
    if not state:
        raise RunDirectoryError(f"{str(path)!r} has no finished round, and so no model to craft canaries for. Resume it first.")
    if number is not None and number != done:
        state = _kept(directory, number, done)
    how = how_of(config, job)
    if canaries is not None:
        how = replace(how, canaries=_validate.whole("canaries", canaries, least=1))
    check_count(how.canaries, job.model.dim)
    if how.others == "unknown" and how.canaries > 1:
        how = replace(how, others="known", score="inner-product")
    asked_draws, how = how.draws, replace(how, draws=max(how.draws, math.ceil(LEAST_SCORES / how.canaries)))
    place = done if number is None else number
    many = "1 canary" if how.canaries == 1 else f"{how.canaries:,} canaries"
    say(f"designing {many} for the model before round {place}, then {how.draws} draws of that round")
    found = measured_round(config, job, state, place, how).statements()
    privacy, asked = config.privacy, config.crafting
    about: dict[str, Any] = {
        "delta": privacy.delta,
        "relation": privacy.relation,
        "others": how.others,
        "release": asked.release,
    }
    return {
        **found,
        "composed": whole_training(job, [found], delta=privacy.delta, confidence=config.audit.confidence),
        "frozen_draws": release_cost(job, measured=1, draws=how.draws, **about),
        "draws": {"made": how.draws, "asked": asked_draws},
    }


def measured_round(
    config: Config, job: Federation, state: State, number: int, how: Measuring, *, tests: int = 1
) -> MeasuredRound:
    """A frozen round of a run; `tests` rounds share the confidence."""
    privacy, confidence = config.privacy, 1 - (1 - config.audit.confidence) / tests
    return measure(job, state, number, how, delta=privacy.delta, confidence=confidence, unit=privacy.unit)


def _kept(directory: RunDirectory, number: int, done: int) -> State:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = directory.path / f"model-{number:06d}.safetensors"
    if not path.is_file():
        kept = sorted(int(each.stem.removeprefix("model-")) for each in directory.path.glob("model-??????.safetensors"))
        there = ", ".join(map(str, sorted({*kept, done})))
        raise RunDirectoryError(
            f"the model before round {number:,} was not kept; there are those before {there}. "
            "Train with run.keep_every to keep more."
        )
    data, written = path.read_bytes(), manifest.fingerprints(directory.path).get(path.name)
    try:
        if written not in (None, hashlib.sha256(data).hexdigest()):
            raise ValueError
        return dict(load(data))
    except (SafetensorError, ValueError):
        raise directory.damaged(path.name, "Put back an intact copy, or craft for another round.") from None
