"""Rounds of the mechanism that a description tells of, without any training: for calibration of the tests themselves.

Sums of clients and canaries are random vectors of realistic lengths; a clip norm follows the quantile that is described. Noise
comes from streams whose keys are hashes: simulated noise from a small seed of a common generator would be found out
(`coalmine.conformance.guesses`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from coalmine._random import stream
from coalmine.conformance.battery import Battery
from coalmine.conformance.check import Check, Subject
from coalmine.contracts import Array, Compared, Conformance, IndexArray, Observed, Public, Release, RoundCanaries, Streams

COHORT, CANARIES = 50, 20
Fault = Callable[[Array, int], Array]  # (standard normal noise, round) to what is added instead


def rounds_of(subject: Subject, seed: int, fault: Fault | None = None) -> Iterator[Observed]:
    """Correct rounds, or rounds whose noise has a fault."""
    told, dim, clip, divisor = subject.description.noise, subject.dim, 1.0, float(COHORT + CANARIES)
    assert told is not None
    drawn = _cohorts(subject, partial(stream, seed, "cohorts"))
    again = _cohorts(subject, partial(stream, seed, "cohorts drawn again"))
    for number in range(subject.rounds):
        rng = stream(seed, "simulated round", number)
        clients = rng.standard_normal(dim) * (0.2 * clip * COHORT / np.sqrt(dim))
        canaries = rng.standard_normal(dim) * (clip * np.sqrt(CANARIES / dim))
        noise = rng.standard_normal(dim)
        noise = told.multiplier * clip * (noise if fault is None else fault(noise, number))
        release = (clients + canaries + noise) / divisor
        last = number + 1 == subject.rounds
        bare = told.multiplier * clip * stream(seed, "bare").standard_normal(dim)
        other = told.multiplier * clip * stream(seed, "released again").standard_normal(dim)
        unclipped = int(stream(seed, "unclipped", number).binomial(COHORT, 0.5))
        yield Observed(
            round=number,
            release=Release(number, release, clip, divisor),
            canaries=RoundCanaries(np.arange(CANARIES), None, canaries / divisor),
            others=clients / divisor,
            public=Public(number, clip, divisor),
            samples=tuple(Compared(2.0, 1.0, 0.0) for _ in range(4)),
            bare=(clients + bare) / divisor if last else None,
            again=(clients + canaries + other) / divisor if last else None,
            cohort=None if drawn is None else next(drawn),
            cohort_again=None if again is None else next(again),
            count=COHORT + CANARIES,
            unclipped=unclipped,
        )
        clip *= _next_clip(subject, unclipped, float(stream(seed, "count noise", number).standard_normal()))


def _next_clip(subject: Subject, unclipped: int, noise: float) -> float:
    """The factor on the clip norm (Andrew et al. 2021); 1 where it is fixed."""
    factor, contributors = 1.0, COHORT + CANARIES
    for extra in subject.description.extras:
        if extra.rate is not None and extra.target is not None:
            share = 0.5 + (unclipped - contributors / 2 + extra.noise * noise) / contributors
            factor *= math.exp(-extra.rate * (min(max(share, 0.0), 1.0) - extra.target))
    return factor


def _cohorts(subject: Subject, streams: Streams) -> Iterator[IndexArray] | None:
    if subject.participation is None:
        return None
    return subject.participation.cohorts(subject.population, subject.rounds, streams)


def simulate(subject: Subject, checks: tuple[Check, ...], seed: int, fault: Fault | None = None) -> Conformance:
    """All tests of one simulated run."""
    battery = Battery(subject, checks)
    for seen in rounds_of(subject, seed, fault):
        battery.observe(seen)
    return battery.conclude()
