"""Audits of training with Opacus (1.4 and newer): three added lines.

    audit = coalmine.Audit(delta=1e-5, out="audit")
    model, optimizer, loader = audit.opacus(engine).make_private(module=model, optimizer=optimizer, data_loader=loader, ...)
    print(audit.result)

The optimizer that comes back is Opacus's own class with the canaries on top. What it is described to be is read from it:
clipping, noise, batch size. The engine's accountant gives the epsilon of the examples.

    engine.py      `OpacusAudit`, `attach`: what is read from the engine and the optimizer
    optimizer.py   the subclass: canaries before clipping, the release after the noise
    sampling.py    canaries that the loader's own Poisson sampler draws
"""

from coalmine.adapters.opacus.engine import OpacusAudit, attach, describe

__all__ = ["OpacusAudit", "attach", "describe"]
