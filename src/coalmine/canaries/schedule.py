"""Which canaries take part when, and who of them really does: rounds first, coins after.

Every canary of the pool, inserted or not, gets its rounds from the same pattern before the coins are thrown. A held-out canary
is therefore scored in the rounds that it would have taken part in, and differs from an inserted one in its coin alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Constraint, Explicit, IndexArray, InTurns, Participation


@dataclass(frozen=True, eq=False)
class Schedule:
    """The rounds of every canary of the pool, and whose coin came up.

    >>> from coalmine.participation import Periods
    >>> schedule = Schedule.draw(Periods(2), pool=6, rounds=4, secret_seed=1)
    >>> schedule.times.tolist()
    [2, 2, 2, 2, 2, 2]
    """

    pattern: Participation
    pool: int
    assigned: tuple[IndexArray, ...] = field(repr=False)  # by round, the canaries that would take part: as secret as the seed
    inserted: NDArray[np.bool_] = field(repr=False)
    groups: IndexArray | None = field(default=None, repr=False)  # by canary, whose turn it waits for; None: no turns

    @staticmethod
    def draw(pattern: Participation, *, pool: int, rounds: int, secret_seed: int) -> Schedule:
        """Rounds from the pattern, then a fair coin for each canary, all from the secret seed."""
        pool = _validate.whole("pool", pool)
        seed = _validate.secret("secret_seed", secret_seed)
        streams = partial(stream, seed, "canaries' rounds")
        assigned = tuple(pattern.cohorts(pool, rounds, streams))
        groups = pattern.groups_of(pool, streams) if isinstance(pattern, InTurns) else None
        return Schedule(pattern, pool, assigned, stream(seed, "coins").random(pool) < 0.5, groups)

    def taking_part(self, round_number: int) -> IndexArray:
        """The canaries that take part in a round."""
        candidates = self.assigned[round_number]
        return candidates[self.inserted[candidates]]

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.assigned)

    @cached_property
    def times(self) -> IndexArray:
        """In how many rounds each canary would take part."""
        return np.bincount(np.concatenate(self.assigned), minlength=self.pool).astype(np.int64)

    @cached_property
    def presence(self) -> NDArray[np.bool_]:
        """A row for every round, a column for every canary: whether it would take part."""
        table = np.zeros((self.rounds, self.pool), dtype=np.bool_)
        for number, candidates in enumerate(self.assigned):
            table[number, candidates] = True
        return table

    @property
    def turns(self) -> int | None:
        """After how many rounds it is a canary's turn again; None: it may take part in any round."""
        return self.pattern.groups if self.groups is not None and isinstance(self.pattern, InTurns) else None

    @property
    def possible(self) -> NDArray[np.bool_]:
        """A row for every round, a column for every canary: whether it could take part."""
        turns = self.turns
        if turns is None or self.groups is None:
            return np.ones((self.rounds, self.pool), dtype=np.bool_)
        return np.asarray(np.arange(self.rounds)[:, None] % turns == self.groups)

    @property
    def rate(self) -> float:
        """The chance to take part in a round in which it is possible."""
        known = self.pattern.sampling
        if known is not None and self.turns is not None:
            return min(known.rate, 1.0)
        return min(self.pattern.expected_size(self.pool, self.rounds) / self.pool, 1.0)

    def constraint(self) -> Constraint | None:
        """The sets of rounds of the canaries themselves; None where they are by chance, which amplifies."""
        taken = self.presence[:, self.times > 0]
        return None if self.pattern.sampling is not None else Explicit(np.unique(taken, axis=1))

    @property
    def expected_size(self) -> float:
        """Canaries in a round on average, over coins and rounds: known before either is drawn."""
        return self.pattern.expected_size(self.pool, self.rounds) / 2 if self.pool else 0.0
