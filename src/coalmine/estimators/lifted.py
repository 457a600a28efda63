"""Lower bounds from several runs with several canaries each (Pillutla et al. 2023, "Unleashing the power of randomization").

Each of n runs tests k exchangeable canaries, giving k correlated bits ("XBern"). Their mean has variance mu/k +
(k-1)/k mu_2 - mu², where mu_l is the probability that l given bits are all one: between mu(1-mu)/k for independent
bits and mu(1-mu) for identical ones. Estimating mu_2 (order 2), or mu_2 with the help of mu_3 and mu_4 (order 4),
lets the interval use what independence there is.

    symbol    here          meaning
    n, k      runs, bits    training runs; canaries per run
    mu_l      moments[l-1]  average over runs of m_l, where m_1 = mean and m_{l+1} = m_l (k m_1 - l)/(k - l)

Which game the runs prove depends on the design:

    design      runs                                              bits    game                  bound
    separate    with k canaries; others with k held-out ones      k       add-or-remove-one     log((TPR - delta)/FPR)
    same-run    exactly k of 2k canaries inserted                 k       replace-one           the same
    coins       each of K canaries by its own fair coin           K       add-or-remove-one     log((x - delta/2)/y)

In each of them the bound is the larger of this and its mirror. With coins b, x is the mean of b 1[s >= t] and y that of
(1 - b) 1[s >= t] over the whole pool: P(b = 1, s >= t) <= e^epsilon P(b = 0, s >= t) + delta/2 holds for every canary, and
the K products are exchangeable. Inserted and held-out canaries of one run with fixed numbers of both differ by an exchange:
whoever is inserted tells who is not, so that such runs say nothing about adding or removing one.

A threshold that is not fixed beforehand is chosen on other runs: the one whose Wilson bound of order 2 is best with as many
runs as are judged, and of equally good ones the middle one.

Two families: Wilson-type intervals are asymptotic (`valid=False`), Bernstein-type ones hold for every n. In the
order-4 variance the code published with the paper has mu_4 - mu_3² and other terms in the place of the exact ones;
it is wider, and available as `variance="published"`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, LowerBound
from coalmine.errors import AssignmentError, NotEnoughCanariesError
from coalmine.estimators import _detect
from coalmine.estimators._rates import Fixed, Split, check_threshold
from coalmine.estimators._xbern import Kind, VarianceForm, XBern
from coalmine.scores import Scores, independent_scores

__all__ = ["DESIGNS", "LiftedDesign", "XBern", "bound_lifted"]

_CANDIDATES = 100  # thresholds looked at when one is chosen on a split of the runs


def bound_lifted(
    scores: Scores,
    *,
    delta: float,
    design: str | None = None,
    confidence: float = 0.95,
    threshold: Fixed | Split | None = None,
    order: int = 2,
    kind: Kind = "bernstein",
    variance: VarianceForm = "exact",
) -> LowerBound:
    """Lower bound on epsilon from the inserted and held-out canaries of many runs (`scores.labels["run"]`).

    `design` says how canaries were assigned to runs, and so which game is proved; without it the scores say: "coins" if they
    were, "separate" if every run has canaries of one kind, else "same-run". The threshold is fixed beforehand or chosen on a
    share of the runs (default). Only `kind="bernstein"` is valid for any number of runs; "wilson" is narrower and asymptotic.
    At order 4, `variance="published"` has no proof either: it falls as the bound on mu_3 grows, so an upper bound there need
    not give an upper bound of the variance.

    Args:
        scores: With the label "run".
        delta: Of the statement, above 0 and below 1.
        design: "coins", "separate" or "same-run"; None: as the scores say.
        confidence: With which the statement holds.
        threshold: `Fixed(t)` or `Split()`.
        order: Of the moments: 1, 2 or 4.
        kind: "bernstein" or "wilson".
        variance: "exact" or "published".

    Returns:
        The lower bound with its assumptions, ceiling and power.
    """
    delta, confidence = _validate.delta(delta, allow_zero=True), _validate.confidence(confidence)
    scores = independent_scores(scores)
    _validate.one_of("kind", kind, ("wilson", "bernstein"))
    _validate.one_of("variance", variance, ("exact", "published"))
    if order not in (1, 2, 4):
        raise ValueError(f"order={order!r} is not allowed: it must be 1, 2 or 4.")
    runs = _runs(scores, order, design)
    threshold = Split() if threshold is None else threshold
    check_threshold(threshold, Fixed, Split)
    miss = (1 - confidence) / 2

    def limit(part: _Runs, at: float) -> float:
        return part.epsilon(at, delta, lambda bits: bits.interval(miss, order=order, kind=kind, variance=variance), order)

    judged, value = _choose(runs, threshold, delta, miss)
    standard = _detect.standardised(threshold, scores)

    def share_above(mu: float, claim: float) -> float:
        trials = [runs.simulated(mu, replicate) for replicate in range(40)]
        choices = (_choose(trial, standard, delta, miss) for trial in trials)
        return sum(limit(*choice) > claim for choice in choices) / len(trials)

    return LowerBound(
        epsilon=limit(judged, value),
        delta=delta,
        confidence=confidence,
        method=f"lifted, {kind} intervals of order {order}" + (" (published variance)" if variance == "published" else ""),
        valid=kind == "bernstein" and (order < 4 or variance == "exact"),
        assumptions=("the runs are independent, and the canaries of a run are exchangeable", DESIGNS[runs.design].assumption),
        ceiling=limit(judged.perfect(), 0.5),
        multiplicity="one threshold, fixed beforehand" if isinstance(threshold, Fixed) else "threshold chosen on other runs",
        details={"runs": judged.count, "threshold": value},
        finder=lambda claim: _detect.smallest_detectable(lambda mu: share_above(mu, claim), claim, delta),
        neighbours=DESIGNS[runs.design].relation,
    )


@dataclass(frozen=True)
class LiftedDesign:
    """How canaries are assigned to runs: what is proved, and on which assumption."""

    relation: str
    assumption: str


DESIGNS = {
    "separate": LiftedDesign(
        "add-or-remove-one", "runs that held-out canaries are scored in are like the others without one of their canaries"
    ),
    "same-run": LiftedDesign("replace-one", "which canaries of a run are inserted is a uniform choice of a fixed number"),
    "coins": LiftedDesign(
        "add-or-remove-one", "each canary is inserted by its own fair coin, and a score depends on its own canary"
    ),
}


@dataclass(frozen=True)
class _Bits:
    """Scores of one kind in several runs, and how many bits each run counts."""

    value: Array
    run: NDArray[np.int64]  # of each score: 0, 1, ... below the number of runs
    bits: NDArray[np.int64]

    def above(self, threshold: float, order: int) -> XBern:
        """Moments of the bits "score >= threshold"."""
        ones = np.bincount(self.run[self.value >= threshold], minlength=self.bits.size)
        return XBern.of(ones / self.bits, self.bits, order)

    def taken(self, chosen: NDArray[np.int64]) -> "_Bits":
        """Some of the runs."""
        place = np.full(self.bits.size, -1)
        place[chosen] = np.arange(chosen.size)
        inside = place[self.run] >= 0
        return _Bits(self.value[inside], place[self.run[inside]], self.bits[chosen])


@dataclass(frozen=True)
class _Runs:
    """The scores of both kinds, in the same runs or in separate ones."""

    design: str
    inserted: _Bits
    held_out: _Bits

    @property
    def count(self) -> int:
        return int(self.inserted.bits.size) + (int(self.held_out.bits.size) if self.design == "separate" else 0)

    def epsilon(self, threshold: float, delta: float, interval: Callable[[XBern], tuple[float, float]], order: int) -> float:
        """log((TPR_left - delta)/FPR_right), and from the same two events log((1 - delta - FPR_right)/(1 - TPR_left)).

        With coins all rates are of joint events, whose halves add up to 1/2.
        """
        whole = 0.5 if self.design == "coins" else 1.0
        found, _ = interval(self.inserted.above(threshold, order))
        _, alarms = interval(self.held_out.above(threshold, order))
        with np.errstate(divide="ignore", invalid="ignore"):
            seen = np.log(max(found - whole * delta, 0.0)) - np.log(alarms)
            cleared = np.log(max(whole - whole * delta - alarms, 0.0)) - np.log(max(whole - found, 0.0))
        return float(max(seen, np.nan_to_num(cleared, nan=0.0, posinf=np.inf), 0.0))

    def split(self, share: float, seed: int) -> tuple["_Runs", "_Runs"]:
        """(runs to choose on, runs to judge by)."""
        orders = [stream(seed, "split runs").permutation(self.inserted.bits.size)] * 2
        if self.design == "separate":
            orders[1] = stream(seed, "split runs", "held out").permutation(self.held_out.bits.size)
        parts = []
        for late in (False, True):
            chosen = []
            for order in orders:
                cut = round(share * order.size)
                if not 0 < cut < order.size:
                    raise NotEnoughCanariesError(
                        f"{order.size} runs cannot be split for choosing and judging a threshold; give Fixed(t)."
                    )
                chosen.append(order[cut:] if late else order[:cut])
            parts.append(_Runs(self.design, self.inserted.taken(chosen[0]), self.held_out.taken(chosen[1])))
        return parts[0], parts[1]

    def perfect(self) -> "_Runs":
        """The same design with all inserted scores 1 and all others 0."""
        return replace(
            self,
            inserted=replace(self.inserted, value=np.ones_like(self.inserted.value)),
            held_out=replace(self.held_out, value=np.zeros_like(self.held_out.value)),
        )

    def simulated(self, mu: float, replicate: int) -> "_Runs":
        """Independent normal scores of the same design."""
        rng = stream(0, "detectable lifted", replicate)
        took, did_not = rng.standard_normal(self.inserted.value.size) + mu, rng.standard_normal(self.held_out.value.size)
        return replace(self, inserted=replace(self.inserted, value=took), held_out=replace(self.held_out, value=did_not))


def _runs(scores: Scores, order: int, design: str | None) -> _Runs:
    if "run" not in scores.labels:
        raise AssignmentError(
            "lifted bounds need several training runs: give the scores a 'run' column. For one run use bound_band."
        )
    numbers, run = np.unique(scores.labels["run"], return_inverse=True)
    took, all_of_them = np.bincount(run[scores.inserted], minlength=numbers.size), np.bincount(run)
    did_not = all_of_them - took
    mixed = (took > 0) & (did_not > 0)
    if design is None:
        design = "coins" if scores.assignment == "coins" else "separate" if not mixed.any() else "same-run"
    _validate.one_of("design", design, tuple(DESIGNS))
    if design == "coins" and scores.assignment == "fixed":
        raise AssignmentError("design='coins' needs canaries that were each inserted by a coin; these scores say fixed.")
    if design == "separate" and mixed.any():
        raise AssignmentError(
            f"design='separate' needs runs with scores of inserted or of held-out canaries alone; {int(mixed.sum())} runs "
            "have both. Inserted and held-out canaries of one run are design 'same-run', or 'coins'."
        )
    if design == "same-run" and np.unique(took).size > 1 and scores.assignment == "coins":
        raise AssignmentError("design='same-run' needs a fixed number of inserted canaries; these have coins: design='coins'.")
    separate = design == "separate"
    kinds = [_kind(scores, run, took, separate, True), _kind(scores, run, did_not, separate, False)]
    if design == "coins":
        kinds = [replace(each, bits=all_of_them if each.value.size else each.bits) for each in kinds]
    fewest = min(int(each.bits.min()) if each.bits.size else 0 for each in kinds)
    if min(each.bits.size for each in kinds) < 2 or fewest < max(1, order):
        raise NotEnoughCanariesError(
            f"{numbers.size} runs ({kinds[0].bits.size} and {kinds[1].bits.size}) with at least {fewest} inserted and held-out "
            f"canaries each; order {order} needs at least 2 runs and {max(1, order)} of both kinds in every run."
        )
    return _Runs(design, *kinds)


def _kind(scores: Scores, run: NDArray[np.int64], sizes: NDArray[np.int64], separate: bool, inserted: bool) -> _Bits:
    """The scores of one kind; in separate runs only the runs that have any."""
    mine = scores.inserted == inserted
    kept = np.flatnonzero(sizes) if separate else np.arange(sizes.size)
    place = np.full(sizes.size, -1)
    place[kept] = np.arange(kept.size)
    return _Bits(scores.value[mine], place[run[mine]], sizes[kept])


def _choose(runs: _Runs, threshold: Fixed | Split, delta: float, miss: float) -> tuple[_Runs, float]:
    """(runs to judge by, threshold)."""
    if isinstance(threshold, Fixed):
        return runs, float(threshold.value)
    tuning, judged = runs.split(threshold.fraction, threshold.seed)
    pooled = np.sort(np.concatenate([tuning.inserted.value, tuning.held_out.value]))
    candidates = np.unique(np.quantile(pooled, np.linspace(0.01, 0.99, _CANDIDATES)))
    sizes = iter([judged.inserted.bits.size, judged.held_out.bits.size] * candidates.size)
    order = 2 if min(tuning.inserted.bits.min(), tuning.held_out.bits.min()) > 1 else 1

    def expected(bits: XBern) -> tuple[float, float]:
        return replace(bits, runs=int(next(sizes))).interval(miss, order=order, kind="wilson")

    values = np.array([tuning.epsilon(float(at), delta, expected, order) for at in candidates])
    best = np.flatnonzero(values == values.max())
    return judged, float(candidates[best[best.size // 2]])
