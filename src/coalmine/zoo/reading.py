"""The bugs as their sources tell them: read, and not loaded. A list needs no numpy, no mechanisms and no trainer.

What a class says of its bug is all in literals: the arguments of `bug` and its docstring. That this is what loading gives is a
test. `coalmine.zoo.BUGS` are the bugs themselves.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from coalmine import _validate

FILES = ("clipping", "correlated", "local", "noise", "sampling", "shape", "water_filling")  # in the order of a list
_ARGUMENTS = ("name", "setting", "source")
_SENTENCES = Path(__file__).parents[1] / "contracts" / "finding_sentences.py"


@dataclass(frozen=True)
class Told:
    """What is known of a bug, and what its class says; the meanings are those of `Bug`."""

    name: str
    setting: str
    source: str
    text: str  # the docstring: what is wrong, and what an audit sees of it
    code: str
    canaries: bool = True
    sentence: str = ""
    where: str | None = None
    innocent: bool = False

    @property
    def fault(self) -> str:
        """What is wrong, in a sentence."""
        return sentences(self.text)[0]

    @property
    def seen(self) -> str:
        """What an audit sees of it, in a sentence."""
        return sentences(self.text)[1]


@dataclass(frozen=True)
class Listing:
    """Bugs explained, in words or as JSON."""

    bugs: tuple[Told, ...]
    with_code: bool

    def __str__(self) -> str:
        return "\n\n".join(self._entry(each) for each in self.bugs)

    def to_json(self) -> str:
        """As one JSON document."""
        words = ("name", "setting", "fault", "seen", "source", "canaries", "sentence", "where")
        return json.dumps([{word: getattr(each, word) for word in words} for each in self.bugs], indent=2) + "\n"

    def _entry(self, each: Told) -> str:
        mark = " (innocent)" if each.innocent else "" if each.canaries else " (canaries cannot see it)"
        said = [f"{each.name}{mark}", f"  {each.fault} {each.seen}"]
        if each.sentence:
            said.append(f"  The sentence that is false: {_findings()[each.sentence]}.")
        said.append(f"  Source: {each.source}")
        return "\n".join([*said, "", each.code] if self.with_code else said)


def listing(names: Sequence[str] = ()) -> Listing:
    """Bugs by their names, with their code; or all of them, without."""
    told = bugs_told()
    for name in names:
        _validate.one_of("bug", name, told)
    return Listing(tuple(told[name] for name in names or told), with_code=bool(names))


def sentences(docstring: str) -> tuple[str, str]:
    """What is wrong, and what an audit sees of it."""
    first, second = inspect.cleandoc(docstring).split("\n\n")[:2]
    return " ".join(first.split()), " ".join(second.split())


@cache
def bugs_told() -> dict[str, Told]:
    """All bugs by their names."""
    return {each.name: each for file in FILES for each in _in_file(Path(__file__).with_name(f"{file}.py"))}


def _in_file(path: Path) -> Iterator[Told]:
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for node in (each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)):
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "bug":
                given = zip(_ARGUMENTS, (ast.literal_eval(each) for each in call.args), strict=False)
                known: dict[str, Any] = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
                first = min(each.lineno for each in node.decorator_list)
                code = "".join(lines[first - 1 : node.end_lineno])
                yield Told(**dict(given), **known, text=ast.get_docstring(node, clean=False) or "", code=code)


@cache
def _findings() -> dict[str, str]:
    """The sentences of a description, which are literals too."""
    for node in ast.parse(_SENTENCES.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "FINDINGS":
            found: dict[str, str] = ast.literal_eval(node.value)  # type: ignore[arg-type]
            return found
    raise LookupError("there are no sentences")
