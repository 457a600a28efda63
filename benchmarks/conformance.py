"""How often the tests of a mechanism alarm on correct code, and what they notice; writes docs/conformance-calibration.md.

    python benchmarks/conformance.py [--simulated 2000] [--real 200] [--large 20] [--twins 200] [--workers 2]

simulated   correct runs without training: false alarms of the family and of every check; uniform p-values
real        correct runs of every setting of the zoo
large       noise 1 % too small at four million coordinates
twins       correct runs at noise multipliers 1, 2 and 4, whose verdict must be CONSISTENT

A part whose number is 0 is left as it was. With `--again` runs with the tests as they are now stand beside the older ones, of
which there are more. Simulated runs are kept in benchmarks/results/conformance_simulated.csv while the tests stay as they are:
who asks for more of them goes on from there. The page says how the tests were when a part was made.
"""

import argparse
import csv
import hashlib
import json
import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import binom, kstest

from coalmine import conformance
from coalmine.clients import quiet_threads
from coalmine.conformance import CHECKS, Subject
from coalmine.conformance.simulated import simulate
from coalmine.contracts import Clip, Description, Extra, Noise
from coalmine.participation import FixedSize, Poisson
from coalmine.progress import track
from coalmine.workers import Workers
from coalmine.zoo import SETTINGS, Setting, audit_once

LEVEL = 0.001
CONTINUOUS = ("noise-scale", "canaries-whole")
UNLIKELY = 1e-3  # chance that a calibrated family fails a comparison of this page
FIRST = 60_000_000_000  # seeds of simulations begin here, far from what is guessed
TWINS = (1.0, 2.0, 4.0)
KEPT = 200  # simulated runs between two savings


