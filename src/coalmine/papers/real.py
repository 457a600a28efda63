"""Rows of real runs by noise: the papers' columns, our own views beside them, and what must be true of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from coalmine.papers.checking import TOGETHER, compared, left_in_all, one_by_one, views_of
from coalmine.papers.experiment import Ask
from coalmine.papers.making import obtain
from coalmine.papers.modelled import COLUMNS, Printed
from coalmine.papers.noise_model import Run, Simulated, measure
from coalmine.papers.outcome import Check, Part, Row, in_order, number
from coalmine.papers.trained import Trained, records, seconds_of
from coalmine.training.config import Config

Family = Callable[[Ask, float], tuple[str, Config]]


def by_noise(ask: Ask, family: Family, noises: Sequence[float]) -> dict[float, Trained]:
    """A run for every noise, canaries once."""
    runs = obtain(ask, dict(family(ask, noise) for noise in noises))
    return dict(zip(noises, runs.values(), strict=True))


def epsilons(ask: Ask, printed: Printed, real: Mapping[float, Trained], data: str, note: str) -> Part:
    """The part of a table of epsilons by noise that trains; `data` is on what, in words."""
    return Part(
        [*epsilon_rows(ask, printed, real, data), *own_rows(real, data)],
        own_checks(real),
        (note, TOGETHER),
        {"training_seconds": seconds_of(real.values())},
        {"runs": records(real.values())},
    )


def epsilon_rows(ask: Ask, printed: Printed, real: Mapping[float, Trained], data: str) -> list[Row]:
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
                Row(
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


def _pure_noise(ask: Ask, printed: Printed, noise: float, run: Trained) -> dict[str, str]:
    """By column."""
    momentum = float(run.evidence.config["server"]["momentum"])
    inserted, held_out = run.seen.largest.size, run.seen.largest_held_out.size
    model = Run(noise, run.dim, int(run.finished.training["rounds"]), inserted, momentum, held_out=held_out)
    columns = tuple(column for column in COLUMNS if column.endswith("all"))
    seeds = [ask.seed * 1_000_003 + number for number in range(ask.repeat(full=50, quick=5))]
    tasks = [(model, tuple(printed.estimators[column] for column in columns), run.delta, seed) for seed in seeds]
    values = np.array(ask.each(measure, tasks, f"noise {noise:g}, model")).T
    found = {column: Simulated.of(list(each)) for column, each in zip(columns, values, strict=True)}
    return {column: f"{number(each.mean)} ± {number(each.std, each.mean)}" for column, each in found.items()}


def own_rows(real: Mapping[float, Trained], data: str) -> list[Row]:
    """Our own statements beside: estimate of whoever knows all others, of whoever knows the rounds, of the final model."""
    rows = []
    for noise, run in real.items():
        for view in views_of(noise):
            estimate, bound, claim = run.stated(view)
            at_least = f"at least {bound.epsilon:.3g} ({bound.method}), claim {claim:.3g}"
            value = None if estimate is None else estimate.epsilon
            error = run.error(view)
            place = {"how": "runs", "noise": noise, "column": view}
            shown = error if math.isfinite(error) else None
            rows.append(Row(f"{data}, noise {noise:g}, our view: {view}", "", value, shown, note=at_least, place=place))
    return rows


def own_checks(real: Mapping[float, Trained]) -> list[Check]:
    """What must be true on real data, for every noise."""
    found = [each for noise, run in real.items() for each in compared(f"noise {noise:g}", noise, run)]
    return one_by_one([*found, left_in_all(real.values())])
