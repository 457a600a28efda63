"""Table 3 (ICLR; Table 2 of the first version): accuracy with and without canaries.

The paper trains on Stack Overflow; here are MNIST by writer, Shakespeare's roles and chats. A change by canaries has the
verdict "same shape" if it is no more than two of its errors, as canaries change nothing in the paper; an accuracy, by where it
stands in the paper's order, in which more noise is worse (see `in_order`), among runs with the same kind of clipping.

Two things are in the errors. One is the sample of clients that judge, as if each accuracy had a sample of its own: wider than a
comparison of the same clients would have it. The other is that noise alone makes runs end apart. At one or two noises there are
further runs without canaries, which differ in nothing but their noise; how far apart these are counts at their noise and at
smaller ones, and is known from so few that it is judged by Student's t. (Runs with canaries and without have the same noise,
and may be nearer to each other than that.) At larger noises it is not known: there a change may be called none, but
not one, and accuracies are put in order with what is known of smaller ones.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import special

from coalmine.papers.kit.checking import TOGETHER, CheckedNumber, by_kind
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult, PaperRow, RowVerdict, listed
from coalmine.papers.kit.rules import in_order
from coalmine.papers.kit.trained import records, seconds_of
from coalmine.papers.one_shot.families import FEW, FIXED, Family, chat, mnist, shakespeare
from coalmine.papers.one_shot.numbers import TABLE3
from coalmine.papers.one_shot.trained import OneShotRun, obtain
from coalmine.training.config import Config

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
    "without canaries, clip norm fixed": (False, FIXED),
}
Key = tuple[float, bool, str]  # noise, canaries, variant
AccuracyPoint = tuple[float, float, float]  # noise, accuracy, its error
# Does adaptive clipping disturb the order of noises? Does the share of canaries matter?
BESIDE: Mapping[str, Sequence[Key]] = {
    "chat": [(0.0, False, FIXED), (0.0496, False, FIXED), (0.0986, False, FIXED)],
    "shakespeare": [(0.0, False, FIXED), (0.2317, False, FIXED), (0.0, True, FEW)],
}
FALLS = "falls with noise"  # the paper's accuracies
NOTHING = "no better than always the most frequent"
UNEQUAL = "runs end so far apart that no change would show"
UNREPEATED = "how far apart runs end is not known"
AGAIN: Mapping[str, Sequence[float]] = {  # noises at which there are two further runs without canaries
    "mnist": (0.25, 0.315),
    "shakespeare": (0.0986, 0.2317),
    "chat": (0.0496,),
}
_WIDTH, _AT_95 = 2.0, 1.96  # standard errors


def reproduce(ask: Ask) -> PaperResult:
    """All three data sets, or one part."""
    names = [ask.part] if ask.part else list(FAMILIES)
    wanted = {(name, key): _config(ask, name, key) for name in names for key in _keys(ask, name)}
    trained = obtain(ask, dict(wanted.values()))
    judged = {
        name: Judged.of(name, {key: trained[config] for (of, key), (config, _) in wanted.items() if of == name})
        for name in names
    }

    def figure() -> Any:
        from coalmine.papers.one_shot.drawings import accuracy_panels

        return accuracy_panels({TITLES[name]: each.points for name, each in judged.items()})

    paper = ", ".join(f"{noise:g}: {without} and {having} %" for noise, (without, having) in TABLE3.items())
    where = {TITLES[name]: listed([f"{noise:g}" for noise in AGAIN[name]]) for name in names}
    return PaperResult(
        ask.named("table3"),
        f"Table 3 on {listed([TITLES[name] for name in names])}: accuracy in percent without and with canaries",
        tuple(row for each in judged.values() for row in each.rows),
        error="standard error; see below",
        checks=tuple(by_kind([each for some in judged.values() for each in some.compared])),
        notes=(
            f"The paper's, on Stack Overflow alone, without and with canaries by noise: {paper}.",
            *(JUDGES[name] for name in names),
            f"The least change that would show is {listed([each.least for each in judged.values()])}.",
            "Errors hold that of the clients that judge and, with noise, how far apart runs end that differ in nothing but "
            f"their noise. These were made at {'; '.join(f'{noises} on {data}' for data, noises in where.items())}.",
            TOGETHER,
        ),
        about=ask.about(training_seconds=seconds_of(trained.values())),
        details={"runs": records(trained.values())},
        figure=figure,
    )


@dataclass(frozen=True)
class Judged:
    """What there is to say of one data set."""

    rows: list[PaperRow]
    compared: list[CheckedNumber]
    least: str  # change that would show
    points: dict[str, list[AccuracyPoint]]  # of a drawing

    @staticmethod
    def of(name: str, found: Mapping[Key, OneShotRun]) -> Judged:
        """Of these runs."""
        noises, columns = FAMILIES[name][1], _columns(name, found)
        apart = {noise: _apart(found, noise, AGAIN[name]) for noise in noises}
        largest = Apart.of(_alone(found, max(AGAIN[name])))  # better than nothing where it is not known
        orders = {noise: each if each.freedom else largest for noise, each in apart.items()}
        changes = [_change(name, noise, _alone(found, noise), found[noise, True, ""], apart[noise]) for noise in noises]
        few = [_change(name, *each, apart[each[0]], column="change by few") for each in _few(found)]
        shown = [100 * change.shows for change in changes if change.row.verdict]
        points = {words: [_point(*each) for each in column.items()] for words, column in columns.items() if column}
        points["without canaries"] += [_point(noise, run) for noise in AGAIN[name] for run in _alone(found, noise)[1:]]
        return Judged(
            [*_accuracies(name, columns, orders), *(change.row for change in (*changes, *few))],
            _compared(name, changes),
            (f"{min(shown):.1f} to {max(shown):.1f} points" if shown else "none") + f" on {TITLES[name]}",
            points,
        )


def _keys(ask: Ask, name: str) -> list[Key]:
    """Without canaries and with them; again without them; and what is to be found out beside."""
    again = [f"again{number}" for number in range(1, 1 + ask.pick(full=2, quick=1))]
    keys: list[Key] = [(noise, canaries, "") for noise in FAMILIES[name][1] for canaries in (False, True)]
    keys += [(noise, False, variant) for noise in AGAIN[name] for variant in again]
    return [*keys, *BESIDE.get(name, ())]


def _config(ask: Ask, name: str, key: Key) -> tuple[str, Config]:
    noise, canaries, variant = key
    return FAMILIES[name][0](ask, noise, canaries=canaries, variant=variant)


def _columns(name: str, found: Mapping[Key, OneShotRun]) -> dict[str, dict[float, OneShotRun]]:
    """By words and noise."""
    noises = FAMILIES[name][1]
    known = dict(found)
    if name == "chat":  # above a noise of 0.2 the clip norm is fixed anyway
        known[noises[-1], False, FIXED] = known[noises[-1], False, ""]
    return {
        words: {noise: known[noise, canaries, variant] for noise in noises if (noise, canaries, variant) in known}
        for words, (canaries, variant) in COLUMNS.items()
    }


def _alone(found: Mapping[Key, OneShotRun], noise: float) -> list[OneShotRun]:
    """Runs without canaries, the first and those that were made again."""
    again = [run for (at, _, variant), run in found.items() if at == noise and variant.startswith("again")]
    return [found[noise, False, ""], *again]


def _apart(found: Mapping[Key, OneShotRun], noise: float, known: Sequence[float]) -> Apart:
    """By the runs that were made again at this noise, or at the next larger one, where runs end no nearer to each other."""
    larger = [each for each in known if each >= noise]
    return Apart.of(_alone(found, min(larger))) if larger else UNKNOWN


def _few(found: Mapping[Key, OneShotRun]) -> list[tuple[float, list[OneShotRun], OneShotRun]]:
    """(noise, without canaries, with few of them)."""
    return [(noise, _alone(found, noise), run) for (noise, _, variant), run in found.items() if variant == FEW]


@dataclass(frozen=True)
class Apart:
    """How far apart runs end that differ in nothing but their noise."""

    deviation: float
    freedom: int

    @staticmethod
    def of(runs: Sequence[OneShotRun]) -> Apart:
        """By the standard deviation of their accuracies."""
        return Apart(statistics.stdev(run.accuracy[0] for run in runs), len(runs) - 1)

    @property
    def widened(self) -> float:
        """So that two of it are what Student's t allows at 95 %."""
        return self.deviation * (float(special.stdtrit(self.freedom, 0.975)) / _AT_95 if self.freedom else 1.0)

    def freedom_of(self, error: float, apart: float) -> float:
        """Welch's, of an error of which `apart` is this part; the clients that judge are so many that they count as known."""
        return self.freedom * (error / apart) ** 4 if apart else math.inf


