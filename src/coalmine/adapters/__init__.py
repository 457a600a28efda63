"""Audits of training that other engines run: the only package that imports other frameworks of training.

    door.py    `coalmine.Audit`: the same object for all of them
    opacus/    Opacus: an engine whose optimizers are audited
    loop.py    any training loop, by two calls in a step; arrays.py: of any array library
    flower/    Flower: a strategy around yours, a mod for clients, a grid in this process

An adapter says what the application is (`Application`) and what every round released (`Observed`); the rest is
`coalmine.audit.attached.AttachedAudit`, the same for every engine. Everything ends in the same `AuditResult`, the same run
directory and the same report as training with our own loop.
"""

from coalmine.adapters.door import Audit
from coalmine.audit.application import Application, Replies, Stated
from coalmine.audit.secret import make_secret
from coalmine.audit.spec import Statement
from coalmine.contracts import Observed

__all__ = ["Application", "Audit", "Observed", "Replies", "Stated", "Statement", "make_secret"]
