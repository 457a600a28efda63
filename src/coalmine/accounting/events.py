"""What dp-accounting is asked: a mechanism's description and a pattern as one composed event, and its epsilon or delta.

    participation              accountant
    rounds known               analytic: one Gaussian, mu = relation · sensitivity / noise (Balle & Wang 2018). With fresh noise
                               the sensitivity of t rounds is sqrt(t); a strategy of correlated noise says its own
    Poisson sampling           privacy loss distributions ("pld", default) or Rényi ("rdp"); of correlated noise, only where the
                               columns of a client's possible rounds are orthogonal (bands <= groups of `CyclicPoisson`)
    Poisson, of examples       privacy loss distributions of a mixture: a client with G examples moves the sum of a round by a
                               binomial number of clip norms (Charles et al. 2024)
    without replacement        Rényi ("rdp"), replace-one relation
    sampled, rounds revealed   no amplification. A client takes part t times, t binomial, and delta(epsilon) is the mean over
                               t >= 1 of that of a Gaussian with noise multiplier sigma/sqrt(t)

`noise` is the standard deviation of the noise on the SUM of clipped updates, in clip norms. Adding or removing one client moves
that sum by up to one clip norm, replacing one by up to two; dp-accounting wants the noise in units of that movement.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np

from coalmine import _validate
from coalmine.accounting.mixtures import sampled_members
from coalmine.accounting.sensitivities import sensitivity_of
from coalmine.accounting.water_filling import LiftedEvent
from coalmine.contracts import (
    ByClients,
    ByServer,
    Constraint,
    Description,
    Fresh,
    Isotropic,
    Opaque,
    Participation,
    Sampling,
    Separation,
)
from coalmine.gaussian import gaussian_delta, gaussian_epsilon

Accountant = Literal["auto", "analytic", "pld", "rdp"]
Relation = Literal["add-or-remove-one", "replace-one"]
RELATIONS = ("add-or-remove-one", "replace-one")
MOVED: dict[str, float] = {"add-or-remove-one": 1.0, "replace-one": 2.0}  # clip norms, by which a neighbour moves the sum
MOST_NOISE = 1e6  # beyond, dp-accounting loses its divergences to rounding; what holds without sampling is a true upper bound
_LEAST_NOISE = 1e-3  # dp-accounting overflows not far below; epsilon is beyond 10⁵ there, and infinity is a true upper bound
_COARSER = 10.0  # grid of privacy losses for mixtures, which take longer: 1e-3
_FINEST, _MOST_POINTS = 1e-4, 1e8  # grid of privacy losses: its step, and how many steps all losses may take
_MOST_COMPOSED = 1_000_000  # rounds by privacy loss distributions; beyond, Rényi divergences, which need no grid
_RARE = 1e-6  # share of delta left for numbers of rounds that are too rare to matter


@dataclass(frozen=True)
class Event:
    """All that an accountant needs to know, as plain numbers."""

    noise: float
    sensitivity: float  # of all releases together, for a unit that is added or removed; sqrt(rounds) with fresh noise
    sampling: Sampling | None
    accountant: Literal["analytic", "pld", "rdp"]
    relation: Relation
    revealed: bool = False  # sampled, and the adversary knows the rounds all the same
    exact: bool = True  # the sensitivity; else an upper bound of it

    @property
    def gap(self) -> float:
        """mu of the Gaussian, without amplification."""
        return MOVED[self.relation] * self.sensitivity / self.noise

    def with_noise(self, noise: float) -> Event:
        """The same with other noise."""
        return replace(self, noise=noise)

    def epsilon(self, delta: float) -> float:
        """The epsilon at this delta."""
        return _revealed(self, delta) if self.revealed else _epsilon(self, delta)

    def delta(self, epsilon: float) -> float:
        """The delta at this epsilon."""
        if self.noise == 0.0 or math.isinf(self.gap):
            return 1.0
        if self.accountant == "analytic" or self.noise > MOST_NOISE:
            return float(gaussian_delta(0.0, 1.0, self.gap, 1.0, epsilon))
        if self.noise / MOVED[self.relation] < _LEAST_NOISE:
            return 1.0
        with heard():
            found = float(_compose(self).get_delta(epsilon))
        return min(1.0, found)  # the pessimistic rounding of a grid may pass 1


def event_of(
    description: Description,
    participation: Participation,
    *,
    accountant: Accountant = "auto",
    relation: str | None = None,
    revealed: bool = False,
    rounds: int | None = None,
    constraint: Constraint | None = None,
) -> Event | LiftedEvent:
    """The event of a mechanism and a pattern; what no accountant here can handle is refused by name.

    `constraint` is that of the pattern, unless somebody knows it better: the rounds of all canaries themselves, say.
    """
    _validate.one_of("accountant", accountant, ("auto", "analytic", "pld", "rdp"))
    related = _validate.one_of("relation", participation.relation if relation is None else relation, RELATIONS)
    noise, sampling = description.noise, participation.sampling
    if noise is None:
        raise ValueError("the mechanism states an epsilon and no noise: there is nothing to account for.")
    if description.examples is not None:
        return _of_examples(description, participation, related, revealed)
    for part, allowed in (("coordinates", (Isotropic,)), ("added_by", (ByServer, ByClients))):
        found = getattr(noise, part)
        if not isinstance(found, allowed):
            raise ValueError(f"noise whose {part.replace('_', ' ')} is of kind {found.kind!r} has no accountant here.")
    if isinstance(noise.rounds, Opaque):
        raise ValueError(f"noise correlated over rounds by {noise.rounds.kind!r} is not known here: register its strategy.")
    chosen: Any = _chosen(sampling, accountant, related, revealed)
    if constraint is None:
        constraint = participation.constraint(_rounds(noise.rounds, participation) if rounds is None else rounds)
    if sampling is not None and not isinstance(noise.rounds, Fresh):
        _check_amplified(noise.rounds, participation, constraint)
    related_to: Any = related
    members = 1 if sampling is None else sampling.group_size
    sensitivity, exact = sensitivity_of(noise.rounds, constraint)
    return Event(noise.accounted, members * sensitivity, sampling, chosen, related_to, revealed, exact)


def _of_examples(description: Description, participation: Participation, relation: str, revealed: bool) -> Event | LiftedEvent:
    """Where single examples are protected. One that is added or removed is one whose gradient is zero without it."""
    examples, noise, related = description.examples, description.noise, cast("Relation", relation)
    if examples is None or noise is None:
        raise ValueError("the mechanism says nothing of single examples, or of noise: there is nothing to account for.")
    if participation.sampling is not None and not revealed:
        raise ValueError(
            f"{participation} has no accountant where single examples are protected: take a pattern whose rounds are known."
        )
    times = participation.most
    if examples.weights == "gaussian":
        return LiftedEvent.of(description, times, related)
    if examples.weights == "equal":
        return Event(noise.accounted, math.sqrt(times), None, "analytic", related)
    batches = Sampling(examples.batch / examples.count, times, examples.batch, examples.count)
    return Event(noise.accounted, math.sqrt(times), batches, "rdp", "replace-one")


def _rounds(strategy: Any, participation: Participation) -> int:
    """The length of a run that nobody states: that of the pattern, or that of the strategy."""
    return int(getattr(participation, "rounds", None) or getattr(strategy, "rounds", None) or participation.most)


def _check_amplified(strategy: Any, participation: Participation, constraint: Constraint) -> None:
    """Sampling amplifies correlated noise only if the possible rounds of a client have orthogonal columns."""
    bands, sampling = getattr(strategy, "bands", None), participation.sampling
    apart = constraint.separation if isinstance(constraint, Separation) else 1
    if bands is not None and bands <= apart and sampling is not None and sampling.cohort_size is None:
        return
    remedy = "a banded strategy and CyclicPoisson" if bands is None else f"CyclicPoisson with at least {bands} groups"
    raise ValueError(
        f"{participation} has no accountant for noise correlated over rounds ({strategy.kind!r}): take {remedy} "
        '(pattern "cyclic-poisson"), a pattern whose rounds are known, or noise that is new in every round.'
    )


def _chosen(sampling: Sampling | None, accountant: str, relation: str, revealed: bool) -> str:
    """The accountant, or an error that says which go together."""
    if sampling is None:
        return "analytic" if accountant == "auto" else accountant
    if sampling.group_size > 1 and (revealed or accountant == "rdp"):
        raise ValueError("examples sampled one by one are accounted by accountant='pld', for an adversary who sees no rounds.")
    if revealed:
        _validate.one_of("accountant", accountant, ("auto", "analytic"))
        return "analytic"
    whole = sampling.cohort_size is not None
    long = sampling.rounds > _MOST_COMPOSED
    chosen = ("rdp" if whole or long else "pld") if accountant == "auto" else accountant
    if chosen == "pld" and long:
        raise ValueError(f"accountant='pld' composes at most {_MOST_COMPOSED:,} rounds; use accountant='rdp'.")
    if chosen == "analytic":
        raise ValueError("the analytic Gaussian formula knows no sampling; use accountant='pld' or 'rdp'.")
    if whole and (chosen != "rdp" or relation != "replace-one"):
        raise ValueError("sampling without replacement is accounted by accountant='rdp' under relation='replace-one' only.")
    if not whole and relation != "add-or-remove-one":
        raise ValueError("Poisson sampling is accounted under relation='add-or-remove-one' only.")
    return chosen


@lru_cache(maxsize=256)  # several views of a run ask for the same claim, and convolutions take seconds
def _epsilon(event: Event, delta: float) -> float:
    if event.noise == 0.0 or math.isinf(event.gap):  # of noise below what floats can divide by
        return math.inf
    if event.accountant == "analytic" or event.noise > MOST_NOISE:
        return float(gaussian_epsilon(0.0, 1.0, event.gap, 1.0, delta))
    if event.noise / MOVED[event.relation] < _LEAST_NOISE:
        return math.inf
    with heard() as warnings:
        found = float(_compose(event).get_epsilon(delta))
    # Of a Rényi order that it leaves out dp-accounting only warns, rightly: the smallest epsilon of the others is true.
    # To a divergence below zero, by rounding, it answers zero; true is then what holds without sampling.
    if any("Negative Renyi divergence" in warning for warning in warnings):
        return _epsilon(replace(event, accountant="analytic"), delta)
    return found


def _revealed(event: Event, delta: float) -> float:
    """The epsilon at which the mean of delta over the number of rounds t, given t >= 1, is `delta`.

    An adversary that sees the rounds faces a Gaussian that depends on them: P(event) <= e^epsilon Q(event) + delta_t given t,
    hence the same with the mean of delta_t. Numbers of rounds that are too rare to matter count with delta_t = 1.
    """
    from scipy.optimize import brentq
    from scipy.special import gammaln, xlog1py, xlogy

    if event.noise == 0.0 or event.sampling is None:
        return math.inf
    rounds, rate = event.sampling.rounds, event.sampling.rate
    times = np.arange(1.0, rounds + 1)
    log_ways = gammaln(rounds + 1) - gammaln(times + 1) - gammaln(rounds - times + 1)
    chance = np.exp(log_ways + xlogy(times, rate) + xlog1py(rounds - times, -rate)) / -np.expm1(xlog1py(rounds, -rate))
    rare = _RARE * delta
    matter = chance > rare / rounds
    chance, gaps = chance[matter], MOVED[event.relation] * np.sqrt(times[matter]) / event.noise

    def excess(epsilon: float) -> float:
        return float(chance @ gaussian_delta(0.0, 1.0, gaps, 1.0, epsilon)) + rare - delta

    most = float(gaussian_epsilon(0.0, 1.0, gaps.max(), 1.0, delta * (1 - 2 * _RARE)))
    if excess(0.0) <= 0 or not math.isfinite(most):
        return 0.0 if math.isfinite(most) else math.inf
    return float(brentq(excess, 0.0, most, xtol=1e-9))


def _compose(event: Event) -> Any:
    noise = event.noise / MOVED[event.relation]
    grid = _grid(event, noise)
    if event.sampling is not None and event.sampling.group_size > 1:
        return sampled_members(noise, event.sampling, grid)
    return _fresh(event.accountant, event.relation, grid).compose(_dp_event(event, noise))


def _grid(event: Event, noise: float) -> float:
    """The grid of privacy losses. Its rounding is pessimistic, so that a coarse one is safe.

    Losses of a round grow as 1/noise², and those of all rounds are spread over about mu²/2 + 10 mu: a grid that grows with both
    keeps memory and time bounded.
    """
    members = 1 if event.sampling is None else event.sampling.group_size
    if members > 1:  # mixtures take longer
        return _COARSER * _FINEST * max(1.0, (0.4 / noise) ** 2)
    if event.sampling is None:
        return _FINEST * max(1.0, (0.4 / noise) ** 2)
    rate, rounds = event.sampling.rate, event.sampling.rounds
    gap = min(rate * math.sqrt(rounds * math.expm1(min(noise**-2, 600.0))), math.sqrt(rounds) / noise)
    return max(_FINEST * max(1.0, (0.4 / noise) ** 2), (gap**2 / 2 + 10 * gap) / _MOST_POINTS)


@contextmanager
def heard() -> Iterator[list[str]]:
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


def _fresh(accountant: str, relation: Relation, grid: float) -> Any:
    """An empty accountant of dp-accounting."""
    from dp_accounting import NeighboringRelation, pld, rdp

    neighbours = {
        "add-or-remove-one": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace-one": NeighboringRelation.REPLACE_ONE,
    }[relation]
    if accountant == "pld":
        return pld.PLDAccountant(value_discretization_interval=grid)
    return rdp.RdpAccountant(neighboring_relation=neighbours)


def _dp_event(event: Event, noise: float) -> Any:
    import dp_accounting as dp

    sampling = event.sampling
    if sampling is None:  # t rounds of one Gaussian: as many rounds as the squared sensitivity, which fresh noise makes whole
        times = round(event.sensitivity**2)
        step = dp.GaussianDpEvent(noise)
        if not math.isclose(times, event.sensitivity**2, rel_tol=1e-9):
            return dp.GaussianDpEvent(noise / event.sensitivity)
        return step if times == 1 else dp.SelfComposedDpEvent(step, times)
    step = dp.GaussianDpEvent(noise)
    if sampling.cohort_size is None or sampling.population is None:
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(sampling.rate, step), sampling.rounds)
    sampled = dp.SampledWithoutReplacementDpEvent(sampling.population, sampling.cohort_size, step)
    return dp.SelfComposedDpEvent(sampled, sampling.rounds)


def name_of(accountant: str) -> str:
    """The accountant with its version: an epsilon never travels without it."""
    if accountant == "analytic":
        return "analytic Gaussian"
    if accountant == "water-filling":
        return "water-filling, tight; Rényi orders"
    from importlib.metadata import version

    return f"dp-accounting {version('dp-accounting')} {accountant.upper()}"
