"""How long finding a strategy takes, and how good it is: `python benchmarks/factorizations.py`.

Limits at 2,048 rounds: 3 seconds for up to 64 bands, 20 for three buffers, 50 ms for the sensitivity of a Toeplitz matrix, 5
seconds for that of any other. Times are of the CPU. Exits with 1 beyond them.
"""

import time

from coalmine.contracts import Separation
from coalmine.mechanisms.strategies import Banded, Blt, Toeplitz, Tree

ROUNDS, TIMES, APART = 2048, 8, 256
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
    kept = True
    for name, (make, limit) in FOUND.items():
        made, seconds = timed(make)
        kept &= shown(name, seconds, limit, f"loss {made.sensitivity(LIMITS) * made.rms_error():.6f}")
    for name, (made, limit) in MOVED.items():
        value, seconds = timed(lambda made=made: made.sensitivity(LIMITS))
        kept &= shown(name, seconds, limit, f"{value:.6f}")
    raise SystemExit(not kept)


if __name__ == "__main__":
    main()
