r"""Scores where the noise has a known covariance S that is not the same in all directions.

    statistic          score of a canary in direction c                          its law without the canary
    whitened           c' S⁻¹ r / sqrt(c' S⁻¹ c), summed over rounds / sqrt(T)    N(0, 1), exactly
    plain              c' r / sqrt(c' S c), likewise                              N(0, 1), exactly
    likelihood-ratio   log p(r)/q(r), summed over rounds                          `LikelihoodRatioNull`

r is the release without its known mean in the world without the canary. The whitened score is the best one where a canary
moves the mean alone. A canary that also changes the covariance (one record against another, orthogonal one) is seen by the
likelihood ratio, which is quadratic; its law is that of `coalmine.gaussian_pairs`.

In a run the covariance is `Observed.covariance`, computed by the auditor from the description and the clients' gradients. Code
with a bug has another one: so nothing is taken for granted of held-out canaries there, and the views `Whitened` and
`LikelihoodRatio` compare inserted canaries with held-out ones, whom only a coin tells apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine import _validate
from coalmine.canaries.aimed import Aim
from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Array, Canaries, IndexArray, Observed, Projections
from coalmine.errors import AuditError, NotEnoughCanariesError
from coalmine.gaussian_pairs import loss_logsf, loss_moments
from coalmine.mechanisms.covariance import Whitening
from coalmine.scores import Scores
from coalmine.views.power import Hiding, Visible, nothing_promised
from coalmine.views.view import NullChoice, Threat, check, table

STATISTICS = ("whitened", "plain", "likelihood-ratio")


def filters_of(covariance: Array, directions: Array, statistic: str = "whitened") -> Array:
    """A column for every canary: its inner product with noise of this covariance is N(0, 1)."""
    _validate.one_of("statistic", statistic, STATISTICS[:2])
    filters = np.linalg.solve(covariance, directions) if statistic == "whitened" else directions
    return np.asarray(filters / np.sqrt(np.einsum("ij,ij->j", filters, covariance @ filters)))


def log_ratios(rows: Array, variances: ArrayLike, means: ArrayLike) -> Array:
    """log p(x)/q(x) of each row x, P = N(means, diag(variances)) against N(0, I)."""
    a, m = np.asarray(variances, np.float64), np.asarray(means, np.float64)
    return np.asarray(np.sum(rows**2 - (rows - m) ** 2 / a - np.log(a), axis=-1) / 2)


@dataclass(frozen=True)
class LikelihoodRatioNull:
    """The law of a sum of `times` log-likelihood ratios where the second law is true: exact, without a ceiling."""

    variances: tuple[float, ...]
    means: tuple[float, ...]
    times: int = 1

    @property
    def name(self) -> str:
        """In words, for reports."""
        return "likelihood ratio of two normal laws"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold."""
        return ("both covariances are those that the auditor computed",)

    @property
    def center(self) -> float:
        """Its mean: minus the divergence of the second law from the first."""
        return loss_moments(self.variances, self.means, self.times)[0]

    @property
    def spread(self) -> float:
        """Its standard deviation."""
        return math.sqrt(loss_moments(self.variances, self.means, self.times)[1])

    @property
    def slack(self) -> float:
        """The tail is exact."""
        return 0.0

    def logsf(self, value: ArrayLike) -> Array:
        """log P(score >= value)."""
        asked = np.asarray(value, np.float64)
        found = [loss_logsf(self.variances, self.means, float(each), self.times) for each in asked.ravel()]
        return np.reshape(found, asked.shape)


def aimed_row(aim: Aim, count: int, assigned: IndexArray, seen: Observed) -> tuple[Array, Array, Array]:
    """(whitened score, log-likelihood ratio, gap) of every canary in one round; 0 for those that have no part in it.

    What a canary is looked for in holds what its own client sent, noise included, and of other canaries nothing: a held-out one
    has a client with a zero gradient. Nothing of a coin goes into the covariance that whitens. The ratio is that of the
    whitened score x, N(gap, 1 + lift c'S⁻¹c) with the record and N(0, 1) without it.
    """
    known = seen.canaries.aimed
    if known is None or seen.others is None:
        raise AuditError("aimed canaries need the covariance of every round, and what clients and canaries sent, and got none.")
    release, white, places = seen.release, Whitening(known.background), aim.places(count)
    filters = white.inverse(aim.directions)
    gains = np.sqrt(np.einsum("ij,ij->j", aim.directions, filters))
    filters, gains = filters / gains, gains[places]
    inserted = np.isin(assigned, seen.canaries.indices)
    residual = (np.asarray(release.vector, np.float64) - seen.others) * release.denominator - known.sent[inserted].sum(axis=0)
    x = np.zeros(count)
    x[assigned] = (filters.T @ residual)[places[assigned]]
    x[assigned] += np.einsum("ij,ji->i", known.sent, filters[:, places[assigned]])
    gaps, wider = gains * release.clip_norm, 1 + known.lift * gains**2
    return x, log_ratios(x[:, None], wider[:, None], gaps[:, None]), gaps


@dataclass(frozen=True)
class Whitened(Threat):
    """Knows all other updates and the covariance of the noise, and looks along its target in units of that noise."""

    key: ClassVar[str] = "whitened"
    adversary: ClassVar[str] = "sees every release and knows the rounds of its target, all other updates and all covariances"
    short: ClassVar[str] = "all known, whitened"
    needs: ClassVar[str] = "whitened"
    knows_rounds: ClassVar[bool] = True
    knows_others: ClassVar[bool] = True
    empirical_only: ClassVar[bool] = True
    statistic: ClassVar[str] = "whitened projection"

    def scores(
        self, projections: Projections, schedule: Schedule, canaries: Canaries, *, null: NullChoice = "empirical"
    ) -> Scores:
        """The sum over its rounds of every canary that has a round; held-out canaries alone say what to compare with."""
        check(projections, schedule, canaries, self.needs, null)
        presence = schedule.presence[projections.rounds]
        members = np.flatnonzero(presence.any(axis=0))
        if members.size == 0:
            raise NotEnoughCanariesError("no canary was assigned to any of these rounds; plant them for more rounds.")
        there = presence[:, members]
        values = np.where(there, projections.inner[:, members], 0.0).sum(axis=0) / self._unit(there)
        none = np.zeros(0, np.int64)
        return table(
            self,
            self.statistic,
            projections,
            schedule,
            members=members,
            values=values,
            law=None,
            columns=none,
            unused=np.zeros(0),
        )

    @staticmethod
    def _unit(presence: NDArray[np.bool_]) -> Array:
        return np.asarray(np.sqrt(presence.sum(axis=0)))

    def visible(self, hiding: Hiding) -> Visible:
        """From the gaps of every round: noise too small by a factor in all directions makes them larger by it."""
        if hiding.gaps is None or hiding.gaps.shape[0] != hiding.presence.shape[0]:
            return nothing_promised
        effect = float(np.sqrt(np.square(hiding.gaps) @ hiding.presence).mean()) * hiding.setup.kept
        return lambda factor: hiding.epsilon(effect * factor)


@dataclass(frozen=True)
class LikelihoodRatio(Whitened):
    """The same adversary by the likelihood ratio, which also sees a change of the covariance: a weight of random sign."""

    key: ClassVar[str] = "likelihood-ratio"
    short: ClassVar[str] = "all known, likelihood ratio"
    needs: ClassVar[str] = "ratio"
    combined: ClassVar[str] = "likelihood-ratio"
    statistic: ClassVar[str] = "likelihood ratio"

    @staticmethod
    def _unit(presence: NDArray[np.bool_]) -> Array:
        return np.ones(presence.shape[1])
