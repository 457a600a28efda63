"""What is claimed: (Gaussian noise, participation, relation) -> `Claim`, with dp-accounting as the accountant.

    participation            accountant
    Once, Repeated(r)        analytic: one Gaussian with noise multiplier sigma/sqrt(r) (Balle & Wang 2018); the adversary
                             knows the rounds. `Epochs` and `Periods` are `Repeated`
    MinSeparation, Trace     the same with the largest number of rounds that one client takes part in
    Poisson                  privacy loss distributions ("pld", default) or Rényi ("rdp")
    FixedSize                Rényi ("rdp"), replace-one relation
    Poisson, FixedSize       rounds known to the adversary: no amplification. A client takes part t times, t binomial, and
                             delta(epsilon) is the mean over t >= 1 of that of a Gaussian with noise multiplier sigma/sqrt(t)

`noise_multiplier` is the standard deviation of the noise on the SUM of clipped updates, in units of the clip norm.
Adding or removing one client moves that sum by up to one clip norm, replacing one by up to two; dp-accounting wants the
noise in units of that movement.
"""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np

from coalmine import _validate
from coalmine.contracts import Claim, Game
from coalmine.gaussian import gaussian_delta, gaussian_epsilon, gaussian_gap
from coalmine.participation import Epochs, FixedSize, MinSeparation, Once, Participation, Periods, Poisson, Repeated, Trace

Accountant = Literal["auto", "analytic", "pld", "rdp"]
Relation = Literal["add-or-remove-one", "replace-one"]
RELATIONS = ("add-or-remove-one", "replace-one")
_SENSITIVITY: dict[str, float] = {"add-or-remove-one": 1.0, "replace-one": 2.0}
_RARE = 1e-6  # share of delta left for numbers of rounds that are too rare to matter
_PRECISION = 1e-5  # of a calibrated noise multiplier, relative
_MOST_NOISE = 1e6  # beyond, dp-accounting loses its divergences to rounding; what holds without sampling is a true upper bound
_LEAST_NOISE = 1e-3  # dp-accounting overflows not far below; epsilon is beyond 10⁵ there, and infinity is a true upper bound


def claim(
    participation: Participation,
    *,
    noise_multiplier: float,
    delta: float,
    accountant: Accountant = "auto",
    relation: Relation | None = None,
    unit: str = "client",
    rounds_known: bool = False,
) -> Claim:
    """The epsilon that the accountant proves for Gaussian noise and this participation.

    With `rounds_known` the adversary knows in which rounds its target took part, at least one, and sampling hides nothing.
    For patterns without sampling the accountant always allows for that.

    >>> print(claim(Once(), noise_multiplier=1.0, delta=1e-5))
    epsilon = 4.377 at delta = 1e-05 (analytic Gaussian)
    >>> print(claim(Poisson(rate=0.01, rounds=1000), noise_multiplier=1.0, delta=1e-5))
    epsilon = 1.828 at delta = 1e-05 (dp-accounting ... PLD)
    >>> print(claim(Poisson(rate=0.01, rounds=1000), noise_multiplier=1.0, delta=1e-5, rounds_known=True))
    epsilon = 23.39 at delta = 1e-05 (analytic Gaussian)
    """
    noise_multiplier = _validate.non_negative("noise_multiplier", noise_multiplier)
    delta = _validate.delta(delta)
    described = game(participation, relation=relation, unit=unit, rounds_known=rounds_known)
    if rounds_known and isinstance(participation, (Poisson, FixedSize)):
        _validate.one_of("accountant", accountant, ("auto", "analytic"))
        accountant, relation = "analytic", _resolve(participation, "auto", relation)[1]
        epsilons = [_revealed(participation, noise, delta, relation) for noise in (noise_multiplier, noise_multiplier / 2)]
    else:
        accountant, relation = _resolve(participation, accountant, relation)
        epsilons = [
            _epsilon(participation, noise, delta, accountant, relation) for noise in (noise_multiplier, noise_multiplier / 2)
        ]
    return Claim(
        epsilon=epsilons[0],
        delta=delta,
        accountant=_name(accountant),
        game=described,
        noise_multiplier=noise_multiplier,
        half_noise_epsilon=epsilons[1],
        assumptions=("Gaussian noise, clipping and participation as described",),
    )


def game(
    participation: Participation, *, relation: Relation | None = None, unit: str = "client", rounds_known: bool = False
) -> Game:
    """The game that `claim` with the same arguments speaks of; a measurement beside it must have been made in it.

    >>> game(Poisson(rate=0.01, rounds=1000)).knowledge
    'rounds unknown'
    """
    sampled = isinstance(participation, (Poisson, FixedSize))
    return Game(
        unit=_validate.one_of("unit", unit, ("client", "example")),
        relation=_resolve(participation, "auto", relation)[1],
        participation=str(participation),
        knowledge="rounds unknown" if sampled and not rounds_known else "rounds known",
    )


