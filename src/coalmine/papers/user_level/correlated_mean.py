"""Estimation of a mean: the stationary error of noisy SGD and of ν-DP-FTRL, in closed form and by simulation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.signal import lfilter

from coalmine._random import stream
from coalmine.papers.kit.checking import TOGETHER, CheckedNumber, one_by_one
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow
from coalmine.papers.user_level import theory

RATES = (0.5, 0.1, 0.01, 0.001)
SIMULATED = (0.1, 0.01)
STEPS = 60  # over the learning rate: until nothing is left of the start
_CHAINS = 250  # at once


def reproduce(ask: Ask) -> PaperResult:
    """ρ F_∞ by learning rate: η against η² log²(1/η)."""
    chains = ask.repeat(full=4000, quick=1000)
    rows, compared = [], []
    dots: dict[str, tuple[list[float], list[float]]] = {"SGD, simulated": ([], []), "FTRL, simulated": ([], [])}
    jobs = [(rate, damped, chains, ask.seed) for rate in SIMULATED for damped in (False, True)]
    measured = dict(zip(((job[0], job[1]) for job in jobs), ask.each(simulated, jobs, "simulations"), strict=True))
    for rate in RATES:
        for damped, name, printed in ((False, "SGD", "η/ρ"), (True, "FTRL", "η² log²(1/η)/ρ")):
            exact = theory.mean_ftrl(rate) if damped else theory.mean_sgd(rate)
            place = {"rate": rate, "method": name}
            rows.append(PaperRow(f"{name}, η = {rate:g}, closed form", printed, exact, None, None, f"{exact:.6g}", place))
            if (rate, damped) in measured:
                found = measured[rate, damped]
                error = found * np.sqrt(2 / chains)
                rows.append(
                    PaperRow(f"{name}, η = {rate:g}, simulated", "", found, error, None, f"closed form {exact:.6g}", place)
                )
                text = f"{name}, η = {rate:g}: simulation {found:.4g} ± {error:.2g}, closed form {exact:.4g}"
                compared.append(CheckedNumber("simulation", text, abs(found - exact) / error))
                dots[f"{name}, simulated"][0].append(rate)
                dots[f"{name}, simulated"][1].append(found)
    off = {factor: theory.mean_ftrl(0.01, 0.01 * factor) / theory.mean_ftrl(0.01) - 1 for factor in (0.1, 10.0)}
    checks = one_by_one(compared)
    for rate in RATES:
        known = rate**2 / 2 * theory.squared_sensitivity(rate) ** 2
        checks.append(
            PaperCheck(f"η = {rate:g}: quadrature equals the closed form", abs(theory.mean_ftrl(rate) / known - 1) < 1e-6)
        )
    checks.append(
        PaperCheck(f"ν = η is best: ν = η/10 costs {off[0.1]:+.0%}, ν = 10 η {off[10.0]:+.0%}", min(off.values()) > 0)
    )
    grid = np.geomspace(1e-3, 0.5, 40)

    def figure() -> Any:
        from coalmine.papers.user_level.drawings import rates

        lines = {
            "SGD": (grid, [theory.mean_sgd(rate) for rate in grid]),
            "FTRL": (grid, [theory.mean_ftrl(rate) for rate in grid]),
        }
        bound = {"η²/(2ρ)": (grid, grid**2 / 2)}
        return rates(lines, dots, bound, "learning rate", "Mean estimation: stationary error of the noise, ρ = 1")

    return PaperResult(
        "correlated-mean",
        "Mean estimation: stationary error of independent and of correlated noise, ρ = 1",
        tuple(rows),
        error="standard error over chains",
        checks=tuple(checks),
        notes=(
            "The printed rates hide constants: η/4 and η² log²(8/η)/(2π²). The data part of the error is the same for both.",
            TOGETHER,
        ),
        about=ask.about(chains=chains),
        figure=figure,
    )


def simulated(job: tuple[float, bool, int, int]) -> float:
    """The mean square of the last iterate, over chains."""
    rate, damped, chains, seed = job
    rng, steps, total = stream(seed, "mean estimation", str(rate), int(damped)), int(STEPS / rate), 0.0
    draw = partial(theory.correlated_noise, rng, steps=steps, damping=rate if damped else None)
    for begin in range(0, chains, _CHAINS):
        noise = draw(min(_CHAINS, chains - begin))
        last = lfilter([-rate], [1.0, -(1 - rate)], noise, axis=1)[:, -1]
        total += float(np.square(last).sum())
    return total / chains
