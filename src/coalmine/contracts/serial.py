"""Statements as plain data for JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from coalmine.contracts.conformance import Finding, NotTested
from coalmine.contracts.description import Description, read_description
from coalmine.contracts.sentences import CAVEATS
from coalmine.contracts.statements import Attendance, Caveat

FUNCTIONS = ("finder", "question")  # fields that hold functions, which no file holds


def plain(value: Any) -> Any:
    """A value of these types as JSON-ready data: inf becomes "inf", mappings and tuples become dicts and lists."""
    if isinstance(value, Caveat):
        return {"code": value.code, "data": plain(value.data), "name": value.name, "text": value.text}
    if isinstance(value, (np.bool_, np.integer)):
        value = value.item()
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if np.isnan(number):
            raise ValueError("a result must not contain NaN")
        return number if np.isfinite(number) else ("inf" if number > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Attendance):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)} | {"text": str(value)}
    if isinstance(value, Description):
        return plain(value.to_dict())
    made = {item.name: plain(getattr(value, item.name)) for item in fields(value) if item.name not in FUNCTIONS}
    said = {name: getattr(value, name) for kind, name in _SAID.items() if isinstance(value, kind)}
    return made | said


_SAID = {Finding: "sentence", NotTested: "reason"}  # copies for readers of files, which nothing reads back
_INFINITE = {"inf": float("inf"), "-inf": float("-inf")}
_WORDS = {tuple: "a list", float: "a number", int: "a whole number", str: "text", bool: "true or false"}


def from_plain(kind: Any, value: Any, where: str = "the document") -> Any:
    """The inverse of `plain`: data read as the type `kind`. What does not fit is a ValueError that says where."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):  # the only unions here are "or None"
        return None if value is None else from_plain(inner[0], value, where)
    if kind is Attendance and isinstance(value, str):  # somebody's own words
        return Attendance.of(value)
    if kind is Caveat and isinstance(value, dict):
        return _caveat(value, where)
    if kind is Description and isinstance(value, dict):
        return read_description(value)
    if origin is tuple and isinstance(value, list):
        return tuple(from_plain(inner[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {key: from_plain(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        return _record(kind, value, where)
    if origin is Literal and value in inner:
        return value
    if kind is float and isinstance(value, str):
        value = _INFINITE.get(value, value)
    if kind in (bool, int, float, str) and type(value) in ((int, float) if kind is float else (kind,)):
        return value
    expected = " or ".join(map(repr, inner)) if origin is Literal else _WORDS.get(origin or kind, "an object")
    raise ValueError(f"{where} must be {expected}, found {str(value)[:40]!r}")


def _record(kind: Any, value: dict[str, Any], where: str) -> Any:
    """A dataclass from the entries that `plain` wrote for it; entries of a later version are left out."""
    hints = get_type_hints(kind)
    names = [item.name for item in fields(kind) if item.name not in FUNCTIONS]
    later = {item.name for item in fields(kind) if item.metadata.get("later")}  # that the first files did not have
    names = [name for name in names if name in value or name not in later]
    missing = sorted(set(names) - set(value))
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return kind(**{name: from_plain(hints[name], value[name], f"{where}.{name}") for name in names})


def _caveat(value: dict[str, Any], where: str) -> Caveat:
    """A caveat of a file; one whose code is not known here keeps its words."""
    code, data = from_plain(str, value.get("code"), f"{where}.code"), value.get("data")
    if not isinstance(data, dict):
        raise ValueError(f"{where}.data must be an object, found {str(data)[:40]!r}")
    data = {name: _INFINITE.get(item, item) if isinstance(item, str) else item for name, item in data.items()}
    try:
        return Caveat(code, data if code in CAVEATS else {"name": value.get("name", "note"), "text": value.get("text", code)})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"{where}.data does not fit a caveat {code!r}") from None
