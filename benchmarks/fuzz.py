"""Hostile input by the thousand: configurations, score files, results, checkpoints and run directories.

    python benchmarks/fuzz.py [CASES] [SEED]

Every case is made from an intact one by a few random edits (values, types, names, bytes) and handed to what reads it: a
configuration is validated and planned, never trained; files are loaded, reported and resumed. Allowed are success and the
errors that a command prints as one message. A case fails if it raises anything else, takes more than 10 s of CPU time, or takes
the process above 2 GB. Writes benchmarks/results/fuzz.json; exit code 1 if a case failed.
"""

import copy
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from coalmine.errors import CoalmineError
from coalmine.report.evidence import Evidence
from coalmine.report.page import report
from coalmine.result import AuditResult
from coalmine.runs import RunDirectory
from coalmine.scores import Scores
from coalmine.training import resume, run
from coalmine.training.assembly import check_claims, federation, load_task
from coalmine.training.config import checked, parse_config, preset_names, read_config

ALLOWED = (CoalmineError, ValueError, OSError)  # what the command line prints as one message
SECONDS, MEGABYTES = 10, 2_000
WEIRD = [0, -1, 1, 2, 0.0, -0.0, 1e-300, 1e300, 1e12, 10**9, 2**63, -(2**63), 10**30, float("nan"), float("inf"), True, False]
WEIRD += [
    "",
    "nan",
    "x" * 500,
    "\x00",
    "\x1b[31m",
    "../..",
    "/dev/zero",
    "os:system",
    "é\ud800",
    [],
    {},
    [1, "a"],
    {"a": {"b": 1}},
    None,
]
SMALL = ("participation.rounds=6", "canaries.pool=40", "audit.unused_rows=100", "run.workers=1")


class Slow(Exception):
    """A case took too long."""


def places(data, where=()):
    """All places of nested data."""
    for name, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield (*where, name)
        yield from places(value, (*where, name))


def edited(data, rng):
    """A copy with one to three places changed, removed, renamed or doubled."""
    data = copy.deepcopy(data)
    for _ in range(rng.randint(1, 3)):
        where = rng.choice(list(places(data)) or [()])
        if not where:
            return rng.choice(WEIRD)
        holder = data
        for name in where[:-1]:
            holder = holder[name]
        kind, last = rng.random(), where[-1]
        if kind < 0.7:
            old = holder[last]
            near = [old * 2, -old, old / 3, old * 1e6] if isinstance(old, int | float) and not isinstance(old, bool) else []
            holder[last] = rng.choice([*WEIRD, *near])
        elif kind < 0.85 or isinstance(holder, list):
            del holder[last]
        else:
            holder[rng.choice([f"{last}x", str(last)[:-1], "noise", "__class__"])] = holder[last]
    return data


