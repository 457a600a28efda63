"""How fast clients train: against a plain PyTorch loop, and against what the machine can do at all.

Two processes of one thread each do the same work in windows that take turns: products of matrices (the measured peak), a plain
loop (the usual module and torch.optim.SGD, one client after the other), and ours. On a machine with other users the best window
of each is the one that was disturbed least, so rates and ratios are those of best windows; the ratio of processor time, which
other users disturb less, stands beside them.

    EMNIST CNN          34 clients of 240 images, batch 16, 71.6 MFLOP for an image, forward and backward
    character LSTM      8 + 256 units, 90 characters, 64 sequences of 80 a client, batch 16, 141 MFLOP for a sequence
    perceptron          784-32-62, 34 clients of 240 images, batch 16: all clients of a process at once
    one example each    the same perceptron, 128 clients of one example: gradients of a batch of DP-SGD
    small LSTM          the word model of chats, 20 tokens a sentence, 40 sentences a client

Writes benchmarks/results/training.json.

    python benchmarks/training.py [--passes 2] [--only "EMNIST CNN"]
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from coalmine.clients import LocalTraining, Trainer, quiet_threads
from coalmine.data.dataset import Examples
from coalmine.models import Model, chat_lstm, emnist_cnn, mlp, shakespeare_lstm

PROCESSES, SIDE, PRODUCTS = 2, 1024, 8


@dataclass(frozen=True)
class Task:
    """What one process does in a window: `clients` clients of `examples` each."""

    model: Callable[[], Model]
    plain: Callable[[], nn.Module]
    clients: int
    examples: int
    windows: int
    batch_size: int | None = 16
    tokens: int = 0  # length of a sequence; 0: images
    vocabulary: int = 0
    megaflops: float = 0.0  # for an example
    targets: tuple[tuple[str, float], ...] = ()


def plain_cnn() -> nn.Module:
    convolutions = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(nn.Unflatten(1, (1, 28)), *convolutions, nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 62))


def plain_mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 62))


class PlainLstm(nn.Module):
    def __init__(self, vocabulary: int, embedding: int, hidden: int, *, tied: bool) -> None:
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(vocabulary, embedding), nn.LSTM(embedding, hidden, batch_first=True)
        self.projection = nn.Linear(hidden, embedding) if tied else nn.Identity()
        self.output = nn.Linear(embedding if tied else hidden, vocabulary)
        if tied:
            self.output.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.output(self.projection(self.recurrent(self.embedding(tokens))[0])).flatten(0, 1)


def character_lstm() -> Model:
    return shakespeare_lstm(vocabulary=90)


def plain_character_lstm() -> nn.Module:
    return PlainLstm(90, 8, 256, tied=False)


def word_lstm() -> Model:
    return chat_lstm(vocabulary=2_000)


def plain_word_lstm() -> nn.Module:
    return PlainLstm(2_000, 64, 128, tied=True)


def perceptron() -> Model:
    return mlp(shape=(28, 28), classes=62)


CNN_TARGETS = (("ratio", 1.25), ("share_of_peak", 0.55))
TASKS = {
    "EMNIST CNN": Task(emnist_cnn, plain_cnn, 1, 240, 17, megaflops=71.6, targets=CNN_TARGETS),
    "character LSTM": Task(
        character_lstm,
        plain_character_lstm,
        1,
        64,
        17,
        tokens=80,
        vocabulary=90,
        megaflops=141.0,
        targets=(("share_of_peak", 0.6),),
    ),
    "perceptron": Task(perceptron, plain_mlp, 17, 240, 24, megaflops=0.1135, targets=(("ratio", 8.0),)),
    "one example each": Task(perceptron, plain_mlp, 64, 1, 24, batch_size=None),
    "small LSTM": Task(word_lstm, plain_word_lstm, 2, 40, 12, tokens=20, vocabulary=2_000),
}


def cohort(task: Task) -> list[Examples]:
    rng = np.random.default_rng(0)
    if task.tokens:
        windows = [rng.integers(4, task.vocabulary, (task.examples, task.tokens + 1)) for _ in range(task.clients)]
        return [Examples(each[:, :-1].copy(), each[:, 1:].copy()) for each in windows]
    return [
        Examples(rng.random((task.examples, 28, 28), np.float32), rng.integers(0, 62, task.examples))
        for _ in range(task.clients)
    ]


def products(task: Task) -> Callable[[], None]:
    torch.set_num_threads(1)
    left, right, out = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE), torch.empty(SIDE, SIDE)

    def work() -> None:
        for _ in range(PRODUCTS):
            torch.mm(left, right, out=out)

    return work


def plain(task: Task) -> Callable[[], None]:
    torch.set_num_threads(1)
    module, clients = task.plain(), cohort(task)
    begin = {name: value.clone() for name, value in module.state_dict().items()}

    def work() -> None:
        for client in clients:
            module.load_state_dict(begin)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
            features, targets = torch.from_numpy(client.features), torch.from_numpy(client.targets)
            for rows in torch.randperm(len(client)).split(task.batch_size or len(client)):
                optimizer.zero_grad()
                functional.cross_entropy(module(features[rows]), targets[rows].flatten()).backward()
                optimizer.step()
            {name: value - begin[name] for name, value in module.state_dict().items()}

    return work


def ours(task: Task) -> Callable[[], None]:
    quiet_threads()
    model, clients = task.model(), cohort(task)
    trainer = Trainer(model, LocalTraining(learning_rate=0.01, batch_size=task.batch_size))
    begin = model.initial(0)

    def work() -> None:
        for _ in trainer.updates(begin, clients, [np.random.default_rng(number) for number in range(len(clients))]):
            pass

    return work


WAYS = {"products": products, "plain": plain, "ours": ours}


def worker(way: str, task: str, pipe: Connection) -> None:
    work = WAYS[way](TASKS[task])
    work()
    pipe.send(0.0)
    while pipe.recv():
        start = time.process_time()
        work()
        pipe.send(time.process_time() - start)


class Pair:
    """Two processes that do the same work at the same time."""

    def __init__(self, way: str, task: str) -> None:
        context = multiprocessing.get_context("spawn")
        ends = [context.Pipe() for _ in range(PROCESSES)]
        self.pipes = [mine for mine, _ in ends]
        self.processes = [context.Process(target=worker, args=(way, task, theirs)) for _, theirs in ends]
        for process in self.processes:
            process.start()
        for pipe in self.pipes:
            pipe.recv()

    def window(self, processes: int = PROCESSES) -> tuple[float, float]:
        """(seconds, processor seconds of one process)."""
        used = self.pipes[:processes]
        start = time.perf_counter()
        for pipe in used:
            pipe.send(True)
        processor = [pipe.recv() for pipe in used]
        return time.perf_counter() - start, sum(processor) / processes

    def close(self) -> None:
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(False)
            process.join()


def measure(name: str, passes: int) -> dict[str, object]:
    task = TASKS[name]
    pairs = {way: Pair(way, name) for way in WAYS}
    seconds: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    alone: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(passes * task.windows):
        for way, pair in pairs.items():
            seconds[way].append(pair.window())
            if number % 3 == 0:
                alone[way].append(pair.window(1)[0])
    for pair in pairs.values():
        pair.close()
    amount = dict.fromkeys(WAYS, task.clients * task.examples) | {"products": PRODUCTS * 2 * SIDE**3 / 1e9}
    best = {way: PROCESSES * amount[way] / min(wall for wall, _ in seconds[way]) for way in WAYS}
    single = {way: amount[way] / min(alone[way]) for way in WAYS}
    processor = {way: amount[way] / min(cpu for _, cpu in seconds[way]) for way in WAYS}
    rows: dict[str, object] = {
        "clients_in_a_window": PROCESSES * task.clients,
        "examples_of_a_client": task.examples,
        "windows": passes * task.windows,
        "peak_gigaflops": {"two_processes": best["products"], "one_process": single["products"]},
        "examples_per_second": {"ours": best["ours"], "plain": best["plain"]},
        "examples_per_second_one_process": {"ours": single["ours"], "plain": single["plain"]},
        "ratio": best["ours"] / best["plain"],
        "ratio_one_process": single["ours"] / single["plain"],
        "ratio_of_processor_time": processor["ours"] / processor["plain"],
    }
    if task.megaflops:
        rows["share_of_peak"] = best["ours"] * task.megaflops / 1e3 / best["products"]
        rows["share_of_peak_one_process"] = single["ours"] * task.megaflops / 1e3 / single["products"]
        rows["share_of_peak_by_processor_time"] = processor["ours"] * task.megaflops / 1e3 / processor["products"]
    rows["required"] = dict(task.targets)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--only", choices=TASKS, action="append")
    options = parser.parse_args()
    path = Path(__file__).parent / "results" / "training.json"
    results = json.loads(path.read_text()) if options.only and path.exists() else {}
    heads = (("ours/s", 10), ("plain/s", 10), ("ratio", 8), ("one proc", 10), ("cpu", 7))
    heads += (("of peak", 9), ("one proc", 10), ("cpu", 7))
    print(" " * 18 + "".join(f"{head:>{width}}" for head, width in heads) + "  required")
    for name in options.only or TASKS:
        rows = results[name] = measure(name, options.passes)
        rates = rows["examples_per_second"]
        print(f"{name:18}{rates['ours']:10,.0f}{rates['plain']:10,.0f}", end="")
        print(f"{rows['ratio']:8.2f}{rows['ratio_one_process']:10.2f}{rows['ratio_of_processor_time']:7.2f}", end="")
        for key, width in (("share_of_peak", 9), ("share_of_peak_one_process", 10), ("share_of_peak_by_processor_time", 7)):
            print(f"{rows[key]:{width}.0%}" if key in rows else " " * width, end="")
        print("  " + ", ".join(f"{key} {value}" for key, value in rows["required"].items()), flush=True)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
