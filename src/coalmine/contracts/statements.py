"""What may be said about a training's privacy. Three kinds of statement, never confused:

* `Claim`: what an accountant proves, an upper bound on epsilon if the code is right.
* `LowerBound`: what an audit proves at a stated confidence.
* `PointEstimate`: what fitted distributions suggest, with an interval and the value that no leakage would give.

A `Verdict` compares a claim with a lower bound of the same `Game`, and with the tests of the claimed mechanism's description
(`coalmine.contracts.conformance`), which are a statement of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

from coalmine import _validate
from coalmine.contracts import sentences
from coalmine.contracts.conformance import Side
from coalmine.contracts.description import Description
from coalmine.contracts.notation import notation
from coalmine.rounding import percent

Word = Literal["VIOLATED", "DEVIATES", "CONSISTENT", "INCONCLUSIVE"]


@dataclass(frozen=True)
class Attendance:
    """How often, and when, one client or canary takes part: a `coalmine.participation` pattern as data.

    `kind` is the name of the pattern; "stated" is somebody's own words, `text`, which must be those of the notation ("once",
    "8 times") to be equal to a pattern.
    """

    kind: str
    times: int | None = None  # exactly so often
    most: int | None = None  # or at most so often
    separation: int | None = None
    rounds: int | None = None
    rate: float | None = None
    cohort_size: int | None = None
    population: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        return sentences.attendance(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Attendance) and "stated" not in (self.kind, other.kind):
            return astuple(self)[:-1] == astuple(other)[:-1]  # but for the text, a copy for readers of files
        if not isinstance(other, Attendance | str):
            return False
        return notation(self) == (other if isinstance(other, str) else notation(other))

    def __hash__(self) -> int:
        return hash(notation(self))

    @classmethod
    def of(cls, words: str | Attendance | None) -> Attendance | None:
        """Somebody's own words."""
        return cls("stated", text=words) if isinstance(words, str) else words


@dataclass(frozen=True)
class Game:
    """Who is protected from whom: what must agree before a claim and a measurement may be compared.

    A field that is None is not stated; stated fields must be equal on both sides.

    Args:
        unit: "client" or "example".
        relation: "add-or-remove-one" or "replace-one".
        participation: Of the canaries.
        knowledge: "rounds known" or "rounds unknown".
        randomness: Whose random numbers protect, as "server noise".
    """

    unit: str | None = None  # "client" or "example"
    relation: str | None = None  # "add-or-remove-one" or "replace-one"
    participation: Attendance | None = None  # of the canaries; text is taken for an `Attendance` in one's own words
    knowledge: str | None = None  # "rounds known", "rounds unknown"
    randomness: str | None = None  # whose random numbers protect: "server noise", or as a mechanism says

    def __post_init__(self) -> None:
        object.__setattr__(self, "participation", Attendance.of(self.participation))

    def differences(self, other: Game) -> list[str]:
        """The fields stated on both sides with different values, in words."""
        return [
            f"{item.name}: {str(mine)!r} against {str(theirs)!r}"
            for item in fields(self)
            if (mine := getattr(self, item.name)) is not None
            and (theirs := getattr(other, item.name)) is not None
            and mine != theirs
        ]

    @property
    def unstated(self) -> tuple[str, ...]:
        """Names of the fields that are not stated, but for the randomness, which few need to name."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name) is None and item.name != "randomness")


@dataclass(frozen=True)
class Claim:
    """What an accountant proves: the training is (epsilon, delta)-DP in this game, if the code does what the proof says.

    `description` is the mechanism that the claim was computed for. What the accountant would say of the same mechanism with
    other noise is a question: `at_noise`.

    Args:
        epsilon: What is claimed.
        delta: At which delta.
        accountant: Who computed it, with its version.
        game: Who is protected from whom.
        description: The mechanism that it was computed for.
        assumptions: What the proof needs, as sentences.
        valid_for: "any data", or "these data".
        question: Epsilon of the same mechanism with the noise times a factor; behind `at_noise`.
    """

    epsilon: float
    delta: float
    accountant: str = "stated"  # with its version: an epsilon never travels without its accountant
    game: Game = field(default_factory=Game)
    description: Description | None = None
    assumptions: tuple[str, ...] = ()
    valid_for: str = "any data"  # or "these data": a claim that depends on the data decides nothing unless it is named so
    question: Callable[[float], float] | None = field(default=None, repr=False, compare=False)  # noise factor to epsilon

    def __post_init__(self) -> None:
        if not _validate.number("epsilon", self.epsilon) >= 0:
            raise ValueError(f"epsilon={self.epsilon!r} is not allowed: a claim must be at least 0 (inf: nothing is claimed).")
        _validate.delta(self.delta, allow_zero=True)

    def at_noise(self, factor: float) -> float | None:
        """The epsilon that would be claimed for so many times the noise; None if nobody can say."""
        return None if self.question is None else self.question(factor)

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:.4g} at delta = {self.delta:.3g} ({self.accountant})"


class Caveat(str):
    """What a reader must know before quoting a number: its sentence, and the code and the data that it was made from.

    Nothing reads the sentence back: whoever needs to know looks at `code` (a key of `coalmine.contracts.sentences.CAVEATS`).
    """

    __slots__ = ("code", "data", "name", "text")
    code: str
    data: Mapping[str, Any]
    name: str  # what it is about, in a word or two
    text: str  # the sentence without the name

    def __new__(cls, code: str, data: Mapping[str, Any] | None = None) -> Caveat:
        """The sentence of a code."""
        known = dict(data or {})
        name, text = sentences.caveat(code, known)
        made = super().__new__(cls, f"{name}: {text}")
        made.code, made.data, made.name, made.text = code, known, name, text
        return made

    def __getnewargs__(self) -> tuple[str, Mapping[str, Any]]:  # type: ignore[override]
        return self.code, self.data


@dataclass(frozen=True)
class LowerBound:
    """What the audit proves: with probability `confidence`, the true epsilon is at least `epsilon`.

    `valid` says whether that sentence is a theorem under `assumptions`; an approximate method says False.
    `ceiling` is the value that perfect separation would have given: no larger leak can be shown by this design.

    Args:
        epsilon: The bound.
        delta: At which delta.
        confidence: With which the statement holds.
        method: In words.
        valid: Whether it is a theorem under `assumptions`.
        assumptions: What it needs, as sentences.
        ceiling: What perfect separation would have given.
        multiplicity: How the choice of the threshold was paid for.
        details: Numbers of the method.
        key: Of `coalmine.estimators.BOUNDS`.
        neighbours: What neighbouring data differ in, if the design decides.
        finder: The smallest true epsilon that is shown to be above a claim with probability 0.8.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    valid: bool
    assumptions: tuple[str, ...]
    ceiling: float
    multiplicity: str = ""  # how the choice of threshold was paid for
    details: Mapping[str, float] = field(default_factory=dict)
    key: str = ""  # of `coalmine.estimators.BOUNDS`
    neighbours: str | None = field(default=None, metadata={"later": True})  # what they differ in, if the design decides
    finder: Callable[[float], float] | None = field(default=None, repr=False, compare=False)

    def detectable_above(self, claim: float) -> float:
        """The smallest true epsilon that this design finds above `claim` with probability 0.8.

        Found by simulation of Gaussian scores; infinite where the ceiling is not above the claim.
        """
        if not self.ceiling > claim or self.finder is None:
            return float("inf")
        return self.finder(claim)

    @cached_property
    def detectable(self) -> float:
        """The smallest true epsilon that this design tells from no leakage at all with probability 0.8."""
        return self.detectable_above(0.0)

    def __str__(self) -> str:
        kind = "at least" if self.valid else "roughly at least (approximate method)"
        return f"epsilon is {kind} {self.epsilon:.4g} with {percent(self.confidence)} confidence ({self.method})"


