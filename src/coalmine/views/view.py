"""What all views share: who plays, which null, and how a table of scores is filled.

Null laws ("theory") of a canary that took no part in what was seen:

    family       one vector v                                     a filtered sum over rounds
    sphere       cosine with v: `CosineNull`, exact               normal, spread measured on the unused directions
    transform    normal with 1.16 nats of slack, spread exact:    the same, with the slack
                 the rows that took no part share what the
                 canaries leave of |v|²

A spread that is measured carries how many directions it was measured on, and the tail allows for that (`GaussianNull`).

"empirical" is the alternative: the pool's held-out canaries and the unused directions, scored in the same way, speak for
themselves. No law is assumed, and the bound has a ceiling of about log(directions) - 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate, accounting
from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Array, Canaries, Claim, Description, Game, IndexArray, Null, Projections
from coalmine.errors import AuditError, MismatchError, NotEnoughCanariesError
from coalmine.nulls import CosineNull, GaussianNull
from coalmine.scores import Scores
from coalmine.views.power import Hiding, Visible, nothing_promised
from coalmine.views.projections import check_finite

NullChoice = Literal["theory", "empirical"]
NULLS = ("theory", "empirical")
SMALL_CLAIM = 8.0
_ROUNDING = 1e-3  # of |v|/sqrt(d): below, a spread is the rounding of single-precision arithmetic


def choose_null(claim_epsilon: float) -> NullChoice:
    """Which null to take, before the run: for a claim below 8 the unused directions suffice, above it the law has no ceiling.

    >>> choose_null(4.4), choose_null(15.5)
    ('empirical', 'theory')
    """
    return "empirical" if _validate.number("claim_epsilon", claim_epsilon) < SMALL_CLAIM else "theory"


@dataclass(frozen=True)
class Threat(ABC):
    """A threat model: what its adversary sees, the number that it makes of it for every canary, and the claim of its game.

    A new view is a subclass with `key`, `adversary`, `needs` and `scores`, and a line in `coalmine.views.VIEWS`.
    `relation=None` is the accountant's usual one for the canaries' pattern; canaries that replace clients are "replace-one".
    """

    unit: str = "client"
    relation: str | None = None

    key: ClassVar[str] = ""  # its name in configurations, files and results
    adversary: ClassVar[str] = ""  # what it sees and knows, as the end of "An adversary who …"
    short: ClassVar[str] = ""  # the same in at most 27 letters, beside a row of a report; with none the key in words
    needs: ClassVar[str] = "mean"  # which kind of `Projections`
    knows_rounds: ClassVar[bool] = False
    knows_others: ClassVar[bool] = False  # it must know what the clients sent
    combined: ClassVar[str] = "sum"  # how rounds become one number: see `Scores.combined`
    empirical_only: ClassVar[bool] = False  # its number has no law: only held-out canaries and unused directions tell

    @abstractmethod
    def scores(
        self, projections: Projections, schedule: Schedule, canaries: Canaries, *, null: NullChoice = "theory"
    ) -> Scores:
        """One number per canary of the pool, and its null."""

    def game(self, schedule: Schedule) -> Game:
        """The game that the scores are measured in."""
        return accounting.game(schedule.pattern, relation=self.relation, unit=self.unit, rounds_known=self.knows_rounds)

    def claim(self, schedule: Schedule, description: Description, *, delta: float) -> Claim:
        """What an accountant proves for these canaries against this adversary.

        Rounds unknown: sampling amplifies. Rounds known: it does not; canaries sampled at random then took part t times each,
        t binomial, and the claim is the mean over t (see `coalmine.accounting`), not that of the most frequent canary. With
        noise that is correlated over rounds it matters which rounds they are: the claim is that of the worst canary's own.
        """
        return accounting.claim_of(
            description,
            schedule.pattern,
            delta=delta,
            relation=self.relation,
            unit=self.unit,
            rounds_known=self.knows_rounds,
            rounds=schedule.rounds,
            constraint=None if description.fresh else schedule.constraint(),
        )

    def visible(self, hiding: Hiding) -> Visible:
        """Nothing is promised, unless a view knows better."""
        return nothing_promised


def check(projections: Projections, schedule: Schedule, canaries: Canaries, needs: str, null: str) -> None:
    """Is this what the view looks at, and do the three belong together?"""
    _validate.one_of("null", null, NULLS)
    if projections.kind != needs:
        raise MismatchError(f"this view needs projections of kind {needs!r}; these are of kind {projections.kind!r}.")
    if not projections.pool == schedule.pool == canaries.count <= projections.inner.shape[1]:
        raise MismatchError(
            f"projections of {projections.pool} canaries ({projections.inner.shape[1]} columns), a schedule of {schedule.pool} "
            f"and {canaries.count} canaries do not belong to one run."
        )
    if projections.rounds.size and not 0 <= projections.rounds.min() <= projections.rounds.max() < schedule.rounds:
        raise MismatchError(f"projections of round {projections.rounds.max()} in a run of {schedule.rounds} rounds.")
    check_finite(projections)


def law_of_one(canaries: Canaries, projections: Projections, spread: float) -> Null:
    """The law of a score x/|v| ("cosine") of one vector; for transform canaries its standard deviation is `spread`."""
    if canaries.null is not None:
        return CosineNull(projections.dim)
    return GaussianNull(spread, slack=slack_of(canaries))


def slack_of(canaries: Canaries) -> float:
    """Nats that a normal tail must give away for this family."""
    if canaries.null is not None:
        return 0.0
    if canaries.slack is not None:
        return canaries.slack
    raise AuditError("the null law of these canaries is not known; take null='empirical'.")


def spreads_of(projections: Projections, schedule: Schedule, canaries: Canaries) -> Array:
    """By row, the standard deviation of the inner product with a direction that took no part; 0 where the vector is 0.

    Transform canaries: the squares of all rows of the map add up to |v|², so the mean over the rows that were not inserted is
    known exactly: (|v|² - those of the inserted ones)/(d - their number). Others, and within a group, where rows are no longer
    orthogonal: |v|/sqrt(d), as for any random direction.
    """
    average = projections.norm / np.sqrt(projections.dim)
    if not canaries.orthogonal or projections.group is not None:
        return np.asarray(average)
    inserted = np.flatnonzero(schedule.inserted)
    rest = np.empty_like(average)
    for row, inner in enumerate(projections.inner):
        rest[row] = projections.norm[row] ** 2 - np.square(inner[inserted]).sum()
    others = max(projections.dim - inserted.size, 1)
    return np.asarray(np.maximum(np.sqrt(np.maximum(rest, 0.0) / others), _ROUNDING * average))


def table(
    view: Threat,
    statistic: str,
    projections: Projections,
    schedule: Schedule,
    *,
    members: IndexArray,
    values: Array,
    law: Null | None,
    columns: IndexArray,
    unused: Array,
) -> Scores:
    """The scores of the pool's `members`; with no law, also those of the unused `columns`, which had no coin.

    Where canaries differ in how often they take part, `group` says how often: an unused column is scored like the member whose
    rounds it borrows, in turn.
    """
    inserted: NDArray[np.bool_] = schedule.inserted[members]
    if not inserted.any():
        raise NotEnoughCanariesError(
            f"none of the {members.size} canaries that could be scored was inserted. Insert more, or train for more rounds."
        )
    assignment, times = "coins", schedule.times[members]
    if law is None:
        times = np.concatenate([times, times[np.arange(columns.size) % members.size]])
        values, members = np.concatenate([values, unused]), np.concatenate([members, columns])
        inserted = np.concatenate([inserted, np.zeros(columns.size, dtype=np.bool_)])
        assignment = "coins" if columns.size == 0 else "fixed"
    return Scores(
        value=values,
        inserted=inserted,
        labels={"canary": members, **({"group": times} if np.ptp(times) > 0 else {})},
        assignment=assignment,
        null=law,
        dim=projections.dim,
        statistic=statistic,
        combined=view.combined,
        view=view.key,
        layer=projections.group,
        game=view.game(schedule),
    )
