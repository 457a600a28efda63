"""A comparison of runs as text for the terminal: a grid, a table, or two tables where runs differ in many settings."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from coalmine.terminal import harmless

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

MOST_AXES = 5  # settings that stand beside the numbers; more of them get a table of their own
_WIDEST = 200  # columns of a table in a terminal
_RIGHT = ("claim", "at least", "would notice")


def in_tables(found: Any, shown: Sequence[str]) -> str:
    """The whole of a `Comparison`; `shown` are the numbers that some run has."""
    if found.grid is not None:
        return _printed(_grid(found, *found.grid))
    if len(found.axes) <= MOST_AXES:
        return _printed(_beside(found, [*found.axes, *shown]))
    return f"{_printed(_beside(found, shown))}\n\n{_printed(_settings(found))}"


def _grid(found: Any, firsts: Sequence[str], seconds: Sequence[str], cells: Any) -> Table:
    table = _table(found.title)
    table.add_column(f"{found.axes[0]} \\ {found.axes[1]}")
    for second in seconds:
        table.add_column(_text(second))
    for first in firsts:
        runs = (cells.get((first, second)) for second in seconds)
        table.add_row(_text(first), *(_text(f"{run.label}\n{run.in_short()}\n") if run else _text("") for run in runs))
    return table


def _beside(found: Any, names: Sequence[str]) -> Table:
    table = _table(found.title)
    table.add_column("run", overflow="fold")
    for name in names:
        right = "right" if name in _RIGHT else "left"
        table.add_column(_text(name, overflow="fold"), overflow="fold", justify=right)  # type: ignore[arg-type]
    for row in found.rows:
        each = {**row.columns, **row.cells()}
        table.add_row(_text(row.label), *(_text(each.get(name, "–")) for name in names))
    return table


def _settings(found: Any) -> Table:
    table = _table("settings that differ")
    table.add_column("setting", overflow="fold")
    for row in found.rows:
        table.add_column(_text(row.label), overflow="fold")
    for name in found.axes:
        table.add_row(_text(name), *(_text(row.columns[name]) for row in found.rows))
    return table


def _text(text: str, **how: Any) -> Text:
    from rich.text import Text

    return Text(text, **how)


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, title=_text(title), title_justify="left")


def _printed(table: Table) -> str:
    """A table as text, as wide as it needs: numbers and verdicts are not broken for a narrow terminal's sake."""
    import shutil

    from rich.console import Console

    written = StringIO()
    console = Console(file=written, width=1000, color_system=None, highlight=False, markup=False)
    console.width = max(shutil.get_terminal_size((140, 24)).columns, min(console.measure(table).maximum, _WIDEST))
    console.print(table)
    return "\n".join(harmless(line.rstrip()) for line in written.getvalue().rstrip().split("\n"))
