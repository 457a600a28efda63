"""The spectrum of a covariance with the water on it, and per-record epsilons, as drawings.

Eigenvalues and epsilons of records are functions of the data: such a page belongs to the auditor, and is not to be published.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coalmine.report.style import BLUE, INK, ORANGE, drawing, house_style

GROUND, RED = "#8a6d3b", "#b22222"
_BINS = 40


def water_and_ground(spectrum: Sequence[float], level: float, canaries: Sequence[int] = ()) -> Any:
    """Eigenvalues in falling order: the ground is noise that the data have, the water is what is added up to the level.

    Isotropic noise of the same level would stand on top of the ground: the dashed line. `canaries` are places of canaries among
    the directions.
    """
    ground = np.sort(np.maximum(np.asarray(spectrum, np.float64), level * 1e-3))[::-1]
    place = np.arange(ground.size)
    with house_style():
        figure, (axes,) = drawing(420.0, 220.0)
        axes.set_yscale("log")
        axes.fill_between(place, level * 1e-3, ground, step="mid", color=GROUND, linewidth=0, label="ground: in the data")
        axes.fill_between(place, ground, np.maximum(ground, level), step="mid", color=BLUE, linewidth=0, label="water: added")
        axes.plot(place, ground + level, "--", color=INK, linewidth=1.0, label="isotropic noise instead")
        if len(canaries):
            axes.plot(list(canaries), np.maximum(ground, level)[list(canaries)], "v", color=ORANGE, label="canaries")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
        axes.yaxis.set_minor_formatter(lambda *_: "")
        axes.set_xlabel("direction")
        axes.set_ylabel("variance")
        axes.legend(loc="upper right")
    return figure


def epsilons_of_records(epsilons: Sequence[float]) -> Any:
    """A histogram of per-record epsilons, those outside the span of all others in red at the right."""
    values = np.asarray(epsilons, np.float64)
    finite = values[np.isfinite(values) & (values > 0)]
    with house_style():
        figure, (axes,) = drawing(420.0, 200.0)
        edges = np.geomspace(finite.min(), finite.max() * 1.0001, _BINS + 1) if finite.size else np.array([0.1, 1.0])
        counts, _ = np.histogram(finite, edges)
        axes.bar(np.arange(counts.size), counts, width=0.95, color=BLUE, label="inside the span")
        outside = int(np.isinf(values).sum())
        if outside:
            axes.bar([counts.size + 1], [outside], width=0.95, color=RED, label="outside: infinite")
        ticks = np.linspace(0, counts.size, 5).astype(int)
        names = [f"{edges[min(tick, edges.size - 1)]:.3g}" for tick in ticks]
        axes.set_xticks([*ticks, *([counts.size + 1] if outside else [])], [*names, *(["∞"] if outside else [])])
        axes.set_xlabel("epsilon of a record")
        axes.set_ylabel("records")
        axes.legend(loc="upper right")
    return figure
