"""Who the canaries of an attached audit are, and when they take part: drawn from the secret when the numbers are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from coalmine import _validate, accounting
from coalmine.audit.application import Application, Replies, as_it_was, sampled
from coalmine.audit.planning import AuditPlan, check_pool, largest_pool, usual_pool
from coalmine.audit.spec import LEAST_POOL, AuditSpec
from coalmine.canaries import TransformCanaries
from coalmine.canaries.schedule import Schedule
from coalmine.canaries.setup import CanarySetup
from coalmine.contracts import IndexArray, Vector
from coalmine.errors import MismatchError, NotEnoughCanariesError
from coalmine.participation import Pattern, Periods, Poisson

_POOL = 600  # where it is not chosen from the claim


class Assignment:
    """Rounds, pool, coins and directions; what was left open is chosen by `settle`, before the first round.

    `sampled`: canaries are sampled as examples are, in rounds that the adversary does not know.
    """

    def __init__(self, rounds: int | None, pool: int | None, presentations: int, *, sampled: bool, replies: Replies, seed: int):
        self._rounds = None if rounds is None else _validate.rounds(rounds)
        self._pool = None if pool is None else _validate.whole("pool", pool, least=1)
        if self._pool is not None and self._pool < LEAST_POOL:
            raise ValueError(f"canaries: a pool of {pool} shows nothing; at least {LEAST_POOL}.")
        self._pattern: Pattern = Periods(presentations)
        self.sampled, self._replies, self._seed = sampled, replies, seed
        self._schedule: Schedule | None = None
        self._canaries: TransformCanaries | None = None
        if self._rounds is not None:
            self._pattern.cohorts(0, self._rounds, 0)  # presentations that do not fit into so many rounds are refused now

    def __str__(self) -> str:
        return f"rounds={self._rounds}, pool={self._pool}"

    @property
    def rounds(self) -> int:
        """Over how many rounds the canaries are spread."""
        if self._rounds is None:
            raise MismatchError("the number of rounds is not known yet: give Audit(rounds=...), as many as are trained.")
        return self._rounds

    @property
    def settled(self) -> bool:
        """Whether the number of rounds is known, or all of them count."""
        return self._rounds is not None or self.sampled

    @property
    def schedule(self) -> Schedule:
        """The rounds and the coins, as they were drawn."""
        if self._schedule is None:
            pool = self._pool or _POOL
            self._schedule = Schedule.draw(self._pattern, pool=pool, rounds=self.rounds, secret_seed=self._seed)
        return self._schedule

    def settle(self, application: Application, spec: AuditSpec) -> None:
        """What an application leaves no doubt about: its number of rounds, a pool for its claim, the rate of its sampling."""
        if self.sampled and application.rate is None:
            raise MismatchError(
                f"{application.name} does not sample by Poisson's rule, so that rounds cannot be unknown: take "
                "Statement(view='auto'), or Poisson sampling."
            )
        self._rounds = self._rounds or application.rounds
        if self._pool is None and application.rounds is not None:
            claim = self._claim(application, spec.delta)
            self._pool = usual_pool(claim, application.initial.size, delta=spec.delta, confidence=spec.confidence)
            self._schedule = None
        if self.sampled and application.rate is not None:
            self._pattern, self._schedule = Poisson(application.rate, self.rounds), None

    def plan(self, application: Application, spec: AuditSpec) -> AuditPlan:
        """What these canaries can decide."""
        numbers = application.initial.size * self.rounds if application.knows_others else 0
        claim = self._claim(application, spec.delta)
        room = largest_pool(application.initial.size)
        return AuditPlan(self.schedule.pool, claim, spec.delta, spec.confidence, numbers, self.sampled, room)

    def _claim(self, application: Application, delta: float) -> float | None:
        """What is claimed for a canary, as far as it is known before training."""
        if application.stated is not None:
            return application.stated.epsilon
        if not application.description.has_noise:
            return None
        if self.sampled:
            return 0.0  # it grows with the number of steps, which an engine need not know
        return accounting.claim_of(application.description, self._pattern, delta=delta, rounds=self.rounds).epsilon

    def canaries(self, dim: int) -> TransformCanaries:
        """The pool, for a model of so many parameters."""
        pool = self.schedule.pool
        check_pool(pool, dim)
        if self._canaries is None or self._canaries.dim != dim or self._canaries.count != pool:
            self._canaries = TransformCanaries(dim, pool, secret_seed=self._seed)
        return self._canaries

    def setup(self, dim: int, schedule: Schedule | None = None) -> CanarySetup:
        """The canaries of a model of so many parameters, with the rounds as they were where an engine decided about them."""
        made = CanarySetup(self.canaries(dim), self.schedule, full_vectors=True, canary_norm=self._replies.canary_norm)
        return made if schedule is None else replace(made, schedule=schedule)

    def as_it_was(self, realised: Mapping[int, IndexArray], rate: float | None) -> Schedule:
        """The rounds that an engine, or its sampler, gave the canaries."""
        if self.sampled and rate is not None:
            return sampled(self.schedule, realised, rate)
        if not any(present.size for present in realised.values()):
            raise NotEnoughCanariesError(
                "no client was a canary in any round. Add canary_mod(...) to the mods of the ClientApp, and say who is a "
                "canary: node configurations with a canary-id, or who=last_partitions(...)."
            )
        return as_it_was(self.schedule, realised)

    def taking_part(self, round_number: int) -> IndexArray:
        """The canaries whose updates are sent in a round."""
        if not 0 <= round_number < self.rounds:
            raise MismatchError(
                f"round {round_number + 1} of an audit of {self.rounds} rounds: give Audit(rounds=...) the number of rounds "
                "that the application trains for."
            )
        return self.schedule.taking_part(round_number)

    def update(self, index: int, clip_norm: float, dim: int) -> Vector:
        """What a canary sends: far longer than the clip norm, so that the code under audit must clip it."""
        canaries = self.canaries(dim)
        sent = canaries.direction(index)
        sent *= np.float32(self._replies.canary_norm * clip_norm / canaries.norm)
        return sent
