"""Null laws: how a canary's score is distributed when the canary took no part.

With an exact null no held-out canaries are needed, no confidence is spent on the false-positive rate, and a bound has no
ceiling. `CosineNull` is the law of Proposition 3.1 of the one-shot paper; `MaxNull` serves Algorithm 3 (the maximum
over rounds).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from coalmine import _validate
from coalmine.contracts import Array, Null

_FAR = 1e-4  # below this the continued fraction is more accurate than betainc at large dimensions, and cannot underflow


@dataclass(frozen=True)
class CosineNull:
    """The cosine between a uniformly random direction and any fixed vector of R^dim, exactly.

    (1 + cosine)/2 is Beta((dim-1)/2, (dim-1)/2) distributed, so the upper tail at t >= 0 is ½ I_{1-t²}((dim-1)/2, ½).
    The usual approximation N(0, 1/dim) is good in the bulk only: its log tail is off by z⁴/(4 dim) nats at z standard
    deviations (2.6 nats at dim = 1000, z = 10), always on the safe side.

    >>> CosineNull(3).sf(0.5)            # in three dimensions the cosine is uniform on [-1, 1]
    0.25
    >>> round(CosineNull(1_000_000).logsf(0.04), 4)
    -805.2483
    """

    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", _validate.whole("dim", self.dim, least=2))

    @property
    def name(self) -> str:
        """In words, for reports."""
        return f"cosine with a random direction in {self.dim:,} dimensions, exact"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """None: the law is exact."""
        return ()

    center = 0.0
    slack = 0.0

    @property
    def spread(self) -> float:
        """The standard deviation, 1/sqrt(dim)."""
        return float(self.dim**-0.5)

    def logsf(self, value: ArrayLike) -> Any:
        """log P(cosine >= value), accurate far below the smallest double."""
        t = np.clip(_numbers(value), -1.0, 1.0)
        upper = self._log_tail(np.abs(t))
        with np.errstate(divide="ignore"):
            return _scalar(np.where(t >= 0, upper, np.log1p(-np.exp(upper))))

    def logcdf(self, value: ArrayLike) -> Any:
        """log P(cosine <= value)."""
        return self.logsf(-_numbers(value))

    def sf(self, value: ArrayLike) -> Any:
        """P(cosine >= value)."""
        t = np.clip(_numbers(value), -1.0, 1.0)
        upper = self._tail(np.abs(t))
        return _scalar(np.where(t >= 0, upper, 1.0 - upper))

    def cdf(self, value: ArrayLike) -> Any:
        """P(cosine <= value)."""
        return self.sf(-_numbers(value))

    def ppf(self, probability: ArrayLike) -> Any:
        """The quantile: the value that the cosine stays below with this probability."""
        p = _numbers(probability)
        if not ((p >= 0) & (p <= 1)).all():
            raise ValueError("probability must lie between 0 and 1.")
        small = np.minimum(p, 1 - p)
        # I_{1-t²}((d-1)/2, ½) = 2p; the complementary inverse is accurate in 1-t² near 0, the other one in t² near 0
        tail = special.betaincinv(self._shape, 0.5, 2 * small)
        center = special.betaincinv(0.5, self._shape, np.maximum(1 - 2 * small, 0.0))
        t = np.where(small < 0.25, np.sqrt(np.maximum(1 - tail, 0.0)), np.sqrt(center))
        return _scalar(np.where(p < 0.5, -self._polish(t, small), self._polish(t, small)))

    def rvs(self, size: int | tuple[int, ...] = (), *, rng: np.random.Generator) -> Any:
        """Random cosines, exactly distributed at any dimension: N / sqrt(N² + chi²_{dim-1})."""
        normal = rng.standard_normal(size)
        return _scalar(normal / np.sqrt(normal**2 + rng.chisquare(self.dim - 1, size)))

    @property
    def _shape(self) -> float:
        return (self.dim - 1) / 2

    def _polish(self, t: Array, tail: Array) -> Array:
        """Newton steps on log tail(t) = log tail, which the incomplete beta inverse leaves a few digits short."""
        t = np.asarray(t, dtype=np.float64)
        inner = (tail > 0) & (tail < 0.5) & (t < 1)
        if not inner.any():
            return np.asarray(np.where(tail >= 0.5, 0.0, t))
        x, target = t[inner], np.log(tail[inner])
        for _ in range(4):
            log_tail = self._log_tail(x)
            slope = np.exp((self.dim - 3) / 2 * (np.log1p(-x) + np.log1p(x)) - self._log_beta - log_tail)
            with np.errstate(invalid="ignore", divide="ignore"):
                step = np.nan_to_num((log_tail - target) / slope)
            x = np.clip(x + step, 0.0, 1.0)
        out = np.where(tail >= 0.5, 0.0, t)
        out[inner] = x
        return out

    def _tail(self, t: Array) -> Array:
        """P(cosine >= t) for t >= 0; near the centre from t², elsewhere from 1 - t²."""
        center = 0.5 - 0.5 * special.betainc(0.5, self._shape, t * t)
        outer = 0.5 * special.betainc(self._shape, 0.5, (1 - t) * (1 + t))
        return np.asarray(np.where(t * t * self.dim < 1.0, center, outer))

    def _log_tail(self, t: Array) -> Array:
        tail = self._tail(t)
        with np.errstate(divide="ignore"):
            found = np.array(np.log(tail))
        far = (tail < _FAR) & (t < 1)
        if far.any():
            found[far] = self._far_log_tail(t[far])
        return found

    def _far_log_tail(self, t: Array) -> Array:
        """log ½ I_x(a, ½) by the continued fraction of the incomplete beta function, x = 1 - t² and a = (dim-1)/2."""
        a, log_x = self._shape, np.log1p(-t) + np.log1p(t)
        return np.asarray(
            a * log_x + np.log(t) - np.log(a) - self._log_beta + np.log(_beta_fraction(a, 0.5, np.exp(log_x))) - np.log(2)
        )

    @cached_property
    def _log_beta(self) -> float:
        """log B(a, ½) = ½ log pi + log Gamma(a) - log Gamma(a + ½), by its asymptotic series where the two would cancel."""
        a = self._shape
        if a < 30:
            return float(special.betaln(a, 0.5))
        inverse = 1 / a**2
        series = (-1 / 8 + inverse * (1 / 192 + inverse * (-1 / 640 + inverse * (17 / 14336 - inverse * 31 / 18432)))) / a
        return float(0.5 * np.log(np.pi) - 0.5 * np.log(a) - series)


@dataclass(frozen=True)
class GaussianNull:
    """A normal law, for scores that are noise projected on a unit direction.

    `slack` adds that many nats to the log tail: log(3.18) covers any sum of random signs of the same variance
    (Bentkus & Dzindzalieta 2015), hence transform canaries whose score contains other clients' updates.
    """

    spread: float = 1.0
    center: float = 0.0
    slack: float = 0.0

    def __post_init__(self) -> None:
        _validate.positive("spread", self.spread)
        _validate.non_negative("slack", self.slack)
        _validate.number("center", self.center)

    @property
    def name(self) -> str:
        """In words, for reports."""
        tail = f", tail enlarged by {self.slack:.2f} nats" if self.slack else ""
        return f"normal with mean {self.center:g} and standard deviation {self.spread:g}{tail}"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """That the scores of canaries that took no part are normal."""
        return (f"held-out scores follow a {self.name} law",)

    def logsf(self, value: ArrayLike) -> Any:
        """log P(score >= value), plus the slack, at most 0."""
        z = (_numbers(value) - self.center) / self.spread
        return _scalar(np.minimum(special.log_ndtr(-z) + self.slack, 0.0))


@dataclass(frozen=True)
class MaxNull:
    """The maximum of `rounds` scores of one law, however they depend on each other: P(max >= x) <= rounds · P(score >= x).

    The price is at most log(rounds) nats, and it buys independence from the trajectory: the papers need unobserved canaries
    for Algorithm 3, since the joint law of a canary's cosines depends on the releases; the union bound does not.
    """

    base: Null
    rounds: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", _validate.whole("rounds", self.rounds, least=1))

    @property
    def name(self) -> str:
        """In words, for reports."""
        return f"maximum over {self.rounds} rounds (union bound) of: {self.base.name}"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of the law of one round."""
        return self.base.assumptions

    @property
    def slack(self) -> float:
        """log(rounds) at most, and the slack of the law of one round."""
        return float(np.log(self.rounds)) + self.base.slack

    @property
    def center(self) -> float:
        """No single number: the mean of a maximum depends on the trajectory."""
        raise ValueError(_NO_MOMENTS)

    @property
    def spread(self) -> float:
        """No single number: the spread of a maximum depends on the trajectory."""
        raise ValueError(_NO_MOMENTS)

    def logsf(self, value: ArrayLike) -> Any:
        """log of the union bound, at most 0."""
        return _scalar(np.minimum(self.base.logsf(value) + np.log(self.rounds), 0.0))