def subject_of(dim: int, rounds: int, *, adaptive: bool = False, fixed: bool = False) -> Subject:
    layers = {"first": slice(0, dim // 2), "bias": slice(dim // 2, dim // 2 + 100), "last": slice(dim // 2 + 100, dim)}
    extras = (Extra("quantile", 5.0, target=0.5, rate=0.2),) if adaptive else ()
    description = Description(Clip(None if adaptive else 1.0), Noise(0.5, 0.5), extras=extras)
    pattern = FixedSize(50, 200, rounds) if fixed else Poisson(0.25, rounds)
    return Subject(description, dim, layers, participation=pattern, population=200, rounds=rounds)


SIMULATED = (  # runs are of these kinds in turn
    partial(subject_of, 10_000, 8),
    partial(subject_of, 2_500, 12, fixed=True),
    partial(subject_of, 1_000, 16, adaptive=True),
    partial(subject_of, 40_000, 3),
)


def simulated(seed: int) -> dict[str, float]:
    found = simulate(SIMULATED[seed % len(SIMULATED)](), CHECKS, FIRST + seed)
    return {"run": seed} | {each.key: each.p_value for each in found.findings} | {"family": found.p_value}


def tests_now() -> str:
    """What the tests are: a hash of their code, without that of the simulation."""
    paths = sorted(path for path in Path(conformance.__file__).parent.glob("*.py") if path.name != "simulated.py")
    code = b"".join(path.read_bytes() for path in paths)
    return hashlib.sha256(code).hexdigest()[:12]


def simulated_runs(count: int, workers: int) -> list[dict[str, float]]:
    """Those that are kept from before, and as many new ones as are missing."""
    kept = Path(__file__).parent / "results" / "conformance_simulated.csv"
    rows, stamp = [], tests_now()
    if kept.is_file():
        with kept.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row.pop("tests") == stamp]
    done = {int(row["run"]) for row in rows}
    missing = [run for run in range(count) if run not in done]
    for first in range(0, len(missing), KEPT):
        rows += all_of("simulated", missing[first : first + KEPT], workers)
        with kept.open("w", encoding="utf-8", newline="") as file:
            names = ["tests", "run", *(check.key for check in CHECKS), "family"]
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows({"tests": stamp} | {key: _short(key, value) for key, value in row.items()} for row in rows)
    return [{key: float(value) for key, value in row.items() if value != "" and key != "run"} for row in rows]


def _short(key: str, value: float | str) -> str:
    return str(value) if key == "run" or isinstance(value, str) else f"{value:.5g}"


def large(seed: int) -> tuple[float, bool]:
    found = simulate(subject_of(4_050_748, 1), CHECKS, 2 * FIRST + seed, lambda noise, number: 0.99 * noise)
    return found.noise.measured, found.noise.side == "less"


def real(task: tuple[str, int]) -> tuple[str, str, float, list[str]]:
    name, seed = task
    result = audit_once(SETTINGS[name], None, seed)
    return name, result.verdict.word, result.conformance.p_value, [each.key for each in result.conformance.deviations]


def twin(task: tuple[float, int]) -> tuple[float, str]:
    noise, seed = task
    setting = Setting("once", "a twin", (f"mechanism.noise_multiplier={noise}",))
    return noise, audit_once(setting, None, seed).verdict.word


class Work:
    """One task after the other, in one thread."""

    def prepare(self) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"
        quiet_threads()

    def __call__(self, task):
        kind, what = task
        return {"simulated": simulated, "large": large, "real": real, "twin": twin}[kind](what)


def all_of(kind: str, tasks: list, workers: int) -> list:
    found = []
    with Workers(workers, Work()) as pool:
        for first in track(range(0, len(tasks), 16), kind):
            found += pool.map([(kind, task) for task in tasks[first : first + 16]])
    return found


def alarms(values: np.ndarray, level: float) -> dict[str, float]:
    allowed = int(binom.ppf(1 - UNLIKELY, values.size, level))
    return {"runs": int(values.size), "level": level, "alarms": int((values <= level).sum()), "allowed": allowed}


def calibration(rows: list[dict[str, float]]) -> dict[str, object]:
    by_check = {key: np.array([row[key] for row in rows if key in row]) for key in (*(check.key for check in CHECKS), "family")}
    return {
        key: {
            "levels": [alarms(values, level) for level in (LEVEL, 0.01, 0.05)],
            "smallest": float(values.min()),
            "uniform": float(kstest(values, "uniform").pvalue) if key in CONTINUOUS else None,
        }
        for key, values in by_check.items()
    }


def page(found: dict) -> str:
    lines = [
        "# Calibration of the tests of a mechanism",
        "",
        "`make conformance` wrote this page; see [the script](../benchmarks/conformance.py).",
        "",
    ]
    if "simulated" in found:
        whole = found["simulated"]["family"]["levels"][0]
        said = (
            f"**The whole family: {whole['alarms']} false alarms in {whole['runs']:,} runs at the declared rate of {LEVEL:g}**"
        )
        said += f" (a calibrated family has more than {whole['allowed']} once in a thousand times). Runs are of four kinds in "
        said += "turn: Poisson and fixed cohorts, fixed and adaptive clip norms, 1,000 to 40,000 coordinates, 3 to 16 rounds."
        lines += [
            f"## Correct runs, simulated ({found['simulated']['family']['levels'][0]['runs']:,})", "", said, "",
            "Alarms at three levels, with the number that a calibrated test exceeds once in a thousand times in brackets.", "",
            "| check | 0.001 | 0.01 | 0.05 | smallest p | uniform (Kolmogorov–Smirnov) |", "|---|---:|---:|---:|---:|---:|",
        ]  # fmt: skip
        for key, row in sorted(found["simulated"].items(), key=lambda item: item[0] == "family"):
            cells = [f"{each['alarms']} (≤ {each['allowed']})" for each in row["levels"]]
            uniform = "–" if row["uniform"] is None else f"p = {row['uniform']:.2g}"
            lines.append(f"| {key} | {' | '.join(cells)} | {row['smallest']:.2g} | {uniform} |")
    if "real" in found:
        lines += [
            "",
            "## Correct runs of the zoo's settings",
            "",
            "| setting | runs | below 0.001 | below 0.05 | verdicts |",
            "|---|---:|---:|---:|---|",
        ]
        for name, row in found["real"].items():
            words = ", ".join(f"{count} {word.lower()}" for word, count in row["words"].items())
            lines.append(f"| {name} | {row['runs']} | {row['alarms']} | {row['below_0.05']} | {words} |")
        alarmed, runs = (sum(row[what] for row in found["real"].values()) for what in ("alarms", "runs"))
        lines += ["", f"All settings together: {alarmed} false alarms of the family in {runs} runs at the rate of {LEVEL:g}."]
    if "large" in found:
        seen = found["large"]
        said = f"Noticed in {seen['noticed']} of {seen['runs']} runs of one round; measured noise multipliers "
        said += f"{seen['least']:.4f} to {seen['most']:.4f} where 0.5 is claimed."
        lines += ["", "## One percent less noise at four million coordinates", "", said]
    if "twins" in found:
        lines += ["", "## Correct runs at larger noise", "", "| noise multiplier | runs | verdicts |", "|---|---:|---|"]
        for noise, words in found["twins"].items():
            lines.append(
                f"| {noise} | {sum(words.values())} | {', '.join(f'{count} {word}' for word, count in words.items())} |"
            )
    lines += again(found)
    older = [name for name, stamp in found.get("tests", {}).items() if stamp != tests_now()]
    older += [name for name in ("simulated", "real", "large", "twins") if name in found and name not in found.get("tests", {})]
    if older:
        lines += ["", f"Tests were added or changed after these parts were made: {', '.join(older)}."]
    return "\n".join([*lines, ""])


def again(found: dict) -> list[str]:
    """Parts that were made once more with the tests as they are now, in small."""
    new = found.get("again", {})
    if new.get("tests") != tests_now():
        return []
    said = []
    if "simulated" in new:
        levels = new["simulated"]["family"]["levels"]
        counts = ", ".join(f"{each['alarms']} at {each['level']:g} (≤ {each['allowed']})" for each in levels)
        worst = {key: row["levels"][0]["alarms"] for key, row in new["simulated"].items() if key != "family"}
        most = max(worst, key=worst.__getitem__)
        said += [
            f"* Correct runs, simulated ({levels[0]['runs']:,}): alarms of the family {counts};",
            f"  of single checks at {LEVEL:g} at most {worst[most]} ({most}).",
        ]
    if "real" in new:
        alarmed, runs = (sum(row[what] for row in new["real"].values()) for what in ("alarms", "runs"))
        words = sum((Counter(row["words"]) for row in new["real"].values()), Counter())
        counts = ", ".join(f"{count} {word.lower()}" for word, count in words.items())
        said.append(f"* Correct runs of the zoo's settings: {alarmed} false alarms of the family in {runs} runs; {counts}.")
    if "large" in new:
        said.append(f"* One percent less noise: noticed in {new['large']['noticed']} of {new['large']['runs']} runs.")
    for noise, words in new.get("twins", {}).items():
        said.append(f"* Noise multiplier {noise}: {', '.join(f'{count} {word}' for word, count in words.items())}.")
    return ["", "## Again, with the tests as they are now", "", *said] if said else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("simulated", 2000), ("real", 200), ("large", 20), ("twins", 200), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--again", action="store_true", help="beside the older runs of these parts")
    parser.add_argument("--output", type=Path, default=Path("docs/conformance-calibration.md"))
    asked = parser.parse_args()
    results = Path(__file__).parent / "results" / "conformance.json"
    began, found, run = time.monotonic(), {}, partial(all_of, workers=asked.workers)
    if asked.simulated:
        found["simulated"] = calibration(simulated_runs(asked.simulated, asked.workers))
    if asked.large:
        rows = run("large", list(range(asked.large)))
        measured = [row[0] for row in rows]
        found["large"] = {
            "runs": len(rows),
            "noticed": sum(row[1] for row in rows),
            "least": min(measured),
            "most": max(measured),
        }
    if asked.real:
        settings = [name for name, each in SETTINGS.items() if not each.records]  # those have no rounds of clients
        each = -(-asked.real // len(settings))
        rows = run("real", [(name, 1000 + seed) for name in settings for seed in range(each)])
        found["real"] = {
            name: {
                "runs": each,
                "words": dict(Counter(row[1] for row in rows if row[0] == name)),
                "alarms": sum(row[2] <= LEVEL for row in rows if row[0] == name),
                "below_0.05": sum(row[2] <= 0.05 for row in rows if row[0] == name),
                "found": dict(Counter(key for row in rows if row[0] == name for key in row[3])),
            }
            for name in settings
        }
    if asked.twins:
        rows = run("twin", [(noise, 2000 + seed) for noise in TWINS for seed in range(asked.twins)])
        found["twins"] = {str(noise): dict(Counter(word for at, word in rows if at == noise)) for noise in TWINS}
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    made_by = dict.fromkeys(found, tests_now())
    if results.is_file():  # parts that were not asked for stay
        before = json.loads(results.read_text(encoding="utf-8"))
        if asked.again:
            kept = before.get("again", {})
            found = {"again": (kept if kept.get("tests") == tests_now() else {}) | found | {"tests": tests_now()}}
            made_by = {}
        found = before | found
        made_by = before.get("tests", {}) | made_by
    found["tests"] = made_by
    results.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    asked.output.write_text(page(found), encoding="utf-8")
    print(page(found))


if __name__ == "__main__":
    main()
