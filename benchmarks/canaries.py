"""What canaries cost: fast map against dense directions, against the size of the pool, and against other fast maps.

Four measurements, each a ratio taken in one run with the alternatives in turn, one thread:

* observing one release with 1,000 inserted and 1,000 held-out canaries: `TransformCanaries` against `SphereCanaries`, which
  regenerates and projects its canaries block by block (timed on a few of them and scaled: its cost is linear in their number);
* the same with pools from 10 canaries to half the dimension;
* one transform: two-dimensional DCT, one-dimensional DCT, products with small orthogonal matrices; and the excess kurtosis of
  the scores of a spike, which shows how many sign blocks each of them needs;
* memory and time at 100 million dimensions, in a process of its own.

Writes benchmarks/results/canaries.json.

    python benchmarks/canaries.py
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import fft

from coalmine.canaries import SphereCanaries, TransformCanaries
from coalmine.canaries.transform import near_square

WORD_LSTM, SMOOTH, HUGE = 4_050_748, 4_096_000, 100_000_000
POOL, DENSE, ROUNDS = 2000, 4, 7


def alternate(work: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of each, taken in turn, after one call that is not counted."""
    for call in work.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, call in work.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def cosines(canaries: TransformCanaries | SphereCanaries, release: np.ndarray) -> np.ndarray:
    return canaries.project(release) / np.sqrt(np.einsum("i,i->", release, release, dtype=np.float64))


def against_dense(dim: int) -> dict[str, object]:
    release = np.random.default_rng(0).standard_normal(dim, dtype=np.float32)
    transform, sphere = TransformCanaries(dim, POOL, secret_seed=1), SphereCanaries(dim, DENSE, secret_seed=1)
    seconds = alternate({"transform": lambda: cosines(transform, release), "sphere": lambda: cosines(sphere, release)})
    ratios = [dense * POOL / DENSE / fast for fast, dense in zip(seconds["transform"], seconds["sphere"], strict=True)]
    tracemalloc.start()
    cosines(TransformCanaries(dim, POOL, secret_seed=1), release)
    peak = tracemalloc.get_traced_memory()[1] / release.nbytes
    tracemalloc.stop()
    return {
        "dim": dim,
        "canaries": POOL,
        "transform_seconds": min(seconds["transform"]),
        "dense_seconds_scaled": min(seconds["sphere"]) * POOL / DENSE,
        "dense_canaries_timed": DENSE,
        "ratios": ratios,
        "median_ratio": float(np.median(ratios)),
        "required_ratio": 50,
        "peak_memory_in_float32_vectors": peak,
    }


