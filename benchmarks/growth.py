"""How time and memory grow with rounds, dimension, canaries and workers; before and after a change, in one run.

    python benchmarks/growth.py [--before COMMIT] [--only PART ...] [--most-rounds 100000] [--most-dim 100000000]
    python benchmarks/growth.py --case dimension 100000000 20 1

Every measurement is a process of its own (`ru_maxrss` is its peak memory; what was resident before the work began is taken
off). With `--before` every one of them is made with that commit and with the working tree, one after the other. Processor
seconds, except where workers take part: those are seconds by the clock, and the best of several. Results are added to
benchmarks/results/growth.json, from which docs/scale.md's figures are made (`--page`).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "growth.json"
POOL, SPARE = 200, 1000
BEFORE_ROUNDS = 10_000  # beyond, the older code needs more memory than there is


def resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def workers(dim: int, count: int, clients: int = 16) -> dict:
    """Rounds of light clients, without canaries: what moving parameters and sums costs; `settled` are the last four."""
    from coalmine.training.assembly import federation, load_task
    from coalmine.training.config import read_config
    from coalmine.workers import Workers

    rounds = max(12, min(60, 10**7 // dim))
    config = read_config("tiny", [*sized(dim), *cohorts(clients, rounds), "canaries.pool=0"])
    job = federation(config, load_task(config), 1)
    with Workers(count, job.work()) as shared:
        spent, cpu, began, used = [], [], time.perf_counter(), time.process_time()
        for _ in job.rounds_from(0, job.start(), shared):
            spent.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
            began, used = time.perf_counter(), time.process_time()
    return {
        "first_round": spent[0],
        "round": min(spent[1:]),
        "settled": sorted(spent[-4:])[1],
        "processor_seconds_of_the_server": sorted(cpu[1:])[len(cpu) // 2],
        "megabytes_of_the_server": resident(),
    }


def sized(dim: int) -> list[str]:
    return [f"model.options.hidden=[{max(1, (dim - 10) // 75)}]", "data.held_out=0", "run.evaluate_every=0", "run.workers=1"]


def cohorts(clients: int, rounds: int) -> list[str]:
    return ["participation.pattern=fixed-size", f"participation.cohort_size={clients}", f"participation.rounds={rounds}"]


def dimension(dim: int, clients: int, audit: int) -> dict:
    """Whole rounds with audit and checkpoint in one process; with `audit` 0, the same without canaries."""
    from coalmine import training
    from coalmine.training.config import read_config
    from coalmine.workers import Workers

    times = []

    class Timed(Workers):
        def map(self, tasks):
            times.append(time.process_time())
            return super().map(tasks)

    def fold(self, tasks, total):
        times.append(time.process_time())
        return Workers.fold(self, tasks, total)

    if hasattr(Workers, "fold"):
        Timed.fold = fold
    warm()
    rounds, canaries = (3 if dim < 10**8 else 2), 10  # all pass as full vectors, one by one: three to five a round
    changes = [*sized(dim), *cohorts(clients, rounds), f"canaries.pool={canaries if audit else 0}", "audit.unused_rows=1000"]
    started, before = time.process_time(), resident()
    with tempfile.TemporaryDirectory() as folder:
        training.run(read_config("tiny", changes), f"{folder}/run", secret_seed=1, quiet=True, make_workers=Timed)
    spent = time.process_time() - started
    rounds_of = [later - earlier for earlier, later in pairwise(times)]
    return {
        "round": min(rounds_of or [spent]),
        "all": spent,
        "vectors": (resident() - before) * 1e6 / (4 * dim),
        "megabytes": resident(),
    }


def warm() -> None:
    """A small run, so that all that is imported and kept is there before anything is measured."""
    from coalmine import training
    from coalmine.training.config import read_config

    with tempfile.TemporaryDirectory() as folder:
        config = read_config("tiny", [*sized(1000), *cohorts(4, 2)])
        training.run(config, f"{folder}/run", secret_seed=1, quiet=True)


def clients_alone(dim: int) -> dict:
    """One client's training and clipping, added to a sum: what a round needs without server and audit."""
    import numpy as np

    from coalmine.clients import Trainer, quiet_threads
    from coalmine.mechanisms.sums import FixedPointSum
    from coalmine.training.assembly import federation, load_task
    from coalmine.training.config import read_config

    warm()
    before = resident()
    config = read_config("tiny", [*sized(dim), *cohorts(2, 3)])
    job = federation(config, load_task(config), 1)
    quiet_threads()
    total, trainer, begin = FixedPointSum(job.model.dim, 1.0), Trainer(job.model, job.training), job.initial
    public = job.mechanism.announce(job.mechanism.init(1), 0, 2.0)
    for user in job.data.users[:2]:
        (update,) = trainer.updates(begin, [job.data.examples_of(user)], [np.random.default_rng(0)])
        total.add(job.mechanism.client(update.vector, public))
    return {"vectors": (resident() - before) * 1e6 / (4 * dim)}