def claimed_delta(
    participation: Participation,
    *,
    noise_multiplier: float,
    epsilon: float,
    accountant: Accountant = "auto",
    relation: Relation | None = None,
) -> float:
    """The delta at which the mechanism is (epsilon, delta)-DP."""
    noise_multiplier = _validate.positive("noise_multiplier", noise_multiplier)
    epsilon = _validate.non_negative("epsilon", epsilon)
    accountant, relation = _resolve(participation, accountant, relation)
    if accountant == "analytic" or noise_multiplier > _MOST_NOISE:
        return float(gaussian_delta(0.0, 1.0, _gap(participation, noise_multiplier, relation), 1.0, epsilon))
    if noise_multiplier / _SENSITIVITY[relation] < _LEAST_NOISE:
        return 1.0
    with _heard():
        found = float(_compose(participation, noise_multiplier, accountant, relation).get_delta(epsilon))
    return min(1.0, found)  # the pessimistic rounding of a grid may pass 1


def calibrate_noise(
    participation: Participation,
    *,
    epsilon: float,
    delta: float,
    accountant: Accountant = "auto",
    relation: Relation | None = None,
) -> float:
    """The smallest noise multiplier for which the claim is at most `epsilon`.

    >>> round(calibrate_noise(Once(), epsilon=10.0, delta=1e-6), 6)
    0.541087
    """
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.delta(delta)
    accountant, relation = _resolve(participation, accountant, relation)
    if accountant == "analytic":
        return _gap(participation, 1.0, relation) / gaussian_gap(epsilon, delta)

    @cache
    def excess(log_noise: float, by: str) -> float:
        found = _epsilon(participation, math.exp(log_noise), delta, by, relation)
        return min(found, 2 * epsilon + 1) - epsilon  # finite, as the search needs it

    unsampled = _gap(participation, 1.0, relation) / gaussian_gap(epsilon, delta)  # exact if the rounds are known
    log_noise: float | None = math.log(unsampled)
    if accountant == "rdp" or isinstance(participation, (Poisson, FixedSize)):
        most = math.log(min(100 * unsampled, _MOST_NOISE)) - 1.0  # looser than exact, but not beyond all bounds
        log_noise = _zero(lambda x: excess(x, "rdp"), 0.0, step=1.0, most=most)
    if log_noise is not None and accountant == "pld":  # tighter than Rényi and slower: searched near it
        log_noise = _zero(lambda x: excess(x, "pld"), log_noise, step=0.125, most=log_noise + 0.5)
    if log_noise is None:
        raise ValueError(
            f"accountant={accountant!r} finds no noise multiplier with epsilon={epsilon:g} at delta={delta:g}; "
            "ask for a larger epsilon or delta, or take the other accountant ('pld' or 'rdp')."
        )
    return math.exp(log_noise + _PRECISION)


def _zero(excess: Callable[[float], float], start: float, *, step: float, most: float) -> float | None:
    """Where a decreasing function crosses zero, searched outwards from `start`; None if it is positive up to `most`."""
    from scipy.optimize import brentq

    low = high = start
    while excess(high) > 0:
        if high > most:
            return None
        low, high = high, high + step
    while excess(low) <= 0:
        low, high = low - step, low
    return float(brentq(excess, low, high, xtol=_PRECISION / 2))


def _resolve(
    participation: Participation, accountant: Accountant, relation: Relation | None
) -> tuple[Literal["analytic", "pld", "rdp"], Relation]:
    """The accountant and the relation, or an error that says which go together."""
    _validate.one_of("accountant", accountant, ("auto", "analytic", "pld", "rdp"))
    defaults: dict[type, tuple[Literal["analytic", "pld", "rdp"], Relation]] = {
        Once: ("analytic", "add-or-remove-one"),
        Repeated: ("analytic", "add-or-remove-one"),
        Poisson: ("pld", "add-or-remove-one"),
        FixedSize: ("rdp", "replace-one"),
        Epochs: ("analytic", "add-or-remove-one"),
        Periods: ("analytic", "add-or-remove-one"),
        MinSeparation: ("analytic", "add-or-remove-one"),
        Trace: ("analytic", "add-or-remove-one"),
    }
    if type(participation) not in defaults:
        raise ValueError(f"participation={participation!r} is not one of {', '.join(kind.__name__ for kind in defaults)}.")
    chosen, usual = defaults[type(participation)]
    if accountant != "auto":
        chosen = accountant
    related = usual if relation is None else relation
    _validate.one_of("relation", related, RELATIONS)
    sampled = isinstance(participation, (Poisson, FixedSize))
    if chosen == "analytic" and sampled:
        raise ValueError("the analytic Gaussian formula knows no sampling; use accountant='pld' or 'rdp'.")
    if isinstance(participation, FixedSize) and (chosen != "rdp" or related != "replace-one"):
        raise ValueError("sampling without replacement is accounted by accountant='rdp' under relation='replace-one' only.")
    if isinstance(participation, Poisson) and related != "add-or-remove-one":
        raise ValueError("Poisson sampling is accounted under relation='add-or-remove-one' only.")
    return chosen, related


