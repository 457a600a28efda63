"""Lower bounds from several runs with several canaries each (Pillutla et al. 2023, "Unleashing the power of randomization").

Each of n runs tests k exchangeable canaries, giving k correlated bits ("XBern"). Their mean has variance mu/k +
(k-1)/k mu_2 - mu², where mu_l is the probability that l given bits are all one: between mu(1-mu)/k for independent
bits and mu(1-mu) for identical ones. Estimating mu_2 (order 2), or mu_2 with the help of mu_3 and mu_4 (order 4),
lets the interval use what independence there is.

    symbol    here          meaning
    n, k      runs, bits    training runs; canaries per run
    mu_l      moments[l-1]  average over runs of m_l, where m_1 = mean and m_{l+1} = m_l (k m_1 - l)/(k - l)

Two families: Wilson-type intervals are asymptotic (`valid=False`), Bernstein-type ones hold for every n. In the
order-4 variance the code published with the paper has mu_4 - mu_3² and other terms in the place of the exact ones;
it is wider, and available as `variance="published"`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, LowerBound
from coalmine.errors import AssignmentError, NotEnoughCanariesError
from coalmine.estimators import _detect
from coalmine.estimators._rates import Fixed, Split, check_threshold
from coalmine.scores import Scores, independent_scores

Kind = Literal["wilson", "bernstein"]
VarianceForm = Literal["exact", "published"]
_CANDIDATES = 100  # thresholds looked at when one is chosen on a split of the runs


@dataclass(frozen=True)
class XBern:
    """Moments of n runs of k exchangeable bits; `interval` bounds the mean on either side."""

    moments: tuple[float, ...]
    runs: int
    bits: int

    @classmethod
    def of(cls, means: Array, bits: NDArray[np.int64], order: int) -> "XBern":
        """From each run's share of ones and its number of bits; the smallest number of bits bounds the variance of all runs."""
        moment, moments = np.ones_like(means), []
        for power in range(order):
            moment = moment * (bits * means - power) / (bits - power)
            moments.append(float(moment.mean()))
        return cls(tuple(moments), means.size, int(bits.min()))

    def interval(self, miss: float, *, order: int, kind: Kind, variance: VarianceForm = "exact") -> tuple[float, float]:
        """(left, right): each side misses the mean with probability at most `miss`.

        >>> left, right = XBern((0.5, 0.25, 0.125, 0.0625), runs=1000, bits=10).interval(0.05, order=2, kind="wilson")
        >>> round(left, 6), round(right, 6)
        (0.484341, 0.512215)
        """
        n, k, mean = self.runs, self.bits, self.moments[0]
        if order == 1 or k == 1:
            return _solve(kind, mean, n, miss, 1.0, 0.0, 1.0)
        share = miss / order
        if order == 2:
            second = _solve(kind, self.moments[1], n, share, 1.0, 0.0, 1.0)[1]
        else:
            second = self._second_moment(share, kind, variance)
        return _solve(kind, mean, n, share, 1 / k, (k - 1) / k * second, 1.0)

    def _second_moment(self, miss: float, kind: Kind, variance: VarianceForm) -> float:
        """Upper bound of mu_2 from Var(m_2) = [2 mu_2 + 4(k-2) mu_3 + (k-2)(k-3) mu_4]/(k(k-1)) - mu_2²."""
        n, k = self.runs, self.bits
        third = _solve(kind, self.moments[2], n, miss, 1.0, 0.0, 1.0)[1]
        fourth = _solve(kind, self.moments[3], n, miss, 1.0, 0.0, 1.0)[1]
        pairs = k * (k - 1)
        if variance == "exact":
            constant, square = (4 * (k - 2) * third + (k - 2) * (k - 3) * fourth) / pairs, 1.0
        else:
            constant = (4 * (k - 2) * third + (k - 2) * (k - 3) * (fourth - third**2)) / pairs
            square = (2 + 4 * (k - 2)) / pairs
        return _solve(kind, self.moments[1], n, miss, 2 / pairs, constant, square)[1]


