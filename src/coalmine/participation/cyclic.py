"""Poisson sampling in turns, and canaries at fixed distances: the two patterns that correlated noise is made for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine.contracts import Attendance, Constraint, Explicit, IndexArray, Sampling, Separation, Streams
from coalmine.participation.patterns import Pattern, both


@dataclass(frozen=True)
class CyclicPoisson(Pattern):
    """Clients are dealt into `groups` groups; round t draws from group t mod `groups`, everybody with probability `rate`.

    Banded noise of at most `groups` bands is then amplified by sampling: the rounds of a client have orthogonal columns, and
    are accounted as ceil(rounds / groups) Poisson-sampled Gaussians (Choquette-Choo et al. 2023, BandMF, Theorem 4).

    >>> print(CyclicPoisson(rate=0.05, groups=5, rounds=1000))
    Poisson sampling at rate 0.05 in every 5th round of 1000
    """

    rate: float
    groups: int
    rounds: int

    keys = ("cohort_size", "groups")
    required = (("rounds",), ("cohort_size",), ("groups",))

    def __post_init__(self) -> None:
        if not 0 < _validate.number("rate", self.rate) <= 1:
            raise ValueError(
                f"rate={self.rate!r} is not a probability. It must be above 0 and at most 1: groups · cohort / population."
            )
        object.__setattr__(self, "rate", float(self.rate))
        for name in ("groups", "rounds"):
            object.__setattr__(self, name, _validate.whole(name, getattr(self, name), least=1))

    @property
    def most(self) -> int:
        """The rounds of a group."""
        return -(-self.rounds // self.groups)

    @property
    def sampling(self) -> Sampling:
        """In each round of its group."""
        return Sampling(self.rate, self.most)

    @property
    def attendance(self) -> Attendance:
        """The rate, how often, and for how long."""
        return Attendance("cyclic-poisson", rate=self.rate, separation=self.groups, rounds=self.rounds)

    def constraint(self, rounds: int) -> Constraint:
        """Rounds of one group."""
        return Separation(-(-rounds // self.groups), self.groups, rounds)

    def until(self, done: int, rounds: int) -> Pattern:
        """The same for fewer rounds."""
        return replace(self, rounds=done)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """`rounds`, `groups` and `cohort_size`, the mean cohort."""
        rounds, cohort = both(options, population, "cyclic-poisson")
        groups = _validate.whole("participation.groups", options["groups"], least=1)
        if cohort * groups > population:
            raise ValueError(
                f"participation: {groups} groups of {population:,} clients have {population / groups:.1f} each, fewer than a "
                f"cohort_size of {cohort:g}. Lower cohort_size or groups."
            )
        return cls(cohort * groups / population, groups, rounds), rounds

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort."""
        return self.rate * population / self.groups

    def groups_of(self, population: int, streams: Streams) -> IndexArray:
        """By client, the group that it was dealt into."""
        order, found = self._order(population, streams), np.empty(population, dtype=np.int64)
        for turn in range(self.groups):
            found[order[population * turn // self.groups : population * (turn + 1) // self.groups]] = turn
        return found

    def _order(self, population: int, streams: Streams) -> IndexArray:
        return np.asarray(streams("cohort", "groups").permutation(population))

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        order = self._order(population, streams)
        for number in range(start, rounds):
            turn = number % self.groups
            group = np.sort(order[population * turn // self.groups : population * (turn + 1) // self.groups])
            yield group[streams("cohort", number).random(group.size) < self.rate]


@dataclass(frozen=True)
class Separated(Pattern):
    """The canaries' pattern for correlated noise: `times` rounds, exactly `separation` apart, the first one at random.

    >>> [cohort.tolist() for cohort in Separated(2, 3).cohorts(population=1, rounds=4, rng=0)]
    [[0], [], [], [0]]
    """

    times: int
    separation: int

    def __post_init__(self) -> None:
        for name in ("times", "separation"):
            object.__setattr__(self, name, _validate.whole(name, getattr(self, name), least=1))

    @property
    def most(self) -> int:
        """The number of rounds."""
        return self.times

    @property
    def span(self) -> int:
        """Rounds from the first to the last, both included."""
        return (self.times - 1) * self.separation + 1

    @property
    def attendance(self) -> Attendance:
        """So many times, so far apart."""
        return Attendance("separated", times=self.times, separation=self.separation)

    def constraint(self, rounds: int) -> Constraint:
        """One set of rounds for every first round."""
        sets = np.zeros((rounds, max(rounds - self.span + 1, 1)), dtype=np.bool_)
        for first in range(sets.shape[1]):
            sets[first : first + self.span : self.separation, first] = True
        return Explicit(sets)

    def until(self, done: int, rounds: int) -> Pattern:
        """As many as may have taken place."""
        return Separated(max(1, min(self.times, -(-done // self.separation))), self.separation)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """For canaries only."""
        raise ValueError("participation: rounds at fixed distances are for canaries; use pattern 'min-separation'.")

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort."""
        return self.times * population / rounds

    def _check(self, population: int, rounds: int) -> None:
        if rounds < self.span:
            raise ValueError(
                f"rounds={rounds} is too few: {self.times} rounds that are {self.separation} apart need {self.span}."
            )

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        first = streams("cohort", "first rounds").integers(rounds - self.span + 1, size=population)
        for number in range(start, rounds):
            since = number - first
            yield np.flatnonzero((since >= 0) & (since < self.span) & (since % self.separation == 0))
