"""The power curve: how likely is noise that is too small by a factor noticed? Simulated, and checked against real runs.

The simulation draws scores of one Gaussian release (`coalmine.estimators.power.chance_of_noticing`). A real run trains, clips,
adds noise that is too small, and audits; if both agree, the plan of an audit can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coalmine.canaries.transform import SIGNS_SLACK
from coalmine.estimators._detect import REPLICATES
from coalmine.estimators.power import FACTORS, Design, chance_of_noticing
from coalmine.gaussian import gaussian_epsilon
from coalmine.mechanisms import Gaussian
from coalmine.training.federation import Federation
from coalmine.zoo.bug import Bug
from coalmine.zoo.settings import Setting
from coalmine.zoo.study import Case, run_all

NOISE = (0.25, 0.5, 1.0, 2.0, 4.0)
CANARIES = (100, 316, 1000)
POINTS = ((0.5, 316, 1.5), (0.5, 1000, 1.5), (1.0, 316, 2.0), (1.0, 100, 2.0), (2.0, 100, 3.0))  # (noise, inserted, factor)
DELTA = 1e-5
_FALSE_ALARM = 1e-4  # the chance that a point that agrees is said not to


@dataclass(frozen=True)
class TooLittleNoise(Gaussian):
    """Noise that is too small by a factor."""

    factor: float = 1.0

    @property
    def update_noise_multiplier(self) -> float:
        """The noise on the sum, in clip norms."""
        return self.noise_multiplier / self.factor


@dataclass(frozen=True)
class TooLittle:
    """The noise is too small by a factor.

    The canaries stand out by as much.
    """

    factor: float

    def into(self, job: Federation, secret_seed: int) -> Federation:
        """The same federation with less noise."""
        right = job.mechanism.describe()
        assert right.noise is not None and isinstance(right.clip.norm, float)
        return replace(job, mechanism=TooLittleNoise(right.clip.norm, right.noise.accounted, factor=self.factor))


@dataclass(frozen=True)
class Point:
    """The chance to notice noise that is too small by `factor`; `caught` of `runs` real ones, if there were any."""

    noise_multiplier: float
    inserted: int
    factor: float
    simulated: float
    caught: int = 0
    runs: int = 0

    @property
    def agrees(self) -> bool:
        """Whether simulation and real runs may have the same chance (Fisher's exact test at 1 in 10,000)."""
        from scipy.stats import fisher_exact

        hits = round(self.simulated * REPLICATES)
        table = [[self.caught, self.runs - self.caught], [hits, REPLICATES - hits]]
        return not self.runs or float(fisher_exact(table).pvalue) > _FALSE_ALARM


def curve(noise_multiplier: float, inserted: int, factors: Sequence[float] = FACTORS) -> list[Point]:
    """The chance to notice, simulated, for canaries that take part once."""
    claim = float(gaussian_epsilon(0.0, 1.0, 1 / noise_multiplier, 1.0, DELTA))
    design = Design(inserted, slack=SIGNS_SLACK)
    return [
        Point(noise_multiplier, inserted, factor, chance_of_noticing(claim, design, noise_factor=factor, delta=DELTA))
        for factor in factors
    ]


def check(
    points: Sequence[tuple[float, int, float]] = POINTS,
    *,
    runs: int = 40,
    workers: int = 2,
    track: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> list[Point]:
    """The same chance in real runs, secret seeds 0, 1, 2, …"""
    tasks: list[Case] = [
        (_setting(noise, count), _bug(factor), seed) for noise, count, factor in points for seed in range(runs)
    ]
    found = [result for _, result in run_all(tasks, workers=workers, track=track)]
    checked = []
    for place, (noise, count, factor) in enumerate(points):
        words = [result.verdict.word for result in found[place * runs : (place + 1) * runs] if result.verdict is not None]
        checked.append(replace(curve(noise, count, [factor])[0], caught=words.count("VIOLATED"), runs=runs))
    return checked


def _setting(noise: float, inserted: int) -> Setting:
    changes = (f"mechanism.noise_multiplier={noise}", f"canaries.pool={2 * inserted}", "audit.null=theory")
    return Setting("once", f"noise {noise:g}, about {inserted} canaries", changes)


def _bug(factor: float) -> Bug:
    return Bug(f"{factor:g} times too little noise", "once", TooLittle(factor), "")
