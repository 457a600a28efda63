"""The papers' Stack Overflow study at its full number of users, for as many of its 2,048 rounds as there is time for.

`stackoverflow-shape` with all 342,036 users, 4.1 million parameters and 167 clients a round, configured with the 2,048 rounds
of the study and ended after `--rounds` of them, in one process. It may be stopped at any moment: the same command goes on in
the same directory, and a round that was not finished is done again. What is measured of every round is kept beside the run, in
rounds.jsonl: processor seconds of the clients and of the server (from one round's clients to the next round's), seconds by the
clock, memory, load. Every start leaves a line too.

    python benchmarks/study.py --out DIR [--rounds 100]
    python benchmarks/study.py --out DIR --report       writes benchmarks/results/study.json from what there is
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean, median

from machine import machine

SECRET = 20260101  # a benchmark has no secrets
PRESET, USERS, ROUNDS = "stackoverflow-shape", 342_036, 2048
CHANGES = (f"data.options.users={USERS}", f"participation.rounds={ROUNDS}", "run.workers=1", "run.reference=false")
RESULT = Path(__file__).parent / "results" / "study.json"


class Enough(Exception):
    """So many rounds were wanted, and the next one would begin."""


class Diary:
    """Lines about starts and rounds, written when the next round begins: everything of a round is in its own line."""

    def __init__(self, path: Path, done: int, wanted: int):
        self._path, self._round, self._wanted = path, done, wanted
        self._began, self._clock, self._clients = time.process_time(), time.perf_counter(), None

    def round_begins(self) -> None:
        now, clock = time.process_time(), time.perf_counter()
        if self._clients is None:
            self._write({"start": self._round, "processor_seconds": now, "seconds": clock - self._clock, "machine": machine()})
        else:
            server = now - self._began - self._clients
            row = {"round": self._round, "clients": self._clients, "server": server, "seconds": clock - self._clock}
            self._write({**row, "load": os.getloadavg()[0]})
            self._round += 1
        self._began, self._clock = now, clock
        if self._round >= self._wanted:
            raise Enough

    def clients_ended(self) -> None:
        self._clients = time.process_time() - self._began

    def _write(self, row: dict) -> None:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        now, peak = int(status["VmRSS"].split()[0]) / 1e3, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "megabytes": now, "megabytes_at_the_peak": peak}) + "\n")


@contextmanager
def kept(diary: Diary) -> Iterator[None]:
    """Every round is written down."""
    from coalmine.workers import Workers

    real = Workers.fold

    def fold(self, tasks, total):
        diary.round_begins()
        found = real(self, tasks, total)
        diary.clients_ended()
        return found

    Workers.fold = fold  # type: ignore[method-assign]
    try:
        yield
    finally:
        Workers.fold = real  # type: ignore[method-assign]


def train(out: Path, wanted: int) -> None:
    """From wherever the run stands."""
    from coalmine import training
    from coalmine.runs import RunDirectory
    from coalmine.training.config import read_config

    directory = out / "run"
    out.mkdir(parents=True, exist_ok=True)
    begun = (directory / "config.toml").is_file()
    done = RunDirectory.open(directory).load()[0] if begun else 0
    with kept(Diary(out / "rounds.jsonl", done, wanted)), suppress(Enough):
        if begun:
            training.resume(directory, quiet=True)
        else:
            training.run(read_config(PRESET, list(CHANGES)), directory, secret_seed=SECRET, quiet=True)


def report(out: Path) -> dict:
    """What the rounds took, and what the whole study would."""
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    starts, rows = [each for each in lines if "start" in each], {each["round"]: each for each in lines if "round" in each}
    events = [json.loads(line) for line in (out / "run" / "events.jsonl").read_text().splitlines()]
    rounds, sizes = [rows[number] for number in sorted(rows)], {}
    for path in (out / "run").rglob("*"):
        if path.is_file():
            sizes[path.relative_to(out / "run").as_posix()] = path.stat().st_size / 1e6
    spent = [each["clients"] + each["server"] for each in rounds]
    start = fmean(each["processor_seconds"] for each in starts)
    appended = sum(size for name, size in sizes.items() if name.endswith((".rows", ".jsonl")))
    quarters = [rounds[first : first + -(-len(rounds) // 4)] for first in range(0, len(rounds), -(-len(rounds) // 4))]
    return {
        "machine": starts[0]["machine"],
        "users": USERS,
        "rounds_of_the_study": ROUNDS,
        "rounds_done": len(events),
        "rounds_measured": len(rounds),
        "starts": len(starts),
        "start_processor_seconds": start,
        "clients": sum(each["clients"] for each in events),
        "processor_seconds_of_a_round": {
            "mean": fmean(spent),
            "median": median(spent),
            "least": min(spent),
            "most": max(spent),
            "server": fmean(each["server"] for each in rounds),
            "by_quarters": [fmean(each["clients"] + each["server"] for each in quarter) for quarter in quarters],
        },
        "seconds_of_a_round": median(each["seconds"] for each in rounds),
        "load": [min(each["load"] for each in rounds), max(each["load"] for each in rounds)],
        "megabytes_after_rounds": {each["round"]: each["megabytes"] for each in rounds[:: max(1, len(rounds) // 8)]},
        "megabytes_at_the_peak": max(each["megabytes_at_the_peak"] for each in lines),
        "epsilon": {name: value for name, value in events[-1].items() if name.startswith("epsilon")},
        "disk_megabytes": {"now": sum(sizes.values()), "grows_by_round": appended / len(events)},
        "whole_study": {
            "processor_hours": (start + ROUNDS * fmean(spent)) / 3600,
            "disk_megabytes": sum(sizes.values()) + appended / len(events) * (ROUNDS - len(events)),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--report", action="store_true", help="do no rounds")
    asked = parser.parse_args()
    if not asked.report:
        train(asked.out, asked.rounds)
    found = report(asked.out)
    RESULT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