def garbled(data, rng):
    """Bytes cut, flipped, doubled or replaced."""
    data, kind = bytearray(data), rng.random()
    if kind < 0.2 or not data:
        return bytes(data[: rng.randint(0, len(data))])
    if kind < 0.7:
        for _ in range(rng.choice([1, 1, 4, 30])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    start = rng.randrange(len(data))
    if kind < 0.85:
        return bytes(data[:start] + rng.randbytes(rng.randint(1, 40)) + data[start:])
    return bytes(data[:start] + data[start + rng.randint(1, 100) :])


class Fuzz:
    """Intact originals, and one method for each kind of case."""

    def __init__(self, folder):
        self.folder, self.original = folder, folder / "original"
        run(read_config("tiny", SMALL), self.original, secret_seed=1, quiet=True)
        self.stopped = shutil.copytree(self.original, folder / "stopped")
        (self.stopped / "training.json").unlink()
        self.configs = [
            read_config(name, SMALL if name == "tiny" else ()).model_dump(mode="json", exclude_none=True)
            for name in preset_names()
        ]
        self.task = load_task(read_config("tiny", SMALL))
        self.result = json.loads((self.original / "result.json").read_text())
        self.csv = "value,inserted\n" + "".join(f"{number / 7},{number % 2}\n" for number in range(60))

    def configurations(self, rng):
        """Validated; the small one, if its data and model are as they were, is planned and its claim computed."""
        base = rng.choice(self.configs)
        config = checked(edited(base, rng))
        if base is self.configs[preset_names().index("tiny")]:
            check_claims(config, federation(config, self.task, 1, None))

    def toml(self, rng):
        text = (self.original / "config.toml").read_bytes()
        parse_config(garbled(text, rng).decode(errors="replace"), quiet=True)

    def score_files(self, rng):
        kind = rng.choice(["csv", "npz"])
        path = self.folder / f"scores.{kind}"
        path.write_bytes(garbled(self.csv.encode() if kind == "csv" else (self.original / "scores.npz").read_bytes(), rng))
        scores = Scores.from_file(path)
        if scores.inserted_values.size < 2_000 and rng.random() < 0.3:
            from coalmine.audit.statements import audit_scores

            audit_scores(scores, delta=1e-5)

    def results(self, rng):
        text = json.dumps(edited(self.result, rng)).encode()
        path = self.folder / "result-alone.json"
        path.write_bytes(text if rng.random() < 0.7 else garbled(text, rng))
        found = AuditResult.load(path)
        str(found), found.to_json()
        if rng.random() < 0.1:
            report(found)

    def checkpoints(self, rng):
        path = self.stopped / "checkpoint" / "state.safetensors"
        intact = path.read_bytes()
        path.write_bytes(garbled(intact, rng))
        try:
            RunDirectory.open(self.stopped).load()
        finally:
            path.write_bytes(intact)

    def directories(self, rng):
        """A file of a finished run damaged: without its manifest, so that the readers themselves are tried, or with it."""
        names = [path for path in self.original.rglob("*") if path.is_file() and path.name not in (".lock", "report.html")]
        path = rng.choice(names)
        sealed, intact, manifest = rng.random() < 0.3, path.read_bytes(), (self.original / "manifest.json").read_bytes()
        config = (self.original / "config.toml").read_bytes()
        try:
            if not sealed:
                (self.original / "manifest.json").unlink(missing_ok=True)
                (self.original / "config.toml").write_bytes(config.replace(b"coalmine-manifest/1", b"none"))
            path.write_bytes(garbled(intact, rng)) if rng.random() < 0.8 else path.unlink(missing_ok=True)
            Evidence.of(self.original)
            resume(self.original, quiet=True)
        finally:
            path.write_bytes(intact)
            (self.original / "manifest.json").write_bytes(manifest)
            (self.original / "config.toml").write_bytes(config)


SHARES = {"configurations": 8, "toml": 2, "score_files": 4, "results": 6, "checkpoints": 5, "directories": 1}


def late(*_):
    raise Slow


def attempt(fuzz, kind, seed):
    """None, or what went wrong."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with redirect_stderr(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(fuzz, kind)(random.Random(f"{kind} {seed}"))
        return "accepted", None
    except ALLOWED:
        return "refused", None
    except BaseException:
        return "failed", traceback.format_exc()[-1500:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def fuzzed(cases, seed, folder, shout=print):
    """Counts by kind, and the failures."""
    signal.signal(signal.SIGPROF, late)
    fuzz, counts, failures = Fuzz(folder), {kind: Counter() for kind in SHARES}, []
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    for number in range(cases):
        kind = kinds[number % len(kinds)]
        word, trouble = attempt(fuzz, kind, seed + number)
        counts[kind][word] += 1
        if trouble is not None:
            failures.append({"kind": kind, "seed": seed + number, "trouble": trouble})
            shout(f"{kind} {seed + number}: {trouble}")
        if number % 500 == 499:
            shout(f"{number + 1} cases, {len(failures)} failed")
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {
        "cases": cases,
        "seed": seed,
        "counts": {kind: dict(found) for kind, found in counts.items()},
        "failed": len(failures),
        "peak_megabytes": largest,
    }, failures


def main():
    cases, seed = (int(sys.argv[place]) if len(sys.argv) > place else usual for place, usual in ((1, 10_000), (2, 0)))
    with tempfile.TemporaryDirectory() as folder:
        found, failures = fuzzed(cases, seed, Path(folder))
    print(json.dumps(found, indent=1))
    if cases >= 10_000:
        (Path(__file__).parent / "results" / "fuzz.json").write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(bool(failures) or found["peak_megabytes"] > MEGABYTES)


if __name__ == "__main__":
    main()
