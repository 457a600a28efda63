"""`assert_samples`: are batches drawn by Poisson's rule, as the accountant of amplified privacy was told?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine.conformance import Battery, Subject
from coalmine.conformance.cohorts import COHORTS
from coalmine.contracts import Clip, Conformance, Description, IndexArray, Observed, Release, RoundCanaries
from coalmine.contracts.conformance import LEVEL
from coalmine.contracts.finding_sentences import chance
from coalmine.participation import Poisson


def assert_samples(
    draw: Callable[[], Any] | Iterable[Any],
    *,
    population: int,
    rate: float,
    steps: int = 200,
    level: float = LEVEL,
) -> Conformance:
    """Draw so many batches, and fail if they are not drawn as stated: sizes, repetitions, favoured examples.

    A loader that shuffles and takes batches of one size is no Poisson sampling, and its epsilon is not the amplified one.

    Args:
        draw: The code under test: a function that returns the numbers of a batch's examples, or an iterable of such batches
            (a batch sampler, which is begun anew where it ends).
        population: Examples in all; their numbers are 0 to population - 1.
        rate: Probability of each in a step, as claimed.
        steps: Batches that are drawn.
        level: Probability with which correct code fails.

    Returns:
        All findings, also where nothing failed.

    Raises:
        AssertionError: With what was measured and what was claimed.
    """
    _validate.whole("population", population, least=2)
    _validate.whole("steps", steps, least=2)
    told = Poisson(rate, steps)
    subject = Subject(Description(Clip(1.0), None), 2, participation=told, population=population, rounds=steps, level=level)
    battery, batches = Battery(subject, COHORTS), _batches(draw)
    for number in range(steps):
        battery.observe(_observed(number, _indices(next(batches), population)))
    found = battery.conclude()
    if found.deviations:
        false = found.deviations[0]
        where = _of_examples(false.where or false.sentence)
        raise AssertionError(
            f"not as claimed: examples are drawn by Poisson sampling at rate {rate:g} of {population:,}. Seen in: {where}; "
            f"{false.measured:.4g} examples in a step, claimed {false.claimed:.4g} ({chance(false.adjusted)})"
        )
    return found


def _of_examples(where: str) -> str:
    """Where it was seen, in words of batches and examples."""
    for theirs, ours in (("clients' rounds", "how often each example came"), ("client", "example"), ("cohorts", "batches")):
        where = where.replace(theirs, ours)
    return where


def _batches(draw: Callable[[], Any] | Iterable[Any]) -> Iterator[Any]:
    if callable(draw):
        while True:
            yield draw()
    while True:
        some = False
        for batch in draw:
            some = True
            yield batch
        if not some:
            raise ValueError(
                "the batches that were given have ended: give a function that draws one, or what can be begun anew."
            )


def _indices(batch: Any, population: int) -> IndexArray:
    found = np.asarray(batch.detach().cpu() if hasattr(batch, "detach") else batch)
    if found.ndim != 1 or (found.size and not np.issubdtype(found.dtype, np.integer)):
        raise ValueError(f"a batch must be a list of the numbers of its examples; got shape {found.shape} of {found.dtype}.")
    if found.size and not (found.min() >= 0 and found.max() < population):
        raise ValueError(f"a batch has example {found.max() if found.max() >= population else found.min()} of {population:,}.")
    return found.astype(np.int64)


def _observed(number: int, drawn: IndexArray) -> Observed:
    nothing = Release(number, np.zeros(2, np.float32), 1.0, 1.0)
    return Observed(number, nothing, RoundCanaries(np.zeros(0, np.int64)), cohort=drawn)
