"""Figure 4 of the ICLR paper: 1,000 canaries in one run, or 100 in each of ten, under Algorithm 1.

The paper trains a thousand models on Stack Overflow and draws quantiles of the estimates, which "are very close"; it prints no
number. Nothing is trained here: under Algorithm 1, the Gaussian mechanism, the two are equal in distribution up to k/d, and the
exact sampler shows it: 50 experiments of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalmine.contracts import Array
from coalmine.gaussian import gaussian_epsilon
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperRow
from coalmine.simulation import simulate_gaussian_mechanism

DIM, CANARIES, RUNS = 1_000_000, 1000, 10
DELTA = 1e-6
NOISES = (0.541, 1.54)
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
WAYS = {"one run of 1,000 canaries": 1, "ten runs of 100": RUNS}
LEAST_P = 0.001  # of the test of one law, below which the two ways would be said to differ


@dataclass(frozen=True)
class Runs:
    """What both ways give."""

    rows: list[PaperRow]
    checks: tuple[PaperCheck, ...]
    quantiles: dict[str, dict[str, list[float]]]
    figure: Callable[[], Any]


def compare_runs(ask: Ask) -> Runs:
    """Quantiles of the estimate for both ways and both noises, and a test of whether they have one law."""
    count = ask.repeat(full=50, quick=50)
    jobs = [(noise, runs, ask.seed, number) for noise in NOISES for runs in WAYS.values() for number in range(count)]
    values = np.array(ask.each(estimate, jobs, "figure 4")).reshape(len(NOISES), len(WAYS), count)
    rows, checks, quantiles = [], [], {}
    for noise, (one, ten) in zip(NOISES, values, strict=True):
        p_value = _same_law(one, ten)
        lines = {way: np.quantile(found, QUANTILES).tolist() for way, found in zip(WAYS, (one, ten), strict=True)}
        quantiles[f"noise multiplier {noise:g}"] = lines
        rows += [
            PaperRow(
                what=f"Figure 4, {way}, sigma = {noise:g}",
                paper="very close" if runs > 1 else "",
                ours=float(found.mean()),
                error=float(found.std(ddof=1)),
                verdict=("same shape" if p_value >= LEAST_P else "differs") if runs > 1 else None,
                note="quantiles .1 .3 .5 .7 .9: " + " ".join(f"{value:.2f}" for value in lines[way]),
                place={"estimator": "mean", "dim": DIM, "sigma": noise, "runs": runs},
            )
            for (way, runs), found in zip(WAYS.items(), (one, ten), strict=True)
        ]
        checks.append(
            PaperCheck(
                f"one run or ten, sigma = {noise:g}: one law (Kolmogorov–Smirnov, p = {p_value:.2g})", p_value >= LEAST_P
            )
        )

    def figure() -> Any:
        from coalmine.papers.one_shot.drawings import quantile_lines

        return quantile_lines(quantiles, QUANTILES)

    return Runs(rows, tuple(checks), quantiles, figure)


def estimate(job: tuple[float, int, int, int]) -> float:
    """The mean-only estimate of 1,000 canaries that took part in so many independent runs."""
    noise, runs, seed, number = job
    seeds = [(seed * 1_000_003 + number) * 2 * RUNS + runs + run for run in range(runs)]
    each = [simulate_gaussian_mechanism(DIM, CANARIES // runs, noise, seed=one).inserted_values for one in seeds]
    mean = float(np.concatenate(each).mean()) * DIM**0.5
    return float(gaussian_epsilon(0.0, 1.0, max(mean, 0.0), 1.0, DELTA))


def _same_law(first: Array, second: Array) -> float:
    from scipy.stats import ks_2samp

    return float(ks_2samp(first, second).pvalue)
