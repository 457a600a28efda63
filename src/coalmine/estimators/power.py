"""Before the run: what could an audit of this size find?

Every answer is by simulation of one Gaussian release (scores N(0,1) held out, N(mu,1) inserted) or by a bound's own
formula under perfect separation. Nothing here looks at scores of a real run.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import LowerBound, percent
from coalmine.errors import AuditError
from coalmine.estimators import BOUNDS
from coalmine.estimators.band import Shape
from coalmine.estimators.one_run import Guesses, one_run_epsilon, right_guesses
from coalmine.gaussian import gaussian_epsilon, gaussian_gap
from coalmine.nulls import GaussianNull, measured_on
from coalmine.scores import Scores

LARGEST_DESIGN = 1_000_000
_MOST_COINS = 200_000  # of a simulated table of coins; larger ones have the same share of right guesses
FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0)  # by which noise may be too small


@dataclass(frozen=True)
class Design:
    """The size of an audit: all that a bound's power depends on.

    `held_out=None` means that the law of held-out scores is known exactly, up to `slack` nats and, where its spread was
    measured, up to the error of so many `directions`. `pool` is the number of all canaries where coins decided, which one-run
    bounds count; by default twice the inserted ones.

    Args:
        inserted: Canaries that take part.
        held_out: Canaries that do not; None: the law of their scores is known.
        slack: Nats by which that law may be wrong.
        pool: All canaries, where coins decide.
        directions: Unused directions on which the spread of the law was measured.
    """

    inserted: int
    held_out: int | None = None
    slack: float = 0.0
    pool: int | None = None
    directions: int | None = None

    def __post_init__(self) -> None:
        _validate.whole("inserted", self.inserted, least=1)
        if self.held_out is not None:
            _validate.whole("held_out", self.held_out, least=1)
        if self.pool is not None:
            _validate.whole("pool", self.pool, least=self.inserted)
        if self.directions is not None:
            _validate.whole("directions", self.directions, least=2)
        _validate.non_negative("slack", self.slack)

    @classmethod
    def of(cls, scores: Scores) -> "Design":
        """The design behind these scores."""
        inserted, pool = int(scores.inserted.sum()), int(scores.inserted.size)
        if scores.null is not None:
            return cls(inserted, None, scores.null.slack, pool, measured_on(scores.null))
        return cls(inserted, pool - inserted, pool=pool)

    def bound(self, method: str, *, delta: float, confidence: float) -> LowerBound:
        """The bound of this design under perfect separation: its epsilon is the ceiling, and it knows what it can detect."""
        _validate.one_of("method", method, BOUNDS)
        coins = (self.pool or 2 * self.inserted) - self.inserted if BOUNDS[method].needs_coins else None
        return BOUNDS[method](self.scores(coins), delta=delta, confidence=confidence)

    def scores(self, held_out: int | None = None) -> Scores:
        """Scores of this design, perfectly separated."""
        null = GaussianNull(slack=self.slack, directions=self.directions) if self.held_out is None else None
        others = np.linspace(-0.5, 0.5, held_out or self.held_out or 0)
        return Scores.of(np.full(self.inserted, 1e6), others, null=null, assignment="coins")


def ceilings(design: Design, *, delta: float, confidence: float = 0.95) -> dict[str, float]:
    """The value of each bound under perfect separation; bounds that need several runs are left out.

    Args:
        design: The size of the audit.
        delta: Of the statement, above 0 and below 1.
        confidence: Of the bounds.

    Returns:
        By key of the bound, its ceiling.
    """
    found = {}
    for method in BOUNDS:
        try:
            found[method] = design.bound(method, delta=delta, confidence=confidence).ceiling
        except AuditError:  # lifted needs runs
            continue
    return found


def detectable(claim: float, design: Design, *, delta: float, confidence: float = 0.95, method: str = "band") -> float:
    """The smallest true epsilon that the audit shows to be above `claim` with probability 0.8.

    >>> 4.38 < detectable(4.377, Design(inserted=1000), delta=1e-5) < 9.0
    True

    Args:
        claim: Epsilon of the claim.
        design: The size of the audit.
        delta: Of the statement, above 0 and below 1.
        confidence: Of the bound.
        method: A key of `coalmine.estimators.BOUNDS`.

    Returns:
        Epsilon; infinite if no leak would be shown.
    """
    claim, delta = _validate.non_negative("claim", claim), _validate.delta(delta)
    return design.bound(method, delta=delta, confidence=confidence).detectable_above(claim)


def chance_of_noticing(claim: float, design: Design, *, noise_factor: float, delta: float, confidence: float = 0.95) -> float:
    """The probability that the band shows more than `claim`, if the noise is too small by `noise_factor`: by simulation.

    The scores of inserted canaries are those of one Gaussian release, `noise_factor` times as far from the null as the claim
    allows. With a factor of 1, nothing is wrong, and this is the chance of a false alarm.

    >>> chance_of_noticing(9.997, Design(inserted=316), noise_factor=2.0, delta=1e-5) > 0.95
    True
    """
    claim, delta = _validate.positive("claim", claim), _validate.delta(delta)
    gap = _validate.positive("noise_factor", noise_factor) * gaussian_gap(claim, delta)
    shape = Shape.of(design.scores(), _validate.confidence(confidence))
    return shape.share_above(gap, claim, delta)


def noticeable_noise_factor(claim: float, found: float, delta: float) -> float:
    """How many times too small the noise must be for a claim of `claim` to turn into a true epsilon of `found`."""
    return gaussian_gap(found, delta) / gaussian_gap(claim, delta) if np.isfinite(found) else float("inf")


def canaries_needed(
    claim: float,
    *,
    delta: float,
    noise_factor: float = 2.0,
    confidence: float = 0.95,
    sampled: bool = False,
    slack: float = 0.0,
) -> int | None:
    """Inserted canaries for which noise too small by `noise_factor` is noticed with probability 0.8 by the band.

    Rounded up to two digits; None if a million are not enough. `slack` is that of the null law, in nats; `sampled` means as
    many held-out canaries instead of
    an exact null.

    Args:
        claim: Epsilon of the claim.
        delta: Of the statement, above 0 and below 1.
        noise_factor: By which the noise is too small.
        confidence: Of the bound.
        sampled: Whether as many held-out canaries stand for the null.
        slack: Nats of the null law.

    Returns:
        Inserted canaries, or None.
    """
    claim, delta = _validate.positive("claim", claim), _validate.delta(delta)
    noise_factor = _validate.between("noise_factor", noise_factor, 1.0, np.inf)
    worst = float(gaussian_epsilon(0.0, 1.0, noise_factor * gaussian_gap(claim, delta), 1.0, delta))

    def enough(count: int) -> bool:
        design = Design(count, count) if sampled else Design(count, slack=slack)
        return detectable(claim, design, delta=delta, confidence=confidence) <= worst

    low, high = 1, 10
    while not enough(high):
        if high == LARGEST_DESIGN:
            return None
        low, high = high, min(high * 4, LARGEST_DESIGN)
    while high > low * 1.02 + 1:
        middle = round((low * high) ** 0.5)
        low, high = (low, middle) if enough(middle) else (middle, high)
    step = 10 ** max(0, len(str(high)) - 2)
    return int(-(-high // step) * step)


@lru_cache(maxsize=64)
def best_guesses(canaries: int, epsilon: float, *, delta: float, confidence: float = 0.95) -> tuple[Guesses, float]:
    """The guess counts that give the largest median one-run bound if the true epsilon is `epsilon`, and that bound.

    To be fixed before the run: from the claim, never from the scores.

    Args:
        canaries: Coins.
        epsilon: The true epsilon that is supposed.
        delta: Of the statement, above 0 and below 1.
        confidence: Of the bound.

    Returns:
        The guesses, and the median bound.
    """
    canaries, confidence = _validate.whole("canaries", canaries, least=2), _validate.confidence(confidence)
    mu, best = gaussian_gap(_validate.positive("epsilon", epsilon), _validate.delta(delta)), (Guesses.default(canaries), 0.0)
    size, tables = min(canaries, _MOST_COINS), []
    for replicate in range(25):
        rng = stream(0, "guesses", replicate)
        coins = rng.random(size) < 0.5
        coins[0] = True
        tables.append(Scores(rng.standard_normal(size) + mu * coins, coins, assignment="coins", null=GaussianNull()))
    for share in (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5):
        each = int(share * canaries)
        if each < 1:
            continue
        guesses, simulated = Guesses(each, each), Guesses(int(share * size), int(share * size))
        median = float(np.median([right_guesses(table, simulated) for table in tables]))
        right = int(median * guesses.total / simulated.total)
        found = one_run_epsilon(canaries, guesses.total, right, delta, confidence)
        best = max(best, (guesses, found), key=lambda pair: pair[1])
    return best


@dataclass(frozen=True)
class PowerPlan:
    """What an audit of this design can say about a claim."""

    claim: float
    delta: float
    confidence: float
    noise_multiplier: float  # of a single Gaussian release with this claim
    design: Design
    ceilings: dict[str, float]
    detectable: float
    noise_factor: float
    sufficient: bool  # would notice half the noise
    power: dict[str, float]  # by how many times too small the noise is, the chance that the band shows it
    canaries_needed: int | None
    guesses: Guesses
    guesses_bound: float

    def __str__(self) -> str:
        null = (
            "exact null law" if self.design.slack == 0 else f"null law, its tail up to {self.design.slack:.3g} nats too large"
        )
        if self.design.held_out is not None:
            null = f"{self.design.held_out} held-out canaries"
        ceiling = self.ceilings["band"]
        shown = "no ceiling" if np.isinf(ceiling) else f"ceiling {ceiling:.3g}"
        found = (
            f"an epsilon of {self.detectable:.3g} or more, that is noise too small by a factor of {self.noise_factor:.2f}"
            if np.isfinite(self.detectable)
            else "no violation of any size"
        )
        needed = "more than a million" if self.canaries_needed is None else f"about {self.canaries_needed:,}"
        half = "would be noticed" if self.sufficient else "would probably be missed"
        chances = "; ".join(f"{factor} times too little {100 * chance:.0f}%" for factor, chance in self.power.items())
        guesses = f"{self.guesses.positive} highest + {self.guesses.negative} lowest of {2 * self.design.inserted:,} coins"
        return "\n".join(
            [
                f"Plan for a claim: epsilon = {self.claim:g} at delta = {self.delta:g}, confidence {percent(self.confidence)}",
                f"  equivalent noise   {self.noise_multiplier:.4g} (noise multiplier of a single Gaussian release)",
                f"  design             {self.design.inserted:,} inserted canaries, {null}: {shown}",
                f"  would notice       {found} (probability 0.8)",
                f"  half the noise     {half}; to notice it takes {needed} canaries",
                f"  chance to notice   {chances}",
                f"  one-run guesses    {guesses}; median bound {self.guesses_bound:.3g} if the claim is tight",
            ]
        )


def plan(claim: float, *, delta: float, design: Design | None = None, confidence: float = 0.95) -> PowerPlan:
    """Ceiling, smallest detectable violation, canaries needed and guess counts for a claim, before the run.

    Args:
        claim: Epsilon of the claim.
        delta: Of the statement, above 0 and below 1.
        design: The size of the audit.
        confidence: Of the bounds.

    Returns:
        The plan; print it.
    """
    claim, delta = _validate.positive("claim", claim), _validate.delta(delta)
    confidence = _validate.confidence(confidence)
    design = Design(inserted=1000) if design is None else design
    for name, count in (("canaries", design.inserted), ("held_out", design.held_out)):
        if count is not None and count > LARGEST_DESIGN:
            raise ValueError(f"{name}={count} is not allowed: a plan simulates at most {LARGEST_DESIGN:,} canaries.")
    found = detectable(claim, design, delta=delta, confidence=confidence)
    mu = gaussian_gap(claim, delta)
    guesses, guesses_bound = best_guesses(2 * design.inserted, claim, delta=delta, confidence=confidence)
    return PowerPlan(
        claim=claim,
        delta=delta,
        confidence=confidence,
        noise_multiplier=1 / mu,
        design=design,
        ceilings=ceilings(design, delta=delta, confidence=confidence),
        detectable=found,
        noise_factor=noticeable_noise_factor(claim, found, delta),
        sufficient=found <= float(gaussian_epsilon(0.0, 1.0, 2 * mu, 1.0, delta)),
        power={
            f"{factor:g}": chance_of_noticing(claim, design, noise_factor=factor, delta=delta, confidence=confidence)
            for factor in FACTORS
        },
        canaries_needed=canaries_needed(
            claim, delta=delta, confidence=confidence, sampled=design.held_out is not None, slack=design.slack
        ),
        guesses=guesses,
        guesses_bound=guesses_bound,
    )
