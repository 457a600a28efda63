"""From measurements of single rounds to a number for the whole training (Maddock, Sablayrolles & Stock 2023, "CANIFE").

    paper              here                            meaning
    GetNoise           one_round_noise                 the noise multiplier of one Gaussian round, by Rényi orders
    GetPrivacy         compose_canife                  rounds of such noise under Poisson sampling, by Rényi orders
    q, s, R            q, rounds                       sampling rate, rounds per measurement, rounds in all
    delta = 1/n        measured_delta                  the delta at which a round was measured with n scores

`compose_canife` is the paper's number and no bound: it puts noisy low values into an upper-bound theorem and extrapolates
from delta = 1/n to `delta` by assuming a Gaussian. `compose_measured` is a bound: lower confidence limits of mu, composed by
privacy loss distributions that are rounded downwards.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine.accounting.events import heard
from coalmine.contracts import Caveat, LowerBound, PointEstimate
from coalmine.rounding import rounded_down

ORDERS = np.array([1 + tenth / 10 for tenth in range(1, 100)] + list(range(12, 64)))  # as in Opacus, which the paper uses
_GRID = 1e-3  # of privacy losses; rounding them downwards keeps a bound a bound
SAMPLED = "every client takes part in every round with probability q, independently (Poisson sampling)"
SHAPE = "the trade-off curve of a round is Gaussian, with a gap of at least the measured limit"
ALONE = "rounds that were not measured count as if they leaked nothing"
CONSTANT = "between two measurements the gap stays what the earlier one found"


def one_round_epsilon(noise_multiplier: float, delta: float) -> float:
    """Epsilon of one Gaussian round by Rényi orders, as the paper computes it. The exact value is smaller.

    >>> round(one_round_epsilon(0.321, 1e-5), 2)
    18.68
    """
    return _converted(ORDERS / (2 * _validate.positive("noise_multiplier", noise_multiplier) ** 2), _validate.delta(delta))


def one_round_noise(epsilon: float, delta: float) -> float:
    """The noise multiplier whose `one_round_epsilon` is this; infinite at 0, and 0 at infinity.

    >>> round(one_round_noise(18.68, 1e-5), 3)
    0.321
    """
    from scipy.optimize import brentq

    if not _validate.number("epsilon", epsilon) >= 0:
        raise ValueError(f"epsilon={epsilon!r} is not allowed: it must be at least 0.")
    low, high = math.log(1e-4), math.log(1e4)
    if not epsilon > one_round_epsilon(math.exp(high), delta):
        return math.inf
    if not epsilon < one_round_epsilon(math.exp(low), delta):
        return 0.0
    return math.exp(brentq(lambda place: one_round_epsilon(math.exp(place), delta) - epsilon, low, high, xtol=1e-12))


def compose_canife(
    epsilons: Sequence[float | PointEstimate],
    rounds: int | Sequence[int],
    q: float,
    delta: float,
    *,
    measured_delta: float = 0.01,
) -> PointEstimate:
    """The paper's epsilon of a whole training from those of measured rounds. Not a bound in any sense.

    `rounds` is the number of rounds of the training, shared evenly by the measurements, or one number for each of them.
    `measured_delta` is 1/n for n scores; estimates by `estimate_round_canife` bring their own, and their intervals. An infinite
    epsilon of a round stays infinite: it is not replaced by the noise that is claimed.

    >>> found = compose_canife([2.9603] * 5, 469, q=128 / 60_000, delta=1e-5)
    >>> round(found.epsilon, 2), found.flags[0].code
    (0.89, 'not-a-bound')

    Args:
        epsilons: Of the measured rounds.
        rounds: Of the training, or for each measurement.
        q: Sampling rate.
        delta: Of the statement, above 0 and below 1.
        measured_delta: Of the measurements.

    Returns:
        An estimate, flagged as no bound.
    """
    if isinstance(epsilons, float | int | PointEstimate):
        raise ValueError(f"epsilons={epsilons!r} is one number: give a list, with one epsilon for each measured round.")
    measured = [each if isinstance(each, PointEstimate) else _bare(each, measured_delta) for each in epsilons]
    counts = _shared(rounds, len(measured))
    q, delta = _rate(q), _validate.delta(delta)

    def composed(values: list[float]) -> float:
        deltas = [each.delta for each in measured]
        return _composed(tuple(one_round_noise(*pair) for pair in zip(values, deltas, strict=True)), counts, q, delta)

    return PointEstimate(
        epsilon=composed([each.epsilon for each in measured]),
        low=composed([each.low for each in measured]),
        high=composed([each.high for each in measured]),
        delta=delta,
        confidence=measured[0].confidence,
        method="rounds composed as in CANIFE, Algorithm 2",
        floor=composed([each.floor for each in measured]),
        p_value=1.0,  # nobody has said how several rounds vary together
        flags=(Caveat("not-a-bound", {"measured": max(each.delta for each in measured), "delta": delta}),),
        details={"measurements": float(len(measured)), "rounds": float(sum(counts))},
        key="canife-composed",
    )


def compose_measured(
    gaps: Sequence[float], rounds: int | Sequence[int], q: float, delta: float, *, confidence: float = 0.95
) -> LowerBound:
    """A lower bound on the epsilon of a training from simultaneous lower confidence limits of mu in measured rounds.

    `rounds` is 1 where each measurement stands for its own round alone, so that the others count as if they leaked nothing; one
    number for each measurement counts those between under a further assumption, which is listed.

    >>> found = compose_measured([1.0] * 10, 1, q=0.1, delta=1e-5)
    >>> round(found.epsilon, 2), found.valid
    (2.85, True)

    Args:
        gaps: Lower limits of mu, all at once.
        rounds: That each measurement stands for.
        q: Sampling rate.
        delta: Of the statement, above 0 and below 1.
        confidence: Of the limits together.

    Returns:
        The lower bound with its assumptions, ceiling and power.
    """
    limits = [_validate.non_negative("gap", gap) for gap in gaps]
    if not limits:
        raise ValueError("gaps is empty: give the lower limit of mu of at least one measured round.")
    alike = isinstance(rounds, int)
    counts = (_validate.rounds(rounds),) * len(limits) if alike else _shared(rounds, len(limits))
    q, delta, confidence = _rate(q), _validate.delta(delta), _validate.confidence(confidence)
    times: Counter[float] = Counter()
    for gap, count in zip(limits, counts, strict=True):
        times[rounded_down(gap)] += count  # downwards: still a bound, and few distributions to convolve
    times.pop(0.0, None)
    return LowerBound(
        epsilon=_optimistic(tuple(sorted(times.items())), q, delta) if times else 0.0,
        delta=delta,
        confidence=confidence,
        method="measured rounds composed by privacy loss distributions, rounded down",
        valid=True,
        assumptions=(SHAPE, SAMPLED, ALONE if set(counts) == {1} else CONSTANT),
        ceiling=math.inf,
        multiplicity="limits that hold for all measured rounds at once",
        details={"rounds": float(sum(counts)), "largest_gap": max(limits)},
    )


def _bare(epsilon: float, delta: float) -> PointEstimate:
    """A number without an interval: nothing is known of its error."""
    value = _validate.number("epsilon", epsilon)
    return PointEstimate(value, 0.0, math.inf, _validate.delta(delta), 0.95, "stated", math.inf, 1.0)


def _rate(q: float) -> float:
    if not 0 < _validate.number("q", q) <= 1:
        raise ValueError(
            f"q={q!r} is not a sampling rate: it must be above 0 and at most 1; cohort_size / population gives it."
        )
    return float(q)


def _shared(rounds: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Rounds for each measurement; the first ones take what does not divide evenly."""
    if count == 0:
        raise ValueError("epsilons is empty: at least one round must have been measured.")
    if isinstance(rounds, Sequence | np.ndarray):
        if len(rounds) != count:
            raise ValueError(f"rounds has {len(rounds)} entries for {count} measurements: give one number for each.")
        return tuple(_validate.rounds(each) for each in rounds)
    whole, rest = divmod(_validate.whole("rounds", rounds, least=count, most=_validate.MOST_ROUNDS), count)
    return tuple(whole + (place < rest) for place in range(count))


