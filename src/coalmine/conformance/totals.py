"""What several checks remember together, so that it is kept once: three vectors of the size of the model, and two of a part.

squares   Σ_t z²            by coordinate, chi-square with a degree of freedom for every round
sum       Σ_t z / |z|_rms   by coordinate, normal with a variance of 1 for every round
power     Σ_t |FFT z|²      whose inverse transform is the autocorrelation at every shift, of all rounds together

`magnitudes` and `magnitude_power` are `sum` and `power` of the magnitudes of some coordinates
(`coalmine.conformance.magnitudes`), `magnitudes_before` are those of the round before, and `returned` is the largest sum of
their products at any shift, its shift and its round.

In the power of `sum`, every pair of rounds meets at every shift: |FFT Σ_t z_t|² = Σ_t |FFT z_t|² + Σ_(s≠t) …, so that noise
which comes back, shifted or not, in any other round is found by one further transform at the end.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from coalmine.conformance import magnitudes
from coalmine.conformance.check import BLOCK, Memory, Round
from coalmine.conformance.long_transform import add_power, is_long
from coalmine.contracts import Array


def init(coordinates: int) -> Memory:
    """Nothing yet."""
    some = magnitudes.count_of(coordinates)
    return {
        "squares": np.zeros(coordinates, np.float32),
        "sum": np.zeros(coordinates, np.float32),
        "power": np.zeros(_frequencies(coordinates), np.float32),
        "magnitudes": np.zeros(some, np.float32),
        "magnitude_power": np.zeros(_frequencies(some), np.float32),
        "magnitudes_before": np.zeros(some, np.float32),
        "returned": np.zeros(3),
        "rounds": np.zeros(2, np.int64),  # with noise; with noise whose shape can be tested
    }


def observe(memory: Memory, seen: Round) -> None:
    """One round."""
    if seen.noise is None:
        return
    shaped, values, squares, total = seen.shaped, seen.noise.values, memory["squares"], memory["sum"]
    scaled = np.zeros(0 if shaped is None else transform_length(values.size), np.float32)
    for start in range(0, values.size, BLOCK):  # so that all steps happen in the cache
        block = slice(start, min(start + BLOCK, values.size))
        squares[block] += np.square(values[block])
        if shaped is not None:
            scaled[block] = values[block] / shaped.spread
            total[block] += scaled[block]
    memory["rounds"] += [1, shaped is not None]
    if shaped is None:
        return
    _observe_magnitudes(memory, magnitudes.of_round(values, shaped.spread), seen.seen.round)
    if is_long(scaled.size):
        add_power(memory["power"], scaled)
        return
    transformed = fft.rfft(scaled, overwrite_x=True)
    for start in range(0, transformed.size, BLOCK):
        part = transformed[start : start + BLOCK]
        memory["power"][start : start + BLOCK] += part.real**2 + part.imag**2


def of_magnitudes(memory: Memory) -> Memory:
    """What is remembered of the magnitudes, under the names of what is remembered of the noise."""
    return {"sum": memory["magnitudes"], "power": memory["magnitude_power"]}


def _observe_magnitudes(memory: Memory, scores: Array, number: int) -> None:
    length, before = transform_length(scores.size), memory["magnitudes_before"]
    transformed = fft.rfft(scores, length)
    if before.any():
        products = fft.irfft(transformed * np.conj(fft.rfft(before.astype(np.float64), length)), length)
        shift = int(np.argmax(np.abs(products)))
        if abs(products[shift]) > abs(memory["returned"][0]):
            memory["returned"] = np.array([products[shift], shift, number], dtype=np.float64)
    memory["magnitudes"] += scores
    memory["magnitude_power"] += transformed.real**2 + transformed.imag**2
    memory["magnitudes_before"] = scores.astype(np.float32)


def _frequencies(coordinates: int) -> int:
    return transform_length(coordinates) // 2 + 1


def transform_length(coordinates: int) -> int:
    """Of the transforms: zeros are added up to a length that is quick."""
    return int(fft.next_fast_len(coordinates, True))


def within_rounds(memory: Memory) -> Array:
    """By shift, the sum over rounds and coordinates of z_i z_(i + shift)."""
    return _inverse(memory["power"].astype(np.float64), memory["sum"].size)


def between_rounds(memory: Memory) -> Array:
    """By shift, the sum over ordered pairs of different rounds of z_(s, i) z_(t, i + shift)."""
    length, power = transform_length(memory["sum"].size), np.empty(memory["power"].size)
    together = fft.rfft(memory["sum"].astype(np.float64), length)
    for start in range(0, power.size, BLOCK):  # not as whole vectors: of a large model they are what needs most memory
        block = slice(start, start + BLOCK)
        power[block] = np.square(together.real[block]) + np.square(together.imag[block]) - memory["power"][block]
    del together
    return _inverse(power, memory["sum"].size)


def furthest(by_shift: Array, coordinates: int, pairs: float) -> tuple[int, float]:
    """The shift, but for 0, whose sum of products is largest beside its spread; and its number of products.

    `pairs` is how many pairs of rounds each pair of coordinates was met in.
    """
    largest, found = -1.0, (1, 1.0)
    for start in range(1, by_shift.size, BLOCK):
        counts = _products(coordinates, start, min(start + BLOCK, by_shift.size)) * pairs
        scores = np.abs(by_shift[start : start + BLOCK]) / np.sqrt(counts)
        place = int(np.argmax(scores))
        if scores[place] > largest:
            largest, found = float(scores[place]), (start + place, float(counts[place]))
    return found


def _products(coordinates: int, start: int, stop: int) -> Array:
    """By shift, how many pairs of coordinates are that far apart on a circle of the transform's length."""
    length, shift = transform_length(coordinates), np.arange(start, stop)
    made = np.maximum(coordinates - shift, 0.0) + np.maximum(coordinates - (length - shift), 0.0)
    return np.where(2 * shift == length, made / 2, made)  # half way round the circle, every pair was met twice


def _inverse(power: Array, coordinates: int) -> Array:
    length = transform_length(coordinates)
    by_shift: Array = fft.irfft(power, length)[: length // 2 + 1].copy()  # the other half is the same, and not kept
    if length % 2 == 0:
        by_shift[-1] /= 2
    return by_shift
