"""Whose code an unexpected error comes from: a mechanism, a model or a hook may be somebody else's."""

import sysconfig
import traceback
from pathlib import Path

_OURS = str(Path(__file__).parents[1])
_LIBRARIES = ("site-packages", "dist-packages")
_STANDARD = sysconfig.get_path("stdlib")


def of_others(error: BaseException) -> str | None:
    """The function, line and file of code that is neither ours nor a library's, if the error passed through such code."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((place for place, each in enumerate(frames) if each.filename.startswith(_OURS)), len(frames))
    theirs = [each for each in frames[first:] if _is_theirs(each.filename)]
    return f"`{theirs[-1].name}`, line {theirs[-1].lineno} of {theirs[-1].filename}" if theirs else None


def _is_theirs(file: str) -> bool:
    known = file.startswith((_OURS, _STANDARD, "<")) or any(part in _LIBRARIES for part in Path(file).parts)
    return not known
