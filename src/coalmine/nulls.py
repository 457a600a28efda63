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

_SPREAD_RISK = 1e-4  # that a measured spread is further from the true one than its law allows for
_FAR = 1e-4  # below this the logarithm of the tail comes from a continued fraction, which cannot underflow


@dataclass(frozen=True)
class CosineNull:
    """The cosine between a uniformly random direction and any fixed vector of `dim` dimensions, exactly.

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
        """That the scores are what they are said to be; given that, the law is exact."""
        return (f"scores are cosines with independent, uniformly random directions of {self.dim:,} dimensions",)

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
        t = np.sqrt(special.betainccinv(0.5, self._shape, 2 * small))  # 1 - I_{t²}(½, (d-1)/2) = 2p
        t = self._polish(t, small)
        return _scalar(np.where(p < 0.5, -t, t))

    def rvs(self, size: int | tuple[int, ...] = (), rng: np.random.Generator | int | None = None) -> Any:
        """Random cosines, exactly distributed at any dimension: N / sqrt(N² + chi²_{dim-1}).

        `rng` is a generator or a seed; without it the numbers are fresh.
        """
        rng = np.random.default_rng(rng)
        normal = rng.standard_normal(size)
        return _scalar(normal / np.sqrt(normal**2 + rng.chisquare(self.dim - 1, size)))

    @property
    def _shape(self) -> float:
        return (self.dim - 1) / 2

    def _polish(self, t: Array, tail: Array) -> Array:
        """Newton steps on log tail(t) = log tail: the beta inverse is short of digits at dim = 2 and below 1e-308."""
        t = np.asarray(t, dtype=np.float64)
        inner = (tail > 0) & (tail < 0.5) & (t < 1)
        if not inner.any():
            return np.asarray(np.where(tail >= 0.5, 0.0, t))
        x, target = t[inner], np.log(tail[inner])
        for _ in range(4):
            log_tail = self._log_tail(x)
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                slope = np.exp((self.dim - 3) / 2 * (np.log1p(-x) + np.log1p(x)) - self._log_beta - log_tail)
                step = (log_tail - target) / slope
            x = np.clip(x + np.where(np.isfinite(step), step, 0.0), 0.0, 1.0)
        out = np.where(tail >= 0.5, 0.0, t)
        out[inner] = x
        return out

    def _tail(self, t: Array) -> Array:
        """P(cosine >= t) for t >= 0, from t² or from 1 - t², whichever is the exact one."""
        if self.dim == 2:  # where betaincc has few digits near its centre
            return np.asarray(np.arccos(t) / np.pi)
        center = special.betaincc(0.5, self._shape, t * t)
        return np.asarray(0.5 * np.where(t < 0.7, center, special.betainc(self._shape, 0.5, (1 - t) * (1 + t))))

    def _log_tail(self, t: Array) -> Array:
        tail = self._tail(t)
        with np.errstate(divide="ignore"):
            found = np.array(np.log(tail))
        far = (tail < _FAR) & (t < 1)
        if far.any():
            found[far] = self._far_log_tail(t[far])
        return found

    def _far_log_tail(self, t: Array) -> Array:
        """log ½ I_x(a, ½) = log( x^a / (2 a t B(a, ½)) · 2F1(1, ½; a+1; -x/t²) ) with x = 1 - t² and a = (dim-1)/2."""
        a, x = self._shape, (1 - t) * (1 + t)
        log_x = np.where(t < 0.5, np.log1p(-t * t), np.log(x))
        return np.asarray(a * log_x - np.log(2 * a * t) - self._log_beta + np.log(_gauss_fraction(a, x / t**2)))

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
    """A normal law, for scores that are noise projected on a unit direction: standard deviation `spread`, mean `center`.

    `slack` adds that many nats to the log tail: log(3.18) covers any sum of random signs of the same variance
    (Bentkus & Dzindzalieta 2015), hence transform canaries whose score contains other clients' updates.

    `directions` says on how many unused directions the spread was measured, if it was. The chance to exceed a value is then the
    largest that the measurement allows, at a risk of 1 in 10,000: above the centre that of a wider normal, below it that of
    a narrower one.
    """

    spread: float = 1.0
    center: float = 0.0
    slack: float = 0.0
    directions: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spread", _validate.positive("spread", self.spread))
        object.__setattr__(self, "center", _validate.between("center", self.center, -np.inf, np.inf))
        object.__setattr__(self, "slack", _validate.non_negative("slack", self.slack))
        if self.directions is not None:
            object.__setattr__(self, "directions", _validate.whole("directions", self.directions, least=2))

    @property
    def name(self) -> str:
        """In words, for reports."""
        tail = f", tail enlarged by {self.slack:.2f} nats" if self.slack else ""
        if self.directions is not None:
            wider = f"{100 * (self.widening - 1):.2g} %"
            tail = f" (measured on {self.directions:,} unused directions, the tail is for {wider} more){tail}"
        return f"normal with mean {self.center:g} and standard deviation {self.spread:g}{tail}"

    @property
    def widening(self) -> float:
        """How much larger than measured the spread may be: n times the square of their quotient is chi² with n degrees."""
        return self._limits[1]

    @cached_property
    def _limits(self) -> tuple[float, float]:
        """True spreads that the measurement allows, in units of the measured one."""
        if self.directions is None:
            return 1.0, 1.0
        n = self.directions
        low, high = np.sqrt(n / special.chdtri(n, [_SPREAD_RISK / 2, 1 - _SPREAD_RISK / 2]))
        return float(low), float(high)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """That the scores of canaries that took no part are normal."""
        return (f"held-out scores are {self.name}",)

    def logsf(self, value: ArrayLike) -> Any:
        """log P(score >= value), plus the slack, at most 0."""
        with np.errstate(over="ignore"):
            z = (_numbers(value) - self.center) / self.spread
            z = z / np.where(z < 0, *self._limits)
        return _scalar(np.minimum(special.log_ndtr(-z) + self.slack, 0.0))


@dataclass(frozen=True)
class MaxNull:
    """The maximum of `rounds` scores of one law `base`, however they depend: P(max >= x) <= rounds · P(score >= x).

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


