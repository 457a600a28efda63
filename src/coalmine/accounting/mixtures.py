"""Privacy losses of a mixture of Gaussians against one: sum_i p_i N(m_i, s²) and N(0, s²), on a grid, for dp-accounting.

    paper                        here        meaning
    delta(epsilon)               _deltas     hockey-stick divergence of one round, at all points of the grid at once
    Doroshenko et al. 2022       _masses     "Connect the Dots", Algorithm 1: the law on a grid that has exactly these deltas

The law on the grid dominates the true one, so that an epsilon by it is an upper bound. dp-accounting has the same law
(`from_mixture_gaussian_mechanism`) and searches its points one after the other, which takes seconds for a round and half a
minute for a calibration; here all are searched together. Compositions are dp-accounting's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.contracts import Sampling

_RARE_MEMBERS = 1e-25  # chance, over all rounds, of numbers of members that are taken for all of them
_TAIL = 10.3  # standard deviations: less than e^-50/2 of a Gaussian lies beyond
_MOST_POINTS = 5_000_000  # of the grid: more take minutes and gigabytes
_HALVINGS = 60  # of the range of outcomes: down to what float64 can tell apart

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Composed:
    """Rounds of such losses, asked as dp-accounting's accountants are."""

    losses: Any

    def get_epsilon(self, delta: float) -> float:
        """The epsilon at this delta."""
        return float(self.losses.get_epsilon_for_delta(delta))

    def get_delta(self, epsilon: float) -> float:
        """The delta at this epsilon."""
        return float(self.losses.get_delta_for_epsilon(epsilon))


def sampled_members(noise: float, sampling: Sampling, grid: float) -> Composed:
    """All rounds of a unit whose members are sampled one by one: sum_i Bin(G, q)(i) N(i, noise²) against N(0, noise²).

    Numbers of members that are too rare to matter count as all G, which can only add to the epsilon.
    """
    from scipy.stats import binom

    largest = (sampling.group_size / noise) ** 2 / 2
    if largest / grid > _MOST_POINTS:
        raise ValueError(
            f"a unit of {sampling.group_size:,} examples at noise multiplier {noise:.4g} is not accounted: its privacy loss "
            f"reaches {largest:.4g}, too much for a grid. Ask for more noise, or for fewer examples of a unit."
        )
    members = np.arange(sampling.group_size + 1)
    chance = binom.pmf(members, sampling.group_size, sampling.rate)
    kept = (chance >= _RARE_MEMBERS / sampling.rounds) | (members == sampling.group_size)
    chance[-1] += chance[~kept].sum()
    kept &= chance > 0
    losses = mixture_losses(noise, members[kept].astype(float), chance[kept] / chance[kept].sum(), grid)
    return Composed(losses.self_compose(sampling.rounds))


def mixture_losses(noise: float, moves: Array, chances: Array, grid: float) -> Any:
    """The privacy loss distribution of one round: the sum moves by moves[i] with probability chances[i], noise of size `noise`.

    >>> found = mixture_losses(4.0, np.arange(3.0), np.array([0.25, 0.5, 0.25]), 1e-3)
    >>> round(found.get_epsilon_for_delta(1e-5), 4)
    1.1531
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    (with_it, never), (without, never_without) = (_masses(noise, moves, chances, grid, removed) for removed in (True, False))
    return PrivacyLossDistribution.create_from_rounded_probability(
        with_it, never, grid, True, without, never_without, symmetric=False
    )


def _masses(noise: float, moves: Array, chances: Array, grid: float, removed: bool) -> tuple[dict[int, float], float]:
    """(probability by point of the grid, probability of an infinite loss), with the mixture as the true law or as the other."""
    ends = np.array([-_TAIL * noise, _TAIL * noise + (moves.max() if removed else 0.0)])
    low, high = np.sort(_loss(ends, noise, moves, chances) * (1 if removed else -1))
    first, last = math.floor(low / grid), math.ceil(high / grid) + 1
    points = np.arange(first, last + 1)
    deltas = np.clip(_deltas(points * grid, noise, moves, chances, removed), 0.0, 1.0)
    deltas = np.maximum.accumulate(deltas[::-1])[::-1]  # rounding may have broken the order; upwards is safe
    steps = np.diff(deltas)
    masses = np.empty(points.size)
    masses[0] = 1 - deltas[0] + steps[0] / math.expm1(grid)
    masses[1:-1] = (steps[1:] - steps[:-1] * math.exp(grid)) / math.expm1(grid)
    masses[-1] = steps[-1] / math.expm1(-grid)
    return dict(zip(points.tolist(), np.maximum(masses, 0.0).tolist(), strict=True)), float(deltas[-1])


def _loss(outcomes: Array, noise: float, moves: Array, chances: Array) -> Array:
    """log of mixture over Gaussian, increasing in the outcome."""
    found = np.full(outcomes.shape, -np.inf)
    for move, chance in zip(moves, chances, strict=True):
        found = np.logaddexp(found, math.log(chance) + move * (outcomes - move / 2) / noise**2)
    return found


def _deltas(epsilons: Array, noise: float, moves: Array, chances: Array, removed: bool) -> Array:
    """Hockey-stick divergences. Where no outcome has the loss, the outcome at the far end is as good: beyond lies nothing."""
    from scipy.special import log_ndtr, ndtr

    wanted = epsilons if removed else -epsilons
    low = np.full(wanted.shape, -4 * _TAIL * noise)
    high = np.full(wanted.shape, 4 * _TAIL * noise + 2 * moves.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = _loss(middle, noise, moves, chances) > wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    outcome = (low + high) / 2
    if removed:  # the mixture gives more to outcomes above
        mixed = sum(chance * ndtr((move - outcome) / noise) for move, chance in zip(moves, chances, strict=True))
        return np.asarray(mixed - np.exp(epsilons + log_ndtr(-outcome / noise)))
    chances_at = [np.exp(math.log(c) + epsilons + log_ndtr((outcome - m) / noise)) for m, c in zip(moves, chances, strict=True)]
    return np.asarray(ndtr(outcome / noise) - sum(chances_at))
