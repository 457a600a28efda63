"""Figures 1, 2 and 3: canaries that take part several times. Only canaries repeat: clients of the chats take part once.

The papers print no numbers beside these figures; what they say is a trend: more presentations, more epsilon. A row has the
verdict "same shape" if it stands in this order within its noise (see `in_order`). Canaries that take part more often are a
larger share of every cohort; with adaptive clipping that moves the clip norm as well. Both are said beside each number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalmine.papers.kit.checking import TOGETHER, by_kind, rises
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow
from coalmine.papers.kit.rules import in_order
from coalmine.papers.kit.trained import records, seconds_of
from coalmine.papers.one_shot.families import Family
from coalmine.papers.one_shot.run_checks import compared, left_in_all
from coalmine.papers.one_shot.trained import DRIFT, FINAL, OneShotRun, obtain

TIMES = (1, 2, 4, 8)
CHAT_NOISES = (0.0, 0.0496, 0.0986, 0.2317)
Grid = Mapping[float, Mapping[int, OneShotRun]]


def grid_of(ask: Ask, family: Family, noises: tuple[float, ...]) -> Grid:
    """A run for every noise and number of presentations."""
    chosen = noises if ask.full else (noises[0], noises[-1])
    times = TIMES if ask.full else (1, 4)
    wanted = {(noise, number): family(ask, noise, number) for noise in chosen for number in times}
    runs = obtain(ask, dict(wanted.values()))
    return {noise: {number: runs[wanted[noise, number][0]] for number in times} for noise in chosen}


def epsilons(ask: Ask, name: str, title: str, data: str, grid: Grid, note: str) -> PaperResult:
    """Epsilon of the final model in every run."""
    rows: list[PaperRow] = []
    trends: list[PaperCheck] = []
    bars: dict[float, dict[int, tuple[float, float, float]]] = {}
    for noise, line in grid.items():
        estimates = [run.column("est-final") for run in line.values()]
        errors = [run.standard_error("est-final") for run in line.values()]
        good = in_order(list(line), estimates, errors)
        trends.append(rises(f"noise {noise:g}", list(line), estimates, errors))
        bars[noise] = {}
        for times, value, error, fits in zip(line, estimates, errors, good, strict=True):
            run = line[times]
            pointwise, (_, bound, claim), (drift, *_) = run.column("lo-final"), run.stated(FINAL), run.stated(DRIFT)
            bars[noise][times] = (value, pointwise, bound.epsilon)
            rows.append(
                PaperRow(
                    f"{data}, noise {noise:g}, {times_of(times)}, epsilon_est, final model",
                    "rises",
                    value,
                    error,
                    fits,
                    f"papers' epsilon_lo {pointwise:.3g}; valid bound {bound.epsilon:.3g}; claim {claim:.3g}; our estimate "
                    f"without the model's start {drift.epsilon if drift else float('nan'):.3g}; {circumstances(run)}",
                    {"noise": noise, "times": times, "column": "est-final"},
                )
            )

    def figure() -> Any:
        from coalmine.papers.one_shot.drawings import presentation_bars

        return presentation_bars(bars, data)

    return PaperResult(
        name,
        f"{title}, epsilon of the final model by noise and presentations",
        tuple(rows),
        error="standard error, by drawing canaries again",
        checks=(*trends, *checks_of(grid)),
        notes=(note, TOGETHER),
        about=ask.about(training_seconds=seconds_of(runs_of(grid))),
        details={"runs": records(runs_of(grid))},
        figure=figure,
    )


def checks_of(grid: Grid) -> list[PaperCheck]:
    """What must be true of every run."""
    found = [
        each
        for noise, line in grid.items()
        for times, run in line.items()
        for each in compared(f"noise {noise:g}, {times_of(times)}", noise, run)
    ]
    return by_kind([*found, left_in_all(runs_of(grid))])


def circumstances(run: OneShotRun) -> str:
    """What changes with presentations beside what they show."""
    share, accuracy = 100 * run.finished.training["mean_canary_share"], 100 * run.accuracy[0]
    return f"canaries are {share:.0f} % of a cohort, clip norm {run.clip_norms[1]:.2g} at the end, accuracy {accuracy:.1f} %"


def times_of(number: int) -> str:
    """How often, in words."""
    return "1 presentation" if number == 1 else f"{number} presentations"


def runs_of(grid: Grid) -> list[OneShotRun]:
    """All of them, one after the other."""
    return [run for line in grid.values() for run in line.values()]
