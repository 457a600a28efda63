"""The verb `infer`: user inference against a fine-tuned language model."""

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.speech import VIOLATED, AsJson, Quiet, say, show


def infer(
    config: Annotated[str, typer.Argument(help="A TOML file or a preset with a section [inference].")] = "infer-chat",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as inference.protection=user.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the result; default: runs/NAME, numbered.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files; default: COALMINE_DATA.")] = None,
    secret_seed: Annotated[int | None, typer.Option(help="For tests only: a run that can be repeated is not private.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Was a user's data used in fine-tuning? Fine-tunes with users who join by coins, and ranks them.

    \b
    Examples:
      coalmine infer
      coalmine infer infer-chat --set inference.protection=user --set inference.epsilon=4
    """
    from coalmine.cli import options
    from coalmine.training.inference import infer as run

    settings = options.run_config(config, changes or [], data_dir, None)
    where = out if out is not None else options.free_directory(config)
    say(f"run directory: {where}", quiet)
    found = run(settings, where, secret_seed=secret_seed, quiet=quiet)
    show(found, as_json)
    if found.result.verdict is not None and found.result.verdict.word == "VIOLATED":
        raise typer.Exit(VIOLATED)
