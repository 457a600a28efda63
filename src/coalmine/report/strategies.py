"""Strategies of correlated noise in one picture: the error of the model by round, and how noise depends on earlier noise.

On the page of a run there is that picture of its own strategy, and one of what canaries could show to whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from coalmine.contracts import Description, Separation
from coalmine.mechanisms.strategies import KINDS, CorrelatedStrategy, Independent, Plan, read_strategy
from coalmine.report.evidence import Evidence, drawable
from coalmine.report.figures import NothingToShow
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


def plates(evidence: Evidence) -> Iterator[tuple[str, str, Callable[[], Drawing], str]]:
    """The drawings of a run whose noise is correlated over rounds, with what stands below them."""
    result = evidence.result
    design = None if result.claim is None or result.claim.description is None else _design(result.claim.description)
    if design is not None:
        momentum = evidence.config.get("server", {}).get("momentum", 0.0)
        plan = Plan(design.rounds, momentum=float(momentum) if drawable(momentum) else 0.0)
        yield (
            "strategy",
            "How the noise cancels in the model",
            lambda: _own(design, plan),
            "Above, for clients that take part once: the error that noise leaves in the model after each round, beside that of "
            "independent noise of the same epsilon. Below, what the noise of a round takes back of earlier noise.",
        )
    seen = next((dict(each.data) for each in result.caveats if each.code == "correlated-seen"), {})
    if all(drawable(seen.get(name)) for name in ("claimed", "described", "diagonal")):
        mean: Any = result.diagnostics.get("mean")
        yield (
            "gaps",
            "Who sees the canaries through this noise",
            lambda: gaps(seen, float(mean) if mean is not None and drawable(mean) else None),
            "Standard deviations by which an inserted canary lies above the others on average. Whoever adds up rounds as if "
            "their noise were independent sees less, and would take noise that is too small for right.",
        )


def _design(said: Description) -> CorrelatedStrategy | None:
    """The strategy of a description, which may have been read from a file; None where noise is not that of a strategy."""
    written = said.to_dict().get("noise") or {}
    try:
        return read_strategy(written["rounds"]) if written["rounds"]["kind"] in KINDS else None
    except (KeyError, TypeError, ValueError):  # a file that was edited
        return None


def _own(design: CorrelatedStrategy, plan: Plan) -> Drawing:
    try:
        return picture({"independent": Independent(design.rounds), design.kind: design}, plan)
    except ValueError as error:  # a matrix that is known by its hash only, or too many rounds
        raise NothingToShow(str(error)) from None


def gaps(seen: Mapping[str, Any], measured: float | None) -> Drawing:
    """The gap of a canary by threat model, the claim as a line, and what was measured as a dot."""
    names = (("diagonal", "each round for itself", MUTED), ("estimated", "correlation measured", GREEN))
    rows = [(words, float(seen[name]), colour) for name, words, colour in names if drawable(seen.get(name))]
    rows.append(("correlation described", float(seen["described"]), BLUE))
    with house_style():
        figure, (axes,) = drawing(420.0, 150.0)
        places = np.arange(len(rows))
        axes.barh(places, [value for _, value, _ in rows], color=[colour for *_, colour in rows], height=0.62)
        axes.set_yticks(places, [words for words, *_ in rows])
        axes.axvline(float(seen["claimed"]), color=INK, linewidth=1.2, label="claim, worst canary")
        if measured is not None:
            axes.plot([measured], [places[-1]], "o", color=ORANGE, markersize=5, label="measured, mean")
        axes.set_xlim(0.0, 1.06 * max(float(seen["claimed"]), measured or 0.0, *(value for _, value, _ in rows)))
        axes.set_xlabel("standard deviations")
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=2, borderaxespad=0.2, columnspacing=1.2)
    return figure
