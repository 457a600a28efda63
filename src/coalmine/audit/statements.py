"""From tables of scores and claims to an `AuditResult`: estimates, bounds, verdict, and what a reader must know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.special import ndtri

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Caveat, Claim, Conformance, LowerBound, PointEstimate, plain
from coalmine.errors import AuditError, MismatchError
from coalmine.estimators import BOUNDS
from coalmine.estimators.band import bound_band, contradicts_null
from coalmine.estimators.diagnostics import SUSPICIOUS, diagnose
from coalmine.estimators.gaussian_fit import estimate_gaussian, standardise
from coalmine.estimators.power import Design
from coalmine.histogram import count_scores
from coalmine.nulls import describe
from coalmine.result import AuditResult, SecondaryView
from coalmine.scores import Scores
from coalmine.verdict import Visible, game_of, judge, judge_conformance

POWER = 0.8
_REPLICATES = 50  # of a simulated maximum
_CLEARLY = 1.5  # times what a layer would show if the fault were everywhere


def audit_scores(
    scores: Scores,
    *,
    delta: float,
    claim: Claim | None = None,
    method: str = "band",
    also: tuple[str, ...] = (),
    confidence: float = 0.95,
    options: Mapping[str, Any] | None = None,
    presentations: float = 1.0,
    fit_maximum: bool = False,
    visible: Visible | None = None,
) -> AuditResult:
    """Estimate, lower bound, claim and verdict for canary scores from any trainer.

    `method` names the primary bound, which alone decides about the claim; `also` names others to be shown beside it, and
    `options` are further arguments of the primary bound (`guesses`, `threshold`, `order`, ...).
    Choose both before looking at the scores. A maximum over rounds has no estimate; `fit_maximum` makes the papers' one, two
    normals fitted to it, and flags it. Whether such a maximum has any power depends on `presentations`, the rounds of a canary.
    `visible` is for trainers that know what hides their canaries (`coalmine.verdict.judge`).

    >>> from coalmine.simulation import simulate_gaussian_mechanism
    >>> scores = simulate_gaussian_mechanism(dim=1_000_000, canaries=1000, sigma=0.5, seed=0)     # half of the noise ...
    >>> audit_scores(scores, delta=1e-5, claim=Claim(epsilon=4.38, delta=1e-5)).verdict.word      # ... that this claim needs
    'VIOLATED'

    Args:
        scores: The table of scores.
        delta: Of the statement, above 0 and below 1.
        claim: What is claimed; without it there is no verdict.
        method: The primary bound, a key of `coalmine.estimators.BOUNDS`.
        also: Further bounds to be shown.
        confidence: Of bounds and intervals.
        options: Further arguments of the primary bound.
        presentations: Rounds of a canary.
        fit_maximum: Whether to fit normals to a maximum over rounds.
        visible: Epsilon that the scores would show at noise too small by a factor.

    Returns:
        Estimates, bounds and verdict; print it, or write it with `to_json`.
    """
    for name in (method, *also):
        _validate.one_of("method", name, BOUNDS)
    if contradicts_null(scores):
        raise MismatchError(
            f"the {scores.held_out_values.size} held-out scores do not follow the null law that is stated for them "
            f"({scores.null.name if scores.null else ''}): nothing can be concluded. "
            "Check the dimension and the statistic, or let the held-out scores speak for themselves (no dim, no null)."
        )
    primary = _bound(method, scores, delta=delta, confidence=confidence, **(options or {}))
    others = dict.fromkeys(name for name in also if name != method)
    bounds = (primary, *(_bound(name, scores, delta=delta, confidence=confidence) for name in others))
    estimates, shape, missing = _estimates(scores, delta, confidence, fit_maximum)
    verdict = None
    if claim is not None:
        headline = estimates[0] if estimates else None
        verdict = judge_conformance(judge(claim, primary, scores.game, visible), None, headline, claim)
    blind = None if claim is None else _blind(scores, claim, primary, presentations)
    if blind is not None:
        missing = (Caveat("no-power", {"share": blind}), *missing)
        if verdict is not None and verdict.word == "CONSISTENT":
            verdict = replace(verdict, word="INCONCLUSIVE", code="maximum-hidden", numbers={"share": blind})
    return AuditResult(
        bounds=bounds,
        estimates=estimates,
        claim=claim,
        verdict=verdict,
        method=method,
        design=Design.of(scores),
        setting={
            "statistic": scores.statistic,
            "view": scores.view,
            "layer": scores.layer,
            "dim": scores.dim,
            "null": scores.null.name if scores.null is not None else "held-out scores",
            "assignment": scores.assignment,
            "inserted": int(scores.inserted.sum()),
            "held_out": int((~scores.inserted).sum()),
            "sha256": scores.sha256,
            "law": describe(scores.null),
            "options": {name: _argument(value) for name, value in (options or {}).items()},
        },
        game=game_of(primary, scores.game),
        diagnostics=shape,
        caveats=(*missing, *_caveats(scores, estimates, claim)),
        versions={name: version(name) for name in ("coalmine", "numpy", "scipy", "dp-accounting")},
        histogram=count_scores(scores),
    )


def _bound(name: str, scores: Scores, **options: Any) -> LowerBound:
    """A bound by its name, which it keeps."""
    return replace(BOUNDS[name].compute(scores, **options), key=name)


def with_conformance(result: AuditResult, conformance: Conformance | None) -> AuditResult:
    """The result with tests of its mechanism's description, and the verdict that follows from both."""
    verdict = result.verdict
    if verdict is not None and result.claim is not None:
        verdict = judge_conformance(verdict, conformance, result.estimate, result.claim)
    return replace(result, conformance=conformance, verdict=verdict)


