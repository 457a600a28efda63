"""One attack of CANIFE at a frozen model: design a canary, draw rounds with a coin for each, and see how well scores tell.

    paper                               here          meaning
    n                                   DRAWS         frozen rounds, each with a fresh cohort and a coin
    standard deviation of histograms    spread        mean of those of the scores with and without the canary, in clip norms
    attack accuracy                     accuracy      of the best threshold
    m, r (or K), t                      pool, cohort, iterations

Other clients are unknown to the attacker, as in the paper. With noise every draw is a real release of the mechanism.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from coalmine._random import stream
from coalmine.canaries.crafted.design import Crafted, design_canaries
from coalmine.canaries.crafted.options import Crafting
from coalmine.contracts import Array
from coalmine.estimators.band import bound_band
from coalmine.estimators.composed import estimate_round_canife
from coalmine.estimators.gaussian_fit import estimate_gaussian
from coalmine.papers.canife.grounds import Ground, Kept, Where, ground, job_of
from coalmine.papers.canife.tasks import DELTA, DRAWS
from coalmine.papers.kit.experiment import Ask
from coalmine.scores import Scores
from coalmine.training.frozen import Frozen

OURS: Mapping[str, Any] = {"stop_overlap": 0.0}
PAPERS: Mapping[str, Any] = {"as_published": True}


@dataclass(frozen=True)
class Attack:
    """What is to be attacked, and how."""

    where: Where | Kept
    cohort: int
    pool: int
    noise: float = 0.0
    options: Mapping[str, Any] = field(default_factory=lambda: OURS)  # of the design
    foreign: str = ""  # the task whose clients are the mock clients; empty: the attacked one
    number: int = 0  # of repeated attacks, which differ in canary, coins, cohorts and noise
    draws: int = DRAWS
    known: bool = False  # whether scores without the others are read as well, and a threshold from mock rounds

    def names(self, what: str) -> tuple[Any, ...]:
        """Of random streams: its own for every model and every repeated attack, the same for all designs and sizes."""
        return self.where.seed, what, self.where.task, self.where.steps, self.number

    @property
    def file(self) -> Path:
        """Where the outcome is kept, by all that it depends on."""
        told = asdict(self)
        told["where"] = {
            name: value for name, value in told["where"].items() if name not in ("folder", "data_dir", "path", "config")
        }
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
        return Path(self.where.folder) / f"{self.where.task}-attack-{digest}.json"


Outcome = dict[str, Any]
Key = TypeVar("Key")


def attacks(ask: Ask, wanted: Sequence[Attack], description: str) -> list[Outcome]:
    """Every attack, made once and then read; several at once if there are workers."""
    return ask.each(perform, list(wanted), description)


def perform(attack: Attack) -> Outcome:
    """One attack: its scores' spread, accuracy and epsilon, and what the canary is worth."""
    if not attack.file.is_file():
        found = json.dumps(_performed(attack), indent=1)
        attack.file.parent.mkdir(parents=True, exist_ok=True)
        aside = attack.file.with_suffix(".part")
        aside.write_text(found, encoding="utf-8")
        aside.replace(attack.file)
    made: Outcome = json.loads(attack.file.read_text(encoding="utf-8"))
    return made


def _performed(attack: Attack) -> Outcome:
    here = ground(attack.where)
    begun = time.process_time()
    crafted = designed(here, attack)
    seconds = time.process_time() - begun
    direction = crafted.directions.update(0)
    x = here.projections(direction)
    scores = draw(here, crafted, attack, x)
    reach, overlap = float(crafted.metrics["reach"][0]), float(np.sqrt(attack.cohort * np.mean(x**2)))  # in clip norms
    found = {
        "model_accuracy": here.accuracy,
        "seconds": seconds,
        "reach": reach,
        "overlap": overlap,
        "efficiency": reach * attack.noise / float(np.hypot(attack.noise, overlap)),
        "health": float(crafted.metrics["health"][0]),
        "steps": attack.options.get("iterations", 0),
        **read(scores),
    }
    if attack.known:
        mock = draw(here, crafted, attack, here.projections(direction, mock=attack.pool), "mock rounds")
        threshold = estimate_round_canife(mock).details["threshold"]
        found |= {"calibrated": at_threshold(scores, threshold), **_known(here, crafted, attack)}
    return found


