"""Cohorts are drawn as claimed: by chance in the way that amplifies privacy, or within the constraint that is accounted.

statistic                        law under sampling by chance
clients over all rounds          binomial; a fixed size has to be met exactly
dispersion of the sizes          chi-square
dispersion of clients' rounds    chi-square, its variance that of binomials
the client that came most often  binomial, for each of all clients
clients of a round that were     mean N q² for each pair of rounds
there so many rounds before
sizes over the rounds            normal, with their trend; thirds of the rounds binomial
pairs of rounds, of clients      `cohort_pairs`
clients that the same code       hypergeometric in every round, bounded by Hoeffding (1963, Theorem 4 and section 6)
draws under another secret

Where nobody says who they were, but how many, the sizes alone are tested; that is less than the sentence says, and is said so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from coalmine.conformance import by_round
from coalmine.conformance.check import Check, Memory, Round, Subject, found
from coalmine.conformance.cohort_pairs import kept, nothing, pair_tails
from coalmine.conformance.laws import Tail, binomial, chi_square, normal, worst
from coalmine.contracts import (
    Array,
    Constraint,
    Explicit,
    Finding,
    NotTested,
    Participation,
    PerPeriod,
    Sampling,
    Separation,
    Side,
)

LAGS = 32
_TREND = 8  # rounds of which a trend is looked at
_ENOUGH = 10.0  # expected events below which a sum of them is not taken for normal


class Cohorts:
    """Who took part, against who was to."""

    key: ClassVar[str] = "cohorts"

    def applies(self, subject: Subject) -> str | None:
        """Where it is known how cohorts are drawn."""
        return "no-cohorts" if subject.participation is None or not subject.population else None

    def init(self, subject: Subject) -> Memory:
        """By client: rounds so far, the last rounds as bits, the last round; rounds, all places, Σ of squares; overlaps."""
        return {
            "times": np.zeros(subject.population, np.int32),
            "history": np.zeros(subject.population, np.uint32),
            "last": np.full(subject.population, -1, np.int32),
            "sizes": np.zeros(3),
            "overlaps": np.zeros(LAGS),
            "canaries": np.zeros(subject.pool, np.int32),
            "who": nothing(subject.population),
            "by_round": by_round.empty(1),  # the sizes
            "unnamed": np.zeros(3),  # the same as `sizes` of rounds of which the size alone is known
            "unnamed_by_round": by_round.empty(1),
            "broken": np.zeros(2),  # draws against the constraint, the round of the last one
            "again": np.zeros(3),  # draws under another secret, how many of them are in the cohort, and how many are expected
        }

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        cohort, canaries = seen.seen.cohort, seen.seen.canaries
        if cohort is None:
            if seen.seen.count is not None:
                size = float(seen.seen.count - canaries.indices.size)
                memory["unnamed_by_round"] = by_round.appended(memory["unnamed_by_round"], [size])
                memory["unnamed"] += [1, size, size**2]
            return
        if canaries.assigned is None and memory["canaries"].size:
            np.add.at(memory["canaries"], canaries.indices, 1)
        number, unique = seen.seen.round, np.unique(cohort)
        broken = cohort.size - unique.size + int(np.count_nonzero((unique < 0) | (unique >= subject.population)))
        unique = unique[(unique >= 0) & (unique < subject.population)]
        broken += self._against(memory, unique, number, subject)
        if broken:
            memory["broken"] = np.array([memory["broken"][0] + broken, number], dtype=np.float64)
        bits = memory["history"][unique]
        memory["overlaps"] += [int(np.count_nonzero(bits >> np.uint32(lag) & np.uint32(1))) for lag in range(LAGS)]
        memory["history"] <<= np.uint32(1)
        memory["history"][unique] |= np.uint32(1)
        memory["times"][unique] += 1
        memory["last"][unique] = number
        if seen.seen.cohort_again is not None:
            other = np.unique(seen.seen.cohort_again)
            both = np.intersect1d(unique, other, assume_unique=True).size
            memory["again"] += [other.size, both, other.size * unique.size / subject.population]
        memory["who"] = kept(memory["who"], unique, subject.population)
        memory["by_round"] = by_round.appended(memory["by_round"], [float(cohort.size)])
        memory["sizes"] += [1, cohort.size, float(cohort.size) ** 2]

    def _against(self, memory: Memory, cohort: Any, number: int, subject: Subject) -> int:
        """How many of this round may not be in it."""
        assert subject.participation is not None
        sampling = _chance(subject.participation, subject.rounds)
        if sampling is not None:
            return 0 if sampling.cohort_size in (None, cohort.size) else 1
        constraint: Constraint = subject.participation.constraint(subject.rounds)
        times, last = memory["times"][cohort], memory["last"][cohort]
        broken = times + 1 > constraint.most
        if isinstance(constraint, PerPeriod):
            period = _period(number, constraint)
            broken |= (last >= 0) & (np.array([_period(int(each), constraint) for each in last]) == period)
        elif not isinstance(constraint, Explicit):
            broken |= (last >= 0) & (number - last < constraint.separation)
        return int(np.count_nonzero(broken))

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The constraint itself, and the laws of chance where the claim rests on them."""
        rounds, places, _ = memory["sizes"].tolist()
        if subject.participation is None:
            return NotTested(self.key, "no-cohorts")
        if not rounds:
            return self._of_sizes_alone(memory, subject, subject.participation)
        broken, number = memory["broken"].tolist()
        tails = [Tail(0.0 if broken else 1.0, "less", f"round {int(number) + 1}"), _canaries(memory, subject)]
        sampling = _chance(subject.participation, subject.rounds)
        claimed = subject.participation.expected_size(subject.population, subject.rounds or int(rounds))
        if sampling is not None:
            claimed = sampling.rate * subject.population
            tails += _by_chance(memory, sampling, subject.population, rounds)
            tails += pair_tails(memory["who"], subject.population, sampling) if 0 < sampling.rate < 1 else []
            tails += _drawn_again(*memory["again"].tolist())
        return found(self.key, worst(tails), claimed=claimed, measured=places / rounds)

    def _of_sizes_alone(self, memory: Memory, subject: Subject, told: Participation) -> Finding | NotTested:
        """Nobody said who was drawn."""
        rounds, places, squares = memory["unnamed"].tolist()
        sampling = _chance(told, subject.rounds)
        if not rounds or sampling is None or not 0 < sampling.rate < 1:
            return NotTested(self.key, "no-cohorts")
        claimed = sampling.rate * subject.population
        if sampling.cohort_size is None:
            tails = _of_sizes(memory["unnamed"], memory["unnamed_by_round"], sampling.rate, subject.population)
        else:
            as_said = (places, squares) == (rounds * sampling.cohort_size, rounds * sampling.cohort_size**2)
            tails = [Tail(1.0 if as_said else 0.0, "less", "sizes of cohorts")]
        return found(self.key, worst(tails), claimed=claimed, measured=places / rounds, sizes_only=True)


