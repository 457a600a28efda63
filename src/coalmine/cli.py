"""Verbs to library calls; no logic of its own.

Results go to standard output (`--json`: one JSON document and nothing else), progress and errors to standard error.
Exit codes: 0 consistent or done, 1 violated (or a failed self-test), 2 usage, 3 inconclusive (`check` only), 4 broken input
(or a fault of this program).
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from coalmine.contracts import Claim, Null
    from coalmine.participation import Participation

VIOLATED, USAGE, INCONCLUSIVE, BROKEN = 1, 2, 3, 4

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
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]
Noise = Annotated[float | None, typer.Option(help="Noise on the sum of clipped updates, in clip norms.")]
Participations = Annotated[
    int | None, typer.Option(help="Rounds in which a client (a canary) takes part, known to the adversary.")
]
Rate = Annotated[float | None, typer.Option(help="Probability of taking part in a round (Poisson sampling).")]
Cohort = Annotated[int | None, typer.Option(help="Clients per round, drawn without replacement.")]
Population = Annotated[int | None, typer.Option(help="All clients (with --cohort-size).")]
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
    rounds: Annotated[int | None, typer.Option(help="Number of rounds (with --sampling-rate).")] = None,
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
    from coalmine.audit import audit_scores
    from coalmine.estimators import BOUNDS
    from coalmine.scores import Scores

    _validate.delta(delta, allow_zero=True)
    _validate.confidence(confidence)
    for name in method or ():
        _validate.one_of("method", name, BOUNDS)
    stated = _stated_claim(claim, noise_multiplier, participations, sampling_rate, rounds, delta)
    table = Scores.from_file(scores, assignment=assignment, dim=dim, null=_null(dim, max_over_rounds))
    methods = method or ["band"]
    result = audit_scores(table, delta=delta, claim=stated, method=methods[0], also=tuple(methods[1:]), confidence=confidence)
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
    held_out: Annotated[int | None, typer.Option(help="Held-out canaries, if the null law is not exact.")] = None,
    confidence: Confidence = 0.95,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Before the run: ceiling, smallest violation that would be noticed, canaries needed.

    \b
    Example:
      coalmine plan --claim 3 --delta 1e-6 --canaries 1000
    """
    from coalmine import _validate
    from coalmine.estimators.power import Design
    from coalmine.estimators.power import plan as make_plan

    design = Design(_validate.whole("canaries", canaries, least=1))
    if held_out is not None:
        design = Design(design.inserted, _validate.whole("held_out", held_out, least=1))
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
    relation: Annotated[str | None, typer.Option(help="add-or-remove-one or replace-one.")] = None,
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
    from coalmine.contracts import plain

    pattern = _participation(participations, sampling_rate, cohort_size, population, rounds)
    how: Any = {"accountant": accountant, "relation": relation}
    noise, at = _two_of_three(pattern, noise_multiplier, epsilon, delta, how)
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
    from coalmine.contracts import Claim, plain
    from coalmine.result import AuditResult
    from coalmine.verdict import judge

    _validate.non_negative("max_epsilon", max_epsilon)
    audited = AuditResult.load(result)
    verdict = judge(Claim(epsilon=max_epsilon, delta=audited.bound.delta, accountant="limit"), audited.bound)
    typer.echo(json.dumps(plain(verdict), indent=2) if as_json else str(verdict))
    raise typer.Exit({"CONSISTENT": 0, "VIOLATED": VIOLATED, "INCONCLUSIVE": INCONCLUSIVE}[verdict.word])


