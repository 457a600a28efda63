"""Frozen rounds: one round of a training again and again at the same model, with fresh cohorts, noise and coins.

    paper          here          meaning
    frozen round   draw          the model does not move; only what the canaries see of the release is kept
    x_i            `projections` <clipped update of client i, direction of a canary>

Clients are trained once: their clipped updates at a fixed model do not change, so that a draw needs their inner products alone.
The release of every draw is the mechanism's own, of a sum that holds one real cohort and the canaries whose coin came up.

Known others: what the clients added is taken off again, and the canaries' own parts are exact, so that a score is
own part + noise. The scale of the noise is measured in every draw, on all directions that no canary has, and never taken from
the claim: with the claim's noise, too little noise would be unseen. Unknown others: a new cohort for every draw is part of the
score, held-out scores are the only null, and one canary is scored at a time: scores of one draw would share the cohort.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine._random import stream
from coalmine.canaries.crafted.design import Crafted
from coalmine.clients import Trainer
from coalmine.contracts import Array, Attendance, Contribution, Game, IndexArray, Public, State
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.nulls import GaussianNull
from coalmine.scores import Scores
from coalmine.training.federation import Federation
from coalmine.training.work import contribute

OTHERS = ("known", "unknown")
STATISTIC = "inner product with a crafted canary, in standard deviations of the measured noise"


@dataclass(frozen=True, eq=False)
class Frozen:
    """One round of a federation at a fixed state, for a set of crafted canaries.

    `excluded` are the users that the canaries were designed with: nobody scores what they were designed on.
    """

    federation: Federation
    state: State
    crafted: Crafted
    number: int
    excluded: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        said = self.federation.mechanism.describe()
        if not said.fresh or said.examples is not None or self.federation._noise_of_clients:
            raise ValueError(
                "frozen rounds need a mechanism whose server adds new noise in every round to a sum of clipped updates; "
                f"{type(self.federation.mechanism).__name__} describes something else. Use direction canaries for it."
            )

    @cached_property
    def public(self) -> Public:
        """What would be announced for this round."""
        state = {key.removeprefix("mechanism."): value for key, value in self.state.items() if key.startswith("mechanism.")}
        return self.federation.mechanism.announce(state, self.number, self.federation.denominator)

    @cached_property
    def contributions(self) -> list[Contribution]:
        """What the client's code makes of the canaries' updates."""
        send = partial(contribute, self.federation.mechanism, public=self.public, examples=1, secret=None)
        return [send(update.copy()) for update in self.crafted.updates]

    @cached_property
    def own(self) -> Array:
        """(canaries, canaries): <direction of the first, contribution of the second>, in clip norms."""
        directions = self.crafted.directions
        columns = [directions.project(each.vector) for each in self.contributions]
        return np.stack(columns, axis=1) / self.public.clip_norm

    def trained(self, users: Sequence[str]) -> Iterator[Contribution]:
        """The contributions of these users at the frozen model."""
        job = self.federation
        trainer = Trainer(job.model, job.training)
        orders = [stream(job.seed, "order of examples", self.number, user) for user in users]
        cohort = [job.data.examples_of(user) for user in users]
        for own, update in zip(cohort, trainer.updates(self.state["parameters"], cohort, orders), strict=True):
            yield contribute(job.mechanism, update.vector, self.public, len(own), None)

    @cached_property
    def users(self) -> tuple[str, ...]:
        """Who may be in a cohort."""
        left = tuple(user for user in self.federation.data.users if user not in self.excluded)
        if not left:
            raise ValueError("all users are in the pool of the design; none is left for a round. Lower crafting.pool.")
        return left

    @cached_property
    def projections(self) -> Array:
        """(clients, canaries): what every client adds to every score, in clip norms; one training of each client."""
        directions = self.crafted.directions
        rows = [directions.project(each.vector) for each in self.trained(self.users)]
        return np.stack(rows) / self.public.clip_norm

    @cached_property
    def clients(self) -> FixedPointSum:
        """The sum of one cohort: what releases are made of. Scores do not depend on which cohort it is."""
        total = FixedPointSum(self.federation.model.dim, self.public.clip_norm)
        for contribution in self.trained([self.users[place] for place in self.cohort(0)]):
            total.add(contribution)
        return total

    def cohort(self, replicate: int) -> IndexArray:
        """Fresh clients for a draw: as many as the training expects in a round; by Poisson sampling a random number."""
        job, rng = self.federation, self.federation.secret("replicate", self.number, replicate, "cohort")
        expected, sampling = job.participation.expected_size(len(job.data), job.rounds), job.participation.sampling
        size = round(expected)
        if sampling is not None and sampling.cohort_size is None:
            size = int(rng.binomial(len(self.users), sampling.rate))
        return rng.permutation(len(self.users))[:size]

    def draw(self, replicate: int, inserted: NDArray[np.bool_]) -> tuple[Array, float]:
        """(<noise, direction> of every canary, |noise|²) of one release with these canaries, in clip norms.

        The noise is what is left of the release without the clients' and the canaries' known parts.
        """
        job, total = self.federation, self.clients.copy()
        for place in np.flatnonzero(inserted):
            total.add(self.contributions[place])
        secret = partial(job.secret, "replicate", self.number, replicate)
        known = total.without_noise()
        state = {key.removeprefix("mechanism."): value for key, value in self.state.items() if key.startswith("mechanism.")}
        release, _ = job.mechanism.release(state, total, self.public, secret)
        noise = (np.asarray(release.vector, np.float64) * release.denominator - known) / self.public.clip_norm
        return self.crafted.directions.project(noise), float(np.einsum("i,i->", noise, noise))

    def scores(self, draws: int, *, others: str = "known", unit: str | None = "client", insert: bool = True) -> Scores:
        """A score for every canary and draw.

        Without `insert` no canary takes part, whatever its coin says: a null table, for calibration.
        """
        draws = _validate.whole("draws", draws, least=1)
        _validate.one_of("others", others, OTHERS)
        if others == "unknown" and len(self.crafted.samples) > 1:
            raise ValueError(
                f"others='unknown' is for one canary, not {len(self.crafted.samples)}: scores of one draw share the cohort and "
                "are not independent. Design one canary, or take others='known'."
            )
        count, dim = len(self.crafted.samples), self.federation.model.dim
        _, inverse = self.crafted.directions.roots()
        seen = inverse @ self.own
        values, labels, squares = [], [], 0.0
        for replicate in range(draws):
            coin = self.federation.secret("replicate", self.number, replicate, "coins").random(count) < 0.5
            taking_part = coin & insert
            noise, square = self.draw(replicate, taking_part)
            white = inverse @ noise
            squares += square - float(white @ white)  # of all directions but the canaries'
            if others == "known":
                values.append(np.diagonal(seen) * taking_part + white)
            else:
                values.append(self.own @ taking_part + noise + self.projections[self.cohort(replicate)].sum(0))
            labels.append(coin)
        scale = float(np.sqrt(squares / (draws * (dim - count))))
        if not scale > 0:
            raise ValueError("this release has no noise: the scores have no scale. Set mechanism.noise_multiplier above 0.")
        return Scores(
            np.concatenate(values) / scale,
            np.concatenate(labels),
            labels={
                "canary": np.tile(np.arange(count), draws),
                "round": np.full(count * draws, self.number),
                "replicate": np.repeat(np.arange(draws), count),
            },
            assignment="coins",
            null=GaussianNull(1.0, directions=draws * (dim - count)) if others == "known" else None,
            statistic=STATISTIC,
            game=Game(unit, "add-or-remove-one", Attendance.of("once"), "rounds known"),
        )
