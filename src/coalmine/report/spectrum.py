"""The spectrum of a covariance with the water on it, and per-record epsilons, as drawings.

Eigenvalues and epsilons of records are functions of the data: such a page belongs to the auditor, and is not to be published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from coalmine.report.digits import number
from coalmine.report.evidence import Evidence
from coalmine.report.style import BLUE, INK, ORANGE, drawing, house_style

GROUND, RED = "#8a6d3b", "#b22222"
_BINS = 40
_NEAR = 0.1  # epsilons below it are drawn on a straight scale
_BIRD = "$\\smile$"
_SECRET = "These numbers are functions of the data: keep this page, and do not publish it."
Plate = tuple[str, str, Callable[[], Any], str]


def plates(evidence: Evidence) -> Iterator[Plate]:
    """The drawings of a run whose canaries were aimed, with what stands below them."""
    known, result = evidence.spectrum, evidence.result
    if not known:
        return
    if any(known["ground"]) or known["level"] > 0:
        measured = [("measured, at least", result.bound.epsilon)]
        measured += [("measured, about", result.estimate.epsilon)] if result.estimate is not None else []
        compared = ", ".join(f"{what} {number(epsilon)}" for what, epsilon in (*measured, *known["marks"]))
        yield (
            "water",
            "The water and the ground",
            lambda: water_and_ground(known["ground"], known["level"], heights=known["heights"]),
            "The noise of a round at the first model, by direction: what sampling weights make (brown), what is added up to "
            f"the level (blue), how much noise is where canaries are (birds). {_SECRET}",
        )
        yield (
            "line",
            "Measured, and what could be: epsilon of one record",
            lambda: number_line(measured, known["marks"]),
            f"{compared[:1].upper()}{compared[1:]}. All but the measured numbers is of one record in as many rounds as "
            f"a canary has, by the covariance at the first model. {_SECRET}",
        )
    if known["epsilons"]:
        values = np.array(known["epsilons"])
        outside = int(np.isinf(values).sum())
        said = f"{outside} of {values.size} records are outside the span of all others" if outside else "no record is infinite"
        yield (
            "records",
            "Were there no noise: epsilon of single records",
            lambda: epsilons_of_records(known["epsilons"]),
            f"One round of secure aggregation with Gaussian weights alone, a record against none: {said}. {_SECRET}",
        )


def water_and_ground(spectrum: Sequence[float], level: float, heights: Sequence[float] = ()) -> Any:
    """Eigenvalues in falling order: the ground is noise that the data have, the water is what is added up to the level.

    Isotropic noise of the same level would stand on top of the ground: the dashed line. `heights` are variances where canaries
    are: a bird sits where the spectrum is nearest to its height.
    """
    values = np.asarray(spectrum, np.float64)
    least = 1e-3 * (level if level > 0 else float(values.max(initial=1.0)))
    ground = np.sort(np.maximum(values, least))[::-1]
    place = np.arange(ground.size)
    with house_style():
        figure, (axes,) = drawing(420.0, 220.0)
        axes.set_yscale("log")
        axes.fill_between(place, least, ground, step="mid", color=GROUND, linewidth=0, label="ground: in the data")
        top = np.maximum(ground, level)
        if level > 0:
            axes.fill_between(place, ground, top, step="mid", color=BLUE, linewidth=0, label="water: added")
            axes.plot(place, ground + level, "--", color=INK, linewidth=1.0, label="isotropic noise instead")
        if len(heights):
            tall = np.maximum(np.asarray(heights, np.float64), least)
            perches = np.interp(-np.log(tall), -np.log(top), place) if np.ptp(top) else np.linspace(0, place[-1], tall.size)
            spread = np.linspace(-0.02, 0.02, tall.size) * ground.size  # so that those of one height can be told apart
            axes.plot(
                np.clip(perches + spread, 0, place[-1]), tall, marker=_BIRD, linestyle="none", color=ORANGE, label="canaries"
            )
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
        axes.yaxis.set_minor_formatter(lambda *_: "")
        axes.set_xlabel("direction")
        axes.set_ylabel("variance")
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=2, borderaxespad=0.2, columnspacing=1.2)
    return figure


def number_line(measured: Sequence[tuple[str, float]], compared: Sequence[tuple[str, float]] = ()) -> Any:
    """Epsilons on one line, what was measured and what it is compared with; what is infinite stands at the right end."""
    marks = [(what, epsilon, ORANGE) for what, epsilon in measured] + [(what, epsilon, BLUE) for what, epsilon in compared]
    finite = [epsilon for _, epsilon, _ in marks if np.isfinite(epsilon)]
    end = 2 * max([*finite, _NEAR])
    with house_style():
        figure, (axes,) = drawing(420.0, 40.0 + 18.0 * len(marks))
        axes.set_xscale("symlog", linthresh=_NEAR)
        axes.axhline(0, color=INK, linewidth=1.0)
        for row, (what, epsilon, colour) in enumerate(reversed(marks), 1):
            place = min(epsilon, end)
            axes.plot([place, place], [0, row], color=colour, linewidth=1.0)
            axes.plot([place], [0], "o", color=colour, markersize=4)
            left = np.arcsinh(place / _NEAR) > np.arcsinh(end / _NEAR) / 2  # the name stands where there is room
            said = f"{what} {number(epsilon)}"
            axes.text(place, row, f"{said} " if left else f" {said}", ha="right" if left else "left", va="center")
        axes.set_xlim(0, end)
        axes.set_ylim(-0.5, len(marks) + 0.7)
        axes.set_yticks([])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("epsilon")
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
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=2, borderaxespad=0.2, columnspacing=1.2)
    return figure
