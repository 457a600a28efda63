"""Who takes part when, as descriptions that an accountant reads.

`Once` and `Repeated` are for an adversary who knows the rounds: no amplification by sampling. `Poisson` and
`FixedSize` are for one who does not. A claim that stands beside a measurement must describe the canaries of that
measurement, not the clients in general.
"""

from dataclasses import dataclass

from coalmine import _validate


@dataclass(frozen=True)
class Once:
    """Every client takes part in exactly one round."""

    def __str__(self) -> str:
        return "once"


@dataclass(frozen=True)
class Repeated:
    """Every client takes part in exactly `times` rounds, known to the adversary."""

    times: int

    def __post_init__(self) -> None:
        # stored as a plain number: a claim for "8.0 times" would not match scores of "8 times"
        object.__setattr__(self, "times", _validate.whole("times", self.times, least=1))

    def __str__(self) -> str:
        return "once" if self.times == 1 else f"{self.times} times"


@dataclass(frozen=True)
class Poisson:
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

    def __str__(self) -> str:
        return f"Poisson sampling at rate {self.rate:g} for {self.rounds} rounds"


@dataclass(frozen=True)
class FixedSize:
    """In each of `rounds` rounds `cohort_size` of `population` clients are drawn without replacement."""

    cohort_size: int
    population: int
    rounds: int

    def __post_init__(self) -> None:
        for name in ("cohort_size", "population", "rounds"):
            object.__setattr__(self, name, _validate.whole(name, getattr(self, name), least=1))
        if self.cohort_size > self.population:
            raise ValueError(f"cohort_size={self.cohort_size} exceeds population={self.population}.")

    def __str__(self) -> str:
        return f"{self.cohort_size} of {self.population} clients without replacement for {self.rounds} rounds"


Participation = Once | Repeated | Poisson | FixedSize
