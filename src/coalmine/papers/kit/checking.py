"""Comparisons with a distance in standard errors.

An experiment makes many of them. They are judged together: right code fails an experiment once in a thousand (`RISK`), which is
Bonferroni's share for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coalmine.papers.kit.paper_result import PaperCheck
from coalmine.papers.kit.rules import RISK, allowed

TOGETHER = f"Checks of distances are judged together: on right code one of them fails in {RISK:g} of experiments."
RISING = 2.0  # standard errors of a slope


@dataclass(frozen=True)
class CheckedNumber:
    """One comparison; `distance` is how far it is on the wrong side, in standard errors."""

    kind: str
    text: str
    distance: float


def one_by_one(found: Sequence[CheckedNumber]) -> list[PaperCheck]:
    """A check for each."""
    most = allowed(max(len(found), 1))
    return [PaperCheck(each.text, each.distance <= most) for each in found]


def by_kind(found: Sequence[CheckedNumber]) -> list[PaperCheck]:
    """A check for each kind, with the comparison that came nearest to failing."""
    most, checks = allowed(max(len(found), 1)), []
    for kind in dict.fromkeys(each.kind for each in found):
        some = [each for each in found if each.kind == kind]
        worst = max(some, key=lambda each: math.inf if math.isnan(each.distance) else each.distance)
        many = f"{kind}, {len(some)} comparisons; nearest to failing by {worst.distance:+.1f} standard errors: "
        checks.append(PaperCheck((many if len(some) > 1 else "") + worst.text, worst.distance <= most))
    return checks


def distance_of(excess: float, error: float) -> float:
    """In standard errors. An error of 0 is that of an estimate far below zero, which is shown as 0: nothing then excuses it.

    >>> distance_of(3.0, 2.0), distance_of(0.1, 0.0), distance_of(0.0, 0.0)
    (1.5, inf, 0.0)
    """
    if error:
        return excess / error
    return math.inf if excess > 0 else 0.0


def pooled_ratio(cosines: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """(ratio, standard error) from (mean, its error, predicted mean) of runs, each with the weight of its precision.

    >>> [round(value, 6) for value in pooled_ratio([(1.1, 0.1, 1.0), (0.45, 0.05, 0.5)])]
    [1.0, 0.070711]
    """
    precision = sum((wanted / error) ** 2 for _, error, wanted in cosines)
    return sum(mean * wanted / error**2 for mean, error, wanted in cosines) / precision, precision**-0.5


def rises(words: str, times: Sequence[int], values: Sequence[float], errors: Sequence[float]) -> PaperCheck:
    """Whether epsilon rises with presentations: by its regression on their logarithm, which need be no straight line."""
    slope, error = slope_of([math.log2(number) for number in times], values, errors)
    ends = f"from {values[0]:.3g} ± {errors[0]:.2g} at {times[0]} to {values[-1]:.3g} ± {errors[-1]:.2g} at {times[-1]}"
    return PaperCheck(
        f"{words}: epsilon rises with presentations, {ends}: a trend of {slope / error:.1f} standard errors",
        slope > RISING * error,
    )


def slope_of(places: Sequence[float], values: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """(slope, standard error) of weighted least squares; infinite values, and those without an error, have no weight."""
    weights = [1 / error**2 if math.isfinite(value) and error else 0.0 for value, error in zip(values, errors, strict=True)]
    total = sum(weights)
    if not total:
        return math.nan, math.nan
    centre = sum(weight * place for weight, place in zip(weights, places, strict=True)) / total
    spread = sum(weight * (place - centre) ** 2 for weight, place in zip(weights, places, strict=True))
    if not spread:
        return math.nan, math.nan
    used = [(weight, place, value) for weight, place, value in zip(weights, places, values, strict=True) if weight]
    return sum(weight * (place - centre) * value for weight, place, value in used) / spread, spread**-0.5
