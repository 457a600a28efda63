"""How often the tests of a mechanism alarm on correct code, and what they notice; writes docs/conformance-calibration.md.

    python benchmarks/conformance.py [--simulated 2000] [--real 200] [--large 20] [--twins 200] [--workers 2]

simulated   correct runs without training: false alarms of the family and of every check; uniform p-values
real        correct runs of every setting of the zoo
large       noise 1 % too small at four million coordinates
twins       correct runs at noise multipliers 1, 2 and 4, whose verdict must be CONSISTENT

A part whose number is 0 is left as it was.
"""

import argparse
import json
import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import binom, kstest

from coalmine.clients import quiet_threads
from coalmine.conformance import CHECKS, Subject
from coalmine.conformance.simulated import simulate
from coalmine.contracts import Clip, Description, Noise
from coalmine.participation import Poisson
from coalmine.progress import track
from coalmine.workers import Workers
from coalmine.zoo import SETTINGS, Setting, audit_once

LEVEL = 0.001
CONTINUOUS = ("noise-scale", "canaries-whole")
UNLIKELY = 1e-3  # chance that a calibrated family fails a comparison of this page
FIRST = 60_000_000_000  # seeds of simulations begin here, far from what is guessed
TWINS = (1.0, 2.0, 4.0)


def subject_of(dim: int, rounds: int) -> Subject:
    layers = {"first": slice(0, dim // 2), "bias": slice(dim // 2, dim // 2 + 100), "last": slice(dim // 2 + 100, dim)}
    description = Description(Clip(1.0), Noise(0.5, 0.5))
    return Subject(description, dim, layers, participation=Poisson(0.25, rounds), population=200, rounds=rounds)


def simulated(seed: int) -> dict[str, float]:
    found = simulate(subject_of(10_000, 8), CHECKS, FIRST + seed)
    return {each.key: each.p_value for each in found.findings} | {"family": found.p_value}


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
    by_check = {key: np.array([row[key] for row in rows]) for key in rows[0]}
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
        lines += [
            f"## Correct runs, simulated ({found['simulated']['family']['levels'][0]['runs']:,})", "",
            "Alarms at three levels, with the number that a calibrated test exceeds once in a thousand times in brackets.", "",
            "| check | 0.001 | 0.01 | 0.05 | smallest p | uniform (Kolmogorov–Smirnov) |", "|---|---:|---:|---:|---:|---:|",
        ]  # fmt: skip
        for key, row in found["simulated"].items():
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
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("simulated", 2000), ("real", 200), ("large", 20), ("twins", 200), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--output", type=Path, default=Path("docs/conformance-calibration.md"))
    asked = parser.parse_args()
    results = Path(__file__).parent / "results" / "conformance.json"
    began, found, run = time.monotonic(), {}, partial(all_of, workers=asked.workers)
    if asked.simulated:
        found["simulated"] = calibration(run("simulated", list(range(asked.simulated))))
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
        each = -(-asked.real // len(SETTINGS))
        rows = run("real", [(name, 1000 + seed) for name in SETTINGS for seed in range(each)])
        found["real"] = {
            name: {
                "runs": each,
                "words": dict(Counter(row[1] for row in rows if row[0] == name)),
                "alarms": sum(row[2] <= LEVEL for row in rows if row[0] == name),
                "below_0.05": sum(row[2] <= 0.05 for row in rows if row[0] == name),
                "found": dict(Counter(key for row in rows if row[0] == name for key in row[3])),
            }
            for name in SETTINGS
        }
    if asked.twins:
        rows = run("twin", [(noise, 2000 + seed) for noise in TWINS for seed in range(asked.twins)])
        found["twins"] = {str(noise): dict(Counter(word for at, word in rows if at == noise)) for noise in TWINS}
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    if results.is_file():  # parts that were not asked for stay
        found = json.loads(results.read_text(encoding="utf-8")) | found
    results.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    asked.output.write_text(page(found), encoding="utf-8")
    print(page(found))


if __name__ == "__main__":
    main()
