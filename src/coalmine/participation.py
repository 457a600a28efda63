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

import csv
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import IndexArray, Streams
from coalmine.errors import InputFileError


class _Pattern(ABC):
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
class Once(_Pattern):
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
class Repeated(_Pattern):
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
class Poisson(_Pattern):
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
class FixedSize(_Pattern):
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
class MinSeparation(_Pattern):
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


@dataclass(frozen=True)
class Trace(_Pattern):
    """The rounds that a deployment recorded, replayed: `members[t]` holds the positions of the clients of round t.

    `Trace.of` makes it from a mapping, `Trace.read` from a file. Rounds may be empty, even all: a run of canaries alone.
    """

    members: tuple[tuple[int, ...], ...] = field(repr=False)

    def __post_init__(self) -> None:
        for number, clients in enumerate(self.members):
            if len(set(clients)) < len(clients):
                raise ValueError(f"round {number} of the trace lists a client twice.")
            for client in clients:
                _validate.whole("a client of the trace", client)
        if not self.members:
            raise ValueError("the trace is empty: it has no round. Rounds without clients are written as empty ones (JSON).")

    @staticmethod
    def of(cohorts: Mapping[int, Iterable[Any]], *, users: Sequence[str] | None = None, first: int | None = None) -> "Trace":
        """From a mapping of round number to clients: positions, or with `users` (all of them, in order) their ids.

        The trace begins at the smallest round number, or at `first`; a number that is left out is a round without clients.

        >>> Trace.of({7: ["ann", "bob"], 9: ["bob"]}, users=["ann", "bob", "eve"]).members
        ((0, 1), (), (1,))
        """
        positions = None if users is None else {user: position for position, user in enumerate(users)}
        found: dict[int, tuple[int, ...]] = {}
        for number, clients in cohorts.items():
            number = _validate.whole("a round number of the trace", number)
            try:
                found[number] = tuple(client if positions is None else positions[client] for client in clients)
            except KeyError as error:
                raise ValueError(
                    f"round {number} lists {error.args[0]!r}, which is none of the {len(users or ())} users."
                ) from None
        if not found:
            raise ValueError("the trace is empty: it has no round. Rounds without clients are written as empty ones (JSON).")
        begin = min(found) if first is None else _validate.whole("first", first)
        if min(found) < begin:
            raise ValueError(f"first={begin} is after round {min(found)}, which the trace has too.")
        return Trace(tuple(found.get(number, ()) for number in range(begin, max(found) + 1)))

    @staticmethod
    def read(path: str | Path, *, users: Sequence[str] | None = None, first: int | None = None) -> "Trace":
        """From a file: csv or tsv with the columns `round` and `client` and a row for each participation, or JSON.

        The JSON is an object of round number to list of clients: {"0": ["ann", "bob"], "1": ["eve"]}.
        """
        path = Path(path)
        if not path.is_file():
            raise InputFileError(f"there is no file {str(path)!r}; a trace is a csv file with the columns round, client.")
        reading = {".csv": _csv_rounds, ".tsv": _csv_rounds, ".txt": _csv_rounds, ".json": _json_rounds}
        if path.suffix.lower() not in reading:
            raise InputFileError(f"{path.name!r}: the ending of a trace must be one of {', '.join(reading)}.")
        try:
            return Trace.of(reading[path.suffix.lower()](path, as_text=users is not None), users=users, first=first)
        except (ValueError, RecursionError, csv.Error) as error:  # bad UTF-8 and bad JSON are ValueErrors as well
            raise InputFileError(f"{path.name} is not a readable trace: {error}") from None

    @property
    def rounds(self) -> int:
        """The number of rounds recorded, those without clients included."""
        return len(self.members)

    @property
    def most(self) -> int:
        """The largest number of rounds that a client takes part in."""
        return max(Counter(chain.from_iterable(self.members)).values(), default=0)

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort."""
        return sum(map(len, self.members)) / self.rounds

    def _check(self, population: int, rounds: int) -> None:
        super()._check(population, rounds)
        highest = max(chain.from_iterable(self.members), default=-1)
        if highest >= population:
            raise ValueError(f"population={population} does not fit: the trace lists client {highest} (positions begin at 0).")

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        for clients in self.members[start:]:
            yield np.sort(np.asarray(clients, np.int64))

    def __str__(self) -> str:
        return f"at most {self.most} times, by a trace of {self.rounds} rounds"


Participation = Once | Repeated | Poisson | FixedSize | MinSeparation | Trace  # Epochs and Periods are Repeated


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


def _csv_rounds(path: Path, as_text: bool) -> dict[int, list[Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = file.readline()
        separator = max(",;\t", key=header.count)
        names = [name.strip().lower() for name in next(csv.reader([header], delimiter=separator), [])]
        if sorted(names) != ["client", "round"]:
            raise ValueError(f"its columns must be round and client, found {', '.join(map(repr, names)) or 'none'}.")
        found: dict[int, list[Any]] = {}
        for line, row in enumerate(csv.reader(file, delimiter=separator), start=2):
            if not row:
                continue
            if len(row) != 2:
                raise ValueError(f"line {line} has {len(row)} cells instead of 2.")
            cells = dict(zip(names, row, strict=True))
            try:
                number = int(cells["round"])
                client = cells["client"] if as_text else int(cells["client"])
            except ValueError:
                raise ValueError(f"line {line}: cannot read {row!r}; without a list of users both are whole numbers.") from None
            found.setdefault(number, []).append(client)
        return found


def _json_rounds(path: Path, as_text: bool) -> dict[int, list[Any]]:
    content = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(content, dict) or not all(isinstance(clients, list) for clients in content.values()):
        raise ValueError('it must hold an object of round number to list of clients, as {"0": [3, 5], "1": [4]}.')
    allowed = str if as_text else int
    for number, clients in content.items():
        if not number.isdecimal() or not all(isinstance(client, allowed) for client in clients):
            kind = "user ids in quotes" if as_text else "whole numbers"
            raise ValueError(f"round {number!r}: rounds must be whole numbers and clients {kind}.")
    return {int(number): clients for number, clients in content.items()}
