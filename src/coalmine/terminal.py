"""A result for people: colour and a sketch where the terminal allows, the plain text everywhere else.

Nothing but text goes into a pipe or a file. `NO_COLOR` (not empty) takes away every escape code and leaves the sketch, which
needs a terminal of at least 60 columns that shows unicode and is not dumb. `FORCE_COLOR` colours a pipe too.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TextIO

from coalmine.drawing import WIDTH, Picture, sketch

STYLES = {
    "VIOLATED": ("✗", "bold red"),
    "DEVIATES": ("≠", "bold red"),
    "CONSISTENT": ("✓", "bold green"),
    "INCONCLUSIVE": ("?", "bold yellow"),
}
_NEITHER = ("·", "bold cyan")  # no claim, no verdict
_UNICODE = "✗≠✓·▁█─┼▲"
_SPELLED = {ord("±"): "+/-", ord("≥"): ">=", ord("ε"): "epsilon"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def show(text: str, *, word: str = "", picture: Picture | None = None, file: TextIO | None = None) -> None:
    """Print the text of a result, which begins with its verdict `word`; `file` is standard output unless given."""
    file = file or sys.stdout
    if file is None:  # standard output is closed
        return
    if not word or not (_is_terminal(file) or os.environ.get("FORCE_COLOR")):
        _write(file, harmless(text))
        return
    unicode, drawn = _speaks_unicode(file), sketch_for(picture, file)
    symbol, style = STYLES.get(word, _NEITHER)
    head = f"{symbol} {word}" if unicode and not _dumb() else word
    rest = harmless(text.removeprefix(word))
    _write(file, "\n".join([_coloured(head, style, file) + rest, *drawn]))


def sketch_for(picture: Picture | None, file: TextIO | None = None) -> list[str]:
    """The lines of the sketch, if this file (standard output unless given) is a terminal that can show it; else none."""
    file = file or sys.stdout
    if not (picture and file and _is_terminal(file) and _speaks_unicode(file)) or _dumb() or _columns(file) < WIDTH:
        return []
    return ["", *sketch(picture)]


def harmless(text: str) -> str:
    """Names come from files of others: what would steer a terminal is shown instead."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _is_terminal(file: TextIO) -> bool:
    try:
        return file.isatty()
    except (AttributeError, ValueError):  # something like a file, or one that is closed
        return False


def _dumb() -> bool:
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def _columns(file: TextIO) -> int:
    try:
        return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(file.fileno()).columns or 80
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def _speaks_unicode(file: TextIO) -> bool:
    try:
        _UNICODE.encode(getattr(file, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _coloured(text: str, style: str, file: TextIO) -> str:
    """With escape codes if rich finds that this terminal shows colours, and nobody minds."""
    if os.environ.get("NO_COLOR"):
        return text
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False)
    with console.capture() as captured:
        console.print(Text(text, style), end="", soft_wrap=True)
    return captured.get()


def _write(file: TextIO, text: str) -> None:
    """All of it, in letters that the file can hold."""
    try:
        file.write(text + "\n")
    except UnicodeEncodeError:
        encoding = file.encoding or "ascii"
        file.write(text.translate(_SPELLED).encode(encoding, "replace").decode(encoding) + "\n")
    file.flush()
