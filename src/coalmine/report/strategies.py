"""Strategies of correlated noise in one picture: the error of the model by round, and how noise depends on earlier noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coalmine.contracts import Separation
from coalmine.report.style import BLUE, GREEN, HAIR, INK, MUTED, ORANGE, Drawing, drawing, house_style, svg

_COLOURS = {"independent": MUTED, "toeplitz": GREEN, "banded": BLUE, "blt": ORANGE, "tree": INK}
_LAGS = 24


def drawn(made: Mapping[str, Any], plan: Any) -> str:
    """An SVG document."""
    return svg(picture(made, plan))


def picture(made: Mapping[str, Any], plan: Any) -> Drawing:
    """Two panels: sensitivity · error at equal epsilon, by round; correlation of the last round's noise, by distance."""
    with house_style():
        figure, _ = drawing(460.0, 380.0)
        figure.clear()
        above, below = figure.subplots(2, 1)
        limits = Separation(plan.participations, plan.separation, plan.rounds)
        for place, (name, strategy) in enumerate(made.items()):
            colour, dashes = _COLOURS.get(name, INK), (None, None) if name in _COLOURS else (4, 2)
            errors = strategy.sensitivity(limits) * np.sqrt(strategy.errors(plan.momentum))
            above.plot(np.arange(1, errors.size + 1), errors, color=colour, dashes=dashes, label=name)
            lags = strategy.autocorrelation()[1 : _LAGS + 1]
            shift = (place - len(made) / 2) / (1.6 * len(made))
            below.vlines(np.arange(1, lags.size + 1) + shift, 0.0, lags, color=colour, linewidth=1.4)
        above.set_yscale("log")
        for axis in (above.yaxis,):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(lambda *_: "")
        above.set_title("Error of the model at equal epsilon: sensitivity · error")
        above.set_xlabel("rounds")
        above.legend(loc="lower right", ncols=2)
        below.axhline(0.0, color=HAIR, linewidth=0.8)
        below.set_title("Correlation of a round's noise with that of earlier rounds")
        below.set_xlabel("rounds before")
    return figure
