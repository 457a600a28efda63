r"""What is claimed for water-filling noise with Gaussian sampling weights (Zhang & Psounis 2024, arXiv 2405.04551v2).

User i has gradients G_i of D examples, clipped to C, and sends G_i w_i with secret weights w_i ~ N(1/D, I/(BD)). It adds noise
that lifts every eigenvalue of its covariance G_i G_iᵀ/(BD) to at least `floor`. The server sees the sum over N users.

    paper     here          meaning
    C         clip_norm     of single gradients
    D, B      examples, batch   B is only a scale of the weights
    N         users         whose noise is in the sum: honest ones that survived
    sigma²    floor         variance per user, on what the user sends
    alpha     order         Rényi order

Three curves by name:

* `theorem4`: Theorem 4, with the domain that its proof needs, alpha < N B D sigma² / (2 C²). True, but not by its proof: (38)
  does not hold, since positive parts of matrices are not monotone.
* `printed`: the last row of Table 1, half of what Theorem 4 proves. Not proved; for comparison alone.
* `tight`: a proof by the Lipschitz bound. x -> max(x, sigma²) is 1-Lipschitz, so a replaced example changes the lifted
  covariance by at most sqrt(2) C²/(BD) in Frobenius norm: after whitening by q = sqrt(2) C² / (BD N sigma²). With
  s = alpha - 1 and h(e) = -(log(1 - s e) + s log(1 + e)) / 2, the worst change has all of q in one direction:

      epsilon_alpha = alpha M² / (2 (1 - s q)) + h(±q) / s,     M² = 4 C² / (D² N sigma²),     s q < 1,

  with + for s >= 1, - for s < 1 (which needs q < 1). Never larger than Theorem 4.

These curves do not depend on the data, so those of several rounds add up, also where rounds depend on earlier ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from coalmine import _validate
from coalmine.accounting.composition import converted, converted_delta
from coalmine.contracts import AtLeast, ByClients, Claim, Clip, Description, Game, Noise, ProtectedExamples

Formula = Literal["tight", "theorem4", "printed"]
FORMULAS = ("tight", "theorem4", "printed")
EXAMPLE_RELATIONS = {"replace-one": (4.0, math.sqrt(2)), "zero-out": (1.0, 1.0)}  # what M² and q are multiplied by
RANDOMNESS = "Gaussian weights and noise of the clients"


@dataclass(frozen=True)
class WaterFillingEvent:
    """One round of water-filling noise, as plain numbers."""

    clip_norm: float
    examples: int
    batch: float
    users: float
    floor: float
    formula: str = "tight"
    relation: str = "replace-one"

    def __post_init__(self) -> None:
        for name in ("clip_norm", "batch", "users"):
            _validate.positive(name, getattr(self, name))
        _validate.non_negative("floor", self.floor)
        _validate.whole("examples", self.examples, least=2)
        _validate.one_of("formula", self.formula, FORMULAS)
        _validate.one_of("relation", self.relation, EXAMPLE_RELATIONS)
        if self.formula != "tight" and self.relation != "replace-one":
            raise ValueError(
                f"formula={self.formula!r} is stated for relation='replace-one' alone; 'tight' has both relations."
            )
        if not self.batch <= self.examples:
            raise ValueError(
                f"batch={self.batch!r} is not allowed: it must be at most the number of examples, {self.examples}, of a user."
            )

    @property
    def shape(self) -> tuple[float, float]:
        """(M², q): the squared gap of the means and the change of the covariance, whitened by N sigma²."""
        squares, frobenius = EXAMPLE_RELATIONS[self.relation]
        noise = self.users * self.floor
        if noise == 0:
            return math.inf, math.inf
        share = self.clip_norm**2 / self.examples / noise
        return squares * share / self.examples, frobenius * share / self.batch

    @property
    def most(self) -> float:
        """Rényi orders below this have a finite curve; 1: none has."""
        _, q = self.shape
        if self.formula == "tight":
            return 1 + 1 / q if q < 1 else 1.0
        ratio = q / EXAMPLE_RELATIONS[self.relation][1]  # C²/(BD N sigma²)
        return 1 / (2 * ratio) if self.formula == "theorem4" else 1 / ratio

    def curve(self, order: float) -> float:
        """The Rényi divergence of one round at this order."""
        square, q = self.shape
        s = order - 1
        if not s > 0 or not order < self.most:
            return math.inf
        if self.formula == "tight":
            return order * square / (2 * (1 - s * q)) + _changed(s, q) / s
        times = 2.0 if self.formula == "theorem4" else 1.0
        ratio = q / EXAMPLE_RELATIONS[self.relation][1]
        return (order * square / 2 + times * order * ratio / s) / (1 - times * order * ratio)

    def epsilon(self, delta: float, rounds: int = 1, conversion: str = "mironov") -> float:
        """Epsilon of so many rounds."""
        return converted(lambda order: rounds * self.curve(order), delta, self.most, conversion)[0]

    def delta(self, epsilon: float, rounds: int = 1, conversion: str = "mironov") -> float:
        """Delta of so many rounds."""
        return converted_delta(lambda order: rounds * self.curve(order), epsilon, self.most, conversion)

    def describe(self, count: int | None = None) -> Description:
        """As a description: everything in units of what one example adds to the sum at most, C/D."""
        least = math.sqrt(self.users * self.floor) * self.examples / self.clip_norm
        return Description(
            clip=Clip(self.clip_norm / self.examples, over="example"),
            noise=Noise(
                accounted=least,
                multiplier=least,
                coordinates=AtLeast(least),
                added_by=ByClients(count or round(self.users), round(self.users)),
            ),
            denominator="none",
            examples=ProtectedExamples(self.examples, round(self.batch), "gaussian"),
        )


@dataclass(frozen=True)
class LiftedEvent:
    """Several rounds of water-filling noise as an accountant's event: the interface of `coalmine.accounting.events.Event`."""

    one: WaterFillingEvent
    rounds: int
    relation: Literal["add-or-remove-one", "replace-one"]
    noise: float
    accountant: str = "water-filling"
    sampling: None = None
    exact: bool = True  # about the participation; the formula itself is an upper bound

    @staticmethod
    def of(description: Description, rounds: int, relation: Any) -> LiftedEvent:
        """Of a description whose examples have Gaussian weights; an example that is left out has a zero gradient."""
        said, examples, norm = description.noise, description.examples, description.clip.norm
        if said is None or examples is None or not isinstance(norm, float):
            raise ValueError("Gaussian weights are accounted for with a fixed clip norm, noise, and examples alone.")
        share = (said.coordinates.floor * norm) ** 2
        played = "replace-one" if relation == "replace-one" else "zero-out"
        one = WaterFillingEvent(norm * examples.count, examples.count, examples.batch, 1, share, "tight", played)
        return LiftedEvent(one, rounds, relation, said.accounted)

    @property
    def gap(self) -> float:
        """mu of the means alone: what is measured may be larger, since the covariance changes too."""
        return math.sqrt(self.rounds * self.one.shape[0])

    def with_noise(self, noise: float) -> LiftedEvent:
        """The same with other noise."""
        factor = noise / self.noise if self.noise else 1.0  # no noise stays none
        return replace(self, one=replace(self.one, floor=self.one.floor * factor**2), noise=noise)

    def epsilon(self, delta: float) -> float:
        """The epsilon at this delta."""
        return self.one.epsilon(delta, self.rounds, "tight")

    def delta(self, epsilon: float) -> float:
        """The delta at this epsilon."""
        return self.one.delta(epsilon, self.rounds, "tight")


