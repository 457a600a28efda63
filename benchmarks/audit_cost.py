"""What an audit costs inside a real training round: `stackoverflow-shape`, 4.1 million parameters, 167 clients per round.

Times the parts of each round of a real run: the clients' training, canaries and noise on the server, and looking for all
canaries in one release. Prints ratios, all of one run. Takes some minutes.

    python benchmarks/audit_cost.py [--rounds 3] [--workers 2] [--output benchmarks/results/audit_cost.json]
"""

import argparse
import json
import time
import tracemalloc
from pathlib import Path

import numpy as np

from coalmine.audit.conforming import make_battery
from coalmine.audit.observe import Recorder
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config
from coalmine.training.running import clients_of
from coalmine.views import project_row
from coalmine.workers import Workers

SECRET = 20260101  # a benchmark has no secrets


class Timed(Workers):
    """Workers that remember how long the tasks of the last round took."""

    def map(self, tasks):
        began = time.perf_counter()
        found = super().map(tasks)
        self.seconds = time.perf_counter() - began
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "audit_cost.json")
    asked = parser.parse_args()
    config = read_config(
        "stackoverflow-shape", [f"participation.rounds={asked.rounds}", f"data.options.users={167 * asked.rounds + 20}"]
    )
    task = load_task(config)
    job = federation(config, task, SECRET)
    recorder = Recorder.of(config.spec, job.canary_setup, job.model.groups, SECRET)
    battery = make_battery(config.spec, job.described, job.canary_setup, job.model.groups, clients_of(job))
    print(
        f"{task.model.name}: {task.model.dim:,} parameters, {len(task.train)} users, pool of {recorder.canaries.count} canaries"
    )
    rows = []
    with Timed(asked.workers, job.work()) as workers:
        workers.map([])
        began = time.perf_counter()
        for done in job.rounds_from(0, job.start(), workers):
            whole = time.perf_counter() - began
            one = best(project_row, recorder.canaries, done.observed.release.vector, spare=recorder.spare)
            began = time.perf_counter()
            recorder.rows(done.observed)
            views = time.perf_counter() - began
            began = time.perf_counter()
            battery.observe(done.observed)
            tests = time.perf_counter() - began
            rows.append(
                {
                    "clients": done.observed.record["clients"],
                    "examples": done.observed.record["examples"],
                    "training": workers.seconds,
                    "server": whole - workers.seconds,
                    "one_release": one,
                    "all_views": views,
                    "tests": tests,
                }
            )
            print(
                f"round {done.number}: {rows[-1]['clients']} clients, {rows[-1]['examples']:,} sentences; training "
                f"{workers.seconds:.1f} s, server with canaries and noise {whole - workers.seconds:.2f} s, "
                f"observing one release {one:.3f} s = {one / workers.seconds:.2%}, all views {views / workers.seconds:.2%}, "
                f"tests of the mechanism {tests / workers.seconds:.2%}"
            )
            began = time.perf_counter()
    vectors = extra_memory(recorder, done)
    found = {
        "parameters": task.model.dim,
        "pool": recorder.canaries.count,
        "workers": asked.workers,
        "rounds": rows,
        "one_release_share_of_training": float(np.median([row["one_release"] / row["training"] for row in rows])),
        "all_views_share_of_training": float(np.median([row["all_views"] / row["training"] for row in rows])),
        "tests_share_of_training": float(np.median([row["tests"] / row["training"] for row in rows])),
        "extra_memory_in_vectors": vectors,
    }
    print(
        f"observing one release: {found['one_release_share_of_training']:.2%} of the clients' training (median); "
        f"extra memory {vectors:.1f} vectors of {task.model.dim:,} float32"
    )
    asked.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def best(action, *arguments, **options):
    """The shortest of three times."""
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        action(*arguments, **options)
        spent.append(time.perf_counter() - began)
    return min(spent)


def extra_memory(recorder, done):
    """Peak of what is allocated while one release is observed, in float32 vectors of the model."""
    tracemalloc.start()
    project_row(recorder.canaries, done.observed.release.vector, spare=recorder.spare)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (4 * done.observed.release.vector.size)


if __name__ == "__main__":
    main()
