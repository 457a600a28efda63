"""Participation by chance that nobody sees, which amplifies privacy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine.contracts import Attendance, Constraint, IndexArray, Sampling, Separation, Streams
from coalmine.participation.patterns import Pattern, both

DENSE = 100_000  # clients up to whom a coin is thrown for each; above, cohorts are drawn in time of their own size


def draw_poisson(population: int, rate: float, rng: np.random.Generator) -> IndexArray:
    """The places of those who take part, each with probability `rate`.

    A binomial number of them, then a uniform subset of that size: the same law as a coin for each.
    """
    if population <= DENSE:
        return np.flatnonzero(rng.random(population) < rate)
    count = int(rng.binomial(population, rate))
    return np.sort(rng.choice(population, count, replace=False, shuffle=False))


@dataclass(frozen=True)
class Poisson(Pattern):
    """In each of `rounds` rounds every client takes part with probability `rate`, independently.

    Args:
        rate: Probability of a client in a round.
        rounds: Number of rounds.
    """

    rate: float
    rounds: int

    def __post_init__(self) -> None:
        if not 0 < _validate.number("rate", self.rate) <= 1:
            raise ValueError(
                f"rate={self.rate!r} is not a probability. Poisson(rate=...) needs 0 < rate <= 1; "
                f"cohort_size / population = 50 / 3400 gives {50 / 3400:.4f}."
            )
        object.__setattr__(self, "rate", float(self.rate))
        object.__setattr__(self, "rounds", _validate.rounds(self.rounds))

    keys = ("cohort_size",)
    required = (("rounds",), ("cohort_size",))

    @property
    def most(self) -> int:
        """All rounds."""
        return self.rounds

    @property
    def sampling(self) -> Sampling:
        """Each round with the same probability."""
        return Sampling(self.rate, self.rounds)

    @property
    def attendance(self) -> Attendance:
        """The rate, and for how long."""
        return Attendance("poisson", rate=self.rate, rounds=self.rounds)

    def constraint(self, rounds: int) -> Constraint:
        """Any rounds."""
        return Separation(rounds, 1, rounds)

    def until(self, done: int, rounds: int) -> Pattern:
        """The same for fewer rounds."""
        return replace(self, rounds=done)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """`rounds` and `cohort_size`, the mean cohort."""
        rounds, cohort = both(options, population, "poisson")
        return cls(cohort / population, rounds), rounds

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort."""
        return self.rate * population

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        for number in range(start, rounds):
            yield draw_poisson(population, self.rate, streams("cohort", number))


@dataclass(frozen=True)
class FixedSize(Pattern):
    """In each of `rounds` rounds `cohort_size` of `population` clients are drawn without replacement.

    Args:
        cohort_size: Clients in a round.
        population: Clients in all.
        rounds: Number of rounds.
    """

    cohort_size: int
    population: int
    rounds: int

    def __post_init__(self) -> None:
        for name in ("cohort_size", "population"):
            object.__setattr__(self, name, _validate.whole(name, getattr(self, name), least=1))
        object.__setattr__(self, "rounds", _validate.rounds(self.rounds))
        if self.cohort_size > self.population:
            raise ValueError(f"cohort_size={self.cohort_size} exceeds population={self.population}.")

    keys = ("cohort_size",)
    required = (("rounds",), ("cohort_size",))

    @property
    def most(self) -> int:
        """All rounds."""
        return self.rounds

    @property
    def sampling(self) -> Sampling:
        """A draw without replacement in every round."""
        return Sampling(self.cohort_size / self.population, self.rounds, self.cohort_size, self.population)

    @property
    def relation(self) -> str:
        """Replacing one client: the size of a cohort is fixed."""
        return "replace-one"

    @property
    def attendance(self) -> Attendance:
        """So many of so many, and for how long."""
        return Attendance("fixed-size", cohort_size=self.cohort_size, population=self.population, rounds=self.rounds)

    def constraint(self, rounds: int) -> Constraint:
        """Any rounds."""
        return Separation(rounds, 1, rounds)

    def until(self, done: int, rounds: int) -> Pattern:
        """The same for fewer rounds."""
        return replace(self, rounds=done)

    def among(self, pool: int, population: int) -> Pattern:
        """The same share of the pool."""
        return FixedSize(max(1, round(self.cohort_size * pool / population)), pool, self.rounds)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """`rounds` and `cohort_size`."""
        rounds, cohort = both(options, population, "fixed-size", whole=True)
        return cls(int(cohort), population, rounds), rounds

    def expected_size(self, population: int, rounds: int) -> float:
        """The size of every cohort."""
        return float(self.cohort_size)

    def _check(self, population: int, rounds: int) -> None:
        super()._check(population, rounds)
        if population != self.population:
            raise ValueError(
                f"population={population} does not fit: the pattern draws from {self.population} clients ({self})."
            )

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        for number in range(start, rounds):
            yield np.sort(streams("cohort", number).choice(population, self.cohort_size, replace=False, shuffle=False))
