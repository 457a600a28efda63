"""The verb `reproduce`: the papers' experiments."""

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.speech import AsJson, Quiet, say, show

OUT = Path("runs/papers")


def reproduce(
    name: Annotated[str | None, typer.Argument(help="An experiment; --list has them all.")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="All experiments, and what they need.")] = False,
    scale: Annotated[str, typer.Option(help="quick (minutes) or full.")] = "quick",
    part: Annotated[str | None, typer.Option(help="One part of an experiment that has several.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files; default: COALMINE_DATA.")] = None,
    out: Annotated[Path, typer.Option(help="Directory: results in SCALE-SEED, and runs, which experiments share.")] = OUT,
    simulations: Annotated[int | None, typer.Option(help="Simulations; default: as the scale says.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of simulations and runs.")] = 0,
    workers: Annotated[int, typer.Option(help="Worker processes; results do not depend on it.")] = 2,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """The papers' tables and figures, ours beside theirs. Runs that train go on where they were killed; finished ones are read.

    \b
    Examples:
      coalmine reproduce --list
      coalmine reproduce table1
      coalmine reproduce table2 --part model --scale full
    """
    from coalmine.papers.kit.registry import EXPERIMENTS, experiment, listing

    if only_list:
        show([*EXPERIMENTS] if as_json else listing(), as_json)
        return
    from coalmine.papers.kit.experiment import Ask
    from coalmine.papers.kit.saving import folder_of, save

    if name is None:
        raise ValueError(f"name an experiment: {', '.join(EXPERIMENTS)}; --list explains them.")
    ask = Ask(scale, seed, simulations, workers, out, data_dir, part, quiet)  # type: ignore[arg-type]
    try:
        wanted = experiment(name)
        wanted.check(ask)
        folder = folder_of(out, ask.scale, ask.seed)
        found = wanted(ask)
    except KeyboardInterrupt:
        say("coalmine: interrupted; the same command goes on.", quiet=False)
        raise typer.Exit(130) from None
    paths = save(found, folder)
    say(f"wrote {', '.join(str(path) for path in paths)}", quiet)
    show(found, as_json)
    raise typer.Exit(0 if found.passed else 1)
