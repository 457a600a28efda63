"""The documentation is true: its code runs, what it shows is what is printed, its commands work, its links lead somewhere.

The blocks of one file run in order, in one folder and one namespace. A `text` block right after a `python` block shows
lines of its output; an ellipsis stands for anything. Put `<!-- not run -->` on the line before a block that should not run.
"""

import contextlib
import io
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import coalmine
from coalmine.cli import app
from coalmine.training import running
from coalmine.training.running import OneSet

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = "<!-- not run -->"
_FENCE = re.compile(
    r"^(?P<fence>```+|~~~+)(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)


def relative(path):
    return str(path.relative_to(ROOT))


class Block(NamedTuple):
    language: str
    code: str
    line: int  # of its first line of code
    runs: bool
    follows: bool  # no words between this block and the one before


def blocks(path):
    text, end, found = path.read_text(encoding="utf-8"), 0, []
    for match in _FENCE.finditer(text):
        before = text[end : match.start()].strip().splitlines()
        runs = not before or before[-1].strip() != NOT_RUN
        line = text[: match.start()].count("\n") + 2
        found.append(Block(match["language"], match["code"], line, runs, follows=not before))
        end = match.end()
    return found


def printed_by(block, path, namespace):
    """The standard output of a block of Python, run with line numbers of its file."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec"), namespace)
    return output.getvalue()


def run_commands(block, called, folder):
    for line in block.code.splitlines():
        if line.startswith("$ coalmine"):
            assert not set(line[2:]) & set("|<>&;*"), f"{line}\nneeds a shell, and there is none here"
            done = called(*shlex.split(line[2:])[1:], folder=folder)
            assert done.returncode in (0, 1), f"{line}\nexit code {done.returncode}\n{done.stderr}"
            assert "Traceback" not in done.stderr, line


def missing_lines(shown, printed):
    """The lines of a text block that the output does not have."""
    squeezed = "\n".join(" ".join(line.split()) for line in printed.splitlines())
    lines = [" ".join(line.split()) for line in shown.splitlines() if line.strip() and line.strip() not in ("...", "…")]
    patterns = [re.sub(r"\\\.\\\.\\\.|…", ".*", re.escape(line)) for line in lines]
    return [line for line, pattern in zip(lines, patterns, strict=True) if not re.search(pattern, squeezed)]


def _elsewhere(path):
    """Pages that need Flower, which is installed in an environment of its own."""
    return "coalmine.adapters.flower" in path.read_text(encoding="utf-8") and find_spec("flwr") is None


@pytest.fixture
def without_workers(monkeypatch):
    """Results do not depend on workers, and to start them takes longer than the small runs of the pages."""
    monkeypatch.setattr(running, "OneSet", lambda make, _: OneSet(make, 1))


@pytest.mark.usefixtures("without_workers")
@pytest.mark.parametrize("path", GUIDES, ids=relative)
def test_code_and_commands_run_and_print_what_is_shown(path, tmp_path, monkeypatch, called):
    if _elsewhere(path):
        pytest.skip("runs in the environment of Flower: make flower")
    monkeypatch.chdir(tmp_path)
    namespace, printed = {"__name__": "__main__"}, None
    for block in blocks(path):
        if block.language == "text" and block.follows and printed is not None:
            missing = missing_lines(block.code, printed)
            assert not missing, f"{relative(path)}, line {block.line}: not printed: {missing}\nbut:\n{printed}"
        printed = None
        if block.language == "python" and block.runs:
            printed = printed_by(block, path, namespace)
        elif block.language == "console" and block.runs:
            run_commands(block, called, tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_fences_are_closed(path):
    rest = _FENCE.sub("", path.read_text(encoding="utf-8"))
    assert not re.search(r"^(```|~~~)", rest, re.MULTILINE)


def test_every_verb_is_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    verbs = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert len(verbs) >= 6
    assert [verb for verb in verbs if f"coalmine {verb}" not in readme] == []


def test_every_extra_is_in_the_readme():
    from coalmine.doctor import PURPOSES  # a test of its own compares them with the package

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [extra for extra in PURPOSES if extra and f"`{extra}`" not in readme] == []


def test_every_public_name_is_documented():
    text = "\n".join(path.read_text(encoding="utf-8") for path in GUIDES)
    missing = [name for name in coalmine.__all__ if not name.startswith("_") and not re.search(rf"\b{re.escape(name)}\b", text)]
    assert missing == []


def anchors(path):
    """The names of a page's headings, as they are spelled in links, and the ids of `<a id="C4"></a>`."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#{1,6}\s+(.+?)\s*#*$", text, re.MULTILINE)
    named = set(re.findall(r'<a id="([\w-]+)"></a>', text))
    return named | {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(path):
    """The targets of all links of a page, outside code."""
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", path.read_text(encoding="utf-8")))
    yield from re.findall(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", text)
    yield from re.findall(r"^\[[^\]]+\]:\s+(\S+)", text, re.MULTILINE)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_links_inside_the_repository_lead_somewhere(path):
    for target in links(path):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):  # another site, or mail
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{relative(path)} links to {target}"
        assert found.is_relative_to(ROOT), f"{relative(path)} links out of the repository: {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{relative(path)} links to {target}"