def bound_lifted(
    scores: Scores,
    *,
    delta: float,
    confidence: float = 0.95,
    threshold: Fixed | Split | None = None,
    order: int = 2,
    kind: Kind = "bernstein",
    variance: VarianceForm = "exact",
) -> LowerBound:
    """Lower bound on epsilon from the inserted and held-out canaries of many runs (`scores.labels["run"]`).

    The threshold is fixed beforehand or chosen on a share of the runs (default). Only `kind="bernstein"` is valid
    for any number of runs; "wilson" is narrower and asymptotic. At order 4, `variance="published"` has no proof either:
    it falls as the bound on mu_3 grows, so that an upper bound there need not give an upper bound of the variance.
    """
    delta, confidence = _validate.delta(delta, allow_zero=True), _validate.confidence(confidence)
    scores = independent_scores(scores)
    _validate.one_of("kind", kind, ("wilson", "bernstein"))
    _validate.one_of("variance", variance, ("exact", "published"))
    if order not in (1, 2, 4):
        raise ValueError(f"order={order!r} is not allowed: it must be 1, 2 or 4.")
    runs = _runs(scores, order)
    threshold = Split() if threshold is None else threshold
    check_threshold(threshold, Fixed, Split)
    miss = (1 - confidence) / 2

    def limit(part: list[_Run], at: float) -> float:
        return _epsilon(part, at, delta, miss, order, kind, variance)

    judged, value = _choose(runs, threshold, limit)
    perfect = [_Run(np.ones_like(run.inserted), np.zeros_like(run.held_out)) for run in judged]
    standard = _detect.standardised(threshold, scores)

    def share_above(mu: float, claim: float) -> float:
        trials = [_simulated(runs, mu, replicate) for replicate in range(40)]
        choices = (_choose(trial, standard, limit) for trial in trials)
        return sum(limit(*choice) > claim for choice in choices) / len(trials)

    return LowerBound(
        epsilon=limit(judged, value),
        delta=delta,
        confidence=confidence,
        method=f"lifted, {kind} intervals of order {order}" + (" (published variance)" if variance == "published" else ""),
        valid=kind == "bernstein" and (order < 4 or variance == "exact"),
        assumptions=("the runs are independent, and the canaries of a run are exchangeable",),
        ceiling=limit(perfect, 0.5),
        multiplicity="one threshold, fixed beforehand" if isinstance(threshold, Fixed) else "threshold chosen on other runs",
        details={"runs": len(judged), "threshold": value},
        finder=lambda claim: _detect.smallest_detectable(lambda mu: share_above(mu, claim), claim, delta),
    )


@dataclass(frozen=True)
class _Run:
    inserted: Array
    held_out: Array


def _runs(scores: Scores, order: int) -> list[_Run]:
    if "run" not in scores.labels:
        raise AssignmentError(
            "lifted bounds need several training runs: give the scores a 'run' column. For one run use bound_band."
        )
    # sorted, so that the result does not depend on the order of the rows
    keys = np.lexsort((scores.value, scores.inserted, scores.labels["run"]))
    run, value, inserted = scores.labels["run"][keys], scores.value[keys], scores.inserted[keys]
    cuts = np.flatnonzero(np.diff(run)) + 1
    parts = zip(np.split(value, cuts), np.split(inserted, cuts), strict=True)
    runs = [_Run(values[mask], values[~mask]) for values, mask in parts]
    fewest = min(min(part.inserted.size, part.held_out.size) for part in runs)
    if len(runs) < 2 or fewest < max(1, order):
        raise NotEnoughCanariesError(
            f"{len(runs)} runs with at least {fewest} inserted and held-out canaries each; order {order} needs "
            f"at least 2 runs and {max(1, order)} of both kinds in every run."
        )
    return runs


