"""The verbs that read finished audits: `report`, `compare`, `verify` and `check`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.speech import BROKEN, INCONCLUSIVE, PAGES, AsJson, Quiet, check_output, say, show


def report(
    source: Annotated[Path, typer.Argument(help="The directory of a run, or a result file.", metavar="DIR or RESULT")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to; default: report.html beside the result, md to the terminal."),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="html, or md: a fragment for a model card.")] = "html",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """An audit on one page: verdict, numbers, figures, setting, how to reproduce it. Nothing is loaded from anywhere.

    \b
    Examples:
      coalmine report runs/first
      coalmine report result.json -o audit.html
      coalmine report runs/first --format md
    """
    from coalmine import _validate, manifest
    from coalmine.report.evidence import Evidence

    _validate.one_of("format", format, ("html", "md"))
    check_output(output, source, kinds=PAGES)
    evidence = Evidence.of(source)
    if format == "md":
        from coalmine.report.card import card

        text, where = card(evidence), output
    else:
        from coalmine.report.page import report as page

        text = page(evidence)
        where = output or (source if source.is_dir() else source.parent) / "report.html"
    if where is not None:
        manifest.put(where, text)
        say(f"wrote {where}", quiet)
    if as_json:
        show(evidence.result, as_json)
    elif where is None:
        typer.echo(text, nl=False)


def compare(
    directories: Annotated[list[Path], typer.Argument(help="Directories of finished runs, at least two.", metavar="DIR DIR …")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write a page, as compare.html.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Several runs in one table, and in one page: rows and columns are what differs between their configurations.

    \b
    Example:
      coalmine compare runs/first runs/second -o compare.html
    """
    from coalmine import manifest
    from coalmine.report.compare import compare as put_together

    check_output(output, *directories, kinds=PAGES)
    found = put_together(directories)
    if output is not None:
        manifest.put(output, found.to_html())
        say(f"wrote {output}", quiet)
    show(found, as_json)


def verify(
    source: Annotated[Path, typer.Argument(help="The directory of a finished run, or a result file.", metavar="DIR")],
    digest: Annotated[str | None, typer.Option(help="The digest that the run's last line and its report print.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Whether the files of a finished run are those that the run wrote.

    Without --digest only accidents are noticed: whoever edits a file on purpose can write the manifest anew.

    \b
    Exit codes:
      0   the files are those of the manifest, and the digest, if one was given, is the manifest's
      3   unverified: there is no manifest to compare with
      4   a file was changed, removed or added, or the digest is another one

    \b
    Example:
      coalmine verify runs/first
    """
    from coalmine import manifest

    found = manifest.verify(source, digest)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    elif not quiet or found.status != "intact":
        typer.echo(found.sentence)
    raise typer.Exit({"intact": 0, "unverified": INCONCLUSIVE, "damaged": BROKEN}[found.status])


def check(
    result: Annotated[Path, typer.Argument(help="A result file, or a run directory.")],
    max_epsilon: Annotated[float, typer.Option(help="The epsilon that must not be exceeded.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """A gate for CI: exit 0 if the audit passes --max-epsilon, 1 if it fails, 3 if the audit could not tell.

    \b
    Exit codes:
      0   CONSISTENT; or DEVIATES to more noise than claimed, otherwise as described: passes, with a notice
      1   VIOLATED; or DEVIATES to less protection than claimed, or to another mechanism than the accountant was told
      3   INCONCLUSIVE; also more noise than claimed, where the rest could not be told
      2, 4   wrong usage, broken input

    \b
    Example:
      coalmine check runs/today --max-epsilon 8
    """
    from coalmine import _validate, manifest
    from coalmine.cli import options
    from coalmine.contracts import plain
    from coalmine.result import AuditResult

    _validate.non_negative("max_epsilon", max_epsilon)
    audited = AuditResult.load(result)
    files = manifest.compare(result).status
    if files == "unverified":
        say("notice: unverified: there is no manifest beside this result, so nobody can tell whether it was edited", quiet)
    verdict = options.judged(max_epsilon, audited)
    shown = {**plain(verdict), "reason": verdict.reason, **plain(verdict.power)}
    shown["noticeable_noise_factor"] = shown["noise_factor"]
    shown["files"] = files
    code = shown["exit_code"] = options.exit_code(verdict)
    typer.echo(json.dumps(shown, indent=2) if as_json else str(verdict))
    if verdict.word == "DEVIATES" and not verdict.failed:
        say("notice: more noise than claimed; this alone fails no gate", quiet)
    raise typer.Exit(code)
