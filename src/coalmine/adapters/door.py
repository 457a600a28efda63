"""`coalmine.Audit`: the audit of one training, whoever trains it.

audit.opacus(engine)      Opacus, in three lines
audit.loop(...)           any other training loop, in four
flower.audited(..., audit)    Flower
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coalmine.audit.attached import AttachedAudit

if TYPE_CHECKING:
    from coalmine.adapters.loop import LoopAudit
    from coalmine.adapters.opacus import OpacusAudit


class Audit(AttachedAudit):
    """Canaries in an application's own training: who they are, what they send, what is seen of them, and what that proves.

    Args:
        delta: Of the statement, above 0 and below 1.
        rounds: Over how many rounds or steps canaries are spread; an engine's adapter may know it.
        pool: Canaries, half of which take part by coin flips; by default as many as the claim and the model need.
        presentations: Rounds in which each canary has a place.
        unit: Who is protected, "example" or "client"; by default what the engine protects.
        statement: What decides: view, bound, confidence (`coalmine.adapters.Statement`).
        replies: What canaries say of themselves (`coalmine.adapters.Replies`).
        stated: What the application says of its privacy where its strategy does not (`coalmine.adapters.Stated`).
        out: A new directory for all files, as `coalmine run` makes it; without it everything stays in memory.
        secret_seed: For tests only: an audit that can be repeated is not private.
        secret_file: A secret that two sides share; it is made if it is not there.
        hooks: Functions or names ("tensorboard", "mlflow", "wandb") that hear of every round.
    """

    def opacus(self, engine: Any) -> OpacusAudit:
        """An Opacus `PrivacyEngine` whose `make_private` returns an optimizer that is audited.

        model, optimizer, loader = audit.opacus(engine).make_private(module=model, optimizer=optimizer, ...)

        Args:
            engine: Opacus's `PrivacyEngine`.

        Returns:
            An engine with `make_private` and `make_private_with_epsilon`, which take what Opacus's own take.
        """
        from coalmine.adapters.opacus import OpacusAudit

        return OpacusAudit(self, engine)

    def loop(self, *, dim: int, steps: int, clip_norm: Any, noise_multiplier: float, batch: float, **more: Any) -> LoopAudit:
        """A training loop of your own: `plant(t, gradients)` before clipping, `release(t, release)` after the noise.

        Args:
            dim: Parameters.
            steps: Steps that are trained.
            clip_norm: A number, or one for every array of parameters if each is clipped on its own.
            noise_multiplier: Standard deviation of the noise on the sum, in clip norms.
            batch: The (expected) batch size, by which the noisy sum is divided.
            more: scale, sampling, rate, accountant, groups, population, name: see `coalmine.adapters.loop.LoopMechanism`.

        Returns:
            The audit of the loop, with `plant`, `release`, `plan` and `result`.
        """
        from coalmine.adapters.loop import LoopAudit, LoopMechanism

        told = LoopMechanism(dim, steps, clip_norm, noise_multiplier, batch, **more)
        return LoopAudit(self, told)
