"""Rows and checks of real runs: the papers' columns, our own views, and what must be true of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalmine.config import Config
from coalmine.papers.experiment import Ask
from coalmine.papers.modelled import COLUMNS, Printed
from coalmine.papers.noise_model import Run, Simulated, measure
from coalmine.papers.outcome import AGREES, Check, Row, in_order, number
from coalmine.papers.trained import Trained, obtain, records, seconds_of

VIEWS = OTHERS, ROUNDS, DRIFT = "known others", "known rounds", "final model"


@dataclass(frozen=True)
class ByNoise:
    """The part of a table of epsilons by noise that trains."""

    rows: list[Row]
    checks: list[Check]
    seconds: float  # of training
    records: dict[str, Any]  # of its runs

    @staticmethod
    def of(ask: Ask, printed: Printed, family: Callable[[Ask, float], tuple[str, Config]], noises: Sequence[float]) -> ByNoise:
        """A run for every noise, canaries once."""
        runs = obtain(ask, dict(family(ask, noise) for noise in noises))
        real = dict(zip(noises, runs.values(), strict=True))
        rows = [*epsilon_rows(ask, printed, real), *own_rows(real)]
        return ByNoise(rows, own_checks(real), seconds_of(real.values()), records(real.values()))


def epsilon_rows(ask: Ask, printed: Printed, real: Mapping[float, Trained]) -> list[Row]:
    """The papers' four columns; a column has the paper's order, or the numbers that break it differ.

    Beside those of all iterates what the pure-noise model gives at the size of the run: what is left is the work of data and
    network. The final model is not compared: in the papers' column it has its start in it, which the model has not.
    """
    rows = []
    alone = {noise: _pure_noise(ask, printed, noise, run) for noise, run in real.items() if noise}
    for column in COLUMNS:
        noises = list(real)
        ours = [real[noise].column(printed.estimators[column]) for noise in noises]
        errors = [real[noise].standard_error(printed.estimators[column]) for noise in noises]
        paper = [float(printed.value(noise, column)) for noise in noises]
        good = in_order(paper, ours, errors)
        for noise, value, error, fits in zip(noises, ours, errors, good, strict=True):
            rows.append(
                Row(
                    f"runs, noise {noise:g}, {COLUMNS[column]}",
                    printed.value(noise, column),
                    value,
                    None if math.isinf(value) else error,
                    fits,
                    f"pure noise at this size: {alone[noise][column]}" if column in alone.get(noise, {}) else "",
                    {"how": "runs", "noise": noise, "column": column},
                )
            )
    return sorted(rows, key=lambda row: list(real).index(row.place["noise"]))


def _pure_noise(ask: Ask, printed: Printed, noise: float, run: Trained) -> dict[str, str]:
    """By column."""
    momentum = float(run.evidence.config["server"]["momentum"])
    model = Run(noise, run.dim, int(run.finished.training["rounds"]), run.seen.final.size, momentum)
    columns = tuple(column for column in COLUMNS if column.endswith("all"))
    seeds = [ask.seed * 1_000_003 + number for number in range(ask.repeat(full=50, quick=5))]
    tasks = [(model, tuple(printed.estimators[column] for column in columns), run.delta, seed) for seed in seeds]
    values = np.array(ask.each(measure, tasks, f"noise {noise:g}, model")).T
    found = {column: Simulated.of(list(each)) for column, each in zip(columns, values, strict=True)}
    return {column: f"{number(each.mean)} ± {number(each.std, each.mean)}" for column, each in found.items()}


def own_rows(real: Mapping[float, Trained]) -> list[Row]:
    """Our own statements beside: estimate of whoever knows all others, of whoever knows the rounds, of the final model."""
    rows = []
    for noise, run in real.items():
        for view in _views(noise):
            estimate, bound, claim = run.stated(view)
            at_least = f"at least {bound.epsilon:.3g} ({bound.method}), claim {claim:.3g}"
            value = None if estimate is None else estimate.epsilon
            error = None if estimate is None or not math.isfinite(estimate.high) else (estimate.high - estimate.low) / 3.92
            place = {"how": "runs", "noise": noise, "column": view}
            rows.append(Row(f"runs, noise {noise:g}, our view: {view}", "", value, error, note=at_least, place=place))
    return rows


def _views(noise: float) -> tuple[str, ...]:
    """Without noise and without the others nothing but rounding is left, of which nothing is to be said."""
    return VIEWS if noise else (ROUNDS, DRIFT)


def own_checks(real: Mapping[float, Trained]) -> list[Check]:
    """What must be true on real data, for every noise."""
    found: list[Check] = []
    for noise, run in real.items():
        found += [*_within(noise, run), *_ordered(noise, run), cosine_check(f"noise {noise:g}", run)]
    return found


def cosine_check(words: str, run: Trained) -> Check:
    """Whether canaries are in the final model as they were put there (see `coalmine.papers.linear`)."""
    cosines = run.seen.final
    mean, error, wanted = float(cosines.mean()), float(cosines.std(ddof=1)) / math.sqrt(cosines.size), run.predicted_cosine
    text = f"{words}: mean cosine with the final model {mean:.2f} ± {error:.2f}, by what canaries added {wanted:.2f}"
    return Check(text, abs(mean - wanted) <= AGREES * error)


def analytic_check(noise: float, run: Trained, words: str = "") -> list[Check]:
    """Who knows all others sees the analytic value. Without noise there is none: nothing is claimed, and rounding is left."""
    if not noise:
        return []
    others = _Stated.of(run, OTHERS)
    near = abs(others.epsilon - others.claim) <= AGREES * others.error
    text = f"noise {noise:g}{words}: {OTHERS} gives the analytic value, {others.epsilon:.4g} for {others.claim:.4g}"
    return [Check(text, near)]


def _within(noise: float, run: Trained) -> Iterator[Check]:
    """Bound, estimate and claim of each view stand in this order."""
    for each in (_Stated.of(run, view) for view in _views(noise)):
        slack = AGREES * each.error
        good = each.bound <= min(each.epsilon + slack, each.claim) and each.epsilon - slack <= each.claim
        text = (
            f"noise {noise:g}, {each.view}: valid bound {each.bound:.3g} <= estimate {each.epsilon:.3g} ± {each.error:.2g} "
            f"<= claim {each.claim:.3g}, within {AGREES:g} standard errors"
        )
        yield Check(text, good)


def _ordered(noise: float, run: Trained) -> Iterator[Check]:
    """Who knows more sees no less; who knows everything sees what the accountant says."""
    yield from analytic_check(noise, run)
    others, rounds, final = (_Stated.of(run, view) for view in VIEWS)
    for less, more, words in (
        (rounds, others, "who knows the rounds alone sees no more than who knows all others"),
        (final, rounds, "who has the final model alone sees no more than who knows the rounds"),
    ):
        slack = AGREES * math.hypot(less.error, more.error)
        yield Check(
            f"noise {noise:g}: {words}, {less.epsilon:.3g} and {more.epsilon:.3g}", less.epsilon <= more.epsilon + slack
        )


@dataclass(frozen=True)
class _Stated:
    """What a view of a run says, with a standard error."""

    view: str
    bound: float
    epsilon: float
    error: float
    claim: float

    @staticmethod
    def of(run: Trained, view: str) -> _Stated:
        estimate, bound, claim = run.stated(view)
        if estimate is None:
            raise ValueError(f"{run.path}: no estimate for {view}.")
        return _Stated(view, bound.epsilon, estimate.epsilon, (estimate.high - estimate.low) / 3.92, claim)