def designed(here: Ground, attack: Attack) -> Crafted:
    """The canary of an attack."""
    mock = here.examples(here.mock[: attack.pool])
    if attack.foreign and isinstance(attack.where, Where):
        other = job_of(replace(attack.where, task=attack.foreign)).data
        mock = [other.examples_of(user) for user in other.users[: attack.pool]]
    return design_canaries(
        here.job.model,
        here.parameters,
        here.job.training,
        mock,
        count=1,
        clip_norm=here.clip,
        noise_multiplier=attack.noise,
        cohort_size=attack.cohort,
        options=Crafting(**attack.options),
        streams=partial(stream, *attack.names("canary of an attack")),
        held_out=here.judges,
    )


def _frozen(here: Ground, crafted: Crafted, attack: Attack, what: str) -> Frozen:
    job = replace(here.with_noise(attack.noise), secret=partial(stream, *attack.names(what)))
    return Frozen(job, here.state, crafted, 0)


def draw(here: Ground, crafted: Crafted, attack: Attack, x: Array, what: str = "draws") -> Scores:
    """Scores of frozen rounds in clip norms: the canary if its coin says so, a fresh cohort, the noise of a real release.

    Cohorts are drawn from the clients at hand with replacement, so that a few hundred of them stand for a large population.
    """
    frozen = _frozen(here, crafted, attack, what)
    own, rng = float(frozen.own[0, 0]), frozen.federation.secret("cohorts and coins")
    values, coins = np.empty(attack.draws), rng.random(attack.draws) < 0.5
    for number, coin in enumerate(coins):
        noise = float(crafted.directions.project(frozen.draw(number, np.array([coin])))[0]) if attack.noise else 0.0
        values[number] = own * coin + float(x[rng.integers(x.size, size=attack.cohort)].sum()) + noise
    return Scores(values, coins, assignment="coins")


def _known(here: Ground, crafted: Crafted, attack: Attack) -> Outcome:
    """What the same number of draws shows if the other clients' part is known: an estimate and a bound at the claim's delta."""
    scores = _frozen(here, crafted, attack, "draws").scores(attack.draws, others="known")
    estimate, bound = estimate_gaussian(scores, delta=DELTA, variance="null"), bound_band(scores, delta=DELTA)
    return {"known": {"epsilon": estimate.epsilon, "low": estimate.low, "high": estimate.high, "bound": bound.epsilon}}


def read(scores: Scores) -> Outcome:
    """What the paper reads off the scores of one measured round."""
    found = estimate_round_canife(scores)
    with_it, without = scores.inserted_values, scores.held_out_values
    return {
        "spread": float((with_it.std() + without.std()) / 2),
        "accuracy": found.details["accuracy"],
        "infinite": bool(np.isinf(found.epsilon)),
        "epsilon": found.details["capped"],
        "low": found.low,
        "high": found.high,
        "jeffreys": estimate_round_canife(scores, interval="jeffreys").low,
        "with": with_it.round(6).tolist(),
        "without": without.round(6).tolist(),
    }


def at_threshold(scores: Scores, threshold: float) -> float:
    """The paper's estimate at one threshold; an error rate of zero counts as one error, so that it is finite."""
    with_it, without = scores.inserted_values, scores.held_out_values
    missed = max(float((with_it < threshold).mean()), 1 / with_it.size)
    alarms = max(float((without >= threshold).mean()), 1 / without.size)
    left = 1 - 1 / scores.value.size
    ratios = [(left - missed) / alarms, (left - alarms) / missed]
    return float(np.log(max(*ratios, 1.0)))


def repeated(ask: Ask, wanted: Mapping[Key, Attack], times: int, description: str) -> dict[Key, list[Outcome]]:
    """Every attack so many times, each time with another canary, other coins, cohorts and noise."""
    jobs = [(key, replace(attack, number=number)) for key, attack in wanted.items() for number in range(times)]
    done = attacks(ask, [attack for _, attack in jobs], description)
    return {key: [found for (own, _), found in zip(jobs, done, strict=True) if own == key] for key in wanted}


def mean_of(found: Sequence[Outcome], name: str) -> tuple[float, float]:
    """(mean, standard error) over repeated attacks."""
    values = np.array([each[name] for each in found], np.float64)
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
