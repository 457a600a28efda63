"""Do the scores look as the estimate assumes? Tests of shape and width for standardised inserted scores.

Anderson–Darling alone does not protect an estimate at small delta: with 1,000 scores it misses Student's t with 20
degrees of freedom in 3 of 4 cases, where the true epsilon is three times the fitted one. The kurtosis test is
stronger against heavy tails, and no test replaces the flag that says how far the estimate extrapolates.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from coalmine.contracts import Array, Caveat

SUSPICIOUS = 0.01  # a p-value below this is reported as a flag


@dataclass(frozen=True)
class Diagnostics:
    """Shape and width of the inserted scores in units of the null's standard deviation; p-values where a test was possible."""

    count: int
    mean: float
    std: float  # ddof = 1
    variance_p_value: float | None  # two-sided test of "the same width as the null"
    anderson_darling: float | None  # A* of D'Agostino & Stephens for estimated mean and width
    normality_p_value: float | None
    skewness: float | None
    skewness_p_value: float | None
    excess_kurtosis: float | None
    heavy_tail_p_value: float | None  # one-sided: tails heavier than normal
    largest: float  # the largest standardised distance from the mean

    @property
    def findings(self) -> tuple[Caveat, ...]:
        """What is suspicious."""
        tests = {
            "variance": self.variance_p_value,
            "normality": self.normality_p_value,
            "skewness": self.skewness_p_value,
            "heavy-tail": self.heavy_tail_p_value,
        }
        return tuple(
            Caveat(code, {"p_value": p, "width": self.std}) for code, p in tests.items() if p is not None and p < SUSPICIOUS
        )


def diagnose(standardised: Array, null_count: int | None = None) -> Diagnostics:
    """Diagnostics of inserted scores in units of the null, which `null_count` held-out scores set (None: a known law)."""
    count = standardised.size
    mean = float(standardised.mean())
    varied = bool(np.ptp(standardised) > 0)  # the deviation of equal numbers may be a rounding error away from zero
    std = float(standardised.std(ddof=1)) if varied else 0.0
    testable = count >= 8 and std > 0
    z = (standardised - mean) / std if std > 0 else np.zeros(count)
    statistic = anderson_darling(z) if testable else None
    skewness = float(np.mean(z**3)) if testable else None
    kurtosis = float(np.mean(z**4)) - 3 if testable else None
    return Diagnostics(
        count=count,
        mean=mean,
        std=std,
        variance_p_value=_variance_p_value(std**2, count, null_count) if count > 1 else None,
        anderson_darling=statistic,
        normality_p_value=None if statistic is None else anderson_p_value(statistic),
        skewness=skewness,
        skewness_p_value=None if skewness is None else float(2 * special.ndtr(-abs(skewness) * np.sqrt(count / 6))),
        excess_kurtosis=kurtosis,
        heavy_tail_p_value=None if kurtosis is None else float(special.ndtr(-kurtosis * np.sqrt(count / 24))),
        largest=float(np.abs(z).max()),
    )


def anderson_darling(z: Array) -> float:
    """A* = A² (1 + 0.75/n + 2.25/n²) for scores standardised by their own mean and standard deviation (ddof = 1).

    A² = -n - mean((2i-1)(log Phi(z_(i)) + log Phi(-z_(n+1-i)))). Critical values .561 / .752 / 1.035 at 15 / 5 / 1 %.
    """
    n, ordered = z.size, np.sort(z)
    weights = 2 * np.arange(1, n + 1) - 1
    square = -n - float(np.mean(weights * (special.log_ndtr(ordered) + special.log_ndtr(-ordered[::-1]))))
    return square * (1 + 0.75 / n + 2.25 / n**2)


def anderson_p_value(a: float) -> float:
    """The approximation of D'Agostino & Stephens (1986, table 4.9)."""
    a = min(a, 100.0)
    if a >= 0.6:
        return float(np.exp(1.2937 - 5.709 * a + 0.0186 * a**2))
    if a > 0.34:
        return float(np.exp(0.9177 - 4.279 * a - 1.38 * a**2))
    if a > 0.2:
        return float(1 - np.exp(-8.318 + 42.796 * a - 59.938 * a**2))
    return float(1 - np.exp(-13.436 + 101.14 * a - 223.73 * a**2))


def _variance_p_value(ratio: float, count: int, null_count: int | None) -> float:
    """Two-sided test of equal variances: chi² against a known null, F against held-out scores."""
    if null_count is None:
        below = float(special.chdtr(count - 1, (count - 1) * ratio))
    else:
        below = float(special.fdtr(count - 1, null_count - 1, ratio))
    return 2 * min(below, 1 - below)
