"""Audits of Flower applications (flwr 1.22 and newer): three added lines, in simulation or deployed.

    audit = Audit(delta=1e-5, rounds=30, pool=600, out="audit")
    strategy = audited(strategy, audit)                                 around everything else, the DP wrapper included
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=30)     writes audit/report.html at its end

The files:

    strategy.py   `audited`: every release observed, with canaries among the replies
    mod.py        `canary_mod`: canaries that are real clients
    client_view.py  `client_view`: the audit from the side of a client alone
    legacy.py     `audited_legacy`: strategies of the older API, as secure aggregation needs them
    reading.py    what a strategy says about its privacy, and which configurations an audit would be wrong in
    cohort.py     what the clients of a round sent
    contributions.py  what became of it, and who was asked
    records.py    records of arrays as one vector, and back
    grid.py       `LocalGrid`: a strategy and a ClientApp in this process, without Ray
    quantisation.py  what secure aggregation's rounding does to noise of the clients
    engine.py     our own training on Flower's simulation
    sending.py    what that sends to nodes: tasks, and the mechanism
"""

from coalmine.adapters.door import Audit
from coalmine.adapters.flower.client_view import client_view
from coalmine.adapters.flower.grid import LocalGrid
from coalmine.adapters.flower.legacy import audited_legacy
from coalmine.adapters.flower.mod import canary_mod, last_partitions
from coalmine.adapters.flower.strategy import AuditedStrategy, audited
from coalmine.audit.application import Replies, Stated
from coalmine.audit.secret import make_secret
from coalmine.audit.spec import Statement

__all__ = [
    "Audit",
    "AuditedStrategy",
    "LocalGrid",
    "Replies",
    "Stated",
    "Statement",
    "audited",
    "audited_legacy",
    "canary_mod",
    "client_view",
    "last_partitions",
    "make_secret",
]
