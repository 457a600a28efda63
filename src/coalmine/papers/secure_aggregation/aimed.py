r"""Canaries aimed at directions of a covariance that the auditor knows, as gradients planted as one record of a user.

A canary is the record +C c or -C c by its coin; everything else is known but weights and noise. With S the covariance of the
sum and x - mu what remains of the sum after its known mean (in the world of the minus sign),

    whitened   c' S⁻¹ (x - mu) / sqrt(c' S⁻¹ c)      the best linear score
    plain      c' (x - mu) / sqrt(c' S c)            an inner product, as with random canaries

summed over rounds and divided by sqrt(rounds). Both are N(0, 1) for the minus sign, exactly, and N(mu_c, 1) for the plus sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coalmine._random import stream
from coalmine.accounting.water_filling import example_game
from coalmine.contracts import Array
from coalmine.nulls import GaussianNull
from coalmine.scores import Scores
from coalmine.views.whitened import filters_of


def lifted(covariance: Array, floor: float) -> Array:
    """Every eigenvalue lifted to the floor."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


@dataclass(frozen=True, eq=False)
class AimedGame:
    """One round: covariance of the sum with all canaries in it, their unit directions as columns, and what one adds."""

    covariance: Array
    directions: Array
    step: float  # C/D

    def gaps(self, statistic: str) -> Array:
        """mu_c of one round, for every canary."""
        if statistic == "whitened":
            solved = np.linalg.solve(self.covariance, self.directions)
            return np.asarray(2 * self.step * np.sqrt(np.einsum("ij,ij->j", self.directions, solved)))
        spread = np.einsum("ij,ij->j", self.directions, self.covariance @ self.directions)
        return np.asarray(2 * self.step / np.sqrt(spread))

    def scores(self, rounds: int, repeats: int, seed: int, statistic: str) -> Scores:
        """`repeats` runs of so many rounds, each with all canaries in it by fair coins; one score per canary and run."""
        rng = stream(seed, "aimed canaries", statistic)
        root = np.linalg.cholesky(self.covariance)
        filters = filters_of(self.covariance, self.directions, statistic)
        own = np.einsum("ij,ij->j", filters, self.directions)
        count = self.directions.shape[1]
        coins = rng.random((repeats, count)) < 0.5
        values = np.empty((repeats, count))
        for repeat in range(repeats):
            # the known mean of everything else is subtracted: what remains is noise and the canary's own part
            noise = root @ rng.standard_normal((len(root), rounds))
            values[repeat] = (filters.T @ noise).sum(axis=1) / math.sqrt(rounds)
            values[repeat] += np.where(coins[repeat], 2 * self.step * own * math.sqrt(rounds), 0.0)
        return Scores(
            values.ravel(),
            coins.ravel(),
            labels={
                "canary": np.tile(np.arange(count), repeats) + count * np.repeat(np.arange(repeats), count),
            },
            assignment="coins",
            null=GaussianNull(1.0),
            statistic=f"{statistic} projection",
            view="the sum, all data and models known",
            game=example_game("replace-one", rounds),
        )
