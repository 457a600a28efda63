"""The long calibration: how often every bound and every interval is wrong, written as docs/calibration.md.

python benchmarks/calibrate.py --output docs/calibration.md [--audits 1000] [--workers 2] [--seed 0]
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from coalmine.calibration import APPROXIMATE, VALID, Case, ever_wrong, false_statements, misses
from coalmine.progress import track

TRUTHS = (0.0, 1.0, 3.0, 10.0, 30.0)
EXPENSIVE = {"lifted, split": 20, "Bayesian": 10}  # audits are divided by this


def share(job: tuple[Case, str | None, int, int]) -> tuple[int, int]:
    """(how often wrong, of how many) for one cell."""
    case, variance, audits, seed = job
    if variance is not None:
        return misses(case, variance, audits, seed=seed), audits
    audits //= EXPENSIVE.get(case.method, 1)
    return false_statements(case, audits, seed=seed), audits


def bound_rows() -> list[tuple[str, int, bool]]:
    methods = [
        (method, canaries, exact) for method in (*VALID, *APPROXIMATE) for canaries in (100, 1000) for exact in (True, False)
    ]
    return [
        (method, canaries, exact)
        for method, canaries, exact in methods
        if not (method.startswith("lifted") and exact) and not (method == "lifted, Bernstein 4" and canaries == 100)
    ]


def interval_rows() -> list[tuple[str, int, bool]]:
    return [
        (variance, canaries, exact) for variance in ("null", "fitted") for canaries in (100, 1000) for exact in (True, False)
    ]


def table(title: str, rows: list[tuple[str, int, bool]], cells: list[tuple[int, int]]) -> list[str]:
    lines = [
        f"| {title} | canaries | null | " + " | ".join(f"ε = {truth:g}" for truth in TRUTHS) + " |",
        "|---|---|---|" + "---|" * len(TRUTHS),
    ]
    for number, (name, canaries, exact) in enumerate(rows):
        part = cells[number * len(TRUTHS) : (number + 1) * len(TRUTHS)]
        shares = " | ".join(f"{100 * wrong / audits:.1f} %" for wrong, audits in part)
        lines.append(f"| {name} | {canaries} | {'exact' if exact else 'sampled'} | {shares} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--audits", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    bounds, intervals = bound_rows(), interval_rows()
    jobs = [
        (Case(method, epsilon=truth, canaries=canaries, exact_null=exact), None, options.audits, options.seed)
        for method, canaries, exact in bounds
        for truth in TRUTHS
    ]
    jobs += [
        (Case("band", epsilon=truth, canaries=canaries, exact_null=exact), variance, options.audits // 4, options.seed)
        for variance, canaries, exact in intervals
        for truth in TRUTHS
    ]
    with ProcessPoolExecutor(options.workers) as pool:
        cells = list(track(pool.map(share, jobs), "calibration", total=len(jobs)))
    split = len(bounds) * len(TRUTHS)
    ever = [ever_wrong(effect, scores=5000, sequences=options.audits, seed=options.seed) for effect in (0.0, 0.7)]
    text = [
        "# Calibration",
        "",
        f"Written by `make calibrate` ({options.audits} simulated audits per cell, seed {options.seed}; "
        + "expensive methods fewer: "
        + ", ".join(f"{name} 1/{factor}" for name, factor in EXPENSIVE.items())
        + "). Nothing here is edited by hand.",
        "",
        "## How often a 95 % bound exceeds the true epsilon",
        "",
        "Scores are N(0,1) held out and N(μ,1) inserted, δ = 1e-5. A valid bound may be wrong in at most 5 % of audits; "
        f"the rows from *{next(iter(APPROXIMATE))}* on are approximate methods, which say `valid=False`, "
        "and so does *anytime* with a sampled null. The columns of a row use the same random numbers."
        f" The sampling error of a cell at 5 % is {100 * (0.05 * 0.95 / options.audits) ** 0.5:.1f} points.",
        "",
        *table("bound", bounds, cells[:split]),
        "",
        "Anytime bound, looked at after each of 5,000 scores: ever above the true effect in "
        f"{100 * ever[0] / options.audits:.1f} % (no effect) and {100 * ever[1] / options.audits:.1f} % (effect 0.7) "
        f"of {options.audits} sequences.",
        "",
        "## How often a 95 % interval of the estimate misses the true epsilon",
        "",
        f"`null` is the mean-only estimate (default), `fitted` the literal algorithm; {options.audits // 4} audits per cell.",
        "",
        *table("variance", intervals, cells[split:]),
        "",
    ]
    options.output.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
