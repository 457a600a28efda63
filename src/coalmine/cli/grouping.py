"""The verb `group`: data of any size grouped by user."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from coalmine.cli.speech import INTERRUPTED, AsJson, Quiet
from coalmine.cli.speech import say as _say


def group(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="IN...", help="csv, parquet, JSON lines or Arrow files; with --stats a grouped folder."),
    ],
    user: Annotated[str | None, typer.Option(help="Column that says whose a row is.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the grouped data; an interrupted one is continued.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Column to keep; may be repeated. Default: all.")] = None,
    order_by: Annotated[str | None, typer.Option(help="Column that orders the rows of a user; default: the input.")] = None,
    memory: Annotated[str, typer.Option(help="Memory for rows, as 500MB or 1GB.")] = "1GB",
    buckets: Annotated[int | None, typer.Option(help="Number of buckets; default: by the memory.")] = None,
    missing_key: Annotated[str, typer.Option(help="Rows without a user: error, or drop them and count.")] = "error",
    max_rows: Annotated[int | None, typer.Option(help="Largest number of rows of a user; the first ones are kept.")] = None,
    dedup: Annotated[bool, typer.Option("--dedup", help="Leave out rows that equal an earlier row of the same user.")] = False,
    format: Annotated[str, typer.Option(help="arrow, for training, or parquet, for archives: smaller, slower.")] = "arrow",
    workers: Annotated[int, typer.Option(help="Worker processes; files do not depend on it.")] = 1,
    stats: Annotated[bool, typer.Option("--stats", help="Also show sizes: rows of a user, words and characters.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Group data by user, in memory that does not grow with the data; training reads the folder lazily.

    \b
    Examples:
      coalmine group posts.parquet --user author --out grouped
      coalmine group grouped --stats
    """
    from coalmine.contracts import plain
    from coalmine.data.grouped import statistics
    from coalmine.data.grouping import group_by_user, read_info

    if out is None:
        if not (stats and len(inputs) == 1 and Path(inputs[0]).is_dir()):
            raise ValueError("name --user COLUMN and --out DIR to group data, or a grouped folder with --stats to describe it.")
        info = read_info(inputs[0])
    else:
        if user is None:
            raise ValueError("--user is missing: the column that says whose a row is.")
        _say(f"grouping into {out}", quiet)
        how: dict[str, Any] = {"missing_key": missing_key, "max_rows_per_user": max_rows, "dedup": dedup, "format": format}
        how |= {"memory": memory, "buckets": buckets, "workers": workers, "columns": column, "order_by": order_by}
        try:
            info = group_by_user(list(inputs), out, user=user, **how)
        except KeyboardInterrupt:
            _say("coalmine: interrupted; the same command goes on.", quiet=False)
            raise typer.Exit(INTERRUPTED) from None
    sizes = statistics(info.path) if stats else {}
    if as_json:
        found = {**vars(info), "path": str(info.path), **({"statistics": sizes} if stats else {})}
        typer.echo(json.dumps(plain(found), indent=2))
        return
    typer.echo(str(info))
    for name, value in sizes.items():
        if isinstance(value, dict) and name != "dropped":
            said = ", ".join(f"{key.replace('_', ' ')} {_number(part)}" for key, part in value.items())
            typer.echo(f"{name.replace('_', ' '):<16}{said}")


def _number(value: object) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_number(part)}" for key, part in value.items()) + ")"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
