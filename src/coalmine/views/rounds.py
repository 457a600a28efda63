"""Adversaries that know when their target took part: the matched filter over rounds.

`KnownRounds` sees the released means. For transform canaries its scores have, in a run of independent noise, the standardised
mean amplitude / sqrt(sigma² + |X_t|²/d), where |X_t| is the norm of the clients' sum; for sphere canaries also + k_t/d under
the root, for the k_t other canaries of the round, at least: where clients' sums resemble each other over rounds, the filter
subtracts what they have in common. `KnownOthers` sees what is left without everybody else's part, and shows amplitude / sigma:
the epsilon of the analysis. The difference between the two is hidden by the other clients. (What is left must not hold other
canaries, unless they are orthogonal: independent directions would add k_t/d.)

Canaries that are assigned to no round, as happens in sampling, are left out, whether inserted or not: an adversary that knows
the rounds has nothing to look at, and the claim of these views is given at least one round.

The null law ("theory"):

* Every score is from one round, and R is diagonal: the score is a cosine with one vector, whose law has no unknown.
* Otherwise the spread of a score is measured on the unused directions, filtered with the same weights, and the tail allows for
  the error of that. The cost: with 8,000 directions the spread counts as 3 % larger, which takes 6 % of the exponent.
* Where a filter leaves nothing but the rounding of single-precision arithmetic, the spread counts as that of rounding. That is
  too wide, which is safe above the centre of the law; below it the law says nothing (2 times a chance of at least ½).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Array, Canaries, IndexArray, Null, Projections
from coalmine.errors import NotEnoughCanariesError
from coalmine.nulls import CosineNull, GaussianNull, as_cosine
from coalmine.scores import Scores
from coalmine.views import matched_filter
from coalmine.views.power import Hiding, Visible, nothing_promised
from coalmine.views.view import NullChoice, Threat, check, slack_of, spreads_of, table

Presence = NDArray[np.bool_]
_MOST_ROUNDS = 4096  # whose covariance is kept as a whole
_ROUNDING = 1e-3  # of the rounds' spreads: a filter that leaves less has met single-precision arithmetic


@dataclass(frozen=True)
class KnownRounds(Threat):
    """The adversary sees every release and knows the rounds of its target."""

    key: ClassVar[str] = "known-rounds"
    adversary: ClassVar[str] = "sees every release and knows in which rounds its target took part"
    short: ClassVar[str] = "all releases, rounds known"
    needs: ClassVar[str] = "mean"
    knows_rounds: ClassVar[bool] = True

    def scores(
        self, projections: Projections, schedule: Schedule, canaries: Canaries, *, null: NullChoice = "theory"
    ) -> Scores:
        """The matched filter of every canary that has a round; held-out ones in the rounds they would have taken part in."""
        check(projections, schedule, canaries, self.needs, null)
        presence = self.looked_at(schedule.presence)[projections.rounds]
        members = np.flatnonzero(presence.any(axis=0))
        if members.size == 0:
            raise NotEnoughCanariesError("no canary was assigned to any of these rounds; plant them for more rounds.")
        found = _Filtered.of(projections, schedule, canaries, presence[:, members], members)
        if null == "theory":
            values, law = found.by_law(projections, canaries)
        else:
            values, law = found.plainly(found.pool), None
        return table(
            self,
            "matched filter" if as_cosine(law) is None else "cosine",
            projections,
            schedule,
            members=members,
            values=values,
            law=law,
            columns=found.columns,
            unused=found.plainly(found.unused),
        )

    def visible(self, hiding: Hiding) -> Visible:
        """From what was recorded of the rounds; see `coalmine.views.power`."""
        if hiding.design is not None:
            return (
                hiding.among_correlated_noise()
                if type(self).effect is KnownRounds.effect and self.knows_others
                else nothing_promised
            )
        if self.needs != "residual" and not hiding.clients_known:
            return hiding.among_unknown_clients()
        residual = self.needs == "residual"
        return lambda factor: hiding.epsilon(self.effect(hiding.squares(factor, residual=residual), hiding.presence))

    @staticmethod
    def effect(squares: Array, presence: Array) -> float:
        """How far inserted canaries lie above others on average, from the squared signal of every round."""
        return float(np.sqrt(squares @ presence).mean())

    @staticmethod
    def looked_at(presence: Presence) -> Presence:
        """In which rounds each canary is looked for: its own."""
        return presence


@dataclass(frozen=True)
class KnownOthers(KnownRounds):
    """The adversary of the definition: knows the rounds of its target, and what everybody else sent."""

    key: ClassVar[str] = "known-others"
    adversary: ClassVar[str] = "sees every release and knows the rounds of its target and all other updates"
    short: ClassVar[str] = "all but the target known"
    needs: ClassVar[str] = "residual"
    knows_others: ClassVar[bool] = True


@dataclass(frozen=True)
class Afterwards(KnownOthers):
    """The same adversary looks in every release from its target's first round on, with equal weights.

    What a correct mechanism released in a round it has forgotten in the next. One that keeps an average of what came before the
    noise (momentum, error feedback) shows the target again and again, and this view adds it up. Of a correct mechanism it sees
    less than `KnownOthers`: 1/sqrt(rounds looked at).
    """

    key: ClassVar[str] = "afterwards"
    adversary: ClassVar[str] = "knows the rounds of its target and all other updates, and looks in every later release too"
    short: ClassVar[str] = "all known, later rounds too"

    @staticmethod
    def effect(squares: Array, presence: Array) -> float:
        """Equal weights from the first round on, and the canary is in its own only."""
        looked_at = Afterwards.looked_at(presence > 0).astype(np.float64)
        return float(np.mean(np.sqrt(squares) @ presence / np.sqrt(looked_at.sum(axis=0))))

    @staticmethod
    def looked_at(presence: Presence) -> Presence:
        """In which rounds each canary is looked for: from its first on."""
        return np.asarray(np.logical_or.accumulate(presence, axis=0))


@dataclass(frozen=True, eq=False)
class _Raw:
    """Sums w'x before they are standardised, and which pattern each belongs to."""

    sums: Array
    of: IndexArray


