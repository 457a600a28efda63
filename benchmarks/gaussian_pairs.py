"""100,000 pairs of Gaussians: one vectorised call against a loop over a scalar root search.

The loop is the usual way: delta(epsilon) from scipy's log_ndtr at the roots of the privacy loss, brentq for the root, both
orders. It is timed on a part of the pairs. Ratios are taken in one run, alternating the two, and written to
benchmarks/results/gaussian_pairs.json.

    python benchmarks/gaussian_pairs.py
"""

import json
import math
import time
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

import coalmine

PAIRS, LOOPED, ROUNDS, DELTA = 100_000, 2_000, 7, 1e-6


def scalar_log_delta(epsilon: float, m: float, s: float) -> float:
    """log of the hockey-stick divergence of N(m, s²) from N(0, 1), for s != 1."""
    a, b, c = (1 - s**-2) / 2, m / s**2, -(m**2) / (2 * s**2) - math.log(s)
    discriminant = b * b - 4 * a * (c - epsilon)
    if discriminant <= 0:
        return -math.inf
    low, high = sorted(((-b - math.sqrt(discriminant)) / (2 * a), (-b + math.sqrt(discriminant)) / (2 * a)))

    def log_probability(mean: float, std: float) -> float:
        low_tail, high_tail = log_ndtr((low - mean) / std), log_ndtr(-(high - mean) / std)
        if a > 0:
            return float(np.logaddexp(low_tail, high_tail))
        return math.log1p(-min(math.exp(low_tail) + math.exp(high_tail), 1 - 1e-16))

    log_p, log_q = log_probability(m, s), log_probability(0.0, 1.0)
    return log_p + math.log(-math.expm1(epsilon + log_q - log_p)) if epsilon + log_q < log_p else -math.inf


def scalar_epsilon(m: float, s: float, delta: float) -> float:
    best, target = 0.0, math.log(delta)
    for gap, width in ((m, s), (m / s, 1 / s)):
        if scalar_log_delta(0.0, gap, width) <= target:
            continue
        high = 1.0
        while scalar_log_delta(high, gap, width) > target:
            high *= 2
        best = max(best, brentq(lambda e, g=gap, w=width: max(scalar_log_delta(e, g, w), -1e4) - target, 0.0, high))
    return best


def main() -> None:
    rng = np.random.default_rng(0)
    gaps, widths = rng.uniform(0, 6, PAIRS), np.exp(rng.normal(0, 0.2, PAIRS))
    ratios, agreement = [], 0.0
    for number in range(ROUNDS):
        start = time.perf_counter()
        ours = coalmine.gaussian_epsilon(0.0, 1.0, gaps, widths, DELTA)
        vectorised = time.perf_counter() - start
        part = slice(number * LOOPED, (number + 1) * LOOPED)
        start = time.perf_counter()
        looped = [scalar_epsilon(gap, width, DELTA) for gap, width in zip(gaps[part], widths[part], strict=True)]
        loop = (time.perf_counter() - start) * PAIRS / LOOPED
        ratios.append(loop / vectorised)
        agreement = max(agreement, float(np.max(np.abs(ours[part] / np.maximum(looped, 1e-12) - 1))))
        print(f"round {number + 1}: vectorised {vectorised:.2f} s, loop {loop:.0f} s (from {LOOPED}), ratio {ratios[-1]:.0f}")
    median = float(np.median(ratios))
    result = {"pairs": PAIRS, "ratios": ratios, "median_ratio": median, "largest_relative_difference": agreement}
    path = Path(__file__).parent / "results" / "gaussian_pairs.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