def claim_waterfilling(
    *,
    users: int,
    examples: int,
    batch: float,
    clip_norm: float,
    floor: float,
    delta: float,
    rounds: int = 1,
    formula: str = "tight",
    conversion: str = "mironov",
    relation: str = "replace-one",
    honest: int | None = None,
    survivors: int | None = None,
) -> Claim:
    """What is claimed for Gaussian sampling weights and water-filling noise after so many rounds.

    `honest` users keep their weights and noise secret; `survivors` of them are in the sum. Where fewer survive than are
    honest, the claim is that of the survivors. An infinite epsilon says that the floor is too low for any Rényi order.

    >>> setting = dict(users=50, examples=1200, batch=32, clip_norm=10.0, delta=1e-4)
    >>> print(claim_waterfilling(**setting, floor=0.01, rounds=100))
    epsilon = 1.136 at delta = 0.0001 (water-filling, tight; Rényi orders, mironov)
    >>> round(claim_waterfilling(**setting, floor=0.01, rounds=100, formula="theorem4").epsilon, 7)
    2.4742231

    Args:
        users: In a round.
        examples: Of each user.
        batch: Scale of the weights: variance 1/(batch examples).
        clip_norm: Of single gradients.
        floor: Least variance of each user in every direction.
        delta: Of the statement, above 0 and below 1.
        rounds: Number of rounds.
        formula: "tight", "theorem4" or "printed".
        conversion: From Rényi orders to epsilon.
        relation: "replace-one", or "zero-out": an example against a zero gradient.
        honest: Users who keep their weights and noise secret; None: all.
        survivors: Of them, who are in the sum.

    Returns:
        The claim.
    """
    delta, rounds = _validate.delta(delta), _validate.whole("rounds", rounds, least=1)
    users = _validate.whole("users", users, least=1)
    counted = noises_of(users, honest, survivors)
    event = WaterFillingEvent(clip_norm, examples, batch, counted, floor, formula, relation)
    notes = [*assumptions_of(counted, clip_norm, examples)]
    if event.formula == "printed":
        notes.append("Table 1 as printed: half of what Theorem 4 proves, and not proved")
    if math.isinf(event.epsilon(delta, rounds, conversion)):
        notes.append(too_low(event))
    if counted == 1:
        notes.append("one user's noise alone: secure aggregation hides nothing here")
    promised = users if honest is None else honest
    if survivors is not None and survivors < promised:
        notes.append(f"fewer survivors than promised: {survivors} of {promised}; the claim is that of the survivors")
    return Claim(
        epsilon=event.epsilon(delta, rounds, conversion),
        delta=delta,
        accountant=f"water-filling, {formula}; Rényi orders, {conversion}",
        game=example_game(relation, rounds),
        description=event.describe(users),
        assumptions=tuple(notes),
        question=lambda factor: replace(event, floor=event.floor * factor**2).epsilon(delta, rounds, conversion),
    )