def of_one_round(null: Null) -> Null:
    """The law below all maxima over rounds."""
    while isinstance(null, MaxNull):
        null = null.base
    return null


def as_cosine(null: Null | None) -> CosineNull | None:
    """The law, if it is that of a cosine."""
    return null if isinstance(null, CosineNull) else None


def is_maximum(null: Null | None) -> bool:
    """Whether it is the law of a maximum over rounds."""
    return isinstance(null, MaxNull)


def measured_on(null: Null | None) -> int | None:
    """On how many unused directions the spread of the law was measured; None: it is known, or there is no law."""
    law = None if null is None else of_one_round(null)
    return law.directions if isinstance(law, GaussianNull) else None


def describe(null: Null | None) -> dict[str, Any] | None:
    """A null law as plain data, for files."""
    match null:
        case None:
            return None
        case CosineNull(dim):
            return {"law": "cosine", "dim": dim}
        case GaussianNull(spread, center, slack, directions):
            known = {"law": "gaussian", "spread": spread, "center": center, "slack": slack}
            return known if directions is None else {**known, "directions": directions}
        case MaxNull(base, rounds):
            return {"law": "max", "base": describe(base), "rounds": rounds}
    raise ValueError(f"a null law of type {type(null).__name__} cannot be saved; save scores.sampled() instead.")


def described(data: Any) -> Null | None:
    """The inverse of `describe`."""
    match data:
        case None:
            return None
        case {"law": "cosine", "dim": dim}:
            return CosineNull(dim)
        case {"law": "gaussian", "spread": spread, "center": center, "slack": slack}:
            return GaussianNull(spread, center, slack, data.get("directions"))
        case {"law": "max", "base": base, "rounds": rounds} if (law := described(base)) is not None:
            return MaxNull(law, rounds)
    raise ValueError(f"not a known null law: {str(data)[:80]}")


def _numbers(value: ArrayLike) -> Array:
    array = np.asarray(value, dtype=np.float64)
    if np.isnan(array).any():
        raise ValueError("the value contains NaN; a number is needed.")
    return array


def _scalar(array: Any) -> Any:
    return float(array) if np.ndim(array) == 0 else array


def _gauss_fraction(a: float, w: Array) -> Array:
    """2F1(1, ½; a+1; -w) for w >= 0 by Gauss's continued fraction and Lentz's method: all terms are positive, nothing cancels.

    At large a it is Laplace's fraction for the tail of the normal law.
    """
    c, d, fraction = np.ones_like(w), np.zeros_like(w), np.ones_like(w)
    active = np.arange(w.size)
    for k in range(20_000):
        part = w[active]
        odd = (k + 0.5) * (a + k) / ((a + 2 * k) * (a + 2 * k + 1)) * part
        even = (k + 1) * (a + k + 0.5) / ((a + 2 * k + 1) * (a + 2 * k + 2)) * part
        for coefficient in (odd, even):
            d[active] = 1.0 / (1.0 + coefficient * d[active])
            c[active] = 1.0 + coefficient / c[active]
            change = c[active] * d[active]
            fraction[active] *= change
        active = active[np.abs(change - 1.0) > 1e-15]
        if active.size == 0:
            break
    return 1.0 / fraction
