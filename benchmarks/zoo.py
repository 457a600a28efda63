"""Audits of the whole bug zoo, written as docs/zoo.md with its figure and its numbers.

python benchmarks/zoo.py [--seeds 20] [--correct 200] [--power 40] [--workers 2] [--output docs/zoo.md]
"""

import argparse
import inspect
import json
import re
import resource
import time
from collections import Counter
from pathlib import Path

from coalmine.contracts import plain
from coalmine.contracts.finding_sentences import finding
from coalmine.progress import track
from coalmine.report.digits import number
from coalmine.report.style import BLUE, GREEN, MUTED, ORANGE, drawing, house_style, svg
from coalmine.zoo import BUGS, SETTINGS, Study, audit_all
from coalmine.zoo.page import page
from coalmine.zoo.power import CANARIES, NOISE, Point, check, curve
from coalmine.zoo.study import Row, most_false_alarms

FINE = [1 + 0.05 * step for step in range(61)]
COLOURS = (BLUE, ORANGE, GREEN)


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


def caught(row: Row) -> str:
    return f"{row.caught} of {len(row.papers)}"


def false(row: Row) -> str:
    """The sentence of the description that is false, and how many runs found it."""
    return f"{finding(row.sentence, {})} ({row.named})"


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
            f"{row.papers[0].method}, {row.view}",
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
            ", ".join(f"{count} {word.lower()}" for word, count in Counter(paper.word for paper in row.papers).most_common()),
        )
        for row in rows[None]
    ]
    return {
        "BUGS": table(("bug", "caught", "claim", "median bound", "by", "where", "sentence found false"), bugs),
        "BLIND": table(("bug", "caught", "by canaries", "sentence found false", "why canaries do not see it"), blind),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--correct", type=int, default=200)
    parser.add_argument("--power", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("docs/zoo.md"))
    config = parser.parse_args()
    began = time.monotonic()
    how = {"seeds": config.seeds, "correct": config.correct, "workers": config.workers}
    exam = audit_all(**how, track=lambda items: track(items, "zoo"))
    checked = check(runs=config.power, workers=config.workers, track=lambda items: track(items, "power"))
    minutes = (time.monotonic() - began) / 60
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    work = sum(each.ru_utime + each.ru_stime for each in used) / 60
    print(exam)
    for point in checked:
        print(point, "agrees" if point.agrees else "DIFFERS")
    print(f"{minutes:.1f} minutes, {work:.1f} minutes of one core")
    folder = config.output.parent
    text = Path(__file__).with_name("zoo.md.in").read_text(encoding="utf-8")
    known = {**tables(exam), **power_tables(checked), "CODE": bugs()}
    known |= {
        "MINUTES": f"{minutes:.0f}",
        "WORK": f"{work:.0f}",
        "SEEDS": str(config.seeds),
        "CORRECT": str(config.correct),
        "LAST": str(config.correct - 1),
        "RUNS": str(config.power),
    }
    for name, value in known.items():
        text = text.replace(f"@{name}@", value)
    config.output.write_text(text, encoding="utf-8")
    (folder / "zoo-power.svg").write_text(power_figure(), encoding="utf-8")
    numbers = {
        "exam": json.loads(exam.to_json()),
        "power": [plain(point) for point in checked],
        "minutes": round(minutes, 1),
        "core_minutes": round(work, 1),
    }
    results = Path(__file__).parent / "results" / "zoo.json"
    results.write_text(json.dumps(numbers, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "zoo.html").write_text(page(exam), encoding="utf-8")
    raise SystemExit(0 if exam.passed and all(point.agrees for point in checked) else 1)


if __name__ == "__main__":
    main()
