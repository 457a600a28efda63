"""Who takes part when: descriptions that an accountant reads and that a trainer draws cohorts from.

    pattern                 a client takes part                                    the accountant's adversary
    Once                    in exactly one round                                   knows the rounds
    Repeated, Periods(n)    in exactly n rounds, one in each of n equal periods    knows the rounds
    Epochs(n)               in exactly n rounds, one in each pass over everybody   knows the rounds
    MinSeparation           at most every `separation` rounds                      knows the rounds
    Trace                   in the rounds that a deployment recorded               knows the rounds
    Poisson                 in each round with the same probability                does not know the rounds
    FixedSize               whenever drawn without replacement                     does not know the rounds

Knowing the rounds means no amplification by sampling. A claim that stands beside a measurement must describe the canaries
of that measurement, not the clients in general.

`pattern.cohorts(population, rounds, rng)` yields one array of client positions per round, in increasing order, each drawn
only when it is asked for. `rng` is a seed, or anything that makes a generator from names, as
`functools.partial(stream, secret_seed, "canaries")`: clients and canaries that follow patterns of the same kind need
streams of their own. What is drawn for a round depends on the streams alone, never on which rounds were asked for before,
so that `start` goes on where an interrupted run stopped.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Integral

import numpy as np

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import IndexArray, Streams


class Pattern(ABC):
    """What all patterns share: arguments are checked at once, cohorts are drawn lazily."""

    def cohorts(self, population: int, rounds: int, rng: int | Streams, *, start: int = 0) -> Iterator[IndexArray]:
        """The clients of round `start`, `start` + 1, …, `rounds` - 1: positions below `population`, in increasing order."""
        population, rounds = _validate.whole("population", population), _validate.whole("rounds", rounds, least=1)
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

    @property
    def most(self) -> int:
        """The largest number of rounds that a client takes part in."""
        return 1

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort."""
        return population / rounds

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        return _passes(1, population, rounds, streams, start)

    def __str__(self) -> str:
        return "once"


@dataclass(frozen=True)
class Repeated(Pattern):
    """Every client takes part in exactly `times` rounds, known to the adversary.

    Cohorts are drawn as `Periods` says: one round in each of `times` equal periods.
    """

    times: int

    def __post_init__(self) -> None:
        # stored as a plain number: a claim for "8.0 times" would not match scores of "8 times"
        object.__setattr__(self, "times", _validate.whole("times", self.times, least=1))

    @property
    def most(self) -> int:
        """The largest number of rounds that a client takes part in."""
        return int(self.times)

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort."""
        return self.times * population / rounds

    def _check(self, population: int, rounds: int) -> None:
        if rounds < self.times:
            raise ValueError(f"rounds={rounds} is too few for clients that take part in {self.times} of them.")

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        return _passes(self.most, population, rounds, streams, start)

    def __str__(self) -> str:
        return "once" if self.times == 1 else f"{self.times} times"


@dataclass(frozen=True)
class Periods(Repeated):
    """The canaries' pattern: `times` presentations, one in a random round of each of `times` equal periods."""


@dataclass(frozen=True)
class Epochs(Repeated):
    """`times` passes over all clients, each of them once per pass.

    Each pass is shuffled anew. With `reshuffled=False` all passes have the order of the first, so that the rounds of a
    client are always (up to rounding) a whole pass apart.
    """

    reshuffled: bool = True

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        return _passes(self.most, population, rounds, streams, start, reshuffled=self.reshuffled)


@dataclass(frozen=True)
class Poisson(Pattern):
    """In each of `rounds` rounds every client takes part with probability `rate`, independently."""

    rate: float
    rounds: int

    def __post_init__(self) -> None:
        if not 0 < _validate.number("rate", self.rate) <= 1:
            raise ValueError(
                f"rate={self.rate!r} is not a probability. Poisson(rate=...) needs 0 < rate <= 1; "
                f"cohort_size / population = 50 / 3400 gives {50 / 3400:.4f}."
            )
        object.__setattr__(self, "rate", float(self.rate))
        object.__setattr__(self, "rounds", _validate.whole("rounds", self.rounds, least=1))

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort."""
        return self.rate * population

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        for number in range(start, rounds):
            yield np.flatnonzero(streams("cohort", number).random(population) < self.rate)

    def __str__(self) -> str:
        return f"Poisson sampling at rate {self.rate:g} for {self.rounds} rounds"


@dataclass(frozen=True)
class FixedSize(Pattern):
    """In each of `rounds` rounds `cohort_size` of `population` clients are drawn without replacement."""

    cohort_size: int
    population: int
    rounds: int

    def __post_init__(self) -> None:
        for name in ("cohort_size", "population", "rounds"):
            object.__setattr__(self, name, _validate.whole(name, getattr(self, name), least=1))
        if self.cohort_size > self.population:
            raise ValueError(f"cohort_size={self.cohort_size} exceeds population={self.population}.")

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

    def __str__(self) -> str:
        return f"{self.cohort_size} of {self.population} clients without replacement for {self.rounds} rounds"


@dataclass(frozen=True)
class MinSeparation(Pattern):
    """Each round draws `cohort_size` clients among those whose last round is at least `separation` rounds ago.

    A client that takes part in round t may come back in round t + `separation`, as where devices may check in again only
    after some time. A cohort depends on those before it, so `start` replays them; they are still the same.
    """

    separation: int
    cohort_size: int
    rounds: int

    def __post_init__(self) -> None:
        _validate.whole("separation", self.separation, least=1)
        _validate.whole("cohort_size", self.cohort_size, least=1)
        _validate.whole("rounds", self.rounds, least=1)

    @property
    def most(self) -> int:
        """The largest number of rounds that a client can take part in."""
        return -(-self.rounds // self.separation)

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

    def __str__(self) -> str:
        return f"at most {self.most} times, at least {self.separation} rounds apart"


def _passes(
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
