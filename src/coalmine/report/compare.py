"""Several audits beside each other: one table, one page.

`compare(directories)` reads finished runs and takes the axes of the comparison from what differs between their configurations.
Other comparisons, of audits that are not runs or have other labels, are made of the same pieces:

    rows = [Audited("right", first), Audited("half the noise", second, {"bug": "noise divided by two"})]
    Path("zoo.html").write_text(page("Bugs", rows, lead="Which of them does an audit notice?"))
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coalmine import manifest
from coalmine.contracts import Conformance, plain
from coalmine.contracts.finding_sentences import with_interval
from coalmine.contracts.sentences import too_small
from coalmine.errors import InputFileError, RunDirectoryError
from coalmine.report import digits, words
from coalmine.report.comparison_table import MOST_AXES, in_tables
from coalmine.report.evidence import drawable, run_config
from coalmine.report.presented import across_runs
from coalmine.result import AuditResult
from coalmine.rounding import rounded_up

SCHEMA = "coalmine-comparison/1"
_IGNORED = (
    "data.in_memory",
    "run.seed",
    "run.workers",
    "run.evaluate_every",
    "run.reference",
)  # none of them changes what is compared
_MARKS = {"VIOLATED": "✕", "DEVIATES": "≠", "CONSISTENT": "✓", "INCONCLUSIVE": "?", words.NO_CLAIM: "–"}


@dataclass(frozen=True)
class Audited:
    """One row of a comparison: a label, an audit (none: trained without canaries), and further columns in words."""

    label: str
    result: AuditResult | None
    columns: Mapping[str, str] = field(default_factory=dict)
    accuracy: tuple[float, float] | None = None  # with its standard error

    @property
    def word(self) -> str:
        """The verdict."""
        return words.verdict_word(self.result) if self.result is not None else "no audit"

    @property
    def mark(self) -> str:
        """The verdict as one sign."""
        return _MARKS.get(self.word, "–")

    def cells(self) -> dict[str, str]:
        """The numbers, in words."""
        result, number = self.result, digits.number
        found = {"verdict": f"{self.mark} {self.word}"}
        if result is not None:
            found["claim"] = number(result.claim.epsilon) if result.claim is not None else "–"
            found["at least"] = digits.at_least(result.bound.epsilon)
            estimate = result.estimate
            found["about"] = (
                f"{number(estimate.epsilon)} ({number(estimate.low)} – {number(estimate.high)})" if estimate else "–"
            )
            found["would notice"] = _factor(result)
            if result.conformance is not None:
                found["noise"] = _noise(result.conformance)
        if self.accuracy is not None:
            found["accuracy"] = f"{100 * self.accuracy[0]:.1f} ± {100 * self.accuracy[1]:.1f} %"
        return found

    def in_short(self) -> str:
        """For a cell of a grid."""
        cells = self.cells()
        if self.result is None:
            return f"no audit\n{cells.get('accuracy', '')}".strip()
        lines = [
            cells["verdict"],
            f"≥ {cells['at least']}, about {digits.number(self.result.estimate.epsilon) if self.result.estimate else '–'}",
            f"claim {cells['claim']}",
        ]
        return "\n".join([*lines, *([cells["accuracy"]] if "accuracy" in cells else [])])


NUMBERS = ("verdict", "claim", "at least", "about", "noise", "would notice", "accuracy")


@dataclass(frozen=True)
class Comparison:
    """Runs, and the keys in which their configurations differ."""

    axes: tuple[str, ...]
    rows: tuple[Audited, ...]

    @property
    def title(self) -> str:
        """What is compared."""
        if not self.axes:
            return f"{len(self.rows)} runs of one configuration"
        differ = f", {len(self.axes)} settings differ" if len(self.axes) > MOST_AXES else f" by {' and '.join(self.axes)}"
        return f"{len(self.rows)} runs{differ}"

    @property
    def grid(self) -> tuple[list[str], list[str], dict[tuple[str, str], Audited]] | None:
        """(values of the first axis, of the second, the run of each pair) where two axes differ and no pair comes twice."""
        if len(self.axes) != 2:
            return None
        cells = {(row.columns[self.axes[0]], row.columns[self.axes[1]]): row for row in self.rows}
        firsts, seconds = (sorted({key[place] for key in cells}, key=_order) for place in (0, 1))
        return (firsts, seconds, cells) if len(cells) == len(self.rows) and min(len(firsts), len(seconds)) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        runs = [
            {
                "label": row.label,
                "differs": dict(row.columns),
                "verdict": row.word,
                "accuracy": list(row.accuracy) if row.accuracy is not None else None,
                "result": row.result.to_dict() if row.result is not None else None,
            }
            for row in self.rows
        ]
        return {"schema": SCHEMA, "axes": list(self.axes), "runs": plain(runs)}

    def to_json(self) -> str:
        """As one JSON document."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """As one page."""
        return page(self.title, self.rows, axes=self.axes)

    def __str__(self) -> str:
        """As a table for the terminal."""
        return in_tables(self, _columns(self.rows))


def compare(sources: Sequence[str | Path]) -> Comparison:
    """RunResult runs beside each other; the axes are the keys in which their configurations differ, seeds left out."""
    if len(sources) < 2:
        raise ValueError(f"{len(sources)} run given; a comparison needs at least two: `coalmine compare DIR DIR …`.")
    paths = [Path(source) for source in sources]
    read = [_read(path) for path in paths]
    settings = _settings(paths)
    keys = sorted({key for stated in settings for key in stated if key not in _IGNORED})
    differing = [key for key in keys if len({_shown(stated.get(key)) for stated in settings}) > 1]
    names = _names(differing)
    labels = _labels(paths)
    rows = [
        Audited(label, result, {names[key]: _shown(stated.get(key)) for key in differing}, _accuracy(training))
        for label, (result, training), stated in zip(labels, read, settings, strict=True)
    ]
    axes = tuple(names.values())
    return Comparison(axes, tuple(sorted(rows, key=lambda row: [_order(row.columns[name]) for name in axes])))


def page(title: str, audits: Sequence[Audited], *, lead: str = "", axes: Sequence[str] = ()) -> str:
    """A titled page: a table, number lines of all audits, epsilon by number of presentations where there are several.

    `axes` are the columns that come first; the other columns of the rows follow the numbers. Every string is escaped.
    """
    from coalmine.report import figures
    from coalmine.report.facts import Numbers
    from coalmine.report.page import element, embedded, environment

    done = [(row.label, row.result) for row in audits if row.result is not None]
    lines = {}
    if done:
        rows = [Numbers(label, result.claim, result.bound, result.estimate) for label, result in done]
        for name in ("wide", "narrow"):
            lines[name] = element(figures.number_line(rows, narrow=name == "narrow"), f"line-{name}", title)
    points = across_runs(result for _, result in done)
    presented = element(figures.presentations(points), "presentations", "Epsilon by presentations") if points else None
    right = [(row.label, *row.accuracy) for row in audits if row.accuracy is not None]
    learned = element(figures.accuracies(right), "learned", "Accuracy of the runs") if len(right) > 1 else None
    further = [name for name in dict.fromkeys(name for row in audits for name in row.columns) if name not in axes]
    data = [{"label": row.label, "result": row.result.to_dict() if row.result else None} for row in audits]
    return (
        environment()
        .get_template("compare.html")
        .render(
            title=title,
            lead=lead,
            audits=audits,
            axes=list(axes) if len(axes) <= MOST_AXES else [],
            settings=list(axes) if len(axes) > MOST_AXES else [],
            shown=_columns(audits),
            further=further,
            lines=lines,
            presented=presented,
            learned=learned,
            words=words,
            embedded=embedded(data),
        )
    )


def _read(path: Path) -> tuple[AuditResult | None, Mapping[str, Any]]:
    """The audit of a finished run, if it has one, and what its training recorded."""
    if path.is_file():
        raise RunDirectoryError(f"{str(path)!r} is a file; `compare` takes directories of finished runs.")
    if not (path / "config.toml").is_file():
        raise RunDirectoryError(f"{str(path)!r} is not a run directory: it has no config.toml. `coalmine run --out` makes one.")
    if not (path / "training.json").is_file():
        raise RunDirectoryError(f"{str(path)!r} is not finished; `coalmine resume {path}` goes on.")
    manifest.check(path)
    try:
        training = json.loads((path / "training.json").read_text(encoding="utf-8"))
        audited = training["audited"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputFileError(f"{str(path / 'training.json')!r} is not what a run wrote; put back an intact copy.") from None
    return (AuditResult.load(path) if audited else None), training


def _settings(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """By key, what each run was told; where a run was handed a mechanism or a model from Python, that too."""
    stated = [run_config(path) for path in paths]
    handed = [each if isinstance(each := about.get("handed"), dict) else {} for _, about in stated]
    found = [dict(_flat(config)) for config, _ in stated]
    for name in sorted({name for each in handed for name in each}):
        for each, config, (sections, _) in zip(handed, found, stated, strict=True):
            usual = _usual(name, sections)
            own = str(each[name]) if name in each else usual
            config[f"handed.{name}"] = f"{own}, handed" if name in each and own == usual else own
    return found


def _usual(name: str, config: Mapping[str, Any]) -> str:
    """What a run takes that was handed nothing."""
    if name != "mechanism":
        return "as configured"
    own = {"adaptive": "AdaptiveGaussian", "correlated": "Correlated", "adaptive-correlated": "AdaptiveCorrelated"}
    return own.get(config.get("mechanism", {}).get("kind", ""), "Gaussian")


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Every key with its sections."""
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        key = f"{prefix}{name}"
        found += _flat(value, f"{key}.") if isinstance(value, Mapping) else [(key, value)]
    return found


