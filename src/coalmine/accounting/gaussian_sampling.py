r"""Secure aggregation without noise: what its own randomness protects (Zhang & Psounis 2024), and Table 1.

Users send G_i w_i with Gaussian weights w_i ~ N(1/D, I/(BD)); the server sees the sum. With S the sum of g gᵀ over all
examples of all users, the sum is N(mean, S/(BD)).

    paper                   here                    meaning
    C, D, B, N              clip_norm, examples, batch, users
    Lambda                  least_eigenvalue        sum over users of the least eigenvalue of G_i G_iᵀ/D; or, sharper,
                                                    that of the sum of these matrices
    leverage of g           leverage                gᵀ S⁺ g, between 0 and 1; 1: g is outside the span of all others (Theorem 1)

An example against none (a zero gradient) is one pair of normal laws, N(sqrt(B/D l/(1-l)), 1/(1-l)) and N(0, 1) with l the
leverage: `record_epsilon` is exact. It depends on the data of everybody, so it is a diagnosis,
and a claim "for these data" only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from coalmine import _validate
from coalmine.accounting.composition import converted
from coalmine.accounting.water_filling import example_game
from coalmine.contracts import Claim
from coalmine.gaussian import gaussian_epsilon
from coalmine.gaussian_pairs import pair_epsilon

Theorem = Literal["corrected", "before-last-step", "printed"]
THESE_DATA = "these data"
_OUTSIDE = 1e-9  # a leverage this near to 1 is outside the span of the others


def record_epsilon(leverage: ArrayLike, batch: float, examples: int, delta: float, times: int = 1) -> Any:
    """The exact epsilon of one example in a sum without noise, by its leverage; infinite outside the span of the others.

    >>> round(record_epsilon(0.1, batch=32, examples=1200, delta=1e-4), 9)
    0.665676979

    Args:
        leverage: Of the example, see `leverages`.
        batch: Scale of the weights: variance 1/(batch examples).
        examples: Of each user.
        delta: Of the statement, above 0 and below 1.
        times: Releases.

    Returns:
        Epsilon, for each leverage.
    """
    examples, delta = _validate.whole("examples", examples, least=1), _validate.delta(delta)
    ratio = _validate.positive("batch", batch) / examples
    if not ratio <= 1:
        raise ValueError(f"batch={batch!r} is not allowed: it must be at most the number of examples, {examples}.")
    found = np.asarray(leverage, np.float64)
    if not ((found >= -_OUTSIDE) & (found <= 1 + _OUTSIDE)).all():
        raise ValueError("leverage must be between 0 and 1: see `leverages`.")
    inside = np.clip(found, 0.0, 1 - _OUTSIDE)
    square = ratio * inside / (1 - inside)
    if times == 1:
        epsilon = gaussian_epsilon(np.sqrt(square), np.sqrt(1 / (1 - inside)), 0.0, 1.0, delta)
    else:
        pairs = zip((1 / (1 - inside)).ravel(), np.sqrt(square).ravel(), strict=True)
        epsilon = np.reshape([pair_epsilon([a], [m], delta, times=times) for a, m in pairs], inside.shape)
    shown = np.where(found > 1 - _OUTSIDE, np.inf, epsilon)
    return shown if shown.shape else float(shown)


def claim_gaussian_sampling(
    *,
    least_eigenvalue: float,
    examples: int,
    batch: float,
    clip_norm: float,
    delta: float,
    rounds: int = 1,
    formula: Theorem = "corrected",
    conversion: str = "mironov",
) -> Claim:
    """Theorems 2 and 3: Gaussian weights alone. The claim holds for these data only, and is infinite where they are singular.

    Theorem 3 is the same inside a subspace that all gradients share: give the least eigenvalue there.

    >>> setting = dict(examples=1200, batch=32, clip_norm=10.0, delta=1e-4)
    >>> round(claim_gaussian_sampling(least_eigenvalue=5.0, **setting).epsilon, 8)
    0.38598831

    Args:
        least_eigenvalue: Of the Gram matrix of the gradients.
        examples: Of each user.
        batch: Scale of the weights: variance 1/(batch examples).
        clip_norm: Of single gradients.
        delta: Of the statement, above 0 and below 1.
        rounds: Number of rounds.
        formula: "corrected", "before-last-step" or "printed".
        conversion: From Rényi orders to epsilon.

    Returns:
        A claim for these data only.
    """
    delta, rounds = _validate.delta(delta), _validate.whole("rounds", rounds, least=1)
    curve, most = sampling_curve(least_eigenvalue, examples, batch, clip_norm, formula)
    epsilon, _ = converted(lambda order: rounds * curve(order), delta, most, conversion)
    needed = clip_norm**2 / examples * (batch if formula == "printed" else 1)
    too_low = f"the theorem does not apply: the least eigenvalue must exceed {needed:.3g}, and it is {least_eigenvalue:.3g}"
    return Claim(
        epsilon=epsilon,
        delta=delta,
        accountant=f"Gaussian sampling, Theorem 2 {formula}; Rényi orders, {conversion}",
        game=example_game("replace-one", rounds),
        assumptions=(
            "holds for these data only: the least eigenvalue is a function of everybody's data, and is not public",
            "sampling weights are Gaussian, independent and secret, and nobody who is counted colludes or drops out",
            "one direction of the divergence; replacing an example may lower the least eigenvalue by C²/D",
            *((too_low,) if math.isinf(epsilon) else ()),
        ),
        valid_for=THESE_DATA,
    )


def sampling_curve(
    least_eigenvalue: float, examples: int, batch: float, clip_norm: float, formula: str = "corrected"
) -> tuple[Callable[[float], float], float]:
    """(the Rényi curve of one round, the order below which it is finite).

    "corrected" is (19) and (34), "before-last-step" the line before the last one of (30), which is smaller, and "printed" is
    (31), whose denominator has 1/B too much.
    """
    _validate.one_of("formula", formula, ("corrected", "before-last-step", "printed"))
    least = _validate.non_negative("least_eigenvalue", least_eigenvalue)
    examples, clip_norm = _validate.whole("examples", examples, least=1), _validate.positive("clip_norm", clip_norm)
    if not _validate.positive("batch", batch) <= examples:
        raise ValueError(f"batch={batch!r} is not allowed: it must be at most the number of examples, {examples}, of a user.")
    step = clip_norm**2 / examples
    if formula == "printed":
        least = least / batch

    def curve(order: float) -> float:
        room = least - order * step
        if not (order > 1 and room > 0):
            return math.inf
        gap, change = 2 * order * batch * step / examples, order * step / (order - 1)
        if formula == "before-last-step":
            return gap / room + change / 2 * (1 / least + 1 / room)
        return (gap + change) / room

    return curve, least / step


def table1_epsilon(
    row: str, *, users: float, examples: int, batch: float, clip_norm: float, floor: float, delta: float
) -> float:
    """A row of Table 1 as printed, one round: "gd", "sgd" (both isotropic noise) or "gsgd" (Gaussian weights, either noise).

    The rows "SGD + WF-NA" and "GD + WF-NA" have no guarantee, rightly: above the water nothing is added.

    >>> setting = dict(users=50, examples=1200, batch=32, clip_norm=10.0, floor=0.01, delta=1e-4)
    >>> round(table1_epsilon("gd", **setting), 9), round(table1_epsilon("sgd", **setting), 9)
    (0.101439586, 1.002008345)
    """
    _validate.one_of("row", row, ("gd", "sgd", "gsgd"))
    from coalmine.accounting.water_filling import WaterFillingEvent

    if row == "gsgd":
        return WaterFillingEvent(clip_norm, examples, batch, users, floor, "printed").epsilon(delta)
    size = examples if row == "gd" else batch
    rho = 2 * clip_norm**2 / size**2 / (users * floor)
    epsilon = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return epsilon if row == "gd" else math.log1p(batch / examples * math.expm1(epsilon))


def batch_delta(batch: float, examples: int, rounds: int = 1) -> float:
    """delta(epsilon), for EVERY epsilon, of plain batches without noise: an example in general position is seen or it is not.

    >>> round(batch_delta(32, 1200), 7), round(batch_delta(32, 1200, rounds=100), 3)
    (0.0266667, 0.933)
    """
    return -math.expm1(rounds * math.log1p(-batch / examples))


def average_leakage(rank: int, users: int) -> float:
    """The second term of bound (9), in nats: exact for independent Gaussian updates. Average case, no guarantee.

    >>> round(average_leakage(rank=100, users=50), 4)
    1.0101

    Args:
        rank: Rank of the gradients.
        users: Users in the sum.

    Returns:
        Nats.
    """
    rank, users = _validate.whole("rank", rank), _validate.whole("users", users, least=1)
    return math.inf if users == 1 else rank / 2 * math.log(users / (users - 1))
