"""Audits of the whole bug zoo, written as docs/zoo.md with its figure and its numbers.

python benchmarks/zoo.py [--seeds 20] [--correct 20] [--power 40] [--minutes M] [--workers 2] [--output docs/zoo.md]

Runs are kept in benchmarks/results/zoo.json while bugs and tests stay as they are, and go on from there: the first seed of
every bug and setting first, so that a page that was stopped after `--minutes` has as many runs of each. `--power 0` leaves the
real runs of the power curve as they were: canaries alone decide there.
"""

import argparse
import hashlib
import inspect
import json
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import conformance
from coalmine.contracts import plain
from coalmine.contracts.finding_sentences import finding
from coalmine.contracts.sentences import view_name
from coalmine.progress import track
from coalmine.report.digits import number
from coalmine.report.style import BLUE, GREEN, MUTED, ORANGE, drawing, house_style, svg
from coalmine.zoo import BUGS, SETTINGS, Study
from coalmine.zoo import settings as zoo_settings
from coalmine.zoo.page import page
from coalmine.zoo.power import CANARIES, NOISE, Point, check, curve
from coalmine.zoo.study import (
    BugRow,
    Case,
    SeedVerdict,
    cases,
    most_false_alarms,
    row_name,
    row_of,
    run_all,
    seed_verdict,
)

FINE = [1 + 0.05 * step for step in range(61)]
COLOURS = (BLUE, ORANGE, GREEN)
RESULTS = Path(__file__).parent / "results" / "zoo.json"
Kept = dict[tuple[str, int], SeedVerdict]  # by row and seed


def power_figure() -> str:
    """The chance to notice against the factor, a panel for every noise multiplier."""
    with house_style():
        figure, panels = drawing(420, 560, len(NOISE))
        for panel, noise in zip(panels, NOISE, strict=True):
            for colour, count in zip(COLOURS, CANARIES, strict=True):
                points = curve(noise, count, FINE)
                panel.plot(FINE, [point.simulated for point in points], color=colour, label=f"{count:,} canaries inserted")
            panel.axhline(0.8, color=MUTED, linewidth=0.7, linestyle=":")
            panel.set_ylim(-0.03, 1.05)
            panel.set_title(f"noise multiplier {noise:g}")
        panels[0].legend(loc="lower right")
        panels[-1].set_xlabel("noise too small by this factor")
        figure.supylabel("chance to notice", fontsize=9.5, color=MUTED)
        return svg(figure)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def caught(row: BugRow) -> str:
    return f"{row.caught} of {len(row.papers)}"


def false(row: BugRow) -> str:
    """The sentence of the description that is false, and how many runs found it; none where the claim is wrong."""
    return f"{finding(row.sentence, {})} ({row.named})" if row.sentence else "none: the claim is wrong"


def words(row: BugRow) -> str:
    """How many runs had which verdict."""
    return ", ".join(f"{count} {word.lower()}" for word, count in Counter(paper.word for paper in row.papers).most_common())


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def tables(exam: Study) -> dict[str, str]:
    rows = {kind: [row for row in exam.rows if row.canaries is kind] for kind in (True, False, None)}
    bugs = [
        (
            f"[{row.name}](#{row.name})",
            caught(row),
            number(row.claim),
            number(row.bound),
            f"{row.papers[0].method}, {view_name(row.view)}",
            f"{row.located} of {row.violated} name `{row.where}`" if row.where else "",
            false(row),
        )
        for row in rows[True]
    ]
    blind = [
        (f"[{row.name}](#{row.name})", caught(row), f"{row.violated} of {len(row.papers)}", false(row), BUGS[row.name].seen)
        for row in rows[False]
    ]
    right = [
        (
            row.setting,
            SETTINGS[row.setting].about,
            caught(row),
            f"{most_false_alarms(len(row.papers))}",
            number(row.claim),
            number(row.bound),
            words(row),
        )
        for row in rows[None]
        if row.name not in BUGS
    ]
    unusual = [
        (f"[{row.name}](#{row.name})", f"{row.violated} of {len(row.papers)}", number(row.claim), number(row.bound), words(row))
        for row in rows[None]
        if row.name in BUGS
    ]
    return {
        "BUGS": table(("bug", "caught", "claim", "median bound", "by", "where", "sentence found false"), bugs),
        "BLIND": table(("bug", "caught", "by canaries", "sentence found false", "why canaries do not see it"), blind),
        "UNUSUAL": table(("code", "violated", "claim", "median bound", "verdicts"), unusual),
        "RIGHT": table(("setting", "what it is", "false alarms", "allowed", "claim", "median bound", "verdicts"), right),
    }


def code(name: str) -> str:
    """The class without the words that put it into the zoo."""
    source = inspect.getsource(BUGS[name].kind)
    source = source[source.index("class ") :]
    source = re.sub(r'"""(.*?)\n\n.*?"""', r'"""\1"""', source, count=1, flags=re.DOTALL)
    return f"<!-- not run -->\n```python\n{source.strip()}\n```"


def bugs() -> str:
    said = []
    for name, each in BUGS.items():
        about = f"*Source.* {each.source} *Setting.* {SETTINGS[each.setting].about}."
        said.append(f"### {name}\n\n{each.fault} {each.seen}\n\n{about}\n\n{code(name)}")
    return "\n\n".join(said)


def power_tables(checked: list[Point]) -> dict[str, str]:
    grid = [
        (f"{noise:g}", f"{count:,}", *(percent(point.simulated) for point in curve(noise, count)))
        for noise in NOISE
        for count in CANARIES
    ]
    factors = tuple(f"÷ {point.factor:g}" for point in curve(1.0, 100))
    real = [
        (
            f"{point.noise_multiplier:g}",
            f"{point.inserted:,}",
            f"{point.factor:g}",
            percent(point.simulated),
            f"{point.caught} of {point.runs}",
            "agrees" if point.agrees else "DIFFERS",
        )
        for point in checked
    ]
    return {
        "POWER": table(("noise", "canaries", *factors), grid),
        "CHECKED": table(("noise", "canaries", "factor", "simulated", "real runs", ""), real),
    }


