r"""What a canary's adversary learns from one round if it does not know the other clients, without sampling error.

Client i moves the score by x_i if it takes part, each with probability q; the canary moves it by `reach`; noise is sigma. The
adversary compares X + N(0, sigma²) with the same shifted by `reach`, where X = sum of b_i x_i (all in clip norms).

    log characteristic function of X = sum of log(1 - q + q e^{i w x_i})

* The law of X is computed on a lattice by FFT. One FFT is exact to 1e-16 of its largest value, and e^epsilon multiplies that
  error: above epsilon = 25 nothing would be left. So the law is computed several times, each time tilted by e^{t x} so that
  another part of its range is largest, and every place takes its probability from the tilt nearest to it.
* x_i between two lattice points is split over both with the right mean; the variance that this adds is known and taken from the
  noise.
* The range is chosen by Chernoff's bound: what is dropped, times e^epsilon, is below e^-10 delta.
* The convolution with the noise is done with logarithms.

It takes about `clients` times `lattice points` operations for each tilt, in blocks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine import _validate
from coalmine.contracts import Array
from coalmine.contracts.computed import Computed
from coalmine.gaussian import gaussian_epsilon

STATED = "the noise is normal and as large as stated; nothing here measures it"
POPULATION = "the projections are those of the whole population, and every client takes part with probability q, independently"
NEARLY = "the sum over the other clients is taken for normal: it adds less than a thousandth to the variance of the noise"
_STEPS = 48  # lattice points per noise standard deviation
_SPLIT = 0.01  # of the noise's variance, that splitting may add
_SMALL = 1e-3  # of the noise's variance
_MARGIN = 10.0  # of the logarithm of what may be dropped
_ROUNDING = 1e-13  # of the largest probability: what an FFT may be wrong by
_BLOCK = 2_000_000  # complex numbers in memory at once
_MOST = 20_000_000_000  # operations


def attack_epsilon(projections: ArrayLike, q: float, sigma: float, reach: float, delta: float) -> Computed:
    """Epsilon of the attack that scores one round along a canary's direction and does not know the other clients.

    `projections` has <u_i, direction> of every client's clipped update, `sigma` the noise multiplier and `reach` the length of
    the canary's own clipped update, all in clip norms.

    >>> perfect = attack_epsilon([0.0] * 100, 0.5, 1.0, 1.0, 1e-5)        # orthogonal to all others
    >>> crowded = attack_epsilon([0.3] * 100, 0.5, 1.0, 1.0, 1e-5)
    >>> round(perfect.epsilon, 3), round(crowded.epsilon, 2)
    (4.377, 2.29)

    Args:
        projections: Inner products of the others' clipped updates with the direction, in clip norms.
        q: Probability of a client in the round.
        sigma: Noise multiplier.
        reach: Length of the canary's own clipped update, in clip norms.
        delta: Of the statement, above 0 and below 1.

    Returns:
        The epsilon, computed under the assumptions that it lists; it decides nothing.
    """
    x = np.asarray(projections, dtype=np.float64).ravel()
    if not np.isfinite(x).all():
        raise ValueError("projections contain NaN or infinity; finite numbers are needed.")
    if not 0 < _validate.number("q", q) <= 1:
        raise ValueError(f"q={q!r} is not a sampling rate: it must be above 0 and at most 1.")
    sigma, reach, delta = _validate.positive("sigma", sigma), _validate.positive("reach", reach), _validate.delta(delta)
    variance = float(q * (1 - q) * (x @ x))
    details = {"variance_of_others": variance, "perfect": float(gaussian_epsilon(0.0, sigma, reach, sigma, delta))}
    assumptions: tuple[str, ...] = (STATED, POPULATION)
    if variance < _SMALL * sigma**2:
        width = math.hypot(sigma, math.sqrt(variance))
        epsilon = float(gaussian_epsilon(0.0, width, reach, width, delta))
        return Computed(epsilon, delta, "one normal", (*assumptions, NEARLY) if variance else assumptions, details)
    others = _on_a_lattice(x[x != 0.0], float(q), sigma, reach)
    log_density, dropped = others.released(details["perfect"] - math.log(delta) + _MARGIN)
    shift = round(reach / others.step)
    before, after = np.append(log_density, np.full(shift, -np.inf)), np.append(np.full(shift, -np.inf), log_density)
    epsilon = max(_epsilon(*pair, others.step, delta) for pair in ((before, after), (after, before)))
    return Computed(epsilon, delta, "lattice law of the others", assumptions, {**details, "log_dropped": dropped})


def _on_a_lattice(x: Array, q: float, sigma: float, reach: float) -> _Others:
    """The others on the coarsest lattice whose splitting adds little beside the noise: small x need a finer one."""
    for finer in (1, 2, 4, 8, 16):
        others = _Others(x, q, sigma, reach / math.ceil(reach * _STEPS * finer / sigma))
        if others.added <= _SPLIT * sigma**2:
            break
    return others


class _Others(NamedTuple):
    x: Array
    q: float
    sigma: float
    step: float

    @property
    def added(self) -> float:
        """The variance that splitting over two lattice points adds."""
        split = self.x / self.step - np.floor(self.x / self.step)
        return float(self.q * (split * (1 - split)).sum()) * self.step**2

    def cumulants(self, tilt: float) -> tuple[float, float]:
        """(logarithm of E e^{tilt X}, its derivative), of X on the lattice."""
        stays, low, high = self._log_parts(tilt)
        total = np.logaddexp(stays, np.logaddexp(low, high))
        lower = np.floor(self.x / self.step)
        mean = lower * np.exp(low - total) + (lower + 1) * np.exp(high - total)
        return float(total.sum()), float(mean.sum()) * self.step

    def _log_parts(self, tilt: float) -> Array:
        """Logarithms of the tilted chances to stay away, and to be at the lattice points below and above x: three rows."""
        lower = np.floor(self.x / self.step)
        share = self.x / self.step - lower
        return np.stack([
            np.full(self.x.size, math.log1p(-self.q) if self.q < 1 else -np.inf),
            math.log(self.q) + np.log(np.maximum(1 - share, 1e-300)) + tilt * lower * self.step,
            math.log(self.q) + np.log(np.maximum(share, 1e-300)) + tilt * (lower + 1) * self.step,
        ])  # fmt: skip

    def released(self, needed: float) -> tuple[Array, float]:
        """(log density of X + noise on the lattice, log of the probability that was dropped)."""
        low, high = (self._end(sign, needed) for sign in (-1.0, 1.0))
        first, size = math.floor(low / self.step), math.ceil(high / self.step) - math.floor(low / self.step) + 2
        size += size % 2
        if self.x.size * size > _MOST:
            raise ValueError(
                f"{self.x.size:,} clients on {size:,} lattice points would take too long: the others hide this canary "
                "beside small noise. Give a sample of the clients, with q times as many, or a better canary."
            )
        log_law = self._law(first, size)
        return _blurred(log_law, self.step, math.sqrt(self.sigma**2 - self.added), needed), -needed

    def _end(self, sign: float, needed: float) -> float:
        """Beyond it X has probability e^-needed at most, by Chernoff's bound, or none."""
        places = np.floor(self.x / self.step) + (sign > 0)
        most = float(places[sign * places > 0].sum()) * self.step
        found = math.inf
        for tilt in np.geomspace(1e-2, 1e3, 60) / self.sigma:
            log_mean, _ = self.cumulants(sign * tilt)
            found = min(found, (log_mean + needed) / tilt)
        return sign * min(found, abs(most)) + sign * 2 * self.step

    def _law(self, first: int, size: int) -> Array:
        """log P(X = lattice point), each from the tilt whose mean is nearest."""
        from scipy.optimize import brentq

        _, mean = self.cumulants(0.0)
        spread = math.sqrt(self.q * (1 - self.q) * float(self.x @ self.x) + self.added)
        places = (first + np.arange(size)) * self.step
        law, nearest = np.full(size, -np.inf), np.full(size, np.inf)
        for target in mean + spread * np.arange(-12.0, 12.1, 6.0):
            bracket = 60 / self.sigma
            if not self.cumulants(-bracket)[1] < target < self.cumulants(bracket)[1]:
                continue
            if not places[0] <= target <= places[-1]:
                continue
            tilt = 0.0 if target == mean else float(brentq(lambda t, to=target: self.cumulants(t)[1] - to, -bracket, bracket))
            closer = np.abs(places - target) < nearest
            nearest = np.minimum(nearest, np.abs(places - target))
            law = np.where(closer, self._tilted(tilt, first, size), law)
        return law

    def _tilted(self, tilt: float, first: int, size: int) -> Array:
        """The law by one FFT of the tilted variables."""
        log_parts, lower = self._log_parts(tilt), np.floor(self.x / self.step)
        total = np.logaddexp.reduce(log_parts, axis=0)
        stays, low, high = np.exp(log_parts - total)
        log_curve = np.zeros(size // 2 + 1, dtype=np.complex128)
        turns = -2j * np.pi / size * np.arange(size // 2 + 1)
        block = max(1, _BLOCK // turns.size)
        for some in range(0, self.x.size, block):
            part = slice(some, some + block)
            at = np.exp(np.outer(lower[part], turns))
            factor = stays[part, None] + at * (low[part, None] + high[part, None] * np.exp(turns))
            with np.errstate(divide="ignore"):
                log_curve += np.log(factor).sum(axis=0)
        log_curve -= turns * first  # so that the first point of the range is the first of the array
        tilted = np.fft.irfft(np.exp(log_curve), size)
        places = (first + np.arange(size)) * self.step
        with np.errstate(divide="ignore"):
            kept = np.where(tilted > _ROUNDING * tilted.max(), tilted, 0.0)  # else rounding errors would fill the gaps
            return np.asarray(np.log(kept) + total.sum() - tilt * places)


def _blurred(log_law: Array, step: float, width: float, needed: float) -> Array:
    """log density of lattice law plus normal noise, at the lattice points and beyond both ends."""
    half = math.ceil(math.sqrt(2 * needed) * width / step)
    offsets = np.arange(-half, half + 1)
    log_kernel = -((offsets * step / width) ** 2) / 2 - math.log(width * math.sqrt(2 * math.pi))
    padded = np.concatenate([np.full(2 * half, -np.inf), log_law, np.full(2 * half, -np.inf)])
    windows: NDArray[np.float64] = np.lib.stride_tricks.sliding_window_view(padded, offsets.size)
    found = np.empty(windows.shape[0])
    rows = max(1, _BLOCK // offsets.size)
    for some in range(0, found.size, rows):
        terms = windows[some : some + rows] + log_kernel
        top = terms.max(axis=1)
        safe = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            found[some : some + rows] = safe + np.log(np.exp(terms - safe[:, None]).sum(axis=1))
    return found


def _epsilon(log_p: Array, log_q: Array, step: float, delta: float) -> float:
    """Where the integral of max(p - e^epsilon q, 0) is delta; what q lost by the ends of the range counts as seen."""
    from scipy.optimize import brentq

    seen = np.isfinite(log_p)
    log_p, log_q = log_p[seen], log_q[seen]

    def excess(epsilon: float) -> float:
        with np.errstate(over="ignore"):
            part = np.exp(log_p) * -np.expm1(np.minimum(epsilon + log_q - log_p, 0.0))
        return float(part.sum() * step) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0 and high < 1e6:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-10))
