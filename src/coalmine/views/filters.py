"""What each way of adding up the rounds of a canary would see, where noise is correlated over rounds.

Noise as described, x = s + z W g, of covariance z² Σ, Σ = W Wᵀ with diagonal D². Weights w see a gap of w's / (z sqrt(w'Σw)):

    name        weights        what they know
    described   Σ⁻¹ s          how the mechanism says that its noise is correlated: nothing sees more of the releases
    estimated   R̂⁻¹ s          directions that were never inserted, half of them
    diagonal    D⁻² s          the noise of every round by itself

The claim is for what is accounted, |C s|/z of the worst canary. Trees whose nodes are not all released show less.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy  # its parts are loaded when they are used

from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Array, Explicit, Projections
from coalmine.views import matched_filter

_MOST_ROUNDS = 1024  # whose covariance is looked at as a whole


def gaps_seen(
    projections: Projections, schedule: Schedule, noise: float, kept: float = 1.0, added: float | None = None
) -> Mapping[str, float]:
    """By weights, the mean gap of the canaries in standard deviations; empty where nothing can be said.

    `claimed` and `most` are of the canary that shows most: by what is accounted, and in what is released. `noise` is what is
    accounted, `added` what is added to the updates where that is another number, and `kept` the part of a canary that is in a
    release.
    """
    design, rounds = projections.design, projections.rounds
    members = schedule.times > 0
    if design is None or not noise > 0 or not members.any() or not 1 < rounds.size <= _MOST_ROUNDS:
        return {}
    if not np.array_equal(rounds, np.arange(schedule.rounds)):
        return {}
    presence = schedule.presence[:, members]
    patterns = matched_filter.Patterns.among(presence, np.ones(rounds.size))
    counts, signals = np.bincount(patterns.of), patterns.signals.astype(np.float64)
    white, _ = design.whiten(np.eye(rounds.size), {})
    made = np.asarray(scipy.linalg.solve_triangular(white, np.eye(rounds.size), lower=True, check_finite=False))
    spreads = np.linalg.norm(made, axis=1)

    def gaps(weights: Array) -> Array:
        sizes = np.linalg.norm(made.T @ weights, axis=0)
        found = np.divide(np.einsum("tp,tp->p", weights, signals), sizes, out=np.zeros_like(sizes), where=sizes > 0)
        return np.asarray(kept * found / (noise if added is None else added))

    def mean(weights: Array) -> float:
        return float(gaps(weights) @ counts / counts.sum())

    unused = projections.inner[:, projections.pool :]
    unused = unused[:, : unused.shape[1] // 2] / np.maximum(projections.amplitude, 1e-300)[:, None]
    measured = np.sqrt(np.square(unused).mean(axis=1)) if unused.shape[1] else np.zeros(rounds.size)
    described = white.T @ (white @ signals)
    seen = {
        "claimed": float(design.sensitivity(Explicit(np.unique(presence, axis=1))) / noise),
        "most": float(gaps(described).max()),
        "described": mean(described),
        "diagonal": mean(signals / spreads[:, None] ** 2),
    }
    if (measured > 0).all():
        fitted = matched_filter.fit(signals / measured[:, None], unused, measured)
        seen["estimated"] = mean(fitted.weights / measured[:, None])
    return seen
