"""The adversary of amplification by sampling: knows all other updates, and not when its target took part.

    score_i = sum over rounds of log(1 + q (exp(mu_t x_ti - mu_t²/2) - 1))

    symbol   here        meaning
    x_ti     inner       inner product of the canary with what is left of round t, in units of its spread
    mu_t     amplitude   what taking part adds to it, in the same units
    q        rate        the chance to take part in a round

It is the logarithm of the likelihood ratio of a Poisson-sampled Gaussian mechanism, so by Neyman and Pearson no other number is
better for the very game that the amplified claim is about. Where clients wait for their turn (`CyclicPoisson`) the sum is
over the rounds of the target's group, which the accountant takes for known. Its law has no name: the null is the held-out
canaries of the pool and the unused directions, always, and the bound has their ceiling, about log(directions) - 2.

Noise that is correlated over rounds by a strategy C: y = C x has noise that is new in every round, and taking part in round t
adds column C e_t to it. Where the columns of a client's possible rounds do not overlap (at most as many bands as groups), their
projections are independent, and the same sum is exact:

    x_t = <C e_t, y> / |C e_t|      mu_t = |C e_t| / z
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Array, Canaries, Projections, Strategy
from coalmine.errors import AuditError
from coalmine.scores import Scores
from coalmine.views.view import NullChoice, Threat, check, spreads_of, table

_MOST_ROUNDS = 4096  # whose strategy is kept as a whole
_OVERLAP = 1e-9  # of two columns: rounding


@dataclass(frozen=True)
class UnknownRounds(Threat):
    """Knows what everybody else sent, and all of its target but when it took part."""

    key: ClassVar[str] = "unknown-rounds"
    adversary: ClassVar[str] = "sees every release and knows all other updates, but not the rounds of its target"
    short: ClassVar[str] = "all known but the rounds"
    needs: ClassVar[str] = "residual"
    knows_others: ClassVar[bool] = True
    empirical_only: ClassVar[bool] = True
    combined: ClassVar[str] = "likelihood-ratio"

    def scores(
        self, projections: Projections, schedule: Schedule, canaries: Canaries, *, null: NullChoice = "empirical"
    ) -> Scores:
        """The likelihood ratio of every canary of the pool; there is no law for it, so that `null` changes nothing."""
        check(projections, schedule, canaries, self.needs, null)
        rows, spreads, amplitudes = self._rows(projections, schedule, canaries)
        possible = schedule.possible[projections.rounds]
        among = np.arange(projections.inner.shape[1]) % schedule.pool  # an unused direction has the turns of a canary
        rate = schedule.rate
        found = np.zeros(projections.inner.shape[1])
        for inner, spread, amplitude, there in zip(rows, spreads, amplitudes, possible, strict=True):
            if spread > 0:
                gap = amplitude / spread
                evidence = gap * inner / spread - gap**2 / 2  # that it took part in this round
                ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + evidence) if rate < 1 else evidence
                found += np.where(there[among], ratio, 0.0)
        pool = projections.pool
        return table(
            self,
            "likelihood ratio",
            projections,
            schedule,
            members=np.arange(pool),
            values=found[:pool],
            law=None,
            columns=np.arange(pool, found.size),
            unused=found[pool:],
        )

    def _rows(self, projections: Projections, schedule: Schedule, canaries: Canaries) -> tuple[Array, Array, Array]:
        """By round, what is seen, its spread, and what taking part adds to it."""
        if projections.design is not None:
            return self._whitened(projections, schedule, projections.design)
        return projections.inner, spreads_of(projections, schedule, canaries), projections.amplitude

    def _whitened(self, projections: Projections, schedule: Schedule, design: Strategy) -> tuple[Array, Array, Array]:
        """The same of whitened rows along the columns of the strategy; spreads are those of directions without a canary."""
        rounds = projections.rounds
        if not np.array_equal(rounds, np.arange(rounds.size)) or not (projections.amplitude > 0).all():
            raise AuditError(f"the view {self.key!r} needs every round of correlated noise. Use 'known-others'.")
        columns = _columns(design, rounds.size)
        if columns is None or schedule.turns is None or _overlap(columns, schedule.turns):
            raise AuditError(
                f"the view {self.key!r} has no likelihood ratio for noise that is correlated over rounds of one client. It has "
                "for the participation 'cyclic-poisson' with at least as many groups as bands. Use 'known-others'."
            )
        lengths = np.linalg.norm(columns, axis=0)
        rows = (columns / lengths).T @ design.whiten(projections.inner / projections.amplitude[:, None], {})[0]
        free = np.ones(rows.shape[1], dtype=np.bool_)
        free[: schedule.pool] = ~schedule.inserted
        spreads = np.sqrt(np.square(rows[:, free]).mean(axis=1)) if free.any() else np.zeros(rounds.size)
        return rows, spreads, lengths


def _columns(design: Strategy, rounds: int) -> Array | None:
    """C of so many rounds, if it is small enough to be kept."""
    return design.whiten(np.eye(rounds), {})[0] if rounds <= _MOST_ROUNDS else None


def _overlap(columns: Array, turns: int) -> bool:
    """Whether two rounds of a client, so many rounds apart or a multiple of that, show in the same whitened row."""
    groups = (columns[:, first::turns] for first in range(min(turns, columns.shape[1])))
    products = (np.abs(group.T @ group) for group in groups)
    return any(bool((each - np.diag(np.diag(each)) > _OVERLAP).any()) for each in products)
