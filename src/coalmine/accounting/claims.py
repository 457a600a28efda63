"""What is claimed: the description of a mechanism and the participation of one unit to a `Claim`.

`claim_of` reads a description. `claim`, `claimed_delta` and `calibrate_noise` are the same for plain Gaussian noise that is new
in every round, given by its noise multiplier: the standard deviation of the noise on the SUM of clipped updates, in clip norms.
How each pattern is accounted is in `coalmine.accounting.events`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Literal, cast

from coalmine import _validate
from coalmine.accounting.events import MOST_NOISE, Accountant, event_of, name_of
from coalmine.contracts import ByClients, Claim, Clip, Constraint, Description, Game, Noise, Participation, Sampling
from coalmine.gaussian import gaussian_gap

_ASSUMED = "Gaussian noise, clipping and participation as described"
_UPPER = "the sensitivity of the correlated noise is an upper bound: the true epsilon may be smaller"
_PRECISION = 1e-5  # of a calibrated noise multiplier, relative
_MOST_DOWNWARDS = 1e5  # noise without sampling, from which the search for example-level sampling begins


def claim_of(
    description: Description,
    participation: Participation,
    *,
    delta: float,
    accountant: Accountant = "auto",
    relation: str | None = None,
    unit: str = "client",
    rounds_known: bool = False,
    rounds: int | None = None,
    constraint: Constraint | None = None,
) -> Claim:
    """The epsilon that the accountant proves for the mechanism that describes itself so, and this participation.

    With `rounds_known` the adversary knows in which rounds its target took part, at least one, and sampling hides nothing.
    For patterns without sampling the accountant always allows for that. `rounds` is the length of the run, which noise that is
    correlated over rounds needs to know; `constraint` the sets of rounds themselves, where they are known better than by the
    pattern.
    """
    delta = _validate.delta(delta)
    revealed = rounds_known and participation.sampling is not None
    event = event_of(
        description,
        participation,
        accountant=accountant,
        relation=relation,
        revealed=revealed,
        rounds=rounds,
        constraint=constraint,
    )
    return Claim(
        epsilon=event.epsilon(delta),
        delta=delta,
        accountant=name_of(event.accountant),
        game=game(participation, relation=event.relation, unit=unit, rounds_known=rounds_known, description=description),
        description=description,
        assumptions=(_ASSUMED,) if event.exact else (_ASSUMED, _UPPER),
        question=lambda factor: event.with_noise(event.noise * factor).epsilon(delta),
    )


def claim(
    participation: Participation,
    *,
    noise_multiplier: float,
    delta: float,
    accountant: Accountant = "auto",
    relation: str | None = None,
    unit: str = "client",
    rounds_known: bool = False,
) -> Claim:
    """The epsilon that the accountant proves for Gaussian noise and this participation.

    With `rounds_known` the adversary knows in which rounds its target took part, at least one, and sampling hides nothing.
    For patterns without sampling the accountant always allows for that.

    >>> from coalmine.participation import Once, Poisson
    >>> print(claim(Once(), noise_multiplier=1.0, delta=1e-5))
    epsilon = 4.377 at delta = 1e-05 (analytic Gaussian)
    >>> print(claim(Poisson(rate=0.01, rounds=1000), noise_multiplier=1.0, delta=1e-5))
    epsilon = 1.828 at delta = 1e-05 (dp-accounting ... PLD)
    >>> print(claim(Poisson(rate=0.01, rounds=1000), noise_multiplier=1.0, delta=1e-5, rounds_known=True))
    epsilon = 23.39 at delta = 1e-05 (analytic Gaussian)

    Args:
        participation: How a client takes part, as `Once()` or `Poisson(0.01, 1000)`.
        noise_multiplier: Standard deviation of the noise on the sum, in clip norms.
        delta: Of the statement, above 0 and below 1.
        accountant: "auto", "analytic", "pld" or "rdp".
        relation: "add-or-remove-one" or "replace-one"; by default the one that fits the participation.
        unit: "client" or "example".
        rounds_known: Whether the adversary knows the rounds of its target.

    Returns:
        The claim, with its accountant and its game.
    """
    return claim_of(
        plain_gaussian(noise_multiplier),
        _known(participation),
        delta=delta,
        accountant=accountant,
        relation=relation,
        unit=unit,
        rounds_known=rounds_known,
    )


def plain_gaussian(noise_multiplier: float) -> Description:
    """Clipping to a norm that is not stated, and fresh noise of so many clip norms."""
    noise = _validate.non_negative("noise_multiplier", noise_multiplier)
    return Description(Clip(None), Noise(noise, noise))


def game(
    participation: Participation,
    *,
    relation: str | None = None,
    unit: str = "client",
    rounds_known: bool = False,
    description: Description | None = None,
) -> Game:
    """The game that `claim` with the same arguments speaks of; a measurement beside it must have been made in it.

    >>> from coalmine.participation import Poisson
    >>> game(Poisson(rate=0.01, rounds=1000)).knowledge
    'rounds unknown'
    """
    sampled = _known(participation).sampling is not None
    by_clients = description is not None and description.noise is not None and isinstance(description.noise.added_by, ByClients)
    return Game(
        unit=_validate.one_of("unit", unit, ("client", "example")),
        relation=participation.relation if relation is None else relation,
        participation=participation.attendance,
        knowledge="rounds unknown" if sampled and not rounds_known else "rounds known",
        randomness="noise of the clients" if by_clients else None,
    )


def claimed_delta(
    participation: Participation,
    *,
    noise_multiplier: float,
    epsilon: float,
    accountant: Accountant = "auto",
    relation: str | None = None,
) -> float:
    """The delta at which the mechanism is (epsilon, delta)-DP.

    Args:
        participation: How a client takes part, as `Once()` or `Poisson(0.01, 1000)`.
        noise_multiplier: Of the noise on the sum, in clip norms.
        epsilon: Of the statement.
        accountant: "auto", "analytic", "pld" or "rdp".
        relation: "add-or-remove-one" or "replace-one"; by default the one that fits the participation.

    Returns:
        The delta.
    """
    noise_multiplier = _validate.positive("noise_multiplier", noise_multiplier)
    epsilon = _validate.non_negative("epsilon", epsilon)
    event = event_of(plain_gaussian(noise_multiplier), _known(participation), accountant=accountant, relation=relation)
    return event.delta(epsilon)


def calibrate_noise(
    participation: Participation,
    *,
    epsilon: float,
    delta: float,
    accountant: Accountant = "auto",
    relation: str | None = None,
    description: Description | None = None,
    constraint: Constraint | None = None,
) -> float:
    """The smallest noise multiplier for which the claim is at most `epsilon`.

    `description` is that of the mechanism, with noise of any size; without it, independent noise.

    >>> from coalmine.participation import Once
    >>> round(calibrate_noise(Once(), epsilon=10.0, delta=1e-6), 6)
    0.541087

    Args:
        participation: How a client takes part, as `Once()` or `Poisson(0.01, 1000)`.
        epsilon: What is to be claimed.
        delta: Of the statement, above 0 and below 1.
        accountant: "auto", "analytic", "pld" or "rdp".
        relation: "add-or-remove-one" or "replace-one"; by default the one that fits the participation.
        description: Of the mechanism.
        constraint: Rounds in which a client can be, where the pattern does not say it.

    Returns:
        The noise multiplier.
    """
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.delta(delta)
    described = plain_gaussian(1.0) if description is None else description
    event = event_of(described, _known(participation), accountant=accountant, relation=relation, constraint=constraint)
    event = event.with_noise(1.0)
    if (chance := _ever(event.sampling)) <= delta:
        raise ValueError(
            f"a client takes part at all with a probability of at most {chance:.3g}, which is within delta={delta:g}: "
            "epsilon is 0 without any noise, and none is searched. Ask for a smaller delta."
        )
    unsampled = event.gap / gaussian_gap(epsilon, delta)  # exact if the rounds are known
    if event.accountant == "analytic":
        return unsampled

    @cache
    def excess(log_noise: float, by: str) -> float:
        asked = replace(event, noise=math.exp(log_noise), accountant=cast("Literal['pld', 'rdp']", by))
        return min(asked.epsilon(delta), 2 * epsilon + 1) - epsilon  # finite, as the search needs it

    log_noise: float | None = math.log(unsampled)
    members = 1 if event.sampling is None else event.sampling.group_size
    if members > 1:  # no Rényi accountant: downwards from what holds without sampling, as small noise takes long
        if unsampled > _MOST_DOWNWARDS:
            raise ValueError(f"noise for {members:,} examples of a client over so many rounds is not searched: too long a way.")
        log_noise = _zero(lambda x: excess(x, "pld"), math.log(unsampled), step=0.25, most=math.log(unsampled) + 0.5)
    elif event.accountant == "rdp" or event.sampling is not None:
        most = math.log(min(100 * unsampled, MOST_NOISE)) - 1.0  # looser than exact, but not beyond all bounds
        log_noise = _zero(lambda x: excess(x, "rdp"), 0.0, step=1.0, most=most)
    if log_noise is not None and event.accountant == "pld" and members == 1:  # tighter than Rényi and slower: searched near it
        log_noise = _zero(lambda x: excess(x, "pld"), log_noise, step=0.125, most=log_noise + 0.5)
    if log_noise is None:
        raise ValueError(
            f"accountant={event.accountant!r} finds no noise multiplier with epsilon={epsilon:g} at delta={delta:g}; "
            "ask for a larger epsilon or delta, or take the other accountant ('pld' or 'rdp')."
        )
    return math.exp(log_noise + _PRECISION)


def _ever(sampling: Sampling | None) -> float:
    """The probability that somebody takes part in any round: no release tells more, in total variation."""
    if sampling is None or sampling.rate >= 1:
        return 1.0
    return -math.expm1(sampling.rounds * sampling.group_size * math.log1p(-sampling.rate))


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


def _known(participation: Participation) -> Participation:
    """A pattern, or an error that says what came instead."""
    if not hasattr(participation, "attendance"):
        raise ValueError(f"participation={participation!r} is no pattern of coalmine.participation, as Once() or Poisson(...).")
    return participation
