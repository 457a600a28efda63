"""One simple mechanism of each kind that no file of `coalmine.mechanisms` has yet, and one that is no dataclass."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coalmine.contracts import AtLeast, ByClients, Clip, Contribution, Description, Explicit, Noise, PerPeriod, Release
from coalmine.mechanisms import Gaussian


@dataclass(frozen=True)
class TwoTap:
    """C = (I + coupling · shift) / sqrt(1 + coupling²), coupling >= 0: its largest column norm is 1, and W is its inverse."""

    coupling: float
    kind: ClassVar[str] = "two-tap"

    @property
    def memory(self):
        return 1

    @property
    def scale(self):
        return math.sqrt(1 + self.coupling**2)

    def whiten(self, rows, state):
        last = state.get("last", np.zeros_like(rows[0]))
        before = np.vstack([last[None], rows[:-1]])
        return (rows + self.coupling * before) / self.scale, {"last": rows[-1]}

    def sensitivity(self, constraint):
        """|C · rounds| of the worst set of rounds. All entries of C are positive: updates of one direction are the worst."""
        if isinstance(constraint, Explicit):
            moved, _ = self.whiten(constraint.presence.astype(float), {})
            return float(np.sqrt(np.square(moved).sum(axis=0).max(initial=0.0)))
        rounds, times = constraint.rounds, constraint.times
        periods = isinstance(constraint, PerPeriod)
        gap = 1 if periods else constraint.separation
        own = [1.0] * (rounds - 1) + [self.scale**-2]  # squared column norms: the last column is cut off
        pair = 2 * self.coupling / self.scale**2  # twice the product of neighbouring columns; others are orthogonal
        best, found = {}, 0.0
        for number in range(times):
            first, end = (rounds * number // times, rounds * (number + 1) // times) if periods else (0, rounds)
            reached = {}
            for place in range(first, end):
                before = [value + pair * (place - 1 == last) for last, value in best.items() if last <= place - gap]
                if before or not number:
                    reached[place] = own[place] + max(before, default=0.0)
            best = reached
            found = max(found, *best.values()) if best else found
        return math.sqrt(found)


@dataclass(frozen=True)
class Correlated(Gaussian):
    """Noise that takes back a part of the noise of the round before; the state holds a whole vector."""

    coupling: float = 0.5

    def describe(self):
        noise = Noise(self.noise_multiplier, self.noise_multiplier, rounds=TwoTap(self.coupling))
        return Description(Clip(self.clip_norm), noise)

    def init(self, dim):
        return {**super().init(dim), "last": np.zeros(dim)}

    def release(self, state, total, public, secret):
        strategy = TwoTap(self.coupling)
        fresh = strategy.scale * self.noise(total.vector().size, public, secret)
        noise = fresh - self.coupling * state["last"]
        mean = (total.vector() + self.noise_multiplier * public.clip_norm * noise) / public.denominator
        return Release(public.round, mean, public.clip_norm, public.denominator), {**state, "last": noise}


@dataclass(frozen=True)
class Lifted(Gaussian):
    """More noise in every second coordinate, at least `noise_multiplier` in all of them."""

    def describe(self):
        noise = Noise(self.noise_multiplier, self.noise_multiplier, coordinates=AtLeast(self.noise_multiplier))
        return Description(Clip(self.clip_norm), noise)

    def noise(self, dim, public, secret):
        return super().noise(dim, public, secret) * np.where(np.arange(dim) % 2, 3.0, 1.0)


@dataclass(frozen=True)
class ByTheClients(Gaussian):
    """Every client adds its part of the noise, so that `honest` of them add all of it together; the server adds none."""

    honest: int = 8

    def describe(self):
        noise = Noise(self.noise_multiplier, self.noise_multiplier, added_by=ByClients(self.honest, self.honest))
        return Description(Clip(self.clip_norm), noise)

    @property
    def part(self):
        """The noise of one client, in clip norms."""
        return self.noise_multiplier / math.sqrt(self.honest)

    def client(self, update, public, examples=1, *, secret):
        clipped = super().client(update, public, examples)
        noise = secret("own").standard_normal(update.size) * self.part * public.clip_norm
        return Contribution(clipped.vector + noise, clipped.unclipped, without_noise=clipped.vector)

    def release(self, state, total, public, secret):
        return Release(public.round, total.vector() / public.denominator, public.clip_norm, public.denominator), state


@dataclass(frozen=True)
class HalfByTheClients(ByTheClients):
    """Clients that add half of the noise that they say they add."""

    @property
    def part(self):
        return super().part / 2


class Plain:
    """A mechanism that is no dataclass and no `Gaussian`: it only keeps the contract."""

    def __init__(self, clip_norm=1.0, noise=1.0, quirk=None):
        self.inner, self.quirk = Gaussian(clip_norm, noise), quirk

    def describe(self):
        return self.inner.describe()

    def without_noise(self):
        return Plain(self.inner.clip_norm, 0.0, self.quirk)

    def init(self, dim):
        return self.inner.init(dim)

    def announce(self, state, round_number, denominator):
        return self.inner.announce(state, round_number, denominator)

    def client(self, update, public, examples=1):
        return self.inner.client(update, public, examples)

    def release(self, state, total, public, secret):
        return self.inner.release(state, total, public, secret)
