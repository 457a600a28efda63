"""What canaries leave in a model if training is linear in them: what was added stays, and nothing answers to it.

    T     rounds                          theta_T    the final model
    S_s   clip norm of round s            n          denominator of a release
    r     learning rate of the server     m          its momentum

A canary that takes part in round s adds r S_s/n (1 + m + … + m^(T-1-s)) of its direction to the final model. If no later round
repeats or undoes that, its cosine with theta_T is this over |theta_T|, and else what any random direction has. Training need
not be so: gradients answer to the parameters. Whether it is, is what Figure 1 rests on; here the two are compared.

S_s is not the same in all rounds where clipping is adaptive. A canary of a round with a large S_s leaves more, so that cosines
are a mixture, wider than a normal of the null's width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coalmine.contracts import Array


def left_by_canaries(rounds: Sequence[Mapping[str, Any]], *, learning_rate: float, momentum: float) -> float:
    """The sum of what all canaries leave in the final model, each in its own direction."""
    return float(_column(rounds, "canaries") @ left_of(rounds, learning_rate=learning_rate, momentum=momentum))


def left_of(rounds: Sequence[Mapping[str, Any]], *, learning_rate: float, momentum: float) -> Array:
    """What a canary of each round leaves in the final model."""
    number, clip, divisor = (_column(rounds, name) for name in ("round", "clip_norm", "denominator"))
    steps = number.size - number
    return learning_rate * clip / divisor * (1 - momentum**steps) / (1 - momentum)


def _column(rounds: Sequence[Mapping[str, Any]], name: str) -> Array:
    return np.array([float(each[name]) for each in rounds])
