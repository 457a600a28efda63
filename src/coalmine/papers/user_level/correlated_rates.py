"""Rates in the number of steps: closed forms at tuned learning rates, clipped training, and the cost of the matrix itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg

from coalmine.contracts import Array
from coalmine.mechanisms.strategies import Banded, Blt, Toeplitz
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart, RowVerdict
from coalmine.papers.user_level import clipped, theory

STEPS: Array = 2.0 ** np.arange(8.0, 15.0)
SCHEDULES: dict[str, Callable[[float], float]] = {
    "η = 4/T": lambda steps: 4 / steps,
    "η = ln T/T": lambda steps: math.log(steps) / steps,
}
KNOWN = {("η = 4/T", "SGD"): -1.002, ("η = 4/T", "FTRL"): -1.758, ("η = ln T/T", "SGD"): -0.869, ("η = ln T/T", "FTRL"): -1.508}
PRINTED = {"SGD": -1.0, "FTRL": -2.0}
EARLIER = (
    "The earlier theory, for convex losses of Lipschitz constant G, is printed as G d^(1/4)/sqrt(ρT) for DP-SGD and "
    "G d^(1/4)/sqrt(ρ²T) for DP-FTRL. Noise of standard deviation 1/sqrt(2ρ) in d dimensions gives G d^(1/2)/sqrt(ρT) without "
    "amplification, and G d^(1/4)/sqrt(ρ^(1/2) T) for the tree: the power of d in the first and of ρ in the second look like "
    "misprints. Neither shows the gain of correlated noise that the closed forms here show."
)
_ITERATIONS = 60  # of the dense factorization, at most


def reproduce(ask: Ask) -> PaperResult:
    """Slopes over T, beside the printed exponents."""
    parts = ask.parts(rates=rates, cost=cost, **{"dp-linear": dp_linear})

    def figure() -> Any:
        from coalmine.papers.user_level.drawings import rates as drawn

        lines = {
            f"{name}, {words}": (STEPS, [_error(name, schedule(each)) for each in STEPS])
            for words, schedule in SCHEDULES.items()
            for name in PRINTED
        }
        dashed = {"1/T²": (STEPS, 4 / STEPS**2)}
        return drawn(lines, {}, dashed, "steps T", "Mean estimation, learning rate tuned to T: error of the noise, ρ = 1")

    title = "Rates of independent and of correlated noise in the number of steps"
    found = PaperResult.of(ask.named("correlated-rates"), title, parts, error="standard error of a slope, over repetitions")
    return PaperResult(
        found.name, title, found.rows, found.error, found.checks, found.notes, ask.about(**found.about), found.details, figure
    )


def _error(name: str, rate: float) -> float:
    return theory.mean_sgd(rate) if name == "SGD" else theory.mean_ftrl(rate)


def rates(ask: Ask) -> ResultPart:
    """The closed forms of mean estimation over T."""
    rows, checks = [], []
    for words, schedule in SCHEDULES.items():
        for name, exponent in PRINTED.items():
            found = theory.slope(STEPS, np.array([_error(name, schedule(each)) for each in STEPS]))
            place = {"schedule": words, "method": name}
            note = "logarithms of T, which the printed rate leaves out, keep it from the exponent"
            known = KNOWN[words, name]
            near: RowVerdict = "same shape" if abs(found - known) < 0.05 else "differs"
            rows.append(PaperRow(f"{name}, {words}: slope in T", f"{exponent:g}", found, None, near, note, place))
            checks.append(PaperCheck(f"{name}, {words}: slope {found:.3f}, expected {known} ± 0.05", abs(found - known) < 0.05))
    return ResultPart(rows, checks, (EARLIER,))


def cost(ask: Ask) -> ResultPart:
    """Seconds and loss of a dense optimal factorization against strategies with few numbers, one participation."""
    rows, checks = [], []
    for rounds in ask.pick(full=(64, 128, 256, 512), quick=(32, 64, 128)):
        best, dense = _timed(lambda n=rounds: dense_loss(n))
        rows.append(PaperRow(f"dense, {rounds} rounds: rms loss", "optimal", best, None, None, f"{dense:.3g} s"))
        for name, make in (
            ("banded, all bands", lambda n=rounds: Banded.optimal(n, n).rms_error()),
            ("BLT, 3 buffers", lambda n=rounds: Blt.optimal(n, 3).rms_error()),
            ("ν, best of 40", lambda n=rounds: min(Toeplitz(n, nu).rms_error() for nu in np.geomspace(1e-4, 0.3, 40))),
        ):
            loss, seconds = _timed(make)
            share = loss / best - 1
            rows.append(
                PaperRow(
                    f"{name}, {rounds} rounds: rms loss",
                    "nearly optimal",
                    loss,
                    None,
                    "same shape" if -1e-3 < share < 0.06 else "differs",
                    f"{share:+.1%}, {seconds:.3g} s",
                )
            )
            checks.append(PaperCheck(f"{name}, {rounds} rounds: {share:+.2%} of the best matrix", -1e-3 < share < 0.06))
    return ResultPart(
        rows, checks, ("Seconds are of this machine. The dense factorization is cubic in the rounds, the others linear.",)
    )


_FAR = (4096, 8192)  # steps, beyond those that are trained


def dp_linear(ask: Ask) -> ResultPart:
    """Clipped training of a linear regression, the learning rate tuned for every T."""
    repetitions = ask.repeat(full=64, quick=16)
    lengths = ask.pick(full=(64, 128, 256, 512, 1024), quick=(64, 128, 256))
    found = clipped.study(ask, lengths, repetitions)
    rows, checks = [], []
    for name, (value, error) in found.slopes.items():
        printed = {"SGD": "-1", "FTRL": "-2"}[name]
        here, far = (clipped.expected_slope(name, each) for each in (tuple(lengths), _FAR))
        near: RowVerdict = "same shape" if abs(value - float(printed)) < 3 * error else "differs"
        agrees = abs(value - here) < 3 * error
        checks.append(PaperCheck(f"{name}: slope {value:.2f} ± {error:.2f}, exact at these T {here:.2f}", agrees))
        note = f"exact at these T {here:.2f}; between T = {_FAR[0]} and {_FAR[1]}: {far:.2f}"
        rows.append(PaperRow(f"{name}, clipped, linear regression: slope in T", printed, value, error, near, note))
    gap = found.slopes["SGD"][0] - found.slopes["FTRL"][0]
    spread = math.hypot(found.slopes["SGD"][1], found.slopes["FTRL"][1])
    checks.append(PaperCheck(f"the error of FTRL falls faster, by {gap:.2f} ± {spread:.2f} in the exponent", gap > 2 * spread))
    return ResultPart(rows, checks, (clipped.ABOUT,), details={"dp_linear": found.table})


def dense_loss(rounds: int) -> float:
    """The smallest rms error of prefix sums over all strategies with columns of norm 1: a fixed point of the dual problem.

    v = diag((V^½ AᵀA V^½)^½), V = diag(v) (Denisov et al. 2022); the squared loss is Σ v / n.
    """
    prefix = np.tril(np.ones((rounds, rounds)))
    gram, weights = prefix.T @ prefix, np.ones(rounds)
    for _ in range(_ITERATIONS):
        roots = np.sqrt(weights)
        values, vectors = linalg.eigh(roots[:, None] * gram * roots, check_finite=False)
        after = np.asarray(np.square(vectors) @ np.sqrt(np.maximum(values, 0.0)))
        done = float(np.abs(after / weights - 1).max()) < 1e-7
        weights = after
        if done:
            break
    strategy = _strategy(gram, weights)
    return float(np.sqrt(np.trace(gram @ np.linalg.inv(strategy)) / rounds))


def _strategy(gram: Array, weights: Array) -> Array:
    """X = V^-½ (V^½ AᵀA V^½)^½ V^-½, scaled to a diagonal of at most 1."""
    roots = np.sqrt(weights)
    values, vectors = linalg.eigh(roots[:, None] * gram * roots, check_finite=False)
    made = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T / roots[:, None] / roots
    return np.asarray(made / np.diag(made).max())


def _timed(make: Any) -> tuple[float, float]:
    begun = time.perf_counter()
    found = make()
    return float(found), time.perf_counter() - begun