def _chance(participation: Participation, rounds: int) -> Sampling | None:
    """Sampling of everybody in every round; where groups of clients take turns, the constraint is looked at instead."""
    constraint = participation.constraint(max(rounds, 1))
    return None if isinstance(constraint, Separation) and constraint.separation > 1 else participation.sampling


def _canaries(memory: Memory, subject: Subject) -> Tail:
    """Whether a canary took part more often than a client may, by the account of its rounds."""
    if subject.canaries is None or subject.canaries.sampling is not None:
        return Tail(1.0)
    most = subject.canaries.constraint(subject.rounds).most
    times = memory["canaries"]
    return Tail(0.0, "less", f"canary {int(times.argmax())}") if times.size and times.max() > most else Tail(1.0)


def _drawn_again(draws: float, common: float, expected: float) -> list[Tail]:
    """Too many clients that the same code draws under another secret: who takes part can be computed without it.

    Each round's number in common is hypergeometric; exp(-n KL(share, mean share)) bounds the tail of their sum.
    """
    if not 0 < expected < draws:
        return []
    share, mean = common / draws, expected / draws
    if share <= mean:
        return [Tail(1.0)]
    distance = share * math.log(share / mean) + (0.0 if share >= 1 else (1 - share) * math.log((1 - share) / (1 - mean)))
    return [Tail(math.exp(-draws * distance), "less", "cohorts drawn again under another secret")]


