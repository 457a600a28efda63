"""Linear regression: the error of correlated noise follows the effective dimension, that of independent noise the dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from coalmine._random import stream
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, RowVerdict
from coalmine.papers.user_level import theory

RATE, DIMENSIONS = 0.02, (10, 100, 1000)
MANY = (10, 31, 100, 316, 1000)
RATES = tuple(np.geomspace(1e-3, 0.3, 9))
SIMULATED_DIM = 20
EXPONENTS = {"SGD, d": "1", "FTRL, d": "0, but for logarithms", "SGD, η": "1", "FTRL, η": "2, but for logarithms"}
KNOWN_SLOPES = {"SGD, d": 1.00, "FTRL, d": 0.17, "SGD, η": 0.99, "FTRL, η": 1.79}


def reproduce(ask: Ask) -> PaperResult:
    """ρ F_∞ by dimension and by learning rate, and a simulation with sampled examples."""
    rows = []
    for spectrum in ("skewed", "flat"):
        for dim in DIMENSIONS:
            values = theory.skewed(dim) if spectrum == "skewed" else np.ones(dim)
            effective = theory.effective_dimension(values)
            for name, printed, found in (
                ("SGD", "d η/ρ", theory.linear_sgd(RATE, values)),
                ("FTRL", "d_eff η² log²(1/(ημ))/ρ", theory.linear_ftrl(RATE, values)),
            ):
                place = {"spectrum": spectrum, "dim": dim, "method": name}
                words = f"{name}, {spectrum} spectrum, d = {dim}, d_eff = {effective:.3g}"
                rows.append(PaperRow(words, printed, found, None, None, f"{found:.6g}", place))
    slopes = _slopes()
    for name, found in slopes.items():
        near: RowVerdict = "same shape" if abs(found - KNOWN_SLOPES[name]) < 0.05 else "differs"
        rows.append(PaperRow(f"slope: {name}", EXPONENTS[name], found, None, near, "of the closed forms"))
    checks = [
        PaperCheck(
            f"slope of {name}: {found:.3f}, expected {KNOWN_SLOPES[name]:g} ± 0.05", abs(found - KNOWN_SLOPES[name]) < 0.05
        )
        for name, found in slopes.items()
    ]
    chains, steps = ask.pick(full=(24, 60_000), quick=(12, 20_000))
    measured = ask.each(simulated, [(damped, chains, steps, ask.seed) for damped in (False, True)], "simulations")
    values = theory.skewed(SIMULATED_DIM)
    expected = (theory.linear_sgd(RATE, values), theory.linear_ftrl(RATE, values))
    for name, (found, error), formula in zip(("SGD", "FTRL"), measured, expected, strict=True):
        share = found / formula - 1
        words = f"{name}, skewed spectrum, d = {SIMULATED_DIM}, examples sampled"
        rows.append(PaperRow(words, "", found, error, None, f"closed form {formula:.6g}: {share:+.1%}"))
        low, high = -3 * error / formula, 0.06 + 3 * error / formula
        text = f"{name}, simulated: {share:+.1%} ± {error / formula:.1%} of the formula, which leaves out that examples vary"
        checks.append(PaperCheck(text, low <= share <= high))

    def figure() -> Any:
        from coalmine.papers.user_level.drawings import rates

        spectra = [theory.skewed(dim) for dim in MANY]
        lines = {
            "SGD": (MANY, [theory.linear_sgd(RATE, each) for each in spectra]),
            "FTRL": (MANY, [theory.linear_ftrl(RATE, each) for each in spectra]),
        }
        dots = {"SGD, simulated": ([SIMULATED_DIM], [measured[0][0]]), "FTRL, simulated": ([SIMULATED_DIM], [measured[1][0]])}
        bound = {"d_eff η²": (MANY, [theory.effective_dimension(each) * RATE**2 for each in spectra])}
        return rates(lines, dots, bound, "dimension", "Linear regression: stationary error of the noise, ρ = 1, η = 0.02")

    return PaperResult(
        "correlated-linear",
        "Linear regression: stationary error of independent and of correlated noise, ρ = 1",
        tuple(rows),
        error="standard error over chains",
        checks=tuple(checks),
        notes=("The lower bound d_eff η²/ρ holds for every choice of coefficients, up to a constant.",),
        about=ask.about(chains=chains, steps=steps),
        figure=figure,
    )


def _slopes() -> dict[str, float]:
    dims, spectra = np.array(MANY, dtype=float), [theory.skewed(dim) for dim in MANY]
    by_rate, fixed = np.array(RATES), theory.skewed(100)
    return {
        "SGD, d": theory.slope(dims, np.array([theory.linear_sgd(RATE, each) for each in spectra])),
        "FTRL, d": theory.slope(dims, np.array([theory.linear_ftrl(RATE, each) for each in spectra])),
        "SGD, η": theory.slope(by_rate, np.array([theory.linear_sgd(rate, fixed) for rate in by_rate])),
        "FTRL, η": theory.slope(by_rate, np.array([theory.linear_ftrl(rate, fixed) for rate in by_rate])),
    }


def simulated(job: tuple[bool, int, int, int]) -> tuple[float, float]:
    """(δᵀHδ, its standard error over chains), over the second half of the steps; the closed forms have no half either."""
    damped, chains, steps, seed = job
    values = theory.skewed(SIMULATED_DIM)
    rng = stream(seed, "linear regression", int(damped))
    damping = RATE * float(values.min()) if damped else None
    noise = np.stack([theory.correlated_noise(rng, SIMULATED_DIM, steps, damping).T for _ in range(chains)], axis=1)
    place, total, roots = np.zeros((chains, SIMULATED_DIM)), np.zeros(chains), np.sqrt(values)
    for step in range(steps):
        example = rng.standard_normal(place.shape) * roots
        place -= RATE * (example * np.einsum("cd,cd->c", example, place)[:, None] + noise[step])
        if step >= steps // 2:
            total += np.square(place) @ values
    found = total / (steps - steps // 2)
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(chains))
