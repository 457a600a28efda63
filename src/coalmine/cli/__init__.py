"""Verbs to library calls; no logic of its own.

Results go to standard output (`--json`: one JSON document and nothing else), progress and errors to standard error.
Exit codes: 0 consistent or done, 1 violated (or a failed self-test), 2 usage, 3 inconclusive (`check` only), 4 broken input
(or a fault of this program).
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

from coalmine.cli import pages, papers, zoo
from coalmine.cli.speech import AsJson, Quiet
from coalmine.cli.speech import say as _say
from coalmine.cli.speech import show as _show

VIOLATED, USAGE, INCONCLUSIVE, BROKEN, INTERRUPTED = 1, 2, 3, 4, 130
_LARGE_FILE = 20_000_000  # bytes; beyond this reading takes seconds, which is worth a word

app = typer.Typer(
    name="coalmine",
    help="Measures what differentially private training really leaks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Delta = Annotated[float, typer.Option(help="Delta of the privacy statement; 1/population**1.1 is customary.")]
Confidence = Annotated[float, typer.Option(help="Confidence of bounds and intervals.")]
Noise = Annotated[float | None, typer.Option(help="Noise on the sum of clipped updates, in clip norms.")]
Participations = Annotated[
    int | None, typer.Option(help="Rounds in which a client (a canary) takes part, known to the adversary.")
]
Rate = Annotated[float | None, typer.Option(help="Probability of taking part in a round (Poisson sampling).")]
Cohort = Annotated[int | None, typer.Option(help="Clients per round, drawn without replacement.")]
Population = Annotated[int | None, typer.Option(help="All clients (with --cohort-size).")]
Workers = Annotated[int | None, typer.Option(help="Processes; they change the time and nothing else.")]
Hooks = Annotated[
    list[str] | None, typer.Option("--hook", metavar="NAME", help="Tell of every round: tensorboard, mlflow or wandb, offline.")
]
Related = Annotated[str | None, typer.Option(help="What neighbours differ in: add-or-remove-one or replace-one.")]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds (with --sampling-rate or --cohort-size).")]


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
    """Measures what differentially private training really leaks."""


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="A TOML file or a preset; with none the bundled quickstart.")] = "quickstart",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as privacy.noise_multiplier=0.5.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run; default: runs/NAME, numbered.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files; default: COALMINE_DATA.")] = None,
    workers: Workers = None,
    hook: Hooks = None,
    engine: Annotated[str, typer.Option(help="embedded, or flower: the same on Flower's simulation.")] = "embedded",
    secret_seed: Annotated[int | None, typer.Option(help="For tests only: a run that can be repeated is not private.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train with canaries and audit: data, rounds, noise, views and verdict, in one directory.

    \b
    Examples:
      coalmine run
      coalmine run tiny --set privacy.noise_multiplier=1.0 --out runs/first
    """
    from coalmine.cli import options
    from coalmine.cli.engines import trainer

    train = trainer(engine)
    settings = options.run_config(config, changes or [], data_dir, workers)
    where = out if out is not None else options.free_directory(config)
    _say(f"run directory: {where}", quiet)
    with _interruptible(where):
        finished = train(settings, where, secret_seed=secret_seed, hooks=hook or (), quiet=quiet)
    _finish(finished, as_json, quiet)


@app.command()
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

    with _interruptible(directory):
        finished = go_on(directory, workers=workers, hooks=hook or (), quiet=quiet)
    _finish(finished, as_json, quiet)


