"""Crafted canaries on a page: measured rounds, the composed numbers, what the design is worth, and the canary itself."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from coalmine.contracts.crafted_sentences import draws_in_words, finite_printed, printed_words
from coalmine.report.style import BLUE, GREEN, INK, MUTED, ORANGE, Drawing, drawing, house_style

WIDTH, HEIGHT = 350.0, 226.0
Plate = tuple[str, str, Callable[[], Drawing], str]
Numbers = Mapping[str, Any]
_MOST_LAYERS = 12
_LETTERS = 40  # of a canary's text, in a line
_PRINTED = "paper, as printed"


def plates(training: Numbers) -> Iterator[Plate]:
    """(name, title, drawing, caption) of what a result says about crafted canaries; nothing where it says nothing."""
    crafted = training.get("crafted")
    try:
        if crafted and crafted["rounds"]:
            yield from _plates(crafted, float(training["epsilon_of_clients"]))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):  # a file of somebody else
        return


def _plates(crafted: Numbers, own: float) -> Iterator[Plate]:
    rounds = crafted["rounds"]
    first, last = rounds[0], rounds[-1]
    perfect = last["printed"].get("perfect_canary")
    said = ""
    if perfect is not None:
        said = (
            f" In the last of them the paper's estimator (at delta 1/n, no bound) shows {printed_words(last['printed'])}; "
            f"a perfect canary would show {_text(perfect['epsilon'])} by this estimator, with as many draws of either kind."
        )
    yield (
        "crafted-rounds",
        "Crafted canaries, round by round",
        partial(_by_round, [_point(each) for each in rounds]),
        "What one round shows of data canaries that were designed for its model, beside the claim of one round at the same "
        f"delta. Bounds hold for all measured rounds at once, with {_share(1 - (1 - first['confidence']) * len(rounds))} "
        f"confidence.{said}",
    )
    composed, names = crafted["composed"], []
    if "printed" in composed:
        printed = composed["printed"]
        names += [(_PRINTED, finite_printed(printed)), ("perfect, as printed", printed["perfect_canary"])]
    if composed["bound"]["epsilon"] is not None:
        names.append(("at least", composed["bound"]["epsilon"]))
        names.append(("if constant between", composed["bound_if_constant"]["epsilon"]))
    names.append(("accountant", own))
    values = [(name, float(value)) for name, value in names]
    yield (
        "crafted-composed",
        "From rounds to the training",
        partial(_bars, values, "epsilon of the whole training", {_PRINTED: MUTED, "perfect, as printed": MUTED}),
        "As printed (grey) is the paper's composed number and no bound: it stays low even for a perfect canary. "
        + (
            "At least: lower limits of the measured rounds, composed; it assumes Gaussian rounds and Poisson sampling."
            if composed["bound"]["epsilon"] is not None
            else "Clients are not sampled by Poisson here, so that no bound is composed: a bound of any round holds as it is."
        ),
    )
    yield (
        "crafted-design",
        "What the design is worth",
        partial(_design, [(each["round"], each["design"]) for each in rounds]),
        f"On clients that the design never saw. Visibility is reach over noise and overlap together; "
        f"best possible {_text(1 / last['noise']['claimed'])}, here {_text(last['design']['visibility'])} (efficiency "
        f"{last['design']['efficiency']:.3f}). Health, the paper's measure, is {last['design']['health']:.4f} and says little.",
    )
    shares = sorted(((str(name), float(each)) for name, each in last["design"]["shares"].items()), key=lambda item: -item[1])
    if shares:
        yield (
            "crafted-layers",
            "Where the canaries are",
            partial(_bars, shares[:_MOST_LAYERS], "share of the squared length", {}, 1.0),
            "Of the canaries' updates, by layer. A canary that lives in one layer misses a fault in another; "
            "direction canaries are in all of them.",
        )
    if "canary" in crafted:
        yield _canary(crafted["canary"])
    if "frozen_draws" in crafted:
        draws = crafted["frozen_draws"]
        costs = [("training", float(draws["epsilon"])), ("and draws, published", float(draws["if_published"]))]
        yield (
            "crafted-draws",
            "Frozen draws are releases",
            partial(_bars, costs, "epsilon of a client", {"and draws, published": ORANGE}),
            f"Frozen draws: {draws_in_words(draws)}. Scores of frozen draws are as secret as the seed.",
        )


def _canary(canary: Numbers) -> Plate:
    if canary["kind"] == "text":
        text = str(canary["text"])[:400]
        return (
            "crafted-canary", "A crafted canary", partial(_writing, text), f"A text that was designed for the "
            f"model before round {int(canary['round'])}. The design pool is public.",
        )  # fmt: skip
    pixels = np.asarray(canary["pixels"], dtype=float)
    if pixels.ndim == 3:
        pixels = pixels.mean(axis=0 if pixels.shape[0] <= 4 else 2)
    if pixels.ndim != 2 or pixels.size > 64 * 64 or not np.isfinite(pixels).all():
        raise ValueError
    return (
        "crafted-canary", "A crafted canary", partial(_picture, pixels), f"An image of class {int(canary['label'])} that was "
        f"designed for the model before round {int(canary['round'])}; pixels from {pixels.min():.2g} to {pixels.max():.2g}. "
        "The design pool is public.",
    )  # fmt: skip


def _point(each: Numbers) -> dict[str, float]:
    printed = each["printed"]
    found = {
        "round": each["round"], "claim": each["claim"], "bound": each["bound"]["epsilon"], "about": each["estimate"]["epsilon"],
        "low": each["estimate"]["low"], "high": each["estimate"]["high"],
    }  # fmt: skip
    if "epsilon" in printed:
        found |= {"printed": finite_printed(printed), "perfect": printed["perfect_canary"]["epsilon"]}
    return {name: float(value) for name, value in found.items()}


def _by_round(points: Sequence[Mapping[str, float]]) -> Drawing:
    rounds = [point["round"] for point in points]
    with house_style():
        figure, (axes,) = drawing(WIDTH, HEIGHT + 26)
        axes.plot(rounds, [point["claim"] for point in points], color=INK, linestyle=(0, (4, 2)), linewidth=1.3, label="claim")
        if len(points) == 1:
            axes.axhline(points[0]["claim"], color=INK, linestyle=(0, (4, 2)), linewidth=1.3)
        for point in points:
            if math.isfinite(point["high"]):
                axes.plot([point["round"]] * 2, [point["low"], point["high"]], color=BLUE, linewidth=1.2)
        _marks(axes, points, "about", "o", BLUE, "about")
        _marks(axes, points, "bound", "^", GREEN, "at least")
        _marks(axes, points, "printed", "x", MUTED, _PRINTED)
        perfect = [(point["round"], point["perfect"]) for point in points if "perfect" in point]
        if len(perfect) == 1:
            axes.axhline(perfect[0][1], color=MUTED, linewidth=0.8, label="perfect canary, as printed")
        elif perfect:
            axes.plot(*zip(*perfect, strict=True), color=MUTED, linewidth=0.8, label="perfect canary, as printed")
        axes.set_ylim(bottom=0)
        if len(points) == 1:
            axes.set_xlim(rounds[0] - 1, rounds[0] + 1)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlabel("round")
        axes.set_ylabel("epsilon of one round")
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=3, borderaxespad=0.2, columnspacing=0.9)
    return figure


def _marks(axes: Axes, points: Sequence[Mapping[str, float]], name: str, mark: str, colour: str, label: str) -> None:
    shown = [(point["round"], point[name]) for point in points if math.isfinite(point.get(name, math.inf))]
    if shown:
        axes.plot(*zip(*shown, strict=True), mark, color=colour, markersize=4.5, label=label)


def _bars(values: Sequence[tuple[str, float]], label: str, colours: Mapping[str, str], most: float | None = None) -> Drawing:
    finite = [value for _, value in values if math.isfinite(value)]
    top = most or max([*finite, 1e-9])
    with house_style():
        figure, (axes,) = drawing(WIDTH, 60.0 + 24.0 * len(values))
        for place, (name, value) in enumerate(values):
            axes.barh(place, min(value, top), height=0.55, color=colours.get(name, BLUE))
            axes.text(min(value, top) + 0.015 * top, place, "∞" if math.isinf(value) else _text(value), va="center", fontsize=9)
        axes.set_yticks(range(len(values)), [name[:24] for name, _ in values])
        axes.set_ylim(len(values) - 0.5, -0.5)
        axes.set_xlim(0, 1.18 * top)
        axes.set_xlabel(label)
    return figure


def _design(rounds: Sequence[tuple[int, Numbers]]) -> Drawing:
    last = rounds[-1][1]
    with house_style():
        if len(rounds) == 1:
            return _bars(
                [(name, float(last[name])) for name in ("reach", "overlap", "efficiency", "health")], "", {"health": MUTED}
            )
        figure, (axes,) = drawing(WIDTH, HEIGHT)
        for name, colour in (("health", MUTED), ("reach", GREEN), ("overlap", ORANGE), ("efficiency", BLUE)):
            values = [(number, float(each[name])) for number, each in rounds]
            axes.plot(*zip(*values, strict=True), "o-", color=colour, markersize=3.2, linewidth=1.0, label=name)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlabel("round")
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=4, borderaxespad=0.2, columnspacing=0.9)
    return figure


def _picture(pixels: np.ndarray[Any, Any]) -> Drawing:
    """Grey values as rectangles: a page holds no picture from elsewhere."""
    with house_style():
        figure, (axes,) = drawing(WIDTH, HEIGHT)
        axes.pcolormesh(pixels[::-1], cmap="gray", edgecolors="none", antialiased=False, rasterized=False)
        axes.set_aspect("equal")
        axes.set_axis_off()
    return figure


def _writing(text: str) -> Drawing:
    lines = [each for line in text.splitlines() or [""] for each in (textwrap.wrap(line, _LETTERS) or [""])]
    with house_style():
        figure, (axes,) = drawing(WIDTH, 40.0 + 16.0 * len(lines))
        axes.text(0.02, 0.5, "\n".join(lines), transform=axes.transAxes, va="center", family="monospace", fontsize=10)
        axes.set_axis_off()
    return figure


def _text(value: Any) -> str:
    return f"{float(value):.3g}"


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"
