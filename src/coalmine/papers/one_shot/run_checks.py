"""What must be true of real runs, whatever the papers print.

The distance of a bound above its claim is how sure it is: a right bound at 95 % may be, at 99.99 % it is hardly ever.

Without noise there is no analytic value and no claim, and who knows all others sees nothing but rounding. What is left there is
that no valid bound exceeds the estimate, that the final model shows no more than the rounds, and what canaries leave. An
estimate that takes scores for normal is not compared with a bound that does not where they are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from coalmine.contracts.sentences import view_name
from coalmine.papers.kit.checking import CheckedNumber, distance_of, pooled_ratio
from coalmine.papers.kit.rules import RISK
from coalmine.papers.one_shot.trained import DRIFT, OTHERS, ROUNDS, VIEWS, OneShotRun

WITHIN = "valid bound <= estimate <= claim"
LEAST = f"{view_name(ROUNDS)} see what clients do not hide"
ANALYTIC = f"{view_name(OTHERS)} see the analytic value"
ORDER = "who knows less sees no more"
LEFT = "canaries are in the final model as they were put there"
UNDONE = 0.03  # of what canaries added: training answers to its parameters, and what it undoes of them is no error


def compared(words: str, noise: float, run: OneShotRun) -> Iterator[CheckedNumber]:
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


def analytic(words: str, run: OneShotRun) -> CheckedNumber:
    """Who knows all others sees the analytic value."""
    others = _Stated.of(run, OTHERS)
    text = f"{words}: {others.name} gives the analytic value, {others.epsilon:.4g} ± {others.error:.2g} for {others.claim:.4g}"
    return CheckedNumber(ANALYTIC, text, distance_of(abs(others.epsilon - others.claim), others.error))


def not_hidden(words: str, run: OneShotRun) -> CheckedNumber:
    """Who knows the rounds sees what the sums of clients leave; more, where these sums resemble each other."""
    (gap, error), least = run.gap(ROUNDS), run.least_gap
    seen = f"{view_name(ROUNDS)} shows a gap of {gap:.4g} ± {error:.2g}"
    text = f"{words}: {seen}; clients' sums as noise would leave {least:.4g}"
    return CheckedNumber(LEAST, text, distance_of(least - gap, error))


def left(words: str, run: OneShotRun) -> CheckedNumber:
    """Whether canaries are in the final model as they were put there, to a few hundredths (see the module `linear`)."""
    mean, error, wanted = run.mean_cosine, run.mean_cosine_error, run.predicted_cosine
    text = f"{words}: mean cosine with the final model {mean:.2f} ± {error:.2f}, by what canaries added {wanted:.2f}"
    return CheckedNumber(LEFT, text, distance_of(max(abs(mean - wanted) - UNDONE * wanted, 0.0), error))


def left_in_all(runs: Iterable[OneShotRun]) -> CheckedNumber:
    """The same of all runs together, which have different errors: what canaries left, over what they added."""
    ratio, error = pooled_ratio([(run.mean_cosine, run.mean_cosine_error, run.predicted_cosine) for run in runs])
    text = f"all runs together: canaries left {ratio:.3f} ± {error:.3f} of what they added"
    return CheckedNumber(f"{LEFT}, in all runs together", text, max(abs(ratio - 1) - UNDONE, 0.0) / error)


def _within(words: str, said: _Stated) -> CheckedNumber:
    """Bound, estimate and claim of a view stand in this order."""
    text = (
        f"{words}, {said.name}: valid bound {said.bound:.3g} <= estimate {said.epsilon:.3g} ± {said.error:.2g} "
        f"<= claim {said.claim:.3g}"
    )
    distance = distance_of(max(said.bound - said.epsilon, said.epsilon - said.claim), said.error)
    return CheckedNumber(WITHIN, text, max(distance, said.beyond))


def _ordered(words: str, noise: float, run: OneShotRun) -> Iterator[CheckedNumber]:
    """Who knows less sees no more."""
    said = [_Stated.of(run, view) for view in views_of(noise)]
    for more, less in pairwise(said):
        text = f"{words}: {less.name} shows no more than {more.name}, {less.epsilon:.3g} and {more.epsilon:.3g}"
        yield CheckedNumber(ORDER, text, distance_of(less.epsilon - more.epsilon, math.hypot(less.error, more.error)))


@dataclass(frozen=True)
class _Stated:
    """What a view of a run says, with a standard error."""

    name: str  # of the view, in words
    bound: float
    epsilon: float
    error: float
    claim: float
    beyond: float  # the claim: how sure the bound is

    @staticmethod
    def of(run: OneShotRun, view: str) -> _Stated:
        estimate, bound, claim = run.stated(view)
        if estimate is None:
            raise ValueError(f"{run.path}: no estimate for {view_name(view)}.")
        return _Stated(view_name(view), bound.epsilon, estimate.epsilon, run.error(view), claim, run.beyond(view))
