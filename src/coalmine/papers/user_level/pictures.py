"""Pictures of rankings and of lifted bounds, from the rows of an experiment alone: a published result can be drawn anew.

users, texts   AUROC by attack texts, a line for each number of users or of texts
phrases        AUROC of canary users by the length of their string, a line for each number of epochs
gaussian       mean bounds by models, a line for each number of canaries; the true value at the threshold dashed
fashion        mean bounds by canaries that count, a line for each kind of canary
bias           width of the interval by canaries beside sqrt(1/nk) + n^(-3/4)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scipy.special import ndtr

from coalmine.attacks.user_inference import group_label
from coalmine.gaussian import gaussian_gap
from coalmine.papers.canife.drawings import Line, lines
from coalmine.papers.kit.paper_result import PaperRow
from coalmine.papers.user_level.lifted_bias import BIAS, WIDTH
from coalmine.papers.user_level.lifted_gaussian import DELTA, EPSILON

_SHOWN = (1, 4, 16, 64)  # canaries of a model
_SHARED = (4, 8, 16, 32)  # characters


def _curves(rows: Iterable[PaperRow], named: Callable[[Mapping[str, Any]], str], across: str) -> dict[str, Line]:
    """A curve for every name, by what stands across."""
    found: dict[str, list[PaperRow]] = {}
    for row in rows:
        found.setdefault(named(row.place), []).append(row)
    return {name: _line(own, across) for name, own in found.items()}


def _line(rows: Sequence[PaperRow], across: str) -> Line:
    error = [row.error or 0.0 for row in rows]
    return Line([row.place[across] for row in rows], [row.ours or 0.0 for row in rows], error if any(error) else None)


def by_texts(rows: Sequence[PaperRow]) -> Any:
    """AUROC by attack texts."""
    varied = "users" if len({row.place["users"] for row in rows}) > 1 else "texts"
    said = "{} users who join" if varied == "users" else "at most {} texts each"
    curves = _curves(rows, lambda place: said.format(place[varied]), "m")
    return lines({"AUROC": curves}, "attack texts of a user", log_x=True)


def by_string(rows: Sequence[PaperRow]) -> Any:
    """AUROC of canary users by the length of their string, which has given the group its name."""
    lengths = {group_label(shared): shared for shared in _SHARED}
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row.place["who"] in lengths:
            found.setdefault(f"{row.place['epochs']:g} epochs", []).append((lengths[row.place["who"]], row.ours or 0.0))
    curves = {name: Line([at for at, _ in own], [value for _, value in own]) for name, own in found.items()}
    return lines({"AUROC of canary users": curves}, "shared characters", log_x=True)


def bounds(rows: Sequence[PaperRow]) -> Any:
    """Mean bounds by models, a panel for each interval."""
    gap = gaussian_gap(EPSILON, DELTA)
    true = math.log((0.5 - DELTA) / float(ndtr(-gap)))
    panels = {}
    for kind in dict.fromkeys(row.place["kind"] for row in rows):
        own = [row for row in rows if row.place["kind"] == kind and row.error is not None and row.place["k"] in _SHOWN]
        sizes = sorted({row.place["n"] for row in own})
        theory = Line([sizes[0], sizes[-1]], [true, true], dashed=True)
        curves = _curves(own, lambda place: f"k = {place['k']}", "n")
        panels[f"{kind}: mean bound, claim {EPSILON:g}"] = {**curves, "theory at this threshold": theory}
    figure = lines(panels, "models with canaries", log_x=True)
    sizes = sorted({row.place["n"] for row in rows})
    for axes in figure.axes:
        axes.set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
    return figure


def kinds(rows: Sequence[PaperRow]) -> Any:
    """Mean Wilson bounds by canaries that count, for the largest number of models, a panel for each adversary."""
    most = max(row.place["n"] for row in rows)
    panels = {}
    for view in dict.fromkeys(row.place["view"] for row in rows):
        place = {"view": view, "n": most, "kind": "wilson"}
        own = [row for row in rows if place.items() <= row.place.items()]
        panels[f"{view}: mean Wilson bound, {most} models"] = _curves(own, lambda place: str(place["canaries"]), "k")
    return lines(panels, "canaries of a model that count", log_x=True)


def widths(rows: Sequence[PaperRow]) -> Any:
    """Width of the interval by canaries, and bias of the rate with its standard error."""
    own = {name: [row for row in rows if row.what == name.format(row.place["k"])] for name in (WIDTH, BIAS)}
    shown = _line(own[WIDTH], "k")
    theory = [math.sqrt(1 / (row.place["n"] * row.place["k"])) + row.place["n"] ** -0.75 for row in own[WIDTH]]
    width = {"width of the interval": shown, "theory: sqrt(1/nk) + n^(-3/4)": Line(shown.x, theory, dashed=True)}
    bias = {"bias of the true positive rate": _line(own[BIAS], "k")}
    return lines({"width": width, "bias": bias}, "canaries of a model", log_x=True)
