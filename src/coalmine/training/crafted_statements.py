"""What measured rounds state, each number with its kind: valid bounds, estimates, computed values, and the paper's numbers.

    V1   a round        lower bound from held-out scores alone, valid for the mechanism at that model whatever its noise
    V2   all rounds     the same, each with its share of the confidence, so that any of them may contradict the claim
    V3   known others   estimate with interval and bounds; the scale of the noise is measured. The run's verdict has it pooled
    V4   computed       what an adversary learns who does not know the others, if the noise is as stated; decides nothing
    V5   composed       lower bound for the whole training, under Poisson sampling and a Gaussian shape

Beside them the paper's epsilon of a round and of the training, as printed: no bounds. With both stands what a perfect canary
would show by the same estimator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coalmine.accounting import claim_of
from coalmine.accounting.attacked import attack_epsilon
from coalmine.accounting.published import published_epsilon
from coalmine.accounting.rounds import compose_canife, compose_measured, one_round_epsilon
from coalmine.canaries.crafted.design import Crafted
from coalmine.contracts import Array, Claim, Finding, PointEstimate, plain
from coalmine.estimators.band import bound_band
from coalmine.estimators.composed import SIMULATED, estimate_round_canife, perfect_canary
from coalmine.estimators.gaussian_fit import estimate_gaussian
from coalmine.estimators.gdp import bound_gdp
from coalmine.participation import Once
from coalmine.scores import Scores
from coalmine.training.federation import Federation

NOISE_ASSUMPTION = "the noise is normal and the same in all directions: its scale was measured beside the canaries"
NOT_A_BOUND = "as printed in the paper; not a bound"
BACKWARDS = (
    "as the published code composes: each estimate for the rounds before it, nothing for those after the last, the claimed "
    "noise where scores have no error; not a bound"
)
ONE_CLIENT = "clients are not sampled by Poisson: a bound of any measured round is one of the training, and nothing is composed"


@dataclass(frozen=True, eq=False)
class MeasuredRound:
    """What a measured round shows."""

    round: int
    crafted: Crafted
    scores: Scores
    delta: float
    confidence: float
    claim: Claim
    noise: Finding  # whether it is as strong as claimed, by all directions that no canary has
    mode: str = "frozen"
    projections: Array | None = None  # of the median canary, in clip norms: of the population or a sample of it
    q: float = 1.0  # chance of each of these clients to be in a round
    mock: Scores | None = None  # of other draws, on which a threshold may be chosen
    alone: Finding | None = None  # whether what clients contribute does not depend on each other
    as_published: bool = False
    shown: float | None = None  # what the canary adds to a score that does not look along its update, in clip norms

    @property
    def claimed(self) -> float:
        """Epsilon of one round in which a client takes part for sure."""
        return self.claim.epsilon

    @property
    def deviations(self) -> list[Finding]:
        """What was found false of the mechanism's description, whatever the bounds show."""
        return [each for each in (self.noise, self.alone) if each is not None and each.deviates]

    @property
    def stated_noise(self) -> float:
        """The noise multiplier that the claim was computed for."""
        described = self.claim.description
        assert described is not None and described.noise is not None
        return described.noise.accounted

    def statements(self) -> dict[str, Any]:
        """All of it at one delta, as plain data."""
        estimate = estimate_gaussian(self.scores, delta=self.delta, confidence=self.confidence)
        bound = bound_band(self.scores, delta=self.delta, confidence=self.confidence)
        shape = bound_gdp(self.scores, delta=self.delta, confidence=self.confidence)
        measured = self.scores.null is not None
        found = {
            "round": self.round,
            "mode": self.mode,
            "delta": self.delta,
            "confidence": self.confidence,
            "claim": self.claimed,
            "estimate": {"epsilon": estimate.epsilon, "low": estimate.low, "high": estimate.high},
            "bound": {"epsilon": bound.epsilon, "valid": bound.valid, "ceiling": bound.ceiling},
            "held_out_bound": self._without_law(),
            "gaussian_bound": {"epsilon": shape.epsilon, "valid": shape.valid, "mu": shape.details["mu"]},
            "null": self.scores.null.name if self.scores.null is not None else "held-out scores",
            "assumptions": [*bound.assumptions, *([NOISE_ASSUMPTION] if measured else [])],
            "violated": bool(bound.valid and bound.epsilon > self.claimed),
            "printed": self._printed(),
            "computed": self._computed(),
            "noise": {"measured": self.noise.measured, "claimed": self.noise.claimed},
            "noise_scale": plain(self.noise),
            "deviates": bool(self.deviations),
            "scores": int(self.scores.value.size),
            "scores_sha256": self.scores.sha256,
            "design": self.crafted.summary(),
        }
        if self.alone is not None:
            found["trained_alone"] = plain(self.alone)
        return dict(plain(found))

    def _without_law(self) -> dict[str, Any]:
        """V1: what held-out scores alone show, whatever the law of the noise; nothing if one coin came up for all."""
        if self.scores.inserted.all():
            return {"epsilon": 0.0, "valid": True, "ceiling": 0.0}
        found = bound_band(replace(self.scores, null=None), delta=self.delta, confidence=self.confidence)
        return {"epsilon": found.epsilon, "valid": found.valid, "ceiling": found.ceiling}

    def _printed(self) -> dict[str, Any]:
        """The paper's number of this round, and what it would be of a perfect canary."""
        n, inserted = int(self.scores.value.size), int(self.scores.inserted.sum())
        if not 0 < inserted < n or n < 4:
            return {"note": "one coin came up for all draws: the paper's estimator has no value"}
        shown = estimate_round_canife(self.scores, confidence=self.confidence, as_published=self.as_published)
        simulations = max(2, min(SIMULATED, 4_000_000 // n))
        perfect = perfect_canary(self.stated_noise, draws=n, inserted=inserted, simulations=simulations)
        found = {
            "epsilon": shown.epsilon, "low": shown.low, "high": shown.high, "delta": shown.delta, "note": NOT_A_BOUND,
            "ceiling": perfect.ceiling, "capped": shown.details["capped"], "as_published": self.as_published,
            "perfect_canary": {"epsilon": perfect.mean, "low": perfect.low, "high": perfect.high},
        }  # fmt: skip
        if self.mock is not None and 0 < int(self.mock.inserted.sum()) < self.mock.value.size:
            chosen = estimate_round_canife(self.mock).details["threshold"]
            again = estimate_round_canife(self.scores, confidence=self.confidence, threshold=chosen)
            found["at_mock_threshold"] = {
                "epsilon": again.epsilon, "low": again.low, "high": again.high, "capped": again.details["capped"]
            }  # fmt: skip
        return found

    def _computed(self) -> dict[str, Any] | None:
        """V4, of the canary whose visibility is the median one."""
        if self.projections is None:
            return None
        length = float(self.crafted.metrics["reach"][self.crafted.median]) if self.shown is None else self.shown
        try:
            found = attack_epsilon(self.projections, self.q, self.stated_noise, length, self.delta)
        except ValueError as error:
            return {"epsilon": None, "why": str(error)}
        return {"epsilon": found.epsilon, "assumptions": list(found.assumptions), "clients": len(self.projections)}


def one_round_claim(job: Federation, *, delta: float, unit: str) -> Claim:
    """Of one round in which a client takes part for sure."""
    return claim_of(job.mechanism.describe(), Once(), delta=delta, unit=unit, rounds_known=True, rounds=1)


def whole_training(job: Federation, rounds: Sequence[Mapping[str, Any]], *, delta: float, confidence: float) -> dict[str, Any]:
    """The paper's composed number, what it would be of a perfect canary, and V5, from the statements of single rounds."""
    q = min(1.0, job.participation.expected_size(len(job.data), job.rounds) / len(job.data))
    sampling = job.participation.sampling
    found: dict[str, Any] = {"q": q, "rounds": job.rounds, "measured": len(rounds)}
    printed = [each["printed"] for each in rounds if "epsilon" in each["printed"]]
    if printed and len(printed) <= job.rounds:
        shown = compose_canife([_estimate(each, "epsilon") for each in printed], job.rounds, q, delta)
        capped = compose_canife([_estimate(each, "capped") for each in printed], job.rounds, q, delta)
        perfect = compose_canife([_perfect(each) for each in printed], job.rounds, q, delta)
        found["printed"] = {
            "epsilon": shown.epsilon, "low": shown.low, "high": shown.high, "capped": capped.epsilon,
            "perfect_canary": perfect.epsilon, "note": NOT_A_BOUND,
        }  # fmt: skip
        if all(each.get("as_published") for each in printed):
            found["as_published"] = _as_the_code_does([each for each in rounds if "epsilon" in each["printed"]], q, delta)
    if sampling is None or sampling.cohort_size is not None:
        found["bound"] = {"epsilon": None, "why": ONE_CLIENT}
        return dict(plain(found))
    gaps = [float(each["gaussian_bound"]["mu"]) for each in rounds]
    alone = compose_measured(gaps, 1, sampling.rate, delta, confidence=confidence)
    between = compose_measured(gaps, _shares(job.rounds, len(gaps)), sampling.rate, delta, confidence=confidence)
    found["bound"] = {"epsilon": alone.epsilon, "assumptions": list(alone.assumptions), "confidence": confidence}
    found["bound_if_constant"] = {"epsilon": between.epsilon, "assumptions": list(between.assumptions)}
    return dict(plain(found))


def _as_the_code_does(rounds: Sequence[Mapping[str, Any]], q: float, delta: float) -> dict[str, Any] | None:
    """The composed number of the published code, whose rules are not those of the paper; None where nothing is left.

    Each estimate counts for the rounds before it and none for those after the last; where scores have no error, the noise that
    is claimed takes the place of what they show.
    """
    estimates, counts, before = [], [], 0
    for each in sorted(rounds, key=lambda one: int(one["round"])):
        if each["round"] > before:
            shown = _estimate(each["printed"], "epsilon")
            claimed = one_round_epsilon(float(each["noise"]["claimed"]), shown.delta)
            estimates.append(shown if math.isfinite(shown.epsilon) else replace(shown, epsilon=claimed, low=0.0, high=math.inf))
            counts.append(int(each["round"]) - before)
            before = int(each["round"])
    return {"epsilon": compose_canife(estimates, counts, q, delta).epsilon, "note": BACKWARDS} if counts else None


def release_cost(
    job: Federation, *, delta: float, relation: str | None, measured: int, draws: int, others: str, release: str
) -> dict[str, Any]:
    """Frozen draws, and what they would cost clients if they were published."""
    described = job.mechanism.describe()
    own = claim_of(described, job.participation, delta=delta, relation=relation, rounds=job.rounds).epsilon
    published = published_epsilon(
        described, job.participation, rounds=job.rounds, measured=measured, draws=draws, delta=delta,
        fresh_cohorts=others == "unknown", relation=relation,
    )  # fmt: skip
    return {"release": release, "draws": measured * draws, "epsilon": own, "if_published": published}


def _estimate(printed: Mapping[str, Any], name: str) -> PointEstimate:
    value, low, high = (float(printed[each]) for each in (name, "low", "high"))
    return PointEstimate(value, min(low, value), max(high, value), float(printed["delta"]), 0.95, NOT_A_BOUND, 0.0, 1.0)


def _perfect(printed: Mapping[str, Any]) -> PointEstimate:
    value = float(printed["perfect_canary"]["epsilon"])
    return PointEstimate(value, value, math.inf, float(printed["delta"]), 0.95, NOT_A_BOUND, 0.0, 1.0)


def _shares(rounds: int, count: int) -> list[int]:
    """How many rounds each measurement stands for."""
    return [rounds // count + (place < rounds % count) for place in range(count)]
