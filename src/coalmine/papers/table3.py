"""Table 3 (ICLR; Table 2 of the first version): accuracy with and without canaries.

The paper trains on Stack Overflow; here are MNIST by writer, Shakespeare's roles and chats. A change by canaries has the
verdict "same shape" if it is no more than two standard errors over clients, as canaries change nothing in the paper; an
accuracy, by where it stands in the paper's order, in which more noise is worse (see `in_order`). The errors are of a sample
of clients, as if each accuracy had a sample of its own: wider than a comparison of the same clients would have it. That another
run with the same settings would end elsewhere is not in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coalmine.config import Config
from coalmine.papers.checking import TOGETHER, Compared, by_kind
from coalmine.papers.experiment import Ask
from coalmine.papers.families import chat, mnist, shakespeare
from coalmine.papers.outcome import Check, Outcome, Row, Verdict, in_order
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
WAYS = ("without canaries", "with canaries")
NOTHING = "no better than always the most frequent"
_WIDTH = 2.0  # standard errors


def table3(ask: Ask) -> Outcome:
    """All three data sets, or one part."""
    names = [ask.part] if ask.part else list(FAMILIES)
    rows: list[Row] = []
    checks: list[Check] = []
    trained: dict[str, Trained] = {}
    drawn: dict[str, dict[float, list[tuple[float, float]]]] = {}
    for name in names:
        family, noises = FAMILIES[name]
        pairs = {noise: [family(ask, noise, canaries=canaries) for canaries in (False, True)] for noise in noises}
        runs = obtain(ask, dict(each for pair in pairs.values() for each in pair))
        trained |= runs
        found = {noise: (runs[without[0]], runs[having[0]]) for noise, (without, having) in pairs.items()}
        drawn[TITLES[name]] = {noise: [_percent(run) for run in pair] for noise, pair in found.items()}
        rows += _accuracies(name, found)
        changes = [_change(name, noise, *pair) for noise, pair in found.items()]
        rows += changes
        checks += _checks(name, [row for row in changes if row.verdict])

    def figure() -> Any:
        from coalmine.papers.figures import accuracy_panels

        return accuracy_panels(drawn, WAYS)

    paper = ", ".join(f"{noise:g}: {without} and {having} %" for noise, (without, having) in TABLE3.items())
    widest = max(row.error or 0.0 for row in rows if row.place["column"] == "change")
    return Outcome(
        "table3" if ask.part is None else f"table3-{ask.part}",
        f"Table 3 on {listed([TITLES[name] for name in names])}: accuracy in percent without and with canaries",
        tuple(rows),
        error="standard error over clients",
        checks=tuple(checks),
        notes=(
            f"The paper's, on Stack Overflow alone, without and with canaries by noise: {paper}.",
            *(JUDGES[name] for name in names),
            f"Changes by less than {_WIDTH * widest:.1f} points would not show.",
            TOGETHER,
        ),
        about=ask.about(training_seconds=seconds_of(trained.values())),
        details={"runs": records(trained.values())},
        figure=figure,
    )


def _checks(name: str, changes: list[Row]) -> list[Check]:
    """Of those that can be compared; if no run learned anything, there is nothing to check."""
    kind = f"{TITLES[name]}: canaries do not change the accuracy"
    return by_kind(
        [Compared(kind, f"{row.what}, {row.shown}", abs(row.ours or 0.0) / (row.error or math.inf)) for row in changes]
    )


def _accuracies(name: str, found: Mapping[float, tuple[Trained, Trained]]) -> list[Row]:
    """Without and with canaries; more noise is never better in the paper."""
    rows = []
    for column, words in enumerate(WAYS):
        runs = {noise: pair[column] for noise, pair in found.items()}
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


def listed(words: Sequence[str]) -> str:
    """'a, b and c'."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _percent(run: Trained) -> tuple[float, float]:
    value, error = run.accuracy
    return 100 * value, 100 * error


def _change(name: str, noise: float, without: Trained, having: Trained) -> Row:
    (before, before_error), (after, after_error) = without.accuracy, having.accuracy
    error = math.hypot(before_error, after_error)
    share = having.finished.training["mean_canary_share"]
    same: Verdict = "same shape" if abs(after - before) <= _WIDTH * error else "differs"
    learned = without.learned or having.learned  # if neither did, that they do not differ says nothing
    return Row(
        f"{TITLES[name]}, noise {noise:g}, change by canaries",
        "0 to -0.1",
        100 * (after - before),
        100 * error,
        same if learned else None,
        f"{100 * share:.0f} % of a cohort are canaries" + ("" if learned else f"; {NOTHING}"),
        {"data": TITLES[name], "noise": noise, "column": "change"},
    )
