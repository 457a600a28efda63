"""Rows of counts as a picture, drawn by hand: blocks for a terminal, SVG for a page. Plain data in, text out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLUMNS = 48
_LABEL = 12  # columns left of the picture
WIDTH = _LABEL + COLUMNS
_BLOCKS = " ▁▂▃▄▅▆▇█"
_MARGIN = 16  # left and right of the SVG, for the numbers at the ends
_COLOURS = ("#8b93a1", "#d97706")  # of the rows, in this order; both are seen on white and on black


@dataclass(frozen=True)
class Picture:
    """Counts between edges, a row for every kind of score; `mark` is the place of the claim, if it has one."""

    edges: Sequence[float]
    rows: Mapping[str, Sequence[float]]
    mark: float | None = None

    @property
    def low(self) -> float:
        """The left end."""
        return self.edges[0]

    @property
    def high(self) -> float:
        """The right end."""
        return self.edges[-1]

    def __bool__(self) -> bool:
        return len(self.edges) > 1 and any(sum(row) > 0 for row in self.rows.values())

    def place(self, value: float) -> float:
        """Where a value is, from 0 (left end) to 1 (right end)."""
        return (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        """A few round numbers within the ends."""
        wanted = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(wanted))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted)
        return [number * step for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]

    @property
    def marked(self) -> float | None:
        """The mark, if it is on the picture."""
        return self.mark if self.mark is not None and self.low <= self.mark < self.high else None


def sketch(picture: Picture) -> list[str]:
    """Two lines of blocks for every row, and an axis: at most six lines of 60 columns.

    >>> held_out, inserted = [0, 1, 4, 16, 16, 4, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 2, 4, 8, 8, 4, 2, 1]
    >>> print(*sketch(Picture(range(-4, 9), {"held out": held_out, "inserted": inserted}, mark=3.8)), sep="\\n")
                   ██
      held out   ▁▄██▄▁
                       ██
      inserted      ▂▄████▄▂
                ────┼──▲─┼──
      ▲ claim       0    5
    """
    if not picture:
        return []
    lines = []
    for label, row in picture.rows.items():
        upper, lower = _blocks(_merged(row))
        lines += [" " * _LABEL + upper, f"  {label:<{_LABEL - 2}}" + lower]
    return [line.rstrip() for line in (*lines, *_axis(picture, len(_merged(next(iter(picture.rows.values()))))))]


def _merged(row: Sequence[float]) -> list[float]:
    """At most as many numbers as there are columns."""
    together = -(-len(row) // COLUMNS)
    return [sum(row[start : start + together]) for start in range(0, len(row), together)]


def _blocks(row: Sequence[float]) -> tuple[str, str]:
    """The upper and the lower line; one score is seen among thousands, less than half of an expected one is not."""
    largest = max(row) or 1.0
    levels = [math.ceil(16 * value / largest - 1e-9) if value >= 0.5 else 0 for value in row]
    return "".join(_BLOCKS[max(level - 8, 0)] for level in levels), "".join(_BLOCKS[min(level, 8)] for level in levels)


def _axis(picture: Picture, columns: int) -> tuple[str, str]:
    """A line with ticks and the mark, and the numbers below it."""
    line, numbers = ["─"] * columns, [" "] * columns
    free = 0
    for tick in picture.ticks:
        column, text = _column(picture, tick, columns), f"{tick:g}"
        start = min(max(column - text.startswith("-"), 0), columns - len(text))
        line[column] = "┼"
        if start >= free:
            numbers[start : start + len(text)] = text
            free = start + len(text) + 1
    label = ""
    if picture.marked is not None:
        line[_column(picture, picture.marked, columns)] = "▲"
        label = "▲ claim"
    return " " * _LABEL + "".join(line), f"  {label:<{_LABEL - 2}}" + "".join(numbers)


def _column(picture: Picture, value: float, columns: int) -> int:
    return min(int(picture.place(value) * columns), columns - 1)


def svg(picture: Picture, *, width: int = 480, height: int = 150) -> str:
    """Rows as overlaid areas, each scaled to its own total, above an axis; colours for light and dark pages."""
    if not picture:
        return ""
    base = height - 36
    shares = [[value / (sum(row) or 1.0) for value in row] for row in picture.rows.values()]
    largest = max(max(row) for row in shares)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(" and ".join(picture.rows))}: scores in standard deviations" style="max-width:100%">'
    ]
    for row, colour in zip(shares, _COLOURS, strict=False):
        parts.append(f'<path d="{_area(picture, row, width, base, largest)}" fill="{colour}" fill-opacity="0.55"/>')
    parts.append(f'<path d="M0 {base}H{width}" stroke="currentColor" stroke-opacity="0.6"/>')
    parts += [_word(_x(picture, tick, width), base + 13, f"{tick:g}") for tick in picture.ticks]
    if picture.marked is not None:
        x = _x(picture, picture.marked, width)
        parts.append(f'<path d="M{x} 0V{base}" stroke="currentColor" stroke-dasharray="3 3"/>')
    return "".join((*parts, *_legend(picture, height), "</svg>"))


def _area(picture: Picture, row: Sequence[float], width: int, base: int, largest: float) -> str:
    """A staircase from the left end to the right one."""
    steps = [f"M{_x(picture, picture.low, width)} {base}"]
    for edge, share in zip(picture.edges[1:], row, strict=True):
        steps.append(f"V{base - (base - 4) * share / largest:.1f}H{_x(picture, edge, width)}")
    return "".join((*steps, f"V{base}Z"))


def _x(picture: Picture, value: float, width: int) -> str:
    return f"{_MARGIN + picture.place(value) * (width - 2 * _MARGIN):.1f}"


def _word(x: str, y: int, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" font-size="11" text-anchor="{anchor}" fill="currentColor">{escape(text)}</text>'


def _legend(picture: Picture, height: int) -> list[str]:
    """What each colour is, and the dashed line."""
    found, x = [], 2
    for label, colour in zip(picture.rows, _COLOURS, strict=False):
        found.append(f'<rect x="{x}" y="{height - 12}" width="10" height="10" fill="{colour}" fill-opacity="0.55"/>')
        found.append(_word(str(x + 14), height - 3, label, "start"))
        x += 90
    if picture.marked is not None:
        found.append(_word(str(x), height - 3, "┆ centre of inserted scores, were the claim used up", "start"))
    return found
