"""Examples sampled instead of clients: how often one client takes part when each of its examples is drawn by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from coalmine import _validate
from coalmine.contracts import Attendance, Constraint, IndexArray, Sampling, Separation, Streams
from coalmine.participation.patterns import Pattern
from coalmine.participation.sampled import draw_poisson

_MOST_EXAMPLES = 1_000_000  # of a client


@dataclass(frozen=True)
class ExamplePoisson(Pattern):
    """In each of `rounds` rounds every example takes part with probability `rate`; a client has at most `group_size` of them.

    Examples are clipped one by one, and the claim is for a client with all its examples: in a round it moves the sum by a
    binomial number of clip norms. `group_size` must bound what was really kept of every client.

    Args:
        rate: Probability of an example in a round.
        rounds: Number of rounds.
        group_size: Examples of a client at most.
    """

    rate: float
    rounds: int
    group_size: int = 1

    def __post_init__(self) -> None:
        if not 0 < _validate.number("rate", self.rate) <= 1:
            raise ValueError(f"rate={self.rate!r} is not a probability: of an example to be in a batch, above 0 and at most 1.")
        object.__setattr__(self, "rate", float(self.rate))
        object.__setattr__(self, "rounds", _validate.rounds(self.rounds))
        object.__setattr__(self, "group_size", _validate.whole("group_size", self.group_size, least=1, most=_MOST_EXAMPLES))

    @property
    def most(self) -> int:
        """All rounds."""
        return self.rounds

    @property
    def sampling(self) -> Sampling:
        """Each example in each round with the same probability."""
        return Sampling(self.rate, self.rounds, group_size=self.group_size)

    @property
    def attendance(self) -> Attendance:
        """Rate, rounds and number of examples; with one example that of a client that is sampled itself."""
        if self.group_size == 1:
            return Attendance("poisson", rate=self.rate, rounds=self.rounds)
        return Attendance("example-poisson", times=self.group_size, rate=self.rate, rounds=self.rounds)

    def constraint(self, rounds: int) -> Constraint:
        """Any rounds."""
        return Separation(rounds, 1, rounds)

    def until(self, done: int, rounds: int) -> Pattern:
        """The same for fewer rounds."""
        return replace(self, rounds=done)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], population: int) -> tuple[Pattern, int]:
        """No configuration names it: the round loop samples clients."""
        raise ValueError("the round loop samples clients, not examples; ExamplePoisson describes other training for a claim.")

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean number of examples, of a `population` of examples."""
        return self.rate * population

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        for number in range(start, rounds):
            yield draw_poisson(population, self.rate, streams("cohort", number))
