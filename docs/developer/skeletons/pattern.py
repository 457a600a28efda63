"""Skeleton of a participation pattern: the clients in a fixed order, again and again. Copy, rename, change.

Register it by a line in `PATTERNS` (src/coalmine/participation/__init__.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coalmine.contracts import Attendance, Constraint, IndexArray, Separation, Streams
from coalmine.participation.patterns import Pattern


@dataclass(frozen=True)
class RoundRobin(Pattern):
    """Every round takes the next `cohort_size` of `population` clients; after the last client comes the first."""

    cohort_size: int
    population: int
    rounds: int

    keys = ("cohort_size",)  # of the section [participation], beside `pattern` and `rounds`
    required = (("rounds",), ("cohort_size",))

    @property
    def most(self) -> int:
        """The largest number of rounds of one client: that of the first one."""
        return -(-self.rounds * self.cohort_size // self.population)

    @property
    def attendance(self) -> Attendance:
        """The pattern as data: what must be equal in a claim and in scores."""
        return Attendance("min-separation", most=self.most, separation=self.population // self.cohort_size)

    def constraint(self, rounds: int) -> Constraint:
        """In which sets of rounds one client can take part: what accountants of correlated noise read."""
        return Separation(self.most, self.population // self.cohort_size, rounds)

    def until(self, done: int, rounds: int) -> Pattern:
        """The same for fewer rounds."""
        return replace(self, rounds=done)

    def among(self, pool: int, population: int) -> Pattern:
        """The same for the canaries of a pool: the same share of them in a round."""
        return RoundRobin(max(1, round(self.cohort_size * pool / population)), pool, self.rounds)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """The pattern, and the number of rounds."""
        rounds = int(options["rounds"])
        return cls(int(options["cohort_size"]), population, rounds), rounds

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort, known before the run."""
        return float(self.cohort_size)

    def _check(self, population: int, rounds: int) -> None:
        super()._check(population, rounds)
        if not self.cohort_size <= population == self.population:
            raise ValueError(f"population={population} does not fit {self.cohort_size} of {self.population} clients.")

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        """The cohorts from round `start` on. A random pattern draws from `streams("cohort", number)`."""
        for number in range(start, rounds):
            yield np.sort((number * self.cohort_size + np.arange(self.cohort_size)) % population)
