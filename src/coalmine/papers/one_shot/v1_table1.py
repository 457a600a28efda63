"""Table 1 of the first version: the Gaussian mechanism at a million dimensions.

The first version maximises the epsilon of threshold attacks over the threshold (`halfline_epsilon`), where the ICLR version
compares two normals exactly; the two differ only where there is hardly any gap.
"""

from __future__ import annotations

import numpy as np

from coalmine.gaussian import gaussian_epsilon, halfline_epsilon
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow
from coalmine.papers.kit.printed import read_mean
from coalmine.papers.kit.rules import AGREES, allowed
from coalmine.papers.one_shot.noise_model import Simulated
from coalmine.papers.one_shot.numbers import SIMULATIONS, V1_TABLE1
from coalmine.simulation import simulate_gaussian_mechanism

DIM, CANARIES, DELTA = 1_000_000, 1000, 1e-6
_ESTIMATORS = ("mean only", "mean and width")


def reproduce(ask: Ask) -> PaperResult:
    """d = 10⁶, k = 10³: mean-only, and the printed algorithm with the first version's formula."""
    count = ask.repeat(full=50, quick=50)
    jobs = [(noise, ask.seed, number) for noise in V1_TABLE1 for number in range(count)]
    found = np.array(ask.each(estimates, jobs, "v1, table 1")).reshape(len(V1_TABLE1), count, len(_ESTIMATORS))
    rows, worst = [], 0.0
    for (noise, paper), block in zip(V1_TABLE1.items(), found, strict=True):
        mean, std = read_mean(paper)
        for name, values in zip(_ESTIMATORS, block.T, strict=True):
            ours = Simulated.of(list(values))
            z_std = (ours.std - std) / np.hypot(ours.std / np.sqrt(2 * (count - 1)), std / np.sqrt(2 * (SIMULATIONS - 1)))
            z_mean = (ours.mean - mean) / np.hypot(ours.std / count**0.5, std / SIMULATIONS**0.5)
            farthest = max(abs(z_mean), abs(z_std))
            if name == _ESTIMATORS[0]:
                worst = max(worst, farthest)
            analytic = float(gaussian_epsilon(0.0, 1.0, 1 / noise, 1.0, DELTA))
            rows.append(
                PaperRow(
                    f"{name}, sigma = {noise:g}",
                    paper,
                    ours.mean,
                    ours.std,
                    "exact" if farthest <= AGREES else "differs",
                    f"analytic {analytic:.2f}",
                    {"estimator": name, "sigma": noise},
                )
            )
    return PaperResult(
        "v1-table1",
        f"First version, Table 1: the Gaussian mechanism at d = 10^6, k = 10^3, delta = {DELTA:g}, {count} simulations",
        tuple(rows),
        error="standard deviation over simulations",
        checks=(
            PaperCheck(
                f"the mean-only estimator agrees with all values and deviations, the farthest by {worst:.1f} standard errors",
                worst <= allowed(2 * len(V1_TABLE1)),
            ),
        ),
        about=ask.about(simulations=count),
    )


def estimates(job: tuple[float, int, int]) -> tuple[float, float]:
    """(mean only, mean and width by thresholds) of one simulation."""
    noise, seed, number = job
    scores = simulate_gaussian_mechanism(DIM, CANARIES, noise, seed=seed * 1_000_003 + number)
    standardised = scores.inserted_values * DIM**0.5
    mean, width = float(standardised.mean()), float(standardised.std())
    return (
        float(gaussian_epsilon(0.0, 1.0, max(mean, 0.0), 1.0, DELTA)),
        halfline_epsilon(0.0, 1.0, mean, width, DELTA),
    )
