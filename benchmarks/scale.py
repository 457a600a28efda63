"""A million scores through every estimator and bound: time against sorting the same scores, and memory against their size.

Writes benchmarks/results/scale.json. Peak memory is measured with tracemalloc in a second pass, in units of the scores.

    python benchmarks/scale.py
"""

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

import coalmine

SCORES, DELTA = 1_000_000, 1e-6


def designs() -> dict[str, tuple[coalmine.Scores, Callable[[coalmine.Scores], object]]]:
    rng = np.random.default_rng(0)
    coins = rng.random(SCORES) < 0.5
    value = rng.standard_normal(SCORES) + 2.0 * coins
    sampled = coalmine.Scores(value, coins, assignment="coins")
    runs = coalmine.Scores(value, coins, labels={"run": np.arange(SCORES) % 1000})
    dim = 10_000_000
    exact = coalmine.Scores.of((rng.standard_normal(SCORES) + 2.0) * dim**-0.5, dim=dim)
    c = coalmine
    return {
        "estimate_gaussian, exact null": (exact, lambda s: c.estimate_gaussian(s, delta=DELTA)),
        "estimate_gaussian fitted, exact null": (exact, lambda s: c.estimate_gaussian(s, delta=DELTA, variance="fitted")),
        "estimate_gaussian, sampled null": (sampled, lambda s: c.estimate_gaussian(s, delta=DELTA)),
        "bound_band, exact null": (exact, lambda s: c.bound_band(s, delta=DELTA)),
        "bound_band, sampled null": (sampled, lambda s: c.bound_band(s, delta=DELTA)),
        "bound_threshold": (sampled, lambda s: c.bound_threshold(s, delta=DELTA)),
        "bound_threshold, split": (sampled, lambda s: c.bound_threshold(s, delta=DELTA, threshold=c.Split())),
        "bound_pointwise": (sampled, lambda s: c.bound_pointwise(s, delta=DELTA)),
        "bound_bayesian": (sampled, lambda s: c.bound_bayesian(s, delta=DELTA)),
        "bound_gdp": (sampled, lambda s: c.bound_gdp(s, delta=DELTA)),
        "bound_one_run": (sampled, lambda s: c.bound_one_run(s, delta=DELTA / 100)),
        "bound_one_run_fdp": (sampled, lambda s: c.bound_one_run_fdp(s, delta=DELTA)),
        "bound_lifted, 1,000 runs": (runs, lambda s: c.bound_lifted(s, delta=DELTA, threshold=c.Fixed(1.0))),
        "bound_anytime": (exact, lambda s: c.bound_anytime(s, delta=DELTA)),
        "audit_scores, exact null": (exact, lambda s: c.audit_scores(s, delta=DELTA, claim=c.Claim(30.0, DELTA))),
    }


def main() -> None:
    rows = {}
    for name, (scores, work) in designs().items():
        start = time.perf_counter()
        np.sort(scores.value)
        sorting = time.perf_counter() - start
        start = time.perf_counter()
        work(scores)
        seconds = time.perf_counter() - start
        tracemalloc.start()
        work(scores)
        peak = tracemalloc.get_traced_memory()[1] / scores.value.nbytes
        tracemalloc.stop()
        rows[name] = {"seconds": seconds, "ratio_to_sorting": seconds / sorting, "peak_memory_in_scores": peak}
        print(f"{name:40} {seconds:7.2f} s  {seconds / sorting:7.1f} x sorting  {peak:5.1f} x memory of the scores", flush=True)
    path = Path(__file__).parent / "results" / "scale.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"scores": SCORES, "methods": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
