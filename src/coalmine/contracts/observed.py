"""What was seen of a training: one round as any trainer saw it, and what canaries see of what was released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coalmine.contracts.arrays import Array, IndexArray, Vector
from coalmine.contracts.description import Strategy
from coalmine.contracts.protocols import Public, Release


@dataclass(frozen=True, eq=False)
class LowRank:
    """A covariance over coordinates, floor · I + factors · factorsᵀ, in squared units of the sum of updates."""

    floor: float
    factors: Array  # (dim, rank)


@dataclass(frozen=True, eq=False)
class AimedRound:
    """What canaries in few directions need to know of a round; in units of the sum of updates."""

    sent: Array  # a row for each that has this round: what its client sends, noise included; of held-out ones by a zero update
    background: LowRank  # covariance of what else is random: all clients, and a canary's own client without its record
    lift: float  # variance that its record adds along a canary


@dataclass(frozen=True, eq=False)
class RoundCanaries:
    """The canaries of a round, as plain data; all in units of the release but `aimed`.

    `own` is what each inserted canary added to its own inner product with the release, `part` what all of them together added
    to the release; None where the trainer does not know it, which orthogonal canaries do not need. `noise` is the noise that
    canaries added as clients do, where no claim counts on it: they are the auditor's, who knows it.
    """

    indices: IndexArray  # of the inserted ones
    own: Array | None = None
    part: Array | None = None
    assigned: IndexArray | None = None  # who had a place, where the engine decides about that and not the audit
    fitted: bool = False  # `own` and `part` were read off the release: along the canaries there is no residual
    aimed: AimedRound | None = None  # what is known of the round where canaries are aimed
    noise: Array | None = None


@dataclass(frozen=True, eq=False)
class Sample:
    """What one client, or one canary, computed and what became of it: `contribution` is the update after clipping."""

    update: Vector
    contribution: Vector


@dataclass(frozen=True)
class Compared:
    """One contribution beside the clip of the update before it, as numbers, so that no vector travels; all in clip norms."""

    sent: float  # length of the update
    kept: float  # length of the contribution, without the noise that a client may have added
    difference: float  # distance of the contribution from what the description makes of the update
    canary: bool = False


@dataclass(frozen=True, eq=False)
class Redrawn:
    """Standard normals that anybody can draw who tries seeds; noise that is proportional to them was drawn in the same way."""

    values: Array
    generator: str  # in words, with its seed


@dataclass(frozen=True, eq=False)
class Observed:
    """One round as any trainer saw it: the only thing that an audit takes.

        field       unit
        release     mean of updates: what left the mechanism, with its clip norm and what it was divided by
        others      mean of updates: the noise-free part of the clients' sum, over the same number; None: not known
        step        parameters: what the server added to the model; None: the release itself
        samples     updates, before and after clipping; or the numbers that come of comparing them
        cohort      positions of the clients that were drawn; None: not known
        cohort_again  positions of the clients that the same code draws under another secret; None: not drawn
        count       contributions that were summed, canaries included; None: not known
        bare        mean of updates: what the mechanism makes of the clients alone, without canaries; released to nobody
        again       mean of updates: what the mechanism makes of the same sum under another secret; released to nobody
        expected    contributions: what the trainer told the mechanism to divide by; None: not known
        unclipped   updates among them that were no longer than the clip norm, counted by the trainer and not by the mechanism
        redrawn     noise that this round has if it was drawn from a generator whose seed can be guessed
        covariance  of a mechanism whose noise depends on the data; the auditor's, never published
        resolution  mean of updates: the step of its numbers where it is a difference of rounded parameters, else 0

    `releases` is how many releases `release` is the sum of; who had a place had it in all of them.
    """

    round: int
    release: Release
    canaries: RoundCanaries
    others: Array | None = None
    step: Vector | None = None
    public: Public | None = None
    releases: int = 1
    samples: tuple[Sample | Compared, ...] = ()
    bare: Vector | None = None
    again: Vector | None = None
    cohort: IndexArray | None = None
    cohort_again: IndexArray | None = None
    count: int | None = None
    expected: float | None = None
    unclipped: int | None = None
    redrawn: tuple[Redrawn, ...] = ()
    covariance: LowRank | None = None
    resolution: float = 0.0
    record: Mapping[str, Any] = field(default_factory=dict)  # loss, norms, counts, for logs

    @property
    def amplitude(self) -> float:
        """What taking part adds to a canary's inner product: one clip norm, over what the sum was divided by."""
        return self.release.clip_norm / self.release.denominator * self.releases


@dataclass(frozen=True, eq=False)
class Glance:
    """A step between two audited ones, as few numbers: what can be looked at in every step at next to no cost."""

    step: int
    squares: Array  # of the noise by layer, in standard deviations of the description: sums of squared standard normals
    sizes: Array  # of the layers
    longest: float | None = None  # clip norms that were left of one far too long gradient; None: none was tried


@dataclass(frozen=True)
class Projections:
    """What the canaries see of one kind of released vector v_t: a row for every vector, a column for every direction.

    Columns are the canaries of the pool, then directions that were never to be inserted (`spare` of them). Inner products
    are with unit directions: within a parameter group, with the direction limited to the group and divided by its length
    there, `norm_in_group`. Taking part in round t adds `amplitude[t] * norm_in_group[i]` to column i of row t.
    """

    kind: str  # "mean", "residual" (the mean without the others' part), "step", "total_change" (all steps together), "model",
    # "whitened" (residuals in units of their known noise along each canary), "ratio" (likelihood ratios of each)
    rounds: IndexArray  # round number of each row
    inner: Array  # <c_i, v_t> for unit c_i
    norm: Array  # |v_t|, within the group
    amplitude: Array
    pool: int  # how many columns are canaries
    dim: int  # coordinates that v_t has, within the group
    norm_in_group: Array | None = None  # by column; None: 1
    group: str | None = None
    design: Strategy | None = None  # how the noise is said to be correlated over rounds; None: it is said to be new in each
