"""Audits of training that other engines run: the only room that imports a foreign federated framework.

    audit.py         what an application adds, whatever its engine: canaries, what they see, the result
    options.py       what it may be told beyond that
    shared_secret.py what both sides know, where canaries are clients
    application.py   what an adapter tells it
    flower/          Flower: a strategy around yours, a mod for clients, a grid in this process

Everything ends in the same `AuditResult`, the same run directory and the same report as training with our own loop.
"""

from coalmine.audit.application import Application, Observed
from coalmine.audit.attached import Audit
from coalmine.audit.secret import make_secret
from coalmine.audit.spec import Replies, Stated, Statement

__all__ = ["Application", "Audit", "Observed", "Replies", "Stated", "Statement", "make_secret"]
