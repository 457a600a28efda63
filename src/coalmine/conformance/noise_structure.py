"""The noise is new in every round and independent across coordinates, and nothing of earlier rounds comes back.

symbol   here     meaning
L        LAGS     rounds that are compared one by one; older ones are summed in blocks of 1, 2, 4, … times as many rounds
m        WIDTH    coordinates of which that many rounds are kept
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from coalmine.conformance import magnitudes, noise_again, noise_spectrum, totals
from coalmine.conformance.check import BLOCK, Check, Memory, Round, Subject, found, needs_noise
from coalmine.conformance.laws import Tail, chi_square, cosine, normal, poisson_above, shifted_products, worst
from coalmine.conformance.noise_shape import GRAIN
from coalmine.conformance.residual import layers_of, window
from coalmine.contracts import Array, Finding, NotTested, Vector

LAGS = 32
WIDTH = 8192
LAST = 1 << 20  # coordinates of which the last sum is kept
PAIRED = 2048  # coordinates of which all pairs are compared
_FEW = 16  # coordinates, below which magnitudes that are divided by their own strength depend on each other
_ROUNDING = 1e-6  # of a cosine in float32: in two dimensions one that is so near to 1 is not rare
_PAIRED_ROUNDS = 6  # below which chance alone makes some pairs move together
_BLOCKS = 24  # of doubling length: 32 · 2^24 rounds


def remember(memory: Memory, row: Vector) -> None:
    """Keep the last rounds; what falls out goes into blocks that double like the digits of a binary number."""
    kept, count = memory["kept"], int(memory["count"][0])
    place = count % LAGS
    if count >= LAGS:
        carry = kept[place].copy()
        for block, filled in enumerate(memory["filled"]):
            if not filled:
                memory["blocks"][block], memory["filled"][block] = carry, True
                break
            carry += memory["blocks"][block]
            memory["filled"][block] = False
    kept[place] = row
    memory["count"] += 1


def past(memory: Memory) -> tuple[Array, list[str]]:
    """The last rounds, the latest first, then the blocks of older ones; and what they are."""
    count = int(memory["count"][0])
    recent = min(count, LAGS)
    order = [(count - 1 - lag) % LAGS for lag in range(recent)]
    blocks = np.flatnonzero(memory["filled"])
    names = [f"{lag + 1} rounds before" for lag in range(recent)] + [f"a block of {2**block} rounds" for block in blocks]
    return np.concatenate([memory["kept"][order], memory["blocks"][blocks]]), names


def empty(coordinates: int) -> Memory:
    """Nothing kept yet."""
    width = min(coordinates, WIDTH)
    return {
        "kept": np.zeros((LAGS, width), np.float32),
        "blocks": np.zeros((0, width), np.float32),
        "filled": np.zeros(0, np.bool_),
        "count": np.zeros(1, np.int64),
        "lags": np.zeros((2, LAGS)),  # sums of scores, and of how many
        "squares": np.zeros(LAGS),  # of the same scores
        "worst": np.zeros(3),  # largest score, its round, its place in the past
        "tried": np.zeros(1),
        "together": np.zeros(1),  # squares of all scores
    }


def grow(memory: Memory) -> None:
    """Room for one more block, when all are full."""
    if int(memory["count"][0]) >= LAGS and memory["filled"].all() and memory["filled"].size < _BLOCKS:
        memory["blocks"] = np.vstack([memory["blocks"], np.zeros((1, memory["kept"].shape[1]), np.float32)])
        memory["filled"] = np.append(memory["filled"], False)


def compare(memory: Memory, row: Vector, number: int) -> None:
    """Scores of a row against all that is remembered: cosines times the root of the dimension."""
    rows, _ = past(memory)
    if not rows.shape[0]:
        return
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    there = lengths > 0
    products = np.einsum("ij,j->i", rows, row, dtype=np.float64)
    scores = np.where(there, products / np.where(there, lengths * np.linalg.norm(row), 1.0), 0.0) * math.sqrt(row.size)
    recent = min(int(memory["count"][0]), LAGS)
    memory["lags"][:, :recent] += [scores[:recent], there[:recent]]
    memory["squares"][:recent] += np.square(scores[:recent])
    memory["tried"] += there.sum()
    memory["together"] += float(scores @ scores)
    largest = int(np.argmax(np.abs(scores)))
    if abs(scores[largest]) > abs(memory["worst"][0]):
        memory["worst"] = np.array([scores[largest], number, largest], dtype=np.float64)


def pair_tails(memory: Memory) -> list[Tail]:
    """The largest cosine; of every lag the sum of cosines, and how much they vary."""
    score, number, place = memory["worst"].tolist()
    width = memory["kept"].shape[1]
    tail = cosine(min(abs(score) / math.sqrt(width), 1.0) * (1 - _ROUNDING), width)
    earlier = f"{int(place) + 1} before it" if place < LAGS else "an older one"
    tails = [Tail(min(1.0, tail * float(memory["tried"][0])), where=f"round {int(number) + 1} and {earlier}")]
    sums, counts = memory["lags"]
    lags, varied = [], []
    for lag in np.flatnonzero(counts):
        low, high = chi_square(float(memory["squares"][lag]), float(counts[lag]))
        lags.append(normal(sums[lag] / math.sqrt(counts[lag]), f"lag {lag + 1}"))
        varied.append(Tail(min(1.0, 2 * min(low, high)), "less" if low < high else "unknown", f"scores of lag {lag + 1}"))
    return [*tails, worst(lags), worst(varied)]


class NoiseFresh:
    """Cosines of pairs of rounds, of every lag and of all pairs together, at every shift, in every layer; values that come
    back, also in another order.
    """

    key: ClassVar[str] = "noise-fresh"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed."""
        return needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """What is kept of the last rounds, and the values of the first and the last one."""
        values = {"values": np.zeros((0, min(subject.dim, WIDTH))), "again": np.zeros((2, 2))}
        return {**empty(subject.dim), **values, **noise_again.init(len(layers_of(subject)), LAGS)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        noise = seen.shaped
        if noise is None:
            return
        places = noise_again.places(noise.moments.sizes, WIDTH)
        taken = noise.values[places]
        _fit(memory, taken.size)
        row = (taken / noise.spread).astype(np.float32)
        told = subject.description.noise
        step = 0.0 if told is None else seen.seen.resolution * seen.denominator / (told.multiplier * seen.clip_norm)
        recent = past(memory)[0][: min(int(memory["count"][0]), LAGS)]
        noise_again.observe(memory, recent, row, places, noise, seen.seen.round, step)
        compare(memory, row, seen.seen.round)
        values = np.sort(np.abs(noise.values[window(noise.values.size, WIDTH)])) / noise.spread
        self._same_values(memory, values, max(GRAIN, 16 * noise.rounding / noise.spread))
        grow(memory)
        remember(memory, row)

    def _same_values(self, memory: Memory, values: Array, grain: float) -> None:
        """Values of the first and of the last round that occur again, in any order and at any scale of the whole vector.

        First and last are both the last one at first.
        """
        for place, before in enumerate(memory["values"]):
            near = np.searchsorted(before, values)
            gap = np.minimum(
                np.abs(before[np.minimum(near, before.size - 1)] - values), np.abs(before[np.maximum(near - 1, 0)] - values)
            )
            expected = 2 * grain * values.size**2 / math.sqrt(math.pi)
            memory["again"][place] += [np.count_nonzero(gap < grain), expected + values.size**2 * 2.0**-22]
        memory["values"] = np.stack([values if not memory["values"].size else memory["values"][0], values])

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The worst of all; `measured` is the largest mean cosine of a lag."""
        rounds = int(shared["rounds"][1])
        if int(memory["count"][0]) < 2:
            return NotTested(self.key, "one-round" if rounds else "noise-too-small")
        tails = [*pair_tails(memory), self._all_pairs(memory)]
        tails += noise_again.tails(memory, [*layers_of(subject)], shared["sum"].size)
        if rounds > 1:
            tails += [self._shifted(shared, rounds, ""), self._returned(shared, rounds)]
            tails.append(self._shifted(totals.of_magnitudes(shared), rounds, ", whatever the signs"))
        tails += [Tail(poisson_above(*row), where="the same values in another order") for row in memory["again"].tolist()]
        sums, counts = memory["lags"]
        cosines = sums / np.maximum(counts, 1.0) / math.sqrt(memory["kept"].shape[1])
        measured = float(cosines[int(np.argmax(np.abs(cosines)))])
        return found(self.key, worst(tails), claimed=0.0, measured=measured, rounds_compared=min(rounds, LAGS))

    def _all_pairs(self, memory: Memory) -> Tail:
        """Noise from too few directions has pairs of rounds that are too near, noise that was made orthogonal has none.

        Any two cosines are independent, of three rounds too, so that the sum of their squares has the chi-square's variance.
        """
        tails = chi_square(float(memory["together"][0]), float(memory["tried"][0]))
        return Tail(min(1.0, 2 * min(tails)), where="all pairs of rounds together")

    def _shifted(self, shared: Memory, rounds: int, how: str) -> Tail:
        between = totals.between_rounds(shared)
        met = rounds * (rounds - 1)
        shift, count = totals.furthest(between, shared["sum"].size, met)
        tail = shifted_products(abs(float(between[shift])) / math.sqrt(met), count / met)
        return Tail(min(1.0, tail * (between.size - 1)), where=f"shifted by {shift} coordinates{how}")

    def _returned(self, shared: Memory, rounds: int) -> Tail:
        """Magnitudes of the round before, shifted by another distance in every round."""
        products, shift, number = shared["returned"].tolist()
        size = shared["magnitudes"].size
        chance = shifted_products(abs(products), size) * totals.transform_length(size) * (rounds - 1)
        where = f"round {int(number) + 1} and the one before it, shifted by {int(shift)} coordinates, whatever the signs"
        return Tail(min(1.0, chance), where=where)


class NoiseIndependent:
    """Autocorrelation within rounds, at every shift: tiles of any period, one vector for all layers; strength by frequency;
    and pairs in any order. Each of noise and, frequencies aside, of its magnitudes.

    Over T rounds two coordinates are two directions in T dimensions, whose cosine has an exact law.
    """

    key: ClassVar[str] = "noise-independent"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed."""
        return needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """The last rounds of some coordinates, and how many rounds there were."""
        return {"rows": np.zeros((LAGS, 0), np.float32), "count": np.zeros(1, np.int64)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round; the power of every round is in `totals`."""
        noise = seen.shaped
        if noise is None:
            return
        taken = window(noise.values.size, PAIRED)
        if memory["rows"].shape[1] != taken.size:
            memory["rows"] = np.zeros((LAGS, taken.size), np.float32)
        memory["rows"][int(memory["count"][0]) % LAGS] = noise.values[taken] / noise.spread
        memory["count"] += 1

    def _pairs(self, rows: Vector, where: str) -> Tail:
        """The pair of coordinates that is nearest to moving together over the rounds, of all pairs that are kept."""
        lengths = np.sqrt(np.einsum("ij,ij->j", rows, rows, dtype=np.float64))
        if rows.shape[0] < _PAIRED_ROUNDS or rows.shape[1] < 2 or not lengths.all():
            return Tail(1.0)
        unit = np.asarray(rows / lengths)
        cosines = np.abs(unit.astype(np.float32).T @ unit.astype(np.float32))
        np.fill_diagonal(cosines, 0.0)
        first, second = np.unravel_index(int(np.argmax(cosines)), cosines.shape)
        largest = min(abs(float(unit[:, first] @ unit[:, second])), 1.0)
        pairs = rows.shape[1] * (rows.shape[1] - 1) / 2
        return Tail(min(1.0, pairs * cosine(largest, rows.shape[0])), where=where)

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The worst of all; `measured` is the largest autocorrelation."""
        rounds = int(shared["rounds"][1])
        if not rounds:
            return NotTested(self.key, "noise-too-small")
        rows, coordinates = memory["rows"][: int(memory["count"][0])], shared["sum"].size
        nearest, measured = self._shifted(shared, rounds, "coordinates")
        signless, _ = self._shifted(totals.of_magnitudes(shared), rounds, "magnitudes of coordinates")
        tails = [nearest, signless, self._pairs(rows, "two coordinates that move together")]
        if coordinates >= _FEW:
            grown = magnitudes.normal_scores(rows)
            tails.append(self._pairs(grown, "two coordinates that grow together, whatever their signs"))
        tails.append(noise_spectrum.tail(shared["power"], totals.transform_length(coordinates), coordinates, rounds))
        return found(self.key, worst(tails), claimed=0.0, measured=measured)

    def _shifted(self, shared: Memory, rounds: int, what: str) -> tuple[Tail, float]:
        """The largest autocorrelation, and how large it is."""
        within = totals.within_rounds(shared)
        shift, count = totals.furthest(within, shared["sum"].size, rounds)
        tail = shifted_products(float(within[shift]), count)
        return Tail(min(1.0, tail * (within.size - 1)), where=f"{what} {shift} apart"), float(within[shift]) / count


class EarlierRounds:
    """Inner products of the noise with the sums of earlier rounds, one by one and all together: too large where something comes
    back, too small where the noise keeps off a direction that is known by then.
    """

    key: ClassVar[str] = "earlier-rounds"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed."""
        return needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """What is kept of the last sums; all of them added up, and the last; scores with these: sum of squares, sum, number."""
        vectors = {"earlier": np.zeros(subject.dim, np.float32), "last": np.zeros(min(subject.dim, LAST), np.float32)}
        return {**empty(subject.dim), **vectors, "with_all": np.zeros(3), "with_last": np.zeros(3)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round: first the noise against the past, then this round's sum joins it."""
        total = seen.apart
        if total is None:
            return
        taken = window(total.size, WIDTH)
        _fit(memory, taken.size)
        if memory["earlier"].size != total.size:
            memory["earlier"] = np.zeros(total.size, np.float32)
            memory["last"] = np.zeros(min(total.size, LAST), np.float32)
        noise = seen.shaped
        if noise is not None and int(memory["count"][0]):
            compare(memory, (noise.values[taken] / noise.spread).astype(np.float32), seen.seen.round)
            for with_it, vector in (("with_all", "earlier"), ("with_last", "last")):
                score = _score(memory[vector], noise.values) / noise.spread
                memory[with_it] += [score**2, score, 1.0] if np.isfinite(score) else np.zeros(3)
        grow(memory)
        remember(memory, total[taken].astype(np.float32))
        last = memory["last"]
        for block, summed in total.blocks():
            memory["earlier"][block] += summed
            last[block] = summed[: max(last.size - block.start, 0)]

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The worst of all."""
        _, total, count = memory["with_all"].tolist()
        if not count:
            return NotTested(self.key, "no-residual" if not int(memory["count"][0]) else "one-round")
        tails = pair_tails(memory)
        for with_it, where in (("with_all", "the sum of all earlier rounds"), ("with_last", "the sum of the round before")):
            squares, scores, number = memory[with_it].tolist()
            if number:
                low, high = chi_square(squares, number)
                tails.append(normal(scores / math.sqrt(number), where))
                tails.append(Tail(min(1.0, 2 * min(low, high)), "less" if low < high else "unknown", where))
        return found(self.key, worst(tails), claimed=0.0, measured=total / count)


def _score(earlier: Vector, noise: Array) -> float:
    """<earlier, noise> / |earlier|, block by block; NaN where nothing is earlier."""
    inner = squares = 0.0
    for start in range(0, earlier.size, BLOCK):
        part = earlier[start : start + BLOCK].astype(np.float64)
        inner += float(np.einsum("i,i->", part, noise[start : start + BLOCK]))
        squares += float(np.einsum("i,i->", part, part))
    return inner / math.sqrt(squares) if squares > 0 else math.nan


def _fit(memory: Memory, width: int) -> None:
    """Of a part of the coordinates less is kept than was prepared for."""
    if memory["kept"].shape[1] != width:
        memory["kept"] = np.zeros((LAGS, width), np.float32)
        memory["blocks"] = np.zeros((0, width), np.float32)


STRUCTURE: tuple[Check, ...] = (NoiseFresh(), NoiseIndependent(), EarlierRounds())
