"""The same federated rounds on Flower's Ray simulation, on pfl-research, and here.

34 clients of 240 images train the EMNIST CNN for one epoch in batches of 16, and their updates are added up: a round. Each
engine uses both cores: Flower with two actors, pfl-research as two processes with half the clients each (which leaves out what
these would tell each other), ours with two workers, and all that travels between processes is counted. All work with one thread
a process. Ours also clips each update.
Rounds take turns, and rates are those of each engine's best round; starting up is not counted. Where other users keep the
machine busy, whole rounds are never undisturbed: the ratio of processor time (of all processes of an engine, as Linux counts
it) says more then, and stands beside the other.

The engines live in virtual environments of their own, since their requirements exclude each other, made on first use in a
folder outside this repository; data and times are exchanged as files.

Writes benchmarks/results/peers.json.

    python benchmarks/peers.py [--cache FOLDER] [--rounds 4]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
from peer_work import BATCH, RATE, Turns, load_clients

HERE = Path(__file__).parent
CLIENTS, EXAMPLES, PROCESSES, REQUIRED = 34, 240, 2, 1.3
ENGINES = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl[pytorch]==0.6.0"}
TORCH = "torch==2.13.0"


def environment(cache: Path, engine: str) -> Path:
    """The Python of an engine's environment, made if it is not there."""
    folder = cache / engine
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        if not python.exists():
            venv.create(folder, with_pip=True)
        for package in (TORCH, ENGINES[engine]):
            print(f"installing {package} ...", flush=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package], check=True)
        (folder / "installed").touch()
    return python


def ours(folder: Path) -> None:
    """A federation's clients in two worker processes: training, clipping, and a sum that travels here."""
    from coalmine.clients import LocalTraining
    from coalmine.contracts import Public
    from coalmine.data import group_examples
    from coalmine.mechanisms import Gaussian
    from coalmine.mechanisms.sums import FixedPointSum
    from coalmine.models import emnist_cnn
    from coalmine.training.work import ClientBatch, Work, summed
    from coalmine.workers import Workers

    clients = load_clients(folder)
    features, targets = (np.concatenate([client[each] for client in clients]) for each in (0, 1))
    users = [f"{number:02}" for number, client in enumerate(clients) for _ in client[1]]
    data = group_examples(users, features=features, targets=targets, name="peers")
    model, public = emnist_cnn(), Public(0, 1.0, float(len(clients)))
    work = Work(model, LocalTraining(learning_rate=RATE, batch_size=BATCH), data, None, Gaussian(1.0, 0.0), 0)
    turns, parameters = Turns(folder, "ours"), model.initial(0)
    with Workers(PROCESSES, work) as workers:
        while turns.next():
            summed(workers, [ClientBatch(public, parameters, (user,)) for user in data.users], FixedPointSum(model.dim, 1.0))


def started(folder: Path, cache: Path, rounds: int) -> dict[str, list[subprocess.Popen]]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": (folder / "errors.txt").open("w")}
    settings = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": str(folder / "flwr"), "OMP_NUM_THREADS": "1"}
    settings |= {"RAY_USAGE_STATS_ENABLED": "0"}
    settings.pop("PYTHONPATH", None)
    flower = [environment(cache, "flower"), HERE / "peer_flower.py", folder, rounds]
    pfl = [environment(cache, "pfl"), HERE / "peer_pfl.py", folder, rounds]
    mine = [sys.executable, __file__, "--work-in", folder]
    commands = {
        "flower": [flower],
        "pfl": [[*pfl, share, PROCESSES] for share in range(PROCESSES)],
        "ours": [mine],
    }
    return {
        engine: [
            subprocess.Popen([str(word) for word in each], env=os.environ if engine == "ours" else settings, **quiet)
            for each in every
        ]
        for engine, every in commands.items()
    }


def processor_seconds(processes: list[subprocess.Popen]) -> float:
    """What these processes and all that they started have used so far; NaN where there is no /proc."""
    parents, used = {}, {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        number = int(status.parent.name)
        parents[number], used[number] = int(fields[1]), sum(map(int, fields[11:15]))  # with the children that have ended
    family = {process.pid for process in processes}
    while more := {number for number, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(used[number] for number in family & used.keys()) / os.sysconf("SC_CLK_TCK") if used else float("nan")


def turn(folder: Path, engine: str, number: int, processes: list[subprocess.Popen]) -> tuple[float, float]:
    """Seconds of one round, of the slowest process; and processor seconds of all processes."""
    before = processor_seconds(processes)
    (folder / f"go-{engine}-{number}").touch()
    names = [engine] if len(processes) == 1 else [f"{engine}.{share}" for share in range(len(processes))]
    results = [folder / f"{name}-{number}.json" for name in names]
    while not all(result.exists() for result in results):
        if any(process.poll() for process in processes):
            raise SystemExit(f"{engine} ended early:\n{(folder / 'errors.txt').read_text()[-3000:]}")
        time.sleep(0.01)
    wall = max(json.loads(result.read_text())["seconds"] for result in results)
    return wall, processor_seconds(processes) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "coalmine-peers")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--work-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work_in:
        return ours(options.work_in)
    rounds = options.rounds + 1  # the first one warms up
    seconds: dict[str, list[tuple[float, float]]] = {"ours": [], "flower": [], "pfl": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        features = rng.random((CLIENTS, EXAMPLES, 28, 28), np.float32)
        np.savez(folder / "clients.npz", features=features, targets=rng.integers(0, 62, (CLIENTS, EXAMPLES)))
        processes = started(folder, options.cache, rounds)
        try:
            for number in range(rounds):
                for engine, taken in seconds.items():
                    taken.append(turn(folder, engine, number, processes[engine]))
                    print(f"round {number}: {engine:7} {CLIENTS * EXAMPLES / taken[-1][0]:7,.0f} examples/s", end="")
                    print(f", {taken[-1][1]:.1f} processor seconds", flush=True)
        finally:
            (folder / "stop").touch()
            for process in (each for every in processes.values() for each in every):
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
    rates = {engine: CLIENTS * EXAMPLES / min(wall for wall, _ in taken[1:]) for engine, taken in seconds.items()}
    processor = {engine: min(used for _, used in taken[1:]) for engine, taken in seconds.items()}
    ratios = {engine: rates["ours"] / rates[engine] for engine in ENGINES}
    by_processor = {engine: processor[engine] / processor["ours"] for engine in ENGINES}
    results = {
        "clients": CLIENTS,
        "examples_of_a_client": EXAMPLES,
        "engines": ENGINES,
        "seconds_of_rounds": {engine: [wall for wall, _ in taken[1:]] for engine, taken in seconds.items()},
        "processor_seconds_of_rounds": {engine: [used for _, used in taken[1:]] for engine, taken in seconds.items()},
        "examples_per_second": rates,
        "ratio": ratios,
        "ratio_of_processor_time": by_processor,
        "required_ratio": REQUIRED,
    }
    (HERE / "results" / "peers.json").write_text(json.dumps(results, indent=2) + "\n")
    for engine, ratio in ratios.items():
        print(f"ours {rates['ours']:,.0f}/s, {engine} {rates[engine]:,.0f}/s: {ratio:.2f} times (required {REQUIRED}),", end="")
        print(f" {by_processor[engine]:.2f} times by processor time")
    return None


if __name__ == "__main__":
    main()