def example_game(relation: str, rounds: int) -> Game:
    """One example of a user, in every round, against a server that knows all data and all models."""
    times: Any = "once" if rounds == 1 else f"{rounds} times"
    return Game("example", relation, times, "rounds known", RANDOMNESS)


def floor_for(event: WaterFillingEvent, epsilon: float, delta: float, rounds: int = 1, conversion: str = "mironov") -> float:
    """The smallest floor for which so many rounds have at most this epsilon.

    >>> setting = WaterFillingEvent(10.0, 1200, 32, 50, 0.01)
    >>> round(floor_for(setting, 1.1356371, 1e-4, rounds=100), 6)
    0.01
    """
    from scipy.optimize import brentq

    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.delta(delta)
    base = event.clip_norm**2 / event.examples / event.batch / event.users  # where q is about 1

    def excess(log_floor: float) -> float:
        found = replace(event, floor=base * math.exp(log_floor)).epsilon(delta, rounds, conversion)
        return min(found, 1e6) - epsilon

    low, high = -1.0, 1.0
    while excess(high) > 0:
        high += 2.0
    while excess(low) <= 0:
        low -= 2.0
    return base * math.exp(float(brentq(excess, low, high, xtol=1e-12)))


def noises_of(users: int, honest: int | None, survivors: int | None) -> int:
    """How many shares of noise the claim may count on."""
    counted = users
    for name, value in (("honest", honest), ("survivors", survivors)):
        if value is not None:
            if not _validate.whole(name, value, least=1) <= users:
                raise ValueError(f"{name}={value!r} is not allowed: it must be at most the number of users, {users}.")
            counted = min(counted, value)
    return counted


def assumptions_of(users: float, clip_norm: float, examples: int) -> tuple[str, ...]:
    """What must hold beside the mathematics."""
    return (
        "sampling weights are Gaussian, independent and secret",
        f"the weights and the noise of at least {users:g} honest users are in every sum",
        f"every gradient of an example is clipped to {clip_norm:g} before anything else",
        f"every user has exactly {examples} examples",
    )


def too_low(event: WaterFillingEvent) -> str:
    """Why there is no finite epsilon, and what would give one."""
    factor, below = {
        "tight": (EXAMPLE_RELATIONS[event.relation][1], "sqrt(2) C²/(B D) (alpha - 1); at alpha = 2"),
        "theorem4": (2.0, "2 alpha C²/(B D); at alpha = 1"),
        "printed": (1.0, "alpha C²/(B D); at alpha = 1"),
    }[event.formula]
    if event.relation == "zero-out":
        below = below.replace("sqrt(2) ", "")
    least = factor * event.clip_norm**2 / (event.batch * event.examples) / event.users
    return f"floor too low: users · floor must exceed {below} that is a floor of {least:.3g}, and it is {event.floor:g}"


def _changed(s: float, q: float) -> float:
    """h(±q): what a covariance that changes by q in one direction adds. The linear terms of both logarithms cancel."""
    e = q if s >= 1 else -q
    return -(_log1p_less(-s * e) + s * _log1p_less(e)) / 2


def _log1p_less(y: float) -> float:
    """log(1 + y) - y without cancellation."""
    if abs(y) > 0.01:
        return math.log1p(y) - y
    return sum(-((-y) ** k) / k for k in range(2, 12))
