r"""The worst pair of examples under Gaussian weights, where everything else has covariance `least` in the directions they use.

An example g adds g gᵀ/(BD) to the covariance and g/D to the mean of the sum. In units of sqrt(least), with
u = g/sqrt(B D least) and kappa = sqrt(B/D), replacing g by g' is the pair

    P = N(kappa u, I + u uᵀ),     Q = N(kappa v, I + v vᵀ),     |u|, |v| <= rho = C / sqrt(B D least),

which is two-dimensional, so that `pair_epsilon` is exact. The maximum over all such pairs need not be at a symmetric point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coalmine import _validate
from coalmine.gaussian_pairs import pair_epsilon, standard_pair


@dataclass(frozen=True)
class ExamplePair:
    """Two examples in the plane that they span: their lengths in units of the clip norm, and the angle between them."""

    first: float
    second: float
    angle: float

    def whitened(self, rho: float, kappa: float) -> tuple[np.ndarray, np.ndarray]:
        """(variances, means) of the first against the second, in coordinates in which the second is standard normal."""
        u = rho * self.first * np.array([1.0, 0.0])
        v = rho * self.second * np.array([math.cos(self.angle), math.sin(self.angle)])
        return standard_pair(kappa * u, np.eye(2) + np.outer(u, u), kappa * v, np.eye(2) + np.outer(v, v))


OPPOSITE = ExamplePair(1.0, 1.0, math.pi)
ORTHOGONAL = ExamplePair(1.0, 1.0, math.pi / 2)
ZERO = ExamplePair(1.0, 0.0, 0.0)


def example_pair_epsilon(
    pair: ExamplePair,
    *,
    least: float,
    clip_norm: float,
    examples: int,
    batch: float,
    delta: float,
    times: int = 1,
    order: str = "both",
) -> float:
    """The exact epsilon of one pair of examples.

    >>> setting = dict(least=0.05, clip_norm=10.0, examples=1200, batch=32, delta=1e-4)
    >>> round(example_pair_epsilon(OPPOSITE, **setting), 9)
    0.192505695
    """
    rho = _validate.positive("clip_norm", clip_norm) / math.sqrt(batch * examples * _validate.positive("least", least))
    variances, means = pair.whitened(rho, math.sqrt(batch / examples))
    return pair_epsilon(variances, means, delta, order=order, times=times)  # type: ignore[arg-type]


def worst_example_pair(
    *, least: float, clip_norm: float, examples: int, batch: float, delta: float, times: int = 1
) -> tuple[float, ExamplePair]:
    """(epsilon, pair): the worst one found, from several starts. A lower bound of the maximum, as every search is."""
    from scipy.optimize import minimize

    rho = clip_norm / math.sqrt(batch * examples * least)
    kappa = math.sqrt(batch / examples)

    def negative(point: np.ndarray) -> float:
        first, second = np.clip(point[:2], 0.0, 1.0)
        variances, means = ExamplePair(float(first), float(second), float(point[2])).whitened(rho, kappa)
        return -pair_epsilon(variances, means, delta, times=times)

    starts = ((1.0, 1.0, math.pi), (1.0, 1.0, math.pi / 2), (1.0, 0.05, math.pi / 2), (1.0, 1.0, 0.6 * math.pi))
    found = [minimize(negative, start, method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-9}) for start in starts]
    best = min(found, key=lambda each: each.fun)
    first, second = np.clip(best.x[:2], 0.0, 1.0)
    return -float(best.fun), ExamplePair(float(first), float(second), float(best.x[2]))
