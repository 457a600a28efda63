"""Statements about single rounds that were measured by frozen draws (Maddock, Sablayrolles & Stock 2023, "CANIFE").

    paper                 here                            meaning
    eps-hat_r (Alg. 2)    estimate_round_canife           max over thresholds of the two log ratios of error rates
    n, delta = 1/n        scores, `delta`                 frozen draws, and the delta that they are read at
    gamma                 details["threshold"]            the threshold that gives the maximum
    -                     perfect_canary                  what this estimator shows of a canary that nothing hides
    -                     bound_rounds                    bounds that hold: for each round, and of all draws together

Where we depart, and why:

* A threshold at which one error rate is zero and the other is not has a ratio with a zero below it: as printed, the estimate is
  infinite whenever the largest score is an inserted one. As in the published code such thresholds are left out, and only
  perfect separation is infinite. That code then takes the claimed noise for the measured one; here infinity stays, and
  details["capped"] is the largest value that can be finite.
* The estimate has the Clopper-Pearson limits of its two rates, a zero-leakage floor and a p-value, by simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, Caveat, LowerBound, PointEstimate
from coalmine.errors import AuditError, NotEnoughCanariesError
from coalmine.estimators import _rates
from coalmine.estimators.band import bound_band
from coalmine.scores import Scores

SIMULATED = 2000  # of the null, and of a perfect canary
_MOST = 4_000_000  # scores in memory at once
_LEAST_PUBLISHED = 0.15
SAME_LAW = "the law of a score is the same in all measured rounds"


def estimate_round_canife(
    scores: Scores,
    *,
    delta: float | None = None,
    confidence: float = 0.95,
    interval: _rates.Interval = "clopper-pearson",
    as_published: bool = False,
    threshold: float | None = None,
) -> PointEstimate:
    """The paper's epsilon of one measured round, from the scores of its frozen draws, at delta = 1/n unless one is given.

    `interval` is that of the two error rates at the chosen threshold: pointwise, not simultaneous, so that `low` is no bound.
    With `as_published` values below 0.15 are replaced by 0.15, as the published code does. A `threshold` that was chosen
    elsewhere, on mock rounds (section 3.4), takes the place of the best one of these scores: then nothing is chosen here.

    >>> found = estimate_round_canife(Scores.of([1.0] * 50, [0.0] * 50), interval="jeffreys")
    >>> found.epsilon, round(found.low, 2), round(found.details["capped"], 2)
    (inf, 2.96, 3.88)

    Args:
        scores: Of the frozen draws of a round.
        delta: None: 1/n for n scores.
        confidence: Of the interval.
        interval: "clopper-pearson" or "jeffreys".
        as_published: Whether values below 0.15 are raised to it.

    Returns:
        The estimate; it is no bound.
    """
    inserted, held_out = np.sort(scores.inserted_values), np.sort(scores.held_out_values)
    if held_out.size == 0:
        raise NotEnoughCanariesError(
            "no held-out draws: the error rates of both sides are needed. Throw a coin for every draw."
        )
    n = inserted.size + held_out.size
    delta, confidence = _validate.delta(1 / n if delta is None else delta), _validate.confidence(confidence)
    _validate.one_of("interval", interval, _rates.INTERVALS)
    if threshold is None:
        thresholds = np.unique(np.concatenate([inserted, held_out]))
    else:
        thresholds = np.array([_validate.number("threshold", threshold)])
    missed = np.searchsorted(inserted, thresholds, side="left")
    alarms = held_out.size - np.searchsorted(held_out, thresholds, side="left")
    values = _ratios(missed / inserted.size, alarms / held_out.size, delta)
    best = int(np.argmax(values))
    epsilon, flags = float(values[best]), [_printed(delta, inserted.size, held_out.size)]
    if as_published:
        epsilon = max(epsilon, _LEAST_PUBLISHED)
        flags.append(Caveat("as-published", {"least": _LEAST_PUBLISHED}))
    null = _null(inserted.size, held_out.size, delta, threshold is None)
    counts = ((int(missed[best]), inserted.size), (int(alarms[best]), held_out.size))
    low, high = _limits(counts, delta, confidence, interval)
    return PointEstimate(
        epsilon=epsilon,
        low=low,
        high=high,
        delta=delta,
        confidence=confidence,
        method="CANIFE, Algorithm 2, one round",
        floor=float(np.quantile(null, confidence, method="higher")),
        p_value=float((1 + (null >= epsilon).sum()) / (1 + null.size)),
        flags=tuple(flags),
        details={
            "threshold": float(thresholds[best]),
            "false_negative_rate": counts[0][0] / inserted.size,
            "false_positive_rate": counts[1][0] / held_out.size,
            "accuracy": float((1 - (missed + alarms) / n).max()),
            "capped": min(epsilon, largest_finite(inserted.size, held_out.size, delta)),
        },
        key="canife-round",
    )


def largest_finite(inserted: int, held_out: int, delta: float) -> float:
    """The largest finite value of the estimate: one error of each kind.

    >>> round(largest_finite(50, 50, 0.01), 2), round(largest_finite(50, 50, 1e-5), 2)
    (3.88, 3.89)
    """
    return float(_ratios(np.array([1 / inserted]), np.array([1 / held_out]), delta)[0])


@dataclass(frozen=True)
class Perfect:
    """What the paper's estimator shows of a perfect canary: noise is all that hides it. Infinite values count as `ceiling`."""

    mean: float
    std: float  # from round to round
    low: float
    high: float  # 95 % of rounds are between
    ceiling: float
    infinite: float  # share of rounds with perfect separation
    accuracy: float  # mean of the best accuracy of a threshold