@dataclass(frozen=True)
class PointEstimate:
    """What the fitted distributions suggest. Not a bound: it extrapolates from the bulk of the scores to the tail at delta.

    `floor` is the value that this estimator stays below with probability `confidence` when nothing leaks at all, and
    `p_value` the probability of a value at least as large as `epsilon` then.

    Args:
        epsilon: The estimate.
        low: Lower end of its interval.
        high: Upper end.
        delta: At which delta.
        confidence: Of the interval.
        method: In words.
        floor: What it stays below when nothing leaks, with probability `confidence`.
        p_value: Of no leakage.
        flags: Reasons to read it with care.
        details: Numbers of the fit.
        key: "gaussian-mean" or "gaussian-fitted".
    """

    epsilon: float
    low: float
    high: float
    delta: float
    confidence: float
    method: str
    floor: float
    p_value: float
    flags: tuple[Caveat, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)
    key: str = ""  # "gaussian-mean", "gaussian-fitted"

    def __str__(self) -> str:
        interval = f"{percent(self.confidence)} interval [{self.low:.4g}, {self.high:.4g}]"
        return f"epsilon about {self.epsilon:.4g}, {interval} ({self.method})"


@dataclass(frozen=True)
class Power:
    """What an audit would have noticed."""

    detectable: float  # smallest true epsilon that would have been found above the claim with probability 0.8
    noise_factor: float  # noise too small by this factor would have been noticed
    half_noise_epsilon: float | None = None  # what the scores would show, had the mechanism half its noise


@dataclass(frozen=True)
class Verdict:
    """The comparison of a claim with the primary lower bound: one word, why as a code with its numbers, and the power.

    `found_false`, `side` and `otherwise` are those of the word DEVIATES: the sentences of the mechanism's description that do
    not hold, whether that is "less" protection than claimed, "more", or "unknown", and the word without this deviation.

    Args:
        word: VIOLATED, DEVIATES, CONSISTENT or INCONCLUSIVE.
        code: Why, as a key of `coalmine.contracts.sentences.REASONS`.
        power: What would have been noticed.
        numbers: That the sentence needs.
        side: "less", "more" or "unknown" protection; else "none".
        found_false: Keys of the sentences that do not hold, the clearest first.
        otherwise: The word without this deviation.
    """

    word: Word
    code: str  # a key of `coalmine.contracts.sentences.REASONS`
    power: Power
    numbers: Mapping[str, float] = field(default_factory=dict)  # that the sentence needs
    side: Side = field(default="none", metadata={"later": True})
    found_false: tuple[str, ...] = field(default=(), metadata={"later": True})  # keys of findings, the clearest first
    otherwise: Word | None = field(default=None, metadata={"later": True})

    @property
    def reason(self) -> str:
        """Why, in half a sentence."""
        return sentences.reason(self.code, {**self.numbers, "found_false": self.found_false})

    @property
    def brief(self) -> str:
        """The reason, without what would have been noticed."""
        return sentences.brief(self.code, {**self.numbers, "found_false": self.found_false})

    @property
    def failed(self) -> bool:
        """Whether a gate fails: the claim is false, or was computed for another mechanism. More noise, else as said, passes."""
        return self.word == "VIOLATED" or (self.word == "DEVIATES" and self.side != "more")

    @property
    def detectable(self) -> float:
        """The smallest true epsilon that would have been found above the claim with probability 0.8."""
        return self.power.detectable

    @property
    def noticeable_noise_factor(self) -> float:
        """Noise too small by this factor would have been noticed."""
        return self.power.noise_factor

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}"
