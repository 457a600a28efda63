"""The verb `sweep`: runs over a grid of settings."""

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.speech import BROKEN, INTERRUPTED, AsJson, Quiet, say, show


def sweep(
    grid: Annotated[Path, typer.Argument(help="A TOML file with the section [grid].", metavar="GRID.toml")],
    out: Annotated[Path | None, typer.Option(help="Directory of all runs; default: runs/GRID. An old one goes on.")] = None,
    engine: Annotated[str, typer.Option(help="local, ray or slurm.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster, as HOST:PORT; default: this machine.")] = None,
    workers: Annotated[int, typer.Option(help="Runs at a time; results do not depend on it.")] = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train and audit once for every point of a grid, then compare; the same command goes on where it stopped.

    \b
    Example:
      coalmine sweep grid.toml --workers 2
    """
    from coalmine import _validate
    from coalmine.cli.engines import engine_workers
    from coalmine.progress import track
    from coalmine.training.sweep import read_grid
    from coalmine.training.sweep import sweep as make_all

    _validate.workers(workers)
    points = read_grid(grid)
    where = out if out is not None else Path("runs") / grid.stem
    say(f"{len(points.configs)} run{'s' * (len(points.configs) != 1)} in {where}", quiet)
    try:
        with engine_workers(engine, address, workers, where, points.slurm) as make_workers:
            found = make_all(
                points,
                where,
                workers=workers,
                make_workers=make_workers,
                track=lambda batches: track(batches, "sweep", quiet=quiet),
            )
    except KeyboardInterrupt:
        say("coalmine: interrupted; the same command goes on.", quiet=False)
        raise typer.Exit(INTERRUPTED) from None
    show(found, as_json)
    if found.comparison is not None:
        say(f"comparison: {where / 'compare.html'}", quiet)
    raise typer.Exit(BROKEN if found.failed else 0)
