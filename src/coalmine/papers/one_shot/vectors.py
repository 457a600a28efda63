"""Table 1 with the canaries as vectors: no short cut, at a million dimensions, through the package's own sphere canaries.

The exact sampler of Table 1 never makes a vector. Here a thousand canaries are drawn, added to noise and looked for again, as
in Algorithm 1; what comes out must be what the sampler gives. A simulation draws two billion normals, so that there are few.
"""

from __future__ import annotations

import numpy as np

from coalmine._random import stream
from coalmine.canaries import SphereCanaries
from coalmine.gaussian import gaussian_epsilon
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperRow
from coalmine.papers.kit.printed import read_mean
from coalmine.papers.kit.rules import AGREES
from coalmine.papers.one_shot.numbers import SIMULATIONS, TABLE1

DELTA = 1e-6


def direct_rows(ask: Ask) -> list[PaperRow]:
    """A row for every noise multiplier, at a million dimensions, or ten thousand if it must be quick."""
    dim = ask.pick(full=1_000_000, quick=10_000)
    count = min(ask.repeat(full=5, quick=20), ask.pick(full=5, quick=20))
    jobs = [(dim, noise, ask.seed, number) for noise in TABLE1 for number in range(count)]
    found = np.array(ask.each(estimate, jobs, "table 1, vectors")).reshape(-1, count)
    rows = []
    for (noise, by_dim), values in zip(TABLE1.items(), found, strict=True):
        paper = by_dim[dim]
        mean, std = read_mean(paper)
        distance = (values.mean() - mean) / np.sqrt(std**2 / count + std**2 / SIMULATIONS)  # few of ours: their width
        rows.append(
            PaperRow(
                what=f"mean, d = {dim:,}, sigma = {noise:g}, vectors",
                paper=paper,
                ours=float(values.mean()),
                error=float(values.std(ddof=1)),
                verdict="exact" if abs(distance) <= AGREES else "differs",
                note=f"{count} simulations; z {distance:+.1f}",
                place={"estimator": "mean", "dim": dim, "sigma": noise, "method": "vectors"},
            )
        )
    return rows


def estimate(job: tuple[int, float, int, int]) -> float:
    """The mean-only estimate of one simulation."""
    dim, noise, seed, number = job
    count = round(dim**0.5)
    canaries = SphereCanaries(dim, count, secret_seed=seed * 1_000_003 + number)
    release = canaries.combine(np.arange(count), np.ones(count)).astype(np.float64)
    release += noise * stream(seed, "noise of table 1", dim, repr(noise), number).standard_normal(dim)
    mean = float(canaries.project(release).mean()) / float(np.linalg.norm(release)) * dim**0.5
    return float(gaussian_epsilon(0.0, 1.0, max(mean, 0.0), 1.0, DELTA))
