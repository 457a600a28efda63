"""The verb `craft`: crafted canaries at one model of a run."""

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.speech import VIOLATED, AsJson, Quiet, say


def craft(
    directory: Annotated[Path, typer.Argument(help="The directory of a run.")],
    number: Annotated[int | None, typer.Option("--round", help="The round whose model is audited; default: the last.")] = None,
    canaries: Annotated[int | None, typer.Option(help="Canaries to design; default: crafting.canaries of the run.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Craft data canaries for one model of a run, and measure what one round reveals of them. Nothing is trained again.

    \b
    Exit codes:
      0   neither bound nor test contradicts the claim
      1   the bound is above the claim, or the noise is less than claimed, or clients are not trained alone
      2, 4   wrong usage, broken input

    \b
    Example:
      coalmine craft runs/first --canaries 64
    """
    import json

    from coalmine.contracts import plain
    from coalmine.training.crafted_words import in_words
    from coalmine.training.crafting import craft as measure

    found = measure(directory, number=number, canaries=canaries, say=lambda text: say(text, quiet))
    typer.echo(json.dumps(plain(found), indent=2, sort_keys=True) if as_json else in_words(found))
    if found["violated"] or found["deviates"]:
        raise typer.Exit(VIOLATED)
