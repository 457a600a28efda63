"""The pure-noise model: a run in which canaries and noise are released and nothing else. No data, no network, a second.

    v_t = momentum v_{t-1} + sum of the round's canaries + noise Z_t          what the model moves by in round t
    x_ti = <c_i, v_t>                                                          a recursion for every canary by itself

The canaries are orthonormal, so that the x_ti of different canaries are independent and the rest of v_t has d - 2k coordinates
whose sum of squares is taken for its expectation (it varies by sqrt(2/d), 0.07 % at 4.1 million). Client updates are left out.

What the papers make of such a run:

    all iterates     the largest cosine over rounds, of inserted and of held-out canaries; two normals are fitted (Algorithm 3)
    final model      the cosine with the sum of all v_t, compared with N(0, 1/d) (Algorithm 2)
    epsilon_lo       pointwise Jeffreys bounds, the best of all thresholds (`bound_pointwise`)

Algorithm 3 as printed looks at the released mean, before momentum (`momentum=0`); the papers' code looks at v_t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import special

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array
from coalmine.estimators.threshold import bound_pointwise
from coalmine.gaussian import gaussian_epsilon, halfline_epsilon
from coalmine.nulls import CosineNull
from coalmine.papers.kit.paper_result import RowVerdict
from coalmine.papers.kit.printed import last_digit
from coalmine.papers.kit.rules import AGREES
from coalmine.scores import Scores

ENOUGH = 39  # runs, of which the least and the largest leave out 5 % of further ones
MOMENTUM = 0.9  # of the server, in the ICLR paper; the first version and the appendix on CANIFE do not say theirs


@dataclass(frozen=True)
class PureNoiseRun:
    """A run of the model: so many canaries inserted, and as many held out if not said otherwise."""

    noise: float
    dim: int
    rounds: int
    canaries: int
    momentum: float = MOMENTUM
    presentations: int = 1
    held_out: int | None = None

    def __post_init__(self) -> None:
        if not self.noise > 0:
            raise ValueError(
                f"noise={self.noise!r}: without noise this model releases canaries alone, whose cosines are no law."
            )
        _validate.whole("presentations", self.presentations, least=1)

    def seen(self, seed: int) -> SeenCosines:
        """What the canaries see of one such run."""
        rng = stream(seed, "pure noise", self.dim, self.rounds, self.canaries, self.presentations, repr(self.noise))
        edges = np.linspace(0, self.rounds, self.presentations + 1).astype(int)
        periods = [rng.integers(low, high, self.canaries) for low, high in pairwise(edges)]
        when, who = np.concatenate(periods), np.tile(np.arange(self.canaries), self.presentations)
        order = np.argsort(when, kind="stable")
        taking_part = np.split(who[order], np.searchsorted(when[order], np.arange(1, self.rounds)))
        directions = self.canaries + (self.canaries if self.held_out is None else self.held_out)
        velocity, drift, largest = np.zeros(directions), np.zeros(directions), np.full(directions, -np.inf)
        others = weight = rest = 0.0  # squares, by coordinate, of the other coordinates of v_t and of the drift
        for number in range(self.rounds):
            velocity *= self.momentum
            velocity += self.noise * rng.standard_normal(directions)
            np.add.at(velocity, taking_part[number], 1.0)
            others = self.momentum**2 * others + self.noise**2
            norm = np.sqrt(velocity @ velocity + (self.dim - directions) * others)
            np.maximum(largest, velocity * (np.sqrt(self.dim) / norm), out=largest)
            drift += velocity
            weight = self.momentum * weight + 1.0  # of a round in the drift, by how many follow
            rest += (self.noise * weight) ** 2
        final = drift * np.sqrt(self.dim / (drift @ drift + (self.dim - directions) * rest))
        return SeenCosines(self.dim, largest[: self.canaries], largest[self.canaries :], final[: self.canaries])


@dataclass(frozen=True)
class SeenCosines:
    """Cosines in units of 1/sqrt(d): the largest over rounds, inserted and held out, and those with the final model."""

    dim: int
    largest: Array
    largest_held_out: Array
    final: Array

    def drawn_again(self, rng: np.random.Generator) -> SeenCosines:
        """A pool as large, drawn from these with replacement; a fair coin each says again who is inserted."""
        pool = self.largest.size + self.largest_held_out.size
        inserted = int(np.clip(rng.binomial(pool, 0.5), 1, pool - 1))
        sizes = (inserted, pool - inserted, inserted)
        parts = (self.largest, self.largest_held_out, self.final)
        return SeenCosines(self.dim, *(rng.choice(each, size) for each, size in zip(parts, sizes, strict=True)))

    def estimate_all(self, delta: float) -> float:
        """Algorithm 3: two normals fitted to the maxima."""
        return float(gaussian_epsilon(*_fit(self.largest_held_out), *_fit(self.largest), delta))

    def estimate_all_by_thresholds(self, delta: float) -> float:
        """The same with the formula of the first version."""
        return halfline_epsilon(*_fit(self.largest_held_out), *_fit(self.largest), delta)

    def low_all(self, delta: float) -> float:
        """The papers' epsilon_lo of the maxima; not a bound."""
        return bound_pointwise(Scores.of(self.largest, self.largest_held_out), delta=delta).epsilon

    def estimate_final(self, delta: float) -> float:
        """Algorithm 2 as printed: mean and width fitted."""
        return float(gaussian_epsilon(0.0, 1.0, *_fit(self.final), delta))

    def estimate_final_by_thresholds(self, delta: float) -> float:
        """The same with the formula of the first version."""
        return halfline_epsilon(0.0, 1.0, *_fit(self.final), delta)

    def mean_only_final(self, delta: float) -> float:
        """The final model with the width of the null: our default."""
        return float(gaussian_epsilon(0.0, 1.0, max(float(self.final.mean()), 0.0), 1.0, delta))

    def low_final(self, delta: float) -> float:
        """The papers' epsilon_lo of the final model, with the exact law of the null; not a bound."""
        cosines = np.clip(self.final / np.sqrt(self.dim), -1.0, 1.0)
        return bound_pointwise(Scores.of(cosines, null=CosineNull(self.dim)), delta=delta).epsilon


