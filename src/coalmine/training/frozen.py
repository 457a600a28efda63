"""Frozen rounds: one round of a training again and again at the same model, with fresh cohorts, noise and coins.

    paper          here          meaning
    frozen round   draw          the model does not move; only what the canaries see of the release is kept
    x_i            `projections` <clipped update of client i, direction of a canary>

Clients are trained once: their clipped updates at a fixed model do not change, so that a draw needs a sum alone. That is
tested: a cohort with all canaries among it is trained together, and its sum must be that of everybody by themselves. Where
it is not, a client's data reach the contributions of others, and every draw trains everybody again.
The release of every draw is the mechanism's own, of a sum that holds one real cohort and the canaries whose coin came up.

Unknown others: a new cohort for every draw is part of the score, held-out scores are the only null, and one canary is scored
at a time: scores of one draw would share the cohort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.canaries.crafted.vectors import CraftedCanaries
from coalmine.contracts import Array, Contribution, Finding, IndexArray
from coalmine.data.dataset import Examples
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.scores import Scores
from coalmine.training.crafted_round import STATISTIC, CraftedRound, SumRow, mechanism_state, trained_alone
from coalmine.training.work import ClientBatch

__all__ = ["OTHERS", "STATISTIC", "Frozen"]
OTHERS = ("known", "unknown")
RATIO = "likelihood ratio of a crafted canary and the mock clients' covariance, in standard deviations of the measured noise"


@dataclass
class _Seen:
    """Takes the place of a sum of contributions: what each of them adds to every score, and nothing else of it."""

    directions: CraftedCanaries
    rows: list[Array] = field(default_factory=list)

    def add(self, contribution: Contribution) -> None:
        """One more client."""
        self.rows.append(self.directions.project(contribution.vector))


@dataclass(frozen=True, eq=False)
class Frozen(CraftedRound):
    """One round of a federation at a fixed state, for a set of crafted canaries.

    `excluded` are the users that the canaries were designed with: nobody scores what they were designed on.
    """

    excluded: frozenset[str] = frozenset()
    along: CraftedCanaries | None = None  # where scores of unknown others look; None: along the canaries' updates

    @property
    def looking(self) -> CraftedCanaries:
        """The directions of scores that have the others in them."""
        return self.crafted.directions if self.along is None else self.along

    @cached_property
    def shown(self) -> Array:
        """(canaries, canaries): what each contribution adds to each of these scores, in clip norms."""
        if self.along is None:
            return self.own
        return np.stack([self.along.project(each.vector) for each in self.contributions], axis=1) / self.public.clip_norm

    @cached_property
    def users(self) -> tuple[str, ...]:
        """Who may be in a cohort."""
        left = tuple(user for user in self.federation.data.users if user not in self.excluded)
        if not left:
            raise ValueError("all users are in the pool of the design; none is left for a round. Lower crafting.pool.")
        return left

    def trained(self, users: Sequence[str], guests: Mapping[str, Examples] | None = None) -> FixedPointSum:
        """The sum of what these users contribute, trained one after the other by one worker."""
        task = ClientBatch(self.public, self.state["parameters"], tuple(users), guests=guests or {})
        return self.federation.work()(task).total

    def projections_of(self, users: Sequence[str], along: CraftedCanaries | None = None) -> Array:
        """(clients, canaries): what every one of these clients adds to every score, in clip norms.

        They are trained as those of a round are, many at once; `along` has other directions than those of the scores.
        """
        work, seen = self.federation.work(), _Seen(self.looking if along is None else along)
        size = self.federation._group_size
        for first in range(0, len(users), size):
            work.fold(seen, ClientBatch(self.public, self.state["parameters"], tuple(users[first : first + size])))
        return np.stack(seen.rows) / self.public.clip_norm

    @cached_property
    def projections(self) -> Array:
        """The same of all clients: one training of each."""
        return self.projections_of(self.users)

    @cached_property
    def members(self) -> list[str]:
        """The cohort that releases are made of."""
        return [self.users[place] for place in self.cohort(0)]

    @cached_property
    def clients(self) -> FixedPointSum:
        """The sum of that cohort. Scores do not depend on which cohort it is."""
        return self.trained(self.members)

    @cached_property
    def apart(self) -> float:
        """How far the sum of cohort and canaries, trained together, is from that of everybody alone; in clip norms."""
        if self.crafted.forged:
            return 0.0
        together = self._together(np.ones(self.count, np.bool_), "apart").without_noise()
        alone = self.clients.without_noise() + self.known(np.ones(self.count, np.bool_))
        return float(np.linalg.norm(together - alone)) / self.public.clip_norm

    @cached_property
    def finding(self) -> Finding:
        """Whether what a client contributes does not depend on who is trained beside it, up to rounding."""
        return trained_alone(self.apart, len(self.members) + self.count, self.number)

    def _together(self, coins: NDArray[np.bool_], *key: object) -> FixedPointSum:
        guests = self.guests(coins, *key)
        return self.trained(guests.among(self.members), guests.examples)

    def cohort(self, replicate: int) -> IndexArray:
        """Fresh clients for a draw: as many as the training expects in a round; by Poisson sampling a random number."""
        job, rng = self.federation, self.federation.secret("replicate", self.number, replicate, "cohort")
        expected, sampling = job.participation.expected_size(len(job.data), job.rounds), job.participation.sampling
        size = round(expected)
        if sampling is not None and sampling.cohort_size is None:
            size = int(rng.binomial(len(self.users), sampling.rate))
        return rng.permutation(len(self.users))[:size]

    def draw(self, replicate: int, inserted: NDArray[np.bool_]) -> Array:
        """What is left of one release with these canaries, without the known parts of clients and canaries, in clip norms."""
        job = self.federation
        known = self.clients.without_noise() + self.known(inserted)
        if not self.finding.deviates:
            total = self.clients.copy()
            for place in np.flatnonzero(inserted):
                total.add(self.contributions[place])
        else:
            total = self._together(inserted, "replicate", replicate)
        secret = partial(job.secret, "replicate", self.number, replicate)
        release, _ = job.mechanism.release(mechanism_state(self.state), total, self.public, secret)
        return np.asarray(
            (np.asarray(release.vector, np.float64) * release.denominator - known) / self.public.clip_norm, np.float64
        )

    def scores(
        self, draws: int, *, others: str = "known", unit: str | None = "client", insert: bool = True, first: int = 0
    ) -> Scores:
        """A score for every canary and draw, from draw `first` on.

        Without `insert` no canary takes part, whatever its coin says: a null table, for calibration.
        """
        return self.measured(draws, others=others, unit=unit, insert=insert, first=first)[0]

    def measured(
        self, draws: int, *, others: str = "known", unit: str | None = "client", insert: bool = True, first: int = 0
    ) -> tuple[Scores, Finding]:
        """The same, and the noise multiplier that was measured beside the claimed one."""
        draws = _validate.whole("draws", draws, least=1)
        _validate.one_of("others", others, OTHERS)
        if others == "unknown" and self.count > 1:
            raise ValueError(
                f"others='unknown' is for one canary, not {self.count}: scores of one draw share the cohort and "
                "are not independent. Design one canary, or take others='known'."
            )
        if others == "known" and self.along is not None:
            raise ValueError("a likelihood ratio is for others='unknown'; known others are taken off the scores.")
        rows, values = [], []
        for replicate in range(first, first + draws):
            coins = self.federation.secret("replicate", self.number, replicate, "coins").random(self.count) < 0.5
            noise = self.draw(replicate, coins & insert)
            row = self.row(coins & insert, noise)
            rows.append(SumRow(coins, row.values, row.square))
            values.append(row.values if others == "known" else self._with_others(replicate, coins & insert, noise))
        table = self.table(rows, values, unit, known=others == "known")
        return replace(table, statistic=RATIO) if self.along is not None else table, self.noise_scale(rows)

    def _with_others(self, replicate: int, inserted: NDArray[np.bool_], noise: Array) -> Array:
        """Scores of an adversary who does not know the clients: a fresh cohort is part of them."""
        clients = self.projections[self.cohort(replicate)].sum(0)
        return np.asarray(self.shown @ inserted + self.looking.project(noise) + clients)
