"""docs/scale-figures.md, scale-plan.md and scale.svg from what growth.py, audit_cost.py, grouping.py and study.py found."""

import json
import math
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

Lines = dict[str, list[tuple[float, float]]]
WIDTH, HEIGHT, MARGIN = 320, 220, 44
WORTH = 0.05  # of a round
LAST = "per_round_of_the_last_tenth"
COLOURS = {"before": "#8b93a1", "without": "#8b93a1", "one": "#8b93a1", "after": "#d97706", "with": "#d97706", "two": "#d97706"}


def curve(found: dict, part: str, key: str, *fixed: str, version: str = "after") -> list[tuple[float, float]]:
    """(number, value) of every measurement of a part whose further arguments are these."""
    points = []
    for name, row in found["measured"].items():
        which, number, *rest = name.split()
        if which == part and tuple(rest) == fixed and key in row.get(version, {}):
            points.append((float(number), row[version][key]))
    return sorted(points)


def both(part: str, key: str, *fixed: str) -> Callable[[dict], Lines]:
    """Of the older version and of this one."""
    return lambda found: {each: curve(found, part, key, *fixed, version=each) for each in ("before", "after")}


def several(part: str, key: str, **fixed: tuple[str, ...]) -> Callable[[dict], Lines]:
    """Of this version, by what is drawn."""
    return lambda found: {name: curve(found, part, key, *rest) for name, rest in fixed.items()}


def picture(title: str, unit: str, lines: dict) -> str:
    """Both axes logarithmic."""
    lines = {name: line for name, line in lines.items() if line}
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
        others = [place(*each[-1]) for name, each in lines.items() if name != version]
        lower = any(abs(x - there) < 40 and 0 <= y - height < 24 for there, height in others)
        where = f'x="{x - 6}" y="{y + 18}" text-anchor="start"' if lower else f'x="{x}" y="{y - 7}" text-anchor="end"'
        parts.append(f'<text {where} fill="{COLOURS[version]}">{version}</text>')
    return "".join(parts)