@dataclass(frozen=True)
class Measured:
    """The scores of one view, and the claim of the same game."""

    scores: Scores
    claim: Claim
    visible: Visible | None = None  # see `coalmine.verdict.judge`
    share: float = 1.0  # of the canaries' length that lies in what was seen: less than 1 within a layer


def audit_views(
    deciding: Sequence[Measured],
    beside: Sequence[Measured] = (),
    *,
    delta: float,
    method: str = "band",
    also: tuple[str, ...] = (),
    confidence: float = 0.95,
    presentations: float = 1.0,
    fit_maximum: bool = False,
) -> AuditResult:
    """One result of several views of a run.

    Of the `deciding` ones (a view of everything, then of each layer) any may convict, so they share the confidence. The result
    is that of a layer if the fault is in it: the layer convicts, and shows more than its share of what everything shows. Else
    it is that of everything. The others are shown. What is `beside` decides nothing.
    """
    shared = 1 - (1 - confidence) / len(deciding)
    how: dict[str, Any] = {"delta": delta, "method": method, "also": also}
    how |= {"presentations": presentations, "fit_maximum": fit_maximum}
    found = [audit_scores(each.scores, claim=each.claim, visible=each.visible, confidence=shared, **how) for each in deciding]
    gaps, shares = [_gap(each.scores) for each in deciding], [each.share for each in deciding]
    result = found.pop(_telling([_excess(each) for each in found], gaps, shares))
    shown = [_beside(each) for each in found]
    failed = []
    for each in beside:
        try:
            shown.append(_beside(audit_scores(each.scores, claim=each.claim, confidence=confidence, **how)))
        except AuditError as error:  # what decides nothing must not stop the rest
            failed.append(Caveat("view-failed", {"name": each.scores.view, "error": str(error)}))
    if len(deciding) > 1:
        together = {"statements": len(deciding), "each": round(shared, 6), "together": confidence}
        failed.append(Caveat("layers", together))
    return replace(result, views=tuple(shown), caveats=(*failed, *result.caveats))


def _telling(excesses: Sequence[float], gaps: Sequence[float], shares: Sequence[float]) -> int:
    """Which of several statements to tell first: that of a layer if the fault is in it, else that of everything.

    A fault of the whole shows in every layer, by the layer's share of the canary's length: gap * share. A layer is named if it
    convicts and shows clearly more than that, or if the whole does not convict.

    >>> _telling([5.0, 9.0, -1.0], gaps=[4.0, 6.0, 1.0], shares=[1.0, 0.5, 0.5])     # the first layer shows 6 instead of 2
    1
    >>> _telling([90.0, 9.0, -1.0], gaps=[14.0, 6.0, 1.0], shares=[1.0, 0.5, 0.1])   # 6 of 7: too little noise everywhere
    0
    >>> _telling([-1.0, -2.0], gaps=[1.0, 1.0], shares=[1.0, 0.5])
    0
    """
    worse = [
        place
        for place in range(1, len(excesses))
        if excesses[place] > 0 and (excesses[0] <= 0 or gaps[place] > _CLEARLY * shares[place] * gaps[0])
    ]
    return max(worse, key=lambda place: excesses[place], default=0)


def _gap(scores: Scores) -> float:
    """How far inserted scores are from the null on average, in its standard deviations; 0 if nobody knows."""
    try:
        return float(standardise(scores)[0].mean())
    except (AuditError, ValueError):
        return 0.0


