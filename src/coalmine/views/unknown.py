"""The adversary of amplification by sampling: knows all other updates, and not when its target took part.

    score_i = sum over rounds of log(1 + q (exp(mu_t x_ti - mu_t²/2) - 1))

    symbol   here        meaning
    x_ti     inner       inner product of the canary with what is left of round t, in units of its spread
    mu_t     amplitude   what taking part adds to it, in the same units
    q        rate        the chance to take part in a round

It is the logarithm of the likelihood ratio of a Poisson-sampled Gaussian mechanism, so by Neyman and Pearson no other number is
better for the very game that the amplified claim is about. Its law has no name: the null is the pool's held-out canaries and
the unused directions, always, and the bound has their ceiling, about log(directions) - 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Canaries, Projections
from coalmine.errors import AuditError
from coalmine.scores import Scores
from coalmine.views.view import NullChoice, Threat, check, spreads_of, table


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
        if projections.design is not None:
            raise AuditError(
                f"the view {self.key!r} has no likelihood ratio for noise that is correlated over rounds. Use 'known-others'."
            )
        spreads = spreads_of(projections, schedule, canaries)
        rate = min(schedule.pattern.expected_size(schedule.pool, schedule.rounds) / schedule.pool, 1.0)
        found = np.zeros(projections.inner.shape[1])
        for inner, spread, amplitude in zip(projections.inner, spreads, projections.amplitude, strict=True):
            if spread > 0:
                gap = amplitude / spread
                evidence = gap * inner / spread - gap**2 / 2  # that it took part in this round
                found += np.logaddexp(np.log1p(-rate), np.log(rate) + evidence) if rate < 1 else evidence
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