def against_pool(dim: int) -> dict[str, object]:
    release = np.random.default_rng(0).standard_normal(dim, dtype=np.float32)
    pools = {count: TransformCanaries(dim, count, secret_seed=1) for count in (10, POOL, dim // 20, dim // 2)}
    work = {str(count): lambda canaries=canaries: cosines(canaries, release) for count, canaries in pools.items()}
    seconds = alternate(work, 2 * ROUNDS)
    return {"dim": dim, "seconds": {name: min(values) for name, values in seconds.items()}, **relative(seconds, str(POOL))}


def relative(seconds: dict[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """The median over rounds of the time of each divided by that of `base` in the same round."""
    pairs = {name: np.divide(values, seconds[base]) for name, values in seconds.items()}
    return {"ratio": {name: float(np.median(values)) for name, values in pairs.items()}}


def product(sides: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """The Kronecker product of DCT matrices, applied side by side as matrix products."""
    matrices = [fft.dct(np.eye(side), axis=0, norm="ortho").astype(np.float32) for side in sides]

    def apply(vector: np.ndarray) -> np.ndarray:
        left = 1
        for side, matrix in zip(sides, matrices, strict=True):
            right = vector.size // left // side
            vector = vector.reshape(left, side) @ matrix.T if right == 1 else matrix @ vector.reshape(left, side, right)
            left *= side
        return vector.reshape(-1)

    return apply


def one_dimensional(vector: np.ndarray) -> np.ndarray:
    return fft.dct(vector, norm="ortho")


def two_dimensional(vector: np.ndarray) -> np.ndarray:
    return fft.dctn(vector.reshape(near_square(vector.size)), norm="ortho").reshape(-1)


def other_maps(dim: int, three: tuple[int, ...], four: tuple[int, ...], awkward: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    vector, longer = rng.standard_normal(dim, dtype=np.float32), rng.standard_normal(awkward, dtype=np.float32)
    maps = {
        "two-dimensional DCT": two_dimensional,
        "one-dimensional DCT": one_dimensional,
        f"matrix products {three}": product(three),
        f"matrix products {four}": product(four),
    }
    work = {name: lambda call=call: call(vector) for name, call in maps.items()}
    work[f"one-dimensional DCT of {awkward}"] = lambda: one_dimensional(longer)
    seconds = alternate(work)
    best = {name: min(values) for name, values in seconds.items()}
    return {"dim": dim, "seconds": best, **relative(seconds, "two-dimensional DCT")}


def kurtosis_of_a_spike(dim: int = 1 << 14, sides: tuple[int, ...] = (16, 32, 32), draws: int = 40) -> dict[str, object]:
    rng = np.random.default_rng(1)
    found = {}
    maps = {
        "one-dimensional DCT": one_dimensional,
        "two-dimensional DCT": two_dimensional,
        "three matrix products": product(sides),
    }
    for name, call in maps.items():
        for blocks in (1, 2, 3):
            values = []
            for _ in range(draws):
                vector = np.zeros(dim, dtype=np.float32)
                vector[dim // 3] = dim**0.5
                for _ in range(blocks):
                    vector = call(vector * rng.choice(np.array([-1, 1], dtype=np.float32), dim))
                values.append(float(np.mean(vector.astype(np.float64) ** 4)) - 3)
            found[f"{name}, {blocks} sign blocks"] = [float(np.mean(values)), float(np.std(values) / draws**0.5)]
    return {"dim": dim, "draws": draws, "excess_kurtosis_and_standard_error": found}


def peak_resident_bytes() -> int:
    """Linux. (The ru_maxrss of a child process begins with its parent's.)"""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def huge(dim: int = HUGE) -> dict[str, object]:
    """In this process: the peak of its memory, and how long each step takes."""
    before = peak_resident_bytes()
    release = np.random.default_rng(0).standard_normal(dim, dtype=np.float32)
    start = time.perf_counter()
    canaries = TransformCanaries(dim, POOL, secret_seed=1)
    made = time.perf_counter()
    canaries.project(release)
    projected = time.perf_counter()
    canaries.combine(np.arange(POOL), np.ones(POOL))
    combined = time.perf_counter()
    peak = peak_resident_bytes() - before
    return {
        "dim": dim,
        "make_seconds": made - start,
        "project_seconds": projected - made,
        "combine_seconds": combined - projected,
        "peak_resident_bytes_with_the_release": peak,
        "peak_in_float32_vectors": peak / release.nbytes,
    }


def main() -> None:
    if sys.argv[1:] == ["huge"]:
        print(json.dumps(huge()))
        return
    result = {
        "threads": 1,
        "against_dense": [against_dense(dim) for dim in (WORD_LSTM, SMOOTH)],
        "against_pool": [against_pool(dim) for dim in (WORD_LSTM, SMOOTH)],
        "transforms": [
            other_maps(4_050_000, (150, 150, 180), (45, 40, 45, 50), WORD_LSTM),
            other_maps(SMOOTH, (160, 160, 160), (40, 40, 40, 64), WORD_LSTM),
        ],
        "spike": kurtosis_of_a_spike(),
    }
    done = subprocess.run([sys.executable, __file__, "huge"], check=True, capture_output=True, text=True)
    result["huge"] = json.loads(done.stdout)
    path = Path(__file__).parent / "results" / "canaries.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