def views(rounds: int) -> dict:
    """Scores of whoever knows the rounds, from projections in a file, and their peak memory beside that file."""
    import numpy as np

    from coalmine.canaries import TransformCanaries
    from coalmine.canaries.schedule import Schedule
    from coalmine.contracts import Projections
    from coalmine.participation import Poisson
    from coalmine.views import VIEWS

    view, dim, columns = VIEWS["known-others"](), 10_000, POOL + SPARE
    schedule = Schedule.draw(Poisson(min(0.5, 50 / rounds), rounds), pool=POOL, rounds=rounds, secret_seed=1)
    with tempfile.TemporaryFile() as file:
        inner, rng = np.memmap(file, np.float64, "w+", shape=(rounds, columns)), np.random.default_rng(0)
        for row in inner:
            row[:] = rng.standard_normal(columns)
        norm = np.full(rounds, np.sqrt(dim))
        seen = Projections("residual", np.arange(rounds), np.asarray(inner), norm, np.ones(rounds), POOL, dim)
        before, began = anonymous(), time.thread_time()
        with Peak() as peak:
            view.scores(seen, schedule, TransformCanaries(dim, POOL, secret_seed=1))
    return {"seconds": time.thread_time() - began, "megabytes": peak.most - before}


def anonymous() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1e3


class Peak:
    """The largest private memory while something is done: files that are mapped do not count."""

    def __init__(self, every: float = 0.02):
        self._every = every

    def __enter__(self):
        import threading

        self.most, self._ended = anonymous(), False
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def _look(self):
        while not self._ended:
            self.most = max(self.most, anonymous())
            time.sleep(self._every)

    def __exit__(self, *_):
        self._ended = True
        self._watch.join()


def rounds(count: int, sampled: int) -> dict:
    """A whole audit of `count` rounds without training: rows, running numbers, tests, checkpoints, and the verdict.

    Processor seconds of this thread, as in all parts that use `Peak`: another one looks at the memory all the time.
    """
    import numpy as np

    from coalmine.audit.conforming import Clients
    from coalmine.audit.session import Session
    from coalmine.audit.spec import AuditSpec
    from coalmine.canaries import TransformCanaries
    from coalmine.canaries.schedule import Schedule
    from coalmine.canaries.setup import CanarySetup
    from coalmine.conformance.check import Subject
    from coalmine.conformance.simulated import rounds_of
    from coalmine.contracts import Clip, Description, Noise
    from coalmine.participation import Once, Poisson
    from coalmine.runs import RunDirectory

    dim, pool = 1000, 100
    described = Description(Clip(1.0), Noise(1.0, 1.0))
    pattern = Poisson(0.02, count) if sampled else Once()
    setup = CanarySetup(
        TransformCanaries(dim, pool, secret_seed=1), Schedule.draw(pattern, pool=pool, rounds=count, secret_seed=1)
    )
    subject = Subject(described, dim, rounds=count, participation=Poisson(0.02, count), population=1000)
    with tempfile.TemporaryDirectory() as folder, Peak(every=0.1) as peak:
        directory = RunDirectory.create(f"{folder}/run", config="", secret_seed=1)
        before, began, spent, last = anonymous(), time.thread_time(), 0.0, 0.0
        session = Session(AuditSpec(delta=1e-5, unused_rows=200), setup, described, directory)
        session.begin(np.zeros(dim), {}, 1, clients=Clients(Poisson(0.02, count), 1000))
        for seen in rounds_of(subject, 1):
            now = time.thread_time()
            about = {"clients": 50, "canaries": 20, "clients_norm": 10.0, "release_norm": 1.0, "denominator": 70.0}
            object.__setattr__(seen, "record", {**about, "clip_norm": 1.0, "canary_share": 0.1})
            session.observe(seen, state={"parameters": np.zeros(dim, np.float32)})
            spent += time.thread_time() - now
            last = last + time.thread_time() - now if seen.round >= 0.9 * count else 0.0
        concluded = time.thread_time()
        session.scorer(np.ones(dim)).deciding()
        ended = time.thread_time()
    return {
        "seconds": ended - began,
        "per_round": spent / count,
        "per_round_of_the_last_tenth": last / max(1, round(0.1 * count)),
        "views_and_tests_at_the_end": ended - concluded,
        "megabytes": peak.most - before,
    }


