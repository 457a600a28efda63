"""Linear regression with clipped gradients: DP-SGD and ν-DP-FTRL, the learning rate tuned for every number of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import signal

from coalmine._random import stream
from coalmine.contracts import Array
from coalmine.mechanisms.strategies import Toeplitz
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.user_level import theory

DIM, CLIP, RHO, BATCH = 10, 1.0, 0.002, 64
GRID = tuple(np.geomspace(0.01, 2.0, 16))
METHODS = ("SGD", "FTRL")
ABOUT = (
    f"Part dp-linear: d = {DIM}, ρ = {RHO}, gradients of single examples clipped to {CLIP:g}, targets with little noise, every "
    "example once. The learning rate is the best of 16 for each T and method, on repetitions of its own; for FTRL, ν = η λ_min."
    " The exponents -1 and -2 leave out logarithms, and so few steps are far from them: what the model still has to learn is a "
    "fifth to a half of its error. Checks compare them with the exact error of the same recursion without clipping and"
    " sampling, at these T and with the best of many learning rates; the last column also has its slope at T = 4096 to 8192, "
    "which is still not the exponent."
)


@dataclass(frozen=True)
class ExcessRisks:
    """Excess risks by method and steps, and their slopes."""

    table: dict[str, dict[str, Any]]
    slopes: dict[str, tuple[float, float]]


def study(ask: Ask, lengths: tuple[int, ...], repetitions: int) -> ExcessRisks:
    """Tune, then measure with fresh repetitions."""
    jobs = [(method, steps, repetitions, ask.seed) for method in METHODS for steps in lengths]
    done = ask.each(measured, jobs, "clipped training")
    table: dict[str, dict[str, Any]] = {method: {} for method in METHODS}
    slopes = {}
    for (method, steps, *_), (rate, risks) in zip(jobs, done, strict=True):
        table[method][str(steps)] = {
            "rate": rate,
            "risk": float(np.mean(risks)),
            "error": float(np.std(risks) / len(risks) ** 0.5),
        }
    for method in METHODS:
        means = np.array([each["risk"] for each in table[method].values()])
        errors = np.array([each["error"] for each in table[method].values()]) / means
        places = np.log(np.array(lengths, dtype=float))
        centred = places - places.mean()
        slopes[method] = (
            theory.slope(np.array(lengths, dtype=float), means),
            float(np.sqrt(centred**2 @ errors**2) / (centred @ centred)),
        )
    return ExcessRisks(table, slopes)


def measured(job: tuple[str, int, int, int]) -> tuple[float, list[float]]:
    """(the best learning rate, excess risks of fresh repetitions with it)."""
    method, steps, repetitions, seed = job
    tuned = [float(np.mean(_risks(method, steps, rate, repetitions, seed, "tuning"))) for rate in GRID]
    best = float(GRID[int(np.argmin(tuned))])
    return best, _risks(method, steps, best, repetitions, seed, "measuring").tolist()


def expected_slope(method: str, lengths: tuple[int, ...]) -> float:
    """The slope in T of the exact error with the best learning rate: no clipping, gradients of the whole population."""
    best = [min(expected_risk(method, steps, rate) for rate in np.geomspace(0.002, 1.9, 80)) for steps in lengths]
    return theory.slope(np.array(lengths, dtype=float), np.array(best))


def expected_risk(method: str, steps: int, rate: float) -> float:
    """½ Σ λ (bias² + variance) of θ <- θ - η (H (θ - θ*) + noise), started at 0."""
    values = theory.skewed(DIM)
    weights = _weights(method, steps, rate)
    found = 0.5 * float(values @ (1 - rate * values) ** (2 * steps)) / DIM
    for value in values:
        passed = signal.lfilter([1.0], [1.0, rate * value - 1.0], weights)  # of the noise of so many steps ago
        found += 0.5 * float(value * (passed @ passed)) * (rate * CLIP / BATCH) ** 2 / (2 * RHO)
    return found


def _weights(method: str, steps: int, rate: float) -> Array:
    if method != "FTRL":
        return np.asarray(np.eye(1, steps)[0])
    return Toeplitz(steps, min(rate * float(theory.skewed(DIM).min()), 0.5)).inverse_column()


def _risks(method: str, steps: int, rate: float, repetitions: int, seed: int, purpose: str) -> Array:
    """½ (θ - θ*)ᵀ H (θ - θ*) after the last step, one for every repetition."""
    rng = stream(seed, "clipped regression", purpose, method, steps)
    values = theory.skewed(DIM)
    weights = _weights(method, steps, rate)
    fresh = rng.standard_normal((steps, repetitions, DIM))
    noise = np.apply_along_axis(lambda each: np.convolve(each, weights)[:steps], 0, fresh) * CLIP / np.sqrt(2 * RHO)
    target = np.ones(DIM) / np.sqrt(DIM)
    place, batch = np.zeros((repetitions, DIM)), BATCH
    for step in range(steps):
        examples = rng.standard_normal((batch, repetitions, DIM)) * np.sqrt(values)
        residual = np.einsum("brd,rd->br", examples, place - target) + 0.01 * rng.standard_normal((batch, repetitions))
        gradients = examples * residual[..., None]
        norms = np.maximum(np.linalg.norm(gradients, axis=2, keepdims=True), 1e-12)
        total = (gradients * np.minimum(1.0, CLIP / norms)).sum(axis=0)
        place = place - rate * (total + noise[step]) / batch
    return np.asarray(np.square(place - target) @ values / 2)
