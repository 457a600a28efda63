"""The verb `zoo`: audits of implementations with a known bug."""

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.speech import AsJson, Quiet, say, show
from coalmine.errors import InputFileError

_MOST = 10_000  # runs of one bug


def zoo(
    names: Annotated[list[str] | None, typer.Argument(help="Names of bugs; none: all of them.", metavar="NAME …")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Explain the bugs; those that are named, with code.")] = False,
    seeds: Annotated[int, typer.Option(help="Runs of each bug, with secret seeds 0, 1, 2, …")] = 20,
    correct: Annotated[int, typer.Option(help="Runs of the correct twin of each setting.")] = 20,
    workers: Annotated[int, typer.Option(help="Worker processes; results do not depend on it.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Directory for zoo.html and zoo.json; default runs/zoo.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """The bug zoo: DP training with one bug each, which of them an audited run catches, and how often. Minutes.

    \b
    Examples:
      coalmine zoo --list
      coalmine zoo half-noise reused-noise --seeds 5
      coalmine zoo
    """
    from coalmine.zoo import listing

    if only_list:
        show(listing(names or ()), as_json)
        return
    from coalmine import _validate, manifest
    from coalmine.cli import options
    from coalmine.progress import track
    from coalmine.zoo import audit_all
    from coalmine.zoo.page import page

    listing(names or ())  # what is not allowed is said before there is a directory
    _validate.workers(workers)
    _validate.whole("seeds", seeds, least=1, most=_MOST)
    _validate.whole("correct", correct, least=0, most=_MOST)
    where = options.free_directory("zoo") if out is None else out
    if where.exists() and not where.is_dir():
        raise InputFileError(f"{str(where)!r} is not a directory. Choose another --out.")
    where.mkdir(parents=True, exist_ok=True)
    found = audit_all(
        names or (),
        seeds=seeds,
        correct=correct,
        workers=workers,
        track=lambda batches: track(batches, "zoo", quiet=quiet),
    )
    manifest.put(where / "zoo.json", found.to_json())
    manifest.put(where / "zoo.html", page(found))
    say(f"wrote {where / 'zoo.html'} and zoo.json", quiet)
    show(found, as_json)
    raise typer.Exit(0 if found.passed else 1)
