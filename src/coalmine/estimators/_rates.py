"""Upper bounds on the two error rates of "guess inserted if score >= threshold", and the epsilon they imply.

    FNR  P(score < t | inserted)      missed canaries
    FPR  P(score >= t | held out)     false alarms

An (epsilon, delta)-DP release obeys 1 - FNR <= e^epsilon FPR + delta and 1 - FPR <= e^epsilon FNR + delta for every threshold
(Kairouz et al. 2015), so upper bounds on both rates give a lower bound on epsilon. If the rates hold at many
thresholds at once, the largest epsilon among them holds too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from coalmine import _validate
from coalmine.contracts import Array
from coalmine.errors import NotEnoughCanariesError
from coalmine.scores import Scores

Interval = Literal["clopper-pearson", "jeffreys"]
INTERVALS = ("clopper-pearson", "jeffreys")
Orders = NDArray[np.int64]
LogUpper = Callable[[Orders, int], Array]  # (order j from 1, count n) -> log upper bound of the rate with j-1 errors in n

INDEPENDENT = "the scores of inserted canaries are independent draws of one law, given the run"
EXCHANGEABLE = "held-out scores are independent draws of the law that an inserted canary would have followed if left out"


@dataclass(frozen=True)
class Fixed:
    """One threshold, chosen before looking at these scores.

    Args:
        value: The threshold: scores above it are taken for participants.
    """

    value: float

    def __post_init__(self) -> None:
        _validate.between("threshold", self.value, -np.inf, np.inf)


@dataclass(frozen=True)
class Split:
    """Choose the threshold on a random share of the canaries, evaluate it on the others.

    Args:
        fraction: Share of the canaries on which the threshold is chosen.
        seed: By which they are drawn.
    """

    fraction: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.between("fraction", self.fraction, 0.0, 1.0)


@dataclass(frozen=True)
class AllThresholds:
    """Every inserted score as a threshold, paid for by Bonferroni's correction."""


Threshold = Fixed | Split | AllThresholds


def check_threshold(threshold: object, *kinds: type) -> None:
    """A bare number is not enough: how a threshold was chosen is part of the statement."""
    if not isinstance(threshold, kinds):
        allowed = " or ".join(f"{kind.__name__}(...)" for kind in kinds)
        raise ValueError(f"threshold={threshold!r} is not allowed: it must be {allowed}.")


def epsilon_of_rates(log_fnr: Array, log_fpr: Array, delta: float) -> Array:
    """max( log((1-delta-FNR)/FPR), log((1-delta-FPR)/FNR), 0 ), elementwise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        seen = _log_rest(log_fnr, delta) - log_fpr
        cleared = _log_rest(log_fpr, delta) - log_fnr
    best = np.maximum(np.nan_to_num(seen, nan=0.0, posinf=np.inf), np.nan_to_num(cleared, nan=0.0, posinf=np.inf))
    return np.asarray(np.maximum(best, 0.0))


def sweep(scores: Scores, orders: Orders, log_upper: LogUpper) -> tuple[Array, Array]:
    """(log FNR, log FPR) bounds at the thresholds X_(j), j in `orders`.

    At t = X_(j) fewer than j inserted scores lie below t; if a held-out scores lie at or above t, the false-positive rate is
    at most the rate whose bound belongs to the (a+1)-th largest held-out score. Ties count against the audit on both sides.
    """
    inserted = np.sort(scores.inserted_values)
    thresholds = inserted[orders - 1]
    log_fnr = log_upper(orders, inserted.size)
    if scores.null is not None:
        return log_fnr, np.asarray(scores.null.logsf(thresholds))
    held_out = np.sort(scores.held_out_values)
    above = held_out.size - np.searchsorted(held_out, thresholds, side="left")
    log_fpr = np.zeros(orders.size)
    known = above < held_out.size
    log_fpr[known] = log_upper(above[known] + 1, held_out.size)
    return log_fnr, log_fpr


def perfect_rates(scores: Scores, log_upper: LogUpper, fixed: float | None = None) -> tuple[Array, Array]:
    """(log FNR, log FPR) bounds if these canaries were separated perfectly.

    A known null law then has no false alarms at all, unless the threshold was `fixed` beforehand and has its own rate.
    """
    first = np.array([1])
    log_fnr = log_upper(first, int(scores.inserted.sum()))
    if scores.null is None:
        return log_fnr, log_upper(first, int((~scores.inserted).sum()))
    return log_fnr, np.array([-np.inf if fixed is None else float(scores.null.logsf(fixed))])


def ceiling(scores: Scores, log_upper: LogUpper, delta: float, fixed: float | None = None) -> float:
    """The epsilon that perfect separation of these canaries would have given."""
    return float(epsilon_of_rates(*perfect_rates(scores, log_upper, fixed), delta)[0])


def miss_share(scores: Scores, confidence: float) -> float:
    """The failure probability for one error rate: all of it with an exact null, half of it if both rates are measured."""
    return (1 - confidence) if scores.null is not None else (1 - confidence) / 2


def assumptions(scores: Scores) -> tuple[str, ...]:
    """What the rates of these scores rest on."""
    return (INDEPENDENT, *(scores.null.assumptions if scores.null is not None else (EXCHANGEABLE,)))


def log_binomial_upper(errors: NDArray[np.int64], trials: int, level: float | Array, interval: Interval) -> Array:
    """log of the one-sided upper confidence bound of an error rate after `errors` in `trials`.

    Clopper–Pearson is exact (never misses more often than `level`); Jeffreys is narrower and misses up to 14 % at a
    nominal 5 %.
    """
    extra = 0.0 if interval == "clopper-pearson" else 0.5
    errors = np.asarray(errors)
    inner = np.minimum(errors, trials - 1) if extra == 0.0 else errors
    upper = special.betainccinv(inner + (1.0 - extra), trials - inner + extra, level)
    return np.asarray(np.log(np.where(errors >= trials, 1.0, upper)))


def halves(scores: Scores, split: Split) -> tuple[Scores, Scores]:
    """(scores to choose the threshold on, scores to evaluate it on), the same whatever the order of the rows.

    The shuffle is keyed by the scores themselves. One shuffle for all would put the same ranks into the same half in
    every audit of this size: no random split, and a "95 %" bound that missed in 23 % of audits with 300 canaries.
    """
    from coalmine._random import stream

    rng = stream(split.seed, "split", scores.sha256)
    parts = []
    for values, needed in ((scores.inserted_values, True), (scores.held_out_values, scores.null is None)):
        shuffled = rng.permutation(np.sort(values))
        cut = round(split.fraction * shuffled.size)
        if needed and not 0 < cut < shuffled.size:
            raise NotEnoughCanariesError(f"{shuffled.size} scores cannot be split for choosing and evaluating a threshold.")
        parts.append((shuffled[:cut], shuffled[cut:]))
    (choose_in, judge_in), (choose_out, judge_out) = parts
    return Scores.of(choose_in, choose_out, null=scores.null), Scores.of(judge_in, judge_out, null=scores.null)


def _log_rest(log_rate: Array, delta: float) -> Array:
    """log(1 - delta - rate), -inf where that is not positive."""
    return np.asarray(np.log(np.maximum(1.0 - delta - np.exp(log_rate), 0.0)))
