"""The verdict: a claim against the primary lower bound of the same game, like with like, and against tests of the mechanism.

VIOLATED       the valid bound exceeds the claim: with the stated confidence, the claim is false
DEVIATES       a sentence of the mechanism's description was found false: the claim was computed for another mechanism
CONSISTENT     half the noise would probably have been noticed, and was not; or every sentence of the description was tested,
               none was found false, and noise 10 % too small would have been noticed
INCONCLUSIVE   otherwise: no violation was shown, and this audit would probably have missed one

The first of these words that applies is the verdict. `judge` knows the bound alone; `judge_conformance` adds the tests.

A deviation to *less* protection, or to an unknown side (shape, structure, predictability), fails a gate as a violation does.
More noise, otherwise as described, does not: the claim holds.

**What CONSISTENT by conformance promises.** An accountant proved the claim for a description, and this run did what the
description says. The strength of the noise is only one of its sentences. Each of these must have been tested:

* the noise: strength in all, by round, layer and coordinate; new in every round, independent across coordinates, Gaussian, not
  rounded to few values, of mean zero, not from a guessable seed; nothing of earlier rounds comes back;
* the clipping: what was summed is the clip of each contribution, for all clients alike. A contribution that is too long or
  counted twice leaves the noise as it is, and doubles epsilon;
* what the sum was divided by, and the noise of an adaptive clip norm;
* who took part. A claim for rounds that the adversary does not know rests on the sampling, and there nothing excuses its lack.

What is no part of a description (`NO_PART`: one round, a fixed clip norm, ...) need not be tested; what could not be looked at
must. Whether canaries arrive whole is not asked for: that is about the audit. And the claim must be the accountant's for this
description: an epsilon that somebody stated is proved by no description.

**An estimate above the claim.** CONSISTENT is not said where the interval of the estimate lies wholly above the claim. With a
tight claim a correct run has such a 95 % interval once in forty times. Where all of the above was tested and passed, chance is
the better explanation: the interval of this rule is then that of the tests' own level (99.9 %), and the sentence says it.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from scipy.special import ndtri

from coalmine.contracts import Claim, Conformance, Finding, Game, LowerBound, PointEstimate, Power, Verdict
from coalmine.contracts.conformance import Side
from coalmine.contracts.finding_sentences import NO_PART
from coalmine.errors import MismatchError
from coalmine.estimators.power import noticeable_noise_factor
from coalmine.gaussian import gaussian_epsilon, gaussian_gap

HALF_NOISE = 2.0
ANY_DATA = "any data"
ABOVE = "estimate-above-claim"
NOTICED = 0.9  # noise of at most so many times the claimed one must have been noticed, for CONSISTENT by conformance
PROMISED = (  # sentences of which each must have been tested
    *("noise-scale", "noise-by-round", "noise-by-layer", "noise-by-coordinate", "noise-fresh", "noise-independent"),
    *("noise-gaussian", "noise-resolution", "noise-mean", "noise-unpredictable", "earlier-rounds"),
    *("clipping", "treated-alike", "denominator", "quantile-noise", "cohorts"),
)
CORE = ("noise-scale", "noise-gaussian", "noise-independent", "noise-unpredictable", "treated-alike")  # no excuse
STRENGTH = ("noise-scale", "noise-by-round", "noise-by-layer", "noise-by-coordinate", "quantile-noise")
_LARGEST_FACTOR = 1e6
Visible = Callable[[float], float]


def judge(
    claim: Claim,
    bound: LowerBound,
    game: Game | None = None,
    visible: Visible | None = None,
    half_noise_epsilon: float | None = None,
    for_these_data: bool = False,
) -> Verdict:
    """Compare a claim with a lower bound measured in `game`; a mismatch is an error, not a comparison.

    `visible` is the epsilon that the scores would show, were the noise too small by a factor; without it, that of the claim's
    mechanism. Where something else hides the canaries it is less, and a fault would be hidden with them. Who has only the
    value at half the noise, from an earlier verdict, gives `half_noise_epsilon`. A claim that holds for these data only decides
    nothing unless the caller says `for_these_data`.

    Args:
        claim: What is claimed.
        bound: What was measured.
        game: In which game it was measured.
        visible: Epsilon that scores would show, by factor of missing noise.
        half_noise_epsilon: The same at half the noise.
        for_these_data: Whether a claim for these data only may decide.

    Returns:
        The verdict.
    """
    if claim.valid_for != ANY_DATA and not for_these_data:
        raise MismatchError(
            f"the claim ({claim.accountant}) holds for {claim.valid_for} only: it says nothing of other data, and decides "
            "nothing unless it is named so (for_these_data=True)."
        )
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


def judge_conformance(
    verdict: Verdict,
    conformance: Conformance | None,
    estimate: PointEstimate | None,
    claim: Claim,
    described: Claim | None = None,
) -> Verdict:
    """The verdict of `judge` with what tests of the mechanism say, and with the estimate; the rules are those of this module.

    `described` is the claim that was computed for the tested description, where `claim` is another limit.
    """
    if verdict.word == "VIOLATED":
        return verdict
    settled = _settled(verdict, conformance, estimate, claim, described or claim)
    if conformance is None or not conformance.deviations:
        return settled
    side = _side(conformance)
    false = sorted(conformance.deviations, key=lambda each: (each.side != side, each.key != "noise-scale", each.p_value))
    numbers = {**_measured(false[0]), **_interval(estimate, claim)}
    if false[0].details.get("whitened"):
        numbers["whitened"] = 1.0  # the sentence is one about noise that its strategy whitened
    code, keys = "more-noise" if side == "more" else "deviates", tuple(each.key for each in false)
    return Verdict("DEVIATES", code, verdict.power, numbers, side, keys, settled.word)


def untested(conformance: Conformance | None, claim: Claim) -> tuple[str, ...]:
    """The sentences that this claim rests on and that nobody tested: keys of `PROMISED`."""
    if conformance is None:
        return PROMISED
    tested = {each.key for each in conformance.findings if not each.details.get("sizes_only")}  # of cohorts, not who they are
    excused = {each.key for each in conformance.not_tested if each.code in NO_PART and each.key not in CORE}
    if claim.game.knowledge != "rounds known":
        excused.discard("cohorts")
    return tuple(key for key in PROMISED if key not in tested | excused)


def _settled(
    verdict: Verdict, conformance: Conformance | None, estimate: PointEstimate | None, claim: Claim, described: Claim
) -> Verdict:
    """CONSISTENT or INCONCLUSIVE, sentences that were found false aside."""
    promised = conformance is not None and _promises(conformance, described) and described.epsilon <= claim.epsilon
    level = conformance.level if promised and conformance is not None else None
    if estimate is not None and _above(estimate, claim, level):
        if ABOVE in verdict.code.split("+"):
            return verdict
        code = f"{ABOVE}+{verdict.code}" if verdict.word == "INCONCLUSIVE" else ABOVE
        numbers = {**verdict.numbers, **_interval(estimate, claim)}
        return replace(verdict, word="INCONCLUSIVE", code=code, numbers=numbers)
    if not promised or conformance is None or conformance.noticed_noise_factor is None:
        return _half_tested(verdict, conformance, described)
    above = _interval(estimate, claim)
    numbers = {"tests": len(conformance.findings), "noticed": conformance.noticed_noise_factor, **above}
    return replace(verdict, word="CONSISTENT", code="conforms-estimate-above" if above else "conforms", numbers=numbers)


def _half_tested(verdict: Verdict, conformance: Conformance | None, described: Claim) -> Verdict:
    """Canaries that would have missed half the noise are not the whole story where tests would have seen a few percent."""
    noticed = None if conformance is None else conformance.noticed_noise_factor
    missing = untested(conformance, described)
    if verdict.code != "half-noise-missed" or noticed is None or noticed < NOTICED or not missing:
        return verdict
    numbers = {**verdict.numbers, "noticed": noticed, "untested": float(len(missing))}
    return replace(verdict, code=f"{verdict.code}+not-all-tested", numbers=numbers)


def _promises(conformance: Conformance, claim: Claim) -> bool:
    """Whether the tests, had none found anything false, show that the run did what this claim was computed for."""
    noticed, description = conformance.noticed_noise_factor, claim.description
    if description is None or not description.has_noise or claim.accountant == "stated" or not math.isfinite(claim.epsilon):
        return False
    return noticed is not None and noticed >= NOTICED and not untested(conformance, claim)


def _above(estimate: PointEstimate, claim: Claim, level: float | None = None) -> bool:
    """Whether the interval of the estimate lies wholly above the claim; with a level, the interval that misses so rarely.

    The interval is that of a gap between two normals, so it is widened there: low' = gap - (gap - low) z(1 - level/2) / z.
    """
    if not estimate.low > claim.epsilon:
        return False
    if level is None or not 0 < claim.delta < 1 or not math.isfinite(estimate.epsilon):
        return True
    gap, low, claimed = (gaussian_gap(epsilon, claim.delta) for epsilon in (estimate.epsilon, estimate.low, claim.epsilon))
    wider = float(ndtri(1 - level / 2) / ndtri((1 + estimate.confidence) / 2))
    return gap - (gap - low) * max(wider, 1.0) > claimed


def _interval(estimate: PointEstimate | None, claim: Claim) -> dict[str, float]:
    """The numbers of an estimate that lies above the claim; nothing where it does not."""
    if estimate is None or not _above(estimate, claim):
        return {}
    return {"low": estimate.low, "high": estimate.high, "claim": claim.epsilon, "confidence": estimate.confidence}


def _measured(found: Finding) -> dict[str, float]:
    numbers = {"measured": found.measured, "claimed": found.claimed}
    return {name: value for name, value in numbers.items() if value is not None}


def _side(conformance: Conformance) -> Side:
    """Of all deviations together. Only more noise passes: what else differs is another mechanism than the accountant's."""
    if conformance.side == "more" and any(each.key not in STRENGTH for each in conformance.deviations):
        return "unknown"
    return conformance.side


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
