"""Does the code do what the accountant was told? The fourth kind of statement, which never turns into an epsilon bound.

A `Description` is a sharp statistical hypothesis: clip to C, sum, add N(0, (sigma C)² I), divide by n, cohorts drawn like this.
Whoever sees the contributions and the release can test it sentence by sentence. A `Finding` is the test of one sentence,
`Conformance` all of them together, with the rate of false alarms of the whole family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from coalmine.contracts import finding_sentences as sentences

Side = Literal["none", "less", "more", "unknown"]
LEVEL = 0.001  # family-wise rate of false alarms; a level of its own, beside the confidence of bounds


@dataclass(frozen=True)
class Finding:
    """The test of one sentence of a description.

    `claimed` and `measured` are in the sentence's own unit (noise multiplier, contributions that differ, ...); None where it
    has no number. `p_value` is corrected within the test (over rounds, layers, coordinates), `adjusted` over the whole family
    (Holm). `side` says where a deviation lies: "less" protection than claimed, "more", "unknown" (shape, structure,
    predictability: the claim was computed for another mechanism), or "none" where this test found no deviation.
    """

    key: str  # of `coalmine.contracts.finding_sentences.FINDINGS`, and of `coalmine.conformance.CHECKS`
    claimed: float | None
    measured: float | None
    low: float | None  # interval of `measured`, at `confidence`
    high: float | None
    p_value: float
    side: Side = "none"
    adjusted: float = 1.0
    confidence: float = 0.95
    where: str | None = None  # the round, layer, coordinate or lag at which a deviation is largest, as "round 12"
    detectable: float | None = None  # the smallest deviation that is noticed with probability 0.8, in the unit of `measured`
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The sentence of the description that was tested."""
        return sentences.finding(self.key, self.details)

    @property
    def deviates(self) -> bool:
        """Whether this sentence was found false, at the level of the family."""
        return self.side != "none"

    def __str__(self) -> str:
        return sentences.finding_line(self)


@dataclass(frozen=True)
class NotTested:
    """A sentence of the description that could not be tested here, and the code of the reason."""

    key: str  # of a check
    code: str  # of `coalmine.contracts.finding_sentences.NOT_TESTED`
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        return sentences.not_tested(self.code, self.data)


@dataclass(frozen=True)
class Conformance:
    """All tests of a description.

    Under the claimed mechanism the probability that any finding deviates is at most `level`, all tests together.
    """

    findings: tuple[Finding, ...]
    level: float = LEVEL
    not_tested: tuple[NotTested, ...] = ()
    rounds: int = 0  # that were looked at
    coordinates: int = 0
    noise_by_round: tuple[float, ...] = ()  # noise multiplier measured, for a chart; blocks of rounds where there are many
    rounds_per_point: int = 1
    noticed_noise_factor: float | None = None  # noise at most this many times the claimed one is noticed with probability 0.8
    epsilon_at_measured: tuple[float, ...] = ()  # epsilon, low, high: the same accountant at the noise that was measured

    @property
    def p_value(self) -> float:
        """The smallest p-value, adjusted for the number of tests; 1 where nothing was tested."""
        return min((each.adjusted for each in self.findings), default=1.0)

    @property
    def deviations(self) -> tuple[Finding, ...]:
        """The sentences that were found false."""
        return tuple(each for each in self.findings if each.deviates)

    @property
    def side(self) -> Side:
        """Where the code deviates: "less" or "unknown" fail a gate, "more" does not; the worst of all findings."""
        found = {each.side for each in self.deviations}
        return next((side for side in ("less", "unknown", "more") if side in found), "none")

    @property
    def noise(self) -> Finding | None:
        """The noise multiplier that was measured, if it was."""
        return next((each for each in self.findings if each.key == "noise-scale"), None)

    def finding(self, key: str) -> Finding | None:
        """The test of one sentence; None if it was not made."""
        return next((each for each in self.findings if each.key == key), None)

    def __str__(self) -> str:
        return sentences.conformance_line(self)
