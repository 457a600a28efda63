"""Table 3 (ICLR; Table 2 of the first version): accuracy with and without canaries.

The paper trains on Stack Overflow; here are MNIST by writer, Shakespeare's roles and chats. A change by canaries has the
verdict "same shape" if it is no more than two of its errors, as canaries change nothing in the paper; an accuracy, by where it
stands in the paper's order, in which more noise is worse (see `in_order`).

Two things are in the error of a change. One is the sample of clients that judge, as if each accuracy had a sample of its own:
wider than a comparison of the same clients would have it. The other is that noise alone makes runs end apart, the more of it
the farther: at the two largest noises there are further runs without canaries, which differ in nothing but their noise. How far
apart they are is their standard deviation, which of so few is widened as Student's t has it at 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coalmine.config import Config
from coalmine.papers.checking import Compared, by_kind
from coalmine.papers.experiment import Ask
from coalmine.papers.families import chat, mnist, shakespeare
from coalmine.papers.outcome import Check, Outcome, Row, Verdict, in_order, listed
from coalmine.papers.printed import TABLE3
from coalmine.papers.trained import Trained, obtain, records, seconds_of

Family = Callable[..., tuple[str, Config]]
FAMILIES: Mapping[str, tuple[Family, tuple[float, ...]]] = {  # noise levels are those of the runs that other tables need
    "mnist": (mnist, (0.0, 0.16, 0.25, 0.315)),
    "shakespeare": (shakespeare, (0.0, 0.0496, 0.0986, 0.2317)),
    "chat": (chat, (0.0, 0.0496, 0.0986, 0.2317)),
}
TITLES = {"mnist": "MNIST by writer", "shakespeare": "Shakespeare", "chat": "chats"}
JUDGES = {  # by whom accuracies are measured
    "mnist": "Accuracy on MNIST by writer is that of one in twenty images of every client, the others of which train.",
    "shakespeare": "Accuracy on Shakespeare is that of a tenth of the roles, which do not train.",
    "chat": "Accuracy on chats is that of 400 clients that do not train. Most are made of utterances of users who train, too, "
    "and several are one user's, which a standard error over clients does not count.",
}
COLUMNS = {  # with canaries or without, and in which variant
    "without canaries": (False, ""),
    "with canaries": (True, ""),
    "without canaries, clip norm fixed": (False, "fixed"),
}
Key = tuple[float, bool, str]  # noise, canaries, variant
BESIDE: Mapping[
    str, Sequence[Key]
] = {  # does adaptive clipping disturb the order of noises? does the share of canaries matter?
    "chat": [(0.0, False, "fixed"), (0.0496, False, "fixed"), (0.0986, False, "fixed")],
    "shakespeare": [(0.0, False, "fixed"), (0.2317, False, "fixed"), (0.0, True, "few")],
}
NOTHING = "no better than always the most frequent"
AGAIN = 2  # further runs without canaries
_WIDTH = 2.0  # standard errors


def table3(ask: Ask) -> Outcome:
    """All three data sets, or one part."""
    names = [ask.part] if ask.part else list(FAMILIES)
    rows: list[Row] = []
    checks: list[Check] = []
    trained: dict[str, Trained] = {}
    drawn: dict[str, dict[str, dict[float, tuple[float, float]]]] = {}
    for name in names:
        family, noises = FAMILIES[name]
        wanted = {key: family(ask, key[0], canaries=key[1], variant=key[2]) for key in _wanted(ask, name, noises)}
        runs = obtain(ask, dict(wanted.values()))
        trained |= runs
        found = {key: runs[each] for key, (each, _) in wanted.items()}
        if name == "chat":  # above a noise of 0.2 the clip norm is fixed anyway
            found[noises[-1], False, "fixed"] = found[noises[-1], False, ""]
        columns = {
            words: {noise: found[noise, canaries, variant] for noise in noises if (noise, canaries, variant) in found}
            for words, (canaries, variant) in COLUMNS.items()
        }
        drawn[TITLES[name]] = {
            words: {noise: _percent(run) for noise, run in column.items()} for words, column in columns.items() if column
        }
        rows += _accuracies(name, columns)
        changes = [_change(name, noise, *_group(found, noise)) for noise in noises]
        rows += changes
        rows += [_change(name, *few, column="change by few") for few in _few(found)]
        checks += _checks(name, [row for row in changes if row.verdict])

    def figure() -> Any:
        from coalmine.papers.figures import accuracy_panels

        return accuracy_panels(drawn)

    paper = ", ".join(f"{noise:g}: {without} and {having} %" for noise, (without, having) in TABLE3.items())
    widest = max(row.error or 0.0 for row in rows if row.place["column"] == "change by canaries")
    return Outcome(
        ask.named("table3"),
        f"Table 3 on {listed([TITLES[name] for name in names])}: accuracy in percent without and with canaries",
        tuple(rows),
        error="standard error over clients; of changes see below",
        checks=tuple(checks),
        notes=(
            f"The paper's, on Stack Overflow alone, without and with canaries by noise: {paper}.",
            *(JUDGES[name] for name in names),
            f"Changes by less than {_WIDTH * widest:.1f} points would not show.",
            "Errors of changes hold that of the clients that judge and, at the two largest noises, how far apart runs end that "
            "differ in nothing but their noise.",
        ),
        about=ask.about(training_seconds=seconds_of(trained.values())),
        details={"runs": records(trained.values())},
        figure=figure,
    )


def _wanted(ask: Ask, name: str, noises: Sequence[float]) -> list[Key]:
    """Without canaries and with them; again at the two largest noises; and what is to be found out beside."""
    again = [f"again{number}" for number in range(1, 1 + ask.pick(full=AGAIN, quick=1))]
    wanted = [(noise, canaries, "") for noise in noises for canaries in (False, True)]
    wanted += [(noise, False, variant) for noise in noises[-2:] for variant in again]
    return wanted + [(noise, canaries, variant) for noise, canaries, variant in BESIDE.get(name, ())]


def _group(found: Mapping[Key, Trained], noise: float) -> list[Trained]:
    """Without canaries, with them, and those without that were made again."""
    again = [run for (at, _, variant), run in found.items() if at == noise and variant.startswith("again")]
    return [found[noise, False, ""], found[noise, True, ""], *again]


def _few(found: Mapping[Key, Trained]) -> list[tuple[float, Trained, Trained]]:
    """(noise, without canaries, with few of them)."""
    return [(noise, found[noise, False, ""], run) for (noise, _, variant), run in found.items() if variant == "few"]


def _checks(name: str, changes: list[Row]) -> list[Check]:
    """Of those that can be compared; if no run learned anything, there is nothing to check."""
    kind = f"{TITLES[name]}: canaries do not change the accuracy"
    return by_kind(
        [Compared(kind, f"{row.what}, {row.shown}", abs(row.ours or 0.0) / (row.error or math.inf)) for row in changes]
    )


def _accuracies(name: str, columns: Mapping[str, Mapping[float, Trained]]) -> list[Row]:
    """Without and with canaries; more noise is never better in the paper."""
    rows = []
    for words, runs in columns.items():
        if not runs:
            continue
        values, errors = zip(*(run.accuracy for run in runs.values()), strict=True)
        learned = any(run.learned for run in runs.values())  # if none did, that they do not differ says nothing
        verdicts = in_order([-noise for noise in runs], values, errors, _WIDTH) if learned else [None] * len(runs)
        for (noise, run), value, error, fits in zip(runs.items(), values, errors, verdicts, strict=True):
            marks = {NOTHING: not run.learned, "diverged": run.diverged}
            rows.append(
                Row(
                    f"{TITLES[name]}, noise {noise:g}, {words}",
                    "falls with noise",
                    100 * value,
                    100 * error,
                    fits,
                    "; ".join(mark for mark, wrong in marks.items() if wrong),
                    {"data": TITLES[name], "noise": noise, "column": words},
                )
            )
    return sorted(rows, key=lambda row: row.place["noise"])


def _percent(run: Trained) -> tuple[float, float]:
    value, error = run.accuracy
    return 100 * value, 100 * error


def _change(
    name: str, noise: float, without: Trained, having: Trained, *again: Trained, column: str = "change by canaries"
) -> Row:
    """By canaries, from the mean of the runs without them."""
    alone, (after, after_error) = [run.accuracy for run in (without, *again)], having.accuracy
    change = after - statistics.mean(value for value, _ in alone)
    apart = spread([value for value, _ in alone])
    error = math.hypot(alone[0][1], after_error, apart)
    same: Verdict = "same shape" if abs(change) <= _WIDTH * error else "differs"
    learned = without.learned or having.learned  # if neither did, that they do not differ says nothing
    share = 100 * having.finished.training["mean_canary_share"]
    marks = [f"{share:.0f} % of a cohort are canaries"]
    if again:
        marks.append("runs without them end at " + listed([f"{100 * value:.1f}" for value, _ in alone]))
    return Row(
        f"{TITLES[name]}, noise {noise:g}, {column}",
        "0 to -0.1",
        100 * change,
        100 * error,
        same if learned else None,
        "; ".join([*marks, *([] if learned else [NOTHING])]),
        {"data": TITLES[name], "noise": noise, "column": column},
    )


def spread(values: Sequence[float]) -> float:
    """How far another run is from the mean of these, as a standard error; 0 if there is but one.

    >>> round(spread([0.80, 0.82, 0.84]), 4), spread([0.8])
    (0.0507, 0.0)
    """
    from scipy.stats import norm, t

    if len(values) < 2:
        return 0.0
    widened = float(t.ppf(0.975, len(values) - 1) / norm.ppf(0.975))
    return widened * statistics.stdev(values) * math.sqrt(1 + 1 / len(values))
