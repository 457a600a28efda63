"""Damped Toeplitz noise with the memory of a few buffers.

Coefficients c_t = (1 - ν)^t binom(2t, t) / 4^t are nearly a sum of a few exponentials. Decays and weights are fitted to the
square root (ν = 0) by relative differences, at rounds that are even on a logarithmic scale, and the damping multiplies every
decay. What is found is a strategy of its own and accounted as such: an approximation that is coarse costs accuracy, and no
privacy.
"""

from __future__ import annotations

import numpy as np
import scipy  # its parts are loaded when they are used

from coalmine import _validate
from coalmine.contracts import Array
from coalmine.mechanisms.strategies.blt import MOST_BUFFERS, Blt
from coalmine.mechanisms.strategies.strategy import rounded
from coalmine.mechanisms.strategies.toeplitz import Toeplitz

_PLACES = 300  # rounds that are fitted


def in_buffers(strategy: Toeplitz, buffers: int) -> Blt:
    """Buffers in the place of all rounds before.

    >>> made = in_buffers(Toeplitz(128, 0.0375), 4)
    >>> round(off_by(made, Toeplitz(128, 0.0375)), 4)
    0.0073
    """
    buffers, rounds = _validate.whole("buffers", buffers, least=1, most=MOST_BUFFERS), strategy.rounds
    if rounds < 2:
        return Blt(rounds)
    column = Toeplitz(rounds).column()[1:]
    places = np.unique(np.geomspace(1, rounds - 1, _PLACES).astype(np.int64)) - 1
    begin = 0.7 * np.geomspace(1.0, 0.5 / rounds, buffers)  # what a buffer forgets in a round
    first = np.concatenate([np.log(begin / (1 - begin)), np.log(0.3 * np.sqrt(begin))])

    def differences(logs: Array) -> Array:
        decays, weights = _parts(logs)
        return np.asarray(weights @ decays[:, None] ** places / column[places] - 1)

    decays, weights = _parts(scipy.optimize.least_squares(differences, first).x)
    kept = 1 - strategy.damping
    return Blt(rounds, rounded(kept * decays), rounded(kept * weights))


def off_by(made: Blt, strategy: Toeplitz) -> float:
    """The largest relative difference of a coefficient."""
    return float(np.abs(made.column() / strategy.column() - 1).max())


def _parts(logs: Array) -> tuple[Array, Array]:
    forgotten, weights = np.split(logs, 2)
    return np.asarray(1 - scipy.special.expit(forgotten)), np.exp(weights)
