"""Pictures of rates: theories as lines, simulations as dots, lower bounds dashed; both axes logarithmic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalmine.report.style import BLUE, GREEN, INK, MUTED, ORANGE, drawing, house_style

COLOURS = (ORANGE, BLUE, GREEN, INK, MUTED)
Line = tuple[Any, Any]  # two sequences of numbers


def rates(lines: Mapping[str, Line], dots: Mapping[str, Line], dashed: Mapping[str, Line], across: str, up: str) -> Any:
    """A picture of curves that are powers."""
    with house_style():
        figure, (axes,) = drawing(420.0, 280.0)
        for colour, (name, (places, values)) in zip(COLOURS, lines.items(), strict=False):
            axes.plot(places, values, color=colour, label=name)
        for colour, (name, (places, values)) in zip(COLOURS, dots.items(), strict=False):
            axes.plot(places, values, "o", color=colour, markersize=4.5, label=name)
        for name, (places, values) in dashed.items():
            axes.plot(places, values, color=MUTED, dashes=(4, 3), label=name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(lambda *_: "")
        axes.set_xlabel(across)
        axes.set_title(up)
        axes.legend(loc="best")
    return figure
