"""`coalmine.Audit`: the audit of one training, whoever trains it.

audit.opacus(engine)      Opacus, in three lines
audit.loop(...)           any other training loop, in four
flower.audited(..., audit)    Flower
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coalmine.audit.attached import Audit as AttachedAudit

if TYPE_CHECKING:
    from coalmine.adapters.loop import LoopAudit
    from coalmine.adapters.opacus import OpacusAudit


class Audit(AttachedAudit):
    """Canaries in an application's own training: who they are, what they send, what is seen of them, and what that proves.

    `delta` is that of every statement, `unit` who is protected ("example" or "client"; by default what the engine protects),
    and `out` a new directory for all files, as `coalmine run` makes it; without it everything stays in memory. All arguments:
    `coalmine.audit.attached.Audit`.
    """

    def opacus(self, engine: Any) -> OpacusAudit:
        """An Opacus `PrivacyEngine` whose `make_private` returns an optimizer that is audited.

        model, optimizer, loader = audit.opacus(engine).make_private(module=model, optimizer=optimizer, ...)
        """
        from coalmine.adapters.opacus import OpacusAudit

        return OpacusAudit(self, engine)

    def loop(self, *, dim: int, steps: int, clip_norm: Any, noise_multiplier: float, batch: float, **more: Any) -> LoopAudit:
        """A training loop of your own: `plant(t, gradients)` before clipping, `release(t, release)` after the noise.

        `dim` is the number of parameters, `steps` how many steps are trained, `batch` the (expected) batch size by which the
        noisy sum is divided. `clip_norm` is a number, or one for every array of parameters if each is clipped on its own.
        Further arguments: see `coalmine.adapters.loop.LoopAudit`.
        """
        from coalmine.adapters.loop import LoopAudit, Mechanism

        told = Mechanism(dim, steps, clip_norm, noise_multiplier, batch, **more)
        return LoopAudit(self, told)
