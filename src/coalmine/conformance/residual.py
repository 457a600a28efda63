"""From an observed round to its noise, made standard normal by the description (and by nothing that the code says of itself).

    e_t = n · release_t − sum of the contributions after clipping         n as the description divides
    z_t = e_t / (multiplier · C_t)                                        one server, the same noise everywhere
    z_t = whitened by the strategy                                        noise that is correlated over rounds
    z_t = (floor · I + F Fᵀ)^(-1/2) e_t                                   a covariance that was promised for this round
    z_t = e_t / (multiplier · C_t · sqrt(contributors / honest))          clients that add a part each

Where contributions are not known, or only a floor of the covariance is promised, z_t is at least as large as noise would be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coalmine.conformance.check import BLOCK, Memory, Moments, Round, RoundNoise, Subject, Summed
from coalmine.contracts import Array, AtLeast, ByClients, IndexArray, LowRank, Observed, State, Vector

LEAST_NOISE = 1e-3  # rounding above this share of a standard deviation: nothing is said about the noise
MOST_MEMORY = 8  # vectors that whitening may keep of all coordinates; beyond, a part of the coordinates is looked at
PART = 4096  # coordinates of that part, beside the beginnings
BEGINNING = 256  # coordinates from where noise may begin to be drawn
BEGINNINGS = 4  # of the vector, and of its largest layers


def window(dim: int, size: int, pieces: int = 64) -> IndexArray:
    """At most `size` coordinates, in pieces that are spread evenly over all of them."""
    if dim <= size:
        return np.arange(dim)
    starts = np.linspace(0, dim - size // pieces, pieces).astype(np.int64)
    return (starts[:, None] + np.arange(size // pieces)[None]).ravel()


def layers_of(subject: Subject) -> dict[str, slice]:
    """The layers in their order if they cover everything, else everything as one."""
    ordered = sorted(subject.groups.items(), key=lambda item: item[1].start)
    edges = [0, *(place.stop for _, place in ordered)]
    whole = edges[-1] == subject.dim and all(place.start == edge for (_, place), edge in zip(ordered, edges, strict=False))
    return dict(ordered) if whole else {"all": slice(0, subject.dim)}


def beginnings(subject: Subject) -> list[int]:
    """Where noise may begin to be drawn: at the first coordinate, and at those of the largest layers."""
    layers = sorted(layers_of(subject).values(), key=lambda place: place.start - place.stop)
    starts = [0, *(place.start for place in layers if place.start and place.stop - place.start >= BEGINNING)]
    return starts[:BEGINNINGS]


@dataclass(frozen=True, eq=False)
class Residuals:
    """How rounds become noise, for one description."""

    subject: Subject

    @property
    def coordinates(self) -> IndexArray | None:
        """Those that are looked at; None: all."""
        noise = self.subject.description.noise
        if noise is None or self.subject.description.fresh:
            return None
        memory = getattr(noise.rounds, "memory", None)
        small = memory is not None and memory <= MOST_MEMORY
        if small or self.subject.dim <= PART:
            return None
        parts = (np.arange(start, min(start + BEGINNING, self.subject.dim)) for start in beginnings(self.subject))
        return np.asarray(np.unique(np.concatenate([window(self.subject.dim, PART), *parts])))

    @property
    def places(self) -> tuple[Any, ...]:
        """The layers, as slices or as lists of coordinates among those that are looked at."""
        groups, taken = layers_of(self.subject).values(), self.coordinates
        if taken is None:
            return tuple(groups)
        inside = [np.searchsorted(taken, [place.start, place.stop]) for place in groups]
        return tuple(slice(int(first), int(end)) for first, end in inside)

    def round(self, memory: Memory, seen: Observed) -> Round:
        """What all checks need to know of a round; what whitening keeps is in `memory`."""
        description = self.subject.description
        clip = seen.release.clip_norm if seen.public is None else seen.public.clip_norm
        divisor = self._divisor(seen)
        total, part, scale = None, None, seen.release.denominator / clip
        if seen.others is not None:
            part = None if seen.canaries.part is None else self._taken(seen.canaries.part)
            others = ((scale, self._taken(seen.others)),)
            total = Summed(others if part is None else (*others, (scale, part)))
        about = Round(seen, clip, divisor, None, total, part, scale)
        if not description.has_noise:
            return about
        noise, released = self._noise(memory, seen, about)
        bare, again = self._bare(seen, about), self._again(seen, about)
        return replace(about, noise=noise, released=released, bare=bare, again=again)

    def _noise(self, memory: Memory, seen: Observed, about: Round) -> tuple[RoundNoise | None, Array | None]:
        """(the noise as standard normal numbers, and of correlated noise what it was before it was whitened)."""
        residual = np.multiply(self._taken(seen.release.vector), about.denominator / about.clip_norm, dtype=np.float64)
        told = self.subject.description.noise
        assert told is not None
        precision = float(np.finfo(seen.release.vector.dtype).eps)
        rounding = precision * math.sqrt(float(np.einsum("i,i->", residual, residual)) / residual.size) / told.multiplier
        if not rounding <= LEAST_NOISE:
            return None, None
        at_least = about.total is None
        if about.total is not None:
            for block, summed in about.total.blocks():
                residual[block] -= summed
        z, floor_only = self._standardised(memory, residual, seen, about)
        if seen.canaries.fitted:  # the span of the canaries was projected out
            z *= math.sqrt(self.subject.dim / max(self.subject.dim - seen.canaries.indices.size, 1))
        noise = RoundNoise(z, _moments(z, self.places), at_least or floor_only, rounding)
        return noise, None if self.subject.description.fresh or seen.canaries.fitted else residual

    def _bare(self, seen: Observed, about: Round) -> Summed | None:
        """The noise that is added to the clients alone, where a release of them was made for that."""
        told = self.subject.description.noise
        fixed = self.subject.description.denominator == "expected" and seen.covariance is None
        clients = None if seen.bare is None else about.clients
        if seen.bare is None or clients is None or told is None or told.coordinates.kind != "isotropic" or not fixed:
            return None
        return self._residual(seen.bare, about, clients, told.multiplier)

    def _again(self, seen: Observed, about: Round) -> Summed | None:
        """The noise that is added to the same sum under another secret, where it was released once more for that."""
        told = self.subject.description.noise
        if seen.again is None or about.total is None or told is None or not self.subject.description.fresh:
            return None
        return self._residual(seen.again, about, about.total, told.multiplier)

    def _residual(self, release: Vector, about: Round, summed: Summed, spread: float) -> Summed:
        """What a release has beside a sum, in standard deviations of the noise."""
        scale = about.denominator / about.clip_norm
        without = tuple((-weight / spread, vector) for weight, vector in summed.terms)
        return Summed(((scale / spread, self._taken(release)), *without))

    def _standardised(self, memory: Memory, residual: Array, seen: Observed, about: Round) -> tuple[Array, bool]:
        """(standard normal under the description, whether it may be larger); `residual` comes into units of the noise."""
        told = self.subject.description.noise
        assert told is not None
        spread, more = told.multiplier * math.sqrt(seen.releases), False
        if seen.covariance is not None and self.coordinates is None:
            short = _promised(seen, told.added_by) if isinstance(told.added_by, ByClients) else (1, 1)
            return _whitened(residual * about.clip_norm, seen.covariance) * math.sqrt(short[0] / short[1]), False
        if isinstance(told.coordinates, AtLeast):
            spread, more = told.coordinates.floor * math.sqrt(seen.releases), True
        elif told.coordinates.kind != "isotropic":
            more = True
        if isinstance(told.added_by, ByClients):
            spread *= math.sqrt(_promised(seen, told.added_by)[1] / told.added_by.honest)
            more = more or seen.count is None
        residual /= spread
        z = residual
        if not self.subject.description.fresh:
            kept: State = dict(memory)
            rows, kept = told.rounds.whiten(z[None], kept)
            memory.clear()
            memory.update({name: np.asarray(value) for name, value in kept.items()})
            z = np.asarray(rows[0], dtype=np.float64)
        return z, more

    def _divisor(self, seen: Observed) -> float:
        rule = self.subject.description.denominator
        if rule == "none":
            return 1.0
        if rule == "realised":
            return float(max(seen.count, 1)) if seen.count is not None else seen.release.denominator
        return seen.release.denominator if seen.public is None else seen.public.denominator

    def _taken(self, vector: Any) -> Array:
        taken = self.coordinates
        return np.asarray(vector if taken is None else vector[taken])


def noises(seen: Observed, added_by: ByClients) -> tuple[int, int]:
    """(clients whose noise is in the sum, canaries beside them that take nobody's place): the former are what is claimed."""
    if seen.count is None:
        return added_by.honest, 0
    further = seen.canaries.indices.size if seen.canaries.noise is not None else 0
    return seen.count - further, further


def _promised(seen: Observed, added_by: ByClients) -> tuple[int, int]:
    """(noises in the sum, noises there would be if no fewer clients than promised took part)."""
    clients, further = noises(seen, added_by)
    return clients + further, max(clients, added_by.honest) + further


def _whitened(residual: Array, covariance: LowRank) -> Array:
    """(floor · I + F Fᵀ)^(-1/2) residual."""
    floor = math.sqrt(covariance.floor)
    directions, sizes, _ = np.linalg.svd(covariance.factors, full_matrices=False)
    inside = directions.T @ residual
    return np.asarray(residual / floor + directions @ ((1 / np.sqrt(covariance.floor + sizes**2) - 1 / floor) * inside))


def _moments(values: Array, places: tuple[Any, ...]) -> Moments:
    """Sums of powers by layer, block by block, so that all steps happen in the cache."""
    sizes, sums = np.zeros(len(places)), np.zeros((4, len(places)))
    for number, place in enumerate(places):
        for start in range(place.start, place.stop, BLOCK):
            part = values[start : min(start + BLOCK, place.stop)]
            squares = part * part
            sums[0, number] += part.sum()
            sums[1, number] += squares.sum()
            sums[2, number] += float(np.einsum("i,i->", squares, part))
            sums[3, number] += float(np.einsum("i,i->", squares, squares))
        sizes[number] = place.stop - place.start
    return Moments(sizes, sums)
