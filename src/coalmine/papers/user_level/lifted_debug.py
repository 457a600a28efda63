"""What it costs to show a bug of the batch size: claimed epsilon 0.21, shown epsilon above 2.79 at confidence 1 - 1e-8.

The talk trained 200,000 models with and without one canary. How far above 2.79 the training really was is not known; three
values are looked at. Scores are independent and normal, as those of the Gaussian mechanism with this epsilon. Of every method
the numbers are those for which the expected rates give the bound, at the best threshold or number of guesses: what is needed
about half of the time by somebody who knows where to look.

    models, k canaries each    `bound_lifted` with Bernstein intervals, separate runs: as many with the canaries as without
    models, one canary         the same, and Clopper-Pearson intervals of both rates, as the talk's audit
    one model                  canaries by coins in a single model, up to a million: `bound_one_run`, whose term for delta
                               alone is above 1e-8 here, and `bound_one_run_fdp`, which assumes a Gaussian trade-off
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from coalmine.contracts import Array
from coalmine.estimators._xbern import XBern
from coalmine.estimators.one_run import one_run_epsilon, one_run_fdp_epsilon
from coalmine.gaussian import gaussian_gap
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperRow, ResultPart

CLAIMED, SHOWN, CONFIDENCE, DELTA = 0.21, 2.79, 1 - 1e-8, 1e-5
_MOST = {1: 10**6, 2: 10**8}  # canaries of one model; models of both kinds
Bound = Callable[[float, int], float]  # the expected bound by the gap and the number of models of one kind, or of canaries


def debug(ask: Ask) -> ResultPart:
    """Models, or canaries of one model, that show an epsilon above 2.79."""
    rows, ours = [], {}
    for epsilon in ask.pick(full=(4.0, 6.0, 8.0), quick=(6.0,)):
        gap = gaussian_gap(epsilon, DELTA)
        for name, (bound, kinds, paper) in WAYS.items():
            needed = smallest(partial(bound, gap), _MOST[kinds] // kinds)
            ours[name, epsilon] = math.inf if needed is None else float(needed * kinds)
            note = "half of them without the canaries" if kinds == 2 else ""
            note = f"more than {_MOST[kinds]:,}" if needed is None else note
            shown = None if needed is None else ours[name, epsilon]
            where = {"way": name, "true": epsilon}
            rows.append(PaperRow(f"{name}, true epsilon {epsilon:g}", paper, shown, None, None, note, where))
    worth = [ours[ONE, epsilon] / ours[MANY, epsilon] for name, epsilon in ours if name == ONE]
    check = PaperCheck(f"by the same intervals 64 canaries need {_range(worth)} times fewer models than one", min(worth) > 1)
    notes = (
        f"Claimed {CLAIMED}, shown {SHOWN} at confidence 1 - 1e-8. What the true epsilon of that training was is not known.",
        "At this confidence the last terms of Bernstein intervals fall with the number of models alone, whatever k is.",
    )
    return ResultPart(rows, (check,), notes=notes, about=ask.about(confidence=CONFIDENCE, delta=DELTA))


def _range(values: list[float]) -> str:
    return f"{min(values):.1f}" if len(values) == 1 else f"{min(values):.1f} to {max(values):.1f}"


def smallest(bound: Callable[[int], float], most: int) -> int | None:
    """The smallest number, to a hundredth, whose expected bound is above the one to be shown.

    >>> smallest(lambda n: math.log(n) - 4, 10**6)  # exactly: 889
    896
    """
    high = 64
    while bound(high) <= SHOWN:
        high *= 2
        if high > most:
            return None
    low = high // 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) > SHOWN else (middle, high)
    return high


def _thresholds(gap: float) -> Array:
    found: Array = np.linspace(gap - 2, gap + 4, 61)
    return found


def _lifted(k: int, gap: float, n: int) -> float:
    """The lifted bound of expected rates at the best threshold, n models of both kinds."""
    order, best = 1 if k == 1 else 2, 0.0
    for at in _thresholds(gap):
        moments = [tuple(float(ndtr(z)) ** power for power in (1, 2)) for z in (gap - at, -at)]
        low, high = (XBern(each, n, k).interval((1 - CONFIDENCE) / 2, order=order, kind="bernstein") for each in moments)
        if low[0] > DELTA:
            best = max(best, math.log((low[0] - DELTA) / high[1]))
    return best


def _exact(gap: float, n: int) -> float:
    """The bound of expected counts by Clopper-Pearson limits at the best threshold."""
    at, miss = _thresholds(gap), (1 - CONFIDENCE) / 2
    found, alarms = np.floor(n * ndtr(gap - at)), np.ceil(n * ndtr(-at))
    low = betaincinv(np.maximum(found, 1), n - np.maximum(found, 1) + 1, miss)
    high = betaincinv(np.minimum(alarms, n - 1) + 1, n - np.minimum(alarms, n - 1), 1 - miss)
    return float(np.max(np.log(np.maximum(low - DELTA, 1e-300) / high)))


def _one_run(limit: Callable[[int, int, int, float, float], float], confidence: float, gap: float, canaries: int) -> float:
    """A one-run bound of expected right guesses at the best number of guesses, half of them at each end."""
    best = 0.0
    for share in np.geomspace(1e-3, 0.4, 12):
        each = max(1, round(canaries * share))
        right = min(float(ndtr(gap - _limit(gap, share))) / 2 / share, 1.0)
        best = max(best, limit(canaries, 2 * each, math.floor(2 * each * right), DELTA, confidence))
    return best


def _limit(gap: float, share: float) -> float:
    """The value above which this share of all scores lies, half of them inserted."""
    low, high = float(ndtri(0.5 * share)) - gap, gap - float(ndtri(share / 4)) + 1
    for _ in range(60):
        middle = (low + high) / 2
        above = (float(ndtr(gap - middle)) + float(ndtr(-middle))) / 2
        low, high = (middle, high) if above > share else (low, middle)
    return high


ONE, MANY = "models, one canary", "models, 64 canaries each"
WAYS: dict[str, tuple[Bound, int, str]] = {  # what is counted: the bound, kinds of models, the talk's number
    f"{ONE}, Clopper-Pearson": (_exact, 2, "200,000"),
    ONE: (partial(_lifted, 1), 2, ""),
    MANY: (partial(_lifted, 64), 2, ""),
    "canaries in one model": (partial(_one_run, one_run_epsilon, CONFIDENCE), 1, ""),
    "canaries in one model, if Gaussian": (partial(_one_run, one_run_fdp_epsilon, CONFIDENCE), 1, ""),
    "canaries in one model, 95 % confidence": (partial(_one_run, one_run_epsilon, 0.95), 1, ""),
}
