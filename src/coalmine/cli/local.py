"""The verbs about this machine: `doctor` and `serve`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.speech import BROKEN, USAGE, AsJson, Quiet, say


def doctor(as_json: AsJson = False, quiet: Quiet = False) -> None:
    """What is installed, which optional parts work, and the command that installs what is missing.

    \b
    Example:
      coalmine doctor
    """
    from dataclasses import asdict

    from coalmine.doctor import doctor as look

    found = look()
    if as_json:
        ready = {part.name: part.ready for part in found.parts}
        typer.echo(json.dumps({**asdict(found), "ready": ready}, indent=2))
    else:
        typer.echo(str(found))
    raise typer.Exit(BROKEN if found.wrong else 0)


def serve(
    directory: Annotated[Path, typer.Argument(help="Folder of runs; default: runs.", metavar="DIR")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.", min=0, max=65535)] = 8765,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """A page on this machine that lists runs, shows running ones live and opens reports and comparisons. It only reads.

    \b
    Example:
      coalmine serve runs
    """
    try:
        from coalmine.serve.server import serve as answer
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "anyio"):
            raise
        typer.echo(f'coalmine: a page needs {error.name}: pip install "coalmine[serve]"', err=True)
        raise typer.Exit(USAGE) from None
    if not directory.is_dir():
        raise ValueError(f"{str(directory)!r} is not a folder; give the one that your runs are in, as `coalmine serve runs`.")

    if (directory / "config.toml").is_file():
        raise ValueError(f"{str(directory)!r} is a run itself; give the folder that it is in.")

    def ready(address: str) -> None:
        if as_json:
            typer.echo(json.dumps({"url": address, "directory": str(directory)}))
        say(f"serving {directory} for this machine only (Ctrl-C ends it): {address}", quiet)

    answer(directory, port, ready)
