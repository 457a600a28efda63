"""What became of the replies of a round: each as it was sent beside what the innermost strategy averages, and who was asked.

A DP wrapper clips replies and hands them on. `watched` stands between the two for one round: whatever the wrapper made of a
reply is compared with what the description makes of it, weight included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import FedAvg, Strategy

from coalmine.adapters.flower.cohort import weight_of
from coalmine.adapters.flower.records import ArrayLayout, arrays_of
from coalmine.audit.application import difference
from coalmine.audit.conforming import Clients
from coalmine.conformance import compare
from coalmine.contracts import Clip, Compared, IndexArray
from coalmine.participation import FixedSize

MOST = 100  # replies of a round that are compared; of more, others in every round
_HIDDEN = 0.1  # clip norms: where single precision of the parameters hides more than that of a reply, nothing is compared


@contextmanager
def watched(strategy: Strategy) -> Iterator[list[Message]]:
    """The replies that a strategy is given to average, once it has them."""
    seen: list[Message] = []
    own, aggregate = vars(strategy).get("aggregate_train"), strategy.aggregate_train

    def aggregate_train(server_round: int, replies: Any) -> Any:
        handed = list(replies)
        seen.extend(reply for reply in handed if reply.has_content())
        return aggregate(server_round, handed)

    vars(strategy)["aggregate_train"] = aggregate_train
    try:
        yield seen
    finally:
        del vars(strategy)["aggregate_train"]
        if own is not None:
            vars(strategy)["aggregate_train"] = own


@dataclass(frozen=True, eq=False)
class Contributions:
    """How replies of a round are compared."""

    layout: ArrayLayout
    before: ArrayRecord  # the model that clients were sent
    clip_norm: float
    weight_key: str
    share: float  # of a reply of weight 1 in what is released, times what the description divides by: 1 for equal weights

    def compared(self, number: int, sent: Mapping[int, ArrayRecord], averaged: Sequence[Message]) -> tuple[Compared, ...]:
        """Replies by what was sent (under the identity of their message) and what was averaged."""
        known = [reply for reply in averaged if id(reply) in sent]
        if len(known) > MOST:
            known = [known[(place * len(known) // MOST + number) % len(known)] for place in range(MOST)]
        start = self.layout.vector(self.before)
        found = (self._one(start, sent[id(reply)], reply) for reply in known)
        return tuple(each for each in found if each is not None)

    def _one(self, start: Any, record: ArrayRecord, reply: Message) -> Compared | None:
        arrays = arrays_of(reply)[1]
        if not (self.layout.fits(record) and self.layout.fits(arrays)):
            return None
        update = self.layout.vector(record).astype(np.float64) - start
        added, step = difference(self.layout.vector(arrays).astype(np.float64), start.astype(np.float64))
        slack = step * math.sqrt(start.size) / self.clip_norm if start.dtype == np.float32 else 0.0
        if slack > _HIDDEN:
            return None
        weight = weight_of(reply, self.weight_key) * self.share
        found = compare(update, added * weight, Clip(self.clip_norm), self.clip_norm, {})
        if found is None:
            return None
        slack *= max(weight, 1.0)  # what the rounding of parameters may have done is not held against anybody
        kept = found.kept if found.kept <= 1 else max(found.kept - slack, 1.0)
        return replace(found, kept=kept, difference=max(found.difference - slack, 0.0))


@dataclass
class Asked:
    """Who was asked in every round, by place among the nodes that there were in the first."""

    nodes: list[int] = field(default_factory=list)

    def begin(self, strategy: Strategy, nodes: Sequence[int], asked: int, rounds: int) -> Clients:
        """Who was to take part: of a plain FedAvg, so many nodes by chance in every round; of others nobody says."""
        if type(strategy).configure_train is not FedAvg.configure_train or not 0 < asked <= len(nodes):
            return Clients()
        self.nodes = sorted(nodes)
        return Clients(FixedSize(asked, len(nodes), rounds), len(nodes))

    def cohort(self, asked: Sequence[Message], nodes: Sequence[int]) -> IndexArray | None:
        """The places of those who were asked; None where nodes came or went, so that the law of the cohorts is another one."""
        if sorted(nodes) != self.nodes:
            return None
        places = {node: place for place, node in enumerate(self.nodes)}
        return np.array([places[message.metadata.dst_node_id] for message in asked], dtype=np.int64)
