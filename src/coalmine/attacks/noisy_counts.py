"""A character n-gram model of counts in tables of fixed size, released once: as they are, or with user- or example-level DP.

Contexts of 0 to `order` - 1 characters are hashed into tables whose size does not depend on anybody's text. With DP each unit
(a user, or a text) adds its counts clipped in every order, noise is added to every cell of every table, and cells that noise
alone could have made are set to 0. All of it is one Gaussian mechanism: the claim is that of one round.

    symbol    here                 meaning
    C_s       clip[s]              largest norm of a unit's counts of order s
    sigma     noise_multiplier     noise of order s has the standard deviation sigma sqrt(order) C_s: a unit moves all of them

Unlike a small transformer, this model learns with a few hundred users at epsilon = 4: what DP does to an attack can be told
from what it does to the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.contracts import Array, IndexArray, Streams

_CODES = 99  # start of a text, its end, 96 characters, and anything else
_START, _END, _NEWLINE, _OTHER = 0, 1, 97, 98
_BITS = 14
_BUCKETS = 1 << _BITS  # of contexts
_MIX = np.uint64(0x9E3779B97F4A7C15)
UNSEEN = 10.0  # counts of a context that noise may hide, in smallest visible ones


@dataclass(frozen=True)
class _Counts:
    """Counts of one order: of which unit, in which cell, how often."""

    unit: IndexArray
    cell: IndexArray
    times: Array

    def norms(self, units: int) -> Array:
        """The norm of every unit's counts."""
        return np.asarray(np.sqrt(np.bincount(self.unit, self.times**2, minlength=units)))


class NoisyCounts:
    """Tables of counts by order; `add` fills them."""

    def __init__(self, order: int = 5):
        self.order = _validate.whole("order", order, least=1)
        self.tables = [np.zeros((min(_CODES**size, _BUCKETS), _CODES)) for size in range(order)]
        self.hidden = np.zeros(order)  # of every order, the smallest count that noise lets through

    def norms(self, units: Sequence[Sequence[str]]) -> Array:
        """The norm of every unit's counts, (units, order)."""
        return np.stack([each.norms(len(units)) for each in self._counts(units)], axis=1)

    def add(self, texts: Sequence[str]) -> None:
        """See these texts as they are."""
        for table, cells in zip(self.tables, self._cells(texts)[0], strict=True):
            table += np.bincount(cells, minlength=table.size).reshape(table.shape)

    def add_privately(self, units: Sequence[Sequence[str]], clip: Array, noise_multiplier: float, secret: Streams) -> None:
        """See the texts of every unit, clipped, and noise in every cell."""
        for size, (table, most, counts) in enumerate(zip(self.tables, clip, self._counts(units), strict=True)):
            kept = np.minimum(1.0, most / np.maximum(counts.norms(len(units)), 1e-12))[counts.unit]
            table += np.bincount(counts.cell, counts.times * kept, minlength=table.size).reshape(table.shape)
            scale = noise_multiplier * self.order**0.5 * most
            table += scale * secret("noise", size).standard_normal(table.shape, np.float32)
            self.hidden[size] = scale * (2 * np.log(table.size)) ** 0.5  # about the largest noise of so many cells
            table[table < self.hidden[size]] = 0.0

    def log_likelihoods(self, texts: Sequence[str]) -> Array:
        """log p of every text and its end: Witten-Bell smoothing, from no context up to the longest.

        What noise may hide of a context is left to the shorter one too.
        """
        found, lengths = self._cells(texts)
        chance: Array = np.full(int(lengths.sum()), 1.0 / _CODES)
        for table, hidden, cells in zip(self.tables, self.hidden, found, strict=True):
            contexts = cells // _CODES
            total, kinds = table.sum(axis=1)[contexts], (table > 0).sum(axis=1)[contexts]
            rest = kinds + UNSEEN * hidden
            smoothed = (table.ravel()[cells] + rest * chance) / np.maximum(total + rest, 1e-300)
            chance = np.where(total > 0, smoothed, chance)
        summed: Array = np.bincount(np.repeat(np.arange(len(texts)), lengths), np.log(chance), minlength=len(texts)).astype(
            float
        )
        return summed

    def mean_loss(self, texts: Sequence[str]) -> float:
        """Mean negative log-likelihood of a character, the end of a text included."""
        return float(-self.log_likelihoods(texts).sum() / max(sum(len(text) + 1 for text in texts), 1))

    def _counts(self, units: Sequence[Sequence[str]]) -> list[_Counts]:
        found, lengths = self._cells(list(chain.from_iterable(units)))
        owner = np.repeat(np.repeat(np.arange(len(units)), [len(unit) for unit in units]), lengths)
        made = []
        for table, cells in zip(self.tables, found, strict=True):
            keys, times = np.unique(owner * table.size + cells, return_counts=True)
            made.append(_Counts(keys // table.size, keys % table.size, times.astype(float)))
        return made

    def _cells(self, texts: Sequence[str]) -> tuple[list[IndexArray], IndexArray]:
        """For every order, the cell of each character of all texts after its context; how many characters each text has."""
        lengths = np.array([len(text) + 1 for text in texts], np.int64)  # with the end
        before = self.order - 1
        codes: NDArray[np.int64] = np.full(int(lengths.sum()) + before * len(texts), _START)
        starts = np.cumsum(lengths + before) - lengths  # of the texts themselves, after as many marks of a start
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = np.repeat(starts, lengths) + within
        codes[places[within < np.repeat(lengths - 1, lengths)]] = _coded("".join(texts))
        codes[starts + lengths - 1] = _END
        found, context = [], np.zeros(places.size, np.uint64)
        for size in range(self.order):
            if size:
                context = context * np.uint64(_CODES) + codes[places - size].astype(np.uint64)
            place = context if _CODES**size <= _BUCKETS else (context * _MIX) >> np.uint64(64 - _BITS)
            found.append(place.astype(np.int64) * _CODES + codes[places])
        return found, lengths


def _coded(text: str) -> NDArray[np.int64]:
    """Characters as numbers."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    known = (points >= 32) & (points <= 126)
    return np.where(known, points - 30, np.where(points == ord("\n"), _NEWLINE, _OTHER))
