"""What an experiment comes to: the paper's numbers, ours beside them, and a word for each.

    verdict        the paper's number and ours
    exact          have the same law: ours is within its sampling error
    model-based    agree if a stated model is right, in which data and network are left out
    same shape     are of different data; what the paper says of its numbers (larger, smaller, no change) is true of ours
    differs        do not agree; the note or the page on the papers says why

A verdict is computed from the numbers by a rule that the experiment states. A row without one has nothing to be compared with.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from coalmine.contracts import plain
from coalmine.papers.kit.printed import read_number

SCHEMA = "coalmine-paper/1"
RowVerdict = Literal["exact", "model-based", "same shape", "differs"]
VERDICTS: tuple[RowVerdict, ...] = ("exact", "model-based", "same shape", "differs")
NONE = "—"
MADE = "## How it was made"


@dataclass(frozen=True)
class PaperRow:
    """One number of a paper, and ours."""

    what: str
    paper: str  # as printed
    ours: float | None  # None: there is no such number
    error: float | None = None
    verdict: RowVerdict | None = None
    note: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)  # where in the table: noise, column, dimension, …

    @property
    def shown(self) -> str:
        """Ours with its error, in words."""
        if self.ours is None:
            return NONE
        if not self.error or not math.isfinite(self.error) or abs(self.ours) >= 100 or float(number(self.error, self.ours)):
            return number(self.ours) if self.error is None else f"{number(self.ours)} ± {number(self.error, self.ours)}"
        digits = math.ceil(-math.log10(self.error))  # as many as show that there is an error
        return f"{self.ours:.{digits}f} ± {self.error:.{digits}f}"

    @property
    def printed(self) -> float | None:
        """The paper's number, if it is one."""
        return read_number(self.paper)


@dataclass(frozen=True)
class PaperCheck:
    """A statement that must be true of what came out."""

    text: str
    passed: bool

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'}  {self.text}"


@dataclass(frozen=True)
class ResultPart:
    """What one part of an experiment finds; the fields are those of a `PaperResult`."""

    rows: Sequence[PaperRow]
    checks: Sequence[PaperCheck] = ()
    notes: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperResult:
    """All rows of an experiment; prints, and becomes JSON, CSV and Markdown."""

    name: str
    title: str
    rows: tuple[PaperRow, ...]
    error: str = ""  # what is behind the ±
    checks: tuple[PaperCheck, ...] = ()
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)  # scale, seed, sizes, …: how it was made
    details: Mapping[str, Any] = field(default_factory=dict)  # further numbers, for the JSON document alone
    figure: Callable[[], Any] | None = field(default=None, repr=False, compare=False)  # makes a drawing of its own
    further: Mapping[str, Callable[[], Any]] = field(default_factory=dict, repr=False, compare=False)  # more drawings, by name

    @staticmethod
    def of(name: str, title: str, parts: Sequence[ResultPart], *, error: str = "") -> PaperResult:
        """Of parts, in their order."""
        return PaperResult(
            name,
            title,
            rows=tuple(row for part in parts for row in part.rows),
            error=error,
            checks=tuple(check for part in parts for check in part.checks),
            notes=tuple(note for part in parts for note in part.notes),
            about={key: value for part in parts for key, value in part.about.items()},
            details={key: value for part in parts for key, value in part.details.items()},
        )

    @property
    def passed(self) -> bool:
        """Whether all checks did."""
        return all(check.passed for check in self.checks)

    def count(self, verdict: RowVerdict) -> int:
        """How many rows have this verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    def __str__(self) -> str:
        header = ("", "paper", "ours", "verdict", "")
        cells = [header, *((row.what, row.paper, row.shown, row.verdict or NONE, row.note) for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(4)]
        lines = [self.title, *([f"± is the {self.error}"] if self.error else [])]
        lines += [
            "  ".join([row[0].ljust(widths[0]), *(row[c].rjust(widths[c]) for c in (1, 2)), row[3].ljust(widths[3]), row[4]])
            .rstrip()
            for row in cells
        ]  # fmt: skip
        lines += [str(check) for check in self.checks]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, self.in_short()])

    def in_short(self) -> str:
        """The verdicts, counted."""
        counted = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in VERDICTS if self.count(verdict))
        failed = [check.text for check in self.checks if not check.passed]
        return (counted or "nothing to compare") + (f"; {len(failed)} of {len(self.checks)} checks failed" if failed else "")

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "title": self.title,
            "about": plain(dict(self.about)),
            "error": self.error,
            "rows": [plain(row) for row in self.rows],
            "checks": [plain(check) for check in self.checks],
            "notes": list(self.notes),
            **plain(dict(self.details)),
        }

    def to_json(self) -> str:
        """As one JSON document."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def to_csv(self) -> str:
        """A line for every row."""
        written = io.StringIO()
        out = csv.writer(written, lineterminator="\n")
        places = list(dict.fromkeys(name for row in self.rows for name in row.place))
        out.writerow(["what", *places, "paper", "ours", "error", "verdict", "note"])
        for row in self.rows:
            numbers = ["" if value is None else repr(float(value)) for value in (row.ours, row.error)]
            where = [row.place.get(name, "") for name in places]
            out.writerow([row.what, *where, row.paper, *numbers, row.verdict or "", row.note])
        return written.getvalue()

    def to_markdown(self, *, drawing: bool = False) -> str:
        """As a page: the table, what was checked, how it was made."""
        lines = [f"# {self.title}", "", f"{self.in_short().capitalize()}."]
        if self.error:
            lines[-1] += f" ± is the {self.error}."
        lines += ["", "| | paper | ours | verdict | |", "|---|---|---|---|---|"]
        for row in self.rows:
            cells = (row.what, row.paper or NONE, row.shown, row.verdict or NONE, row.note)
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
        lines += ["", *(f"* {check}" for check in self.checks)]
        lines += ["", *(f"{note}\n" for note in self.notes)]
        drawings = [self.name, *(f"{self.name}-{name}" for name in self.further)] if drawing else []
        lines += [f"![{self.title}]({name}.svg)\n" for name in drawings]
        lines += [MADE, "", *(f"* {name}: {value}" for name, value in self.about.items())]
        return "\n".join(lines) + "\n"


def number(value: float, beside: float | None = None) -> str:
    """Three digits; an error has the decimals of the number that it stands `beside`.

    >>> number(45834.2), number(382.13), number(2.693), number(0.0571), number(0.0004, 1.234), number(1.125e12), number(2.28e-4)
    ('45,800', '382', '2.69', '0.057', '0.00', '1.12e+12', '0.000228')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    scale = abs(value if beside is None else beside)
    if scale >= 1e6:
        return f"{value:.2e}"
    if beside is None and 0 < scale < 5e-4:
        return f"{value:.3g}"
    if scale >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.{0 if scale >= 100 else 1 if scale >= 10 else 2 if scale >= 0.1 else 3}f}"


def listed(words: Sequence[str]) -> str:
    """'a, b and c'."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