def _period(number: int, constraint: PerPeriod) -> int:
    """Which of `times` equal parts of the rounds a round is in."""
    return next(place for place in range(constraint.times) if number < constraint.rounds * (place + 1) // constraint.times)


def _by_chance(memory: Memory, sampling: Sampling, population: int, rounds: float) -> list[Tail]:
    """All laws of sampling by chance."""
    rate, fixed = sampling.rate, sampling.cohort_size is not None
    if not 0 < rate < 1:
        return []
    tails = [] if fixed else _of_sizes(memory["sizes"], memory["by_round"], rate, population)
    return [*tails, *_by_client(memory, rate, population, rounds, fixed), *_overlaps(memory, rate, population, rounds, fixed)]


def sizes_by_chance(sizes: Sequence[int], rate: float, population: int) -> float:
    """The p-value of sizes of cohorts, one for every round, under Poisson sampling.

    >>> sizes_by_chance([64] * 40, 0.05, 1280) < 1e-9 < sizes_by_chance([60, 71, 55, 64, 68, 57], 0.05, 1280)
    True
    """
    if not sizes or not 0 < rate < 1:
        return 1.0
    rows = by_round.empty(1)
    for each in sizes:
        rows = by_round.appended(rows, [float(each)])
    totals = np.array([len(sizes), np.sum(sizes), np.square(sizes, dtype=np.float64).sum()])
    return min(1.0, worst(_of_sizes(totals, rows, rate, population)).p_value)


def _of_sizes(totals: Array, rows: Array, rate: float, population: int) -> list[Tail]:
    """All places, how far sizes are apart, and whether they grow."""
    rounds, places, squares = totals.tolist()
    fewer, more = binomial(places, population * rounds, rate)  # more places than claimed: less protection
    tails = [Tail(min(1.0, 2 * min(fewer, more)), "less" if more < fewer else "more", "clients over all rounds")]
    mean, variance = population * rate, population * rate * (1 - rate)
    if variance >= _ENOUGH:
        spread = max(squares - 2 * mean * places + rounds * mean**2, 0.0)
        # sizes are whole numbers, all of which may be the mean: for the lower tail each is half a client farther off
        nearest = spread + math.sqrt(rounds * spread) + rounds / 4
        scale = 1 + (1 - 6 * rate * (1 - rate)) / (2 * variance)
        lower, upper = (chi_square(each / variance / scale, rounds / scale) for each in (nearest, spread))
        tails.append(Tail(min(1.0, 2 * min(lower[0], upper[1])), "unknown", "sizes of cohorts"))
        sizes = by_round.full(rows)  # those of several rounds are one of as many times the clients
        tails += _over_time(sizes[:, 0], population * int(sizes[0, 1]), rate)
    return tails


def _over_time(sizes: Array, population: int, rate: float) -> list[Tail]:
    """A trend of the sizes, and the thirds of the rounds."""
    rounds = sizes.size
    if rounds < _TREND:
        return []
    slope, variance = np.arange(rounds) - (rounds - 1) / 2, population * rate * (1 - rate)
    score = float(slope @ sizes) / math.sqrt(variance * float(slope @ slope))
    # symmetric weights: no third cumulant; a fourth one that is positive makes the tails heavier (Edgeworth)
    heavier = max((1 - 6 * rate * (1 - rate)) / variance, 0.0) * float((slope**4).sum() / (slope @ slope) ** 2)
    trend = Tail(min(1.0, normal(score).p_value * (1 + heavier * score**4 / 24)), "less" if score > 0 else "unknown", "a trend")
    thirds = []
    for number, part in enumerate(np.array_split(sizes, 3)):
        fewer, more = binomial(float(part.sum()), float(population * part.size), rate)
        side: Side = "less" if more < fewer else "unknown"
        thirds.append(Tail(min(1.0, 2 * min(fewer, more)), side, f"clients in third {number + 1} of the rounds"))
    return [worst([trend, *thirds])]


def _by_client(memory: Memory, rate: float, population: int, rounds: float, fixed: bool) -> list[Tail]:
    """How often clients came: their dispersion, and the one that came most and least often."""
    times, variance = memory["times"].astype(np.float64), rounds * rate * (1 - rate)
    spread = float(np.square(times - rounds * rate).sum()) / variance
    free = population - 1.0 if fixed else float(population)
    tails = []
    if population * min(variance, 1.0) >= _ENOUGH:
        tails.append(_scaled(spread * free / population, free, 2 + (1 - 6 * rate * (1 - rate)) / variance, "clients' rounds"))
    most, least = float(times.max()), float(times.min())
    tails.append(Tail(min(1.0, population * binomial(most, rounds, rate)[1]), "less", f"client {int(times.argmax())}"))
    tails.append(Tail(min(1.0, population * binomial(least, rounds, rate)[0]), "unknown", f"client {int(times.argmin())}"))
    return tails


def _overlaps(memory: Memory, rate: float, population: int, rounds: float, fixed: bool) -> list[Tail]:
    """Clients of a round that were there so many rounds before."""
    tails = []
    for lag in range(1, min(LAGS, int(rounds) - 1) + 1):
        pairs = rounds - lag
        mean = pairs * population * rate**2
        if fixed:
            size = rate * population
            variance = pairs * size**2 * (population - size) ** 2 / (population**2 * max(population - 1, 1))
        else:
            chained = max(pairs - lag, 0.0)  # pairs of pairs that share a round
            variance = population * (pairs * rate**2 * (1 - rate**2) + 2 * chained * (rate**3 - rate**4))
        if min(mean, variance) >= _ENOUGH:
            score = (memory["overlaps"][lag - 1] - mean) / math.sqrt(variance)
            tails.append(normal(float(score), f"clients that came {lag} rounds before"))
    return [worst(tails)] if tails else []


def _scaled(total: float, count: float, variance: float, where: str) -> Tail:
    """A sum of `count` terms of mean 1 and this variance, as a chi-square of the same mean and variance; both tails."""
    scale = variance / 2
    return Tail(min(1.0, 2 * min(chi_square(total / scale, count / scale))), "unknown", where)


COHORTS: tuple[Check, ...] = (Cohorts(),)
