"""Writes docs/papers.md: its text is papers.md.in, its numbers are those of the JSON documents beside this file.

python docs/papers/make.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coalmine.papers.outcome import VERDICTS
from coalmine.papers.printed import TABLE2, TABLE5
from coalmine.papers.registry import EXPERIMENTS

HERE = Path(__file__).parent
PAGE = HERE.parent / "papers.md"
NOISES = TABLE2.noises[1:]


def documents() -> dict[str, dict[str, Any]]:
    """All results, experiments in the order of their list, parts after their experiment."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in HERE.glob("*.json")}
    names = [name for each in EXPERIMENTS.values() for name in (each.name, *(f"{each.name}-{part}" for part in each.parts))]
    return {name: found[name] for name in names if name in found}


def table(found: dict[str, dict[str, Any]]) -> str:
    """A line for every result, its verdicts counted."""
    lines = ["| | what | " + " | ".join(VERDICTS) + " |", "|---|---|" + "---|" * len(VERDICTS)]
    for name, document in found.items():
        counts = [sum(row["verdict"] == verdict for row in document["rows"]) for verdict in VERDICTS]
        cells = [f"[{name}](papers/{name}.md)", document["title"], *(str(count or "") for count in counts)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def numbers(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By placeholder."""
    literal = [cell for cell in found["table1"]["cells"] if cell["estimator"] == "fitted"]
    million = {cell["sigma"]: f"{cell['mean']:.2f} ± {cell['std']:.2f}" for cell in literal if cell["dim"] == 10**6}
    model = by_place(found["table2-model"])
    six, fashion = (by_place(found[name]) for name in ("table6-model", "table6-runs"))
    chance = next(row for row in found["table4-model"]["rows"] if row["what"].startswith("three or more"))
    five, emnist = (by_place(found[name]) for name in ("table5-model", "table5-runs"))
    final = model["model", 0.2317, "est-final"]
    return {
        **on_real_users(found),
        **with_and_without(found),
        "TABLE": table(found),
        "LITERAL": listed(list(million.values())),
        "LEAST": f"{min(cell['z_mean'] for cell in literal):.0f}",
        "MOST": f"{max(cell['z_mean'] for cell in literal):.0f}",
        "WORST": f"{found['table1']['worst_z']['mean']:.1f}",
        "FINAL": f"{final['ours']:.2f} ± {final['error']:.2f}",
        "PRINTED": listed([large(model["model, no momentum", noise, "est-all"]["ours"]) for noise in NOISES]),
        "MOMENTUM": listed([large(model["model", noise, "est-all"]["ours"]) for noise in NOISES]),
        "ANALYTIC": listed([large(TABLE2.analytic(noise)) for noise in NOISES]),
        "TABLE5": f"{TABLE5.analytic(0.16):.1f} to {TABLE5.analytic(0.315):.1f}",
        "BEYOND": listed([f"{100 * row['ours']:.1f} %" for row in found["table4-model"]["rows"][:2]]),
        "CHANCE": f"{100 * chance['ours']:.1f} %",
        "PURE": "{ours:.2f} ± {error:.2f}".format(**six["model", 1e-5, "est"]),
        "FASHION": "{ours:.2f} ± {error:.2f}".format(**fashion["runs", 1e-5, "est"]),
        "WIDER": f"{fashion['runs', 'width']['ours']:.3f}",
        "WIDTH": fashion["runs", "width"]["note"].removeprefix("pure noise: "),
        "SMALLER": "{ours:.2f} ± {error:.2f}".format(**fashion["runs", 2.8e-6, "est"]),
        "FIFTY": "{ours:.1f} ± {error:.1f}".format(**fashion["runs", 1e-5, "known others"]),
        "HOLDS": found["table6-runs"]["checks"][1]["text"].partition("claim in ")[2].partition(" runs")[0],
        "EARLY": "{ours:.0f} ± {error:.0f}".format(**by_place(found["v1-table2-model"])["model", 0.0644, "est-all"]),
        "FIVE": listed([large(five["model", noise, "est-all"]["ours"]) for noise in (0.16, 0.18, 0.195)]),
        "FIVERUNS": listed([large(emnist["runs", noise, "est-all"]["ours"]) for noise in (0.16, 0.18, 0.195)]),
    }


def on_real_users(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By placeholder, of the runs on chats and on MNIST by writer."""
    chats, mnist = found["table2-runs"], found["table5-runs"]
    runs = [*chats["runs"].values(), *mnist["runs"].values()]
    silent, hard = chats["runs"]["chat-noise0-times1"]["views"], mnist["runs"]["mnist-noise0-times1"]["final_cosines"]
    checks = [check for document in (chats, mnist) for check in document["checks"]]
    return {
        "CHATS": statements(chats),
        "MNIST": statements(mnist),
        "CHECKS": f"{sum(check['passed'] for check in checks)} of {len(checks)} hold",
        "RUNS": str(len(runs)),
        "FARTHEST": f"{max(distance(run['final_cosines']) for run in runs):.1f}",
        "HIDDEN": large(float(silent["known rounds"]["estimate"]["epsilon"])),
        "WITH": large(float(silent["final model, with its start"]["estimate"]["epsilon"])),
        "WITHOUT": large(float(silent["final model"]["estimate"]["epsilon"])),
        "UNEQUAL": f"{hard['anderson_darling']:.0f}",
    }


def distance(cosines: dict[str, float]) -> float:
    """Of the mean cosine from what canaries added, in standard errors."""
    return abs(cosines["mean"] - cosines["predicted_mean"]) / (cosines["width"] / cosines["canaries"] ** 0.5)


VIEWS = ("known others", "known rounds", "final model")


def statements(document: dict[str, Any]) -> str:
    """A line for every run of an experiment: what its views say, and how well it predicts."""
    lines = ["| noise | claim | " + " | ".join(VIEWS) + " | accuracy |", "|---|---|" + "---|" * (len(VIEWS) + 1)]
    for run in document["runs"].values():
        said = [run["views"][view] for view in VIEWS]
        cells = [f"{run['noise']:g}", large(float(said[0]["claim"])), *(statement(each) for each in said)]
        if not run["noise"]:
            cells[2] = "(rounding)"
        lines.append("| " + " | ".join([*cells, accuracy(run)]) + " |")
    return "\n".join(lines)


def presented(document: dict[str, Any], view: str) -> str:
    """What a view says by noise and presentations: estimate, in brackets the valid bound."""
    runs = list(document["runs"].values())
    times = sorted({run["presentations"] for run in runs})
    lines = ["| noise | " + " | ".join(f"{number}" for number in times) + " |", "|---|" + "---|" * len(times)]
    for noise in dict.fromkeys(run["noise"] for run in runs):
        cells = [statement(run["views"][view]) for run in runs if run["noise"] == noise]
        lines.append("| " + " | ".join([f"{noise:g}", *cells]) + " |")
    return "\n".join(lines)


def accuracies(document: dict[str, Any]) -> str:
    """A line for every noise: without and with canaries."""
    words = ("noise", "without canaries", "with canaries", "always the most frequent", "loss without", "loss with")
    lines = ["| " + " | ".join(words) + " |", "|---|" + "---|" * (len(words) - 1)]
    for noise, (without, having) in pairs(document).items():
        cells = [f"{noise:g}", accuracy(without), accuracy(having), f"{100 * without['baseline_accuracy']:.1f} %"]
        lines.append("| " + " | ".join([*cells, f"{without['loss']:.2f}", f"{having['loss']:.2f}"]) + " |")
    return "\n".join(lines)


def pairs(document: dict[str, Any]) -> dict[float, list[dict[str, Any]]]:
    """By noise, the run without canaries and the run with them."""
    runs = sorted(document["runs"].values(), key=lambda run: run["presentations"])
    return {noise: [run for run in runs if run["noise"] == noise] for noise in sorted({run["noise"] for run in runs})}


def with_and_without(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By placeholder, of the accuracies."""
    parts = {name: found[f"table3-{name}"] for name in ("chat", "mnist", "shakespeare") if f"table3-{name}" in found}
    changes = [row for document in parts.values() for row in document["rows"] if row["place"]["column"] == "change"]
    worst = max(changes, key=lambda row: abs(row["ours"]) / row["error"])
    chats = pairs(found["table3-chat"])
    return {
        **{f"ACCURACY {name.upper()}": accuracies(document) for name, document in parts.items()},
        "CHANGES": str(len(changes)),
        "CHANGED": f"{worst['ours']:+.2f} ± {worst['error']:.2f}",
        "LOSSES": listed([f"{chats[noise][0]['loss']:.2f}" for noise in TABLE2.noises[:2]]),
        "CLIPPED": listed([f"{chats[noise][0]['clip_norms'][1]:.2f}" for noise in TABLE2.noises[:2]]),
        "GROWN": f"{chats[NOISES[1]][0]['clip_norms'][1]:.1f}",
    }


def statement(said: dict[str, Any]) -> str:
    """Estimate, and the valid bound."""
    about = said["estimate"]
    shown = "—" if about is None else large(float(about["epsilon"]))
    return f"{shown} (≥ {large(float(said['bound']['epsilon']))})"


def accuracy(run: dict[str, Any]) -> str:
    """With its standard error over clients."""
    return f"{100 * run['accuracy']:.1f} ± {100 * run['accuracy_error']:.1f} %"


def by_place(document: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows by where they stand in their table."""
    return {tuple(row["place"].values()): row for row in document["rows"]}


def listed(words: list[str]) -> str:
    """'a, b and c'."""
    return ", ".join(words[:-1]) + f" and {words[-1]}"


def large(value: float) -> str:
    """Three digits."""
    if value == float("inf"):
        return "∞"
    return f"{value:.1e}" if value >= 1e6 else f"{float(f'{value:.3g}'):,g}"


def page() -> str:
    """The page with its numbers."""
    text = (HERE / "papers.md.in").read_text(encoding="utf-8")
    for name, value in numbers(documents()).items():
        text = text.replace(f"@{name}@", value)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
