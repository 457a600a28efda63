"""The plain data types that the rooms share, so that rooms need not import each other.

Three kinds of statement, never confused:

* `Claim`: what an accountant proves, an upper bound on epsilon if the code is right.
* `LowerBound`: what an audit proves at a stated confidence.
* `PointEstimate`: what fitted distributions suggest, with an interval and the value that no leakage would give.

A `Verdict` compares a claim with a lower bound of the same `Game`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from types import UnionType
from typing import Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine import _validate

Array = NDArray[np.float64]
IndexArray = NDArray[np.int64]
Vector = NDArray[np.floating[Any]]  # parameters, updates, releases: whatever precision the trainer has
Word = Literal["VIOLATED", "CONSISTENT", "INCONCLUSIVE"]
State = Mapping[str, NDArray[Any]]  # what goes from round to round, as named arrays that can be saved
Streams = Callable[..., np.random.Generator]  # names -> a generator of their own


@runtime_checkable
class Null(Protocol):
    """The law of a score when the canary took no part: an object that knows its tail, its centre and its spread."""

    @property
    def name(self) -> str:
        """In words, for reports."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for this law to be right; empty if it is exact."""

    @property
    def center(self) -> float:
        """Its mean."""

    @property
    def spread(self) -> float:
        """Its standard deviation."""

    @property
    def slack(self) -> float:
        """Nats by which the stated tail may exceed the true one (0: the tail is exact)."""

    def logsf(self, value: ArrayLike) -> Array:
        """log P(score >= value), or an upper bound of it."""


@runtime_checkable
class Canaries(Protocol):
    """Secret directions c_0 ... c_{count-1} of R^dim, regenerated from a secret seed and never stored as a matrix.

    All have the length `norm`. What a canary client sends is the caller's scale times `update(index)`; it is sent over-long,
    so that the code under audit must cut it. Every method is a pure function of its arguments and the seed. A caller may not
    assume that canaries are orthogonal, or that they stay the same over rounds unless it holds the same object.
    """

    @property
    def dim(self) -> int:
        """Number of coordinates."""

    @property
    def count(self) -> int:
        """Size of the pool: canaries to be inserted and canaries to be held out."""

    @property
    def norm(self) -> float:
        """Length of every canary."""

    @property
    def spare(self) -> int:
        """How many further directions, never to be inserted, `project` can score at no extra cost: a free held-out null."""

    @property
    def null(self) -> Null | None:
        """The exact law of <canary, v> / (norm |v|) for a canary that took no part in v; None: the spare directions tell."""

    def combine(self, indices: ArrayLike, weights: ArrayLike) -> Vector:
        """sum_j weights[j] c_{indices[j]}: what a round's canaries add to the aggregate. Repeated indices add up."""

    def project(self, vector: Vector, *, spare: int = 0, group: slice | None = None) -> Array:
        """<c_i, vector> for all i, in float64; then those of the first `spare` unused directions.

        With `group` all other coordinates of the vector count as zero. <c_i, v> / (norm |v|) of that vector v has the same
        `null` as always; the cosine within the group, <c_i, v> / (|c_i in group| |v|), needs `norms` and another law.
        """

    def update(self, index: int) -> Vector:
        """One canary as a full vector: what one canary client sends, up to its scale."""

    def norms(self, groups: Sequence[slice], *, spare: int = 0) -> Array:
        """Norms of the canaries limited to each group, one row per group: canaries first, then `spare` unused directions."""


@dataclass(frozen=True)
class Public:
    """What everyone knows before a round: clients clip by it, the server divides by it."""

    round: int
    clip_norm: float
    denominator: float  # the expected cohort, canaries included: fixed before the round, so that it reveals nobody


@dataclass(frozen=True)
class Contribution:
    """What one client, or one canary, adds to the sum."""

    vector: Vector
    below: bool = False  # whether the update was short enough to pass unclipped: what adaptive clipping counts


@dataclass(frozen=True)
class Release:
    """What leaves the mechanism in a round: the noisy mean, before the server's optimiser."""

    round: int
    vector: Vector
    clip_norm: float
    denominator: float


class Total(Protocol):
    """The sum of the contributions of a round, whatever their order."""

    @property
    def count(self) -> int:
        """How many took part."""

    @property
    def below(self) -> int:
        """How many of them passed unclipped."""

    def vector(self) -> Array:
        """The sum."""