Statistic = Callable[[SeenCosines, float], float]
STATISTICS: dict[str, Statistic] = {
    "est-all": SeenCosines.estimate_all,
    "lo-all": SeenCosines.low_all,
    "est-final": SeenCosines.estimate_final,
    "lo-final": SeenCosines.low_final,
    "mean-only-final": SeenCosines.mean_only_final,
    "v1-est-all": SeenCosines.estimate_all_by_thresholds,
    "v1-est-final": SeenCosines.estimate_final_by_thresholds,
}


@dataclass(frozen=True)
class Simulated:
    """A statistic over runs of the model: mean, standard deviation, and where another run is with a probability of 95 %."""

    mean: float
    std: float
    runs: int
    low: float
    high: float

    @staticmethod
    def of(values: list[float]) -> Simulated:
        """Of these values."""
        low, high = np.quantile(values, [0.025, 0.975], method="weibull")  # of those that leave out 5 % of further values
        return Simulated(float(np.mean(values)), float(np.std(values, ddof=1)), len(values), float(low), float(high))

    def verdict(self, printed: str) -> RowVerdict | None:
        """Whether a number of a single run, rounded as it is printed, could be one of these: by quantiles, many are skewed."""
        if self.runs < ENOUGH:
            return None
        half = 0.5 * last_digit(printed)
        return "model-based" if self.low - half <= float(printed) <= self.high + half else "differs"

    def holds_mean(self, printed: float, std: float, runs: int) -> bool:
        """Whether a mean of other runs, with their standard deviation, is this mean."""
        return abs(printed - self.mean) <= AGREES * float(np.sqrt(self.std**2 / self.runs + std**2 / runs))


Simulation = tuple[PureNoiseRun, tuple[str, ...], float, int]  # a run, which statistics, delta, and the seed


def measure(task: Simulation) -> tuple[float, ...]:
    """The statistics of one run."""
    run, names, delta, seed = task
    seen = run.seen(seed)
    return tuple(STATISTICS[name](seen, delta) for name in names)


def split_threshold_epsilon(
    inserted: Array, delta: float, *, seed: int, held_out: Array | None = None, null: tuple[float, float] = (0.0, 1.0)
) -> float:
    """The unbiased estimate that the first version mentions: a threshold from one half of the cosines, epsilon from the other.

    Normals are fitted to each half; without `held_out` the `null` (mean, width) is known. Where the threshold of one half
    leaves the other less than delta beyond it, about 0 is left.
    """
    rng = stream(seed, "split threshold")
    first, second = np.split(rng.permutation(inserted), [inserted.size // 2])
    choose, judge = (null, _fit(first)), (null, _fit(second))
    if held_out is not None:
        one, other = np.split(rng.permutation(held_out), [held_out.size // 2])
        choose, judge = (_fit(one), _fit(first)), (_fit(other), _fit(second))
    low = min(choose[0][0] - 40 * choose[0][1], choose[1][0] - 40 * choose[1][1])
    high = max(choose[0][0] + 40 * choose[0][1], choose[1][0] + 40 * choose[1][1])
    thresholds = np.linspace(low, high, 40_001)
    for _ in range(6):
        values = _at(thresholds, *choose, delta)
        best = int(np.argmax(values))
        thresholds = np.linspace(thresholds[max(best - 2, 0)], thresholds[min(best + 2, thresholds.size - 1)], 401)
    return float(_at(thresholds[200:201], *judge, delta)[0])


def _at(thresholds: Array, null: tuple[float, float], inserted: tuple[float, float], delta: float) -> Array:
    """max( log((F0 - delta) / F1), log((1 - delta - F1) / (1 - F0)) ) at thresholds."""
    p, q = ((thresholds - mean) / width for mean, width in (null, inserted))
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.log(np.maximum(special.ndtr(p) - delta, 0.0)) - special.log_ndtr(q)
        right = np.log(np.maximum(special.ndtr(-q) - delta, 0.0)) - special.log_ndtr(-p)
    return np.asarray(np.fmax(left, right))


def _fit(values: Array) -> tuple[float, float]:
    """(mean, standard deviation) as the papers take them, dividing by k."""
    return float(values.mean()), float(values.std())