UNKNOWN = Apart(0.0, 0)


def normal_distance(change: float, error: float, freedom: float) -> float:
    """In standard errors of a normal that is exceeded as rarely as Student's t."""
    if not error:
        return math.inf if change else 0.0
    away = -abs(change) / error
    return float(-special.ndtri(special.ndtr(away) if math.isinf(freedom) else special.stdtr(freedom, away)))


@dataclass(frozen=True)
class Change:
    """By canaries."""

    row: PaperRow
    distance: float  # in standard errors of a normal
    shows: float  # the least that would have been called a change


def _compared(name: str, changes: Sequence[Change]) -> list[CheckedNumber]:
    """Those that can be; if no run learned anything, there is nothing to compare."""
    kind = f"{TITLES[name]}: canaries do not change the accuracy"
    return [CheckedNumber(kind, f"{each.row.what}, {each.row.shown}", each.distance) for each in changes if each.row.verdict]


def _accuracies(name: str, columns: Mapping[str, Mapping[float, OneShotRun]], apart: Mapping[float, Apart]) -> list[PaperRow]:
    """Without and with canaries; more noise is never better in the paper."""
    rows = []
    for words, runs in columns.items():
        canaries, _ = COLUMNS[words]
        learned = any(run.learned for run in runs.values())  # if none did, that they do not differ says nothing
        for _, alike in itertools.groupby(runs.items(), key=lambda item: item[1].adaptive):
            some = dict(alike)
            values = [run.accuracy[0] for run in some.values()]
            by_noise = [apart[noise] if noise or canaries else UNKNOWN for noise in some]  # without both nothing is by chance
            errors = [math.hypot(run.accuracy[1], each.deviation) for run, each in zip(some.values(), by_noise, strict=True)]
            wider = [math.hypot(run.accuracy[1], each.widened) for run, each in zip(some.values(), by_noise, strict=True)]
            verdicts = in_order([-noise for noise in some], values, wider, _WIDTH) if learned else [None] * len(some)
            for (noise, run), value, error, fits in zip(some.items(), values, errors, verdicts, strict=True):
                marks = {NOTHING: not run.learned, "diverged": run.diverged, "clip norm fixed": not run.adaptive}
                rows.append(
                    PaperRow(
                        f"{TITLES[name]}, noise {noise:g}, {words}",
                        FALLS,
                        100 * value,
                        100 * error,
                        fits,
                        "; ".join(mark for mark, true in marks.items() if true),
                        {"data": TITLES[name], "noise": noise, "column": words},
                    )
                )
    return sorted(rows, key=lambda row: row.place["noise"])


