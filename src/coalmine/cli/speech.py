"""What all verbs say in the same way: results as words or as one JSON document, prose to standard error."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from coalmine.errors import InputFileError

VIOLATED, USAGE, INCONCLUSIVE, BROKEN, INTERRUPTED = 1, 2, 3, 4, 130  # exit codes

PAGES = (".html", ".htm", ".md", ".txt")  # what a page may replace
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]


def show(result: Any, as_json: bool) -> None:
    """A result as words for people or as one JSON document."""
    if not as_json:
        result.show() if hasattr(result, "show") else typer.echo(str(result))
    elif hasattr(result, "to_json"):
        typer.echo(result.to_json(), nl=False)
    else:
        from coalmine.contracts import plain  # numpy is not loaded for a list of names

        typer.echo(json.dumps(plain(result), indent=2))


def check_output(path: Path | None, *inputs: Path, kinds: tuple[str, ...]) -> None:
    """Before any work: whether a file can be written there. It may replace one of its kind, no input and no file of a run."""
    if path is None:
        return
    if path.is_dir():
        raise InputFileError(f"{str(path)!r} is a directory; name a file in it.")
    if not path.parent.is_dir():
        raise InputFileError(f"cannot write {str(path)!r}: there is no directory {str(path.parent)!r}.")
    if any(path.is_file() and each.is_file() and path.samefile(each) for each in inputs):
        raise InputFileError(f"{str(path)!r} is what is read here, and would be replaced; name another file.")
    from coalmine.manifest import run_of

    if (run := run_of(path)) is not None:
        raise InputFileError(f"{str(path)!r} belongs to the run in {str(run)!r}, and would be replaced; name another file.")
    if path.is_file() and path.suffix.lower() not in kinds and not _like_ours(path):
        raise InputFileError(f"{str(path)!r} is there already and is no {kinds[0]} file; name another one, or remove it first.")


def _like_ours(path: Path) -> bool:
    """Whether a file of another name may be an earlier output, or an empty one made for it: JSON and pages begin like this."""
    with path.open("rb") as file:
        return file.read(1) in (b"", b"{", b"<")


def say(text: str, quiet: bool) -> None:
    """Prose, unless asked to be quiet."""
    if not quiet:
        from coalmine.terminal import harmless

        typer.echo(harmless(text), err=True)  # it may name a file
