"""Rows of a table of epsilons by noise, from the pure-noise model: what Tables 2 and 5 and those of the first version share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coalmine.gaussian import gaussian_epsilon, gaussian_gap
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperRow
from coalmine.papers.one_shot.noise_model import PureNoiseRun, Simulated, measure

COLUMNS = {
    "lo-all": "epsilon_lo, all iterates",
    "est-all": "epsilon_est, all iterates",
    "lo-final": "epsilon_lo, final model",
    "est-final": "epsilon_est, final model",
}
PURE_NOISE = "by the pure-noise model"
ONE_RUN_EACH = "model: canaries and noise alone, no data and no network. The paper's numbers are of one run each."
UNDEFINED = "without noise this model has no law"
FULL = 200  # simulations at full scale: quantiles of 50 hang on the one that is largest


@dataclass(frozen=True)
class PrintedTable:
    """A table of epsilons as printed: analytic, lo-all, est-all, lo-final, est-final, by noise."""

    name: str
    delta: float
    model: PureNoiseRun  # what the model takes for it; its noise is put in
    rows: Mapping[float, tuple[str, str, str, str, str]]
    estimators: Mapping[str, str]  # which statistic of the model stands for which column

    @property
    def noises(self) -> list[float]:
        """The noise multipliers."""
        return list(self.rows)

    def value(self, noise: float, column: str) -> str:
        """One number."""
        return self.rows[noise][1 + list(COLUMNS).index(column)]

    def analytic(self, noise: float) -> float:
        """Epsilon of one release with this noise at the stated delta; the printed one need not be it."""
        return float(gaussian_epsilon(0.0, 1.0, 1 / noise, 1.0, self.delta)) if noise else float("inf")

    @property
    def clients(self) -> float:
        """The one constant of the final model: what hides a canary where there is no noise, from the row of noise 0.

        |sum of the clients' updates| / sqrt(d) of a round, in clip norms, so that without noise the epsilon of the mean cosine
        is the printed one: that row is no test. (The literal fit is larger on average, see Table 1.)
        """
        gap = gaussian_gap(float(self.value(0.0, "est-final")), self.delta)
        return float(1 / (gap * np.sqrt(self.model.rounds)))


def modelled(
    ask: Ask, printed: PrintedTable, columns: Sequence[str] = tuple(COLUMNS), *, only: Sequence[float] = ()
) -> list[PaperRow]:
    """A row for every noise and column of a table; the final model also with the clients' constant."""
    runs = ask.repeat(full=FULL, quick=20)
    noises = [noise for noise in (only or printed.noises) if noise]
    names = tuple(printed.estimators[column] for column in columns)
    found = _simulate(ask, printed, {noise: noise for noise in noises}, names, runs)
    with_clients: dict[float, list[Simulated]] = {}
    final = [column for column in columns if column.endswith("final")]
    if final:
        hidden = {noise: float(np.hypot(noise, printed.clients)) for noise in noises}
        with_clients = _simulate(ask, printed, hidden, tuple(printed.estimators[column] for column in final), runs)
    rows = []
    for noise in only or printed.noises:
        for column in columns:
            rows.append(_row(printed, noise, column, found[noise][columns.index(column)] if noise else None))
            if noise and column in final:
                row = _row(printed, noise, column, with_clients[noise][final.index(column)], "model with one constant")
                rows.append(row)
    return rows


def _simulate(
    ask: Ask, printed: PrintedTable, noises: Mapping[float, float], names: tuple[str, ...], runs: int
) -> dict[float, list[Simulated]]:
    """By noise, the statistics of the model."""
    tasks: Any = [
        (replace(printed.model, noise=used), names, printed.delta, ask.seed * 1_000_003 + number)
        for used in noises.values()
        for number in range(runs)
    ]
    values = np.array(ask.each(measure, tasks, f"{printed.name}, model")).reshape(len(noises), runs, len(names))
    return {noise: [Simulated.of(list(column)) for column in block.T] for noise, block in zip(noises, values, strict=True)}


def constant_note(printed: PrintedTable) -> str:
    """What the constant is."""
    return (
        f"model with one constant: the clients' updates add {printed.clients:.4f} to the noise of every coordinate, so that "
        "without noise the epsilon of the mean cosine is the printed one; that row is therefore no test. No verdict of its own."
    )


def _row(printed: PrintedTable, noise: float, column: str, found: Simulated | None, how: str = "model") -> PaperRow:
    paper = printed.value(noise, column)
    place = {"how": how, "noise": noise, "column": column}
    what = f"{how}, noise {noise:g}, {COLUMNS[column]}"
    if found is None:
        return PaperRow(what, paper, None, note=UNDEFINED, place=place)
    away = (float(paper) - found.mean) / found.std if found.std else float("inf")
    return PaperRow(
        what,
        paper,
        found.mean,
        found.std,
        found.verdict(paper) if how == "model" else None,  # one verdict for each printed number
        f"the paper's one run is {away:+.1f} standard deviations away",
        place,
    )
