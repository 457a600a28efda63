"""How the settings of the quickstart were found: what learns next characters of chats under user-level noise, in a minute.

Every row is a run of the real trainer: the preset `quickstart` with a few keys changed, canaries included. Printed are the
accuracy on held-out users with its standard error over users, the margin over always predicting the most frequent character
of the training users in such errors, and the time. The noise is the largest with noise_multiplier · sqrt(d) / 100 <= 1.5.

What was learned (benchmarks/results/quickstart_study.json, one seed; differences under a point are not established):

* Client steps must be long enough to be cut: learning rate 5 gives 43 %, 1 gives 36 %, and 0.5 with a plain mean on the server
  never leaves the baseline of 17.7 %, with or without noise.
* Momentum on the server averages the noise over rounds; Adam spends the 64 rounds on finding its scale (30 %).
* Two local steps of four windows beat one step (40 %). Adaptive clipping costs two points, twice the noise six.
* Characters show more than words in this time: 500 words reach 5.5 % against a baseline of 4.9 %.

    python benchmarks/quickstart_study.py [--quick] [--seeds 1] [--only NAME ...] [--output FILE]
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

from coalmine.training import run
from coalmine.training.assembly import load_task
from coalmine.training.config import read_config

ALWAYS = ["run.reference=false", "run.evaluate_every=0", "audit.view=known-others", 'audit.views=["known-others"]']
QUIET = ["mechanism.noise_multiplier=0.0", "canaries.pool=0"]
GRID = {
    "quickstart": [],
    "without noise and canaries": QUIET,
    "naive: small client steps, plain mean": ["client.learning_rate=0.5", "server.learning_rate=1.0", "server.momentum=0.0"],
    "naive, without noise and canaries": [
        *QUIET,
        "client.learning_rate=0.5",
        "server.learning_rate=1.0",
        "server.momentum=0.0",
    ],
    "client learning rate 1": ["client.learning_rate=1.0"],
    "client learning rate 10": ["client.learning_rate=10.0"],
    "one local step": ["client.max_steps=1"],
    "four local steps": ["client.max_steps=4"],
    "batch of 8": ["client.batch_size=8"],
    "server learning rate 1": ["server.learning_rate=1.0"],
    "server learning rate 4": ["server.learning_rate=4.0"],
    "server momentum 0": ["server.momentum=0.0"],
    "server momentum 0.9": ["server.momentum=0.9", "server.learning_rate=1.0"],
    "server Adam": ["server.optimiser=adam", "server.learning_rate=0.02"],
    "clip norm 0.3": ["mechanism.clip_norm=0.3", "server.learning_rate=6.0"],
    "adaptive clipping": ["mechanism.kind=adaptive"],
    "32 rounds": ["participation.rounds=32", "participation.epochs=6"],
    "twice the noise": ["mechanism.noise_multiplier=1.26"],
    "hidden 64": ["model.options.hidden=64", "mechanism.noise_multiplier=fit"],
    "hidden 160": ["model.options.hidden=160", "mechanism.noise_multiplier=fit"],
    "words, 500 most frequent": [
        "data.unit=words",
        "data.vocabulary=500",
        "data.length=20",
        "model.options.hidden=64",
        "mechanism.noise_multiplier=fit",
    ],
}
QUICK = ("quickstart", "without noise and canaries", "naive: small client steps, plain mean")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three rows only")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=GRID, help="these rows only")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "quickstart_study.json")
    asked = parser.parse_args()
    names = asked.only or (QUICK if asked.quick else GRID)
    rows = [measure(name, GRID[name], seed) for name in names for seed in range(asked.seeds)]
    asked.output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def measure(name, changes, seed):
    config = fitted([*changes, *ALWAYS, f"run.seed={seed}"])
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = run(config, Path(folder) / "run", secret_seed=seed, quiet=True)
    about, spent = found.training, time.perf_counter() - began
    errors = math.hypot(about["accuracy_error"], about["baseline_error"])
    row = {
        "name": name,
        "changes": changes,
        "seed": seed,
        "parameters": about["parameters"],
        "noise_multiplier": config.mechanism.noise_multiplier,
        "accuracy": about["accuracy"],
        "standard_error": about["accuracy_error"],
        "baseline": about["baseline_accuracy"],
        "margin_in_standard_errors": (about["accuracy"] - about["baseline_accuracy"]) / errors,
        "seconds": spent,
    }
    print(
        f"{name:<42} seed {seed}: {100 * row['accuracy']:5.1f} ± {100 * row['standard_error']:.1f}% against "
        f"{100 * row['baseline']:.1f}%, {row['margin_in_standard_errors']:6.1f} standard errors; "
        f"{row['parameters']:,} parameters, noise {row['noise_multiplier']:.2f}, {spent:.0f} s",
        flush=True,
    )
    return row


def fitted(changes):
    """The configuration; "fit" is the noise that the quickstart allows a model of that size."""
    plain = [change for change in changes if not change.endswith("=fit")]
    config = read_config("quickstart", plain)
    if plain == changes:
        return config
    noise = math.floor(150 / math.sqrt(load_task(config).model.dim) * 100) / 100
    return read_config("quickstart", [*plain, f"mechanism.noise_multiplier={noise}"])


if __name__ == "__main__":
    main()
