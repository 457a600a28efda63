"""The epsilon measured so far: scores that may be looked at after every round.

Every presentation of an inserted canary gives one number: its inner product with the released mean of that round, in units of
what a direction that took no part would show. Given the past these are an effect plus noise of variance at most 1, so that
`coalmine.estimators.anytime.anytime_epsilons` of all numbers so far is a lower bound at all times at once, for one
presentation and under a Gaussian trade-off curve.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Array, Canaries, Projections, State, Strategy
from coalmine.errors import MismatchError
from coalmine.views.projections import ProjectionRow, check_finite, stack
from coalmine.views.view import spreads_of


def round_scores(seen: ProjectionRow, schedule: Schedule, canaries: Canaries, round_number: int) -> Array:
    """The standardised scores of the canaries that took part in one round; none if nobody did."""
    row = stack([seen], kind="mean", rounds=[round_number], amplitude=1.0, pool=schedule.pool, dim=canaries.dim)
    check_finite(row)
    return _of_row(row, schedule, canaries)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Scores of a round, each times its weight, and the sum of the squared weights: how many full scores they are worth."""

    values: Array
    information: float

    @staticmethod
    def equally(scores: Array) -> Weighted:
        """Scores that count alike."""
        return Weighted(scores, scores.size)


@dataclass
class WhitenedRounds:
    """Running scores where noise is correlated over rounds: of whitened rows, whose noise is new in every round.

    A row over its amplitude is s + z W g; C times it is C s + z g. A canary that takes part adds c_0 now, and c_1, c_2, … to
    the rows after it. Each of its rows counts with what it should show, (C s)_t, which is known beforehand: the sum of all
    is (Σ |C s|²) / z, plus noise of variance Σ |C s|², so that their quotient shows 1/z, one presentation, at any time. The
    spread is measured on the directions that were not inserted, and counts as larger by four standard errors.
    """

    design: Strategy
    schedule: Schedule
    state: State = field(default_factory=dict)
    expected: State = field(default_factory=dict)  # what whitening remembers of the canaries' rounds

    def scores(self, seen: ProjectionRow, amplitude: float, number: int) -> Weighted:
        """Of the inserted canaries, in the next round."""
        rows, self.state = self.design.whiten(seen.inner[None] / amplitude, self.state)
        inserted = self.schedule.inserted
        signals, self.expected = self.design.whiten(self.schedule.presence[number][inserted][None].astype(float), self.expected)
        free = np.ones(rows.shape[1], dtype=np.bool_)
        free[: self.schedule.pool] = ~inserted
        spread = float(np.sqrt(np.square(rows[0, free]).mean())) if free.any() else 0.0
        spread *= 1 + _STANDARD_ERRORS / np.sqrt(2 * max(int(free.sum()), 1))
        if not spread > 0:
            return Weighted.equally(np.empty(0))
        inner = rows[0, : self.schedule.pool][inserted]
        return Weighted(np.asarray(signals[0] * inner / spread), float(np.square(signals[0]).sum()))

    def gaps(self) -> Array:
        """By number of rounds so far, |C s| of the canary that shows most."""
        seen, _ = self.design.whiten(self.schedule.presence.astype(np.float64), {})
        return np.asarray(np.sqrt(np.cumsum(np.square(seen), axis=0).max(axis=1, initial=0.0)))


def anytime_scores(projections: Projections, schedule: Schedule, canaries: Canaries) -> Array:
    """The standardised scores of all presentations of inserted canaries, in the order of their rounds."""
    if projections.kind not in ("mean", "residual"):  # after momentum the noise of a round is not new
        raise MismatchError(f"running scores need projections of kind 'mean' or 'residual'; these are {projections.kind!r}.")
    check_finite(projections)
    return _of_row(projections, schedule, canaries)


_STANDARD_ERRORS = 4.0  # of a measured spread


def _of_row(projections: Projections, schedule: Schedule, canaries: Canaries) -> Array:
    spreads = spreads_of(projections, schedule, canaries)
    found = []
    for row in np.argsort(projections.rounds, kind="stable"):
        present = schedule.taking_part(int(projections.rounds[row]))
        inner = projections.inner[row, present]
        found.append(np.divide(inner, spreads[row]) if spreads[row] > 0 else np.zeros(inner.size))
    return np.concatenate(found) if found else np.empty(0)
