"""Table 1 of the one-shot paper (Andrew et al., ICLR 2024): one-shot audits of the Gaussian mechanism.

d = 10⁴ … 10⁷ dimensions, k = sqrt(d) canaries, delta = 10⁻⁶, three noise levels, mean and standard deviation of 50
simulations each. Both estimators run on the same simulated scores: "mean" (mean-only, our default) and "fitted"
(mean and width, the algorithm as printed).

The z-scores count the sampling error of both sides, 50 simulations each, and the rounding of the printed numbers.
The mean-only estimator agrees with the printed table; the literal one does not, and is too large in every cell (see
`docs/sharp-edges.md`).
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine.contracts import plain
from coalmine.gaussian import gaussian_epsilon
from coalmine.simulation import simulate_gaussian_mechanism

DELTA = 1e-6
DIMS = (10_000, 100_000, 1_000_000, 10_000_000)
# noise multiplier -> mean ± standard deviation for each dimension, digit for digit as printed
PRINTED = {
    0.541: ("9.89 ± 0.71", "10.1 ± 0.41", "10.0 ± 0.23", "10.0 ± 0.10"),
    1.54: ("3.00 ± 0.46", "3.00 ± 0.31", "2.96 ± 0.15", "3.00 ± 0.08"),
    4.22: ("0.98 ± 0.41", "1.05 ± 0.23", "0.99 ± 0.14", "1.00 ± 0.07"),
}
PRINTED_SIMULATIONS = 50
ESTIMATORS = ("mean", "fitted")


@dataclass(frozen=True)
class Cell:
    """One cell of the table for one estimator."""

    estimator: str
    dim: int
    canaries: int
    sigma: float
    analytic: float
    paper_mean: float
    paper_std: float
    mean: float
    std: float
    z_mean: float
    z_std: float


@dataclass(frozen=True)
class Table1:
    """All cells, twelve for each estimator."""

    simulations: int
    seed: int
    cells: tuple[Cell, ...]

    def worst(self, estimator: str) -> float:
        """The largest |z| among the means and standard deviations of one estimator."""
        return max(max(abs(cell.z_mean), abs(cell.z_std)) for cell in self.cells if cell.estimator == estimator)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {**plain(self), "worst_z": {name: self.worst(name) for name in ESTIMATORS}}

    def __str__(self) -> str:
        lines = [
            "Table 1, one-shot audits of the Gaussian mechanism: "
            f"delta = {DELTA:g}, k = sqrt(d), {self.simulations} simulations, seed {self.seed}",
            f"{'estimator':>10}{'d':>12}{'sigma':>7}{'analytic':>10}{'paper':>15}{'ours':>15}{'z mean':>8}{'z std':>7}",
        ]
        for cell in self.cells:
            paper, ours = PRINTED[cell.sigma][DIMS.index(cell.dim)], f"{cell.mean:.2f} ± {cell.std:.2f}"
            lines.append(
                f"{cell.estimator:>10}{cell.dim:>12,}{cell.sigma:>7g}{cell.analytic:>10.3f}{paper:>15}{ours:>15}"
                f"{cell.z_mean:>8.1f}{cell.z_std:>7.1f}"
            )
        worst = ", ".join(f"{name} {self.worst(name):.1f}" for name in ESTIMATORS)
        return "\n".join([*lines, f"largest |z|: {worst}"])


def table1(
    *,
    simulations: int = 50,
    seed: int = 0,
    workers: int = 1,
    track: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Table1:
    """Run the whole table; `track` wraps the sequence of finished simulations, for a progress bar."""
    _validate.whole("simulations", simulations, least=2)
    _validate.whole("workers", workers, least=1)
    jobs = [(dim, sigma, seed, number) for dim in reversed(DIMS) for sigma in PRINTED for number in range(simulations)]
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            fits = list(track(_Counted(pool.map(_fit, jobs, chunksize=5), len(jobs))))
    else:
        fits = list(track(_Counted(map(_fit, jobs), len(jobs))))
    drawn: dict[tuple[int, float], list[tuple[float, float]]] = {}
    for (dim, sigma, *_), fit in zip(jobs, fits, strict=True):
        drawn.setdefault((dim, sigma), []).append(fit)
    cells = [_cell(name, dim, sigma, np.array(drawn[dim, sigma])) for name in ESTIMATORS for sigma in PRINTED for dim in DIMS]
    return Table1(simulations, seed, tuple(cells))


def _fit(job: tuple[int, float, int, int]) -> tuple[float, float]:
    """(mean, standard deviation) of the cosines of one simulated audit, in units of the null."""
    dim, sigma, seed, number = job
    scores = simulate_gaussian_mechanism(dim, round(dim**0.5), sigma, seed=seed * 1_000_003 + number)
    standardised = scores.inserted_values * dim**0.5
    return float(standardised.mean()), float(standardised.std())


def _cell(estimator: str, dim: int, sigma: float, fits: Any) -> Cell:
    """Epsilon of every simulation at once, and its distance from the printed cell."""
    widths = 1.0 if estimator == "mean" else fits[:, 1]
    epsilons = gaussian_epsilon(0.0, 1.0, np.maximum(fits[:, 0], 0.0) if estimator == "mean" else fits[:, 0], widths, DELTA)
    (paper_mean, mean_digit), (paper_std, std_digit) = map(_number, PRINTED[sigma][DIMS.index(dim)].split(" ± "))
    mean, std, count = float(epsilons.mean()), float(epsilons.std(ddof=1)), len(epsilons)
    mean_error = np.sqrt(std**2 / count + paper_std**2 / PRINTED_SIMULATIONS + mean_digit**2 / 12)
    std_error = np.sqrt(std**2 / (2 * (count - 1)) + paper_std**2 / (2 * (PRINTED_SIMULATIONS - 1)) + std_digit**2 / 12)
    return Cell(
        estimator=estimator,
        dim=dim,
        canaries=round(dim**0.5),
        sigma=sigma,
        analytic=float(gaussian_epsilon(0.0, 1.0, 1 / sigma, 1.0, DELTA)),
        paper_mean=paper_mean,
        paper_std=paper_std,
        mean=mean,
        std=std,
        z_mean=float((mean - paper_mean) / mean_error),
        z_std=float((std - paper_std) / std_error),
    )


def _number(printed: str) -> tuple[float, float]:
    """(value, size of its last digit)."""
    return float(printed), 10.0 ** -len(printed.partition(".")[2])


class _Counted:
    """An iterable that knows its length, so that progress can be shown."""

    def __init__(self, items: Iterable[Any], length: int) -> None:
        self.items, self.length = items, length

    def __iter__(self) -> Any:
        return iter(self.items)

    def __len__(self) -> int:
        return self.length
