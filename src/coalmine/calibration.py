"""How often is a statement wrong? Simulated audits with a known truth, for every bound and every interval.

The first question to any estimator is what it says when nothing leaks; the second, whether a 95 % bound exceeds the truth
in at most 5 % of audits when something does. Scores are normal, N(0,1) held out and N(mu,1) inserted, with mu chosen so that
the true epsilon at delta is the stated one. Binary scores, the worst case for bounds that count errors, are judged exactly,
without simulation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from coalmine._random import stream
from coalmine.contracts import Array, LowerBound
from coalmine.estimators._rates import Fixed, Split, epsilon_of_rates
from coalmine.estimators.anytime import bound_anytime
from coalmine.estimators.band import bound_band
from coalmine.estimators.bayesian import bound_bayesian
from coalmine.estimators.gaussian_fit import Variance, estimate_gaussian
from coalmine.estimators.gdp import bound_gdp
from coalmine.estimators.lifted import bound_lifted
from coalmine.estimators.one_run import bound_one_run, bound_one_run_fdp
from coalmine.estimators.threshold import bound_pointwise, bound_threshold
from coalmine.gaussian import gaussian_gap
from coalmine.nulls import GaussianNull
from coalmine.scores import Scores

Bound = Callable[..., LowerBound]
_RUNS = 40  # training runs of a simulated lifted audit


def _with(bound: Bound, **options: object) -> Bound:
    return lambda scores, **common: bound(scores, **options, **common)


VALID: dict[str, Bound] = {
    "band": bound_band,
    "threshold, all": bound_threshold,
    "threshold, split": _with(bound_threshold, threshold=Split()),
    "threshold, fixed": _with(bound_threshold, threshold=Fixed(1.0)),
    "gdp, band": bound_gdp,
    "gdp, fixed": _with(bound_gdp, threshold=Fixed(1.0)),
    "one-run": bound_one_run,
    "one-run f-DP": bound_one_run_fdp,
    "anytime": bound_anytime,
    "lifted, Bernstein 1": _with(bound_lifted, order=1, threshold=Fixed(1.0)),
    "lifted, Bernstein 2": _with(bound_lifted, order=2, threshold=Fixed(1.0)),
    "lifted, Bernstein 4": _with(bound_lifted, order=4, threshold=Fixed(1.0)),
    "lifted, split": bound_lifted,
}
APPROXIMATE: dict[str, Bound] = {
    "Jeffreys, all": _with(bound_threshold, interval="jeffreys"),
    "Jeffreys, fixed": _with(bound_threshold, interval="jeffreys", threshold=Fixed(1.0)),
    "Bayesian": _with(bound_bayesian, threshold=Fixed(1.0)),
    "lifted, Wilson 2": _with(bound_lifted, kind="wilson", threshold=Fixed(1.0)),
    "pointwise (papers)": bound_pointwise,
}
OF_COINS = frozenset({"one-run", "one-run f-DP"})  # methods for canaries that coins decide about
OF_RUNS = frozenset({*(f"lifted, Bernstein {order}" for order in (1, 2, 4)), "lifted, split", "lifted, Wilson 2"})  # many runs


@dataclass(frozen=True)
class Case:
    """One line of a calibration: a method, the truth, and the size of the audit."""

    method: str
    epsilon: float
    delta: float = 1e-5
    canaries: int = 1000  # inserted; of a pool of twice as many for coin-flipped designs
    exact_null: bool = True
    confidence: float = 0.95

    @cached_property
    def gap(self) -> float:
        """mu of the inserted scores."""
        return gaussian_gap(self.epsilon, self.delta) if self.epsilon > 0 else 0.0


def false_statements(case: Case, audits: int, *, seed: int = 0) -> int:
    """How many of `audits` simulated audits claim more than the truth."""
    bound = {**VALID, **APPROXIMATE}[case.method]
    wrong = 0
    for audit in range(audits):
        scores = _scores(case, stream(seed, "calibration", case.method, int(case.exact_null), case.canaries, audit))
        wrong += bound(scores, delta=case.delta, confidence=case.confidence).epsilon > case.epsilon
    return wrong


def misses(case: Case, variance: Variance, audits: int, *, seed: int = 0) -> int:
    """How many of `audits` intervals of the Gaussian estimate do not contain the truth."""
    missed = 0
    for audit in range(audits):
        scores = _scores(case, stream(seed, "intervals", variance, int(case.exact_null), case.canaries, audit))
        found = estimate_gaussian(scores, delta=case.delta, variance=variance, confidence=case.confidence)
        missed += not found.low <= case.epsilon <= found.high
    return missed


def ever_wrong(effect: float, *, scores: int, sequences: int, confidence: float = 0.95, seed: int = 0) -> int:
    """How many of `sequences` running bounds on a mean effect ever exceed it, looked at after every score."""
    from coalmine.estimators.anytime import anytime_gaps

    values = stream(seed, "ever wrong").standard_normal((sequences, scores)) + effect
    return int(sum((anytime_gaps(row, confidence) > effect).any() for row in values))


def binary_false_statements(
    bound: Bound, *, fnr: float, fpr: float, canaries: int, exact_null: bool, delta: float, confidence: float = 0.95
) -> float:
    """The exact probability that a bound exceeds the truth when scores are 0 or 1.

    The number of inserted zeros is Binomial(canaries, fnr), that of held-out ones Binomial(canaries, fpr), and the true
    epsilon is that of the two rates. Counts with a probability below 1e-9 are taken as false statements.
    """
    truth = float(epsilon_of_rates(np.log([fnr]), np.log([fpr]), delta)[0]) * (1 + 1e-12)
    missed, missed_chance = _likely_counts(canaries, fnr)
    alarms, alarms_chance = (np.zeros(1, int), np.ones(1)) if exact_null else _likely_counts(canaries, fpr)
    right = 0.0
    for zeros, chance in zip(missed, missed_chance, strict=True):
        inserted = (np.arange(canaries) >= zeros).astype(float)
        for ones, other_chance in zip(alarms, alarms_chance, strict=True):
            held_out = [] if exact_null else (np.arange(canaries) < ones).astype(float)
            scores = Scores.of(inserted, held_out, null=_BinaryNull(fpr) if exact_null else None)
            if bound(scores, delta=delta, confidence=confidence).epsilon <= truth:
                right += chance * other_chance
    return 1.0 - right


@dataclass(frozen=True)
class _BinaryNull:
    """A score that is 1 with probability `rate` and else 0."""

    rate: float
    name = "binary"
    assumptions = ()
    slack = 0.0

    @property
    def center(self) -> float:
        return self.rate

    @property
    def spread(self) -> float:
        return float(np.sqrt(self.rate * (1 - self.rate)))

    def logsf(self, value: ArrayLike) -> Array:
        return np.where(np.asarray(value) <= 0, 0.0, np.where(np.asarray(value) <= 1, np.log(self.rate), -np.inf))


def _likely_counts(trials: int, rate: float) -> tuple[Array, Array]:
    counts = np.arange(trials + 1)
    ways = special.gammaln(trials + 1) - special.gammaln(counts + 1) - special.gammaln(trials - counts + 1)
    chance = np.exp(ways + special.xlogy(counts, rate) + special.xlog1py(trials - counts, -rate))
    likely = chance > 1e-9
    return counts[likely], chance[likely]


def _scores(case: Case, rng: np.random.Generator) -> Scores:
    """One simulated table of scores; coins decide for one-run bounds, runs are labelled for lifted ones."""
    null = GaussianNull() if case.exact_null else None
    if case.method in OF_COINS:
        coins = rng.random(2 * case.canaries) < 0.5
        return Scores(rng.standard_normal(coins.size) + case.gap * coins, coins, assignment="coins", null=null)
    lifted = case.method in OF_RUNS
    held_out = 0 if case.exact_null and not lifted else case.canaries
    inserted = np.arange(case.canaries + held_out) < case.canaries
    value = rng.standard_normal(inserted.size) + case.gap * inserted
    labels = {"run": np.arange(inserted.size) % _RUNS} if lifted else {}
    return Scores(value, inserted, labels=labels, null=null)