_NO_MOMENTS = (
    "the maximum over rounds has no mean or spread of its own: both depend on the trajectory. "
    "Use bound_band, which needs the tail only, or score held-out canaries and pass them."
)


def _numbers(value: ArrayLike) -> Array:
    array = np.asarray(value, dtype=np.float64)
    if np.isnan(array).any():
        raise ValueError("the value contains NaN; a number is needed.")
    return array


def _scalar(array: Any) -> Any:
    return float(array) if np.ndim(array) == 0 else array


def _beta_fraction(a: float, b: float, x: Array) -> Array:
    """The continued fraction of the incomplete beta function by Lentz's method (Abramowitz & Stegun 26.5.8)."""
    c = np.ones_like(x)
    d = 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    fraction = d.copy()
    active = np.arange(x.size)
    for i in range(1, 20_000):
        part = x[active]
        even = i * (b - i) * part / ((a + 2 * i - 1) * (a + 2 * i))
        odd = -(a + i) * (a + b + i) * part / ((a + 2 * i) * (a + 2 * i + 1))
        for coefficient in (even, odd):
            d[active] = 1.0 / (1.0 + coefficient * d[active])
            c[active] = 1.0 + coefficient / c[active]
            change = c[active] * d[active]
            fraction[active] *= change
        active = active[np.abs(change - 1.0) > 1e-15]
        if active.size == 0:
            break
    return fraction
