"""A million scores through every estimator and bound: processor seconds of several repeats, and memory against their size.

Writes benchmarks/results/scale.json. Peak memory is measured with tracemalloc in a pass of its own, in units of the scores.
(Times were once given in units of sorting the same scores; sorting differs by 2 to 8 between machines.)

    python benchmarks/scale.py
"""

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from machine import machine

import coalmine

SCORES, DELTA, REPEATS = 1_000_000, 1e-6, 3


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
    rows, about = {}, machine()
    for name, (scores, work) in designs().items():
        spent = []
        for _ in range(REPEATS):
            start = time.process_time()
            work(scores)
            spent.append((time.process_time() - start) * 1e6 / SCORES)
        tracemalloc.start()
        work(scores)
        peak = tracemalloc.get_traced_memory()[1] / scores.value.nbytes
        tracemalloc.stop()
        rows[name] = {"processor_seconds_per_million": sorted(spent), "peak_memory_in_scores": peak}
        shown = f"{min(spent):6.3f} to {max(spent):6.3f} s"
        print(f"{name:40} {shown} per million scores  {peak:5.1f} x memory of the scores", flush=True)
    path = Path(__file__).parent / "results" / "scale.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": about, "scores": SCORES, "methods": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
