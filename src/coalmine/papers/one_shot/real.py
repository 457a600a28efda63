"""Rows of real runs by noise: the papers' columns, our own views beside them, and what must be true of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from coalmine.contracts.sentences import view_name
from coalmine.papers.kit.checking import TOGETHER, one_by_one
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperRow, ResultPart, number
from coalmine.papers.kit.rules import in_order
from coalmine.papers.kit.trained import records, seconds_of
from coalmine.papers.one_shot.families import Family
from coalmine.papers.one_shot.modelled import COLUMNS, PrintedTable
from coalmine.papers.one_shot.noise_model import PureNoiseRun, Simulated, measure
from coalmine.papers.one_shot.run_checks import compared, left_in_all, views_of
from coalmine.papers.one_shot.trained import OneShotRun, obtain


def by_noise(ask: Ask, family: Family, noises: Sequence[float]) -> dict[float, OneShotRun]:
    """A run for every noise, canaries once."""
    runs = obtain(ask, dict(family(ask, noise) for noise in noises))
    return dict(zip(noises, runs.values(), strict=True))


def epsilons(ask: Ask, printed: PrintedTable, real: Mapping[float, OneShotRun], data: str, note: str) -> ResultPart:
    """The part of a table of epsilons by noise that trains; `data` is on what, in words."""
    return ResultPart(
        [*epsilon_rows(ask, printed, real, data), *own_rows(real, data)],
        own_checks(real),
        (note, TOGETHER),
        {"training_seconds": seconds_of(real.values())},
        {"runs": records(real.values())},
    )


def epsilon_rows(ask: Ask, printed: PrintedTable, real: Mapping[float, OneShotRun], data: str) -> list[PaperRow]:
    """The papers' four columns; a column has the paper's order, or the numbers that break it differ.

    That there is more without noise than with any says nothing of the others: see `apart` of `in_order`.
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
        good = in_order(paper, ours, errors, apart=[noise == 0 for noise in noises])
        for noise, value, error, fits in zip(noises, ours, errors, good, strict=True):
            beside = [f"pure noise at this size: {alone[noise][column]}"] if column in alone.get(noise, {}) else []
            rows.append(
                PaperRow(
                    f"{data}, noise {noise:g}, {COLUMNS[column]}",
                    printed.value(noise, column),
                    value,
                    None if math.isinf(value) else error,
                    fits,
                    "; ".join([*beside, *(["diverged"] if real[noise].diverged else [])]),
                    {"how": "runs", "noise": noise, "column": column},
                )
            )
    return sorted(rows, key=lambda row: list(real).index(row.place["noise"]))


def _pure_noise(ask: Ask, printed: PrintedTable, noise: float, run: OneShotRun) -> dict[str, str]:
    """By column."""
    momentum = run.config.server.momentum
    inserted, held_out = run.seen.largest.size, run.seen.largest_held_out.size
    model = PureNoiseRun(noise, run.dim, int(run.finished.training["rounds"]), inserted, momentum, held_out=held_out)
    columns = tuple(column for column in COLUMNS if column.endswith("all"))
    seeds = [ask.seed * 1_000_003 + number for number in range(ask.repeat(full=50, quick=5))]
    tasks = [(model, tuple(printed.estimators[column] for column in columns), run.delta, seed) for seed in seeds]
    values = np.array(ask.each(measure, tasks, f"noise {noise:g}, model")).T
    found = {column: Simulated.of(list(each)) for column, each in zip(columns, values, strict=True)}
    return {column: f"{number(each.mean)} ± {number(each.std, each.mean)}" for column, each in found.items()}


def own_rows(real: Mapping[float, OneShotRun], data: str) -> list[PaperRow]:
    """Our own statements beside: estimate of whoever knows all others, of whoever knows the rounds, of the final model."""
    rows = []
    for noise, run in real.items():
        for view in views_of(noise):
            estimate, bound, claim = run.stated(view)
            at_least = f"at least {bound.epsilon:.3g} ({bound.method}), claim {claim:.3g}"
            value = None if estimate is None else estimate.epsilon
            error = run.error(view)
            name = view_name(view)
            place = {"how": "runs", "noise": noise, "column": name}
            shown = error if math.isfinite(error) else None
            rows.append(PaperRow(f"{data}, noise {noise:g}, our view: {name}", "", value, shown, note=at_least, place=place))
    return rows


def own_checks(real: Mapping[float, OneShotRun]) -> list[PaperCheck]:
    """What must be true on real data, for every noise."""
    found = [each for noise, run in real.items() for each in compared(f"noise {noise:g}", noise, run)]
    return one_by_one([*found, left_in_all(real.values())])
