"""Noise of neighbouring coordinates in single rounds: a part that is quieter in one round is lost in sums over all of them.

Squares are summed over blocks of neighbours, the shortest of them `SHORTEST` coordinates long (or as long as `BLOCKS` of them
need to be), then over four blocks together, and so on. Under the description each sum is a chi-square; as normals they show

statistic                       law
the quietest and loudest block  chi-square of its length, for each of all blocks and rounds
Σ of the squared normals        chi-square with as many degrees of freedom as there are blocks: strength that varies
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammainc, gammaincc, ndtri

from coalmine.conformance.laws import Tail, chi_square, least_likely
from coalmine.contracts import Array, Side

SHORTEST = 8  # coordinates
BLOCKS = 4096  # of the shortest length in a round, so that a large model costs no more than a small one
_TOGETHER = 4  # blocks that make one of the next length
_FEWEST = 8  # blocks of the longest length
_FAR = 38.0  # standard deviations at which float64 has no smaller tail


def lengths(coordinates: int) -> list[int]:
    """Of the blocks, the shortest first.

    >>> lengths(2410), lengths(4_000_000)[:2], lengths(20)
    ([8, 32, 128], [977, 3908], [])
    """
    made, length = [], max(SHORTEST, -(-coordinates // BLOCKS))
    while coordinates // length >= _FEWEST:
        made.append(length)
        length *= _TOGETHER
    return made


def nothing(coordinates: int) -> Array:
    """By length: Σ of squared normals, blocks; the smallest lower tail and its round, the smallest upper tail and its round."""
    rows = np.zeros((len(lengths(coordinates)), 6))
    rows[:, [2, 4]] = 1.0
    return rows


def observe(memory: Array, values: Array, number: int) -> None:
    """The noise of one round; what is remembered changes in place."""
    sums: Array | None = None
    for row, length in zip(memory, lengths(values.size), strict=True):
        sums = _first(values, length) if sums is None else _four_together(sums)
        low, high = gammainc(length / 2, sums / 2), gammaincc(length / 2, sums / 2)
        row[:2] += float(np.square(normal_scores(low, high)).sum()), sums.size
        for place, tails in ((2, low), (4, high)):
            if (least := float(tails.min())) < row[place]:
                row[place : place + 2] = least, number


def tails(memory: Array, coordinates: int, lower_only: bool) -> list[Tail]:
    """For every length: the quietest block, and unless other things may be in the noise the loudest, and how much they vary."""
    made = []
    for length, (squares, count, low, first, high, second) in zip(lengths(coordinates), memory.tolist(), strict=True):
        if not count:
            continue
        quiet = Tail(low, "less", f"{length} neighbours in round {int(first) + 1}")
        loud = Tail(high, "more", f"{length} neighbours in round {int(second) + 1}")
        if lower_only:
            made.append(least_likely([quiet], int(count)))
            continue
        made.append(least_likely([quiet, loud], 2 * int(count)))
        made.append(dispersion(squares, count, low, high, f"blocks of {length} neighbours, which differ"))
    return made


def dispersion(squares: float, count: float, low: float, high: float, where: str) -> Tail:
    """Strength that varies more or less than chance does; `low` and `high` are the smallest tails of single places."""
    side: Side = "less" if low <= high else "more"
    return Tail(min(1.0, 2 * min(chi_square(squares, count))), side, where)


def normal_scores(low: Array, high: Array) -> Array:
    """Standard normals of these lower and upper tails."""
    return np.asarray(np.clip(np.where(low < high, ndtri(low), -ndtri(high)), -_FAR, _FAR))


def _first(values: Array, length: int) -> Array:
    whole = values[: values.size // length * length].reshape(-1, length)
    return np.asarray(np.einsum("ij,ij->i", whole, whole))


def _four_together(sums: Array) -> Array:
    return np.asarray(sums[: sums.size // _TOGETHER * _TOGETHER].reshape(-1, _TOGETHER).sum(axis=1))
