"""How canaries join the sum of a round: most together, by one transform; some as full vectors, through the clients' code.

    symbol   here      meaning
    N        count     presentations of inserted canaries in the whole run
    90       ENOUGH    of them, spread evenly over the run and chosen by the secret, always pass as full vectors

Of 90 contributions a fault in 5 % is met with probability 0.99; the clients' own contributions are compared beside that, in
every round. If what came out in a round is what clipping of whole updates makes of it, the other canaries of that round follow
by one transform. If it is not, or the mechanism does not clip whole updates, or clients add noise (so do canaries, each its
own), each of them passes through that code as well. A round in which nobody was clipped has no evidence of clipping: one of its
canaries passes as a full vector then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from coalmine.canaries.setup import CanarySetup
from coalmine.contracts import Array, Compared, Description, IndexArray, Mechanism, Public, Streams, Vector
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.training.work import contribute, look

ENOUGH = 90  # contributions of a run: a fault in 5 % of them is seen with probability 0.99
_ROUNDING = 1e-4  # of a clip norm, by which a contribution may differ from what clipping by its length makes of it
_PIECE = 1 << 15


@dataclass(frozen=True, eq=False)
class InsertedCanaries:
    """Of one training; all chance is its secret."""

    setup: CanarySetup
    mechanism: Mechanism
    described: Description
    groups: Mapping[str, slice]
    secret: Streams = field(repr=False)
    noise_of_clients: bool = False

    def plant(
        self, total: FixedPointSum, taking_part: IndexArray, public: Public, clients: Sequence[Compared]
    ) -> tuple[Array, list[Compared]]:
        """Add the round's canaries; returns the inner product of each with its own contribution, and what was compared.

        `clients` are contributions of this round beside the clip of their updates.
        """
        setup, own, found = self.setup, np.empty(taking_part.size), list[Compared]()
        whole = self.described.clip.over == "update" and not setup.full_vectors and not self.noise_of_clients
        fast = setup.kept * public.clip_norm if whole else None
        first, rest = self._as_vectors(taking_part.size, public.round, clients)
        as_said = all(each.difference <= _ROUNDING for each in clients)
        for place in first:
            own[place], compared, said = self._send(total, int(taking_part[place]), public)
            found += [] if compared is None else [compared]
            as_said = as_said and said
        if fast is not None and as_said:
            together = setup.canaries.combine(taking_part[rest], np.full(len(rest), fast / setup.canaries.norm))
            unclipped = len(rest) if setup.canary_norm <= 1 else 0
            total.add_vector(together, count=len(rest), unclipped=unclipped)
            own[rest] = fast
            return own, found
        for place in rest:
            own[place], compared, _ = self._send(total, int(taking_part[place]), public)
            found += [] if compared is None else [compared]
        return own, found

    def _as_vectors(self, count: int, number: int, clients: Sequence[Compared]) -> tuple[list[int], list[int]]:
        """Places of the canaries that pass as full vectors in any case, and of the others."""
        ends, chosen = self._chosen
        inside = chosen[np.searchsorted(chosen, ends[number]) : np.searchsorted(chosen, ends[number + 1])] - ends[number]
        first: list[int] = inside.tolist()
        if not first and count and not any(each.sent > 1 for each in clients):
            first = [int(self.secret("looked at", "canaries", number).integers(count))]
        return first, [place for place in range(count) if place not in first]

    @cached_property
    def _chosen(self) -> tuple[IndexArray, IndexArray]:
        """Presentations before every round; and which of all presentations always pass as full vectors, one of every N/90."""
        schedule = self.setup.schedule
        sizes = [schedule.taking_part(number).size for number in range(schedule.rounds)]
        ends = np.cumsum([0, *sizes])
        edges = np.linspace(0, ends[-1], min(ENOUGH, int(ends[-1])) + 1).astype(np.int64)
        drawn = self.secret("looked at", "canaries").random(edges.size - 1) * np.diff(edges)
        return ends, edges[:-1] + drawn.astype(np.int64)

    def _send(self, total: FixedPointSum, index: int, public: Public) -> tuple[float, Compared | None, bool]:
        """One canary through the code of a client: its own inner product, beside its clip, and whether it is as said."""
        setup, sent_norm = self.setup, self.setup.canary_norm * public.clip_norm
        sent = setup.canaries.update(index)
        sent *= np.float32(sent_norm / setup.canaries.norm)
        secret = partial(self.secret, "noise of a canary", public.round, index) if self.noise_of_clients else None
        contribution = contribute(self.mechanism, sent.copy(), public, setup.examples, secret)
        total.add(contribution)
        compared = look(self.described, sent, contribution, public, self.groups, canary=True)
        added = contribution.vector if contribution.without_noise is None else contribution.without_noise
        said = contribution.without_noise is None and compared is not None and compared.difference <= _ROUNDING
        return _inner(sent, added) / sent_norm, compared, said


def _inner(first: Vector, second: Vector) -> float:
    """The inner product, in float64 and in a fixed order."""
    total = 0.0
    for start in range(0, first.size, _PIECE):
        part = np.asarray(first[start : start + _PIECE], dtype=np.float64)
        total += float(np.einsum("i,i->", part, second[start : start + _PIECE], dtype=np.float64))
    return total
