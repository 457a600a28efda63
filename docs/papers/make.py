"""Writes docs/papers.md: its text is papers.md.in, its numbers are those of the JSON documents beside this file.

python docs/papers/make.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from coalmine.papers.kit.checking import pooled_ratio
from coalmine.papers.kit.paper_result import VERDICTS, listed
from coalmine.papers.kit.registry import EXPERIMENTS
from coalmine.papers.one_shot.numbers import TABLE2, TABLE5
from coalmine.papers.one_shot.table5 import WITHIN

HERE = Path(__file__).parent
PAGE = HERE.parent / "papers.md"
NOISES = TABLE2.noises[1:]
TRAINED = ("table2-runs", "table5-runs", "figure1", "figure2", "figure3", "v1-table2-runs", "table4-runs")


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
    unlike = [row["what"] for row in found["v1-table2-model"]["rows"] if row["verdict"] == "differs"]
    stated(unlike == ["model, noise 0.0644, epsilon_est, all iterates"], "one number of the first version differs")
    early, bounds = (0.16, 0.18, 0.195), found["table6-runs"]["checks"][0]["text"]
    laws = [check["text"] for check in found["table1"]["checks"] if "one law" in check["text"]]
    other = [row for row in found["table5-model"]["rows"] if row["place"]["how"] == "model at delta 1e-05"]
    return {
        **on_real_users(found),
        **with_and_without(found),
        **again(found),
        **normality(found),
        **perfect_canaries(found),
        "CANIFE_MEASURED": measured_canaries(found),
        "CANIFE_MISSING": not_run(found),
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
        "HOLDS": between(fashion["runs", 1e-5, "known others"]["note"], "holds the claim in ", " runs"),
        "ABOVE": between(bounds, "above the claim in ", " of "),
        "EARLY": "{ours:.0f} ± {error:.0f}".format(**by_place(found["v1-table2-model"])["model", 0.0644, "est-all"]),
        "FIVE": listed([large(five["model", noise, "est-all"]["ours"]) for noise in early]),
        "FIVE5": listed([large(five["model at delta 1e-05", noise, "est-all"]["ours"]) for noise in early]),
        "AGREE5": "all" if all(row["note"] == WITHIN for row in other) else "not all",
        "ONE OR TEN": listed([between(text, "p = ", ")") for text in laws]),
        "FIVERUNS": listed([large(emnist["runs", noise, "est-all"]["ours"]) for noise in early]),
        "FIVERUNS5": listed([large(emnist["runs at delta 1e-05", noise, "est-all"]["ours"]) for noise in early]),
    }


def on_real_users(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By placeholder, of the runs on chats and on MNIST by writer."""
    chats, mnist, first = (found[f"{name}-runs"] for name in ("table2", "table5", "v1-table2"))
    away, louder = first["runs"]["chat-noise0.1836-times1"], by_place(first)["runs", 0.1836, "est-all"]
    stated(away["clip_norms"][1] > 1000 and "diverged" in louder["note"], "adaptive clipping runs away at noise 0.1836")
    silent, hard = chats["runs"]["chat-noise0-times1"]["views"], mnist["runs"]["mnist-noise0-times1"]
    documents = [document for name, document in found.items() if name in TRAINED]
    checks = {check["text"]: check["passed"] for document in [*documents, found["table6-runs"]] for check in document["checks"]}
    runs = {name: run for document in documents for name, run in document["runs"].items()}  # several are in more than one
    cosines = [spread(run["final_cosines"]) for run in runs.values()]
    ratio, error = pooled_ratio(cosines)
    gaps = {name: run["known_rounds_gap"] for name, run in runs.items()}
    off = [(gap["seen"] - gap["if_clients_were_noise"]) / gap["error"] for name, gap in gaps.items() if runs[name]["noise"]]
    silent_gaps = [gaps["chat-noise0-times1"], gaps["mnist-noise0-times1"]]
    larger = [name for name, run in runs.items() for said in [run["views"][view] for view in VIEWS[1:]] if above_estimate(said)]
    stated(all(checks.values()), "all checks hold")
    stated(max(map(abs, off)) < 3, "known rounds agrees with sums of clients as noise")
    stated(set(larger) == {"mnist-noise0-times1"}, "the valid bound is above the estimate on MNIST without noise alone")
    stated(0.99 < ratio < 1, "less than a hundredth of what canaries add is undone")
    most = runs["chat-noise0-times8"]["final_cosines"]
    return {
        "CHATS": statements(chats),
        "CHATS1": statements(first),
        "AWAY": f"{away['clip_norms'][1]:.0e}",
        "GONE": f"{100 * away['accuracy']:.1f} %",
        "STILL": f"{away['views']['known others']['estimate']['epsilon']:.1f}",
        "STANDS OUT": f"{louder['ours']:.1f} ± {louder['error']:.1f} for {between(louder['note'], 'size: ', ';')}",
        "MNIST": statements(mnist),
        "CHECKS": f"{len(checks)} checks, all of which hold",
        "GAPS": f"the farthest of {len(off)} is {max(map(abs, off)):.1f} standard errors away",
        "MORE": " and ".join(
            f"{gap['seen']:.0f} for {gap['if_clients_were_noise']:.0f} on {data}"
            for gap, data in zip(silent_gaps, ("chats", "MNIST"), strict=True)
        ),
        "ENDNORMS": listed([f"{run['clip_norms'][1]:.2g}" for run in mnist["runs"].values() if run["noise"]]),
        "RUNS": str(len(runs)),
        "RATIO": f"{ratio:.3f} ± {error:.3f}",
        "PRECISE": f"a mean cosine of {most['mean']:.2f} ± {spread(most)[1]:.2f} for {most['predicted_mean']:.2f}",
        "HIDDEN": large(float(silent["known rounds"]["estimate"]["epsilon"])),
        "WITH": large(by_place(chats)["runs", 0.0, "est-final"]["ours"]),
        "WITHOUT": large(float(silent["final model"]["estimate"]["epsilon"])),
        "CLIPS": " to ".join(f"{clip:.2g}" for clip in hard["clip_norms"]),
        "UNEQUAL": f"{hard['final_cosines']['anderson_darling']:.0f}",
    }


