r"""Scores where the noise has a known covariance S that is not the same in all directions.

    statistic          score of a canary in direction c                          its law without the canary
    whitened           c' S⁻¹ r / sqrt(c' S⁻¹ c), summed over rounds / sqrt(T)    N(0, 1), exactly
    plain              c' r / sqrt(c' S c), likewise                              N(0, 1), exactly
    likelihood-ratio   log p(r)/q(r), summed over rounds                          `LikelihoodRatioNull`

r is the release without its known mean in the world without the canary. The whitened score is the best one where a canary
moves the mean alone. A canary that also changes the covariance (one record against another, orthogonal one) is seen by the
likelihood ratio, which is quadratic; its law is that of `coalmine.gaussian_pairs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coalmine import _validate
from coalmine.contracts import Array
from coalmine.gaussian_pairs import loss_logsf, loss_moments

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
