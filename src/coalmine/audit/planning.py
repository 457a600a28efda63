"""Before training: how many canaries to take, and what they can decide.

The default pool is the smallest that tells half the noise from the claim, as far as the model has room for it: canaries are
orthogonal directions, and at least as many must stay unused. In large models fewer are taken, since each costs a transform and
the tests of conformance see the noise itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from coalmine.audit.spec import LEAST_POOL
from coalmine.canaries.transform import SIGNS_SLACK, smooth_below
from coalmine.contracts.conformance import LEVEL
from coalmine.errors import NotEnoughCanariesError
from coalmine.estimators.power import Design, detectable
from coalmine.gaussian import gaussian_epsilon, gaussian_gap
from coalmine.verdict import HALF_NOISE

LARGEST_POOL = 2400
_USUAL = 600  # where neither noise nor epsilon is known before training
_SMALL_MODEL = 100_000  # parameters, above which the largest pool shrinks
_FEW = 200
_TESTS = 15  # of the battery of conformance, which share its level
_POWER_QUANTILE = 0.8416  # of the normal at 0.8


def largest_pool(dim: int) -> int:
    """As many canaries as leave as many directions unused."""
    return smooth_below(dim) // 2


def check_pool(pool: int, dim: int) -> None:
    """Refuse a pool that the model has no room for."""
    if pool > largest_pool(dim):
        room = largest_pool(dim)
        remedy = f"take Audit(pool={room}) or less" if room >= LEAST_POOL else "audit it with coalmine.testing.assert_conforms"
        raise NotEnoughCanariesError(
            f"{pool} canaries do not fit into a model of {dim} parameters, of whose directions at least half stay unused: "
            f"{remedy}."
        )


def usual_pool(claim: float | None, dim: int, *, delta: float, confidence: float) -> int:
    """The smallest pool that notices half the noise, if the model has room for it; else the largest."""
    room = max(min(largest_pool(dim), max(_FEW, LARGEST_POOL * _SMALL_MODEL // max(dim, _SMALL_MODEL))), LEAST_POOL)
    if claim is None or not math.isfinite(claim):
        return min(_USUAL, room)
    enough = _enough(claim, room, delta, confidence)
    return room if enough is None else max(min(enough, room), min(_FEW, room))


def _notices_half(claim: float, pool: int, delta: float, confidence: float) -> bool:
    worst = float(gaussian_epsilon(0.0, 1.0, HALF_NOISE * gaussian_gap(claim, delta), 1.0, delta))
    return detectable(claim, Design(max(pool // 2, 1), slack=SIGNS_SLACK), delta=delta, confidence=confidence) <= worst


def _enough(claim: float, most: int, delta: float, confidence: float) -> int | None:
    """The smallest pool, to about a tenth, that notices half the noise; None if `most` does not."""
    if claim <= 0 or not _notices_half(claim, most, delta, confidence):
        return None
    low, high = 1, most
    while high > 1.1 * low + 1:
        middle = round(math.sqrt(low * high))
        low, high = (low, middle) if _notices_half(claim, middle, delta, confidence) else (middle, high)
    found = min(-(-high // 20) * 20, most)
    while found < most and not _notices_half(claim, found, delta, confidence):  # more canaries are not always better by a hair
        found = min(found + 20, most)
    return found


@dataclass(frozen=True)
class AuditPlan:
    """What an audit of this size can decide, in one line."""

    pool: int
    claim: float | None  # of the canaries' game; None: not known before training
    delta: float
    confidence: float
    numbers: int  # parameters times steps: residuals that conformance looks at; 0 where it cannot
    sampled: bool = False  # canaries are sampled as examples are
    room: int | None = None  # canaries that the model has room for

    @property
    def decides(self) -> bool:
        """Whether the lower bound tells half the noise from the claim."""
        known = self.claim is not None and 0 < self.claim < math.inf
        return known and not self.sampled and _notices_half(self.claim or 0.0, self.pool, self.delta, self.confidence)

    @property
    def noticed(self) -> float | None:
        """How much less noise, as a share, the tests of conformance notice with probability 0.8; None where they cannot."""
        if not self.numbers:
            return None
        from scipy.special import ndtri

        return float((_POWER_QUANTILE - ndtri(LEVEL / _TESTS / 2)) / math.sqrt(2 * self.numbers))

    def __str__(self) -> str:
        many = f"{self.pool:,} canaries"
        if self.sampled:
            said = f"{many}, sampled as examples are, test the claim with amplification; small violations of it stay unseen"
        elif self.claim is None or not 0 < self.claim < math.inf:
            said = f"{many}; what they can decide depends on the claim, which is not known yet"
        elif self.decides:
            said = f"{many} tell half the noise from the claim {self.claim:.3g}"
        else:
            more = _enough(self.claim, 100 * LARGEST_POOL, self.delta, self.confidence)
            other = f"{more:,} would" if more is not None else "no number of canaries would"
            if more is not None and self.room is not None and more > self.room:
                other += f", and this model has room for {self.room:,}"
            said = f"{many} cannot tell half the noise from the claim {self.claim:.3g}; {other}"
        seen = self.noticed
        if seen is not None:
            said += f"; conformance will see {100 * seen:.2g} % less noise" if seen < 0.5 else ""
        return said
