"""Figures 1, 2 and 3: canaries that take part several times. Only canaries repeat: clients of the chats take part once.

The papers print no numbers beside these figures; what they say is a trend: more presentations, more epsilon. A row has the
verdict "same shape" if it stands in this order within its noise (see `in_order`). Canaries that take part more often are a
larger share of every cohort; with adaptive clipping that moves the clip norm as well. Both are said beside each number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coalmine.papers.checking import TOGETHER, by_kind, compared, left_in_all, rises
from coalmine.papers.experiment import Ask
from coalmine.papers.families import BY_WRITER, CHATS, ON_CHATS, WRITERS, chat, mnist
from coalmine.papers.making import obtain
from coalmine.papers.outcome import Check, Outcome, Row, in_order
from coalmine.papers.trained import DRIFT, FINAL, Trained, records, seconds_of
from coalmine.training.config import Config

TIMES = (1, 2, 4, 8)
CHAT_NOISES = (0.0, 0.0496, 0.0986, 0.2317)
MNIST_NOISES = (0.16, 0.18, 0.195)
Grid = Mapping[float, Mapping[int, Trained]]


def figure1(ask: Ask) -> Outcome:
    """Densities of the cosines with the final model."""
    grid = _grid(ask, chat, CHAT_NOISES)
    rows: list[Row] = []
    for noise, line in grid.items():
        means, errors = [run.mean_cosine for run in line.values()], [run.mean_cosine_error for run in line.values()]
        good = in_order(list(line), means, errors)
        for times, mean, error, fits in zip(line, means, errors, good, strict=True):
            width = float(line[times].seen.final.std(ddof=1))
            rows.append(
                Row(
                    f"{ON_CHATS}, noise {noise:g}, {_times(times)}, mean cosine",
                    "more separated with each",
                    mean,
                    error,
                    fits,
                    f"width {width:.2f}, in standard deviations of the null; {_circumstances(line[times])}",
                    {"noise": noise, "times": times, "column": "mean"},
                )
            )

    def figure() -> Any:
        from coalmine.papers.figures import density_grid

        cosines = {noise: {times: run.seen.final for times, run in line.items()} for noise, line in grid.items()}
        return density_grid(cosines, ON_CHATS)

    return Outcome(
        "figure1",
        f"Figure 1 on {ON_CHATS}, cosines of inserted canaries with the final model, by noise and presentations",
        tuple(rows),
        error="standard error over canaries",
        checks=tuple(_checks(grid)),
        notes=(CHATS, TOGETHER),
        about=ask.about(training_seconds=seconds_of(_runs(grid))),
        details={"runs": records(_runs(grid))},
        figure=figure,
    )


def figure2(ask: Ask) -> Outcome:
    """Epsilon of the final model on chats."""
    return _epsilons(ask, "figure2", f"Figure 2 on {ON_CHATS}", ON_CHATS, _grid(ask, chat, CHAT_NOISES), CHATS)


def figure3(ask: Ask) -> Outcome:
    """Epsilon of the final model on MNIST by writer."""
    return _epsilons(ask, "figure3", f"Figure 3 on {BY_WRITER}", BY_WRITER, _grid(ask, mnist, MNIST_NOISES), WRITERS)


def _grid(ask: Ask, family: Callable[..., tuple[str, Config]], noises: tuple[float, ...]) -> Grid:
    chosen = noises if ask.full else (noises[0], noises[-1])
    times = TIMES if ask.full else (1, 4)
    wanted = {(noise, number): family(ask, noise, number) for noise in chosen for number in times}
    runs = obtain(ask, dict(wanted.values()))
    return {noise: {number: runs[wanted[noise, number][0]] for number in times} for noise in chosen}


def _epsilons(ask: Ask, name: str, title: str, data: str, grid: Grid, note: str) -> Outcome:
    rows: list[Row] = []
    trends: list[Check] = []
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
                Row(
                    f"{data}, noise {noise:g}, {_times(times)}, epsilon_est, final model",
                    "rises",
                    value,
                    error,
                    fits,
                    f"papers' epsilon_lo {pointwise:.3g}; valid bound {bound.epsilon:.3g}; claim {claim:.3g}; our estimate "
                    f"without the model's start {drift.epsilon if drift else float('nan'):.3g}; {_circumstances(run)}",
                    {"noise": noise, "times": times, "column": "est-final"},
                )
            )

    def figure() -> Any:
        from coalmine.papers.figures import presentation_bars

        return presentation_bars(bars, data)

    return Outcome(
        name,
        f"{title}, epsilon of the final model by noise and presentations",
        tuple(rows),
        error="standard error, by drawing canaries again",
        checks=(*trends, *_checks(grid)),
        notes=(note, TOGETHER),
        about=ask.about(training_seconds=seconds_of(_runs(grid))),
        details={"runs": records(_runs(grid))},
        figure=figure,
    )


def _checks(grid: Grid) -> list[Check]:
    """What must be true of every run."""
    found = [
        each
        for noise, line in grid.items()
        for times, run in line.items()
        for each in compared(f"noise {noise:g}, {_times(times)}", noise, run)
    ]
    return by_kind([*found, left_in_all(_runs(grid))])


def _circumstances(run: Trained) -> str:
    """What changes with presentations beside what they show."""
    share, accuracy = 100 * run.finished.training["mean_canary_share"], 100 * run.accuracy[0]
    return f"canaries are {share:.0f} % of a cohort, clip norm {run.clip_norms[1]:.2g} at the end, accuracy {accuracy:.1f} %"


def _times(number: int) -> str:
    return "1 presentation" if number == 1 else f"{number} presentations"


def _runs(grid: Grid) -> list[Trained]:
    return [run for line in grid.values() for run in line.values()]
