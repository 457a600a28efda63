"""Closed forms of noisy SGD and ν-DP-FTRL (Choquette-Choo et al. 2023, "Correlated Noise Provably Beats Independent Noise").

    paper    here          meaning
    η        rate          learning rate; the loss is half a square, so that an error shrinks by 1 - η λ in every step
    ν        damping       |B(ω)|² = |1 - (1 - ν) e^{iω}|, the noise is B z
    ρ        1             zCDP: noise of variance |B⁻¹e|²/(2ρ), no clipping
    F_∞      ...           stationary part of the error that the noise is responsible for

Along an eigenvalue λ:  F_∞ = λ η² avg_ω(|B|²/|1 - ηλ - e^{iω}|²) · avg_ω(|B|⁻²)/(2ρ), with avg |B|⁻² = (2/π) K((1 - ν)²). By
the inequality of Cauchy and Schwarz the best of all B for one eigenvalue has ν = ηλ.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ellipk

from coalmine.contracts import Array

_PANELS, _NODES = 80, 24
_SMALLEST = 1e-11  # angle below which everything is constant


def squared_sensitivity(damping: float) -> float:
    """|B⁻¹e|² = (2/π) K((1 - ν)²) of infinitely many steps.

    >>> round(squared_sensitivity(0.5), 6)
    1.073182
    """
    return float(2 / np.pi * ellipk((1 - damping) ** 2))


def average(damping: float, shrink: float) -> float:
    """avg_ω(|1 - (1 - ν)e^{iω}| / |1 - shrink - e^{iω}|²), on panels whose widths grow with the angle."""
    edges = np.concatenate([[0.0], np.geomspace(_SMALLEST, np.pi, _PANELS)])
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = np.diff(edges) / 2
    angles = (edges[:-1] + half)[:, None] + half[:, None] * nodes
    squares = 4 * np.sin(angles / 2) ** 2  # |1 - e^{iω}|², without cancellation
    top = np.sqrt(damping**2 + (1 - damping) * squares)
    bottom = shrink**2 + (1 - shrink) * squares
    return float(((top / bottom) @ weights @ half) / np.pi)


def mean_sgd(rate: float) -> float:
    """Estimation of a mean with independent noise: η/(2(2 - η))."""
    return rate / (2 * (2 - rate))


def mean_ftrl(rate: float, damping: float | None = None) -> float:
    """With ν-correlated noise; at ν = η this is (η²/2) ((2/π) K((1 - η)²))²."""
    damping = rate if damping is None else damping
    return rate**2 * average(damping, rate) * squared_sensitivity(damping) / 2


def linear_sgd(rate: float, eigenvalues: Array) -> float:
    """Linear regression with independent noise: Σ η/(2(2 - ηλ))."""
    return float((rate / (2 * (2 - rate * eigenvalues))).sum())


def linear_ftrl(rate: float, eigenvalues: Array) -> float:
    """Linear regression with ν-correlated noise, ν = η λ_min."""
    damping = rate * float(eigenvalues.min())
    values, counts = np.unique(eigenvalues, return_counts=True)
    parts = [value * average(damping, rate * value) for value in values]
    return float(rate**2 * (counts @ np.array(parts)) * squared_sensitivity(damping) / 2)


def effective_dimension(eigenvalues: Array) -> float:
    """Trace over the largest eigenvalue."""
    return float(eigenvalues.sum() / eigenvalues.max())


def skewed(dim: int) -> Array:
    """(1, 1/d, …, 1/d): an effective dimension below 2 whatever d is."""
    return np.concatenate([[1.0], np.full(dim - 1, 1.0 / dim)])


def slope(places: Array, values: Array) -> float:
    """Of log values on log places."""
    return float(np.polyfit(np.log(places), np.log(values), 1)[0])


def noise_coefficients(steps: int, damping: float) -> Array:
    """The first column of B: w_t = w_{t-1} (1 - 3/(2t)) (1 - ν)."""
    lags = np.arange(1, steps)
    return np.concatenate([[1.0], np.cumprod((1 - 1.5 / lags) * (1 - damping))])


def correlated_noise(rng: np.random.Generator, series: int, steps: int, damping: float | None) -> Array:
    """(series, steps) of noise with ρ = 1; None: independent."""
    from scipy.signal import fftconvolve

    fresh = rng.standard_normal((series, steps))
    if damping is None:
        return np.asarray(fresh * np.sqrt(0.5))
    scale = np.sqrt(squared_sensitivity(damping) / 2)
    made = fftconvolve(fresh, scale * noise_coefficients(steps, damping)[None], axes=1)[:, :steps]
    return np.asarray(made)
