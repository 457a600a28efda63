"""The noise of a round by strategy, in vectors of Gaussian noise: `python benchmarks/correlated_noise.py [--dim N]`.

Bounds: 1.6 for BLT and for up to 16 bands, 2.2 for 64 bands. Exits with 1 beyond them.
Times are of the CPU, of one thread, the best of several blocks of sixteen rounds: with many bands, noise of up to sixteen
rounds is made at once, and not all rounds cost the same. Every call adds what it found to
benchmarks/results/correlated_noise.json, by the number of parameters.
"""

import argparse
import json
import os
import time
from functools import partial
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # before numpy is loaded: waiting threads would be counted

from coalmine._random import stream
from coalmine.mechanisms.gaussian import normals
from coalmine.mechanisms.strategies import Banded, Blt, Tree

OUT = Path(__file__).parent / "results" / "correlated_noise.json"
ROUNDS = 256
BLOCK = 16  # rounds
CASES = {
    "blt, 3 buffers": (lambda: Blt.optimal(ROUNDS, 3), 1.6),
    "blt, 4 buffers": (lambda: Blt.optimal(ROUNDS, 4), 1.6),
    "banded, 4 bands": (lambda: Banded.optimal(ROUNDS, 4), 1.6),
    "banded, 16 bands": (lambda: Banded.optimal(ROUNDS, 16), 1.6),
    "banded, 64 bands": (lambda: Banded.optimal(ROUNDS, 64), 2.2),
    "tree, from below": (lambda: Tree(ROUNDS), None),
}


def best(function, times):
    """Seconds of a call, by the fastest block of them."""
    found = []
    for block in range(-(-times // BLOCK)):
        begun = time.process_time()
        for number in range(block * BLOCK, (block + 1) * BLOCK):
            function(number)
        found.append((time.process_time() - begun) / BLOCK)
    return min(found)


def main():
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--dim", type=int, default=1_000_000)
    asked.add_argument("--times", type=int, default=48)
    asked = asked.parse_args()
    draw = partial(normals, asked.dim, partial(stream, 0))
    one, failed = best(lambda number: draw("noise", number), asked.times), False
    table = json.loads(OUT.read_text()) if OUT.is_file() else {}
    found = table.setdefault(str(asked.dim), {})
    print(f"one Gaussian vector of {asked.dim:,}: {1e3 * one:.1f} ms")
    for name, (make, bound) in CASES.items():
        strategy = make()
        kept = {"state": strategy.init(asked.dim)}
        for each in kept["state"].values():
            each += 0.1  # memory that was never written is cheaper to read

        def a_round(number, strategy=strategy, kept=kept):
            _, kept["state"] = strategy.noise(number, asked.dim, draw, kept["state"])

        ratio = best(a_round, asked.times) / one
        verdict = "" if bound is None else f"at most {bound}" + ("" if ratio <= bound else ": TOO SLOW")
        failed |= bound is not None and ratio > bound
        print(f"{name:<18} {ratio:5.2f}  {verdict}")
        found.setdefault(name, []).append(round(ratio, 3))
    OUT.write_text(json.dumps(table, indent=1) + "\n")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