@app.command()
def estimate(
    scores: Annotated[Path, typer.Argument(help="csv, npz or parquet: 'value,inserted' or 'inserted,held_out' columns.")],
    delta: Delta,
    dim: Annotated[int | None, typer.Option(help="The scores are cosines in this many dimensions: exact null.")] = None,
    max_over_rounds: Annotated[
        int | None, typer.Option(help="With --dim: each score is the largest of this many rounds.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Bound; the first one decides, others are shown. Default: band.")
    ] = None,
    assignment: Annotated[str | None, typer.Option(help="How canaries were chosen: coins, fixed or unknown.")] = None,
    claim: Annotated[float | None, typer.Option(help="The epsilon claimed; or give --noise-multiplier.")] = None,
    noise_multiplier: Noise = None,
    participations: Participations = None,
    sampling_rate: Rate = None,
    cohort_size: Cohort = None,
    population: Population = None,
    rounds: Rounds = None,
    relation: Related = None,
    game: Annotated[
        list[str] | None,
        typer.Option(help="What the scores are about, checked against the claim: 'participation=8 times'."),
    ] = None,
    view: Annotated[str | None, typer.Option(help="What the adversary sees, in words, for the report.")] = None,
    guesses: Annotated[str | None, typer.Option(help="One-run bounds: highest+lowest scores to guess about, as 40+40.")] = None,
    threshold: Annotated[str | None, typer.Option(help="Threshold bounds: a number fixed beforehand, split or all.")] = None,
    confidence: Confidence = 0.95,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the result to this file.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Audit canary scores from any trainer: estimate, lower bound, claim, verdict.

    Columns: 'value,inserted' with one row per canary (also canary, run, round, replicate, group), or two columns of scores
    'inserted,held_out'. Higher scores must mean "more likely inserted".

    \b
    Example:
      coalmine estimate scores.csv --delta 1e-5 --dim 100000 --noise-multiplier 1.0
    """
    from coalmine import _validate
    from coalmine.audit.statements import audit_scores
    from coalmine.cli import options
    from coalmine.estimators import BOUNDS
    from coalmine.scores import Scores

    _validate.delta(delta, allow_zero=True)
    _validate.confidence(confidence)
    for name in method or ():
        _validate.one_of("method", name, BOUNDS)
    methods = method or ["band"]
    further = options.bound_options(methods[0], guesses, threshold)
    pattern = options.participation_pattern(participations, sampling_rate, cohort_size, population, rounds)
    stated = options.stated_claim(claim, noise_multiplier, pattern, relation, delta)
    law, played = options.null_law(dim, max_over_rounds), options.game(game)
    if scores.is_file() and scores.stat().st_size > _LARGE_FILE:
        _say(f"reading {scores.name}, {scores.stat().st_size / 1e6:.0f} MB; this takes a while", quiet)
    table = Scores.from_file(scores, assignment=assignment, dim=dim, null=law, game=played, view=view)
    result = audit_scores(
        table,
        delta=delta,
        claim=stated,
        method=methods[0],
        also=tuple(methods[1:]),
        confidence=confidence,
        options=further,
    )
    if output is not None:
        result.save(output)
    _show(result, as_json)
    if result.verdict is not None and result.verdict.word == "VIOLATED":
        raise typer.Exit(VIOLATED)


@app.command()
def plan(
    claim: Annotated[float, typer.Option(help="The epsilon to be tested.")],
    delta: Delta,
    canaries: Annotated[int, typer.Option(help="Canaries to be inserted.")] = 1000,
    held_out: Annotated[int | None, typer.Option(help="Held-out canaries, if the null law is not known.")] = None,
    family: Annotated[
        str, typer.Option(help="transform, as `run` plants them, or sphere: any with an exact null.")
    ] = "transform",
    confidence: Confidence = 0.95,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Before the run: ceiling, smallest violation that would be noticed, canaries needed.

    \b
    Example:
      coalmine plan --claim 3 --delta 1e-6 --canaries 1000
    """
    from coalmine.cli import options
    from coalmine.estimators.power import plan as make_plan

    design = options.design(canaries, held_out, family)
    _say("planning by simulation, a few seconds", quiet)
    _show(make_plan(claim, delta=delta, design=design, confidence=confidence), as_json)


@app.command()
def account(
    noise_multiplier: Noise = None,
    epsilon: Annotated[float | None, typer.Option(help="Epsilon; leave out what is to be computed.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta; leave out what is to be computed.")] = None,
    participations: Participations = None,
    sampling_rate: Rate = None,
    cohort_size: Cohort = None,
    population: Population = None,
    rounds: Rounds = None,
    accountant: Annotated[str, typer.Option(help="auto, analytic, pld or rdp.")] = "auto",
    relation: Related = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """The analytic epsilon, delta or noise multiplier: give two of the three.

    \b
    Examples:
      coalmine account --noise-multiplier 1 --delta 1e-5
      coalmine account --noise-multiplier 1 --delta 1e-5 --sampling-rate 0.01 --rounds 1000
      coalmine account --epsilon 3 --delta 1e-6 --participations 8
    """
    from coalmine import accounting
    from coalmine.cli import options
    from coalmine.contracts import plain

    pattern = options.participation_pattern(participations, sampling_rate, cohort_size, population, rounds)
    how: Any = {"accountant": accountant, "relation": relation}
    noise, at = options.two_of_three(pattern, noise_multiplier, epsilon, delta, how)
    found = accounting.claim(pattern, noise_multiplier=noise, delta=at, **how)
    about = {"noise multiplier": f"{noise:.6g}", "participation": str(pattern), "relation": found.game.relation}
    text = "\n".join([str(found), *(f"  {name:<18} {value}" for name, value in about.items())])
    typer.echo(json.dumps(plain(found), indent=2) if as_json else text)


@app.command()
def check(
    result: Annotated[Path, typer.Argument(help="A result file, or a run directory.")],
    max_epsilon: Annotated[float, typer.Option(help="The epsilon that must not be exceeded.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """A gate for CI: exit 0 if the audit is consistent with --max-epsilon, 1 if it is violated, 3 if the audit could not tell.

    \b
    Example:
      coalmine check runs/today --max-epsilon 8
    """
    from coalmine import _validate
    from coalmine.cli import options
    from coalmine.contracts import plain
    from coalmine.result import AuditResult

    _validate.non_negative("max_epsilon", max_epsilon)
    audited = AuditResult.load(result)
    verdict = options.judged(max_epsilon, audited)
    shown = {**plain(verdict), "reason": verdict.reason, **plain(verdict.power)}
    shown["noticeable_noise_factor"] = shown["noise_factor"]
    typer.echo(json.dumps(shown, indent=2) if as_json else str(verdict))
    raise typer.Exit({"CONSISTENT": 0, "VIOLATED": VIOLATED, "INCONCLUSIVE": INCONCLUSIVE}[verdict.word])


app.command()(pages.report)
app.command()(pages.compare)
app.command()(zoo.zoo)
app.command()(papers.reproduce)


@app.command()
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
            **dict.fromkeys(("torch", "safetensors", "pydantic", "tomli", "tomli_w"), ("training", "train")),
            **dict.fromkeys(("matplotlib", "jinja2", "markupsafe"), ("a report", "report")),
        }
        if error.name not in needs:
            raise
        what, extra = needs[error.name]
        _fail(f'{what} needs {error.name}: pip install "coalmine[{extra}]"', USAGE)
    except MemoryError:
        _fail("not enough memory for this input.", BROKEN)
    except Exception as error:  # a fault of ours must not look like a violation, which Python's own exit code 1 would
        if os.environ.get("COALMINE_TRACEBACK"):
            raise
        text = (
            f"internal error, {type(error).__name__}: {error}. Please report it; COALMINE_TRACEBACK=1 shows where it happened."
        )
        _fail(text, BROKEN)
    sys.exit(0)


@contextmanager
def _interruptible(directory: Path) -> Iterator[None]:
    """Ctrl-C loses the current round, and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        _say(f"coalmine: interrupted; `coalmine resume {shlex.quote(str(directory))}` goes on.", quiet=False)
        raise typer.Exit(INTERRUPTED) from None


def _finish(finished: Any, as_json: bool, quiet: bool) -> None:
    """What a run ended with, and where its page is; a violation is an exit code."""
    _show(finished, as_json)
    if (finished.directory / "report.html").is_file():
        _say(f"report: {finished.directory / 'report.html'}", quiet)
    if finished.result is not None and finished.result.verdict is not None and finished.result.verdict.word == "VIOLATED":
        raise typer.Exit(VIOLATED)


def _fail(text: str, code: int) -> NoReturn:
    from coalmine.terminal import harmless

    typer.echo(f"coalmine: {harmless(text)}", err=True)  # it may quote a file
    sys.exit(code)
