"""Figures 1, 2 and 3: canaries that take part several times. Only canaries repeat: clients of the chats take part once.

The papers print no numbers beside these figures; what they say is a trend: more presentations, more epsilon. A row has the
verdict "same shape" if no smaller number of presentations shows more by two standard errors of the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coalmine.config import Config
from coalmine.papers.experiment import Ask
from coalmine.papers.families import CHATS, WRITERS, chat, mnist
from coalmine.papers.outcome import Check, Outcome, Row, in_order
from coalmine.papers.real import DRIFT, analytic_check, cosine_check
from coalmine.papers.trained import FINAL, Trained, obtain, records, seconds_of

TIMES = (1, 2, 4, 8)
CHAT_NOISES = (0.0, 0.0496, 0.0986, 0.2317)
MNIST_NOISES = (0.16, 0.18, 0.195)
Grid = Mapping[float, Mapping[int, Trained]]


def figure1(ask: Ask) -> Outcome:
    """Densities of the cosines with the final model."""
    grid = _grid(ask, chat, CHAT_NOISES)
    rows: list[Row] = []
    checks: list[Check] = []
    for noise, line in grid.items():
        means = [float(run.seen.final.mean()) for run in line.values()]
        errors = [float(run.seen.final.std(ddof=1)) / run.seen.final.size**0.5 for run in line.values()]
        good = in_order(list(line), means, errors)
        checks += [cosine_check(f"noise {noise:g}, {_times(times)}", run) for times, run in line.items()]
        for times, mean, error, fits in zip(line, means, errors, good, strict=True):
            width = float(line[times].seen.final.std(ddof=1))
            rows.append(
                Row(
                    f"noise {noise:g}, {_times(times)}, mean cosine",
                    "more separated with each",
                    mean,
                    error,
                    fits,
                    f"width {width:.2f}, in standard deviations of the null",
                    {"noise": noise, "times": times, "column": "mean"},
                )
            )

    def figure() -> Any:
        from coalmine.papers.figures import density_grid

        return density_grid({noise: {times: run.seen.final for times, run in line.items()} for noise, line in grid.items()})

    return Outcome(
        "figure1",
        "Figure 1, cosines of inserted canaries with the final model, by noise and presentations",
        tuple(rows),
        error="standard error over canaries",
        checks=tuple(checks),
        notes=(CHATS,),
        about=ask.about(training_seconds=seconds_of(_runs(grid))),
        details={"runs": records(_runs(grid))},
        figure=figure,
    )


def figure2(ask: Ask) -> Outcome:
    """Epsilon of the final model on chats."""
    return _epsilons(ask, "figure2", "Figure 2", _grid(ask, chat, CHAT_NOISES), CHATS)


def figure3(ask: Ask) -> Outcome:
    """Epsilon of the final model on MNIST by writer."""
    return _epsilons(ask, "figure3", "Figure 3", _grid(ask, mnist, MNIST_NOISES), WRITERS)


def _grid(ask: Ask, family: Callable[..., tuple[str, Config]], noises: tuple[float, ...]) -> Grid:
    chosen = noises if ask.full else (noises[0], noises[-1])
    times = TIMES if ask.full else (1, 4)
    wanted = {(noise, number): family(ask, noise, number) for noise in chosen for number in times}
    runs = obtain(ask, dict(wanted.values()))
    return {noise: {number: runs[wanted[noise, number][0]] for number in times} for noise in chosen}


def _epsilons(ask: Ask, name: str, title: str, grid: Grid, note: str) -> Outcome:
    rows: list[Row] = []
    checks: list[Check] = []
    bars: dict[float, dict[int, tuple[float, float, float]]] = {}
    for noise, line in grid.items():
        estimates = [run.column("est-final") for run in line.values()]
        errors = [run.standard_error("est-final") for run in line.values()]
        good = in_order(list(line), estimates, errors)
        bars[noise] = {}
        for times, value, error, fits in zip(line, estimates, errors, good, strict=True):
            run = line[times]
            pointwise, (_, bound, claim) = run.column("lo-final"), run.stated(FINAL)
            drift = run.stated(DRIFT)[0]
            bars[noise][times] = (value, pointwise, bound.epsilon)
            rows.append(
                Row(
                    f"noise {noise:g}, {_times(times)}, epsilon_est, final model",
                    "rises",
                    value,
                    error,
                    fits,
                    f"papers' epsilon_lo {pointwise:.3g}; valid bound {bound.epsilon:.3g}; claim {claim:.3g}; our estimate "
                    f"without the model's start {drift.epsilon if drift else float('nan'):.3g}",
                    {"noise": noise, "times": times, "column": "est-final"},
                )
            )
        first, last = min(line), max(line)
        mean_first, mean_last = (float(line[times].seen.final.mean()) for times in (first, last))
        text = (
            f"noise {noise:g}: the mean cosine rises from {mean_first:.2f} ({first}) to {mean_last:.2f} ({last} presentations)"
        )
        checks.append(Check(text, mean_last > mean_first))
        for times, run in line.items():
            words = f", {_times(times)}"
            checks.append(Check(f"noise {noise:g}{words}: no valid bound above its claim", _valid(run)))
            checks += analytic_check(noise, run, words)

    def figure() -> Any:
        from coalmine.papers.figures import presentation_bars

        return presentation_bars(bars)

    return Outcome(
        name,
        f"{title}, epsilon of the final model by noise and presentations",
        tuple(rows),
        error="standard error, by drawing canaries again",
        checks=tuple(checks),
        notes=(note,),
        about=ask.about(training_seconds=seconds_of(_runs(grid))),
        details={"runs": records(_runs(grid))},
        figure=figure,
    )


def _times(number: int) -> str:
    return "1 presentation" if number == 1 else f"{number} presentations"


def _runs(grid: Grid) -> list[Trained]:
    return [run for line in grid.values() for run in line.values()]


def _valid(run: Trained) -> bool:
    """Neither the primary bound nor one beside it exceeds the claim of its own game."""
    result = run.result
    pairs = [(result.claim, result.bound), *((each.claim, each.bound) for each in result.views)]
    return all(claim is None or not bound.valid or bound.epsilon <= claim.epsilon for claim, bound in pairs)