def _names(keys: Sequence[str]) -> dict[str, str]:
    """Keys in words: without their section where that leaves no doubt."""
    short = [key.rpartition(".")[2] for key in keys]
    plain_names = {"pool": "canaries", "task": "data and model"}
    return {
        key: (plain_names.get(last, last.replace("_", " ")) if short.count(last) == 1 else key)
        for key, last in zip(keys, short, strict=True)
    }


def _labels(paths: Sequence[Path]) -> list[str]:
    """Names of directories, as long as it takes to tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(each[-length:]) for each in parts]
        if len(set(labels)) == len(labels):
            return labels
    raise ValueError("the same run is given twice; name every run once.")


def _accuracy(training: Mapping[str, Any]) -> tuple[float, float] | None:
    found: list[Any] = [value for name in ("accuracy", "accuracy_error") if drawable(value := training.get(name))]
    return (float(found[0]), float(found[1])) if len(found) == 2 else None


def _shown(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _order(text: str) -> tuple[int, float, str]:
    """Numbers by size, then words."""
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text


def _columns(rows: Sequence[Audited]) -> list[str]:
    """The columns of numbers that some row has."""
    filled = {name for row in rows for name in row.cells()}
    return [name for name in NUMBERS if name in filled]


def _noise(about: Conformance) -> str:
    """The noise multiplier that was measured, and the claimed one."""
    found = about.noise
    if found is None or found.measured is None:
        return "not measured"
    claimed = "" if found.claimed is None else f" (claimed {found.claimed:.4g})"
    return f"{with_interval(found.measured, found.low, found.high)}{claimed}"


def _factor(result: AuditResult) -> str:
    seen = result.conformance.noticed_noise_factor if result.conformance is not None else None
    if seen is not None and 0 < seen < 1:
        return f"noise {too_small(seen)} less"
    factor = math.inf if result.verdict is None else result.verdict.noticeable_noise_factor
    return f"noise ÷ {rounded_up(factor):.2g}" if 1 < factor < math.inf else "–"
