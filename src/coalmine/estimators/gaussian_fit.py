"""The one-shot estimate: epsilon of two Gaussians fitted to the scores (Andrew et al. 2024, Algorithms 1 to 3).

    paper        here                  meaning
    g_j          scores.value          cosine of canary j with what was released
    mu-hat       details["mean"]       mean of the inserted scores, in units of the null's standard deviation
    sigma-hat    details["std"]        their standard deviation in the same units
    N(0, 1/d)    CosineNull(d)         the law of a held-out canary

Where we depart, and why:

* By default the width is the null's (`variance="null"`), only the gap is estimated. Fitting the width too, as the
  algorithm is printed, turns every error of the width into extra epsilon, because epsilon has a kink with its
  minimum at equal widths: with 1,000 canaries and no leakage at all the literal estimate averages 0.41. The
  mean-only estimate is also the one that reproduces the paper's Table 1. `variance="fitted"` is the literal algorithm.
* Every estimate has an interval, the value that no leakage would give (`floor`) with its p-value, and flags. For the
  mean-only estimate the interval is the image of a normal interval for the gap; for the fitted one it is the image
  of a rectangle for gap and width (a percentile bootstrap covers 0 to 73 % there, because of the kink).
* `formula="threshold"` is the formula of the first version of the paper, which looks at threshold attacks alone.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, Caveat, PointEstimate
from coalmine.errors import AuditError, NonFiniteError, NotEnoughCanariesError
from coalmine.estimators.band import bound_band
from coalmine.estimators.diagnostics import Diagnostics, diagnose
from coalmine.gaussian import gaussian_epsilon, halfline_epsilon
from coalmine.nulls import as_cosine, measured_on
from coalmine.scores import Scores, independent_scores

Variance = Literal["null", "fitted"]
Formula = Literal["exact", "threshold"]
_FLOOR_DRAWS = 4_000
_LARGEST_SCORE = 1e100
_REVERSED = 1e-3  # a gap this unlikely below zero is a matter of sign, not of chance


def estimate_gaussian(
    scores: Scores, *, delta: float, variance: Variance = "null", confidence: float = 0.95, formula: Formula = "exact"
) -> PointEstimate:
    """Epsilon of the Gaussians that fit the scores, with an interval, the zero-leakage floor and flags.

    >>> from coalmine.simulation import simulate_gaussian_mechanism
    >>> scores = simulate_gaussian_mechanism(dim=1_000_000, canaries=1000, sigma=1.0, seed=0)      # true epsilon 4.377
    >>> found = estimate_gaussian(scores, delta=1e-5)
    >>> found.low < 4.377 < found.high, found.p_value < 1e-6
    (True, True)

    Args:
        scores: The table of scores.
        delta: Of the statement, above 0 and below 1.
        variance: "null": that of the null law; "fitted": of the inserted scores.
        confidence: Of the interval.
        formula: "exact", or "threshold" as in the papers.

    Returns:
        The estimate; it is no bound.
    """
    delta, confidence = _validate.delta(delta), _validate.confidence(confidence)
    scores = independent_scores(scores)
    _validate.one_of("variance", variance, ("null", "fitted"))
    _validate.one_of("formula", formula, ("exact", "threshold"))
    if variance == "null" and scores.maximum:
        raise AuditError("a maximum over rounds has no mean-only estimate: its law is no shifted normal. Use the band.")
    standardised, null_count = standardise(scores)
    if variance == "null":
        return _mean_only(scores, standardised, null_count, delta, confidence)
    return _fitted(scores, standardised, null_count, delta, confidence, formula)


def standardise(scores: Scores) -> tuple[Array, int | None]:
    """Inserted scores in units of the null, and how many held-out scores or directions those units come from (None: known)."""
    largest = float(np.abs(scores.value).max())
    if largest > _LARGEST_SCORE:
        raise NonFiniteError(f"a score of {largest:.3g} is too large to be squared; rescale the scores.")
    if scores.null is not None:
        try:
            return (scores.inserted_values - scores.null.center) / scores.null.spread, measured_on(scores.null)
        except ValueError:  # a maximum over rounds: the held-out canaries have to say
            if scores.held_out_values.size == 0:
                raise
    held_out = scores.held_out_values
    if held_out.size < 2:
        raise NotEnoughCanariesError(
            f"{held_out.size} held-out score: its spread cannot be measured. Give more held-out scores, or null=... or dim=..."
        )
    spread = float(held_out.std(ddof=1))
    if not (spread > 0 and np.ptp(held_out) > 0):  # the spread of equal numbers may be a rounding error away from zero
        raise NotEnoughCanariesError(
            "all held-out scores are equal: they have no spread to measure a gap by. "
            "Check how they were computed, or give null=... or dim=..."
        )
    return (scores.inserted_values - held_out.mean()) / spread, held_out.size


def _mean_only(scores: Scores, standardised: Array, null_count: int | None, delta: float, confidence: float) -> PointEstimate:
    """Equal widths: the gap mu is the standardised mean, and epsilon increases with it."""
    count, mu = standardised.size, float(standardised.mean())
    unit = np.sqrt(1 / count + (1 / null_count if null_count else 0.0))  # standard error of mu if nothing leaks
    if null_count is None:
        error, quantile, floor_gap = unit, special.ndtri((1 + confidence) / 2), special.ndtri(confidence) * unit
        p_value = float(special.ndtr(-mu / unit))
    else:  # the unit itself is estimated: Student's t, and mu/sqrt(2n) of extra error
        freedom = null_count - 1
        error, quantile = np.hypot(unit, mu / np.sqrt(2 * freedom)), special.stdtrit(freedom, (1 + confidence) / 2)
        floor_gap = special.stdtrit(freedom, confidence) * unit
        p_value = float(special.stdtr(freedom, -mu / unit))
    gaps = np.maximum([mu, mu - quantile * error, mu + quantile * error, floor_gap], 0.0)
    epsilon, low, high, floor = (float(value) for value in gaussian_epsilon(0.0, 1.0, gaps, 1.0, delta))
    details, flags = _support(scores, delta, confidence, lambda at: float(gaussian_epsilon(0.0, 1.0, gaps[2], 1.0, at)))
    corrected = _without_interference(scores, mu, delta)
    if corrected > high:
        flags += (Caveat("interference", {"count": count, "dim": scores.dim, "epsilon": corrected}),)
    if p_value > 1 - _REVERSED:
        flags += (Caveat("reversed"),)
    shape = diagnose(standardised, null_count)
    return PointEstimate(
        epsilon=epsilon,
        low=low,
        high=high,
        delta=delta,
        confidence=confidence,
        method="Gaussian, mean only",
        key="gaussian-mean",
        floor=floor,
        p_value=p_value,
        flags=(*flags, *_extrapolation(mu, shape.largest, count, delta), *shape.findings),
        details={"mean": mu, "std": shape.std, "count": count, **details},
    )


def _fitted(
    scores: Scores, standardised: Array, null_count: int | None, delta: float, confidence: float, formula: Formula
) -> PointEstimate:
    """The literal algorithm: gap and width fitted, the larger of both directions."""
    count = standardised.size
    if count < 2:
        raise NotEnoughCanariesError("one inserted score has no width to fit; use variance='null'.")
    shape = diagnose(standardised, null_count)
    # The papers divide by k; in units of the held-out scores both widths do, so that the null's own factor applies as well.
    scale = 1.0 if null_count is None else np.sqrt(null_count / (null_count - 1))
    mu, width = shape.mean * scale, shape.std * float(np.sqrt(1 - 1 / count)) * scale
    epsilon = _epsilon(mu, width, delta, formula)
    box = _rectangle(shape, null_count, confidence)
    low, high = _range_over(box, delta, formula)
    floor_draws = _zero_leakage(count, null_count, delta)
    details, flags = _support(scores, delta, confidence, lambda at: _range_over(box, at, formula)[1])
    if scores.maximum:
        flags += (Caveat("maximum"),)
    return PointEstimate(
        epsilon=epsilon,
        low=min(low, epsilon),
        high=max(high, epsilon),
        delta=delta,
        confidence=confidence,
        key="gaussian-fitted",
        method="Gaussian, mean and width" + (", threshold formula" if formula == "threshold" else ""),
        floor=float(np.quantile(floor_draws, confidence)),
        p_value=float((1 + (floor_draws >= epsilon).sum()) / (1 + floor_draws.size)),
        flags=(*flags, *_extrapolation(mu, shape.largest, count, delta), *shape.findings),
        details={"mean": mu, "std": width, "count": count, **details},
    )


def _epsilon(mu: float, width: float, delta: float, formula: Formula) -> float:
    if formula == "threshold":
        return halfline_epsilon(0.0, 1.0, mu, width, delta)
    return float(gaussian_epsilon(0.0, 1.0, mu, width, delta))


def _rectangle(shape: Diagnostics, null_count: int | None, confidence: float) -> tuple[float, float, float, float]:
    """(mu_low, mu_high, width_low, width_high), each pair with half of the risk."""
    count, mu, width = shape.count, shape.mean, shape.std
    tail = (1 - confidence) / 4
    if null_count is None:
        error, quantile = width / np.sqrt(count), special.stdtrit(count - 1, 1 - tail)
        factors = (count - 1) / special.chdtri(count - 1, [tail, 1 - tail])
    else:
        error = np.sqrt(width**2 / count + 1 / null_count + mu**2 / (2 * (null_count - 1)))
        quantile = special.stdtrit(min(count, null_count) - 1, 1 - tail)
        factors = 1 / special.fdtri(count - 1, null_count - 1, [1 - tail, tail])
    low, high = width * np.sqrt(factors)
    return mu - quantile * error, mu + quantile * error, float(low), float(high)


def _range_over(box: tuple[float, float, float, float], delta: float, formula: Formula) -> tuple[float, float]:
    """(least, largest) epsilon over a rectangle of gaps and widths; equal widths are the minimum if inside."""
    mu_low, mu_high, width_low, width_high = box
    gaps = np.array([mu_low, mu_high, min(max(0.0, mu_low), mu_high)])
    widths = np.append(np.geomspace(max(width_low, 1e-300), max(width_high, 1e-300), 7), min(max(1.0, width_low), width_high))
    if formula == "exact":
        found = gaussian_epsilon(0.0, 1.0, gaps[:, None], widths[None, :], delta)
    else:
        found = np.array([[_epsilon(gap, width, delta, formula) for width in widths] for gap in gaps])
    return float(found.min()), float(found.max())


@lru_cache(maxsize=64)
def _zero_leakage(count: int, null_count: int | None, delta: float) -> Array:
    """What the literal estimator says when nothing leaks: draws of its value, by simulation of mean and width.

    The threshold formula is never larger than the exact one, so that for it floor and p-value err on the safe side.
    """
    rng = stream(0, "zero leakage", count, null_count or 0)
    mu = rng.standard_normal(_FLOOR_DRAWS) / np.sqrt(count)
    width = np.sqrt(rng.chisquare(count - 1, _FLOOR_DRAWS) / count)
    if null_count is not None:
        unit = np.sqrt(rng.chisquare(null_count - 1, _FLOOR_DRAWS) / null_count)
        mu = (mu - rng.standard_normal(_FLOOR_DRAWS) / np.sqrt(null_count)) / unit
        width = width / unit
    return np.asarray(gaussian_epsilon(0.0, 1.0, mu, width, delta))


def _support(
    scores: Scores, delta: float, confidence: float, high_at: Callable[[float], float]
) -> tuple[dict[str, float], tuple[Caveat, ...]]:
    """The supported-delta check: at delta = 10/k the scores themselves can contradict the fit.

    There the assumption-free band is compared with the upper end of the estimate's interval at the same delta.
    """
    supported = max(delta, 10 / int(scores.inserted.sum()))
    if supported >= 0.5:
        return {}, ()
    bound, fit = bound_band(scores, delta=supported, confidence=confidence).epsilon, high_at(supported)
    details = {"supported_delta": supported, "supported_bound": bound, "supported_high": fit}
    if bound <= fit:
        return details, ()
    return details, (Caveat("tail-contradicted", {"delta": supported, "bound": bound, "fit": fit}),)


def _extrapolation(mu: float, largest: float, count: int, delta: float) -> tuple[Caveat, ...]:
    """A flag if the border of the event that decides epsilon at this delta lies where no score has been seen."""
    if delta * count >= 1:
        return ()
    distance = -float(special.ndtri(delta))
    seen = {"delta": delta, "count": count, "distance": distance, "largest": largest}
    return (Caveat("tail-extrapolation", seen),)


def _without_interference(scores: Scores, mu: float, delta: float) -> float:
    """Sphere canaries are noise to each other: mu² = 1/(sigma² + k/d), hence 1/sigma² = 1/(mu^-2 - k/d)."""
    law = as_cosine(scores.null)
    if law is None or mu < 1e-6:  # nothing to correct, and mu^-2 would overflow
        return 0.0
    rest = mu**-2 - int(scores.inserted.sum()) / law.dim
    return float(gaussian_epsilon(0.0, 1.0, rest**-0.5, 1.0, delta)) if rest > 0 else float("inf")