def perfect_canary(
    noise_multiplier: float,
    *,
    draws: int = 100,
    inserted: int | None = None,
    delta: float | None = None,
    simulations: int = SIMULATED,
    seed: int = 0,
) -> Perfect:
    """What a perfect canary would show by the paper's estimator: scores N(0, sigma²) against N(1, sigma²).

    Half of the draws have the canary, unless `inserted` says how many: coins rarely fall evenly, and with uneven numbers the
    printed maximum over two ratios can be larger.

    >>> shown = perfect_canary(0.321)                # Sent140 at epsilon = 50: one round has epsilon 18.7 by Rényi orders
    >>> round(shown.mean, 1), round(shown.ceiling, 2)
    (3.8, 3.88)

    Args:
        noise_multiplier: Of the round.
        draws: Scores.
        inserted: Scores with the canary; None: half of them.
        delta: None: 1/draws.
        simulations: Repetitions.
        seed: Of the simulation.

    Returns:
        Mean, spread and ceiling of the estimates.
    """
    noise = _validate.positive("noise_multiplier", noise_multiplier)
    draws = _validate.whole("draws", draws, least=4)
    inserted = draws // 2 if inserted is None else _validate.whole("inserted", inserted, least=1)
    if not inserted < draws:
        raise ValueError(f"inserted={inserted} of draws={draws} leaves no draw without the canary: both kinds are needed.")
    delta = _validate.delta(1 / draws if delta is None else delta)
    return _perfect(noise, draws, inserted, delta, _validate.whole("simulations", simulations, least=2), seed)


def bound_rounds(scores: Scores, *, delta: float, confidence: float = 0.95) -> dict[int, LowerBound]:
    """A valid lower bound for every measured round (label `round`); all of them hold together with the confidence stated.

    Every round is bounded by the band with confidence 1 - (1 - confidence)/m for m rounds, so that the largest of them may be
    compared with the claim of one round at the same delta. `pooled_rounds` needs no such correction.

    Args:
        scores: With the label "round".
        delta: Of the statement, above 0 and below 1.
        confidence: With which all hold together.

    Returns:
        By round, its lower bound.
    """
    table = _draws(scores)
    which = table.labels.get("round", np.zeros(table.value.size, dtype=np.int64))
    rounds = [int(each) for each in np.unique(which)]
    each = 1 - (1 - _validate.confidence(confidence)) / len(rounds)
    paid = f"all thresholds, by a band; {len(rounds)} rounds, by Bonferroni"
    return {
        number: replace(bound_band(_plain(table, which == number), delta=delta, confidence=each), multiplicity=paid)
        for number in rounds
    }


def pooled_rounds(scores: Scores, *, delta: float, confidence: float = 0.95) -> LowerBound:
    """One valid bound of the draws of all measured rounds together, if the law of a score is the same in all of them.

    Args:
        scores: With the label "round".
        delta: Of the statement, above 0 and below 1.
        confidence: With which the statement holds.

    Returns:
        The lower bound with its assumptions, ceiling and power.
    """
    table = _draws(scores)
    found = bound_band(_plain(table, np.ones(table.value.size, dtype=bool)), delta=delta, confidence=confidence)
    return replace(found, assumptions=(*found.assumptions, SAME_LAW))