def _point(noise: float, run: OneShotRun) -> AccuracyPoint:
    value, error = run.accuracy
    return noise, 100 * value, 100 * error


def _change(
    name: str,
    noise: float,
    without: Sequence[OneShotRun],
    having: OneShotRun,
    apart: Apart,
    *,
    column: str = "change by canaries",
) -> Change:
    """From the mean of the runs without canaries."""
    alone, (after, after_error) = [run.accuracy for run in without], having.accuracy
    change = after - statistics.mean(value for value, _ in alone)
    by_noise = apart.deviation * math.sqrt(1 + (1 / len(alone) if noise else 0))
    error = math.hypot(alone[0][1], after_error, by_noise)
    freedom = apart.freedom_of(error, by_noise)
    distance, shows = normal_distance(change, error, freedom), error * _limit(freedom)
    same: RowVerdict | None = "same shape" if distance <= _WIDTH else "differs" if apart.freedom else None
    learned = without[0].learned or having.learned  # if neither did, that they do not differ says nothing
    most = max(after, after - change) - having.baseline
    telling = most > 2 * shows  # a loss of half of what was learned would show
    share = 100 * having.finished.training["mean_canary_share"]
    marks = [f"{share:.0f} % of a cohort are canaries"]
    if len(alone) > 1:
        marks.append("runs without them end at " + listed([f"{100 * value:.1f}" for value, _ in alone]))
    marks += [mark for mark, true in _doubts(learned, telling, apart).items() if true]
    row = PaperRow(
        f"{TITLES[name]}, noise {noise:g}, {column}",
        "0 to -0.1",
        100 * change,
        100 * error,
        same if learned and telling else None,
        "; ".join(marks),
        {"data": TITLES[name], "noise": noise, "column": column},
    )
    return Change(row, distance, shows)


def _doubts(learned: bool, telling: bool, apart: Apart) -> dict[str, bool]:
    """What takes its weight from a change."""
    return {NOTHING: not learned, UNEQUAL: learned and not telling, UNREPEATED: not apart.freedom}


def _limit(freedom: float) -> float:
    """What Student's t exceeds as rarely as a normal exceeds two standard errors."""
    return _WIDTH if math.isinf(freedom) else float(special.stdtrit(freedom, special.ndtr(_WIDTH)))
