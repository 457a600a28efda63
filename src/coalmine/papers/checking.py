"""What must be true of real runs, whatever the papers print: comparisons with a distance in standard errors.

An experiment makes many of them. They are judged together: right code fails an experiment once in a thousand (`RISK`), which is
Bonferroni's share for each. That of a bound above its claim is how sure it is: a right bound at 95 % may be, at 99.99 % it is
hardly ever.

Without noise there is no analytic value and no claim, and who knows all others sees nothing but rounding. What is left there is
that no valid bound exceeds the estimate, that the final model shows no more than the rounds, and what canaries leave. An
estimate that takes scores for normal is not compared with a bound that does not where they are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from coalmine.papers.outcome import RISK, Check, allowed
from coalmine.papers.trained import DRIFT, OTHERS, ROUNDS, VIEWS, Trained

TOGETHER = f"Checks of distances are judged together: on right code one of them fails in {RISK:g} of experiments."
WITHIN = "valid bound <= estimate <= claim"
LEAST = f"{ROUNDS} see what clients do not hide"
ANALYTIC = f"{OTHERS} see the analytic value"
ORDER = "who knows less sees no more"
LEFT = "canaries are in the final model as they were put there"
RISING = 2.0  # standard errors of a slope
UNDONE = 0.03  # of what canaries added: training answers to its parameters, and what it undoes of them is no error


@dataclass(frozen=True)
class Compared:
    """One comparison; `distance` is how far it is on the wrong side, in standard errors."""

    kind: str
    text: str
    distance: float


def one_by_one(found: Sequence[Compared]) -> list[Check]:
    """A check for each."""
    most = allowed(max(len(found), 1))
    return [Check(each.text, each.distance <= most) for each in found]


def by_kind(found: Sequence[Compared]) -> list[Check]:
    """A check for each kind, with the comparison that came nearest to failing."""
    most, checks = allowed(max(len(found), 1)), []
    for kind in dict.fromkeys(each.kind for each in found):
        some = [each for each in found if each.kind == kind]
        worst = max(some, key=lambda each: math.inf if math.isnan(each.distance) else each.distance)
        many = f"{kind}, {len(some)} comparisons; nearest to failing by {worst.distance:+.1f} standard errors: "
        checks.append(Check((many if len(some) > 1 else "") + worst.text, worst.distance <= most))
    return checks


def compared(words: str, noise: float, run: Trained) -> Iterator[Compared]:
    """All that is to be compared in one run."""
    for view in views_of(noise):
        if noise or run.normality(view) >= RISK:
            yield _within(words, _Stated.of(run, view))
    if noise:
        yield analytic(words, run)
    yield not_hidden(words, run)
    yield from _ordered(words, noise, run)
    yield left(words, run)


def views_of(noise: float) -> tuple[str, ...]:
    """Without noise and without the others nothing but rounding is left, of which nothing is to be said."""
    return VIEWS if noise else (ROUNDS, DRIFT)


def analytic(words: str, run: Trained) -> Compared:
    """Who knows all others sees the analytic value."""
    others = _Stated.of(run, OTHERS)
    text = f"{words}: {OTHERS} gives the analytic value, {others.epsilon:.4g} ± {others.error:.2g} for {others.claim:.4g}"
    return Compared(ANALYTIC, text, _distance(abs(others.epsilon - others.claim), others.error))


def not_hidden(words: str, run: Trained) -> Compared:
    """Who knows the rounds sees what the sums of clients leave; more, where these sums resemble each other."""
    (gap, error), least = run.gap(ROUNDS), run.least_gap
    text = f"{words}: {ROUNDS} shows a gap of {gap:.4g} ± {error:.2g}; clients' sums as noise would leave {least:.4g}"
    return Compared(LEAST, text, _distance(least - gap, error))


def left(words: str, run: Trained) -> Compared:
    """Whether canaries are in the final model as they were put there, to a few hundredths (see `coalmine.papers.linear`)."""
    mean, error, wanted = run.mean_cosine, run.mean_cosine_error, run.predicted_cosine
    text = f"{words}: mean cosine with the final model {mean:.2f} ± {error:.2f}, by what canaries added {wanted:.2f}"
    return Compared(LEFT, text, _distance(max(abs(mean - wanted) - UNDONE * wanted, 0.0), error))


def left_in_all(runs: Iterable[Trained]) -> Compared:
    """The same of all runs together, which have different errors: what canaries left, over what they added."""
    ratio, error = pooled_ratio([(run.mean_cosine, run.mean_cosine_error, run.predicted_cosine) for run in runs])
    text = f"all runs together: canaries left {ratio:.3f} ± {error:.3f} of what they added"
    return Compared(f"{LEFT}, in all runs together", text, max(abs(ratio - 1) - UNDONE, 0.0) / error)


def pooled_ratio(cosines: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """(ratio, standard error) from (mean, its error, predicted mean) of runs, each with the weight of its precision.

    >>> [round(value, 6) for value in pooled_ratio([(1.1, 0.1, 1.0), (0.45, 0.05, 0.5)])]
    [1.0, 0.070711]
    """
    precision = sum((wanted / error) ** 2 for _, error, wanted in cosines)
    return sum(mean * wanted / error**2 for mean, error, wanted in cosines) / precision, precision**-0.5


def rises(words: str, times: Sequence[int], values: Sequence[float], errors: Sequence[float]) -> Check:
    """Whether epsilon rises with presentations: by its regression on their logarithm, which need be no straight line."""
    slope, error = _slope([math.log2(number) for number in times], values, errors)
    ends = f"from {values[0]:.3g} ± {errors[0]:.2g} at {times[0]} to {values[-1]:.3g} ± {errors[-1]:.2g} at {times[-1]}"
    return Check(
        f"{words}: epsilon rises with presentations, {ends}: a trend of {slope / error:.1f} standard errors",
        slope > RISING * error,
    )


def _slope(places: Sequence[float], values: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
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


def _within(words: str, said: _Stated) -> Compared:
    """Bound, estimate and claim of a view stand in this order."""
    text = (
        f"{words}, {said.view}: valid bound {said.bound:.3g} <= estimate {said.epsilon:.3g} ± {said.error:.2g} "
        f"<= claim {said.claim:.3g}"
    )
    distance = _distance(max(said.bound - said.epsilon, said.epsilon - said.claim), said.error)
    return Compared(WITHIN, text, max(distance, said.beyond))


def _ordered(words: str, noise: float, run: Trained) -> Iterator[Compared]:
    """Who knows less sees no more."""
    said = [_Stated.of(run, view) for view in views_of(noise)]
    for more, less in pairwise(said):
        text = f"{words}: {less.view} shows no more than {more.view}, {less.epsilon:.3g} and {more.epsilon:.3g}"
        yield Compared(ORDER, text, _distance(less.epsilon - more.epsilon, math.hypot(less.error, more.error)))


def _distance(excess: float, error: float) -> float:
    """In standard errors. An error of 0 is that of an estimate far below zero, which is shown as 0: nothing then excuses it.

    >>> _distance(3.0, 2.0), _distance(0.1, 0.0), _distance(0.0, 0.0)
    (1.5, inf, 0.0)
    """
    if error:
        return excess / error
    return math.inf if excess > 0 else 0.0


@dataclass(frozen=True)
class _Stated:
    """What a view of a run says, with a standard error."""

    view: str
    bound: float
    epsilon: float
    error: float
    claim: float
    beyond: float  # the claim: how sure the bound is

    @staticmethod
    def of(run: Trained, view: str) -> _Stated:
        estimate, bound, claim = run.stated(view)
        if estimate is None:
            raise ValueError(f"{run.path}: no estimate for {view}.")
        return _Stated(view, bound.epsilon, estimate.epsilon, run.error(view), claim, run.beyond(view))