@lru_cache(maxsize=256)  # several views of a run ask for the same claim, and convolutions take seconds
def _epsilon(participation: Participation, noise: float, delta: float, accountant: str, relation: Relation) -> float:
    if noise == 0.0:
        return math.inf
    if accountant == "analytic" or noise > _MOST_NOISE:
        return float(gaussian_epsilon(0.0, 1.0, _gap(participation, noise, relation), 1.0, delta))
    if noise / _SENSITIVITY[relation] < _LEAST_NOISE:
        return math.inf
    with _heard() as warnings:
        found = float(_compose(participation, noise, accountant, relation).get_epsilon(delta))
    # Of a Rényi order that it leaves out dp-accounting only warns, rightly: the smallest epsilon of the others is true.
    # To a divergence below zero, by rounding, it answers zero; true is then what holds without sampling.
    if any("Negative Renyi divergence" in warning for warning in warnings):
        return _epsilon(participation, noise, delta, "analytic", relation)
    return found


def _revealed(participation: Poisson | FixedSize, noise: float, delta: float, relation: Relation) -> float:
    """The epsilon at which the mean of delta over the number of rounds t, given t >= 1, is `delta`.

    An adversary that sees the rounds faces a Gaussian that depends on them: P(event) <= e^epsilon Q(event) + delta_t given t,
    hence the same with the mean of delta_t. Numbers of rounds that are too rare to matter count with delta_t = 1.
    """
    from scipy.optimize import brentq
    from scipy.special import gammaln, xlog1py, xlogy

    if noise == 0.0:
        return math.inf
    rounds = participation.rounds
    rate = participation.rate if isinstance(participation, Poisson) else participation.cohort_size / participation.population
    times = np.arange(1.0, rounds + 1)
    log_ways = gammaln(rounds + 1) - gammaln(times + 1) - gammaln(rounds - times + 1)
    chance = np.exp(log_ways + xlogy(times, rate) + xlog1py(rounds - times, -rate)) / -np.expm1(xlog1py(rounds, -rate))
    rare = _RARE * delta
    matter = chance > rare / rounds
    chance, gaps = chance[matter], _SENSITIVITY[relation] * np.sqrt(times[matter]) / noise

    def excess(epsilon: float) -> float:
        return float(chance @ gaussian_delta(0.0, 1.0, gaps, 1.0, epsilon)) + rare - delta

    most = float(gaussian_epsilon(0.0, 1.0, gaps.max(), 1.0, delta * (1 - 2 * _RARE)))
    if excess(0.0) <= 0 or not math.isfinite(most):
        return 0.0 if math.isfinite(most) else math.inf
    return float(brentq(excess, 0.0, most, xtol=1e-9))


def _gap(participation: Participation, noise: float, relation: Relation) -> float:
    """mu of the Gaussian: sensitivity times sqrt(participations) over the noise."""
    return _SENSITIVITY[relation] * math.sqrt(_times(participation)) / noise


def _times(participation: Participation) -> int:
    """The largest number of rounds that one client can take part in."""
    return participation.rounds if isinstance(participation, (Poisson, FixedSize)) else participation.most


def _compose(participation: Participation, noise: float, accountant: str, relation: Relation) -> Any:
    noise = noise / _SENSITIVITY[relation]
    return _fresh(accountant, relation, noise).compose(_event(participation, noise))


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What dp-accounting has to say, collected instead of printed."""
    said: list[str] = []

    def collect(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return False

    logger = logging.getLogger("absl")
    logger.addFilter(collect)
    try:
        yield said
    finally:
        logger.removeFilter(collect)


def _fresh(accountant: str, relation: Relation, noise: float) -> Any:
    """An empty accountant of dp-accounting."""
    from dp_accounting import NeighboringRelation, pld, rdp

    neighbours = {
        "add-or-remove-one": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace-one": NeighboringRelation.REPLACE_ONE,
    }[relation]
    if accountant == "pld":
        # privacy losses grow as 1/noise²: a grid that grows with them keeps memory bounded (its rounding is pessimistic)
        return pld.PLDAccountant(value_discretization_interval=1e-4 * max(1.0, (0.4 / noise) ** 2))
    return rdp.RdpAccountant(neighboring_relation=neighbours)


def _event(participation: Participation, noise: float) -> Any:
    import dp_accounting as dp

    step = dp.GaussianDpEvent(noise)
    match participation:
        case Once():
            return step
        case Poisson(rate, rounds):
            return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, step), rounds)
        case FixedSize(cohort_size, population, rounds):
            return dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(population, cohort_size, step), rounds)
        case _:
            return dp.SelfComposedDpEvent(step, _times(participation))


def _name(accountant: str) -> str:
    if accountant == "analytic":
        return "analytic Gaussian"
    from importlib.metadata import version

    return f"dp-accounting {version('dp-accounting')} {accountant.upper()}"