def raised(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


AUDIT = {"without": ("20", "0"), "with": ("20", "1")}
CURVES = (
    ("rounds: scores of a view", "processor seconds, by rounds", both("views", "seconds")),
    ("rounds: memory of a view", "MB beside the rows, by rounds", both("views", "megabytes")),
    ("rounds: an audit's last tenth", "processor seconds of a round, by rounds", several("rounds", LAST, after=("0",))),
    ("rounds: memory of an audit", "MB beside the rows, by rounds", several("rounds", "megabytes", after=("0",))),
    ("dimension: a round, 20 clients, audit", "processor seconds, by parameters", several("dimension", "round", **AUDIT)),
    ("dimension: memory of the same, audit", "MB, by parameters", several("dimension", "megabytes", **AUDIT)),
    ("dimension: a round, workers", "seconds, by parameters", several("workers", "round", one=("1",), two=("2",))),
    ("dimension: one look", "processor seconds, by parameters", both("pieces", "look")),
    ("dimension: tests of a mechanism", "processor seconds of a round, by parameters", both("pieces", "tests_of_a_round")),
    ("users: start of a training", "seconds, grouped data, by users", both("users", "seconds")),
    ("users: memory at the start", "MB, grouped data, by users", both("users", "private_megabytes")),
    ("pool: looking in one release", "processor seconds, by canaries", both("pool", "look")),
)


def svg(found: dict) -> str:
    drawn = [picture(title, unit, lines(found)) for title, unit, lines in CURVES]
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


DEAR = """More than an audit ought to cost, 5 % of a round: {names}. Its price does not depend on what clients compute: three
transforms, the tests of the noise, the checkpoint of what they remember, and {least:.1f} to {most:.1f} ms for every million
parameters of a contribution that is compared. A client that trains on 20 images is cheap beside that. The papers' clients have
240 ("814k characters written by 3383 users"); writers of MNIST have 110, and `twice` makes as many steps as 220 would."""


def cost(settings: dict) -> dict[str, Any]:
    """The table of the whole cost, and what follows from it."""
    heads = ("training", "parameters", "clients", "clients, s", "of it comparing, s", "server with the audit, s", "without, s")
    lines = [f"| {' | '.join(heads)} | the audit, of a round |", "|" + "---|" * (len(heads) + 1)]
    for name, row in settings.items():
        on, off = row["with"], row["without"]
        cells = (
            f"`{name}`",
            f"{on['parameters']:,}",
            f"{on['clients']:.0f}",
            f"{on['clients_seconds']:.2f}",
            f"{on['comparing_seconds']:.3f}",
            f"{on['server_seconds']:.3f}",
            f"{off['server_seconds']:.3f}",
            f"{100 * row['share_of_a_round']:.1f} %",
        )
        lines.append(f"| {' | '.join(cells)} |")
    dear = [f"`{name}`" for name, row in settings.items() if row["share_of_a_round"] > WORTH]
    with_audit = [row["with"] for row in settings.values()]
    looked_at = [on["clients"] if on["clients"] <= 100 else 8 for on in with_audit]
    prices = [1e9 * on["comparing_seconds"] / some / on["parameters"] for on, some in zip(with_audit, looked_at, strict=True)]
    return {
        "cost": "\n".join(lines),
        "first": max(row["with"]["first_round_more"] for row in settings.values()),
        "machines": " ".join(f"`{name}`: {machine(row['machine'])}." for name, row in settings.items()),
        "left_out": ", ".join(f"{row['with'].get('left_out', 1)} of `{name}`" for name, row in settings.items()),
        "dear": DEAR.format(names=", ".join(dear), least=min(prices), most=max(prices)) if dear else "",
    }


def machine(about: dict) -> str:
    load = about["load_at_the_start"]
    return (
        f"{about['processors']} processors with {about['vectors']}, {about['memory_gigabytes']} GB, "
        f"load {load[0] if load else 'not known'} from other work when it began"
    )


WORKERS = ("first_round", "round", "settled", "processor_seconds_of_the_server")
ROWS = (  # of the list of what was to be changed: what it was, which measurements show it, and which of their numbers
    (
        "parameters and sums travelled once per task",
        "workers",
        ("first_round", "round", "settled", "processor_seconds_of_the_server"),
    ),
    ("the verdict waited for the training without noise; workers started twice", "quickstart", ("verdict", "end")),
    ("running epsilon kept all scores; claims were computed in every round", "running", None),
    ("a whole audit of many rounds", "rounds", ("per_round", "per_round_of_the_last_tenth", "megabytes")),
    ("texts were tokenised and held whole", "users", ("seconds", "private_megabytes")),
    ("views compared all rounds with all rounds", "views", ("seconds", "megabytes")),
    ("vectors of the model at the peak of a round", "dimension", ("round", "vectors", "megabytes")),
    ("vectors of clients and their sum alone", "clients_alone", ("vectors",)),
    ("commands imported what they did not need", "commands", None),
    ("`simulate_gaussian_mechanism` was O(k²)", "simulate", ("seconds", "megabytes", "error")),
    ("canaries of a pool", "pool", ("look", "score", "megabytes")),
)


def table(found: dict) -> list[str]:
    """A row for every measurement, by what was to be changed."""
    lines = ["| what it was | measurement | before | commit of before | after | load |", "|---|---|---|---|---|---|"]
    for title, part, keys in ROWS:
        of_it = {name: row for name, row in found["measured"].items() if name.split()[0] == part}
        if not of_it:
            lines.append(f"| {title} | `{part}` | not measured | | not measured | |")
        for name, row in sorted(of_it.items(), key=lambda item: [int(word) for word in item[0].split()[1:]]):
            load = row["machine"]["load_at_the_start"] if "machine" in row else None
            cells = [shown({version: only(row.get(version), keys)}, version) for version in ("before", "after")]
            commit = row.get("before_note") or row.get("before_commit") or "not recorded" if "before" in row else ""
            lines.append(f"| {title} | `{name}` | {cells[0]} | {commit} | {cells[1]} | {load[0] if load else ''} |")
            title = ""
    return lines


WANTED = {  # what was asked for, and the measurement that shows it
    "audits of 100,000 rounds": "rounds 100000 0",
    "10⁸ parameters": "dimension 100000000 20 1",
    "two workers with 10⁷ parameters": "workers 10000000 2",
    "the quickstart": "quickstart 2",
    "views over 100,000 rounds": "views 100000",
    "`simulate` with 100,000 canaries": "simulate 100000",
}


def missing(found: dict) -> str:
    """What was not measured, in a sentence."""
    names = [what for what, name in WANTED.items() if "error" in found["measured"].get(name, {}).get("after", {"error": ""})]
    return f"Not measured: {', '.join(names)}." if names else ""


def study(about: dict) -> dict[str, Any]:
    """The papers' study, as far as it was run."""
    spent, whole, disk = about["processor_seconds_of_a_round"], about["whole_study"], about["disk_megabytes"]
    memory = [f"{value:,.0f} after round {int(number) + 1}" for number, value in about["megabytes_after_rounds"].items()]
    epsilon = {name.removeprefix("epsilon_").replace("_", " "): value for name, value in about["epsilon"].items()}
    quarters = ", ".join(f"{each:.1f}" for each in spent["by_quarters"])
    apart = f"{spent['least']:.1f} to {spent['most']:.1f}; by quarters {quarters}"
    said = ", ".join(f"{name} {value:.3g}" for name, value in epsilon.items())
    hours = f"{whole['processor_hours']:.0f} processor hours"
    rows = {
        "start, processor seconds": f"{about['start_processor_seconds']:.0f}",
        "a round, processor seconds": f"{spent['mean']:.1f} ({apart})",
        "of it the server with the audit": f"{spent['server']:.2f}",
        "a round, seconds by the clock": f"{about['seconds_of_a_round']:.0f} (median), beside other work",
        "memory, MB": f"{'; '.join(memory)}; {about['megabytes_at_the_peak']:,.0f} at the peak",
        "files, MB": f"{disk['now']:,.0f}, and {disk['grows_by_round']:.2f} more with every round",
        "epsilon of a canary so far": said or "not yet known",
        "**all rounds, extrapolated**": f"{hours}, {whole['disk_megabytes']:,.0f} MB on disk",
    }
    return {
        "study_rounds": f"{about['rounds_done']:,}",
        "study_users": f"{about['users']:,}",
        "study_of": f"{about['rounds_of_the_study']:,}",
        "study_load": "{:.0f} to {:.0f}".format(*about["load"]),
        "study_starts": about["starts"],
        "study": "\n".join(f"| {name} | {value} |" for name, value in rows.items()),
    }


def only(values: dict | None, keys: tuple | None) -> dict | None:
    if values is None or keys is None or "error" in values:
        return values
    return {key: values[key] for key in keys if key in values}


def with_users(found: dict, path: Path) -> dict:
    """The same with the start of trainings on grouped data, as `benchmarks/grouping.py` measured them."""
    start = json.loads(path.read_text())["start"]
    return {"measured": {**found["measured"], **{f"users {users}": {"after": row} for users, row in start.items()}}}


def plan(found: dict, settings: dict) -> dict[str, Any]:
    """What an audit of a model far larger than this machine's would take, from the prices of single steps."""
    prices = {int(name.split()[1]): row["after"] for name, row in found["measured"].items() if name.startswith("pieces ")}
    largest, dim, users, cohort, shards, day = max(prices), 10**9, 10**6, 1000, 16, 86_400
    rounds, longer = users // cohort, math.log(dim) / math.log(max(prices))
    price = {key: value * dim / largest for key, value in prices[largest].items()}
    price |= {key: price[key] * longer for key in ("plant", "look", "tests_of_a_round")}
    training = {
        f"clipping and summing {users:,} updates": users * (price["clip"] + price["add"]),
        "noise": rounds * price["noise"],
    }
    audit = {
        "planting, a transform a round": rounds * price["plant"],
        "90 canaries of the run as full vectors": 90 * sum(price[key] for key in ("plant", "clip", "add", "compare")),
        "looking, two transforms a round": rounds * 2 * price["look"],
        "tests of the mechanism": rounds * price["tests_of_a_round"],
        "checkpoint of what they remember, 3.5 vectors": rounds * 3.5 * price["checkpoint_of_a_vector"],
        "comparing 8 contributions a round": rounds * 8 * price["compare"],
    }
    whole = {"**the audit in all**": sum(audit.values())}
    steps = {**{f"with or without an audit: {name}": value for name, value in training.items()}, **audit, **whole}
    peaks = {
        int(name.split()[1]): row["after"]["vectors"]
        for name, row in found["measured"].items()
        if name.startswith("dimension ") and name.endswith(" 1") and "vectors" in row.get("after", {})
    }
    vectors, network, example = peaks[max(peaks)], 2 * users * 4 * dim, settings["stackoverflow-shape"]
    memory, server = vectors * 4 * dim / 1e9, (sum(audit.values()) + training["noise"]) / rounds
    busy = found["measured"][f"pieces {largest}"].get("machine", {}).get("load_at_the_start")
    return {
        "load": busy[0] if busy else "not known",
        "largest": largest,
        "dim": dim,
        "users": users,
        "rounds": rounds,
        "cohort": cohort,
        "steps": "\n".join(f"| {name} | {value:,.0f} | {value / day:.2f} |" for name, value in steps.items()),
        "vectors": vectors,
        "measured_at": max(peaks),
        "memory": memory,
        "ends": 24e9 / 4 / vectors / 1e6,
        "each": 2 * 4 * dim / 1e9,
        "network": network / 1e15,
        "rate": network / day / 1e9,
        "sums": rounds * 8 * dim / 1e12,
        "machines": math.ceil(network / day / 3.1e9),
        "busy": math.ceil(training[f"clipping and summing {users:,} updates"] / day),
        "size": 64 * math.ceil(memory / 64),
        "clients": example["with"]["clients_seconds"] / example["audit_seconds"],
        "small": example["with"]["parameters"],
        "server": server,
        "may": day / rounds,
        "shards": shards,
        "sharded": server / shards,
        "sharded_memory": memory / shards,
    }


def write(found: dict, docs: Path) -> None:
    """All files."""
    here = Path(__file__).parent
    found = with_users(found, here / "results" / "grouping.json")
    settings = json.loads((here / "results" / "audit_cost.json").read_text())["settings"]
    (docs / "scale.svg").write_text(svg(found), encoding="utf-8")
    ran = study(json.loads((here / "results" / "study.json").read_text()))
    figures = {**cost(settings), **ran, "table": "\n".join(table(found)), "missing": missing(found)}
    filled = {"scale-figures.md": figures, "scale-plan.md": plan(found, settings)}
    for name, values in filled.items():
        text = (here / f"{name}.in").read_text(encoding="utf-8").format(**values)
        (docs / name).write_text(text, encoding="utf-8")