def above_estimate(said: dict[str, Any]) -> bool:
    """Whether the valid bound is larger."""
    return float(said["bound"]["epsilon"]) > float(said["estimate"]["epsilon"])


def spread(cosines: dict[str, float]) -> tuple[float, float, float]:
    """(mean cosine, its standard error, what canaries added)."""
    return cosines["mean"], cosines["width"] / cosines["canaries"] ** 0.5, cosines["predicted_mean"]


def again(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By placeholder, of canaries that take part several times; numbers of one noise are examples."""
    examples = {"figure2": 0.0496, "figure3": 0.16}
    return {
        f"{name.upper()} {key}": value
        for name, noise in examples.items()
        if name in found
        for key, value in presentations(found[name], noise).items()
    }


def presentations(document: dict[str, Any], noise: float) -> dict[str, str]:
    """By placeholder, of one figure."""
    runs, rows = list(document["runs"].values()), document["rows"]
    shares = {times: [run["mean_canary_share"] for run in runs if run["presentations"] == times] for times in (1, 8)}
    line = {run["presentations"]: run for run in runs if run["noise"] == noise}
    rises = [check["text"] for check in document["checks"] if "epsilon rises" in check["text"]]
    above, valid = (
        [float(between(row["note"], word, ";")) > row["ours"] for row in rows] for word in ("epsilon_lo ", "valid bound ")
    )
    stated(not any(valid), "no valid bound is above the papers' estimate")
    return {
        "TABLE": presented(document, "final model"),
        "ENDS": listed([f"{between(text, ' from ', ' at')} to {between(text, ' to ', ' at')}" for text in rises]),
        "POINTWISE": f"{sum(above)} of {len(runs)}",
        "SHARES": f"{100 * min(shares[1]):.0f} % at one and {100 * max(shares[8]):.0f} % at eight presentations",
        "CLIPPED": f"{line[1]['clip_norms'][1]:.2g} with one and {line[8]['clip_norms'][1]:.2g} with eight",
        "WORSE": f"{100 * line[1]['accuracy']:.1f} to {100 * line[8]['accuracy']:.1f} %",
    }


def normality(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By placeholder, of Anderson–Darling statistics."""
    fifteen = [row for row in found["table4-runs"]["rows"] if row["place"]["how"] == "runs"]
    four = [run["final_cosines"] for run in found["figure1"]["runs"].values() if run["presentations"] == 4]
    stated(all(row["verdict"] == "same shape" for row in fifteen), "normality is not rejected at 1 % in any of fifteen")
    return {
        "NORMAL": statistics(fifteen),
        "MOST NORMAL": f"{max(row['ours'] for row in fifteen):.2f}",
        "ABOVE 15": found["table4-runs"]["checks"][0]["text"].partition(" runs")[0],
        "FOUR": listed([f"{cosines['anderson_darling']:.2f}" for cosines in four]),
        "LEAN": listed([f"{cosines['skewness']:+.2f}" for cosines in four]),
    }


def statistics(rows: list[dict[str, Any]]) -> str:
    """By noise and presentations, in brackets the paper's."""
    times = list(dict.fromkeys(row["place"]["times"] for row in rows))
    lines = ["| noise | " + " | ".join(map(str, times)) + " |", "|---|" + "---|" * len(times)]
    for noise in dict.fromkeys(row["place"]["noise"] for row in rows):
        cells = [f"{row['ours']:.2f} ({float(row['paper']):.2f})" for row in rows if row["place"]["noise"] == noise]
        lines.append("| " + " | ".join([f"{noise:g}", *cells]) + " |")
    return "\n".join(lines)


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
    for noise, (without, having, *again) in pairs(document).items():
        further = f" (also {listed([format(100 * run['accuracy'], '.1f') for run in again])})" if again else ""
        cells = [f"{noise:g}", accuracy(without) + further, accuracy(having), f"{100 * without['baseline_accuracy']:.1f} %"]
        lines.append("| " + " | ".join([*cells, f"{without['loss']:.3f}", f"{having['loss']:.3f}"]) + " |")
    return "\n".join(lines)


def pairs(document: dict[str, Any]) -> Groups:
    """By noise: the run without canaries, the run with them, and further ones without."""
    found: Groups = {}
    for name, run in document["runs"].items():
        if name.endswith(("-fixed", "-few")):
            continue
        group = found.setdefault(run["noise"], [])
        group.insert(len(group) if "-again" in name else run["presentations"], run)
    return found


def with_and_without(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By placeholder, of the accuracies."""
    parts = {name: found[f"table3-{name}"] for name in ("mnist", "shakespeare", "chat")}
    rows = [row for document in parts.values() for row in document["rows"] if row["verdict"]]
    changes = [row for row in rows if row["place"]["column"] == "change by canaries"]
    wrong = [row for row in changes if row["verdict"] == "differs"]
    stated([row["what"] for row in wrong] == ["Shakespeare, noise 0, change by canaries"], "one change shows")
    return {
        **{f"ACCURACY {name.upper()}": accuracies(document) for name, document in parts.items()},
        **a_lottery(pairs(parts["mnist"])),
        **dear_canaries(parts["shakespeare"]),
        **a_little_noise(parts["chat"]),
        "CHANGES": str(len(changes)),
        "COST": "{ours:+.2f} ± {error:.2f}".format(**wrong[0]),
    }


PLAIN = ("without canaries", "with canaries")
Groups = dict[float, list[dict[str, Any]]]  # by noise: the run without canaries, the one with them, further ones without


def a_lottery(digits: Groups) -> dict[str, str]:
    """By placeholder, of MNIST by writer."""
    (luckless, lucky, *_), quarter = digits[0.315], digits[0.25]
    ends = sorted(run["accuracy"] for run in (quarter[0], *quarter[2:]))
    lost = [run for run in digits[0.315][2:] if run["accuracy"] < luckless["accuracy"] / 2]
    stated(len(lost) == 2 and lucky["accuracy"] > luckless["accuracy"], "two of three runs at noise 0.315 are lost")
    stated(ends[0] < quarter[1]["accuracy"] < ends[-1], "at noise 0.25 the run with canaries is among those without")
    return {
        "LOTTERY": percents(digits[0.315][0], *digits[0.315][2:]),
        "QUARTER": percents(quarter[0], *quarter[2:]),
        "PEAKS": listed([f"{run['largest_clip_norm']:.2f}" for run in lost]),
        "LOWER PEAKS": listed([f"{run['largest_clip_norm']:.2f}" for run in (luckless, lucky)]),
        "LUCK": f"{100 * (lucky['accuracy'] - luckless['accuracy']):.1f}",
        "LUCKY": f"{100 * math.hypot(lucky['accuracy_error'], luckless['accuracy_error']):.1f}",
    }


def dear_canaries(document: dict[str, Any]) -> dict[str, str]:
    """By placeholder, of Shakespeare."""
    roles, runs = pairs(document), document["runs"]
    dearer = [having["loss"] - without["loss"] for without, having, *_ in roles.values()]
    alike = [[run["loss"] for run in (without, *again)] for without, _, *again in roles.values() if again]
    near = max(max(losses) - min(losses) for losses in alike)
    few, row = (
        runs["shakespeare-noise0-times1-few"],
        next(row for row in document["rows"] if row["place"]["column"] == "change by few"),
    )
    noises = list(roles)
    better = [run for noise in noises[2:] for run in (roles[noise][0], *roles[noise][2:])]
    fixed = [runs[f"shakespeare-noise{noise:g}-without-fixed"] for noise in (noises[0], noises[-1])]
    silent = roles[0.0][0]
    stated(few["loss"] - silent["loss"] < 2 * near and row["verdict"] == "same shape", "few canaries cannot be told from none")
    stated(min(dearer) > 2 * near, "by loss canaries cost something at every noise")
    stated(all(run["accuracy"] > silent["accuracy"] and run["loss"] < silent["loss"] for run in better), "noise helps")
    stated(
        fixed[1]["accuracy"] - fixed[0]["accuracy"] > 2 * math.hypot(*(run["accuracy_error"] for run in fixed)),
        "noise helps with a fixed clip norm",
    )
    return {
        "DEARER": listed([f"{cost:.3f}" for cost in dearer]),
        "NEAR": f"{near:.3f}",
        "SHARE": f"{100 * few['mean_canary_share']:.0f} %",
        "FEW": "{ours:+.2f} ± {error:.2f}".format(**row),
        "CHEAPER": f"{few['loss'] - silent['loss']:.3f}",
        "UPWARD": f"{percents(silent)} without noise to {percents(*better[:3])} and {percents(*better[3:])}",
        "FIXED": f"{percents(fixed[0])} to {percents(fixed[1])}",
    }


def a_little_noise(document: dict[str, Any]) -> dict[str, str]:
    """By placeholder, of chats."""
    chats, runs = pairs(document), document["runs"]
    silent, (first, _, *again) = chats[0.0][0], chats[0.0496]
    little = [first, *again]
    fixed = [*(runs[f"chat-noise{noise:g}-without-fixed"] for noise in TABLE2.noises[:3]), chats[0.2317][0]]
    worth = silent["accuracy"] - fixed[0]["accuracy"]
    apart = [abs(run["accuracy"] - fixed[0]["accuracy"]) for run in fixed]
    verdicts = [
        row["verdict"] for row in document["rows"] if row["place"]["noise"] in (0.0, 0.0496) and row["place"]["column"] in PLAIN
    ]
    stated("differs" not in verdicts, "a little noise cannot be told from none")
    stated(all(run["loss"] > silent["loss"] for run in little), "by loss no noise is better")
    stated(max(apart) < worth, "the clip norm decides more than the noise")
    return {
        "TWENTIETH": percents(*little),
        "SILENT": percents(silent),
        "LOSSES": f"{silent['loss']:.2f} for {listed([format(run['loss'], '.2f') for run in little])}",
        "FIXED CHATS": percents(*fixed),
        "GROWN": f"{silent['clip_norms'][1]:.1f}",
        "WORTH": f"{100 * worth:.1f}",
    }


def perfect_canaries(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By placeholder, of CANIFE."""
    ours = {tuple(row["place"].values()): row["ours"] for row in found["canife-table-perfect"]["rows"]}
    six = {row["place"]["limit"]: row["ours"] for row in found["table6-canife"]["rows"]}
    stated(max(ours[task, 50, "gap"] for task in ("CelebA", "Shakespeare")) < 4, "two gaps are below the printed ones")
    return {
        **{f"CANIFE_{key}": f"{ours[task, 50, 'gap']:.1f}" for key, task in
           (("SENT", "Sent140"), ("CELEBA", "CelebA"), ("SHAKESPEARE", "Shakespeare"))},
        "CANIFE_COMPOSED": f"{ours['CelebA', 50, 'composed']:.1f}",
        "CANIFE_MORE": f"{ours['gap by scores', 10_000]:.1f}",
        "CANIFE_SIX": f"{six['Jeffreys limit']:.2f}",
        **crafted_gaps(found),
        "CANIFE_CIFAR": f"{100 * found['canife-figure3-cifar']['about']['cifar_accuracy']:.0f} %",
    }  # fmt: skip


def crafted_gaps(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By placeholder: gaps of crafted canaries beside those of perfect ones, and where crafted ones are not perfect."""
    gaps = {}
    for key, name in (("WRITERS", "writers"), ("ROLES", "shakespeare")):
        (row,) = having(found[f"canife-figure4-{name}"], column="gap")
        gaps[f"CANIFE_{key}"] = f"{row['ours']:.1f} for {row['note'].removeprefix('perfect canary ')}"
        stated(row["ours"] < 4, "both gaps are below the printed ones")
    roles = found["canife-figure4-shakespeare"]["shakespeare"]
    by = {row["place"]["panel"]: row["ours"] for row in found["canife-figure3-cifar"]["rows"]}
    stated(0.423 * 1.02 < by["noisy"] < 0.478, "with noise the spread is between ours allowed and theirs")
    untrained, little, trained = (row["ours"] for row in having(found["canife-figure5"], panel="c")[:-1])
    stated(little < min(untrained, trained), "the accuracy of the attack falls first")
    stated(not found["canife-figure5"]["checks"][0]["passed"], "250 steps do not tell every draw")
    return gaps | {
        "CANIFE_UNTRAINED": f"{untrained:.2f}",
        "CANIFE_LITTLE": f"{little:.2f}",
        "CANIFE_TRAINED": f"{trained:.2f}",
        "CANIFE_EARLY": f"{roles[0]['efficiency']:.2f}",
        "CANIFE_LATE": f"{roles[-1]['efficiency']:.2f}",
        "CANIFE_SMALL": f"{by['random']:.3f}",
        "CANIFE_TIMES": f"{by['silent'] / by['random']:.1f}",
    }


def not_run(found: dict[str, dict[str, Any]]) -> str:
    """CANIFE's experiments that have no published result, and why."""
    names = [
        f"`{name}" + (f" --part {part}`" if part else "`")
        for name, each in EXPERIMENTS.items()
        if name.startswith("canife-")
        for part in each.parts or ("",)
        if (f"{name}-{part}" if part else name) not in found
    ]
    if not names:
        return "All experiments of CANIFE in the list of commands have been run at full scale."
    many = "has" if len(names) == 1 else "have"
    return f"{listed(names)} {many} not been run at full scale, for want of time on two cores, and {many} no result here."


def measured_canaries(found: dict[str, dict[str, Any]]) -> str:
    """A point for every published experiment of CANIFE with crafted canaries."""
    made = {
        "table6-canife-runs": column_of_canife,
        "canife-figure4-writers": measured_rounds,
        "canife-figure4-shakespeare": measured_rounds,
        "canife-figure1-runs": composed_rounds,
        "canife-figure6-runs": rounds_without_noise,
        "canife-figure3-fashion": one_example,
        "canife-figure3-cifar": one_example,
        "canife-figure5": ablations,
        "canife-figure8": losses,
        "canife-figure9": lengths,
        "canife-pools": pools,
        "canife-time": times,
        "canife-table1": texts,
    }
    return "\n".join(f"* [{name}](papers/{name}.md): {say(found[name])}" for name, say in made.items() if name in found)


def shown(row: dict[str, Any], digits: int = 2) -> str:
    """Ours with its error."""
    error = "" if row["error"] is None else f" ± {row['error']:.{digits}f}"
    return f"{row['ours']:.{digits}f}{error}"


def having(document: dict[str, Any], **place: Any) -> list[dict[str, Any]]:
    """Rows that stand at this place."""
    return [row for row in document["rows"] if all(row["place"].get(key) == value for key, value in place.items())]


def column_of_canife(document: dict[str, Any]) -> str:
    """Of Table 6, by the recipe."""
    six = {row["place"].get("limit", row["place"]["column"]): row for row in document["rows"]}
    jeffreys, plug_in, known = (
        six[key] for key in ("Jeffreys limit", "largest finite plug-in value", "one round, known others")
    )
    runs, rounds = (document["about"][key] for key in ("canife_runs", "measured_rounds"))
    return (
        f"the recipe of the published code on the models of {runs} private trainings, {rounds} measured rounds each. "
        f"Composed by Jeffreys' limit {shown(jeffreys)} for the printed 0.88 ± 0.12 ({jeffreys['verdict']}), by the capped "
        f"plug-in value {shown(plug_in)}. The same canaries and as many draws, read with the other clients known, show "
        f"{shown(known, 1)} in one round ({known['note']})."
    )


def measured_rounds(document: dict[str, Any]) -> str:
    """Of one private training."""
    by = {row["place"]["column"]: row for row in document["rows"]}
    each = [f"{one['efficiency']:.2f}" for one in document[by["round"]["place"]["task"]]]
    return (
        f"{by['round']['what'].rpartition(',')[0]}, trained to epsilon 50 ({by['round']['note']}). As printed a round shows "
        f"{shown(by['round'])}, a perfect canary by the same estimator {shown(by['perfect'])}: gaps of {by['gap']['ours']:.1f} "
        f"and {by['gap']['note'].removeprefix('perfect canary ')} to the theoretical value. With the others known the same "
        f"canaries show {shown(by['known others'])} ({by['known others']['note']}). Health "
        f"{by['health']['ours']:.3f}; efficiency {by['efficiency']['ours']:.3f}, round by round {listed(each)}."
    )


def rounds_without_noise(document: dict[str, Any]) -> str:
    """Of Figure 6: the noisy rounds are those of Figure 4."""
    silent = [row for row in document["rows"] if row["place"]["column"] == "without noise"]
    said = [f"{row['ours']:.2f} ({row['verdict']}; {row['note']}; {between(row['what'], 'noise, ', ',')})" for row in silent]
    return f"without noise a round shows {listed(said)}, printed 3.89. With noise: {measured_rounds(document)}"


def composed_rounds(document: dict[str, Any]) -> str:
    """Of trainings to three epsilons."""
    parts = [
        f"{row['what'].removesuffix(', composed')}: {row['ours']:.2f}, {row['note'].rpartition('; ')[2]}"
        for row in document["rows"]
    ]
    return f"composed as printed, not a bound. {'; '.join(parts)}."


def one_example(document: dict[str, Any]) -> str:
    """Of Figure 3."""
    by = {row["place"]["panel"]: row for row in document["rows"]}
    return (
        f"{by['silent']['what'].partition(', a')[0]}. Spread of scores without noise {shown(by['silent'], 4)} by our design "
        f"and {shown(by['recipe'], 4)} by the recipe, printed 0.006 (along a random direction {shown(by['random'], 4)}; "
        f"{by['random']['note'].rpartition('; ')[2]}); with noise 0.423 {shown(by['noisy'], 3)}, printed "
        f"0.478 ({by['noisy']['note']}). From cohorts of 16 to 256 the spread grows by a factor of "
        f"{by['c by cohort']['ours']:.1f}; with 32 instead of 512 mock clients it is {by['c by pool']['ours']:.1f} times as "
        "large."
    )


def ablations(document: dict[str, Any]) -> str:
    """Of Figure 5."""
    first = having(document, panel="a")
    start, pool = (next(row for row in first if row["place"].get(key) == "difference") for key in ("start", "pool"))
    learned = [
        f"{row['ours']:.2f} ({row['what'].removeprefix('c: ').partition(',')[0]})" for row in having(document, panel="c")[:-1]
    ]
    (check,) = document["checks"]
    said = [
        f"{shown(row)} ({row['what'].removeprefix('b: ').removesuffix(', accuracy')})" for row in having(document, panel="b")
    ]
    return (
        f"accuracy of the attack {listed(said)}. Random less sample start changes the spread by {shown(start, 3)} "
        f"({start['verdict']}), few less many mock clients by {shown(pool, 3)} ({pool['verdict']}). "
        f"By checkpoint: {listed(learned)}. A check that {'holds' if check['passed'] else 'does not hold'}: {check['text']}."
    )


def losses(document: dict[str, Any]) -> str:
    """Of Figure 8."""
    ratio = having(document, panel="a", loss="ratio")[0]
    further = [having(document, panel=panel, cohort="difference")[0] for panel in "bc"]
    said = [f"{row['what'][3:]}: {row['ours']:+.2f} ({row['verdict']})" for row in further]
    return f"Loss 1 leaves at least {ratio['ours']:.1f} times the overlap of Loss 2 ({ratio['verdict']}). {'; '.join(said)}."


def lengths(document: dict[str, Any]) -> str:
    """Of Figure 9."""
    rows = [row for row in document["rows"] if "length" in row["place"]]
    said = [f"{row['ours']:.2f} at {row['place']['length']:g} ({row['place']['loss']})" for row in rows]
    judged = [f"{row['what']}: {row['ours']:+.2f} ({row['verdict']})" for row in document["rows"] if "at" in row["place"]]
    return f"accuracy by the length asked for: {listed(said)}. {'; '.join(judged)}."


def pools(document: dict[str, Any]) -> str:
    """Of the design pool."""
    parts = [f"{row['what'].removesuffix(': efficiency')} {shown(row, 3)}" for row in document["rows"]]
    return f"efficiency: {'; '.join(parts)}."


def times(document: dict[str, Any]) -> str:
    """Of designs."""
    parts = []
    for task in dict.fromkeys(row["place"]["task"] for row in document["rows"]):
        recipe, ours, ratio = (having(document, task=task, column=column)[0] for column in ("recipe", "ours", "ratio"))
        words = ours["what"].partition(", ours")[0]
        parts.append(f"{words}: {ratio['ours']:.3f} of the recipe's time (ours: {ours['note']}; recipe: {recipe['note']})")
    return "; ".join(parts) + "."


def texts(document: dict[str, Any]) -> str:
    """Of canaries' texts."""
    return "; ".join(f"{row['what']} {shown(row, 3)}" for row in document["rows"]) + "."


def percents(*runs: dict[str, Any]) -> str:
    """The accuracies of several runs."""
    return listed([f"{100 * run['accuracy']:.1f}" for run in runs]) + " %"


def stated(true: bool, what: str) -> None:
    """The text says it; new numbers may make it false."""
    if not true:
        raise SystemExit(f"papers.md.in says: {what}. The documents say otherwise; write it anew.")


def between(text: str, before: str, after: str) -> str:
    """What stands between two pieces of a text."""
    return text.partition(before)[2].partition(after)[0]


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
