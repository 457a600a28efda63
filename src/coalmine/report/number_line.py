"""Claim, estimate, lower bound and ceiling of every view on one number line, each labelled where it stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from coalmine.contracts import Game
from coalmine.report.digits import at_least, number
from coalmine.report.facts import Numbers, numbers
from coalmine.report.style import BLUE, GREEN, HAIR, INK, MUTED, ORANGE, PAPER, Drawing, drawing, house_style
from coalmine.report.words import game_of
from coalmine.result import AuditResult
from coalmine.trade_off import clients_of

WIDE, NARROW = 720.0, 326.0
_LETTER = 0.56  # mean width of a letter, in font sizes: what labels are kept apart by
_SIZE = 9.5
_SHORT = 9  # letters of "how often" that have room below a line
_FARTHEST = 8.0  # times the largest claim: what lies beyond is an arrow, so that the rest can still be told apart


class _Label(NamedTuple):
    """A text that wants to stand at a place of the line."""

    place: float  # in points from the left end
    text: str
    colour: str
    bold: bool = False

    @property
    def width(self) -> float:
        return _LETTER * _SIZE * len(self.text) * (1.07 if self.bold else 1.0)


def number_line(source: AuditResult | Sequence[Numbers], *, narrow: bool = False) -> Drawing:
    """Claim, estimate with interval, lower bound and ceiling of every view; `narrow` is for a phone."""
    rows = numbers(source) if isinstance(source, AuditResult) else list(source)
    own = clients_of(source.claim, source.training) if isinstance(source, AuditResult) else None
    count = len(rows) + (own is not None)
    width = NARROW if narrow else WIDE
    left, right = (3.0, 9.0) if narrow else (172.0, 20.0)
    pitch, foot = (66.0, 22.0) if narrow else (50.0, 22.0)
    with house_style():
        figure, (axes,) = drawing(width, pitch * count + foot)
        figure.set_layout_engine("none")
        height = pitch * count + foot
        axes.set_position((left / width, foot / height, (width - left - right) / width, 1 - foot / height))
        limit = _limit(rows, math.inf if own is None else own[1])
        axes.set_xlim(0, limit)
        axes.set_ylim(pitch * count, 0)
        axes.set_yticks([])
        axes.grid(visible=True, axis="x")
        axes.spines["bottom"].set_color(HAIR)
        first = 1 if rows and rows[0].primary else 0  # people stand before the other views
        for place, row in enumerate(rows):
            shifted = place + (own is not None and place >= first)
            middle = pitch * shifted + (41.0 if narrow else 25.0)
            _draw(axes, row, middle, width - left - right, limit)
            _name(axes, row.view, middle, narrow, "decides" if row.primary else "")
        if own is not None:
            middle = pitch * first + (41.0 if narrow else 25.0)
            game = game_of(source) if isinstance(source, AuditResult) else Game()
            often = str(game.participation or "")
            _draw_own(axes, own[1], often if 0 < len(often) <= _SHORT else "otherwise", middle, width - left - right, limit)
            _name(axes, f"a real {game.unit or 'client'}", middle, narrow, str(own[0])[:34])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}" if value else "ε = 0")
    return figure


def _limit(rows: Sequence[Numbers], own: float) -> float:
    """The right end: everything finite but ceilings far away, and what is many times the largest claim."""
    wanted = [value for row in rows for value in (*_values(row), own) if math.isfinite(value)]
    claims = [row.claim.epsilon for row in rows if row.claim is not None and 0 < row.claim.epsilon < math.inf]
    largest = min(max(wanted, default=1.0) or 1.0, _FARTHEST * max(claims, default=math.inf))
    ceilings = [row.bound.ceiling for row in rows if row.bound.ceiling <= 1.6 * largest]
    return 1.1 * max(largest, *ceilings, 0.1)


def _values(row: Numbers) -> list[float]:
    found = [row.bound.epsilon]
    found += [row.claim.epsilon] if row.claim is not None else []
    return found + ([row.estimate.epsilon, row.estimate.high] if row.estimate is not None else [])


def _name(axes: Axes, name: str, middle: float, narrow: bool, below: str) -> None:
    """The name of a row and what is said below it: beside the line, or above it on a phone."""
    style: dict[str, Any] = {"color": INK, "fontsize": 10.0, "clip_on": False, "va": "center"}
    weight = "bold" if below else "normal"
    if narrow:
        axes.text(0, middle - 29, f"{name[:46]}{f' · {below}' if below else ''}", weight=weight, **style)
        return
    style |= {"transform": axes.get_yaxis_transform(), "ha": "right"}
    at, short = -14 / 550, name if len(name) <= 27 else f"{name[:26]}…"
    axes.text(at, middle - (6 if below else 0), short, weight=weight, **style)
    axes.text(at, middle + 8, below, **{**style, "color": MUTED, "fontsize": 8.5})


def _draw_own(axes: Axes, epsilon: float, often: str, middle: float, width: float, limit: float) -> None:
    """The claim for those who are no canaries: it was not measured, and the line says so."""
    axes.plot([0, limit], [middle, middle], color=HAIR, linewidth=5, solid_capstyle="butt", zorder=1)
    place = min(epsilon, limit)
    axes.plot([place] * 2, [middle - 9, middle + 5], color=INK, linewidth=2, zorder=5)
    _write(axes, [(place, f"claim {number(epsilon)}", INK, True)], middle - 14.5, width, limit)
    _write(axes, [(place, f"not measured: canaries take part {often}", MUTED, False)], middle + 15.0, width, limit)


def _draw(axes: Axes, row: Numbers, middle: float, width: float, limit: float) -> None:
    def at(value: float) -> float:
        return min(value, limit)

    strong = 1.0 if row.primary else 0.75
    axes.plot([0, limit], [middle, middle], color=HAIR, linewidth=5, solid_capstyle="butt", zorder=1)
    above, below = [], []
    if row.bound.epsilon > 0:
        axes.plot([0, at(row.bound.epsilon)], [middle, middle], color=GREEN, linewidth=5, solid_capstyle="butt",
                  alpha=strong, zorder=2)  # fmt: skip
    if row.bound.valid and row.claim is not None and row.bound.epsilon > row.claim.epsilon:  # what is above the claim
        axes.plot([row.claim.epsilon, at(row.bound.epsilon)], [middle, middle], color=ORANGE, linewidth=5,
                  solid_capstyle="butt", zorder=2.5)  # fmt: skip
    kind = "at least" if row.bound.valid else "roughly at least"
    below.append((row.bound.epsilon, f"{kind} {at_least(row.bound.epsilon)}", GREEN, row.primary))
    if row.estimate is not None:
        low, high = at(row.estimate.low), at(row.estimate.high)
        axes.plot([low, high], [middle, middle], color=BLUE, linewidth=1.8, zorder=3)
        for end in (low, high):
            axes.plot([end, end], [middle - 4, middle + 4], color=BLUE, linewidth=1.4, zorder=3)
        mark = "o" if row.estimate.epsilon <= limit else ">"
        axes.plot([at(row.estimate.epsilon)], [middle], mark, color=BLUE, markersize=7, markeredgecolor=PAPER, zorder=4)
        below.append((row.estimate.epsilon, f"about {number(row.estimate.epsilon)} ({row.interval})", BLUE, False))
    if row.claim is not None:
        axes.plot([at(row.claim.epsilon)] * 2, [middle - 9, middle + 5], color=INK, linewidth=2, zorder=5)
        above.append((row.claim.epsilon, f"claim {number(row.claim.epsilon)}", INK, row.primary))
    if row.bound.ceiling <= limit:
        axes.plot(
            [row.bound.ceiling] * 2, [middle - 6, middle + 6], color=MUTED, linewidth=1.2, linestyle=(0, (2, 1)), zorder=3
        )
        above.append((row.bound.ceiling, f"could show {number(row.bound.ceiling)}", MUTED, False))
    else:
        axes.plot([limit], [middle], ">", color=MUTED, markersize=5, clip_on=False, zorder=3)
        if math.isfinite(row.bound.ceiling):
            above.append((limit, f"could show {number(row.bound.ceiling)}", MUTED, False))
    _write(axes, above, middle - 14.5, width, limit)
    _write(axes, below, middle + 15.0, width, limit)


def _write(axes: Axes, labels: Sequence[tuple[float, str, str, bool]], height: float, width: float, limit: float) -> None:
    """Labels in a line: (value, text, colour, bold)."""
    points = width / limit
    wanted = [_Label(min(value, limit) * points, text, colour, bold) for value, text, colour, bold in labels]
    for start, label in _apart(wanted, width):
        axes.text(start / points, height, label.text, color=label.colour, fontsize=_SIZE, va="center", ha="left",
                  weight="bold" if label.bold else "normal", clip_on=False, zorder=6)  # fmt: skip


def _apart(labels: list[_Label], width: float) -> list[tuple[float, _Label]]:
    """Where the labels begin: at their places as far as possible, never over each other nor over the ends."""
    ordered = sorted(labels, key=lambda label: label.place)
    starts: list[float] = []
    end = 0.0
    for label in ordered:  # pushed to the right of the one before
        start = max(label.place - label.width / 2, end)
        starts.append(start)
        end = start + label.width + 8
    end = width + 8
    for position in reversed(range(len(ordered))):  # and back from the right end
        starts[position] = min(starts[position], end - 8 - ordered[position].width)
        end = starts[position]
    return list(zip(starts, ordered, strict=True))