OLDER = "\nTests of the mechanism were added or changed after these runs were made.\n"


def code_now() -> str:
    """What runs depend on: a hash of the bugs, the settings and the tests."""
    folder = Path(zoo_settings.__file__).parent
    names = ("noise", "shape", "clipping", "correlated", "sampling", "settings")
    made = b"".join((folder / f"{name}.py").read_bytes() for name in names)
    return hashlib.sha256(made + conformance.tests_now().encode()).hexdigest()[:12]


def kept_runs(before: dict[str, Any]) -> Kept:
    """Those of the same code."""
    return runs_of(before) if before.get("code") == code_now() else {}


def runs_of(before: dict[str, Any]) -> Kept:
    found = {}
    for row in before["exam"]["rows"]:
        for paper in row["papers"]:
            numbers = {name: float(paper[name]) for name in ("bound", "claim")}
            found[row["name"], paper["seed"]] = SeedVerdict(**{**paper, **numbers, "false": tuple(paper["false"])})
    return found


def studied(tasks: list[Case], kept: Kept) -> Study:
    """The runs that there are, in the order of the bugs."""
    papers: dict[Any, list[SeedVerdict]] = {}
    for setting, each, seed in tasks:
        if (found := kept.get((row_name(setting, each), seed))) is not None:
            papers.setdefault((setting, each), []).append(found)
    return Study(tuple(row_of(*key, found) for key, found in papers.items()))


def until(end: float, batches: Sequence[Any]) -> Iterator[Any]:
    """Batches until there is no time left."""
    for batch in track(batches, "zoo"):
        if time.monotonic() > end:
            return
        yield batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--correct", type=int, default=20)
    parser.add_argument("--power", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many, and write what there is")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page", action="store_true", help="write the page anew from the runs that there are")
    parser.add_argument("--output", type=Path, default=Path("docs/zoo.md"))
    config = parser.parse_args()
    began, before = time.monotonic(), json.loads(RESULTS.read_text(encoding="utf-8"))
    kept, first = kept_runs(before), []
    tasks = cases(seeds=config.seeds, correct=config.correct)
    if config.page:
        exam, checked = studied(tasks, runs_of(before)), [Point(**point) for point in before["power"]]
        write_page(exam, checked, config.output, before["core_minutes"], before["canaries_alone"], before["code"])
        return
    missing = sorted((case for case in tasks if (row_name(*case[:2]), case[2]) not in kept), key=lambda case: case[2])
    stop = began + 60 * config.minutes
    for (setting, each, seed), result in run_all(missing, workers=config.workers, track=lambda items: until(stop, items)):
        kept[row_name(setting, each), seed] = seed_verdict(seed, result)
        first += [(row_name(setting, each), result)] if seed == 0 else []
    exam = studied(tasks, kept)
    checked = [Point(**point) for point in before["power"]]
    if config.power:
        checked = check(runs=config.power, workers=config.workers, track=lambda items: track(items, "power"))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    work = sum(each.ru_utime + each.ru_stime for each in used) / 60
    work += before["core_minutes"] if before.get("code") == code_now() else 0.0
    print(exam)
    for point in checked:
        print(point, "agrees" if point.agrees else "DIFFERS")
    print(f"{work:.1f} minutes of one core, all parts together; {len(missing)} runs were missing")
    numbers = {
        "code": code_now(),
        "exam": json.loads(exam.to_json()),
        "power": [plain(point) for point in checked],
        "core_minutes": round(work, 1),
        "canaries_alone": before.get("canaries_alone") or before["exam"],
    }
    RESULTS.write_text(json.dumps(numbers, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    write_page(exam, checked, config.output, work, numbers["canaries_alone"], code_now())
    if config.power:  # else the curve is as it was
        (config.output.parent / "zoo-power.svg").write_text(power_figure(), encoding="utf-8")
    if first:
        (config.output.parent / "zoo.html").write_text(page(Study(exam.rows, tuple(first))), encoding="utf-8")
    raise SystemExit(0 if exam.passed and all(point.agrees for point in checked) else 1)


def write_page(exam: Study, checked: list[Point], output: Path, work: float, alone: dict[str, Any], code: str) -> None:
    """The page."""
    runs = {kind: [len(row.papers) for row in exam.rows if (row.name not in BUGS) is kind] for kind in (True, False)}
    before = [row for row in alone["rows"] if row["kind"] == "correct"]
    known = {**tables(exam), **power_tables(checked), "CODE": bugs()}
    known |= {
        "WORK": f"{work:.0f}",
        "OLDER": "" if code == code_now() else OLDER,
        "SEEDS": range_of(runs[False]),
        "CORRECT": range_of(runs[True]),
        "RUNS": str(checked[0].runs),
        "ALONE": f"{sum(row['violated'] for row in before)} of {sum(row['runs'] for row in before):,}",
    }
    text = Path(__file__).with_name("zoo.md.in").read_text(encoding="utf-8")
    for name, value in known.items():
        text = text.replace(f"@{name}@", value)
    output.write_text(text, encoding="utf-8")


def range_of(counts: list[int]) -> str:
    """As "20", or "5 to 6" where the study was stopped on its way."""
    return f"{min(counts, default=0)} to {max(counts, default=0)}" if len(set(counts)) > 1 else f"{max(counts, default=0)}"


if __name__ == "__main__":
    main()
