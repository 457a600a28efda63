"""Lower bounds from one run with coin-flipped canaries; no independence between canaries is assumed.

m canaries are each inserted by their own fair coin. From the scores alone, the auditor guesses "inserted" for the highest and
"held out" for the lowest, and abstains on the others; what counts is the number of right guesses.

* `bound_one_run`: Steinke, Nasr & Jagielski (2023). If the training is (epsilon, delta)-DP, the number of right
  guesses among r is dominated by Binomial(r, q) with q = 1/(1+e^-epsilon), up to a term for delta. With v right
  guesses the p-value of epsilon is

      beta + 2 m delta · max_{1<=i<=v} P(v > B >= v-i) / i,     beta = P(B >= v),  B ~ Binomial(r, q).

* `bound_one_run_fdp`: Mahloujifar, Melis & Chaudhuri (2024). The same counts tested against a whole trade-off curve,
  here mu-GDP; stronger, and an (epsilon, delta) statement only under that shape.

How many guesses to make must not depend on who was inserted: the counts are arguments, with a default that depends
on m alone. Scores tied across the limit of the guesses are counted as if the tie had been broken against the
auditor, so the result does not depend on row order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import brentq

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, LowerBound
from coalmine.errors import AssignmentError, NotEnoughCanariesError
from coalmine.estimators import _detect
from coalmine.estimators.gdp import SHAPE
from coalmine.gaussian import gaussian_epsilon
from coalmine.scores import Scores, independent_scores

COINS = "each canary was inserted by its own fair coin, and the guesses use the scores alone"
_MOST_GUESSES = 5_000
_NO_FAIR_COINS = 1e-9  # two-sided p-value of the number of inserted canaries


@dataclass(frozen=True)
class Guesses:
    """How many of the highest scores are guessed "inserted" and how many of the lowest "held out"; fixed before the run.

    Args:
        positive: Highest scores, guessed "inserted".
        negative: Lowest scores, guessed "held out".
    """

    positive: int
    negative: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "positive", _validate.whole("positive", self.positive))
        object.__setattr__(self, "negative", _validate.whole("negative", self.negative))
        if self.total < 1:
            raise ValueError("at least one guess is needed: Guesses(positive=..., negative=...).")

    @property
    def total(self) -> int:
        """r, the number of guesses."""
        return self.positive + self.negative

    @classmethod
    def default(cls, canaries: int) -> "Guesses":
        """A tenth of the canaries at each end, whatever the scores turn out to be; `best_guesses` plans for a claim."""
        each = max(1, min(canaries // 10, _MOST_GUESSES))
        return cls(each, each if canaries > 1 else 0)


def bound_one_run(scores: Scores, *, delta: float, confidence: float = 0.95, guesses: Guesses | None = None) -> LowerBound:
    """Lower bound on epsilon from guesses about coin-flipped canaries; assumes nothing about the scores.

    Args:
        scores: Of coin-flipped canaries.
        delta: Of the statement, above 0 and below 1.
        confidence: With which the statement holds.
        guesses: How many of either kind, fixed before the run; None: `Guesses.default`.

    Returns:
        The lower bound with its assumptions, ceiling and power.
    """
    delta, confidence = _validate.delta(delta, allow_zero=True), _validate.confidence(confidence)
    scores = independent_scores(scores)

    def limit(canaries: int, total: int, right: int) -> float:
        return one_run_epsilon(canaries, total, right, delta, confidence)

    return _bound(scores, guesses, delta, confidence, limit, "one run (Steinke et al.)", (COINS,))


def bound_one_run_fdp(scores: Scores, *, delta: float, confidence: float = 0.95, guesses: Guesses | None = None) -> LowerBound:
    """Lower bound on epsilon from the same guesses if the mechanism is mu-GDP.

    Args:
        scores: Of coin-flipped canaries.
        delta: Of the statement, above 0 and below 1.
        confidence: With which the statement holds.
        guesses: How many of either kind, fixed before the run; None: `Guesses.default`.

    Returns:
        The lower bound with its assumptions, ceiling and power.
    """
    delta, confidence = _validate.delta(delta), _validate.confidence(confidence)
    scores = independent_scores(scores)

    def limit(canaries: int, total: int, right: int) -> float:
        return one_run_fdp_epsilon(canaries, total, right, delta, confidence)

    return _bound(scores, guesses, delta, confidence, limit, "one run, f-DP (Mahloujifar et al.)", (COINS, SHAPE))


@lru_cache(maxsize=4096)
def one_run_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """The largest epsilon that `right` of `guesses` right guesses about `canaries` coins reject.

    >>> round(one_run_epsilon(1000, 200, 190, 1e-5, 0.95), 4)
    2.3936
    """
    if right < 1:
        return 0.0
    below = np.arange(right - 1, -1, -1)  # v-1, v-2, ..., 0
    log_ways = special.gammaln(guesses + 1.0) - special.gammaln(below + 1.0) - special.gammaln(guesses - below + 1.0)

    def p_value(epsilon: float) -> float:
        q = special.expit(epsilon)
        beta = float(special.betainc(right, guesses - right + 1.0, q))
        if delta == 0.0:
            return beta
        chances = np.exp(log_ways + below * np.log(q) + (guesses - below) * special.log_expit(-epsilon))
        alpha = float(np.max(np.cumsum(chances) / np.arange(1, right + 1)))
        return beta + 2 * canaries * delta * alpha

    return _largest_rejected(p_value, 1 - confidence)


@lru_cache(maxsize=4096)
def one_run_fdp_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """The largest epsilon whose Gaussian trade-off curve is rejected by `right` of `guesses` right guesses.

    >>> round(one_run_fdp_epsilon(1000, 200, 190, 1e-5, 0.95), 4)
    3.9161
    """
    if right < 1 or not _rejects(0.0, canaries, guesses, right, 1 - confidence):
        return 0.0
    low, high = 0.0, 1.0
    while _rejects(high, canaries, guesses, right, 1 - confidence):
        low, high = high, 2 * high
    while high - low > 1e-9 * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if _rejects(middle, canaries, guesses, right, 1 - confidence) else (low, middle)
    return float(gaussian_epsilon(0.0, 1.0, low, 1.0, delta))


def right_guesses(scores: Scores, guesses: Guesses) -> int:
    """The number of right guesses, ties across the limit broken against the auditor."""
    return _right_at_top(scores.value, scores.inserted, guesses.positive) + _right_at_top(
        -scores.value, ~scores.inserted, guesses.negative
    )


def _right_at_top(value: Array, truth: NDArray[np.bool_], count: int) -> int:
    if count == 0:
        return 0
    limit = np.partition(value, value.size - count)[value.size - count]
    above, tied = value > limit, value == limit
    wrong_ties = int((tied & ~truth).sum())
    return int((above & truth).sum()) + max(0, count - int(above.sum()) - wrong_ties)


def _largest_rejected(p_value: Callable[[float], float], miss: float) -> float:
    """sup{epsilon : p_value(epsilon) <= miss}, for a p-value that increases with epsilon."""
    if p_value(0.0) > miss:
        return 0.0
    high = 1.0
    while p_value(high) <= miss:
        high *= 2
    return float(brentq(lambda epsilon: p_value(epsilon) - miss, 0.0, high, xtol=1e-12))


def _rejects(mu: float, canaries: int, guesses: int, right: int, miss: float) -> bool:
    """Algorithm of Mahloujifar et al. for the curve of mu-GDP, whose inverse blow-up is x -> Phi(Phi^-1(x) - mu)."""
    r, h = miss * right / canaries, miss * (guesses - right) / canaries
    share = guesses / canaries
    for i in range(right - 1, -1, -1):
        if r + h > share:
            return True
        blown = float(special.ndtr(special.ndtri(r) - mu)) if r < 1 else 1.0
        if blown <= h:
            break
        r, h = min(1.0, r + i / (guesses - i) * (blown - h)), blown
    return r + h > share


def _bound(
    scores: Scores,
    guesses: Guesses | None,
    delta: float,
    confidence: float,
    limit: Callable[[int, int, int], float],
    method: str,
    assumptions: tuple[str, ...],
) -> LowerBound:
    canaries = scores.value.size
    guesses = Guesses.default(canaries) if guesses is None else guesses
    _check(scores, guesses)
    right = right_guesses(scores, guesses)

    def find(claim: float) -> float:
        return _detectable(canaries, guesses, lambda count: limit(canaries, guesses.total, count), claim, delta)

    return LowerBound(
        epsilon=limit(canaries, guesses.total, right),
        delta=delta,
        confidence=confidence,
        method=method,
        valid=True,
        assumptions=assumptions,
        ceiling=limit(canaries, guesses.total, guesses.total),
        multiplicity="guess counts fixed before the run",
        details={"canaries": canaries, "guesses": guesses.total, "right": right},
        finder=find,
    )


def _check(scores: Scores, guesses: Guesses) -> None:
    if scores.assignment != "coins":
        raise AssignmentError(
            f"one-run bounds need canaries inserted by fair coins; these scores have assignment={scores.assignment!r}. "
            "If every canary really had its own coin, say so (assignment='coins', --assignment coins); else use the band."
        )
    inserted, canaries = int(scores.inserted.sum()), scores.value.size
    if 2 * special.bdtr(min(inserted, canaries - inserted), canaries, 0.5) < _NO_FAIR_COINS:
        raise AssignmentError(
            f"{inserted} of {canaries} canaries are inserted: fair coins do not fall like that. Give the scores of all "
            "canaries for which a coin was thrown, or say assignment 'fixed' and use the band."
        )
    if guesses.total > scores.value.size:
        raise NotEnoughCanariesError(f"{guesses.total} guesses about {scores.value.size} canaries; at most one guess each.")


def _detectable(canaries: int, guesses: Guesses, limit: Callable[[int], float], claim: float, delta: float) -> float:
    """Smallest detectable epsilon: the count of right guesses needed is found once, then only counts are simulated."""
    low, high = 0, guesses.total
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if limit(middle) > claim else (middle, high)
    replicates = int(np.clip(4e6 / canaries, 20, _detect.REPLICATES))

    def share_above(mu: float) -> float:
        hits = 0
        for replicate in range(replicates):
            rng = stream(0, "detectable one run", replicate)
            coins = rng.random(canaries) < 0.5
            value = rng.standard_normal(canaries) + mu * coins
            hits += _right_at_top(value, coins, guesses.positive) + _right_at_top(-value, ~coins, guesses.negative) >= high
        return hits / replicates

    return _detect.smallest_detectable(share_above, claim, delta)