def _excess(result: AuditResult) -> float:
    """How far the bound is above the claim."""
    claimed = result.claim.epsilon if result.claim is not None else 0.0
    return result.bound.epsilon - claimed


def _beside(result: AuditResult) -> SecondaryView:
    return SecondaryView(
        view=result.setting["view"],
        layer=result.setting["layer"],
        statistic=result.setting["statistic"],
        claim=result.claim,
        bound=result.bound,
        estimate=result.estimate,
        caveats=result.caveats,
    )


def _blind(scores: Scores, claim: Claim, bound: LowerBound, presentations: float) -> float | None:
    """In which share of runs a maximum over rounds would show what a correct mechanism leaks, if that is too small a share.

    A canary that took part has in its rounds a cosine of 1/(noise multiplier) more, in units of 1/sqrt(d); in the others it is
    like those that were held out. The bound of such scores is simulated.
    """
    held_out = scores.held_out_values
    described = claim.description.noise if claim.description is not None else None
    noise = described.accounted if described is not None else 0.0
    if not (scores.maximum and scores.dim and noise and held_out.size):
        return None
    count, rounds, unit = int(scores.inserted.sum()), max(round(presentations), 1), scores.dim**-0.5
    hits = 0
    for replicate in range(_REPLICATES):
        rng = stream(0, "power of a maximum", replicate)
        own = unit * (1 / noise + ndtri(rng.random(count) ** (1 / rounds)))
        value = np.concatenate([np.clip(np.maximum(own, rng.choice(held_out, count)), -1.0, 1.0), held_out])
        simulated = replace(scores, value=value, inserted=np.arange(value.size) < count, labels={})
        hits += bound_band(simulated, delta=bound.delta, confidence=bound.confidence).epsilon > 0
    if hits >= POWER * _REPLICATES:
        return None
    return round(hits / _REPLICATES, 2)


def _estimates(
    scores: Scores, delta: float, confidence: float, fit_maximum: bool
) -> tuple[tuple[PointEstimate, ...], dict[str, Any], tuple[Caveat, ...]]:
    """(estimates with the headline first, diagnostics, why there are none).

    The mean-only estimate leads unless the inserted scores clearly have another width than the null; then the fitted one does,
    and a caveat names both. How often that happens to correct code, and how often the interval of what leads is wrong, is
    measured by benchmarks/estimate_choice.py.
    """
    if delta == 0:
        return (), {}, (Caveat("no-estimate-delta-zero"),)
    if scores.likelihood_ratio:
        return (), {}, (Caveat("no-estimate-likelihood-ratio"),)
    if scores.maximum and not fit_maximum:
        return (), {}, (Caveat("no-estimate-maximum"),)
    try:
        standardised, null_count = standardise(scores)
    except ValueError as error:
        return (), {}, (Caveat("no-estimate", {"error": str(error)}),)
    shape = diagnose(standardised, null_count)
    if scores.maximum:
        return (estimate_gaussian(scores, delta=delta, variance="fitted", confidence=confidence),), plain(shape), ()
    found = [estimate_gaussian(scores, delta=delta, confidence=confidence)]
    if shape.count > 1:
        found.append(estimate_gaussian(scores, delta=delta, variance="fitted", confidence=confidence))
    if shape.variance_p_value is not None and shape.variance_p_value < SUSPICIOUS and len(found) > 1:
        mean_only, fitted = found
        both = {"fitted": fitted.epsilon, "mean_only": mean_only.epsilon, "p_value": shape.variance_p_value}
        found = [replace(fitted, flags=(*fitted.flags, Caveat("width-fitted", both))), mean_only]
    return tuple(found), plain(shape), ()


def _caveats(scores: Scores, estimates: tuple[PointEstimate, ...], claim: Claim | None) -> tuple[Caveat, ...]:
    """What a reader must know before quoting the numbers."""
    caveats = list(estimates[0].flags) if estimates else []
    if claim is not None:
        unstated = list(dict.fromkeys((*claim.game.unstated, *scores.game.unstated)))
        if unstated:
            caveats.append(Caveat("claim-unstated", {"fields": unstated}))
    if scores.null is None and scores.assignment == "unknown":
        caveats.append(Caveat("assignment-unknown"))
    return (*caveats, Caveat("scope"))


def _argument(value: Any) -> Any:
    """A further argument of a bound, as plain data with the name of its kind."""
    return (
        {"kind": type(value).__name__, **plain(value)} if is_dataclass(value) and not isinstance(value, type) else plain(value)
    )