@app.command()
def reproduce(
    table: Annotated[str, typer.Argument(help="table1")],
    simulations: Annotated[int, typer.Option(help="Simulations per cell.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the simulations.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """A paper's table, ours beside theirs.

    \b
    Example:
      coalmine reproduce table1
    """
    from coalmine import _validate
    from coalmine.papers.table1 import table1
    from coalmine.progress import track

    _validate.one_of("table", table, ("table1",))
    found = table1(
        simulations=simulations, seed=seed, workers=workers, track=lambda items: track(items, "table 1", quiet=quiet)
    )
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))


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
    from coalmine.errors import CoalmineError, InputFileError, NonFiniteError, NotEnoughCanariesError

    try:
        app()
    except (InputFileError, NonFiniteError, NotEnoughCanariesError) as error:
        _fail(str(error), BROKEN)
    except (CoalmineError, ValueError) as error:
        _fail(str(error), USAGE)
    except OSError as error:
        _fail(": ".join(str(part) for part in (error.strerror or error, error.filename) if part), BROKEN)
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


def _show(result: Any, as_json: bool) -> None:
    """A result as words for people or as one JSON document."""
    from coalmine.contracts import plain

    if not as_json:
        typer.echo(str(result))
    elif hasattr(result, "to_json"):
        typer.echo(result.to_json(), nl=False)
    else:
        typer.echo(json.dumps(plain(result), indent=2))


def _stated_claim(
    epsilon: float | None,
    noise: float | None,
    participations: int | None,
    rate: float | None,
    rounds: int | None,
    delta: float,
) -> "Claim | None":
    """The claim of the options of `estimate`, if there is one."""
    from coalmine import _validate, accounting
    from coalmine.contracts import Claim

    if epsilon is not None and noise is not None:
        _fail("give --claim or --noise-multiplier, not both.", USAGE)
    if noise is not None:
        pattern = _participation(participations, rate, None, None, rounds)
        return accounting.claim(pattern, noise_multiplier=noise, delta=delta)
    if participations is not None or rate is not None or rounds is not None:
        _fail("--participations, --sampling-rate and --rounds describe the claim of --noise-multiplier; give that too.", USAGE)
    if epsilon is None:
        return None
    return Claim(_validate.non_negative("claim", epsilon), _validate.delta(delta, allow_zero=True))


def _two_of_three(
    pattern: "Participation", noise: float | None, epsilon: float | None, delta: float | None, how: Any
) -> tuple[float, float]:
    """(noise multiplier, delta) from any two of the three options of `account`."""
    from coalmine import accounting

    if epsilon is None and noise is not None and delta is not None:
        return noise, delta
    if noise is None and epsilon is not None and delta is not None:
        return accounting.calibrate_noise(pattern, epsilon=epsilon, delta=delta, **how), delta
    if delta is None and noise is not None and epsilon is not None:
        found = accounting.claimed_delta(pattern, noise_multiplier=noise, epsilon=epsilon, **how)
        if not 0 < found < 1:
            _fail(f"noise multiplier {noise:g} has delta = {found:g} at epsilon = {epsilon:g}: nothing to state.", USAGE)
        return noise, found
    given = {"--noise-multiplier": noise, "--epsilon": epsilon, "--delta": delta}
    named = ", ".join(name for name, value in given.items() if value is not None)
    _fail(f"give exactly two of {', '.join(given)}; got {named or 'none'}.", USAGE)


def _null(dim: int | None, rounds: int | None) -> "Null | None":
    from coalmine.nulls import CosineNull, MaxNull

    if dim is None:
        if rounds is not None:
            _fail("--max-over-rounds needs --dim: the union bound starts from the exact law of one round.", USAGE)
        return None
    return CosineNull(dim) if rounds is None else MaxNull(CosineNull(dim), rounds)


def _participation(
    times: int | None, rate: float | None, cohort: int | None, population: int | None, rounds: int | None
) -> "Participation":
    from coalmine.participation import FixedSize, Once, Poisson, Repeated

    patterns = [times is not None, rate is not None, cohort is not None]
    if sum(patterns) > 1:
        _fail("give one of --participations, --sampling-rate and --cohort-size.", USAGE)
    if (rate is not None or cohort is not None) and rounds is None:
        _fail("--sampling-rate and --cohort-size need --rounds.", USAGE)
    if rate is not None and population is not None:
        _fail("--population belongs to --cohort-size; a rate already says what share of it takes part.", USAGE)
    if rate is not None and rounds is not None:
        return Poisson(rate, rounds)
    if cohort is not None and rounds is not None:
        if population is None:
            _fail("--cohort-size needs --population.", USAGE)
        return FixedSize(cohort, population, rounds)
    if rounds is not None or population is not None:
        _fail(
            "--rounds and --population belong to --sampling-rate or --cohort-size; else give --participations.",
            USAGE,
        )
    return Once() if times is None else Repeated(times)


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        typer.echo(text, err=True)


def _fail(text: str, code: int) -> NoReturn:
    typer.echo(f"coalmine: {text}", err=True)
    sys.exit(code)
