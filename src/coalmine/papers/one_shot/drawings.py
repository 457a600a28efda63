"""Drawings of the one-shot paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coalmine.contracts import Array
from coalmine.papers.kit.drawing import COLOURS, WIDTH, legend_above
from coalmine.report.style import BLUE, GREEN, INK, MUTED, ORANGE, Drawing, drawing, house_style


def quantile_lines(series: Mapping[str, Mapping[str, Sequence[float]]], quantiles: Sequence[float]) -> Drawing:
    """Quantiles of estimates: a panel for every setting, a line for every way (Figure 4)."""
    with house_style():
        figure, panels = drawing(WIDTH, 150.0 * len(series) + 30, len(series))
        for panel, (name, lines) in zip(panels, series.items(), strict=True):
            for colour, (label, values) in zip(COLOURS, lines.items(), strict=False):
                panel.plot(quantiles, values, "o-", color=colour, label=label)
            panel.set_title(name)
            panel.set_ylabel("ε", rotation=0, labelpad=8)
        panels[0].legend(loc="upper left")
        panels[-1].set_xlabel("quantile over experiments")
    return figure


def density_grid(cosines: Mapping[float, Mapping[int, Array]], data: str) -> Drawing:
    """Densities of standardised cosines: a panel for every noise, a line for every number of presentations (Figure 1)."""
    with house_style():
        figure, panels = drawing(WIDTH, 120.0 * len(cosines) + 40, len(cosines))
        largest = max(float(values.max()) for lines in cosines.values() for values in lines.values())
        z = np.linspace(-4.0, min(largest + 0.5, 40.0), 241)
        for panel, (noise, lines) in zip(panels, cosines.items(), strict=True):
            for colour, (times, values) in zip(COLOURS, lines.items(), strict=False):
                panel.plot(z, _kernel_density(values, z), color=colour, label=f"{times}×")
            panel.plot(z, np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), color=MUTED, linewidth=1.2, linestyle=(0, (4, 2)))
            panel.set_title(f"noise {noise:g}")
            panel.set_yticks([])
            panel.grid(visible=False)
        legend_above(panels[0], 4)
        panels[-1].set_xlabel(f"cosine with the final model on {data}, in standard deviations of the null (dashed)")
    return figure


def _kernel_density(values: Array, at: Array) -> Array:
    """Gaussian kernels, Scott's width."""
    width = max(float(values.std(ddof=1)) * values.size**-0.2, 1e-6)
    return np.asarray(np.exp(-(((at[:, None] - values) / width) ** 2) / 2).mean(axis=1) / (width * np.sqrt(2 * np.pi)))


def presentation_bars(found: Mapping[float, Mapping[int, tuple[float, float, float]]], data: str) -> Drawing:
    """(estimate, papers' eps_lo, valid bound) by presentations, a panel for every noise (Figures 2 and 3)."""
    with house_style():
        figure, panels = drawing(WIDTH, 120.0 * len(found) + 40, len(found))
        for panel, (noise, points) in zip(panels, found.items(), strict=True):
            place = np.arange(len(points))
            estimate, pointwise, valid = (np.array(column) for column in zip(*points.values(), strict=True))
            panel.bar(place, estimate, 0.55, color=BLUE, alpha=0.35, label="estimate")
            panel.hlines(pointwise, place - 0.3, place + 0.3, color=ORANGE, linewidth=1.6, label="papers’ ε_lo")
            panel.hlines(valid, place - 0.3, place + 0.3, color=GREEN, linewidth=1.6, label="valid bound")
            panel.set_xticks(place, [str(times) for times in points])
            panel.set_title(f"noise {noise:g}")
            panel.set_ylabel("ε", rotation=0, labelpad=8)
        legend_above(panels[0], 3)
        panels[-1].set_xlabel(f"presentations of a canary, {data}")
    return figure


def accuracy_panels(found: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]]) -> Drawing:
    """(noise, accuracy, error) of runs in percent, a panel for every data set, a colour for every way of training (Table 3)."""
    with house_style():
        figure, panels = drawing(WIDTH, 150.0 * len(found) + 50, len(found))
        for panel, (title, ways) in zip(panels, found.items(), strict=True):
            noises = sorted({noise for points in ways.values() for noise, *_ in points})
            for number, (colour, (way, points)) in enumerate(zip(COLOURS, ways.items(), strict=False)):
                at, values, errors = np.array(points).T
                where = [noises.index(noise) + 0.12 * (number - (len(ways) - 1) / 2) for noise in at]
                panel.errorbar(where, values, yerr=errors, fmt="o", color=colour, markersize=4, capsize=2, label=way)
            panel.set_xticks(range(len(noises)), [f"{noise:g}" for noise in noises])
            panel.set_title(title)
            panel.set_ylabel("%", rotation=0, labelpad=8)
        widest = max(panels, key=lambda panel: len(panel.get_legend_handles_labels()[1]))
        figure.legend(*widest.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        panels[-1].set_xlabel("noise multiplier")
    return figure


def matrix(rows: Sequence[str], columns: Sequence[str], marks: Sequence[Sequence[bool]]) -> Drawing:
    """Which row has which column: a filled dot, else a small hollow one."""
    with house_style():
        figure, (axes,) = drawing(WIDTH, 22.0 * len(rows) + 60)
        for place, line in enumerate(marks):
            for column, marked in enumerate(line):
                face, size = (BLUE, 8) if marked else ("none", 4)
                axes.plot(column, place, "o", color=BLUE if marked else MUTED, markerfacecolor=face, markersize=size)
        axes.set_xticks(range(len(columns)), [name.replace(" ", "\n") for name in columns], color=INK)
        axes.set_yticks(range(len(rows)), rows, color=INK)
        axes.xaxis.tick_top()
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False)
    return figure
