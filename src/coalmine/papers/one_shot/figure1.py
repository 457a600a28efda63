"""Figure 1: densities of the cosines with the final model, by noise and presentations."""

from __future__ import annotations

from typing import Any

from coalmine.papers.kit.checking import TOGETHER
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult, PaperRow
from coalmine.papers.kit.rules import in_order
from coalmine.papers.kit.trained import records, seconds_of
from coalmine.papers.one_shot.families import CHATS, ON_CHATS, chat
from coalmine.papers.one_shot.presentations import CHAT_NOISES, checks_of, circumstances, grid_of, runs_of, times_of


def reproduce(ask: Ask) -> PaperResult:
    """Densities of the cosines with the final model."""
    grid = grid_of(ask, chat, CHAT_NOISES)
    rows: list[PaperRow] = []
    for noise, line in grid.items():
        means, errors = [run.mean_cosine for run in line.values()], [run.mean_cosine_error for run in line.values()]
        good = in_order(list(line), means, errors)
        for times, mean, error, fits in zip(line, means, errors, good, strict=True):
            width = float(line[times].seen.final.std(ddof=1))
            rows.append(
                PaperRow(
                    f"{ON_CHATS}, noise {noise:g}, {times_of(times)}, mean cosine",
                    "more separated with each",
                    mean,
                    error,
                    fits,
                    f"width {width:.2f}, in standard deviations of the null; {circumstances(line[times])}",
                    {"noise": noise, "times": times, "column": "mean"},
                )
            )

    def figure() -> Any:
        from coalmine.papers.one_shot.drawings import density_grid

        cosines = {noise: {times: run.seen.final for times, run in line.items()} for noise, line in grid.items()}
        return density_grid(cosines, ON_CHATS)

    return PaperResult(
        "figure1",
        f"Figure 1 on {ON_CHATS}, cosines of inserted canaries with the final model, by noise and presentations",
        tuple(rows),
        error="standard error over canaries",
        checks=tuple(checks_of(grid)),
        notes=(CHATS, TOGETHER),
        about=ask.about(training_seconds=seconds_of(runs_of(grid))),
        details={"runs": records(runs_of(grid))},
        figure=figure,
    )
