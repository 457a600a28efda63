"""Who takes part when: descriptions that an accountant reads and that a trainer draws cohorts from.

    pattern                 a client takes part                                    the accountant's adversary
    Once                    in exactly one round                                   knows the rounds
    Repeated, Periods(n)    in exactly n rounds, one in each of n equal periods    knows the rounds
    Epochs(n)               in exactly n rounds, one in each pass over everybody   knows the rounds
    MinSeparation           at most every `separation` rounds                      knows the rounds
    Trace                   in the rounds that a deployment recorded               knows the rounds
    Poisson                 in each round with the same probability                does not know the rounds
    CyclicPoisson           the same, in every round of its group                  does not know the rounds
    FixedSize               whenever drawn without replacement                     does not know the rounds

Knowing the rounds means no amplification by sampling. A claim that stands beside a measurement must describe the canaries
of that measurement, not the clients in general.

`pattern.cohorts(population, rounds, rng)` yields one array of client positions per round, in increasing order, each drawn
only when it is asked for. `rng` is a seed, or anything that makes a generator from names, as
`functools.partial(stream, secret_seed, "canaries")`: clients and canaries that follow patterns of the same kind need
streams of their own. What is drawn for a round depends on the streams alone, never on which rounds were asked for before,
so that `start` goes on where an interrupted run stopped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Attendance, Constraint, IndexArray, PerPeriod, Sampling, Separation, Streams


class Pattern(ABC):
    """What all patterns share: arguments are checked at once, cohorts are drawn lazily.

    A pattern answers for itself whatever an accountant, a trainer, a configuration or a reader asks; a new one is a class with
    these answers and a line in `coalmine.participation.PATTERNS`.
    """

    keys: ClassVar[tuple[str, ...]] = ()  # of the section [participation] that it takes, beside `pattern` and `rounds`
    required: ClassVar[tuple[tuple[str, ...], ...]] = ()  # of each of these, one key must be there

    @property
    def sampling(self) -> Sampling | None:
        """The chance that amplifies privacy, if the pattern rests on one; None: the adversary knows the rounds."""
        return None

    @property
    def relation(self) -> str:
        """What neighbours differ in, unless somebody says otherwise."""
        return "add-or-remove-one"

    @property
    @abstractmethod
    def most(self) -> int:
        """The largest number of rounds that one client can take part in."""

    @property
    @abstractmethod
    def attendance(self) -> Attendance:
        """The pattern as data."""

    @abstractmethod
    def constraint(self, rounds: int) -> Constraint:
        """In which sets of rounds one client can take part."""

    def until(self, done: int, rounds: int) -> Pattern:
        """The pattern of a run of `rounds` rounds that ended after `done` of them."""
        return self

    def among(self, pool: int, population: int) -> Pattern:
        """The pattern of `pool` canaries that take part as often as clients of a population do."""
        return self

    @property
    def fingerprint(self) -> tuple[Any, ...]:
        """All that decides who takes part when."""
        return (repr(self),)

    @classmethod
    @abstractmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """(the pattern that a section [participation] names, the number of rounds)."""

    @classmethod
    def check_options(cls, options: Mapping[str, Any], name: str) -> None:
        """Whether a section [participation] has what this pattern needs, and nothing that belongs to another."""
        if not all(any(options.get(key) is not None for key in either) for either in cls.required):
            raise ValueError(
                f"participation: pattern {name!r} needs {' and '.join(' or '.join(each) for each in cls.required)}."
            )

    def __str__(self) -> str:
        return str(self.attendance)

    def cohorts(self, population: int, rounds: int, rng: int | Streams, *, start: int = 0) -> Iterator[IndexArray]:
        """The clients of round `start`, `start` + 1, …, `rounds` - 1: positions below `population`, in increasing order."""
        population, rounds = _validate.whole("population", population), _validate.rounds(rounds)
        start = _validate.whole("start", start)
        self._check(population, rounds)
        streams = partial(stream, int(rng)) if isinstance(rng, Integral) else rng
        if not callable(streams):
            raise ValueError(f"rng={rng!r} is not allowed: it must be a whole number (a seed) or a function of names.")
        return self._draw(population, rounds, streams, start)

    @abstractmethod
    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort, known before the run: what a sum of updates may be divided by without revealing who came."""

    def _check(self, population: int, rounds: int) -> None:
        """Refuse a population or a number of rounds that this description does not fit."""
        described = getattr(self, "rounds", rounds)
        if described != rounds:
            raise ValueError(f"rounds={rounds} does not fit: the pattern describes {described} rounds ({self}).")

    @abstractmethod
    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        """The cohorts from round `start` on, in increasing order of round."""