def running(count: int, sampled: int) -> dict:
    """The running numbers alone, with 200 scores a round: epsilon measured so far, and the claim for canaries so far.

    Rows are not made: scores are random. It runs with the layout before and after the redrawn audit.
    """
    from types import SimpleNamespace

    import numpy as np

    from coalmine.participation import Once, Poisson

    pattern = Poisson(0.02, count) if sampled else Once()
    after = _running_before(pattern, count) if find_spec("coalmine.watch") is not None else _running_now(pattern, count)
    rng, spent = np.random.default_rng(0), []
    for number in range(count):
        began, scores = time.process_time(), rng.standard_normal(POOL)
        after(SimpleNamespace(number=number), scores)
        spent.append(time.process_time() - began)
    tenth = max(1, count // 10)
    return {"per_round": sum(spent) / count, "per_round_of_the_last_tenth": sum(spent[-tenth:]) / tenth}


def _running_before(pattern, count):
    from types import SimpleNamespace as Some

    from coalmine.watch import Running

    watch = Some(running_scores_of=lambda number, scores: scores, running_scores=lambda directory: None)
    told = Some(audit=Some(confidence=0.95), privacy=Some(delta=1e-5))
    job = Some(plants=Some(planting=Some(pattern=pattern), replace=False), rounds=count, noise_multiplier=1.0)
    made = Running(told, job, watch, None)
    return made.after


def _running_now(pattern, count):
    from types import SimpleNamespace as Some

    from coalmine.audit.observe import RunningEpsilon
    from coalmine.audit.spec import AuditSpec
    from coalmine.canaries.schedule import Schedule
    from coalmine.contracts import Clip, Description, Noise
    from coalmine.views import Weighted

    schedule = Schedule.draw(pattern, pool=POOL, rounds=count, secret_seed=1)
    recorder = Some(
        setup=Some(schedule=schedule, replace=False),
        running_scores=lambda record, white: (),
        running_scores_of=lambda number, scores, white: Weighted.equally(scores),
    )
    made = RunningEpsilon(AuditSpec(delta=1e-5), Description(Clip(1.0), Noise(1.0, 1.0)), recorder, None)
    return lambda finished, scores: made.after(finished.number, scores)


def pool(count: int) -> dict:
    """Looking for so many canaries in one release of a million parameters, and scoring them."""
    import numpy as np

    from coalmine.canaries import TransformCanaries
    from coalmine.canaries.schedule import Schedule
    from coalmine.participation import Once
    from coalmine.views import VIEWS, project_row, stack

    dim, rng = 1_000_000, np.random.default_rng(0)
    canaries = TransformCanaries(dim, count, secret_seed=1)
    vector = rng.standard_normal(dim)
    schedule = Schedule.draw(Once(), pool=count, rounds=20, secret_seed=1)
    before = anonymous()
    with Peak() as peak:
        began = time.thread_time()
        seen = project_row(canaries, vector, spare=SPARE)
        looked = time.thread_time()
        rows = stack([seen] * 20, kind="residual", rounds=np.arange(20), amplitude=1.0, pool=count, dim=dim)
        VIEWS["known-others"]().scores(rows, schedule, canaries)
        ended = time.thread_time()
    return {"look": looked - began, "score": ended - looked, "megabytes": peak.most - before}


def pieces(dim: int) -> dict:
    """What single steps take for one vector of the model, best of three: the prices from which larger audits are planned."""
    import numpy as np

    from coalmine._random import stream
    from coalmine.canaries import TransformCanaries
    from coalmine.conformance import compare
    from coalmine.contracts import Clip, Public
    from coalmine.mechanisms import Gaussian
    from coalmine.mechanisms.gaussian import normals_in_blocks
    from coalmine.mechanisms.sums import FixedPointSum
    from coalmine.runs import _digest

    def best(step, times=3):
        spent = []
        for _ in range(times):
            began = time.process_time()
            step()
            spent.append(time.process_time() - began)
        return min(spent)

    mechanism, public, update = Gaussian(1.0, 1.0), Public(0, 1.0, 10.0), np.ones(dim, np.float32)
    contribution, total = mechanism.client(update, public), FixedPointSum(dim, 1.0)
    canaries = TransformCanaries(dim, POOL, secret_seed=1)
    found = {
        "clip": best(lambda: mechanism.client(update, public)),
        "add": best(lambda: total.add(contribution)),
        "compare": best(lambda: compare(update, contribution.vector, Clip(1.0), 1.0, {})),
        "plant": best(lambda: canaries.combine([1, 2], [1.0, 1.0])),
        "look": best(lambda: canaries.project(update, spare=SPARE)),
        "noise": best(lambda: [None for _ in normals_in_blocks(dim, partial(stream, 1), "noise", 0)]),
        "checkpoint_of_a_vector": best(lambda: _digest("", {"vector": update})),
    }
    return {**found, "tests_of_a_round": tests_of_a_round(dim)}


def tests_of_a_round(dim: int) -> float:
    """All tests of a mechanism on simulated rounds, the best of three."""
    from coalmine.conformance import CHECKS, Battery, Subject
    from coalmine.conformance.simulated import rounds_of
    from coalmine.contracts import Clip, Description, Noise

    subject = Subject(Description(Clip(1.0), Noise(1.0, 1.0)), dim, rounds=3)
    battery, spent = Battery(subject, CHECKS), []
    for seen in rounds_of(subject, 1):
        began = time.process_time()
        battery.observe(seen)
        spent.append(time.process_time() - began)
    return min(spent)


def simulate(canaries: int) -> dict:
    """The simulated Gaussian mechanism; 16 GB at most."""
    import coalmine

    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    before, began = resident(), time.process_time()
    try:
        coalmine.simulate_gaussian_mechanism(10_000_000, canaries, 1.0, seed=1)
    except MemoryError as error:
        return {"error": str(error)[:120]}
    return {"seconds": time.process_time() - began, "megabytes": resident() - before}


VERBS = (
    *("run", "resume", "report", "compare", "check", "verify", "plan", "account", "estimate", "zoo", "reproduce", "sweep"),
    *("group", "craft", "infer", "serve", "doctor", "selftest"),
)
COMMANDS = ("zoo --list", "reproduce --list", "--help", *(f"{verb} --help" for verb in VERBS))


def commands(times: int) -> dict:
    """Processor seconds of short commands, imports included: the best of so many, with byte code as an installation has it.

    `import numpy` is measured beside them: on a busy machine everything takes longer, by as much as that does.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment, program = {**kept, "PYTHONPYCACHEPREFIX": folder}, "from coalmine.cli import main; main()"

        def seconds(*words) -> float | None:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            ended = subprocess.run([sys.executable, "-c", *words], capture_output=True, check=False, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            return None if ended.returncode else spent  # the older version may have no such command

        every = {"import numpy": ("import numpy",), **{words: (program, *words.split()) for words in COMMANDS}}
        there = {name: words for name, words in every.items() if seconds(*words) is not None}  # writes byte code, too
        return {name: min(seconds(*words) for _ in range(times)) for name, words in there.items()}


def quickstart(count: int) -> dict:
    """From the command to the verdict on the screen and to the end, by the clock; first rounds of both trainings."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from coalmine.cli import main; main()", "run", "quickstart", "--secret-seed", "1"]
        began, verdict = time.perf_counter(), None
        words = [*command, "--workers", str(count), "--out", f"{folder}/run", "--quiet"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as run:
            for _ in run.stdout:
                verdict = verdict or time.perf_counter() - began
        ended, first = time.perf_counter() - began, []
        for name in ("run", "run/reference"):
            first.append(json.loads(Path(folder, name, "events.jsonl").read_text().splitlines()[0])["seconds"])
    return {"verdict": verdict, "end": ended, "first_round": first[0], "first_round_of_the_comparison": first[1]}


def cases(asked: argparse.Namespace) -> list[tuple]:
    """(part, arguments, whether the older code can do it)."""
    if asked.case:
        return [(asked.case[0], tuple(map(int, asked.case[1:])), True)]
    dims = [dim for dim in (10**4, 10**5, 10**6, 10**7, 3 * 10**7, 10**8) if dim <= asked.most_dim]
    counts = [count for count in (100, 1000, 10_000, 100_000) if count <= asked.most_rounds]
    found = [("workers", (dim, count), dim <= 10**7) for dim in dims if dim <= 10**7 for count in (1, 2)]
    found += [("clients_alone", (dim,), False) for dim in dims if dim in (10**7, asked.most_dim)]
    found += [("dimension", (dim, 20, audit), False) for dim in dims for audit in (1, 0)]
    found += [("views", (count,), count <= BEFORE_ROUNDS) for count in counts]
    found += [
        ("rounds", (count, sampled), count <= 1000) for count in counts for sampled in (0, 1) if not sampled or count <= 1000
    ]
    found += [("running", (count, sampled), True) for count in (300, 3000) for sampled in (0, 1)]
    found += [("pieces", (dim,), False) for dim in dims if dim >= 10**6]
    found += [("pool", (count,), True) for count in (100, 1000, 10_000, 100_000)]
    found += [("simulate", (count,), count != 20_000) for count in (1000, 8000, 20_000, 100_000)]
    found += [("commands", (3,), True), ("quickstart", (2,), True)]
    return [each for each in found if not asked.only or each[0] in asked.only]


def measured(source: Path, part: str, arguments: tuple) -> dict:
    command = [sys.executable, __file__, "--part", part, *map(str, arguments)]
    # an editable install finds its own package first: the path of the other version must be before it
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(source / "src")}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else f"ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def earlier(name: str) -> dict:
    """What an earlier run found of the older code, with a note that it is of that run."""
    row = json.loads(RESULT.read_text())["measured"].get(name, {}) if RESULT.is_file() else {}
    if "before" not in row:
        return {}
    note = row.get("before_note") or f"{row.get('before_commit') or 'commit not recorded'}, in an earlier run"
    return {"before": row["before"], "before_commit": row.get("before_commit"), "before_note": note}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--case", nargs="+", metavar="PART NUMBER", help="one measurement alone")
    parser.add_argument("--most-rounds", type=int, default=100_000)
    parser.add_argument("--most-dim", type=int, default=10**7)
    parser.add_argument("--part", nargs="+")
    parser.add_argument("--page", action="store_true", help="write docs/scale-figures.md and docs/scale.svg from the results")
    asked = parser.parse_args()
    if asked.part:
        print(json.dumps(globals()[asked.part[0]](*map(int, asked.part[1:]))))
        return
    if asked.page:
        from growth_page import write

        write(json.loads(RESULT.read_text()), ROOT / "docs")
        return
    from machine import machine

    found = json.loads(RESULT.read_text()) if RESULT.is_file() else {"measured": {}}
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder, "before")
        if asked.before:
            subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", old, asked.before], check=True)
        try:
            for part, arguments, possible in cases(asked):
                row = {"machine": machine(), "before_commit": asked.before}
                if asked.before and possible:
                    row["before"] = measured(old, part, arguments)
                elif not asked.before:
                    row |= earlier(f"{part} {' '.join(map(str, arguments))}")
                row["after"] = measured(ROOT, part, arguments)
                print(part, *arguments, json.dumps({key: row[key] for key in ("before", "after") if key in row}), flush=True)
                now = json.loads(RESULT.read_text()) if RESULT.is_file() else {"measured": {}}  # others may measure too
                found["measured"] = {**now["measured"], f"{part} {' '.join(map(str, arguments))}": row}
                RESULT.write_text(json.dumps(found, indent=1) + "\n")
        finally:
            if asked.before:
                subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", old], check=False)


if __name__ == "__main__":
    main()
