"""Grouping by user: rows per second, peak memory, groups per second; and start-up of a training against its number of users.

Writes benchmarks/results/grouping.json. Every measurement is a process of its own: peak resident memory is the system's
ru_maxrss, private memory is `Anonymous` of /proc/self/smaps_rollup (mapped files do not count: the
system takes them back).

    python benchmarks/grouping.py [grouping] [start] [shape] [--rows 10000000] [--users 10000 100000 1000000] [--folder DIR]

`shape` is the start of the preset stackoverflow-shape with all 342,036 users of the papers' study. Parts that are not named
keep their figures. Seconds are of the clock; on a busy machine processor seconds say more.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coalmine._random import stream

RESULT = Path(__file__).parent / "results" / "grouping.json"
WORDS = ["the", "of", "canary", "sings", "in", "a", "mine", "until", "air", "turns", "bad", "and", "then", "it", "is", "still"]
AT_ONCE = 500_000
CONFIG = {
    "data": {"source": "grouped", "vocabulary": "ascii", "unit": "characters", "length": 40, "held_out": 20},
    "model": {"name": "chat-lstm"},
    "participation": {"pattern": "poisson", "rounds": 10, "cohort_size": 100},
    "canaries": {"pool": 200},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=[], metavar="PART", help="grouping, start, shape; default: all")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, nargs="*", default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--part", nargs="*")
    asked = parser.parse_args()
    if asked.part:
        parts = {"group": group, "read": read, "start": start, "shape": shape}
        print(json.dumps(parts[asked.part[0]](*asked.part[1:])))
        return
    what = asked.what or ["grouping", "start", "shape"]
    found = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        if "grouping" in what:
            source, out = Path(folder) / "rows.parquet", Path(folder) / "grouped"
            write(source, asked.rows, asked.rows // 20)
            found |= {"rows": asked.rows, "input_megabytes": round(source.stat().st_size / 1e6, 1)}
            found["grouping"] = {**part("group", source, out), **part("read", out)}
            show(found["grouping"])
        for users in asked.users if "start" in what else ():
            source, out = Path(folder) / f"{users}.parquet", Path(folder) / f"of {users}"
            write(source, users, None)
            made = part("group", source, out)
            found.setdefault("start", {})[str(users)] = {**part("start", out), "grouping_seconds": made["seconds"]}
            show({"users": users, **found["start"][str(users)]})
        if "shape" in what:
            found["shape"] = part("shape")
            show(found["shape"])
    RESULT.write_text(json.dumps(found, indent=2) + "\n")


def show(found: dict) -> None:
    print(json.dumps(found), flush=True)


def part(*words: object) -> dict:
    done = subprocess.run([sys.executable, __file__, "--part", *map(str, words)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def write(path: Path, rows: int, users: int | None) -> None:
    """Rows of sentences by users whose sizes follow a power law; with `users` None every row is another user's."""
    rng, vocabulary = stream(0, "benchmark of grouping", rows), np.array(WORDS)
    schema = pa.schema([("user", pa.string()), ("number", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for first in range(0, rows, AT_ONCE):
            count = min(AT_ONCE, rows - first)
            drawn = np.arange(first, first + count) if users is None else (users * rng.random(count) ** 2.5).astype(np.int64)
            sentences = [" ".join(row) for row in vocabulary[rng.integers(0, len(WORDS), (5000, 8))]]
            columns = [
                pa.array([f"user-{number:09d}" for number in drawn]),
                pa.array(rng.integers(0, 1 << 40, count)),
                pa.array([sentences[number] for number in rng.integers(0, 5000, count)]),
            ]
            file.write_table(pa.table(columns, schema=schema))


def group(source: str, out: str) -> dict:
    from coalmine.data import group_by_user

    began, spent = time.perf_counter(), time.process_time()
    info = group_by_user(source, out, user="user", memory="1GB")
    seconds = time.perf_counter() - began
    size = sum(path.stat().st_size for path in Path(out).iterdir())
    return {
        "users": info.users,
        "buckets": info.buckets,
        "seconds": round(seconds, 2),
        "processor_seconds": round(time.process_time() - spent, 2),
        "rows_per_second": round(info.rows / seconds),
        "peak_resident_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "output_megabytes": round(size / 1e6, 1),
    }


def read(out: str) -> dict:
    """Random users, after everything was read once: texts as Python strings."""
    from coalmine.data import open_grouped

    data = open_grouped(out, text="text")
    rng, found = stream(0, "random users"), {}
    chosen = [data.users[place] for place in rng.integers(0, len(data), 20_000)]
    for kind in ("cold", "warm"):
        began, spent = time.perf_counter(), time.process_time()
        rows = sum(len(data.texts_of(user)) for user in chosen)
        found[f"groups_per_second_{kind}"] = round(len(chosen) / (time.perf_counter() - began))
        found[f"groups_per_processor_second_{kind}"] = round(len(chosen) / (time.process_time() - spent))
    return {**found, "rows_of_a_group": round(rows / len(chosen), 1)}


def start(out: str) -> dict:
    """Everything before the first client is trained: users, split, vocabulary, model, canaries, fingerprint, one cohort."""
    from coalmine.training.config import checked

    return begun(lambda: checked({**CONFIG, "data": {**CONFIG["data"], "options": {"path": out, "text": "text"}}}))


def shape() -> dict:
    """The same of the papers' Stack Overflow study in shape: 342,036 users, 2,048 rounds."""
    from coalmine.training.config import read_config

    changes = ["data.options.users=342036", "participation.rounds=2048"]
    return {"users": 342_036, **begun(lambda: read_config("stackoverflow-shape", changes))}


def begun(make: Callable[[], Any]) -> dict:
    import pickle

    from coalmine.training.assembly import check_claims, federation, inputs, load_task

    before, began, spent = private(), time.perf_counter(), time.process_time()
    config = make()
    task = load_task(config)
    job = federation(config, task, 1)
    check_claims(config, job)
    inputs(job)
    cohort = next(iter(job.participation.cohorts(len(job.data), job.rounds, 0)))
    loaded = sum(len(job.data.examples_of(job.data.users[place])) for place in cohort)
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "processor_seconds": round(time.process_time() - spent, 2),
        "private_megabytes": round(private() - before, 1),
        "private_megabytes_with_imports": round(private(), 1),
        "megabytes_to_a_worker": round(len(pickle.dumps(job.work())) / 1e6, 3),
        "cohort": int(cohort.size),
        "windows_of_the_cohort": loaded,
    }


def private() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1e3


if __name__ == "__main__":
    main()