@dataclass(frozen=True)
class Once(Pattern):
    """Every client takes part in exactly one round.

    The clients are shuffled and cut into cohorts whose sizes differ by at most one.

    >>> [cohort.size for cohort in Once().cohorts(population=10, rounds=4, rng=0)]
    [2, 3, 2, 3]
    """

    keys = ("cohort_size",)
    required = (("rounds", "cohort_size"),)

    @property
    def most(self) -> int:
        """The largest number of rounds that a client takes part in."""
        return 1

    @property
    def attendance(self) -> Attendance:
        """Once."""
        return Attendance("repeated", times=1)

    def constraint(self, rounds: int) -> Constraint:
        """One round."""
        return Separation(1, 1, rounds)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """`rounds` or `cohort_size`, from which the other follows."""
        return cls(), rounds_of(options, 1, population)

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort."""
        return population / rounds

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        return passes(1, population, rounds, streams, start)


@dataclass(frozen=True)
class Repeated(Pattern):
    """Every client takes part in exactly `times` rounds, known to the adversary.

    Cohorts are drawn as `Periods` says: one round in each of `times` equal periods.

    Args:
        times: Rounds of a client.
    """

    times: int

    def __post_init__(self) -> None:
        # stored as a plain number: a claim for "8.0 times" would not match scores of "8 times"
        object.__setattr__(self, "times", _validate.whole("times", self.times, least=1))

    @property
    def most(self) -> int:
        """The largest number of rounds that a client takes part in."""
        return int(self.times)

    @property
    def attendance(self) -> Attendance:
        """So many times."""
        return Attendance("repeated", times=self.most)

    def constraint(self, rounds: int) -> Constraint:
        """One round in each period: two of them may be neighbours."""
        return PerPeriod(self.most, rounds)

    def until(self, done: int, rounds: int) -> Pattern:
        """Periods that have begun."""
        return Repeated(max(1, -(-self.times * done // rounds)))

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """`epochs` passes; `rounds` or `cohort_size`, from which the other follows."""
        return cls(int(options["epochs"])), rounds_of(options, int(options["epochs"]), population)

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort."""
        return self.times * population / rounds

    def _check(self, population: int, rounds: int) -> None:
        if rounds < self.times:
            raise ValueError(f"rounds={rounds} is too few for clients that take part in {self.times} of them.")

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        return passes(self.most, population, rounds, streams, start)


@dataclass(frozen=True)
class Periods(Repeated):
    """The canaries' pattern: `times` presentations, one in a random round of each of `times` equal periods.

    Args:
        times: Presentations of a canary.
    """


