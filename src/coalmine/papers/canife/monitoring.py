"""Private training that keeps some of its models, and an attack at each of them: the paper's monitoring (section 4.2).

The training does not notice: models are kept on the way and attacked afterwards. Each measured round has its canary, 100 frozen
draws, and the epsilon of Algorithm 2; composed as printed, they are the paper's empirical epsilon of the training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from coalmine.accounting.rounds import compose_canife
from coalmine.estimators.composed import Perfect, perfect_canary
from coalmine.papers.canife.attack import Attack, Outcome, attacks
from coalmine.papers.canife.grounds import Kept
from coalmine.papers.canife.tasks import DELTA, DRAWS, Training
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.making import obtain
from coalmine.training.config import Config, read_config, write_config

_PLAIN = ("canaries.pool=0", 'crafting.mode="off"', "run.evaluate_every=0", "run.workers=1", "run.reference=false")


@dataclass(frozen=True)
class Monitored:
    """A family of private trainings, and how their rounds are measured."""

    words: str
    key: str
    preset: str
    changes: tuple[str, ...]
    quick: tuple[str, ...]
    population: int  # clients that train, at full size
    cohort: int
    rounds: int
    every: int
    mock: int
    others: int
    options: Mapping[str, Any]

    def training(self) -> Training:
        """As numbers, at full size."""
        return Training(self.words, self.population, self.cohort, self.rounds, ())

    def config(self, ask: Ask, noise: float, seed: int) -> Config:
        """Of one run."""
        changes = [*_PLAIN, *self.changes, *ask.pick(full=(), quick=self.quick), f"run.seed={seed}"]
        changes += [f"mechanism.noise_multiplier={noise!r}", f"run.keep_every={ask.pick(full=self.every, quick=4)}"]
        if ask.data_dir is not None:
            changes.append(f"data.options.data_dir={str(Path(ask.data_dir).resolve())!r}")
        return read_config(self.preset, changes)


@lru_cache(maxsize=64)
def noise_for(population: int, cohort: int, rounds: int, epsilon: float) -> float:
    """The noise multiplier with which such a training has this epsilon, by the paper's accountant."""
    from scipy.optimize import brentq

    training = Training("", population, cohort, rounds, ())
    return float(brentq(lambda noise: training.composed_exactly(noise) - epsilon, 0.12, 8.0, xtol=1e-4))


def monitor(ask: Ask, family: Monitored, noises: Mapping[str, float], seeds: Sequence[int]) -> dict[str, list[list[Outcome]]]:
    """By the name of a noise: for every seed the outcomes of all measured rounds, in their order."""
    names = {(key, seed): f"{family.key}-{key}-{seed}" for key in noises for seed in seeds}
    configs = {name: family.config(ask, noises[key], ask.seed * 1_000_003 + seed) for (key, seed), name in names.items()}
    paths = obtain(ask, configs, apart=True)
    measured = measure(ask, family, paths, {name: (noises[key], configs[name]) for (key, _), name in names.items()})
    return {key: [measured[names[key, seed]] for seed in seeds] for key in noises}


def measure(
    ask: Ask, family: Monitored, paths: Mapping[str, Path], about: Mapping[str, tuple[float, Config]]
) -> dict[str, list[Outcome]]:
    """Attacks at all kept models of these trainings; `about` has noise and configuration of each."""
    wanted, places = [], []
    folder = str(ask.out / "runs" / f"{ask.scale}-{ask.seed}" / "canife")
    mock, others = ask.pick(full=(family.mock, family.others), quick=(24, 40))
    for name, path in paths.items():
        noise, config = about[name]
        for model in sorted(path.glob("model-??????.safetensors")):
            number = int(model.stem.removeprefix("model-"))
            where = Kept(name, folder, str(model), write_config(config, {}), number, ask.seed, mock, others)
            wanted.append(Attack(where, family.cohort, mock, noise, dict(family.options), known=True))
            places.append(name)
    done = attacks(ask, wanted, f"measured rounds, {family.words}")
    return {name: [found for place, found in zip(places, done, strict=True) if place == name] for name in paths}


def composed(training: Training, measured: Sequence[Outcome], name: str = "epsilon") -> float:
    """The paper's number of a training from what its measured rounds show."""
    values = [float(each[name]) for each in measured]
    return compose_canife(values, training.rounds, training.rate, DELTA, measured_delta=1 / DRAWS).epsilon


def perfect_rounds(noise: float, measured: Sequence[Outcome]) -> list[Perfect]:
    """What a perfect canary would show in each of these rounds, with as many draws of either kind as its coins gave."""
    counts = [(len(each["with"]), len(each["without"])) for each in measured]
    return [perfect_canary(noise, draws=sum(both), inserted=both[0]) for both in counts]


def mean_perfect(noise: float, measured: Sequence[Outcome]) -> tuple[float, float, float]:
    """(mean, standard deviation from round to round, the most that these numbers of draws can show)."""
    found = perfect_rounds(noise, measured)
    means, within = np.array([each.mean for each in found]), np.mean([each.std**2 for each in found])
    return float(means.mean()), float(np.sqrt(within + means.var())), max(each.ceiling for each in found)
