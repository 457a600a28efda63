"""What Opacus is told to do, read from its engine and its optimizer; and the engine whose optimizers are audited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from opacus.optimizers import DPOptimizer

from coalmine import accounting
from coalmine.adapters.gradients import GradientAudit
from coalmine.adapters.opacus.optimizer import Steps, audited
from coalmine.adapters.opacus.sampling import WatchedSampler, watched
from coalmine.audit.application import Application
from coalmine.audit.attached import AttachedAudit
from coalmine.audit.conforming import Clients
from coalmine.contracts import Clip, Description, Extra, Noise, Participation, Vector
from coalmine.errors import MismatchError
from coalmine.participation import Poisson, Repeated

_FEWEST = 20  # steps over which canaries are spread, where an epoch has fewer
_LARGE, _EVERY = 50_000, 16  # in models of so many parameters one step of so many is audited
_DISTRIBUTED = ("Distributed", "FSDP")  # in the names of Opacus's optimizers of several processes


class OpacusAudit:
    """A `PrivacyEngine` whose optimizers are audited."""

    def __init__(self, audit: AttachedAudit, engine: Any):
        if not hasattr(engine, "make_private"):
            raise MismatchError(f"audit.opacus(...) takes the PrivacyEngine of Opacus; got {type(engine).__name__}.")
        self._audit, self._engine = audit, engine

    def make_private(self, **options: Any) -> tuple[Any, ...]:
        """`PrivacyEngine.make_private`, with an optimizer that is audited."""
        return self._made(self._engine.make_private(**options), options)

    def make_private_with_epsilon(self, **options: Any) -> tuple[Any, ...]:
        """`PrivacyEngine.make_private_with_epsilon`, with an optimizer that is audited."""
        return self._made(self._engine.make_private_with_epsilon(**options), options)

    def _made(self, made: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Any, ...]:
        module, optimizer, *criterion, loader = made
        poisson = bool(options.get("poisson_sampling", True))
        setting = EngineSetting(
            self._engine, module, len(loader), poisson, options.get("epochs"), options.get("noise_multiplier")
        )
        loader, drawn = watched(loader) if poisson else (loader, None)
        optimizer = _attached(optimizer, self._audit, setting, drawn)
        for each in criterion:  # of ghost clipping, whose backward pass clears gradients
            each.optimizer = optimizer
        return (module, optimizer, *criterion, loader)


def attach(
    optimizer: DPOptimizer, audit: AttachedAudit, *, engine: Any = None, module: Any = None, steps: int | None = None
) -> Any:
    """The same optimizer, audited, for those who make a `DPOptimizer` themselves. Train with the one that comes back.

    `steps` is over how many steps the canaries are spread, as many as an epoch has or all of them. `engine` is asked for its
    accountant's epsilon, `module` (the one that `make_private` returned) for the names of its parameters; ghost clipping
    needs it.
    """
    return _attached(optimizer, audit, EngineSetting(engine, module, steps), None)


@dataclass(frozen=True)
class EngineSetting:
    """What is known beside the optimizer."""

    engine: Any = None
    module: Any = None
    per_epoch: int | None = None
    poisson: bool = False
    epochs: int | None = None
    noise: float | None = None  # as it was asked for

    @property
    def rounds(self) -> int | None:
        """Over how many steps canaries are spread: all, if it is known how many, else an epoch."""
        if self.per_epoch is None:
            return None
        return self.per_epoch * self.epochs if self.epochs else max(self.per_epoch, _FEWEST)

    @property
    def rate(self) -> float | None:
        """Of Poisson sampling."""
        return 1 / self.per_epoch if self.poisson and self.per_epoch else None

    def participation(self, steps: int) -> Participation | None:
        """Of an example in so many steps."""
        if self.per_epoch is None:
            return None
        return Poisson(1 / self.per_epoch, steps) if self.poisson else Repeated(-(-steps // self.per_epoch))


def _attached(optimizer: DPOptimizer, audit: AttachedAudit, setting: EngineSetting, drawn: WatchedSampler | None) -> Any:
    refuse(optimizer)
    groups = _groups(optimizer, setting.module)
    large = sum(parameter.numel() for parameter in optimizer.params) >= _LARGE
    every = _EVERY if large and setting.rounds is not None and not audit.settled else 1
    rounds = audit.rounds if audit.settled and not audit.sampled else setting.rounds
    steps = Steps(setting.module, drawn, every)
    description = describe(optimizer, setting.noise)
    application = Application(
        name=f"{type(optimizer).__name__} around {type(optimizer.original_optimizer).__name__}",
        engine=f"opacus {version('opacus')}",
        initial=_negative(optimizer),
        groups=groups,
        description=description,
        knows_others=True,
        unit="example",
        rounds=None if rounds is None else rounds if audit.settled else max(rounds // every, _FEWEST),
        facts={"audited_every": every} if every > 1 else {},
        rate=setting.rate if drawn is not None else None,
        clients=Clients() if drawn is None else Clients(setting.participation(setting.rounds or 1), drawn.examples),
        model=lambda: _negative(optimizer),
        closing=lambda: _closing(setting, description, audit, steps.taken),
    )
    gradients = GradientAudit(audit, application, typed=False)
    if drawn is not None and audit.sampled:
        drawn.pool = audit.schedule.pool
    return audited(optimizer, steps.begun(gradients, description))


def refuse(optimizer: Any) -> None:
    """Optimizers that cannot be audited, each with one sentence."""
    if not isinstance(optimizer, DPOptimizer):
        raise MismatchError(f"attach needs the DPOptimizer of Opacus; got {type(optimizer).__name__}.")
    if any(word in type(optimizer).__name__ for word in _DISTRIBUTED):
        raise MismatchError(
            f"{type(optimizer).__name__} trains in several processes, each of which sees a part of the sum: audit the same "
            "settings in one process."
        )
    if "step" in vars(optimizer):
        raise MismatchError("a learning-rate scheduler holds this optimizer already: attach the audit before it is made.")


def describe(optimizer: Any, asked: float | None = None) -> Description:
    """What an optimizer of Opacus says of itself, as the accountant is told; `asked` is the noise multiplier asked for."""
    noise = float(optimizer.noise_multiplier)
    denominator: Any = "expected" if optimizer.loss_reduction == "mean" else "none"
    layers = getattr(optimizer, "max_grad_norms", None)
    if layers is not None:
        return Description(Clip(tuple(float(norm) for norm in layers), over="layer"), Noise(noise, noise), denominator)
    count = getattr(optimizer, "unclipped_num_std", None)
    if count is None:
        return Description(Clip(float(optimizer.max_grad_norm)), Noise(noise, noise), denominator)
    accounted, added = noise, (noise**-2 - (2 * count) ** -2) ** -0.5 if noise > 0 else 0.0
    if asked is not None and not np.isclose(asked, noise):  # before 1.5.4 the optimizer held the larger one
        accounted, added = asked, noise
    quantile = Extra(
        "quantile", float(count), float(optimizer.target_unclipped_quantile), float(optimizer.clipbound_learning_rate)
    )
    return Description(Clip(None), Noise(accounted, added), denominator, (quantile,))


def _negative(optimizer: DPOptimizer) -> Vector:
    """Minus the parameters: a release is a gradient, which is subtracted from them."""
    parts = [parameter.detach().to("cpu").float().numpy().reshape(-1) for parameter in optimizer.params]
    return -np.concatenate(parts)


def _groups(optimizer: DPOptimizer, module: Any) -> dict[str, slice]:
    """The arrays of parameters, by their names in the module."""
    inner = getattr(module, "_module", module)
    names = {id(parameter): name for name, parameter in inner.named_parameters()} if inner is not None else {}
    groups, start = {}, 0
    for place, parameter in enumerate(optimizer.params):
        stop = start + parameter.numel()
        groups[names.get(id(parameter), f"parameter {place + 1}")] = slice(start, stop)
        start = stop
    return groups


def _closing(setting: EngineSetting, description: Description, audit: AttachedAudit, steps: int) -> dict[str, Any]:
    """What is claimed for the examples: by the engine's accountant where its assumptions hold, else by ours."""
    accountant: Any = getattr(setting.engine, "accountant", None)
    history = [] if accountant is None or not description.has_noise else accountant.history
    spent = float(accountant.get_epsilon(audit.delta)) if history else None
    pattern, stated = setting.participation(max(steps, 1)), setting.poisson
    if pattern is None and history:  # an optimizer that was attached by hand: what its accountant was told
        pattern, stated = Poisson(float(history[-1][1]), max(steps, 1)), True
    if pattern is None or not description.has_noise:
        return {}
    if stated and spent is not None:
        named = f"{type(accountant).__name__} of opacus {version('opacus')}"
        return {"participation": pattern.attendance, "epsilon_of_clients": spent, "accountant_of_clients": named}
    if spent is not None:
        text = f"Opacus states epsilon = {spent:.3g} as if it sampled by Poisson's rule, and this loader does not"
        audit.note("accountant", text, 0)
    claim = accounting.claim_of(description, pattern, delta=audit.delta, unit="example", rounds=steps)
    return {"participation": pattern.attendance, "epsilon_of_clients": claim.epsilon}
