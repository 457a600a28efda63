"""Verbs to library calls; no logic of its own.

Results go to standard output (`--json`: one JSON document and nothing else), progress and errors to standard error.
Exit codes: 0 consistent or done, 1 violated or not the mechanism that was claimed (or a failed self-test), 2 usage,
3 inconclusive (`check`) or unverified (`verify`), 4 broken input (or a fault of this program).
"""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from coalmine.cli import crafting, grouping, inference, local, pages, papers, statistics, sweeping, zoo
from coalmine.cli.faults import of_others
from coalmine.cli.speech import BROKEN, INTERRUPTED, USAGE, VIOLATED, AsJson, Quiet
from coalmine.cli.speech import say as _say
from coalmine.cli.speech import show as _show

_LONGEST = 2_000  # characters of a message
Workers = Annotated[int | None, typer.Option(help="Worker processes; results do not depend on it.")]
Hooks = Annotated[
    list[str] | None, typer.Option("--hook", metavar="NAME", help="Log every round to tensorboard, mlflow or wandb, offline.")
]


class _Verbs(TyperGroup):
    """All verbs: Ctrl-C is said also where a verb has nothing to add to it."""

    def make_context(self, *words: Any, **options: Any) -> Any:
        with _heard():
            return super().make_context(*words, **options)

    def invoke(self, ctx: Any) -> Any:
        with _heard():
            return super().invoke(ctx)


@contextmanager
def _heard() -> Iterator[None]:
    """What typer would take for an interruption, or end without a word."""
    try:
        yield
    except KeyboardInterrupt:
        _say("coalmine: interrupted.", quiet=False)
        raise typer.Exit(INTERRUPTED) from None
    except EOFError as error:  # an interruption, with the exit code of a violation
        _fail(f"a file ends too early ({error or 'it is empty or cut off'}).", BROKEN)