@dataclass(frozen=True, eq=False)
class _Filtered:
    """The pool and the unused directions through the same filter."""

    filter: matched_filter.Filter
    pool: _Raw
    unused: _Raw
    columns: IndexArray  # of the unused directions that had no part in the filter
    measured: Array  # by pattern, the spread of w'x over them
    rounding: bool  # some of these are the rounding of the arithmetic
    single: bool  # every score is from one round

    @staticmethod
    def of(
        projections: Projections, schedule: Schedule, canaries: Canaries, presence: Presence, members: IndexArray
    ) -> _Filtered:
        inner, spreads = projections.inner, spreads_of(projections, schedule, canaries)
        empty = spreads == 0  # rounds without anybody and without noise: nothing to see
        spreads = np.where(empty, 1.0, spreads)
        patterns = matched_filter.Patterns.among(presence, np.where(empty, 0.0, projections.amplitude / spreads))
        first, last = projections.pool, inner.shape[1]
        middle = first + (last - first) // 2
        design = _described(projections, np.where(empty, 0.0, spreads))
        chosen = matched_filter.fit(patterns.signals, inner[:, first:middle], spreads, design)
        begin = middle if chosen.estimated else first
        columns = np.arange(begin, last)
        others = patterns.of[(columns - begin) % members.size]
        unused = inner[:, begin:last]
        single = chosen.diagonal and bool((np.count_nonzero(patterns.signals, axis=0) <= 1).all())
        measured = least = chosen.norms
        if columns.size and not single:
            measured = matched_filter.spreads_of_scores(chosen.weights, unused, spreads)
            least = _ROUNDING * np.sqrt(np.square(chosen.weights).sum(axis=0))
        return _Filtered(
            filter=chosen,
            pool=_Raw(matched_filter.filtered(chosen.weights, patterns.of, inner[:, members], spreads), patterns.of),
            unused=_Raw(matched_filter.filtered(chosen.weights, others, unused, spreads), others),
            columns=columns,
            measured=np.maximum(measured, least),
            rounding=bool((measured < least).any()),
            single=single,
        )

    def plainly(self, raw: _Raw) -> Array:
        """In units of the filter's own norm, which the unused directions scored here have not touched."""
        return _quotient(raw.sums, self.filter.norms[raw.of])

    def by_law(self, projections: Projections, canaries: Canaries) -> tuple[Array, Null]:
        """The pool in units of a direction that took no part, and the law of that."""
        slack = max(slack_of(canaries), math.log(2) if self.rounding else 0.0)
        values = _quotient(self.pool.sums, self.measured[self.pool.of])
        if self.single and canaries.null is not None:
            return np.clip(values / np.sqrt(projections.dim), -1.0, 1.0), CosineNull(projections.dim)
        if self.single:
            return values, GaussianNull(slack=slack)
        if self.columns.size < 2:
            raise NotEnoughCanariesError(
                "scores over several rounds have no law without unused directions to measure their spread on. "
                "Give project_row(...) spare directions or unused canaries, or take null='empirical'."
            )
        return values, GaussianNull(slack=slack, directions=self.columns.size)


def _described(projections: Projections, spreads: Array) -> Array | None:
    """R⁻¹ as the mechanism describes its noise, in units of the rounds' spreads.

    Rows over their amplitude are s + z W g, so that C whitens them: R⁻¹ = CᵀC, up to z. A round that was not recorded breaks
    the chain, and the description says nothing.
    """
    rounds = projections.rounds
    if projections.design is None or not np.array_equal(rounds, np.arange(rounds.size)):
        return None
    if rounds.size > _MOST_ROUNDS or not (projections.amplitude > 0).all():
        return None
    white, _ = projections.design.whiten(np.eye(rounds.size), {})
    units = spreads / projections.amplitude
    return np.asarray(units[:, None] * (white.T @ white) * units)


def _quotient(sums: Array, units: Array) -> Array:
    """0 for canaries whose rounds showed nothing at all."""
    return np.divide(sums, units, out=np.zeros_like(sums), where=units > 0)
