"""The verdict: a claim against the primary lower bound of the same game, like with like.

VIOLATED       the valid bound exceeds the claim: with the stated confidence, the claim is false
INCONCLUSIVE   this design could not have shown a violation: its ceiling is not above the claim, or it would
               probably have missed half the noise
CONSISTENT     otherwise: a violation of that size would probably have been seen, and was not
"""

import math
from collections.abc import Callable
from dataclasses import replace

from coalmine.contracts import Claim, Game, LowerBound, Power, Verdict
from coalmine.errors import MismatchError
from coalmine.estimators.power import noticeable_noise_factor
from coalmine.gaussian import gaussian_epsilon, gaussian_gap

HALF_NOISE = 2.0
_LARGEST_FACTOR = 1e6
Visible = Callable[[float], float]


def judge(
    claim: Claim,
    bound: LowerBound,
    game: Game | None = None,
    visible: Visible | None = None,
    half_noise_epsilon: float | None = None,
) -> Verdict:
    """Compare a claim with a lower bound measured in `game`; a mismatch is an error, not a comparison.

    `visible` is the epsilon that the scores would show, were the noise too small by a factor; without it, that of the claim's
    mechanism. Where something else hides the canaries it is less, and a fault would be hidden with them. Who has only the
    value at half the noise, from an earlier verdict, gives `half_noise_epsilon`.
    """
    _check_comparable(claim, bound, game or Game())
    detectable = bound.detectable_above(claim.epsilon) if math.isfinite(claim.epsilon) else math.inf
    factor = _noticed(claim, detectable, visible)
    half = visible(HALF_NOISE) if visible is not None else half_noise_epsilon
    if half is None:
        half = _half_noise(claim) if math.isfinite(claim.epsilon) else math.inf
    power = Power(detectable, factor, half)
    if bound.epsilon > claim.epsilon:
        numbers = {"bound": bound.epsilon, "claim": claim.epsilon, "confidence": bound.confidence}
        return Verdict("VIOLATED", "bound-above-claim", power, numbers)
    if not math.isfinite(claim.epsilon):
        return Verdict("INCONCLUSIVE", "claim-infinite", power)
    if not bound.ceiling > claim.epsilon:
        return Verdict("INCONCLUSIVE", "ceiling-below-claim", power, {"ceiling": bound.ceiling, "claim": claim.epsilon})
    if math.isinf(detectable):  # also at delta = 0, where the Gaussian model of the search has no finite epsilon
        return Verdict("INCONCLUSIVE", "delta-zero" if claim.delta == 0 else "nothing-detectable", power)
    if detectable > half:
        return Verdict("INCONCLUSIVE", "half-noise-missed", power, {"factor": factor})
    return Verdict("CONSISTENT", "consistent", power, {"factor": factor})


def game_of(bound: LowerBound, game: Game) -> Game:
    """The game that a bound of scores proves: where its design decides what neighbours differ in, that counts."""
    return game if bound.neighbours is None else replace(game, relation=bound.neighbours)


def _noticed(claim: Claim, detectable: float, visible: Visible | None) -> float:
    """The smallest factor by which too little noise would have been noticed."""
    if not (0 < claim.delta < 1 and math.isfinite(detectable)):
        return math.inf
    if visible is None:
        return noticeable_noise_factor(claim.epsilon, detectable, claim.delta)
    low, high = 0.0, math.log(_LARGEST_FACTOR)
    if visible(_LARGEST_FACTOR) < detectable:
        return math.inf
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if visible(math.exp(middle)) >= detectable else (middle, high)
    return math.exp(high)


def _half_noise(claim: Claim) -> float:
    """Epsilon of the same mechanism with half its noise; of a single Gaussian release if the mechanism is not known."""
    asked = claim.at_noise(1 / HALF_NOISE)
    if asked is not None:
        return asked
    if not 0 < claim.delta < 1:
        return math.inf
    return float(gaussian_epsilon(0.0, 1.0, HALF_NOISE * gaussian_gap(claim.epsilon, claim.delta), 1.0, claim.delta))


def _check_comparable(claim: Claim, bound: LowerBound, game: Game) -> None:
    if not bound.valid:
        raise MismatchError(
            f"the {bound.method!r} number is approximate and cannot decide about a claim; "
            "make a valid bound primary (band is the default)."
        )
    if claim.delta != bound.delta:
        raise MismatchError(
            f"the claim is for delta = {claim.delta:g}, the bound for delta = {bound.delta:g}; compute both for the same delta."
        )
    differences = claim.game.differences(game_of(bound, game))
    if differences:
        raise MismatchError(
            "the claim and the scores do not describe the same game (claim against scores): " + "; ".join(differences) + ". "
            "Account the canaries of this view: what its adversary knows, how often they took part, added or replaced."
        )