app = typer.Typer(
    name="coalmine",
    cls=_Verbs,
    help="Is your DP implementation right? Tests what private training does, and measures what it leaks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"coalmine {version('coalmine')}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Is your DP implementation right? Tests what private training does, and measures what it leaks."""


@app.command(short_help="Train with canaries and audit, in one directory.")
def run(
    config: Annotated[str, typer.Argument(help="A TOML file or a preset; with none the bundled quickstart.")] = "quickstart",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as mechanism.noise_multiplier=0.5.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run; default: runs/NAME, numbered.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files; default: COALMINE_DATA.")] = None,
    workers: Workers = None,
    hook: Hooks = None,
    engine: Annotated[str, typer.Option(help="embedded, ray (more machines) or flower; the result is the same.")] = "embedded",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster, as HOST:PORT; default: this machine.")] = None,
    reference: Annotated[
        bool | None,
        typer.Option("--reference/--no-reference", help="After the verdict, train the same without noise and canaries."),
    ] = None,
    secret_seed: Annotated[int | None, typer.Option(help="For tests only: a run that can be repeated is not private.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train with canaries and audit: data, rounds, noise, views and verdict, in one directory.

    \b
    Examples:
      coalmine run
      coalmine run tiny --set mechanism.noise_multiplier=1.0 --out runs/first
    """
    from coalmine.cli import options
    from coalmine.cli.engines import trainer

    train = trainer(engine, address)
    asked = [] if reference is None else [f"run.reference={str(reference).lower()}"]
    settings = options.run_config(config, [*(changes or []), *asked], data_dir, workers)
    where = out if out is not None else options.free_directory(config)
    _say(f"run directory: {where}", quiet)
    if settings.run.repeats > 1:
        from coalmine.estimators.lifted_plan import lifted_ceiling

        how = {"confidence": settings.audit.confidence, **settings.audit.lifted}
        most = lifted_ceiling(settings.run.repeats, settings.canaries.pool, delta=settings.privacy.delta, **how)
        _say(f"{settings.run.repeats:,} runs can show an epsilon of at most {most:.3g}, whatever comes out", quiet)
    first = _Verdict(as_json, quiet)
    with _interruptible(where):
        finished = train(settings, where, secret_seed=secret_seed, hooks=hook or (), quiet=quiet, verdict=first)
    _finish(finished, as_json, quiet, first)


@app.command(short_help="Go on after an interruption; the result is the same.")
def resume(
    directory: Annotated[Path, typer.Argument(help="The directory of a run that was interrupted.")],
    workers: Workers = None,
    hook: Hooks = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on after an interruption; the result is the same, bit for bit, as without it.

    \b
    Example:
      coalmine resume runs/first
    """
    from coalmine.training import resume as go_on

    first = _Verdict(as_json, quiet)
    with _interruptible(directory):
        finished = go_on(directory, workers=workers, hooks=hook or (), quiet=quiet, verdict=first)
    _finish(finished, as_json, quiet, first)


app.command(short_help="One audited run for every point of a grid, and their comparison.")(sweeping.sweep)
app.command(short_help="Audit canary scores from any trainer.")(statistics.estimate)
app.command(short_help="Before the run: what would be noticed, canaries needed.")(statistics.plan)
app.command(short_help="Epsilon, delta or noise multiplier from the other two.")(statistics.account)
app.command(short_help="A gate for CI: does an audit pass a limit of epsilon?")(pages.check)
app.command(short_help="Group data of any size by user.")(grouping.group)
app.command(short_help="Was a user's data used in fine-tuning?")(inference.infer)
app.command(short_help="Craft data canaries for one model of a run.")(crafting.craft)
app.command(short_help="Write an audit as one page.")(pages.report)
app.command(short_help="Several runs in one table and one page.")(pages.compare)
app.command(short_help="Are the files of a run those that the run wrote?")(pages.verify)
app.command(short_help="Which known DP bugs does an audit catch, and how often?")(zoo.zoo)
app.command(short_help="The papers' tables and figures, ours beside theirs.")(papers.reproduce)
app.command(short_help="A local page of all runs: verdicts, live runs, reports.")(local.serve)
app.command(short_help="What is installed, what is missing, and how to install it.")(local.doctor)


@app.command(short_help="Check this installation, in about half a minute.")
def selftest(as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Oracles and null calibration on this machine, about half a minute.

    \b
    Example:
      coalmine selftest
    """
    from coalmine.contracts import plain
    from coalmine.progress import track
    from coalmine.selftest import selftest as run

    checks = run(track=lambda items: track(items, "self-test", quiet=quiet))
    passed = all(item.passed for item in checks)
    if as_json:
        typer.echo(json.dumps({"passed": passed, "checks": [plain(item) for item in checks]}, indent=2))
    else:
        typer.echo("\n".join(str(item) for item in checks))
        typer.echo("all checks passed" if passed else "SELF-TEST FAILED: do not trust results of this installation")
    raise typer.Exit(0 if passed else VIOLATED)


def main() -> NoReturn:
    """Run the command line; a user's mistake is one message, never a traceback."""
    from coalmine.errors import CoalmineError, InputFileError, NonFiniteError, NotEnoughCanariesError, RunDirectoryError

    try:
        app()
    except (InputFileError, NonFiniteError, NotEnoughCanariesError, RunDirectoryError) as error:
        _fail(str(error), BROKEN)
    except (CoalmineError, ValueError) as error:
        _fail(str(error), USAGE)
    except OSError as error:
        _fail(": ".join(str(part) for part in (error.strerror or error, error.filename) if part), BROKEN)
    except ModuleNotFoundError as error:
        needs = {
            **dict.fromkeys(("torch", "safetensors", "pydantic", "tomli_w"), ("training", "train")),
            **dict.fromkeys(("matplotlib", "jinja2", "markupsafe"), ("a report", "report")),
        }
        if error.name not in needs:
            raise
        what, extra = needs[error.name]
        _fail(f'{what} needs {error.name}: pip install "coalmine[{extra}]"', USAGE)
    except MemoryError:
        _fail("not enough memory for this input.", BROKEN)
    except RecursionError:
        _fail("an input is nested too deeply to be read.", BROKEN)
    except Exception as error:  # a fault of ours must not look like a violation, which Python's own exit code 1 would
        if os.environ.get("COALMINE_TRACEBACK"):
            raise
        if "DefaultCPUAllocator" in str(error):  # torch has no class of its own for it
            _fail("not enough memory for this model; use smaller layers, or batches.", BROKEN)
        what, where = f"{type(error).__name__}: {error}", of_others(error)
        if where is not None:
            _fail(
                f"{what}. It was raised by {where}, code that this run was given; COALMINE_TRACEBACK=1 shows all of it.", BROKEN
            )
        _fail(f"internal error, {what}. Please report it; COALMINE_TRACEBACK=1 shows where it happened.", BROKEN)
    sys.exit(0)


@contextmanager
def _interruptible(directory: Path) -> Iterator[None]:
    """Ctrl-C loses the current round, and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        begun = (directory / "config.toml").is_file()
        how = f"`coalmine resume {shlex.quote(str(directory))}` goes on" if begun else "nothing was begun"
        _say(f"coalmine: interrupted; {how}.", quiet=False)
        raise typer.Exit(INTERRUPTED) from None


class _Verdict:
    """Shows an audit before the comparison without noise begins; of that, what it adds is shown at the end."""

    def __init__(self, as_json: bool, quiet: bool):
        self.shown, self._as_json, self._quiet = False, as_json, quiet

    def __call__(self, finished: Any) -> None:
        if not self._as_json:  # one document, at the end
            _show(finished, False)
            self.shown = True
        _say("for comparison, the same without noise and canaries follows; --no-reference leaves it out", self._quiet)


def _finish(finished: Any, as_json: bool, quiet: bool, first: _Verdict) -> None:
    """What a run ended with, and where its page is; a violation is an exit code."""
    if first.shown:
        _show_learned(finished.training)
    else:
        _show(finished, as_json)
    if (finished.directory / "report.html").is_file():
        _say(f"report: {finished.directory / 'report.html'}", quiet)
    if finished.digest is not None:
        _say(f"digest: {finished.digest} (keep it: `coalmine verify DIR --digest …` shows whether a file was edited)", quiet)
    if finished.result is not None and finished.result.verdict is not None and finished.result.verdict.failed:
        raise typer.Exit(VIOLATED)


def _show_learned(training: Any) -> None:
    from coalmine.contracts.training_sentences import training_words

    if said := training_words(training).get("learned"):
        typer.echo(f"{'learned':<14}{said}")


def _fail(text: str, code: int) -> NoReturn:
    from coalmine.terminal import harmless

    shown = harmless(text)  # it may quote a file, of any length
    if len(shown) > _LONGEST:
        half = _LONGEST // 2  # what is allowed stands at the end
        shown = f"{shown[:half]} … ({len(shown) - _LONGEST:,} more characters) … {shown[-half:]}"
    typer.echo(f"coalmine: {shown}", err=True)
    sys.exit(code)
