"""Three ways a correct-looking Flower application loses its privacy, each audited in one run, and each with its repair.

    python benchmarks/flower_faults.py          about a minute; writes docs/three-flower-faults.md and a JSON file

The applications run in this process. Seeds are given, so that the page can be made again.
"""

import argparse
import json
import logging
import random
import sys
import tempfile
import tomllib
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)

from coalmine.adapters.flower import Audit, LocalGrid, audited
from coalmine.result import AuditResult
from coalmine.runs import write_secret

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
for folder in ("flower-deployed", "flower-secagg"):
    sys.path.insert(0, str(EXAMPLES / folder))
task = import_module("deployed_app.task")

DELTA, ROUNDS, CANARIES, CLIENTS, CLIP = 1e-5, 20, 400, 60, 0.3
LARGEST = 20  # one client has so many times the examples of the others


def client_app(weights, mods=()):
    """Clients that learn digits; `weights(partition)` is the number of examples that one reports."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        partition = int(context.node_config["partition-id"])
        model = {name: array.numpy() for name, array in message.content["arrays"].items()}
        moved = task.train(model, partition, CLIENTS)
        arrays = ArrayRecord({name: Array(value) for name, value in moved.items()})
        return Message(
            RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": weights(partition)})}), reply_to=message
        )

    return app


def run(make_strategy, weights=lambda partition: 1, mods=()) -> tuple[AuditResult, object]:
    """One audited training."""
    audit = Audit(delta=DELTA, rounds=ROUNDS, pool=CANARIES, secret_seed=7)
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    strategy = make_strategy(inner, CLIENTS + audit.places)
    start = ArrayRecord({name: Array(value) for name, value in task.initial().items()})
    grid = LocalGrid(client_app(weights, mods), CLIENTS)
    audited(strategy, audit, mods=mods).start(grid, start, ROUNDS)
    return audit.result, strategy


def fixed(inner, together):
    return DifferentialPrivacyServerSideFixedClipping(inner, 1.0, CLIP, together)


def weighting(fault: bool) -> AuditResult:
    shares = (lambda partition: 20 * LARGEST if partition == 0 else 20) if fault else (lambda partition: 1)
    return run(fixed, shares)[0]


def local_noise(fault: bool) -> AuditResult:
    mod = LocalDpMod(clipping_norm=CLIP, sensitivity=1e-4 if fault else CLIP, epsilon=10.0, delta=DELTA)
    return run(lambda inner, together: inner, mods=[mod])[0]


def secure_aggregation(fault: bool, canaries: int = 20) -> AuditResult:
    """The example `flower-secagg`, as it is, or with more canaries."""
    settings = tomllib.loads((EXAMPLES / "flower-secagg" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    client, server = (import_module(f"secagg_app.{name}") for name in ("client_app", "server_app"))
    with tempfile.TemporaryDirectory() as folder:
        files = {"audit-dir": f"{folder}/audit", "secret-file": f"{folder}/secret.json"}
        write_secret(Path(files["secret-file"]), 7)
        config = {
            **settings,
            **files,
            "noise-multiplier": 1.0,
            "canaries": canaries,
            "clip-on": "server" if fault else "clients",
        }
        context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config)
        server.main(LocalGrid(client.app, int(config["clients"]) + int(config["canaries"]), config), context)
        return AuditResult.load(f"{folder}/audit")


def adaptive() -> dict[str, float]:
    """What adaptive clipping does while all updates are longer than the clip norm."""

    def strategy(inner, together):
        return DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.5, together, CLIP / 3, clipped_count_stddev=4.0)

    result, used = run(strategy)
    return {**numbers(result), "first_clip_norm": CLIP / 3, "last_clip_norm": used.clipping_norm}


FAULTS = {
    "weighting": weighting,
    "secure_aggregation": secure_aggregation,
    "secure_aggregation_40": partial(secure_aggregation, canaries=40),
    "local_noise": local_noise,
}


def numbers(result: AuditResult) -> dict[str, object]:
    """What the page shows."""
    about = result.estimate
    return {
        "claim": result.claim.epsilon,
        "at_least": result.bound.epsilon,
        "about": about.epsilon,
        "low": about.low,
        "high": about.high,
        "verdict": result.verdict.word,
        "view": result.setting["view"],
        "inserted": result.design.inserted,
    }


def row(name: str, found: dict[str, object]) -> str:
    shown = {key: f"{value:.3g}" if isinstance(value, float) else value for key, value in found.items()}
    interval = f"{shown['about']} ({shown['low']} – {shown['high']})"
    return f"| {name} | {shown['claim']} | {shown['at_least']} | {interval} | {shown['verdict']} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "three-flower-faults.md")
    config = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    found: dict[str, dict[str, object]] = {}
    for name, audit in FAULTS.items():
        for kind, fault in (("fault", True), ("repaired", False)):
            np.random.seed(1)
            random.seed(1)
            found[f"{name}_{kind}"] = numbers(audit(fault))
            print(name, kind, found[f"{name}_{kind}"], file=sys.stderr, flush=True)
    np.random.seed(1)
    random.seed(1)
    found["adaptive"] = adaptive()
    print("adaptive", found["adaptive"], file=sys.stderr)
    text = (ROOT / "benchmarks" / "three-flower-faults.md.in").read_text()
    for name, values in found.items():
        kind = {"fault": "as it was", "repaired": "repaired"}.get(name.rpartition("_")[2], "adaptive clipping")
        if name.startswith("secure"):
            kind += f", {40 if '_40_' in name else 20} canaries"
        text = text.replace(f"{{{name}}}", row(kind, values))
    clip = found["adaptive"]
    text = text.replace("{first}", f"{clip['first_clip_norm']:.2g}").replace("{last}", f"{clip['last_clip_norm']:.2g}")
    config.output.write_text(text)
    (ROOT / "benchmarks" / "results" / "flower_faults.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
