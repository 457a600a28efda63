"""What a strategy says about its privacy, and the configurations in which an audit would be wrong.

A strategy may wrap another one in its attribute `strategy`, as Flower's DP wrappers do. The first one that says
`noise_multiplier`, `clipping_norm` and `num_sampled_clients` is the one that makes it private.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Strategy

from coalmine.audit.attached import AttachedAudit
from coalmine.contracts import Claim
from coalmine.errors import MismatchError

_CLIENT_SIDE = (flower.DifferentialPrivacyClientSideFixedClipping, flower.DifferentialPrivacyClientSideAdaptiveClipping)
_SERVER_SIDE = (flower.DifferentialPrivacyServerSideFixedClipping, flower.DifferentialPrivacyServerSideAdaptiveClipping)
_SAID = ("noise_multiplier", "clipping_norm", "num_sampled_clients")
_WEIGHT = "num-examples"
_MOST = 20  # wrappers around wrappers: more is a circle


@dataclass(frozen=True, eq=False)
class Reading:
    """A strategy and what it says."""

    strategy: Strategy
    audit: AttachedAudit
    mods: tuple[Any, ...] = ()
    canary_clients: bool = False  # who may be asked in every round

    @property
    def chain(self) -> list[Strategy]:
        """The strategy, the one that it wraps, and so on."""
        return list(_chain(self.strategy))

    @property
    def name(self) -> str:
        """In words."""
        kinds = [type(each).__name__ for each in self.chain]
        mods = [getattr(mod, "__name__", type(mod).__name__) for mod in self.mods]
        return " around ".join(kinds) + (f", clients with {', '.join(mods)}" if mods else "")

    @property
    def engine(self) -> str:
        """Flower and its version."""
        return engine()

    @property
    def private(self) -> Any:
        """The strategy of the chain that adds noise, if one says so."""
        return next((each for each in self.chain if all(hasattr(each, name) for name in _SAID)), None)

    @property
    def clip_norm(self) -> float:
        """Of the next round; adaptive clipping changes it."""
        if self.audit.stated.clip_norm is not None:
            return self.audit.stated.clip_norm
        if self.private is not None:
            return float(self.private.clipping_norm)
        if self.local is not None:
            return float(self.local.clipping_norm)
        raise MismatchError(
            f"{self.name} does not say its clip norm (clipping_norm). "
            "Give Audit(stated=Stated(clip_norm=..., noise_multiplier=...)), as the application sets them."
        )

    def noise_multiplier(self, replies: int) -> float | None:
        """On the sum of so many replies, in clip norms, for all that is released: adaptive clipping also has a noisy count.

        None: the application states an epsilon, and not by which noise it is reached.
        """
        if self.audit.stated.noise_multiplier is not None:
            return self.audit.stated.noise_multiplier
        if self.private is None and self.local is None and self.audit.stated.claim is None:
            raise MismatchError(
                f"{self.name} does not say its noise (noise_multiplier). Give Audit(stated=Stated(clip_norm=..., "
                "noise_multiplier=...)), or the epsilon that is claimed, Stated(claim=...)."
            )
        if self.private is None:
            return None if self.local is None else self._local_noise * math.sqrt(replies)
        noise, count = float(self.private.noise_multiplier), float(getattr(self.private, "clipped_count_stddev", 0.0) or 0.0)
        if noise == 0.0 or count == 0.0:
            return noise
        return float((noise**-2 + (2 * count) ** -2) ** -0.5)

    @property
    def local(self) -> Any:
        """The mod that adds noise on the clients, if there is one."""
        return next((mod for mod in self.mods if isinstance(mod, LocalDpMod)), None)

    @property
    def _local_noise(self) -> float:
        """That of one reply, in clip norms: what the mod says in its source."""
        mod = self.local
        if mod is None or not mod.epsilon:
            return 0.0
        return float(mod.sensitivity * math.sqrt(2 * math.log(1.25 / mod.delta)) / (mod.epsilon * mod.clipping_norm))

    @property
    def accountant(self) -> Any:
        """Flower's own accountant, if the strategy has one (flwr 1.35 and newer)."""
        return next((found for each in self.chain if (found := getattr(each, "accountant", None)) is not None), None)

    @property
    def weight_key(self) -> str:
        """The metric by which replies are weighed."""
        return next((str(each.weighted_by_key) for each in reversed(self.chain) if hasattr(each, "weighted_by_key")), _WEIGHT)

    @property
    def knows_others(self) -> bool:
        """Whether a release is the plain weighted mean of what clients sent, clipped, and noise: then their part is known."""
        *wrappers, inner = self.chain
        plain = isinstance(inner, FedAvg) and type(inner).aggregate_train is FedAvg.aggregate_train
        return plain and all(type(each) in (*_SERVER_SIDE, *_CLIENT_SIDE) for each in wrappers)

    @property
    def stated(self) -> Claim | None:
        """A claim of the application's own that is known before the first round."""
        audit, local = self.audit, self.local
        if audit.stated.claim is not None:
            return Claim(audit.stated.claim, audit.delta, "stated by the application")
        if local is None or self.private is not None:
            return None
        times = audit.rounds if self.canary_clients else int(audit.schedule.times.max())
        if abs(float(local.delta) * times - audit.delta) > 1e-9 * audit.delta:
            raise MismatchError(
                f"LocalDpMod promises epsilon = {local.epsilon:g} at delta = {local.delta:g} for one reply, hence for "
                f"{times} of them at delta = {local.delta * times:g}: give Audit(delta={local.delta * times:g})."
            )
        return Claim(float(local.epsilon) * times, audit.delta, f"LocalDpMod of {self.engine}, {times} replies of a client")

    def spent(self) -> Claim | None:
        """What Flower's accountant says now. It allows for clients that take part in every round, and so for all canaries."""
        if self.accountant is None or self.audit.stated.claim is not None:
            return None
        spent = self.accountant.get_privacy_spent()
        name = f"Flower's {type(self.accountant).__name__} ({self.engine}), {spent.num_releases} releases"
        return Claim(float(spent.epsilon), float(spent.delta), name)

    def refuse_wrong_canaries(self) -> None:
        """Before training: strategies in which replies that the server makes up would measure something else."""
        if self.accountant is not None:
            raise MismatchError(
                "canary replies cannot be added to a strategy with an accountant: Flower then aggregates exactly as many "
                "replies as it asked clients for, and skips the round otherwise. Make canaries of real clients "
                "(canary_mod, and audited(..., canaries='clients')), or audit the same strategy with accountant=None."
            )
        if isinstance(self.private, _CLIENT_SIDE) and not self.mods:
            raise MismatchError(
                f"{type(self.private).__name__} leaves clipping to the clients, and canary replies do not pass through them. "
                "Hand over the mods that the clients run, as audited(strategy, audit, mods=[fixedclipping_mod])."
            )

    @property
    def follows_quantile(self) -> bool:
        """Whether the clip norm is another one in every round."""
        return isinstance(self.private, (_CLIENT_SIDE[1], _SERVER_SIDE[1]))

    @property
    def cuts(self) -> bool:
        """Whether the server clips; else what clients sent is summed as it came."""
        return isinstance(self.private, _SERVER_SIDE)

    def refuse_wrong_delta(self) -> None:
        """Before training: an accountant promises for one delta, and the audit measures for one."""
        spent = self.spent()
        if spent is not None and not math.isclose(spent.delta, self.audit.delta, rel_tol=1e-9):
            raise MismatchError(
                f"Flower's accountant states epsilon for delta = {spent.delta:g}, and the audit for {self.audit.delta:g}. "
                f"Give Audit(delta={spent.delta:g})."
            )

    def refuse_wrong_cohort(self, asked: int) -> None:
        """In the first round: noise is divided by a number of replies that must count the canaries' places."""
        places = 0 if self.canary_clients else self.audit.places
        together = asked + places
        if self.private is None or int(self.private.num_sampled_clients) == together:
            return
        how, remedy = f"and the audit adds {places} replies to every round", " (clients + audit.places)"
        if self.canary_clients:
            how, remedy = "canaries among them", ""
        raise MismatchError(
            f"num_sampled_clients={self.private.num_sampled_clients} does not count the canaries: {asked} clients are asked, "
            f"{how}, so that the noise would be divided by the wrong number. Set num_sampled_clients={together}{remedy}."
        )


def concluded(audit: AttachedAudit) -> None:
    """After the last round; whatever is wrong with the audit, the trained model is not lost for it."""
    try:
        audit.conclude()
    except Exception as trouble:  # said now, and again by whoever asks for the result
        audit.give_up(trouble)


def engine() -> str:
    """Flower and its version."""
    return f"flwr {version('flwr')}"


def _chain(strategy: Strategy) -> Iterator[Strategy]:
    for _ in range(_MOST):
        yield strategy
        inner = getattr(strategy, "strategy", None)
        if not (hasattr(inner, "aggregate_train") or hasattr(inner, "aggregate_fit")):
            return
        strategy = inner


def check_mods(mods: Sequence[Any]) -> tuple[Any, ...]:
    """Mods as they are given to a ClientApp."""
    for mod in mods:
        if not callable(mod):
            raise ValueError(f"mods must be what ClientApp(mods=[...]) takes, callables; got {mod!r}.")
    return tuple(mods)