@dataclass(frozen=True)
class MinSeparation(Pattern):
    """Each round draws `cohort_size` clients among those whose last round is at least `separation` rounds ago.

    A client that takes part in round t may come back in round t + `separation`, as where devices may check in again only
    after some time. A cohort depends on those before it, so `start` replays them; they are still the same.

    Args:
        separation: Least distance of two rounds of a client.
        cohort_size: Clients in a round.
        rounds: Number of rounds.
    """

    separation: int
    cohort_size: int
    rounds: int

    def __post_init__(self) -> None:
        _validate.whole("separation", self.separation, least=1)
        _validate.whole("cohort_size", self.cohort_size, least=1)
        _validate.rounds(self.rounds)

    @property
    def most(self) -> int:
        """The largest number of rounds that a client can take part in."""
        return -(-self.rounds // self.separation)

    keys = ("cohort_size", "separation")
    required = (("rounds",), ("cohort_size",), ("separation",))

    @property
    def attendance(self) -> Attendance:
        """How often at most, and how far apart."""
        return Attendance("min-separation", most=self.most, separation=self.separation)

    def constraint(self, rounds: int) -> Constraint:
        """At least `separation` rounds apart."""
        return Separation(self.most, self.separation, rounds)

    def until(self, done: int, rounds: int) -> Pattern:
        """The same for fewer rounds."""
        return replace(self, rounds=done)

    def among(self, pool: int, population: int) -> Pattern:
        """The same share of the pool."""
        return MinSeparation(self.separation, max(1, round(self.cohort_size * pool / population)), self.rounds)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """`rounds`, `cohort_size` and `separation`."""
        rounds, cohort = both(options, population, "min-separation", whole=True)
        return cls(int(options["separation"]), int(cohort), rounds), rounds

    def expected_size(self, population: int, rounds: int) -> float:
        """The size of every cohort."""
        return float(self.cohort_size)

    def _check(self, population: int, rounds: int) -> None:
        super()._check(population, rounds)
        needed = self.cohort_size * min(self.separation, rounds)
        if needed > population:
            raise ValueError(
                f"population={population} is too small: cohorts of {self.cohort_size} that stay away for {self.separation} "
                f"rounds need {needed} clients. Lower cohort_size or separation."
            )

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        back = np.zeros(population, np.int64)  # the first round in which the client may take part again
        for number in range(rounds):
            free = np.flatnonzero(back <= number)
            chosen = np.sort(free[streams("cohort", number).choice(free.size, self.cohort_size, replace=False, shuffle=False)])
            back[chosen] = number + self.separation
            if number >= start:
                yield chosen


def passes(
    times: int, population: int, rounds: int, streams: Streams, start: int, *, reshuffled: bool = True
) -> Iterator[IndexArray]:
    """Everybody once in each of `times` consecutive parts of the rounds, in shuffled order, in cohorts of nearly equal size."""
    for number in range(times):
        begin, end = rounds * number // times, rounds * (number + 1) // times
        if end <= start:
            continue
        order = streams("cohort", "pass", number if reshuffled else 0).permutation(population)
        for place in range(max(start - begin, 0), end - begin):
            yield np.sort(order[population * place // (end - begin) : population * (place + 1) // (end - begin)])


def rounds_of(options: Mapping[str, Any], epochs: int, population: int) -> int:
    """The number of rounds of `epochs` passes over everybody, where rounds or a cohort size is given."""
    rounds, cohort = options["rounds"], options["cohort_size"]
    found = int(rounds or max(1, round(epochs * population / (cohort or population))))
    follows = epochs * population / found
    if rounds and cohort and abs(cohort - follows) >= 1:
        raise ValueError(
            f"participation: {population:,} clients in {found} rounds make cohorts of {follows:.1f}, not of {cohort:g}. "
            "Leave out rounds or cohort_size, or change the number of users (data.users)."
        )
    return found


def both(options: Mapping[str, Any], population: int, pattern: str, *, whole: bool = False) -> tuple[int, float]:
    """(rounds, cohort size), both of which a pattern needs."""
    rounds, cohort = options["rounds"], options["cohort_size"]
    if cohort > population:
        raise ValueError(f"participation: a cohort_size of {cohort:g} is more than the {population:,} clients that there are.")
    if whole and cohort != int(cohort):
        raise ValueError(f"participation: cohort_size={cohort:g} must be a whole number for pattern {pattern!r}.")
    return int(rounds), float(cohort)
