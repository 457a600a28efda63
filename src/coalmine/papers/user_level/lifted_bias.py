"""What more canaries cost and bring at epsilon = 4: their disturbance of each other (bias), and the width of the interval.

The true positive rate at a fixed threshold falls as canaries add k/d to the variance of each other's scores; its interval
shrinks as sqrt(1/(n k)) + n^(-3/4) with order 2 at best, hardly once the second term leads.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from coalmine.estimators._xbern import XBern
from coalmine.gaussian import gaussian_gap
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperRow, ResultPart
from coalmine.papers.user_level.lifted_gaussian import DELTA, DIM, EPSILON, simulated

BIAS, WIDTH = "bias of the true positive rate, k = {}", "width of its interval, k = {}"


def bias(ask: Ask) -> ResultPart:
    """Rate and width by k."""
    runs = ask.pick(full=4096, quick=256)
    canaries = ask.pick(full=(1, 4, 16, 64, 256, 1024), quick=(1, 4, 16, 64))
    gap = gaussian_gap(EPSILON, DELTA)
    found = ask.each(_rate, [(k, runs, ask.seed, gap) for k in canaries], "lifted, bias and variance")
    rows, widths = [], []
    for k, (rate, error, width) in zip(canaries, found, strict=True):
        where = {"k": k, "n": runs}
        rate_of_models = math.sqrt(1 / (runs * k)) + runs**-0.75
        rows.append(PaperRow(BIAS.format(k), "", rate - float(ndtr(0.0)), error, None, "", where))
        rows.append(PaperRow(WIDTH.format(k), "", width, None, None, f"sqrt(1/nk) + n^(-3/4) = {rate_of_models:.4f}", where))
        widths.append(width)
    check = PaperCheck("the interval gets narrower with more canaries", bool(np.all(np.diff(widths) < 0)))
    about = ask.about(models=runs, dim=DIM, epsilon=EPSILON)
    return ResultPart(rows, (check,), about=about, notes=("Rates at the threshold where one canary has 1/2.",))


def _rate(job: tuple[int, int, int, float]) -> tuple[float, float, float]:
    """(true positive rate, its standard error over models, width of the Wilson interval of order 2)."""
    k, runs, seed, gap = job
    took, _ = simulated(k, runs, seed, gap)
    shares = (took >= gap).mean(axis=1)
    order = 1 if k == 1 else 2
    left, right = XBern.of(shares, np.full(runs, k), order).interval(0.025, order=order, kind="wilson")
    return float(shares.mean()), float(shares.std(ddof=1) / math.sqrt(runs)), right - left
