"""Two raylets on loopback: what is tried on them, written to found.json. Run by `test_ray.py`."""

import os

# Ray lists and binds nodes by the machine's own address, unless it is told that there is no network
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", RAY_USAGE_STATS_ENABLED="0")

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
import ray
from ray.cluster_utils import Cluster

from coalmine.adapters import ray_engine
from coalmine.errors import MismatchError
from coalmine.training.config import read_config

SHORT = ["participation.epochs=1", "participation.rounds=6", "canaries.pool=60", "run.reference=false"]


class Slow:
    """Says which node did it, and how often it was begun."""

    def __init__(self, log):
        self.log = log

    def prepare(self):
        pass

    def __call__(self, number):
        with Path(self.log).open("a") as log:
            log.write(f"{number} {ray.get_runtime_context().get_node_id()}\n")
        time.sleep(0.4)
        return number * number

    def nothing(self, number):
        return Squares()

    def fold(self, total, number):
        total.sum += self(number)
        return -number


class Squares:
    """A sum, and of how many others it was made."""

    sum = merged = 0

    def merge(self, other):
        self.sum, self.merged = self.sum + other.sum, self.merged + 1


def folded(workers):
    """Results, their sum, and of how many sums it was made."""
    total = Squares()
    return [workers.fold(range(12), total), int(total.sum), total.merged]


def refused(call):
    try:
        call()
    except MismatchError as error:
        return str(error)
    return ""


def enter(job):
    with ray_engine.RayWorkers(2, job):
        pass


def main(out):
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    )
    second = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    ray.init(cluster.address, log_to_driver=False, configure_logging=False)
    found = {"nodes": [node["NodeManagerAddress"] for node in ray.nodes()]}
    config = read_config("tiny", [*SHORT, "run.workers=3"])
    found["few"] = refused(lambda: ray_engine.run(config, out / "few", secret_seed=7, quiet=True))
    config = read_config("tiny", [*SHORT, "run.workers=2"])
    ray_engine.run(config, out / "ray", secret_seed=7, quiet=True)
    right = ray_engine.versions
    ray_engine.versions = lambda: {**right(), "numpy": "1.0"}
    found["versions"] = refused(lambda: enter(Slow(str(out / "none"))))
    ray_engine.versions = right
    log = out / "log"
    with ray_engine.RayWorkers(2, Slow(str(log))) as workers:
        found["squares"] = [int(np.int64(each)) for each in workers.map(range(4))]
        found["whole"] = folded(workers)
        log.unlink()
        killer = threading.Thread(target=end, args=(cluster, second, log))
        killer.start()
        found["killed"] = folded(workers)
        killer.join()
    found["begun"] = [line.split() for line in log.read_text().splitlines()]
    found["left"] = alive_in_the_end()
    ray.shutdown()
    cluster.shutdown()
    (out / "found.json").write_text(json.dumps(found))


def alive_in_the_end(patience=90):
    """Nodes that are left; Ray notices a death some time after the tasks have moved."""
    until = time.monotonic() + patience
    while (left := sum(node["Alive"] for node in ray.nodes())) > 1 and time.monotonic() < until:
        time.sleep(0.5)
    return left


def end(cluster, node, log):
    """End a node as soon as both have begun something."""
    while not log.exists() or len({line.split()[1] for line in log.read_text().splitlines() if " " in line}) < 2:
        time.sleep(0.02)
    cluster.remove_node(node, allow_graceful=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