def _draws(scores: Scores) -> Scores:
    """Draws with coins of their own: several of one canary are independent if round and replicate tell them apart."""
    columns = [scores.labels[name] for name in ("run", "canary", "round", "replicate") if name in scores.labels]
    if "canary" in scores.labels and np.unique(np.stack(columns), axis=1).shape[1] < scores.value.size:
        raise AuditError("two scores have the same canary, round and replicate: give every frozen draw a number of its own.")
    return scores


def _plain(scores: Scores, some: Array) -> Scores:
    """Some rows without labels: whoever comes here has checked that they are independent."""
    return replace(scores, value=scores.value[some], inserted=scores.inserted[some], labels={})


def _printed(delta: float, inserted: int, held_out: int) -> Caveat:
    ceiling = largest_finite(inserted, held_out, delta)
    return Caveat("as-printed", {"delta": delta, "scores": inserted + held_out, "ceiling": ceiling})


def _ratios(fnr: Array, fpr: Array, delta: float) -> Array:
    """The printed maximum at each threshold; 0 where one rate alone is zero, infinity where both are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        seen = np.log(np.maximum(1 - delta - fnr, 0.0) / fpr)
        cleared = np.log(np.maximum(1 - delta - fpr, 0.0) / fnr)
    both = np.where((fnr > 0) & (fpr > 0), np.maximum(np.maximum(seen, cleared), 0.0), 0.0)
    return np.where((fnr == 0) & (fpr == 0), np.inf, both)


def _limits(
    counts: tuple[tuple[int, int], tuple[int, int]], delta: float, confidence: float, interval: _rates.Interval
) -> tuple[float, float]:
    """(low, high): epsilon of the upper and of the lower confidence limits of the two rates."""
    extra, tail = (0.0 if interval == "clopper-pearson" else 0.5), (1 - confidence) / 2
    least, most = [], []
    for errors, trials in counts:
        inner = (errors + 1 - extra, trials - errors + extra)
        most.append(1.0 if errors == trials else float(special.betaincinv(*inner, 1 - tail)))
        least.append(0.0 if errors == 0 else float(special.betaincinv(errors + extra, trials - errors + 1 - extra, tail)))
    with np.errstate(divide="ignore"):
        low, high = (float(_rates.epsilon_of_rates(np.log([fnr]), np.log([fpr]), delta)[0]) for fnr, fpr in (most, least))
    return low, high


def _simulated(values: Array, inserted: int, delta: float) -> tuple[Array, Array]:
    """(estimate, best accuracy) of each row of scores, of which the first `inserted` took part."""
    held_out = values.shape[1] - inserted
    took_part = np.argsort(values, axis=1) < inserted
    fnr = np.asarray((np.cumsum(took_part, axis=1) - took_part) / inserted)
    fpr = np.asarray(1 - (np.cumsum(~took_part, axis=1) - ~took_part) / held_out)
    fpr[np.abs(fpr) < 1e-12] = 0.0
    accuracy = 1 - (fnr * inserted + fpr * held_out) / values.shape[1]
    return _ratios(fnr, fpr, delta).max(axis=1), accuracy.max(axis=1)


@lru_cache(maxsize=64)
def _null(inserted: int, held_out: int, delta: float, chosen: bool) -> Array:
    """The estimate if nothing leaks, simulated: it depends on the order of the scores alone.

    With a threshold that was not `chosen` here, each simulation has one at a random place: where it is depends on mock rounds.
    """
    draws = int(np.clip(_MOST / (inserted + held_out), 200, SIMULATED))
    values = stream(0, "null of one round", inserted, held_out).random((draws, inserted + held_out))
    if chosen:
        return _simulated(values, inserted, delta)[0]
    cut = stream(0, "mock threshold", inserted, held_out).random(draws)[:, None]
    fnr, fpr = (values[:, :inserted] < cut).mean(axis=1), (values[:, inserted:] >= cut).mean(axis=1)
    return _ratios(fnr, fpr, delta)


@lru_cache(maxsize=256)
def _perfect(noise: float, draws: int, inserted: int, delta: float, simulations: int, seed: int) -> Perfect:
    values = stream(seed, "perfect canary", draws).standard_normal((simulations, draws)) * noise
    values[:, :inserted] += 1.0
    found, accuracy = _simulated(values, inserted, delta)
    ceiling = largest_finite(inserted, draws - inserted, delta)
    capped = np.minimum(found, ceiling)
    low, high = np.quantile(capped, [0.025, 0.975])
    return Perfect(
        float(capped.mean()), float(capped.std(ddof=1)), float(low), float(high), ceiling, float(np.isinf(found).mean()),
        float(accuracy.mean()),
    )  # fmt: skip
