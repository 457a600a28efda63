"""Data canaries among the clients of a round: they have data and no place in the data set, and pass through the same code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from coalmine.data.dataset import Examples


@dataclass(frozen=True, eq=False)
class Guests:
    """Those who join a round, each at a random place among its clients; `expected` of them on average."""

    examples: Mapping[str, Examples] = field(default_factory=dict, repr=False)
    places: Callable[[], np.random.Generator] = field(default=np.random.default_rng, repr=False)
    expected: float = 0.0

    def among(self, users: Sequence[str]) -> list[str]:
        """The users of a round with the guests among them; clients keep their order."""
        everybody = len(users) + len(self.examples)
        taken = set(self.places().permutation(everybody)[: len(self.examples)].tolist())
        clients, guests = iter(users), iter(self.examples)
        return [next(guests) if place in taken else next(clients) for place in range(everybody)]


NOBODY = Guests()


def name_of(place: int) -> str:
    """A name that no user of a data set has."""
    return f"\0crafted canary {place}"
