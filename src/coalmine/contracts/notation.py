"""How people write down who takes part, as in `--game participation="8 times"`: an input, which a pattern is compared with.

It is frozen: sentences that a page says of the same thing (`coalmine.contracts.sentences`) may be reworded without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def ordinal(number: int) -> str:
    """As in "every 3rd round"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


NOTATION: dict[str, Callable[[Any], str]] = {
    "repeated": lambda how: "once" if how.times == 1 else f"{how.times} times",
    "poisson": lambda how: f"Poisson sampling at rate {how.rate:g} for {how.rounds} rounds",
    "example-poisson": lambda how: (
        f"Poisson sampling of each of {how.times} examples at rate {how.rate:g} for {how.rounds} rounds"
    ),
    "fixed-size": lambda how: f"{how.cohort_size} of {how.population} clients without replacement for {how.rounds} rounds",
    "min-separation": lambda how: f"at most {how.most} times, at least {how.separation} rounds apart",
    "cyclic-poisson": lambda how: (
        f"Poisson sampling at rate {how.rate:g} in every {ordinal(how.separation)} round of {how.rounds}"
    ),
    "separated": lambda how: "once" if how.times == 1 else f"{how.times} times, {how.separation} rounds apart",
    "trace": lambda how: f"at most {how.most} times, by a trace of {how.rounds} rounds",
}


def notation(how: Any) -> str:
    """An `Attendance` in this notation; somebody's own words as they are."""
    made = NOTATION.get(how.kind)
    return made(how) if made is not None else str(how.kind if how.text is None else how.text)
