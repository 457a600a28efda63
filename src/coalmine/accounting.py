"""What is claimed: (Gaussian noise, participation, relation) -> `Claim`, with dp-accounting as the accountant.

    participation            accountant
    Once, Repeated(r)        analytic: one Gaussian with noise multiplier sigma/sqrt(r) (Balle & Wang 2018; the
    adversary knows the rounds) Poisson                  privacy loss distributions ("pld", default) or Rényi ("rdp")
    FixedSize                Rényi ("rdp"), replace-one relation

`noise_multiplier` is the standard deviation of the noise on the SUM of clipped updates, in units of the clip norm.
"""

import math
from typing import Any, Literal

from coalmine import _validate
from coalmine.contracts import Claim, Game
from coalmine.gaussian import gaussian_delta, gaussian_epsilon, gaussian_gap
from coalmine.participation import FixedSize, Once, Participation, Poisson, Repeated

Accountant = Literal["auto", "analytic", "pld", "rdp"]
Relation = Literal["add-or-remove-one", "replace-one"]
RELATIONS = ("add-or-remove-one", "replace-one")


def claim(
    participation: Participation,
    *,
    noise_multiplier: float,
    delta: float,
    accountant: Accountant = "auto",
    relation: Relation | None = None,
    unit: str = "client",
) -> Claim:
    """The epsilon that the accountant proves for Gaussian noise and this participation.

    >>> print(claim(Once(), noise_multiplier=1.0, delta=1e-5))
    epsilon = 4.377 at delta = 1e-05 (analytic Gaussian)
    >>> print(claim(Poisson(rate=0.01, rounds=1000), noise_multiplier=1.0, delta=1e-5))
    epsilon = 1.828 at delta = 1e-05 (dp-accounting ... PLD)
    """
    noise_multiplier = _validate.non_negative("noise_multiplier", noise_multiplier)
    delta = _validate.delta(delta)
    accountant, relation = _resolve(participation, accountant, relation)
    known = isinstance(participation, (Once, Repeated))
    return Claim(
        epsilon=_epsilon(participation, noise_multiplier, delta, accountant, relation),
        delta=delta,
        accountant=_name(accountant),
        game=Game(
            unit=_validate.one_of("unit", unit, ("client", "example")),
            relation=relation,
            participation=str(participation),
            knowledge="rounds known" if known else "rounds unknown",
        ),
        noise_multiplier=noise_multiplier,
        half_noise_epsilon=_epsilon(participation, noise_multiplier / 2, delta, accountant, relation),
        assumptions=("Gaussian noise, clipping and participation as described",),
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
    if accountant == "analytic":
        return float(gaussian_delta(0.0, 1.0, _gap(participation, noise_multiplier, relation), 1.0, epsilon))
    composed = _compose(participation, noise_multiplier, accountant, relation)
    return float(composed.get_delta(epsilon))


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
    from scipy.optimize import brentq

    def excess(log_noise: float, by: str) -> float:
        return min(_epsilon(participation, math.exp(log_noise), delta, by, relation), 1e6) - epsilon

    low, high = math.log(1e-2), 0.0
    while excess(high, "rdp") > 0:
        low, high = high, high + 1
    while excess(low, "rdp") < 0:
        low, high = low - 1, low
    found = float(brentq(excess, low, high, args=("rdp",), xtol=1e-6))
    if accountant == "pld":  # tighter than Rényi and slower: searched just below it
        low = found - 0.5
        while excess(low, "pld") < 0:
            low -= 0.5
        found = float(brentq(excess, low, found + 1e-3, args=("pld",), xtol=1e-6))
    return math.exp(found + 1e-6)


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


def _epsilon(participation: Participation, noise: float, delta: float, accountant: str, relation: Relation) -> float:
    if noise == 0.0:
        return math.inf
    if accountant == "analytic":
        return float(gaussian_epsilon(0.0, 1.0, _gap(participation, noise, relation), 1.0, delta))
    return float(_compose(participation, noise, accountant, relation).get_epsilon(delta))


def _gap(participation: Participation, noise: float, relation: Relation) -> float:
    """mu of the Gaussian: sensitivity times sqrt(participations) over the noise; replacing moves the sum by up to 2."""
    times = participation.times if isinstance(participation, Repeated) else 1
    return (2.0 if relation == "replace-one" else 1.0) * math.sqrt(times) / noise


def _compose(participation: Participation, noise: float, accountant: str, relation: Relation) -> Any:
    sensitivity = 2.0 if relation == "replace-one" and isinstance(participation, (Once, Repeated)) else 1.0
    return _fresh(accountant, relation, noise).compose(_event(participation, noise / sensitivity))


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
        case Repeated(times):
            return dp.SelfComposedDpEvent(step, times)
        case Poisson(rate, rounds):
            return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, step), rounds)
        case FixedSize(cohort_size, population, rounds):
            return dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(population, cohort_size, step), rounds)


def _name(accountant: str) -> str:
    if accountant == "analytic":
        return "analytic Gaussian"
    from importlib.metadata import version

    return f"dp-accounting {version('dp-accounting')} {accountant.upper()}"