class Mechanism(Protocol):
    """What turns updates into a release, and what is claimed for it: the claim is derived from the object that ran.

    A mechanism is a description without state; what changes goes in and out as a `State`.
    """

    @property
    def noise_multiplier(self) -> float:
        """What the accountant is told: noise on the sum in units of the clip norm, all that is released taken together."""

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of the audit must know about this mechanism."""

    def init(self, dim: int) -> State:
        """The state before the first round."""

    def announce(self, state: State, round_number: int, denominator: float) -> Public:
        """What everyone is told before a round."""

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """On the client, who has so many examples: clip. An update that is too long for its own good comes here too."""

    def cut(self, norm: float, public: Public) -> float | None:
        """The length that an update of length `norm` keeps; None if clipping is not a function of the whole length.

        Then canaries must travel as full vectors.
        """

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """On the server: noise and division. `secret` makes the random numbers of the noise."""


class Server(Protocol):
    """What the server makes of a released mean: a step of the model."""

    def init(self, dim: int) -> State:
        """The state before the first round."""

    def step(self, state: State, mean: Vector) -> tuple[Vector, State]:
        """(what to add to the parameters, the state after it)."""


@dataclass(frozen=True)
class Projections:
    """What the canaries see of one kind of released vector v_t: a row for every vector, a column for every direction.

    Columns are the canaries of the pool, then directions that were never to be inserted (`spare` of them). Inner products
    are with unit directions: within a parameter group, with the direction limited to the group and divided by its length
    there, `norm_in_group`. Taking part in round t adds `amplitude[t] * reach[i]` to column i of row t.
    """

    kind: str  # "mean", "residual" (the mean without the others' part), "step", "total_change" (all steps together), "model"
    rounds: IndexArray  # round number of each row
    inner: Array  # <c_i, v_t> for unit c_i
    norm: Array  # |v_t|, within the group
    amplitude: Array
    pool: int  # how many columns are canaries
    dim: int  # coordinates that v_t has, within the group
    norm_in_group: Array | None = None  # by column; None: 1
    group: str | None = None


@dataclass(frozen=True)
class Game:
    """Who is protected from whom: what must agree before a claim and a measurement may be compared.

    A field that is None is not stated; stated fields must be equal on both sides.
    """

    unit: str | None = None  # "client" or "example"
    relation: str | None = None  # "add-or-remove-one" or "replace-one"
    participation: str | None = None  # of the canaries: str() of a `coalmine.participation` pattern, as "once" or "8 times"
    knowledge: str | None = None  # "rounds known", "rounds unknown"

    def differences(self, other: Game) -> list[str]:
        """The fields stated on both sides with different values, in words."""
        return [
            f"{item.name}: {mine!r} against {theirs!r}"
            for item in fields(self)
            if (mine := getattr(self, item.name)) is not None
            and (theirs := getattr(other, item.name)) is not None
            and mine != theirs
        ]

    @property
    def unstated(self) -> tuple[str, ...]:
        """Names of the fields that are not stated."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name) is None)


@dataclass(frozen=True)
class Claim:
    """What an accountant proves: the training is (epsilon, delta)-DP in this game, if the code does what the proof says."""

    epsilon: float
    delta: float
    accountant: str = "stated"  # with its version: an epsilon never travels without its accountant
    game: Game = field(default_factory=Game)
    noise_multiplier: float | None = None
    half_noise_epsilon: float | None = None  # the claim the same mechanism would have with half its noise
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _validate.number("epsilon", self.epsilon) >= 0:
            raise ValueError(f"epsilon={self.epsilon!r} is not allowed: a claim must be at least 0 (inf: nothing is claimed).")
        _validate.delta(self.delta, allow_zero=True)

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:.4g} at delta = {self.delta:.3g} ({self.accountant})"


@dataclass(frozen=True)
class LowerBound:
    """What the audit proves: with probability `confidence`, the true epsilon is at least `epsilon`.

    `valid` says whether that sentence is a theorem under `assumptions`; an approximate method says False.
    `ceiling` is the value that perfect separation would have given: no larger leak can be shown by this design.
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
    """

    epsilon: float
    low: float
    high: float
    delta: float
    confidence: float
    method: str
    floor: float
    p_value: float
    flags: tuple[str, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        interval = f"{percent(self.confidence)} interval [{self.low:.4g}, {self.high:.4g}]"
        return f"epsilon about {self.epsilon:.4g}, {interval} ({self.method})"


@dataclass(frozen=True)
class Verdict:
    """The comparison of a claim with the primary lower bound, in one word and one sentence."""

    word: Word
    reason: str
    detectable: float  # smallest true epsilon that would have been found above the claim with probability 0.8
    noticeable_noise_factor: float  # noise too small by this factor would have been noticed

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}"


def percent(share: float) -> str:
    """A share in percent, never rounded up to certainty.

    >>> percent(0.95), percent(0.999)
    ('95%', '99.9%')
    """
    return f"{100 * share:.10g}%"


def plain(value: Any) -> Any:
    """A value of these types as JSON-ready data: inf becomes "inf", mappings and tuples become dicts and lists."""
    if isinstance(value, (np.bool_, np.integer)):
        value = value.item()
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if np.isnan(number):
            raise ValueError("a result must not contain NaN")
        return number if np.isfinite(number) else ("inf" if number > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return {item.name: plain(getattr(value, item.name)) for item in fields(value) if item.name != "finder"}


_INFINITE = {"inf": float("inf"), "-inf": float("-inf")}
_WORDS = {tuple: "a list", float: "a number", int: "a whole number", str: "text", bool: "true or false"}


def from_plain(kind: Any, value: Any, where: str = "the document") -> Any:
    """The inverse of `plain`: data read as the type `kind`. What does not fit is a ValueError that says where."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):  # the only unions here are "or None"
        return None if value is None else from_plain(inner[0], value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(from_plain(inner[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {key: from_plain(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        return _record(kind, value, where)
    if origin is Literal and value in inner:
        return value
    if kind is float and isinstance(value, str):
        value = _INFINITE.get(value, value)
    if kind in (bool, int, float, str) and type(value) in ((int, float) if kind is float else (kind,)):
        return value
    expected = " or ".join(map(repr, inner)) if origin is Literal else _WORDS.get(origin or kind, "an object")
    raise ValueError(f"{where} must be {expected}, found {str(value)[:40]!r}")


def _record(kind: Any, value: dict[str, Any], where: str) -> Any:
    """A dataclass from the entries that `plain` wrote for it, no more and no fewer."""
    hints = get_type_hints(kind)
    names = [item.name for item in fields(kind) if item.name != "finder"]  # a function, which no file holds
    missing, unknown = sorted(set(names) - set(value)), sorted(set(value) - set(names))
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    if unknown:
        raise ValueError(f"{where} has unknown entries: {', '.join(unknown)}")
    return kind(**{name: from_plain(hints[name], value[name], f"{where}.{name}") for name in names})
