"""What the audit costs in a round of a Flower application: the same training with and without it, in one run, interleaved.

    python benchmarks/flower.py          writes benchmarks/results/flower.json

The bare application trains on `LocalGrid` with Flower's DP wrapper. The audited one has canary replies beside it, whose
clipping and averaging Flower itself does; a third one has as many replies more as the audit adds, and nothing else, so that
the two costs can be told apart.
"""

import argparse
import json
import logging
import statistics
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from coalmine.adapters.flower import Audit, LocalGrid, audited

ROOT = Path(__file__).parents[1]
ROUNDS, WORK = 6, 0.02  # seconds of local training, as a small model on a few examples takes


def app(dim: int) -> ClientApp:
    """Clients that work for a fixed time and send a random update."""
    client = ClientApp()

    @client.train()
    def train(message, context):
        until = time.perf_counter() + WORK
        rng = np.random.default_rng(int(context.node_config["partition-id"]))
        moved = message.content["arrays"]["model"].numpy() + rng.standard_normal(dim, dtype=np.float32)
        while time.perf_counter() < until:
            pass
        arrays = ArrayRecord({"model": Array(moved)})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return client


class Rounds:
    """A training whose rounds are timed one by one."""

    def __init__(self, dim, clients, audit=None, further=0):
        together = clients + further
        inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        strategy = DifferentialPrivacyServerSideFixedClipping(inner, 1.0, 1.0, together)
        self.strategy = strategy if audit is None else audited(strategy, audit)
        self.grid, self.further = LocalGrid(app(dim), clients), 0 if audit else further
        self.arrays, self.number = ArrayRecord({"model": Array(np.zeros(dim, np.float32))}), 0

    def next(self) -> float:
        """Seconds of one round."""
        self.number += 1
        begin = time.perf_counter()
        replies = self.grid.send_and_receive(self.strategy.configure_train(self.number, self.arrays, ConfigRecord(), self.grid))
        replies += [Message(RecordDict(dict(replies[0].content)), reply_to=replies[0]) for _ in range(self.further)]
        self.arrays, _ = self.strategy.aggregate_train(self.number, replies)
        return time.perf_counter() - begin


def measure(dim: int, clients: int, places: int) -> dict[str, float]:
    """Medians over rounds that take turns; the first round, in which things are made, is left out."""
    pool = places * (ROUNDS + 2)  # the last round would conclude
    audit = Audit(delta=1e-5, rounds=ROUNDS + 2, pool=pool, secret_seed=1)
    trainings = {
        "bare": Rounds(dim, clients),
        "more_replies": Rounds(dim, clients, further=places),
        "audited": Rounds(dim, clients, audit, places),
    }
    times = {name: [] for name in trainings}
    for _ in range(ROUNDS + 1):
        for name, training in trainings.items():
            times[name].append(training.next())
    median = {name: statistics.median(each[1:]) for name, each in times.items()}
    return {
        "parameters": dim,
        "clients": clients,
        "places": places,
        "bare_seconds": round(median["bare"], 4),
        "ratio_audited_to_bare": round(median["audited"] / median["bare"], 3),
        "ratio_audited_to_as_many_replies": round(median["audited"] / median["more_replies"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "flower.json")
    config = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    found = [measure(*sizes) for sizes in ((50_000, 50, 5), (50_000, 50, 20), (1_000_000, 50, 5), (1_000_000, 50, 20))]
    for each in found:
        print(each)
    config.output.write_text(json.dumps({"local_training_seconds": WORK, "settings": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
