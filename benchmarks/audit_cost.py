"""What an audit costs in all: whole rounds of real trainings with the audit on and off, in one run.

Trainings as they are configured (`mnist-writers`: 1.2 million parameters, 34 clients a round with about 20 images each, or with
the 110 of a whole writer, once or twice; `stackoverflow-shape`: 4.1 million, 167 clients), each a whole
`coalmine.training.run` in a directory, begun with as many rounds as the study has and ended after a few. One process does
everything, so that its processor seconds are those of the whole round. The audit is

* what the server's side takes longer with canaries than without: planting, looking, residuals, tests of the mechanism, running
  numbers and the checkpoint. Without an audit this does not depend on the clients: that run has few;
* and what the clients' side does for it: every contribution (or some) beside the clip of its update.

The papers' client: Andrew et al. (appendix F) train this network on "814k characters written by 3383 users", 240 each, 34
clients a round. MNIST has no such writers; two passes over 110 images are as many steps as one over 220.

Where a round would take long, 8 of its clients are trained and their time is scaled to all of them: what a client takes does
not depend on the others. Up to 100 clients every contribution is compared, of more of them 8 a round. The state is then written
after every round, as it is where rounds take long; else it is written as the training does (`training.checkpoints`).

Means over rounds, since some rounds send canaries as full vectors, or write the state, and others do not. Left out are the
first ten of 475 (or half of those that are run): the clip norm still falls to the length of the updates, and while nobody is
clipped every round sends a canary. What the first round takes more (tables that are made once in a process) is given by
itself. Shares are of the whole round, in processor seconds.

    python benchmarks/audit_cost.py [--only mnist-writers] [--rounds 40]
"""

import argparse
import json
import math
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import ClassVar
from unittest.mock import patch

import numpy as np
from machine import machine

from coalmine import training
from coalmine.training import checkpoints, work
from coalmine.training.config import read_config
from coalmine.training.federation import ALL_COMPARED
from coalmine.workers import Workers

SECRET = 20260101  # a benchmark has no secrets
RESULT = Path(__file__).parent / "results" / "audit_cost.json"
SETTINGS = {  # with as many rounds as the study has
    "mnist-writers": ("participation.pattern=fixed-size", "participation.cohort_size=34", "participation.rounds=475"),
    "mnist-writers, whole": (
        *("participation.pattern=fixed-size", "participation.cohort_size=34", "participation.rounds=475"),
        "data.options.parts=1",
    ),
    "mnist-writers, twice": (
        *("participation.pattern=fixed-size", "participation.cohort_size=34", "participation.rounds=475"),
        *("data.options.parts=1", "client.epochs=2"),
    ),
    "stackoverflow-shape": ("participation.pattern=fixed-size", "data.options.users=800", "participation.rounds=2048"),
}
FEWER = {"stackoverflow-shape": 8}  # clients that are trained; scaled
ROUNDS = {"mnist-writers": 40, "mnist-writers, whole": 32, "mnist-writers, twice": 22, "stackoverflow-shape": 6}
WARM = {"stackoverflow-shape": 1}  # rounds that are left out, else 10
FEW = "participation.cohort_size=6"  # clients of the run without an audit


class Enough(Exception):
    """So many rounds were wanted, and the next one would begin."""


class Timed(Workers):
    """Workers that write down when the clients of a round began and ended, and what of that was comparing."""

    times: ClassVar[list[float]] = []
    comparing: ClassVar[list[float]] = []
    rounds = 0

    def fold(self, tasks, total):
        self.times.append(time.process_time())
        if len(self.times) > 2 * self.rounds:
            raise Enough
        self.comparing.append(0.0)
        with watched(self.comparing):
            found = super().fold(tasks, total)
        self.times.append(time.process_time())
        return found


class watched:
    """Adds up what comparing takes: `look`, and the copy of the update before it is handed to the code under audit."""

    def __init__(self, spent):
        self._spent, self._real = spent, work.look

    def __enter__(self):
        def look(described, update, *words, **how):
            began = time.process_time()
            np.copy(update)
            found = self._real(described, update, *words, **how)
            self._spent[-1] += time.process_time() - began
            return found

        work.look = look

    def __exit__(self, *_):
        work.look = self._real


def measured(name: str, changes: tuple[str, ...], rounds: int, folder: str) -> dict:
    """Means over rounds, in processor seconds: the clients, comparing, the server; and what the first round took more."""
    told = [*changes, "run.evaluate_every=0", "run.reference=false", "run.workers=1"]
    config, jobs = read_config(name.partition(",")[0], told), []
    Timed.times, Timed.comparing, Timed.rounds = [], [], rounds
    with suppress(Enough):
        training.run(config, folder, secret_seed=SECRET, quiet=True, make_workers=Timed, check=jobs.append)
    begins, ends = Timed.times[0::2], Timed.times[1::2]
    server = [begin - end for begin, end in zip(begins[1:], ends, strict=True)]
    warm = min(WARM.get(name, 10), rounds // 2)
    spent = fmean(end - begin for begin, end in zip(begins[warm:-1], ends[warm:], strict=True))
    return {
        "parameters": jobs[0].model.dim,
        "clients": config.participation.cohort_size,
        "rounds": len(server) - warm,
        "left_out": warm,
        "clients_seconds": spent,
        "comparing_seconds": fmean(Timed.comparing[warm:]),
        "server_seconds": fmean(server[warm:]),
        "first_round_more": server[0] - fmean(server[warm:]),
    }


def scaled(on: dict, clients: float) -> dict:
    """The same with so many clients, of which all are compared, or of more than 100 of them 8."""
    each = on["comparing_seconds"] / on["clients"]  # of so few all were
    alone = (on["clients_seconds"] - on["comparing_seconds"]) / on["clients"]
    compared = clients if clients <= ALL_COMPARED else 8
    return {
        **on,
        "clients": clients,
        "clients_trained": on["clients"],
        "clients_seconds": alone * clients + each * compared,
        "comparing_seconds": each * compared,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=SETTINGS)
    parser.add_argument("--rounds", type=int, help="instead of as many as each setting has")
    asked = parser.parse_args()
    found = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    found = {"settings": found.get("settings", {})}
    for name, changes in SETTINGS.items():
        if asked.only not in (None, name):
            continue
        rounds = asked.rounds or ROUNDS[name]
        fewer = (f"participation.cohort_size={FEWER[name]}",) if name in FEWER else ()
        small = math.inf if fewer else checkpoints._SMALL  # real rounds are so long that the state of each is written
        with tempfile.TemporaryDirectory() as folder, patch.object(checkpoints, "_SMALL", small):
            off = measured(name, (*changes, "canaries.pool=0", FEW), rounds, f"{folder}/off")
            on = measured(name, (*changes, *fewer), rounds, f"{folder}/on")
        if fewer:
            on = scaled(on, read_config(name.partition(",")[0], list(changes)).participation.cohort_size)
        more = on["server_seconds"] - off["server_seconds"] + on["comparing_seconds"]
        share = more / (on["clients_seconds"] + on["server_seconds"])
        found["settings"][name] = {
            "machine": machine(),
            "with": on,
            "without": off,
            "audit_seconds": more,
            "share_of_a_round": share,
        }
        print(
            f"{name}: {on['parameters']:,} parameters, {on['clients']:.0f} clients: clients {on['clients_seconds']:.2f} s "
            f"({on['comparing_seconds']:.3f} of it comparing), server {on['server_seconds']:.3f} s with the audit, "
            f"{off['server_seconds']:.3f} s without: the audit is {more:.3f} s, {share:.2%} of a round (processor seconds)",
            flush=True,
        )
        RESULT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
