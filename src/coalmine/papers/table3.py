"""Table 3 (ICLR; Table 2 of the first version): accuracy with and without canaries.

The paper trains on Stack Overflow; here are MNIST by writer, Shakespeare's roles and chats. A row has the verdict "same shape"
if the canaries change the accuracy by no more than two standard errors over clients, as they change nothing in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import hypot

from coalmine.config import Config
from coalmine.papers.experiment import Ask
from coalmine.papers.families import chat, mnist, shakespeare
from coalmine.papers.outcome import Check, Outcome, Row, Verdict
from coalmine.papers.printed import TABLE3
from coalmine.papers.trained import Trained, obtain, records, seconds_of

Family = Callable[..., tuple[str, Config]]
FAMILIES: Mapping[str, tuple[Family, tuple[float, ...]]] = {  # noise levels are those of the runs that other tables need
    "mnist": (mnist, (0.0, 0.16, 0.25, 0.315)),
    "shakespeare": (shakespeare, (0.0, 0.0496, 0.0986, 0.2317)),
    "chat": (chat, (0.0, 0.0496, 0.0986, 0.2317)),
}
TITLES = {"mnist": "MNIST by writer", "shakespeare": "Shakespeare", "chat": "chat words"}
_WIDTH = 2.0  # standard errors


def table3(ask: Ask) -> Outcome:
    """All three data sets, or one part."""
    names = [ask.part] if ask.part else list(FAMILIES)
    rows: list[Row] = []
    checks: list[Check] = []
    trained: dict[str, Trained] = {}
    for name in names:
        family, noises = FAMILIES[name]
        pairs = {noise: [family(ask, noise, canaries=canaries) for canaries in (False, True)] for noise in noises}
        runs = obtain(ask, dict(each for pair in pairs.values() for each in pair))
        trained |= runs
        found = {noise: (runs[without[0]], runs[having[0]]) for noise, (without, having) in pairs.items()}
        rows += [row for noise, (without, having) in found.items() for row in _rows(name, noise, without, having)]
        steps = [having.accuracy for _, having in found.values()]
        falls = all(later <= sooner + _WIDTH * hypot(one, other) for (sooner, one), (later, other) in pairwise(steps))
        checks.append(Check(f"{TITLES[name]}: more noise is not better, within {_WIDTH:g} standard errors", falls))
    paper = ", ".join(f"{noise:g}: {without} and {having} %" for noise, (without, having) in TABLE3.items())
    return Outcome(
        "table3" if ask.part is None else f"table3-{ask.part}",
        "Table 3, accuracy in percent without and with canaries",
        tuple(rows),
        error="standard error over clients",
        checks=tuple(checks),
        notes=(f"The paper's, on Stack Overflow, without and with canaries by noise: {paper}. It has no other data.",),
        about=ask.about(training_seconds=seconds_of(trained.values())),
        details={"runs": records(trained.values())},
    )


def _rows(name: str, noise: float, without: Trained, having: Trained) -> list[Row]:
    (before, before_error), (after, after_error) = without.accuracy, having.accuracy
    error = hypot(before_error, after_error)
    share = having.finished.training["mean_canary_share"]
    place = {"data": TITLES[name], "noise": noise}
    same: Verdict = "same shape" if abs(after - before) <= _WIDTH * error else "differs"
    learned = without.learned or having.learned  # if neither did, that they do not differ says nothing
    change = Row(
        f"{TITLES[name]}, noise {noise:g}, change by canaries",
        "0 to -0.1",
        100 * (after - before),
        100 * error,
        same if learned else None,
        f"{100 * share:.0f} % of a cohort are canaries" + ("" if learned else "; no better than always the most frequent"),
        {**place, "column": "change"},
    )
    columns = (("without canaries", before, before_error), ("with canaries", after, after_error))
    return [
        *(
            Row(f"{TITLES[name]}, noise {noise:g}, {words}", "", 100 * value, 100 * spread, place={**place, "column": words})
            for words, value, spread in columns
        ),
        change,
    ]
