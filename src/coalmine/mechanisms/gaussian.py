"""Clipping to a fixed norm and Gaussian noise (McMahan et al. 2018).

    paper          here                        meaning
    S, C           clip_norm                   an update longer than this is clipped to it
    z              noise_multiplier            noise on the sum, in clip norms

Algorithm 2 of the one-shot papers: mean = (sum of clipped updates + N(0, (z C)²)) / n, every client with the same weight,
canaries among them.

Where we depart, and why: n is the expected cohort, fixed before the round. The realised one, as printed, reveals under random
sampling how many took part; `divide_by_actual_cohort=True` divides by it all the same, and the audit says so.

A mechanism of one's own that adds noise in another way must say so in its own `describe()`. A subclass of `Gaussian` that does
not is described as fresh Gaussian noise of `noise_multiplier` clip norms, and is judged by that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine.contracts import (
    Array,
    Clip,
    Context,
    Contribution,
    Description,
    Noise,
    Public,
    Release,
    State,
    Streams,
    Total,
    Vector,
)
from coalmine.errors import NonFiniteError

_BLOCK = 1 << 20  # coordinates whose noise comes from one stream
_PIECE = 1 << 14  # coordinates squared at once, in the cache


def length(vector: Vector) -> float:
    """The Euclidean norm, accumulated in float64 in a fixed order (BLAS would depend on its number of threads).

    >>> length(np.array([3.0, 4.0], dtype=np.float32))
    5.0
    """
    total, room = 0.0, np.empty(min(_PIECE, vector.size))
    for start in range(0, vector.size, _PIECE):
        part = room[: min(_PIECE, vector.size - start)]
        part[...] = vector[start : start + _PIECE]  # converted first: numpy's own conversion on the way takes twice as long
        part *= part
        total += float(part.sum())
    return math.sqrt(total)


@dataclass(frozen=True)
class Gaussian:
    """Updates clipped to `clip_norm`, Gaussian noise of `noise_multiplier` clip norms on their sum."""

    clip_norm: float
    noise_multiplier: float
    divide_by_actual_cohort: bool = False

    def __post_init__(self) -> None:
        _validate.clip_norm(self.clip_norm)
        _validate.non_negative("noise_multiplier", self.noise_multiplier)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], context: Context) -> Gaussian:
        """From a section [mechanism]; what is left out has its default."""
        return cls(**options)

    def describe(self) -> Description:
        """Clipping of whole updates to a fixed norm; noise on their sum, new in every round."""
        return Description(
            clip=Clip(self.clip_norm),
            noise=Noise(accounted=self.noise_multiplier, multiplier=self.noise_multiplier),
            denominator="realised" if self.divide_by_actual_cohort else "expected",
        )

    def without_noise(self) -> Gaussian:
        """The same without noise."""
        return replace(self, noise_multiplier=0.0)

    @property
    def update_noise_multiplier(self) -> float:
        """The noise on the sum of updates, in clip norms."""
        return self.noise_multiplier

    def init(self, dim: int) -> State:
        """The clip norm."""
        return {"clip_norm": np.array(self.clip_norm)}

    def announce(self, state: State, round_number: int, denominator: float) -> Public:
        """The clip norm of this round and the expected cohort."""
        return Public(round_number, float(state["clip_norm"]), denominator)

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """The update, clipped to the clip norm if it is longer; every client counts the same, whatever examples it has."""
        norm = length(update)
        if not math.isfinite(norm):
            bad = np.flatnonzero(~np.isfinite(update))
            where = f"{bad.size} NaN or infinite entries, the first at coordinate {bad[0]}" if bad.size else "an infinite norm"
            raise NonFiniteError(f"an update has {where}")
        kept = min(norm, public.clip_norm)
        return Contribution(update if kept == norm else update * np.float64(kept / norm), unclipped=norm <= public.clip_norm)

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The noisy mean."""
        noisy, scale = total.vector(), self.update_noise_multiplier * public.clip_norm
        for start, noise in self._noise_in_blocks(noisy.size, public, secret):
            for first in range(0, noise.size, _PIECE):  # never in place: noise may be kept by whoever made it
                part = noise[first : first + _PIECE]
                noisy[start + first : start + first + part.size] += scale * part
        divisor = float(max(total.count, 1)) if self.divide_by_actual_cohort else public.denominator
        noisy /= divisor
        return Release(public.round, noisy, public.clip_norm, divisor), state

    def noise(self, dim: int, public: Public, secret: Streams) -> Array:
        """Standard normal noise, a stream of its own for every round and block."""
        return normals(dim, secret, "noise", public.round)

    def _noise_in_blocks(self, dim: int, public: Public, secret: Streams) -> Iterator[tuple[int, Array]]:
        """`noise`, with where each block begins; not as a whole vector, unless a subclass has a `noise` of its own."""
        if type(self).noise is Gaussian.noise:
            return normals_in_blocks(dim, secret, "noise", public.round)
        noise = self.noise(dim, public, secret)
        if np.shape(noise) != (dim,):
            came = "None" if noise is None else f"numbers of shape {np.shape(noise)}"
            raise ValueError(
                f"{type(self).__name__}.noise gave {came}; it must return {dim} numbers, one for every coordinate."
            )
        return iter([(0, noise)])


def normals(dim: int, secret: Streams, *names: str | int, out: Array | None = None) -> Array:
    """Standard normal numbers, the same for the same names whatever was drawn before; a stream for every block."""
    made = np.empty(dim) if out is None else out
    for block, start in enumerate(range(0, dim, _BLOCK)):
        secret(*names, block).standard_normal(out=made[start : start + _BLOCK])
    return made


def normals_in_blocks(dim: int, secret: Streams, *names: str | int) -> Iterator[tuple[int, Array]]:
    """The same, block by block, each with where it begins."""
    for block, start in enumerate(range(0, dim, _BLOCK)):
        yield start, secret(*names, block).standard_normal(min(_BLOCK, dim - start))
