"""Pictures of attacks: scores as histograms, sweeps as lines, and measured rounds along a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import LogLocator, NullLocator

from coalmine.papers.kit.drawing import WIDTH
from coalmine.report.style import BLUE, GREEN, INK, MUTED, ORANGE, Drawing, drawing, house_style

COLOURS = (BLUE, ORANGE, GREEN, INK, MUTED)
_HEIGHT = 190.0


class Line(NamedTuple):
    """A curve with its errors; dashed ones are theory, dotted ones the most that can be."""

    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    dashed: bool = False
    dotted: bool = False


def histograms(panels: Mapping[str, Mapping[str, Any]]) -> Drawing:
    """Scores without and with the canary, a panel for each attack."""
    with house_style():
        figure, axes = drawing(WIDTH, _HEIGHT * len(panels), len(panels))
        for axis, (title, found) in zip(axes, panels.items(), strict=True):
            both = np.array([*found["with"], *found["without"]])
            edges = np.linspace(both.min() - 0.05, both.max() + 0.05, 61).tolist()
            axis.hist(found["without"], edges, color=BLUE, alpha=0.75, label="without the canary")
            axis.hist(found["with"], edges, color=ORANGE, alpha=0.75, label="with it")
            axis.set_title(title)
        axes[0].legend(loc="upper right")
        axes[-1].set_xlabel("score, in clip norms")
    return figure


def lines(panels: Mapping[str, Mapping[str, Line]], across: str, *, log_x: bool = False, log_y: bool = False) -> Drawing:
    """Curves by name, a panel for each quantity."""
    with house_style():
        figure, axes = drawing(WIDTH, (_HEIGHT + 20) * len(panels), len(panels))
        for axis, (title, curves) in zip(axes, panels.items(), strict=True):
            for colour, (name, line) in zip(COLOURS * 3, curves.items(), strict=False):
                style: Any = {"color": colour, "marker": "o", "markersize": 4}
                if line.dashed or line.dotted:
                    style = {"color": MUTED, "dashes": (1.5, 2) if line.dotted else (4, 3)}
                axis.errorbar(line.x, line.y, yerr=line.error, capsize=2, linewidth=1.2, label=name, **style)
            _scale(axis, log_x, log_y)
            axis.set_title(title)
            axis.legend(loc="best")
        axes[-1].set_xlabel(across)
    return figure


def _scale(axis: Any, log_x: bool, log_y: bool) -> None:
    for wanted, own, set_scale in ((log_x, axis.xaxis, axis.set_xscale), (log_y, axis.yaxis, axis.set_yscale)):
        if wanted:
            set_scale("log")
            own.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            own.set_major_formatter(lambda value, _: f"{value:g}")  # the usual one writes mathematics, which is not set here
            own.set_minor_locator(NullLocator())
