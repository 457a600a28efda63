"""What an epsilon means for an attacker who may raise few false alarms: how many of its targets it finds.

    alpha   share of those who took no part whom the attacker takes for participants (false alarms)
    beta    share of its targets that it finds

An (epsilon, delta) guarantee allows any beta up to min(delta + e^epsilon alpha, 1 - e^-epsilon (1 - delta - alpha)) and no more
(Kairouz et al. 2015), and some mechanism has this beta. A Gaussian mechanism of gap mu has the smaller
Phi(mu + Phi^-1(alpha)) (Dong et al. 2022); its mu follows from epsilon and delta.

A violated (epsilon, delta) alone proves next to nothing about beta at one alpha: the attack that was found may live at another.
What was shown is therefore only turned into a share where the mechanism is Gaussian, so that epsilon fixes the whole curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scipy import special

from coalmine.contracts import Attendance, Claim, LowerBound, from_plain
from coalmine.gaussian import gaussian_gap

FALSE_ALARMS = 0.01


@dataclass(frozen=True)
class Attacker:
    """Shares of the targets that are found at so many false alarms; None where nobody can say."""

    false_alarms: float
    by_claim: float | None  # at most
    by_claim_of_clients: float | None  # at most, of those who take part otherwise than the canaries
    shown: float | None  # at least, with the confidence of the bound
    gaussian: bool  # by the curve of a Gaussian mechanism, else by epsilon and delta alone


def attacker(claim: Claim | None, bound: LowerBound, training: Mapping[str, Any]) -> Attacker | None:
    """What claim and bound mean for an attacker, also of the clients that a training recorded; None without a claim."""
    if claim is None:
        return None
    known, own = is_gaussian(claim), clients_of(claim, training)
    theirs = None if own is None else found(own[1], claim.delta, gaussian=known and _without_sampling(own[0]))
    shown = found(bound.epsilon, bound.delta, gaussian=True) if known and bound.valid and bound.delta > 0 else None
    return Attacker(FALSE_ALARMS, found(claim.epsilon, claim.delta, gaussian=known), theirs, shown, known)


def clients_of(claim: Claim | None, training: Mapping[str, Any]) -> tuple[Attendance, float] | None:
    """How often a run's own clients take part, and the claim for them; None where they do as the canaries, or not known."""
    try:
        how: Attendance = from_plain(Attendance, training.get("participation"))
        epsilon = float(training["epsilon_of_clients"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    canaries = claim.game.participation if claim is not None else None
    return None if canaries is None or canaries == how or not epsilon >= 0 else (how, epsilon)


def is_gaussian(claim: Claim) -> bool:
    """Whether the claimed mechanism is a Gaussian one, so that epsilon and delta fix what every attack can reach."""
    noise = claim.description.noise if claim.description is not None else None
    same = noise is not None and noise.coordinates.kind == "isotropic"
    return same and claim.delta > 0 and _without_sampling(claim.game.participation)


def found(epsilon: float, delta: float, alarms: float = FALSE_ALARMS, *, gaussian: bool = False) -> float:
    """The largest share of targets that is found at so many false alarms.

    >>> round(found(1.0, 0.0), 5), round(found(4.38, 1e-5, gaussian=True), 3)
    (0.02718, 0.092)
    """
    if math.isinf(epsilon):
        return 1.0
    if gaussian:
        gap = gaussian_gap(epsilon, delta) if epsilon > 0 else 0.0  # an epsilon of 0 that was shown is nothing shown
        return float(special.ndtr(gap + special.ndtri(alarms)))
    rising = math.inf if epsilon > 700 else delta + math.exp(epsilon) * alarms
    return min(1.0, rising, 1 - math.exp(-epsilon) * (1 - delta - alarms))


def _without_sampling(how: Attendance | None) -> bool:
    return how is not None and how.rate is None and how.cohort_size is None
