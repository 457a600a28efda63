"""How well an attack tells who took part: its rankings, and the rates of every threshold, as drawings. Never an epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coalmine.contracts import Array
from coalmine.report.style import BLUE, MUTED, ORANGE, Drawing, drawing, house_style
from coalmine.scores import Scores

WIDTH = 350.0
_COLOURS = (BLUE, ORANGE)


def aurocs(rankings: Sequence[Mapping[str, Any]]) -> Drawing:
    """One line for every ranking: the AUROC and its interval, 0.5 is guessing."""
    with house_style():
        figure, (axes,) = drawing(WIDTH, 76.0 + 26.0 * len(rankings))
        axes.axvline(0.5, color=MUTED, linestyle="--", linewidth=1.0)
        for place, each in enumerate(rankings):
            if each["low"] is not None:
                axes.plot([each["low"], each["high"]], [place, place], color=BLUE, linewidth=2.0)
            axes.plot([each["auroc"]], [place], "o", color=BLUE, markersize=5)
        axes.set_yticks(range(len(rankings)), [_broken(each["label"] or "all") for each in rankings])
        axes.set_ylim(len(rankings) - 0.5, -0.5)
        axes.set_xlim(min(0.3, *(each["auroc"] - 0.02 for each in rankings)), 1.02)
        axes.set_xlabel("AUROC; dashed: guessing")
    return figure


def roc(scores: Scores) -> Drawing:
    """Share of those who took part above each threshold against the share of those who did not, both axes logarithmic.

    Groups as in `scores.labels["group"]`: 0 are real users, the others canary users of some length.
    """
    groups = scores.labels.get("group", np.zeros(scores.value.size))
    with house_style():
        figure, (axes,) = drawing(WIDTH, 226.0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        least = 1.0
        for colour, canary in zip(_COLOURS, (False, True), strict=True):
            mine = (groups != 0) == canary
            inserted, held_out = scores.value[mine & scores.inserted], scores.value[mine & ~scores.inserted]
            if inserted.size and held_out.size:
                false, true = rates(inserted, held_out)
                least = min(least, 1 / held_out.size, 1 / inserted.size)
                axes.step(false, true, where="post", color=colour, label="canary users" if canary else "real users")
        axes.plot([least, 1.0], [least, 1.0], "--", color=MUTED, linewidth=1.0, label="guessing")
        axes.set_xlim(least, 1.0)
        axes.set_ylim(least, 1.05)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(lambda *_: "")
        axes.set_xlabel("share above the threshold, of those who did not take part")
        axes.set_ylabel("of those who did")
        axes.legend(loc="lower right")
    return figure


def rates(inserted: Array, held_out: Array) -> tuple[Array, Array]:
    """(false alarms, found) for every threshold from the highest score down.

    >>> false, true = rates(np.array([3.0, 1.0]), np.array([2.0, 0.0]))
    >>> false.tolist(), true.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    thresholds = np.append(np.inf, np.unique(np.concatenate([inserted, held_out]))[::-1])
    above = [np.searchsorted(np.sort(each), thresholds, side="left") for each in (held_out, inserted)]
    return 1 - above[0] / held_out.size, 1 - above[1] / inserted.size


def _broken(label: str) -> str:
    return label.replace(", ", "\n")
