"""The protocols that packages share, so that they need not import each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from coalmine import renamed
from coalmine.contracts.arrays import Array, IndexArray, State, Streams, Vector
from coalmine.contracts.description import Constraint, Description
from coalmine.contracts.statements import Attendance


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

    @property
    def orthogonal(self) -> bool:
        """Whether canaries and unused directions are rows of one orthonormal map: their squares add up to |v|² at most."""

    @property
    def slack(self) -> float | None:
        """Nats that a normal tail must give away for a canary that took no part; None: no law is known."""

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


@renamed.accepting(**renamed.OF_MECHANISMS)
@dataclass(frozen=True)
class Contribution:
    """What one client, or one canary, adds to the sum."""

    vector: Vector
    unclipped: bool = False  # whether the update was short enough to pass: what adaptive clipping counts
    without_noise: Vector | None = None  # the same without the noise that the client added; None: it added none


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
    def unclipped(self) -> int:
        """How many of them passed unclipped."""

    def vector(self) -> Array:
        """The sum."""

    def without_noise(self) -> Array:
        """The sum without the noise that clients added; `vector()` where they added none."""


class Mechanism(Protocol):
    """What turns updates into a release, and says what it is: the claim is computed from the object that ran.

    A mechanism has no state of its own; what changes goes in and out as a `State`.
    """

    def describe(self) -> Description:
        """What the accountant is told, what the auditor looks for, and what can be tested."""

    def without_noise(self) -> Mechanism:
        """The same without any noise, for comparison."""

    def init(self, dim: int) -> State:
        """The state before the first round."""

    def announce(self, state: State, round_number: int, denominator: float) -> Public:
        """What everyone is told before a round."""

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """On the client, who has so many examples: clip.

        A mechanism whose description says that clients add the noise is called with `secret`, a `Streams` of its own for
        this round and client. One that protects single examples is also called with `own`, a row for every example: what each
        of them alone would add to the model. A canary is one such example, and has no `own`.
        """

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """On the server: noise and division. `secret` makes the random numbers of the noise."""


@dataclass(frozen=True)
class Context:
    """What a mechanism may know when it is made from a configuration: nothing of the data but their public sizes."""

    cohort: float  # expected clients in a round
    population: int
    rounds: int
    participation: Participation
    groups: Mapping[str, slice]  # layers of the model
    momentum: float = 0.0  # of the server's SGD


class ServerOptimiser(Protocol):
    """What the server makes of a released mean: a step of the model."""

    def init(self, dim: int) -> State:
        """The state before the first round."""

    def step(self, state: State, mean: Vector) -> tuple[Vector, State]:
        """(what to add to the parameters, the state after it)."""


@dataclass(frozen=True)
class Sampling:
    """Participation by chance that nobody sees, which amplifies privacy.

    Poisson sampling has `rate` alone; drawing without replacement has `cohort_size` of `population`.
    """

    rate: float
    rounds: int
    cohort_size: int | None = None
    population: int | None = None
    group_size: int = 1  # of a unit that has so many members, each sampled by itself


class Participation(Protocol):
    """Who takes part when. A pattern answers for itself: what an accountant, a trainer and a reader need to know of it."""

    @property
    def most(self) -> int:
        """The largest number of rounds that one client can take part in."""

    @property
    def sampling(self) -> Sampling | None:
        """The chance that amplifies, if the pattern rests on one; None: the adversary knows the rounds."""

    @property
    def relation(self) -> str:
        """What neighbours differ in, unless somebody says otherwise."""

    @property
    def attendance(self) -> Attendance:
        """The pattern as data."""

    @property
    def fingerprint(self) -> tuple[Any, ...]:
        """All that decides who takes part when."""

    def constraint(self, rounds: int) -> Constraint:
        """In which sets of rounds one client can take part."""

    def expected_size(self, population: int, rounds: int) -> float:
        """The mean cohort, known before the run."""

    def cohorts(self, population: int, rounds: int, rng: int | Streams, *, start: int = 0) -> Iterator[IndexArray]:
        """The clients of round `start`, `start` + 1, …"""

    def until(self, done: int, rounds: int) -> Participation:
        """The pattern of a run of `rounds` rounds that ended after `done` of them."""

    def among(self, pool: int, population: int) -> Participation:
        """The pattern of `pool` canaries that take part as often as clients of a population do."""


@runtime_checkable
class InTurns(Protocol):
    """A pattern that deals its clients into groups: round t draws from group t mod `groups`, and everybody may know which."""

    groups: int

    def groups_of(self, population: int, streams: Streams) -> IndexArray:
        """By client, its group."""
