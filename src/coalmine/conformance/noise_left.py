"""Correlated noise that is left in the model: in the sum of all releases up to a round, whose size is described.

What one release adds is taken back by later ones. If more is taken back than the description says, a few coordinates of the sum
are released with less noise, or bare; each release alone does not show that. (Independent noise that took back earlier rounds
would be too strong in its own round.)

    S_t = Σ_(r<=t) noise_r      N(0, e_t²) by coordinate; e_t², for a noise multiplier of 1, is `errors()` of the strategy

By layer Σ S² is a chi-square; the number of coordinates with |S| below a thousandth of e_t is binomial.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from coalmine.conformance.check import Memory, Round, Subject
from coalmine.conformance.laws import Tail, binomial, both_sides, chi_square, least_likely, normal_mass
from coalmine.conformance.residual import layers_of
from coalmine.contracts import Array

NEAR_ZERO = 1e-3  # standard deviations
_MASS = float(1 - normal_mass(NEAR_ZERO))


def init() -> Memory:
    """The sum so far, of how many rounds; the least likely statistic, its round, layer or -1, and how many there were."""
    return {"left": np.zeros(0, np.float32), "left_rounds": np.zeros(1), "left_worst": np.array([1.0, 0, 0, 0])}


def observe(memory: Memory, seen: Round, subject: Subject) -> None:
    """One round of correlated noise; what was not seen from the first round on is not followed."""
    noise, told = seen.shaped, subject.description.noise
    if noise is None or seen.released is None or told is None or memory["left_rounds"][0] != seen.seen.round:
        return
    sizes = prefix_variances(told.rounds)
    if sizes is None or seen.seen.round >= sizes.size:
        return
    if not memory["left"].size:
        memory["left"] = np.zeros(noise.values.size, np.float32)
    memory["left"] += seen.released
    memory["left_rounds"] += 1
    tails = _tails(memory["left"], float(sizes[seen.seen.round]), noise.moments.sizes)
    place = int(np.argmin(tails))
    tried = memory["left_worst"][3] + len(tails)
    if tails[place] < memory["left_worst"][0]:
        memory["left_worst"][:3] = tails[place], seen.seen.round, place - 1
    memory["left_worst"][3] = tried


def tail(memory: Memory, subject: Subject) -> Tail:
    """The least likely of all."""
    least, number, layer, tried = memory["left_worst"].tolist()
    if not tried:
        return Tail(1.0)
    where = "coordinates that are next to nothing" if layer < 0 else f"layer {[*layers_of(subject)][int(layer)]}"
    once = both_sides(least / 2, 1.0, f"{where} in the sum of all releases up to round {int(number) + 1}")
    return least_likely([once], int(tried))


def _tails(left: Array, variance: float, sizes: Array) -> list[float]:
    """Of coordinates near zero, and of every layer: how likely so little is."""
    near = np.count_nonzero(np.abs(left) < NEAR_ZERO * np.sqrt(variance))
    tails, start = [binomial(float(near), left.size, _MASS)[1]], 0
    for size in sizes.astype(np.int64):
        part = left[start : start + size]
        total = float(np.einsum("i,i->", part, part, dtype=np.float64))
        tails.append(chi_square(total / variance, float(size))[0] if size else 1.0)
        start += int(size)
    return tails


@lru_cache(maxsize=4)
def prefix_variances(strategy: Any) -> Array | None:
    """By round, the variance of the sum of all noise so far; None: the strategy does not say."""
    errors = getattr(strategy, "errors", None)
    try:
        return None if errors is None else np.asarray(errors(), dtype=np.float64)
    except (TypeError, ValueError):  # too long to be computed, or read from a description that holds no matrix
        return None
