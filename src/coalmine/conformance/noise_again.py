"""Noise of an earlier round that comes back in a part of the vector: in sums over all coordinates a small part is lost.

statistic                                law
Σ z_t z_(t-lag) over a layer             sums of products of neighbours in a row of normals (Chernoff's bound)
cosine of two rounds within a layer      that of two directions, exact
coordinates with the same |z| again      Poisson, of |z| that are as near by chance

Rows are in units of the root mean square of their round. That makes products of N(0, 1) no larger on average, but for the
factor E[r]²/D of the length r of D of them: at least 1 - 1/(2 D).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import betainc

from coalmine.conformance.check import Memory, RoundNoise
from coalmine.conformance.laws import Tail, least_likely, poisson_above, shifted_products, worst
from coalmine.conformance.residual import window
from coalmine.contracts import Array, IndexArray, Vector

OF_LAYER = 64  # first coordinates of a layer that are always looked at
LAYERS = 64  # of which that is done, the smallest: large ones show in sums over everything
GRAIN = 1e-6  # standard deviations: rounding of values that are kept in single precision
_NEAR = 2 / math.sqrt(math.pi)  # chance, per distance, that two |N(0, 1)| are so near
_SINGLE = 2.0**-23 / math.pi  # that two normals in single precision are the same
_ROUNDING = 1e-6  # of a cosine in float32


def init(layers: int, lags: int) -> Memory:
    """By lag and layer, sums of products; by lag, pairs of rounds, coordinates that are the same, how many are expected; by
    layer, coordinates; the least likely cosine, its round, lag and layer, and how many cosines there were.
    """
    return {
        "layers": np.zeros((lags, layers)),
        "returned": np.zeros((lags, 3)),
        "sizes": np.zeros(layers, np.int64),
        "cosine": np.array([1.0, 0, 0, 0, 0]),
        "spreads": np.ones(lags),  # of the rounds that are kept
    }


def places(sizes: Array, most: int) -> IndexArray:
    """Coordinates that are kept: evenly spread ones, and the beginnings of the smallest layers."""
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    taken = [window(int(edges[-1]), most)]
    if taken[0].size < edges[-1]:
        smallest = np.argsort(sizes, kind="stable")[:LAYERS]
        taken += [np.arange(edges[layer], min(edges[layer] + OF_LAYER, edges[layer + 1])) for layer in smallest]
    return np.asarray(np.unique(np.concatenate(taken)))


def observe(memory: Memory, kept: Vector, row: Vector, taken: IndexArray, noise: RoundNoise, number: int, step: float) -> None:
    """One round: `kept` are the rows of earlier ones, the latest first; `row` has their unit, and the coordinates `taken`."""
    edges = np.searchsorted(taken, np.concatenate([[0], np.cumsum(noise.moments.sizes)]))
    sizes = np.diff(edges)
    memory["sizes"][:] = sizes
    recent, there = kept.shape[0], np.flatnonzero(sizes)
    if recent:
        starts = edges[:-1][there]
        products = np.add.reduceat(kept * row, starts, axis=1, dtype=np.float64)
        memory["layers"][:recent, there] += products
        squares = np.add.reduceat(np.square(kept), starts, axis=1, dtype=np.float64)
        _cosines(memory, products, squares * np.add.reduceat(np.square(row), starts, dtype=np.float64), there, number)
        grain = max(GRAIN, 16 * noise.rounding, 16 * step)
        gaps = np.abs(np.abs(kept) * memory["spreads"][:recent, None] - np.abs(row) * noise.spread)
        chance = row.size * (_NEAR * grain / noise.spread + _SINGLE)
        memory["returned"][:recent] += np.stack([np.ones(recent), (gaps < grain).sum(axis=1), np.full(recent, chance)], axis=1)
    memory["spreads"] = np.concatenate([[noise.spread], memory["spreads"][:-1]])


def _cosines(memory: Memory, products: Array, squares: Array, there: IndexArray, number: int) -> None:
    """The least likely cosine of a layer in two rounds."""
    sizes = np.maximum(memory["sizes"][there], 2).astype(np.float64)
    cosines = np.abs(products) / np.sqrt(np.maximum(squares, 1e-300)) * (1 - _ROUNDING)
    tails = np.where(memory["sizes"][there] > 1, betainc((sizes - 1) / 2, 0.5, np.maximum(1 - cosines**2, 0.0)), 1.0)
    lag, place = np.unravel_index(int(np.argmin(tails)), tails.shape)
    tried = memory["cosine"][4] + tails.size
    if tails[lag, place] < memory["cosine"][0]:
        memory["cosine"][:4] = tails[lag, place], number, lag, there[place]
    memory["cosine"][4] = tried


def tails(memory: Memory, names: Sequence[str], dim: int) -> list[Tail]:
    """The least likely layer over all rounds, the least likely in two of them, and coordinates that are the same."""
    pairs = memory["returned"][:, 0]
    shrunk = 1 - 1 / (2 * max(dim, 1))
    lags = [
        Tail(shifted_products(float(memory["layers"][lag, layer]) * shrunk, pairs[lag] * size), where=_where(name, int(lag)))
        for layer, (name, size) in enumerate(zip(names, memory["sizes"], strict=True))
        for lag in np.flatnonzero(pairs)
        if size
    ]
    tail, number, lag, layer, tried = memory["cosine"].tolist()
    once = Tail(tail, where=f"layer {names[int(layer)]} in round {int(number) + 1}, and {int(lag) + 1} before it")
    same = [
        Tail(poisson_above(found, expected), where=f"coordinates with the same magnitude {lag + 1} rounds later")
        for lag, (met, found, expected) in enumerate(memory["returned"].tolist())
        if met
    ]
    return [worst(lags), least_likely([once], max(int(tried), 1)), worst(same)]


def _where(name: str, lag: int) -> str:
    return f"layer {name}, {lag + 1} round{'s' if lag else ''} later"