def _epsilon(
    runs: list[_Run], threshold: float, delta: float, miss: float, order: int, kind: Kind, variance: VarianceForm
) -> float:
    """log((TPR_left - delta)/FPR_right) and, from the same two events, log((1 - delta - FPR_right)/(1 - TPR_left))."""
    found, _ = _xbern([run.inserted for run in runs], threshold, order).interval(
        miss, order=order, kind=kind, variance=variance
    )
    _, alarms = _xbern([run.held_out for run in runs], threshold, order).interval(
        miss, order=order, kind=kind, variance=variance
    )
    with np.errstate(divide="ignore"):
        seen = np.log(max(found - delta, 0.0)) - np.log(alarms)
        cleared = np.log(max(1 - delta - alarms, 0.0)) - np.log(1 - found)
    return float(max(seen, cleared, 0.0))


def _xbern(groups: list[Array], threshold: float, order: int) -> XBern:
    means = np.array([np.mean(group >= threshold) for group in groups])
    return XBern.of(means, np.array([group.size for group in groups]), order)


def _choose(
    runs: list[_Run], threshold: Fixed | Split, limit: Callable[[list[_Run], float], float]
) -> tuple[list[_Run], float]:
    """(runs to judge by, threshold)."""
    if isinstance(threshold, Fixed):
        return runs, float(threshold.value)
    cut = round(threshold.fraction * len(runs))
    if not 0 < cut < len(runs):
        raise NotEnoughCanariesError(f"{len(runs)} runs cannot be split for choosing and judging a threshold; give Fixed(t).")
    shuffled = [runs[i] for i in stream(threshold.seed, "split runs").permutation(len(runs))]
    tuning, judged = shuffled[:cut], shuffled[cut:]
    pooled = np.concatenate([part for run in tuning for part in (run.inserted, run.held_out)])
    candidates = np.unique(np.quantile(pooled, np.linspace(0.01, 0.99, _CANDIDATES)))
    return judged, float(max(candidates, key=lambda at: limit(tuning, at)))


def _simulated(runs: list[_Run], mu: float, replicate: int) -> list[_Run]:
    """Independent normal scores of the same design."""
    rng = stream(0, "detectable lifted", replicate)
    return [_Run(rng.standard_normal(run.inserted.size) + mu, rng.standard_normal(run.held_out.size)) for run in runs]


def _solve(kind: Kind, mean: float, n: int, miss: float, linear: float, constant: float, square: float) -> tuple[float, float]:
    """Interval for a mean whose variance is linear·x + constant - square·x² at the true mean x."""
    if kind == "wilson":
        return _wilson(mean, n, miss, linear, constant, square)
    return _bernstein(mean, n, miss, linear, constant, square)


def _wilson(mean: float, n: int, miss: float, linear: float, constant: float, square: float) -> tuple[float, float]:
    """The roots of n (x - mean)² = z² (linear·x + constant - square·x²), never wider than variance ¼ allows."""
    z = float(-special.ndtri(miss))
    a, b = n + square * z**2, 2 * n * mean + linear * z**2
    c = n * mean**2 - constant * z**2
    root = np.sqrt(max(b * b - 4 * a * c, 0.0))
    margin = z / (2 * np.sqrt(n))
    left, right = (b - root) / (2 * a), (b + root) / (2 * a)
    return float(max(left, mean - margin, 0.0)), float(min(right, mean + margin, 1.0))


def _bernstein(mean: float, n: int, miss: float, linear: float, constant: float, square: float) -> tuple[float, float]:
    """The x with |x - mean| = (2/3n) log(1/miss) + sqrt(2 var(x) log(1/miss)/n), the variance limited to [0, ¼]."""
    log_miss = -np.log(miss)

    def margin(x: float) -> float:
        variance = min(max(linear * x + constant - square * x * x, 0.0), 0.25)
        return float(2 / 3 * log_miss / n + np.sqrt(2 * variance * log_miss / n))

    left = 0.0 if mean - margin(0.0) < 0 else _root(lambda x: mean - x - margin(x), 0.0, mean)
    right = 1.0 if 1 - mean - margin(1.0) < 0 else _root(lambda x: x - mean - margin(x), mean, 1.0)
    return left, right


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-14))
