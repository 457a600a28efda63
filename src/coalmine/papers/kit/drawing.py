"""Drawings of experiments in the house style: the paper's numbers hollow, ours filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coalmine.papers.kit.paper_result import PaperResult, PaperRow
from coalmine.report.style import BLUE, GREEN, INK, ORANGE, Drawing, drawing, house_style, svg

COLOURS = (BLUE, ORANGE, GREEN, INK)
WIDTH = 420.0
_ROW, _LETTER, _PLOT = 17.0, 5.5, 260.0  # points
_SPREAD = 30.0  # values that differ by more than this factor need a logarithmic axis


def drawn(result: PaperResult) -> dict[str, str]:
    """The SVG documents of an experiment by name: its own drawing, or both numbers of every row; then its further ones."""
    main = result.figure() if result.figure is not None else comparison(result.rows)
    further = {f"{result.name}-{name}": svg(draw()) for name, draw in result.further.items()}
    return {result.name: svg(main), **further}


def comparison(rows: Sequence[PaperRow]) -> Drawing:
    """Both numbers of every row, one under the other."""
    shown = [row for row in rows if row.ours is not None and np.isfinite(row.ours)]
    with house_style():
        letters = max((len(row.what) for row in shown), default=0)
        figure, (axes,) = drawing(_PLOT + _LETTER * letters, max(_ROW * len(shown) + 60, 120))
        place = np.arange(len(shown))
        ours = np.array([row.ours for row in shown], dtype=float)
        printed = np.array([np.nan if row.printed is None else row.printed for row in shown])
        errors = np.array([row.error or 0.0 for row in shown])
        known = np.isfinite(printed) & (printed < 1e300)
        if known.any():
            axes.plot(printed[known], place[known], "D", color=ORANGE, markerfacecolor="none", markersize=6, label="paper")
        axes.errorbar(ours, place, xerr=errors, fmt="o", color=BLUE, markersize=4, capsize=2, linewidth=1.2, label="ours")
        both = np.concatenate([ours, printed[known]])
        if both.size and both.min() > 0 and both.max() > _SPREAD * both.min():
            axes.set_xscale("log")
            # the usual formatter writes mathematics, which is not set here
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda *_: "")
        axes.set_yticks(place, [row.what for row in shown], color=INK)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel("value")
        if shown:
            axes.legend(
                loc="upper left", bbox_to_anchor=(0.0, 1.0 + 26.0 / (_ROW * len(shown) + 20)), ncols=2, borderaxespad=0.0
            )
    return figure


def legend_above(axes: Any, columns: int) -> None:
    """A legend beside the title, over no data."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, borderaxespad=0.0)
