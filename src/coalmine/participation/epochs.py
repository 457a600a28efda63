"""Passes over all clients, shuffled anew or always in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coalmine.contracts import Constraint, Explicit, IndexArray, Streams
from coalmine.participation.patterns import Pattern, Repeated, passes, rounds_of


@dataclass(frozen=True)
class Epochs(Repeated):
    """`times` passes over all clients, each of them once per pass.

    Each pass is shuffled anew. With `reshuffled=False` all passes have the order of the first, so that the rounds of a
    client are always (up to rounding) a whole pass apart.

    Args:
        times: Passes over all clients.
        reshuffled: Whether each pass has an order of its own.
    """

    reshuffled: bool = True

    keys = ("cohort_size", "epochs", "reshuffled")
    required = (("rounds", "cohort_size"),)

    def constraint(self, rounds: int) -> Constraint:
        """One round in each pass; in the same order, the sets of rounds themselves, whatever the number of clients.

        A client at share u of the order has place ceil(u L) - 1 in a pass of L rounds, and L differs by one between passes.
        """
        if self.reshuffled:
            return super().constraint(rounds)
        borders = [rounds * number // self.times for number in range(self.times + 1)]
        lengths = np.diff(borders)
        shares = np.unique(np.concatenate([np.arange(1, length + 1) / length for length in {*lengths.tolist()} - {0}]))
        between = shares - np.diff(shares, prepend=0.0) / 2  # no share is on a border, where rounding would decide
        sets = np.zeros((rounds, between.size), dtype=np.bool_)
        for begin, length in zip(borders, lengths.tolist(), strict=False):
            if length:
                sets[begin + np.ceil(between * length).astype(np.int64) - 1, np.arange(between.size)] = True
        return Explicit(np.unique(sets, axis=1))

    def until(self, done: int, rounds: int) -> Pattern:
        """Periods that have begun, in the same order."""
        return replace(self, times=max(1, -(-self.times * done // rounds)))

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """As `Repeated`; `reshuffled = false`: all passes in the same order."""
        times = int(options["epochs"])
        return cls(times, options.get("reshuffled") is not False), rounds_of(options, times, population)

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        return passes(self.most, population, rounds, streams, start, reshuffled=self.reshuffled)
