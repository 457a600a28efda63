"""The noise is Gaussian, has mean zero, and is not rounded to few values: of raw coordinates, since every sum looks normal.

Noise of a wrong standard deviation may still be Gaussian: everything here is divided by the root mean square of its round.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from coalmine.conformance.check import BLOCK, Check, Memory, Round, Subject, found, needs_noise
from coalmine.conformance.laws import (
    Tail,
    binomial,
    both_sides,
    chi_square,
    cosine,
    cosine_square,
    kurtosis_score,
    normal,
    normal_mass,
    poisson_above,
    skewness_score,
    worst,
)
from coalmine.conformance.residual import layers_of, window
from coalmine.contracts import Array, Finding, NotTested

BOUNDS = np.array([0.01, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])  # of |z|
_ROUNDS = 4  # of which it is said how much their moments vary
FEWEST = 100  # coordinates of which moments are looked at
SORTED = 1 << 16  # coordinates whose values are compared in a round
GRAIN = 2.0**-24  # standard deviations: nearer values count as one
_PAIRS = 1 / math.sqrt(math.pi)  # ∫ f² of |N(0, 1)|: chance that two values share a cell, per width
_SINGLE = 2.0**-23 / math.pi  # the same for |values| in single precision, whose cells grow with the value


class NoiseGaussian:
    """Third and fourth moment, the largest |z|, how many |z| lie beyond ten bounds, and fourth moments that vary too little.

    The last finds the same numbers in another order and scale in every round: each round alone is Gaussian.
    """

    key: ClassVar[str] = "noise-gaussian"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed, of enough coordinates."""
        return needs_noise(subject) or (None if subject.dim >= FEWEST else "few-coordinates")

    def init(self, subject: Subject) -> Memory:
        """Sums of scores, their number, coordinates, the largest |z|, and counts beyond the bounds."""
        sums = {"sums": np.zeros(4), "largest": np.zeros(1), "beyond": np.zeros(BOUNDS.size), "fourth": np.zeros(1)}
        return {**sums, "alike": np.zeros(3)}  # scores of the fourth moment: number, sum, sum of squares

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        noise = seen.shaped
        if noise is None:
            return
        count, (first, second, third, fourth) = noise.moments.count, noise.moments.totals
        mean = first / count
        variance = max(second / count - mean**2, 1e-12 * second / count)  # a constant vector has none
        skew = (third / count - 3 * mean * second / count + 2 * mean**3) / variance**1.5
        tails = (fourth / count - 4 * mean * third / count + 6 * mean**2 * second / count - 3 * mean**4) / variance**2
        score = kurtosis_score(tails, count)
        memory["sums"] += [skewness_score(skew, count), score, 1.0, count]
        memory["alike"] += [1.0, score, score**2]
        memory["fourth"] += tails
        beyond, largest = _counts(noise.values, noise.spread)
        memory["beyond"] += beyond
        memory["largest"] = np.maximum(memory["largest"], largest)

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The worst of all."""
        skew, kurtosis, rounds, count = memory["sums"].tolist()
        if not rounds:
            return NotTested(self.key, "noise-too-small")
        tails = [normal(skew / math.sqrt(rounds), "third moment"), normal(kurtosis / math.sqrt(rounds), "fourth moment")]
        for bound, mass, beyond in zip(BOUNDS, normal_mass(BOUNDS), memory["beyond"], strict=True):
            tails.append(Tail(2 * min(binomial(beyond, count, float(mass))), where=f"|z| beyond {bound:g}"))
        # one of |z|² / Σ z² is a beta variable; a union bound above, and independence below
        largest, dim = float(memory["largest"][0]), count / rounds
        above = count * cosine(min(largest / math.sqrt(dim), 1.0), int(dim))
        below = math.exp(-count * float(normal_mass(largest)))
        tails.append(Tail(min(1.0, 2 * min(above, below)), where="largest |z|"))
        many, total, squares = memory["alike"].tolist()
        if many >= _ROUNDS:
            varied = max(squares - total**2 / many, 0.0)
            tails.append(Tail(chi_square(varied, many - 1)[0], where="fourth moments of the rounds, which are too alike"))
        measured = float(memory["fourth"][0]) / rounds
        return found(self.key, worst(tails), claimed=3.0, measured=measured, largest=largest)


class NoiseResolution:
    """How many values occur twice, in the release and in its noise: rounding to half precision leaves few different ones.

    Noise drawn in single precision repeats some too: two values share a cell with probability 2^-23 / (2 pi).
    """

    key: ClassVar[str] = "noise-resolution"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed."""
        return needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """Of the release and of the noise: repeated values, how many are expected at most; and how many were looked at."""
        return {"repeated": np.zeros((2, 2)), "worst": np.array([1.0, 0.0]), "tried": np.zeros(2)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round; of a large model a part, another one in every round."""
        if seen.noise is None:
            return
        dim = seen.noise.values.size
        start = (seen.seen.round * SORTED) % max(dim - SORTED, 1)
        released = np.asarray(seen.seen.release.vector)
        released = released[start : start + SORTED] if released.size == dim else released[window(released.size, dim)]
        told = subject.description.noise
        step = 0.0 if told is None else seen.seen.resolution * seen.denominator / (told.multiplier * seen.clip_norm)
        rows = [(_repeated(np.abs(released)), _pairs(released.size) * (_SINGLE + step * _PAIRS))]
        noise = seen.shaped
        if noise is not None:
            grain = max(GRAIN, 16 * noise.rounding / noise.spread, 16 * step)
            values = np.abs(noise.values[start : start + SORTED]) / noise.spread
            cells = np.rint(values / grain)
            rows.append((_repeated(cells), _pairs(values.size) * (grain * _PAIRS + _SINGLE)))
        for place, (repeated, expected) in enumerate(rows):
            memory["repeated"][place] += [repeated, expected]
            tail = poisson_above(repeated, expected)
            if tail < memory["worst"][0]:
                memory["worst"] = np.array([tail, seen.seen.round], dtype=np.float64)
            memory["tried"] += [1.0, released.size * (place == 0)]

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """All rounds together, and the worst one."""
        tried, values = memory["tried"]
        if not tried:
            return NotTested(self.key, "noise-too-small")
        tails = [Tail(poisson_above(*row)) for row in memory["repeated"].tolist()]
        tail, number = memory["worst"]
        tails.append(Tail(min(1.0, float(tail * tried)), where=f"round {int(number) + 1}"))
        # of the release or of its noise, whichever is stranger: zeros of the noise are no equal values of a release
        repeated, expected = min(memory["repeated"], key=lambda row: poisson_above(*row)) / values
        beyond = max(float(repeated - expected), 0.0)  # chance repeats some values too, and 0 is claimed of the others
        return found(self.key, worst(tails), claimed=0.0, measured=beyond, expected_at_most=float(expected))


class NoiseMean:
    """Σ_t z by coordinate, by layer, and of everything; and how much the rounds' means vary, which may be too little.

    A mean in units of the root mean square is a cosine with a fixed direction, of which the law is exact.
    """

    key: ClassVar[str] = "noise-mean"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed."""
        return needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """By layer: the sum and of how many; the worst score of a round, and where; of all and by layer: Σ mean², rounds."""
        layers = len(layers_of(subject))
        means = np.zeros((2, layers + 1))
        return {"sums": np.zeros((2, layers)), "worst": np.zeros(2), "rounds": np.zeros(1), "means": means}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round; sums by coordinate are in `totals`."""
        noise = seen.shaped
        if noise is None:
            return
        moments = noise.moments
        memory["sums"] += [moments.sums[0] / noise.spread, moments.sizes]
        score = moments.totals[0] / noise.spread / math.sqrt(moments.count)
        if abs(score) > abs(memory["worst"][0]):
            memory["worst"] = np.array([score, seen.seen.round], dtype=np.float64)
        memory["rounds"] += 1
        memory["means"] += _squared_means(moments.sums[0] / noise.spread, moments.sizes)

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The worst of all."""
        rounds = float(memory["rounds"][0])
        if not rounds:
            return NotTested(self.key, "noise-too-small")
        sums, sizes = memory["sums"]
        total = float(sums.sum() / math.sqrt(sizes.sum()))
        layers = [normal(each / math.sqrt(size), f"layer {name}") for name, each, size in _named(subject, sums, sizes)]
        score, number = memory["worst"]
        once = normal(float(score), f"round {int(number) + 1}")
        tails = [normal(total), worst(layers), Tail(min(1.0, once.p_value * rounds), where=once.where)]
        tails += [self._dispersion(memory["means"], subject), *self._by_coordinate(shared["sum"], int(shared["rounds"][1]))]
        return found(self.key, worst(tails), claimed=0.0, measured=float(sums.sum() / sizes.sum()))

    def _dispersion(self, means: Array, subject: Subject) -> Tail:
        """Means of rounds that vary too little are noise that is missing in one direction."""
        names = ["all coordinates", *(f"layer {name}" for name in layers_of(subject))]
        rows = zip(names, *means.tolist(), strict=True)
        tails = [both_sides(*chi_square(total, rounds), f"means of rounds, {name}") for name, total, rounds in rows if rounds]
        return worst([tail if tail.side == "less" else replace(tail, side="unknown") for tail in tails])

    def _by_coordinate(self, sums: Array, rounds: float) -> list[Tail]:
        largest = int(np.argmax(np.abs(sums)))
        tail = normal(float(sums[largest]) / math.sqrt(rounds), f"coordinate {largest}")
        tails = [Tail(min(1.0, tail.p_value * sums.size), where=tail.where)]
        if rounds > 1:  # of one round, whose root mean square is set to 1, the sum of squares is known
            total = float(np.square(sums, dtype=np.float64).sum()) / rounds
            tails.append(Tail(min(1.0, 2 * min(chi_square(total, sums.size))), where="what all rounds have in common"))
        return tails


def _squared_means(sums: Array, sizes: Array) -> Array:
    """Of all coordinates and by layer: the squared mean of a round as a chi-square, and 1 where there is one."""
    found, count = np.zeros((2, sizes.size + 1)), float(sizes.sum())
    if count < 2:
        return found
    for place, (total, size) in enumerate([(float(sums.sum()), count), *zip(sums.tolist(), sizes.tolist(), strict=True)]):
        if size:
            found[:, place] = cosine_square(total / math.sqrt(size * count), int(count)), 1.0
    return found


def _named(subject: Subject, sums: Array, sizes: Array) -> list[tuple[str, float, float]]:
    return [each for each in zip(layers_of(subject), sums.tolist(), sizes.tolist(), strict=True) if each[2]]


def _counts(values: Array, spread: float) -> tuple[Array, float]:
    """How many |values| lie beyond each bound, and the largest of them, in units of `spread`."""
    beyond, largest = np.zeros(BOUNDS.size), 0.0
    for start in range(0, values.size, BLOCK):
        part = np.abs(values[start : start + BLOCK])
        largest = max(largest, float(part.max()))
        beyond += [np.count_nonzero(part > bound * spread) for bound in BOUNDS]
    return beyond, largest / spread


def _repeated(values: Array) -> int:
    """How many values are not the first of their kind."""
    ordered = np.sort(values)
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))


def _pairs(count: int) -> float:
    return count * (count - 1) / 2


SHAPE: tuple[Check, ...] = (NoiseGaussian(), NoiseResolution(), NoiseMean())
