"""How long finding a strategy takes, and how good it is: `python benchmarks/factorizations.py`.

Limits at 2,048 rounds: 3 seconds for up to 64 bands, 20 for three buffers, 50 ms for the sensitivity of a Toeplitz matrix, 5
seconds for that of any other. Times are of the CPU, of one thread; all of it takes about 20 seconds. Exits with 1 beyond them.
benchmarks/results/factorizations.json has what was found.
"""

import json
import os
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # before numpy is loaded: waiting threads would be counted

from coalmine.contracts import Separation
from coalmine.mechanisms.strategies import Banded, Blt, Toeplitz, Tree

ROUNDS, TIMES, APART = 2048, 8, 256
OUT = Path(__file__).parent / "results" / "factorizations.json"
LIMITS = Separation(TIMES, APART, ROUNDS)
FOUND = {
    "banded, 4 bands": (lambda: Banded.optimal(ROUNDS, 4), 3),
    "banded, 16 bands": (lambda: Banded.optimal(ROUNDS, 16), 3),
    "banded, 64 bands": (lambda: Banded.optimal(ROUNDS, 64), 3),
    "banded, 256 bands": (lambda: Banded.optimal(ROUNDS, 256), None),
    "blt, 3 buffers": (lambda: Blt.optimal(ROUNDS, 3, "mean", APART, TIMES), 20),
    "blt, 4 buffers": (lambda: Blt.optimal(ROUNDS, 4, "mean", APART, TIMES), None),
}
MOVED = {"sensitivity, toeplitz": (Toeplitz(ROUNDS), 0.05), "sensitivity, tree (general)": (Tree(ROUNDS), 5)}


def timed(function):
    """(what it returns, seconds)."""
    begun = time.process_time()
    made = function()
    return made, time.process_time() - begun


def shown(name, seconds, limit, rest=""):
    """A line; whether the limit is kept."""
    kept = limit is None or seconds <= limit
    said = "" if limit is None else f"at most {limit} s" + ("" if kept else ": TOO SLOW")
    print(f"{name:<28} {seconds:8.3f} s  {said:<16} {rest}", flush=True)
    return kept


def main():
    Banded.optimal(16, 2)  # so that no import is measured
    kept, table = True, {}
    for name, (make, limit) in FOUND.items():
        made, seconds = timed(make)
        loss = made.sensitivity(LIMITS) * made.rms_error()
        table[name] = {"seconds": round(seconds, 3), "limit": limit, "loss": loss}
        kept &= shown(name, seconds, limit, f"loss {loss:.6f}")
    for name, (made, limit) in MOVED.items():
        value, seconds = timed(lambda made=made: made.sensitivity(LIMITS))
        table[name] = {"seconds": round(seconds, 4), "limit": limit, "sensitivity": value}
        kept &= shown(name, seconds, limit, f"{value:.6f}")
    about = {"rounds": ROUNDS, "participations": TIMES, "separation": APART, "unit": "CPU seconds"}
    OUT.write_text(json.dumps({**about, "table": table}, indent=1) + "\n")
    raise SystemExit(not kept)


if __name__ == "__main__":
    main()