def _converted(curve: Any, delta: float) -> float:
    """The smallest epsilon over the orders (Balle et al. 2020)."""
    found = curve + np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return max(float(np.min(found)), 0.0)


@lru_cache(maxsize=4096)
def _curve(noise: float, q: float) -> Any:
    """Rényi divergences of one sampled Gaussian round (Mironov et al. 2019), by dp-accounting."""
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant(orders=list(ORDERS))
    with heard():  # of orders that it leaves out; the smallest epsilon of the others is true
        accountant.compose(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(noise)))
    return np.asarray(accountant._rdp)


def _composed(noises: tuple[float, ...], counts: tuple[int, ...], q: float, delta: float) -> float:
    if min(noises) == 0.0:
        return math.inf
    curve = np.zeros(ORDERS.size)
    for noise, count in zip(noises, counts, strict=True):
        if math.isfinite(noise):
            curve = curve + count * _curve(noise, q)
    return _converted(curve, delta) if curve.any() else 0.0


@lru_cache(maxsize=64)
def _optimistic(times: tuple[tuple[float, int], ...], q: float, delta: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution

    total = None
    for gap, count in times:
        grid = _GRID * max(1.0, (0.4 * gap) ** 2)
        one = privacy_loss_distribution.from_gaussian_mechanism(
            1 / gap,
            pessimistic_estimate=False,
            value_discretization_interval=_GRID if len(times) > 1 else grid,
            sampling_prob=q,
            use_connect_dots=False,
        ).self_compose(count)
        total = one if total is None else total.compose(one)
    return max(float(total.get_epsilon_for_delta(delta)), 0.0) if total is not None else 0.0
