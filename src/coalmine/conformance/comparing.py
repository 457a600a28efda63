"""A contribution beside what the description makes of its update; the mechanism's own code is not asked."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from coalmine.contracts import Array, Clip, Compared, Vector

_DOT = 1 << 13  # coordinates of one inner product: BLAS does so few with one thread, however many it has
_AT_ONCE = 8 * _DOT  # coordinates that are converted at once
_RESOLVED = 1e-14  # of squared lengths: a smaller difference of them is rounding


def compare(
    update: Vector, contribution: Vector, clip: Clip, clip_norm: float, groups: Mapping[str, slice], *, canary: bool = False
) -> Compared | None:
    """A contribution beside the clip of its update; None where the description does not say what becomes of one update."""
    if clip.over == "example" or (clip.over == "layer" and not isinstance(clip.norm, tuple)):
        return None
    if clip.over == "update":
        return _whole(update, contribution, clip_norm, canary=canary)
    sent = _length(update)
    distance = kept = 0.0
    for piece, factor, bound in _pieces(update, clip, clip_norm, groups, sent):
        part = np.asarray(contribution[piece], dtype=np.float64)
        wanted = np.asarray(update[piece], dtype=np.float64)
        kept += float(np.einsum("i,i->", part, part))
        wanted = np.clip(wanted, -bound, bound) if bound is not None else wanted * factor
        wanted -= part
        distance += float(np.einsum("i,i->", wanted, wanted))
    scale = clip_norm if clip.over != "layer" else math.sqrt(sum(each**2 for each in _norms(clip)))
    return Compared(sent / clip_norm, math.sqrt(kept) / scale, math.sqrt(distance) / scale, canary)


def compare_examples(rows: NDArray[np.float32], contribution: Vector, share: float, count: int) -> Compared:
    """The contribution of a client whose single examples are clipped, beside the mean of its clipped rows.

    Lengths are in those of that mean, or in what one example adds at most if that is longer: a correct one is never above 1.
    """
    wanted = np.zeros(contribution.size)
    for row in rows:
        wanted += np.asarray(row, np.float64) * (share / max(_length(row), share * count))
    scale = max(_length(wanted), share)
    return Compared(_length(wanted) / scale, _length(contribution) / scale, _length(wanted - contribution) / scale)


def _whole(update: Vector, contribution: Vector, clip_norm: float, *, canary: bool) -> Compared:
    """The same for updates that are clipped as a whole, in one pass: u·u, u·c and c·c tell all three lengths.

    The distance comes out of a difference: below 1e-7 of these lengths it is rounding, and counts as none; 1e-4 is asked for.
    """
    squares = inner = kept = 0.0
    room = np.empty(min(_AT_ONCE, update.size))
    for start in range(0, update.size, _AT_ONCE):
        own, given = room[: update.size - start], update[start : start + _AT_ONCE]
        came = np.asarray(contribution[start : start + _AT_ONCE])
        own[...] = given
        dots = [_dots(own, own)] * 3
        if came.dtype != given.dtype or not np.array_equal(came, given):  # else nothing was clipped
            part = np.asarray(came, dtype=np.float64)
            dots[1:] = _dots(own, part), _dots(part, part)
        for one, two, three in zip(*dots, strict=True):
            squares, inner, kept = squares + one, inner + two, kept + three
    sent = math.sqrt(squares)
    factor = 1.0 if sent <= clip_norm else clip_norm / sent
    wanted = factor**2 * squares
    apart = kept - 2 * factor * inner + wanted
    distance = 0.0 if apart <= _RESOLVED * (kept + wanted) else math.sqrt(apart)  # NaN stays: it is no number below a limit
    return Compared(sent / clip_norm, math.sqrt(kept) / clip_norm, distance / clip_norm, canary)


def _dots(first: Array, second: Array) -> list[float]:
    """Inner products of pieces that are `_DOT` long, and of the rest."""
    whole = first.size // _DOT * _DOT
    found = np.vecdot(first[:whole].reshape(-1, _DOT), second[:whole].reshape(-1, _DOT)).tolist()
    return [*found, *([float(first[whole:] @ second[whole:])] if whole < first.size else [])]


def _pieces(
    update: Vector, clip: Clip, clip_norm: float, groups: Mapping[str, slice], sent: float
) -> list[tuple[slice, float, float | None]]:
    """(place, factor, bound of a coordinate) of every part that is clipped on its own, block by block."""
    if clip.over == "layer":
        places = sorted(groups.values(), key=lambda place: place.start)
        return [
            (place, min(1.0, norm / max(_length(update[place]), 1e-300)), None)
            for place, norm in zip(places, _norms(clip), strict=True)
        ]
    blocks = [slice(start, min(start + (1 << 15), update.size)) for start in range(0, update.size, 1 << 15)]
    factor = 1.0 if sent <= clip_norm else clip_norm / sent
    return [(block, factor, clip_norm if clip.over == "coordinate" else None) for block in blocks]


def _norms(clip: Clip) -> tuple[float, ...]:
    return clip.norm if isinstance(clip.norm, tuple) else ()


def _length(vector: Vector) -> float:
    total = 0.0
    for start in range(0, vector.size, 1 << 15):
        part = np.asarray(vector[start : start + (1 << 15)], dtype=np.float64)
        total += float(np.einsum("i,i->", part, part))
    return math.sqrt(total)
