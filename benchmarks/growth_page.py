"""docs/scale-figures.md and docs/scale.svg from benchmarks/results/growth.json and audit_cost.json."""

import json
import math
from html import escape
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 320, 220, 44
WORTH = 0.05  # of a round
COLOURS = {"before": "#8b93a1", "after": "#d97706"}


def curve(found: dict, part: str, key: str, *fixed: str) -> dict[str, list[tuple[float, float]]]:
    """By version, (number, value) of every measurement of a part whose further arguments are these."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, row in found["measured"].items():
        which, number, *rest = name.split()
        for version in ("before", "after"):
            if which == part and tuple(rest) == fixed and key in row.get(version, {}):
                lines.setdefault(version, []).append((float(number), row[version][key]))
    return {version: sorted(points) for version, points in lines.items()}


def picture(title: str, unit: str, lines: dict) -> str:
    """Both axes logarithmic."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    ends = [[math.floor(math.log10(min(each))), math.ceil(math.log10(max(each)))] for each in zip(*points, strict=True)]
    (left, right), (low, high) = [(first, max(last, first + 1)) for first, last in ends]

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - left) / (right - left) * (WIDTH - 2 * MARGIN)
        up = (math.log10(y) - low) / (high - low) * (HEIGHT - 2 * MARGIN)
        return round(MARGIN + across, 1), round(HEIGHT - MARGIN - up, 1)

    parts = [f'<text x="{MARGIN}" y="20" font-weight="bold">{escape(title)}</text>']
    for power in range(left, right + 1):
        x, y = place(10.0**power, 10.0**low)
        parts.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle">10{raised(power)}</text>')
    for power in range(low, high + 1):
        x, y = place(10.0**left, 10.0**power)
        parts.append(f'<path d="M{x} {y}H{WIDTH - MARGIN}" stroke="#8b93a155"/>')
        parts.append(f'<text x="{x - 4}" y="{y + 4}" text-anchor="end">10{raised(power)}</text>')
    parts.append(f'<text x="{MARGIN}" y="{HEIGHT - 8}">{escape(unit)}</text>')
    for version, line in lines.items():
        places = [place(*point) for point in line]
        drawn = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{COLOURS[version]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{COLOURS[version]}"/>' for x, y in places]
        x, y = places[-1]
        parts.append(f'<text x="{x}" y="{y - 7}" text-anchor="end" fill="{COLOURS[version]}">{version}</text>')
    return "".join(parts)


def raised(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


CURVES = (
    ("rounds: scores of a view", "processor seconds, by rounds", "views", "seconds", ()),
    ("rounds: memory of a view", "MB beside the rows, by rounds", "views", "megabytes", ()),
    ("rounds: audit of one round", "processor seconds, by rounds of the run", "rounds", "per_round", ("0",)),
    ("dimension: a round of light clients", "seconds, two workers, by parameters", "workers", "round", ("2",)),
    ("dimension: a whole round, 4 clients", "processor seconds, by parameters", "dimension", "round", ("4", "1")),
    ("pool: looking in one release", "processor seconds, by canaries", "pool", "look", ()),
)


def svg(found: dict) -> str:
    drawn = [picture(title, unit, curve(found, part, key, *fixed)) for title, unit, part, key, fixed in CURVES]
    drawn = [each for each in drawn if each]
    cells = "".join(
        f'<g transform="translate({WIDTH * (place % 3)} {HEIGHT * (place // 3)})">{each}</g>'
        for place, each in enumerate(drawn)
    )
    size = f'viewBox="0 0 {3 * WIDTH} {HEIGHT * -(-len(drawn) // 3)}"'
    style = 'font-family="sans-serif" font-size="11" fill="#8b93a1"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style} role="img" aria-label="growth curves">{cells}</svg>\n'


def shown(row: dict, version: str) -> str:
    values = row.get(version)
    if values is None:
        return "not measured"
    if "error" in values:
        return escape(values["error"])
    return ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in values.items())


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cost(path: Path) -> list[str]:
    about = json.loads(path.read_text())
    lines = ["| parameters | clients | clients' training, s | server with the audit, s | without, s | the audit, of a round |"]
    lines.append("|---|---|---|---|---|---|")
    for row in about["settings"].values():
        on, off = row["with"], row["without"]
        lines.append(
            f"| {on['parameters']:,} | {on['clients']:.0f} | {on['clients_seconds']:.2f} | {on['server_seconds']:.2f} "
            f"| {off['server_seconds']:.2f} | {100 * row['share_of_a_round']:.1f} % |"
        )
    spent = ", ".join(f"{row['audit_processor_seconds']:.2f}" for row in about["settings"].values())
    lines += [
        "",
        f"Machine: {machine(about['machine'])}.",
        "On a busy machine the seconds of the clock, and so the share, are too",
    ]
    lines += [f"large; in processor seconds the audit took {spent}."]
    if max(row["share_of_a_round"] for row in about["settings"].values()) > WORTH:
        lines += [
            "This is more than an audit ought to cost beside 34 clients, 5 %. About half of it are the canaries that pass",
            "through the clients' code as full vectors in every round, eight or more: each takes a transform of its own.",
            "Fewer of them in a long run would do for the tests, and would move the last bits of models and scores.",
        ]
    return lines


def machine(about: dict) -> str:
    load = about["load_at_the_start"]
    return (
        f"{about['processors']} processors with {about['vectors']}, {about['memory_gigabytes']} GB, "
        f"load {load[0] if load else 'not known'} from other work when it began"
    )


def write(found: dict, docs: Path) -> None:
    """Both files."""
    (docs / "scale.svg").write_text(svg(found), encoding="utf-8")
    lines = [
        "# Growth and cost, measured",
        "",
        "Made by `python benchmarks/growth.py --page` from `benchmarks/results/growth.json` and `audit_cost.json`.",
        "",
        "![growth curves](scale.svg)",
        "",
        "## What an audit costs",
        "",
        *cost(docs.parent / "benchmarks" / "results" / "audit_cost.json"),
        "",
        "## Before and after",
        "",
        "Both in one run. `workers D W`: rounds of 16 light clients with D parameters and W workers, seconds by the clock.",
        "`dimension D C A`: whole rounds of C clients in one process, with (1) and without (0) the audit; `vectors`: float32",
        "vectors of the model at the peak. `clients_alone D`: clients and their sum, nothing else. `views T`: scores of a view",
        "over T rounds. `rounds T S`: an audit of T rounds without training, canaries sampled at random if S is 1. `pool K`:",
        "K canaries in a million parameters. `simulate K`: `simulate_gaussian_mechanism`. `quickstart W`: seconds to the",
        "verdict and to the end. Otherwise processor seconds, and MB.",
        "",
        "| measured | before | after | load |",
        "|---|---|---|---|",
    ]
    for name, row in found["measured"].items():
        load = row["machine"]["load_at_the_start"]
        lines.append(f"| `{name}` | {shown(row, 'before')} | {shown(row, 'after')} | {load[0] if load else ''} |")
    any_row = next(iter(found["measured"].values()))
    lines += ["", f"Machine: {machine(any_row['machine'])}; the column has the load of each.", ""]
    (docs / "scale-figures.md").write_text("\n".join(lines), encoding="utf-8")
