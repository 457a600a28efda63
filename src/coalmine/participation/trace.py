"""The rounds that a deployment recorded, and the files that hold them."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine.contracts import Attendance, Constraint, Explicit, IndexArray, Streams
from coalmine.errors import InputFileError
from coalmine.participation.patterns import Pattern


@dataclass(frozen=True)
class Trace(Pattern):
    """The rounds that a deployment recorded, replayed: `members[t]` holds the positions of the clients of round t.

    `Trace.of` makes it from a mapping, `Trace.read` from a file. Rounds may be empty, even all: a run of canaries alone.

    Args:
        members: By round, the positions of its clients.
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

    keys = ("trace",)
    required = (("trace",),)

    @property
    def attendance(self) -> Attendance:
        """Rounds and the most frequent client only: who took part when would reveal the rounds of canaries."""
        return Attendance("trace", most=self.most, rounds=self.rounds)

    def constraint(self, rounds: int) -> Constraint:
        """The sets of rounds that were recorded, each once."""
        clients = sorted(set(chain.from_iterable(self.members)))
        presence = np.zeros((self.rounds, len(clients)), dtype=np.bool_)
        places = {client: place for place, client in enumerate(clients)}
        for number, members in enumerate(self.members):
            presence[number, [places[client] for client in members]] = True
        return Explicit(np.unique(presence, axis=1) if clients else presence)

    def among(self, pool: int, population: int) -> Pattern:
        """A trace says nothing about canaries."""
        raise ValueError("canaries: a trace says nothing about canaries; use pattern 'periods'.")

    @property
    def fingerprint(self) -> tuple[Any, ...]:
        """All that was recorded."""
        return (repr(self), self.members)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """The file `trace`, whose clients are named as the users of the data are."""
        found = cls.read(options["trace"], users=options["users"])
        return found, found.rounds

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
