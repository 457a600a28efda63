"""What an audit costs in all: the server's side of real rounds with the audit on and off, in one run.

Two trainings as they are configured (`mnist-writers`: 1.2 million parameters, 34 clients a round; `stackoverflow-shape`: 4.1
million, 167 clients), each a whole `coalmine.training.run` in a directory. The server's side is everything between the end of
one round's clients and the begin of the next: planting, noise, the server's step, looking, residuals, tests of the mechanism,
running numbers and the checkpoint. The audit is what that takes longer with canaries than without, and what workers need to
compare contributions is part of the clients' time. Without an audit the server's side does not depend on the clients: that run
has few. Processor seconds of this process, and seconds by the clock beside them; shares are of the whole round.

    python benchmarks/audit_cost.py [--only mnist-writers] [--rounds 4] [--workers 2]
"""

import argparse
import json
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import ClassVar

from machine import machine

from coalmine import training
from coalmine.training.config import read_config
from coalmine.workers import Workers

SECRET = 20260101  # a benchmark has no secrets
RESULT = Path(__file__).parent / "results" / "audit_cost.json"
SETTINGS = {
    "mnist-writers": ("participation.pattern=fixed-size", "participation.cohort_size=34"),
    "stackoverflow-shape": ("participation.pattern=fixed-size", "data.options.users=800"),
}
PLANNED = 12  # rounds of the run that is begun: with fewer, more canaries of a round pass as full vectors than in a long run


class Enough(Exception):
    """So many rounds were wanted, and the next one would begin."""


class Timed(Workers):
    """Workers that write down when the clients of a round began and ended."""

    times: ClassVar[list[tuple[float, float]]] = []
    rounds = 0

    def fold(self, tasks, total):
        self.times.append((time.perf_counter(), time.process_time()))
        if len(self.times) > 2 * self.rounds:
            raise Enough
        found = super().fold(tasks, total)
        self.times.append((time.perf_counter(), time.process_time()))
        return found


def measured(name: str, changes: tuple[str, ...], rounds: int, workers: int, folder: str) -> dict:
    """Medians over rounds: the clients' seconds, the server's seconds by the clock and of the processor."""
    told = [
        *changes,
        f"participation.rounds={PLANNED}",
        "run.evaluate_every=0",
        "run.reference=false",
        f"run.workers={workers}",
    ]
    config, jobs = read_config(name, told), []
    Timed.times, Timed.rounds = [], rounds
    with suppress(Enough):
        training.run(config, folder, secret_seed=SECRET, quiet=True, make_workers=Timed, check=jobs.append)
    begins, ends = Timed.times[0::2], Timed.times[1::2]
    return {
        "parameters": jobs[0].model.dim,
        "clients": config.participation.cohort_size,
        "clients_seconds": median(end[0] - begin[0] for begin, end in zip(begins[1:], ends[1:], strict=False)),
        "server_seconds": median(begin[0] - end[0] for begin, end in zip(begins[1:], ends, strict=True)),
        "server_processor_seconds": median(begin[1] - end[1] for begin, end in zip(begins[1:], ends, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=SETTINGS)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    found = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    found = {"machine": machine(), "settings": found.get("settings", {})}
    for name, changes in SETTINGS.items():
        if asked.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            without = (*changes, "canaries.pool=0", "participation.cohort_size=6")
            off = measured(name, without, asked.rounds, asked.workers, f"{folder}/off")
            on = measured(name, changes, asked.rounds, asked.workers, f"{folder}/on")
        more, cpu = (on[key] - off[key] for key in ("server_seconds", "server_processor_seconds"))
        whole = on["clients_seconds"] + on["server_seconds"]
        found["settings"][name] = {
            "workers": asked.workers,
            "with": on,
            "without": off,
            "audit_seconds": more,
            "audit_processor_seconds": cpu,
            "share_of_a_round": more / whole,
        }
        print(
            f"{name}: {on['parameters']:,} parameters, {on['clients']:.0f} clients: clients {on['clients_seconds']:.2f} s, "
            f"server {on['server_seconds']:.2f} s with the audit, {off['server_seconds']:.2f} s without: "
            f"the audit is {more / whole:.2%} of a round ({cpu:.2f} processor seconds)",
            flush=True,
        )
        RESULT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
