"""Audits of a training loop that somebody wrote: NumPy, PyTorch, JAX, or anything whose arrays NumPy can read.

    audit = coalmine.Audit(delta=1e-5).loop(dim=d, steps=T, clip_norm=C, noise_multiplier=z, batch=n)
    for t in range(T):
        gradients = audit.plant(t, gradients)                    rows of over-long canaries behind those of the examples
        release = (clip(gradients).sum(0) + z * C * noise) / n   your own code
        audit.release(t, release)
    print(audit.result)

`plant` sees the gradients, clips and sums them on its own, and so knows what the release would be without noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalmine import _validate, accounting
from coalmine.adapters.arrays import as_numpy, flat_rows, flat_vector, leaves, with_rows
from coalmine.adapters.gradients import Count, GradientAudit, StepCanaries, clipped_sum, norms_of
from coalmine.adapters.seeds import Draws, before_noise
from coalmine.audit.application import Application
from coalmine.audit.attached import AttachedAudit
from coalmine.audit.conforming import Clients
from coalmine.audit.planning import AuditPlan
from coalmine.conformance.cohorts import sizes_by_chance
from coalmine.contracts import Array, Clip, Description, IndexArray, Noise, Participation, Sample, Vector
from coalmine.errors import MismatchError
from coalmine.participation import Poisson, Repeated
from coalmine.result import AuditResult

_NOTHING = 1e-6  # clip norms of a row that fills a place: not zero, which some clipping code divides by
_RARE = 1e-4  # probability of sizes of batches below which something is said about them
_SAMPLES = 4  # contributions in a step that are handed in before and after clipping, where the loop shows them


@dataclass(frozen=True)
class LoopMechanism:
    """What a loop says of itself.

    A release is `scale` times the sum of clipped gradients and noise: 1/batch by default, 1 for a sum. `sampling` is how
    examples are drawn: "poisson" at `rate`, or "shuffled" with `rate` as the share of the data in a step. `accountant` gives
    the epsilon that you state for examples, as a number or as a function of delta; without it ours is computed.
    `groups` names the arrays of parameters by how many numbers each has. `population` is how many examples there are in all:
    with it, and with `plant(..., examples=...)`, the sampling is tested.
    """

    dim: int
    steps: int
    clip_norm: float | Sequence[float]
    noise_multiplier: float
    batch: float
    scale: float | None = None
    sampling: str | None = None
    rate: float | None = None
    accountant: float | Callable[[float], float] | None = None
    groups: Mapping[str, int] | None = None
    population: int | None = None
    name: str = "a training loop"

    def __post_init__(self) -> None:
        _validate.whole("dim", self.dim, least=2)
        _validate.whole("steps", self.steps, least=1)
        _validate.positive("batch", self.batch)
        _validate.non_negative("noise_multiplier", self.noise_multiplier)
        for norm in self.norms:
            _validate.positive("clip_norm", norm)
        if self.scale is not None:
            _validate.positive("scale", self.scale)
        if self.sampling is not None:
            _validate.one_of("sampling", self.sampling, ("poisson", "shuffled"))
            if self.rate is None or not 0 < _validate.number("rate", self.rate) <= 1:
                raise ValueError(
                    f"sampling={self.sampling!r} needs rate=..., the share of the data in a step: above 0, at most 1."
                )
        if self.population is not None:
            _validate.whole("population", self.population, least=1)
            if self.sampling is None:
                raise ValueError("population=... is for the test of the sampling: state sampling=... and rate=... as well.")
        if self.groups is not None and sum(self.groups.values()) != self.dim:
            raise ValueError(f"groups have {sum(self.groups.values())} parameters together, and dim={self.dim}.")
        if isinstance(self.clip_norm, Sequence) and len(self.norms) != len(self.groups or ()):
            raise ValueError("clip_norm has several numbers: give groups={name: size, ...} with as many arrays, in order.")

    @property
    def norms(self) -> tuple[float, ...]:
        """Of every array, or of all together."""
        return tuple(self.clip_norm) if isinstance(self.clip_norm, Sequence) else (self.clip_norm,)

    @property
    def total_norm(self) -> float:
        """What one example can move the sum by."""
        return math.sqrt(sum(norm**2 for norm in self.norms))

    @property
    def denominator(self) -> float:
        """What the sum is divided by."""
        return float(self.batch) if self.scale is None else 1 / self.scale

    @property
    def places(self) -> dict[str, slice]:
        """The arrays of parameters among all of them."""
        named = self.groups or {"all": self.dim}
        edges = np.cumsum([0, *named.values()]).tolist()
        return {name: slice(start, stop) for name, start, stop in zip(named, edges, edges[1:], strict=False)}

    def describe(self) -> Description:
        """As the accountant was told."""
        several = isinstance(self.clip_norm, Sequence)
        clip = Clip(self.norms, over="layer") if several else Clip(self.norms[0])
        noise = Noise(self.noise_multiplier, self.noise_multiplier)
        return Description(clip, noise, "none" if self.denominator == 1 else "expected")

    def participation(self, steps: int) -> Participation | None:
        """How examples take part in so many steps."""
        if self.sampling is None or self.rate is None:
            return None
        return Poisson(self.rate, steps) if self.sampling == "poisson" else Repeated(max(1, math.ceil(steps * self.rate)))

    @property
    def examples(self) -> int:
        """In all, as the expected batch and the rate have it if it was not said; 0: not known."""
        if self.population is not None:
            return self.population
        return round(self.batch / self.rate) if self.sampling == "poisson" and self.rate else 0

    def clients(self, sampled: bool) -> Clients:
        """Who is to take part, where the claim rests on it or the loop shows it."""
        pattern = self.participation(self.steps)
        known = self.population is not None or sampled
        return Clients() if pattern is None or not known else Clients(pattern, self.examples)


class LoopAudit:
    """The audit of one loop: `plant`, `release`, `result`, `plan`."""

    def __init__(self, audit: AttachedAudit, told: LoopMechanism):
        self._told, self._audit, self._description = told, audit, told.describe()
        application = Application(
            name=told.name,
            engine="its own code",
            initial=np.zeros(told.dim, np.float32),
            groups=told.places,
            description=self._description,
            knows_others=True,
            unit="example",
            rounds=told.steps,
            rate=told.rate if told.sampling == "poisson" else None,
            shows_model=False,
            clients=told.clients(audit.sampled),
            closing=self._closing,
        )
        self._gradients = GradientAudit(audit, application)
        self._planted: StepCanaries | None = None
        self._rows: list[tuple[Array, Count]] = []  # sums of clipped gradients of this step, by microbatch
        self._sample: tuple[Vector, ...] = ()
        self._draws: Draws | None = (
            None  # of the noise, before it, where PyTorch's own generator has a seed that can be guessed
        )
        self._who: list[IndexArray] = []  # the examples of this step, by microbatch
        self._sizes: list[int] = []
        self._next, self._done, self._failed = 0, 0, False

    def plan(self) -> AuditPlan:
        """What this audit can decide, in one line; it is also written to standard error before the first step."""
        return self._audit.plan()

    @property
    def result(self) -> AuditResult:
        """What the audit says."""
        return self._audit.result

    @property
    def audit(self) -> AttachedAudit:
        """The audit itself."""
        return self._audit

    def plant(
        self,
        t: int,
        gradients: Any,
        *,
        last: bool = True,
        drawn: Sequence[int] | None = None,
        examples: Sequence[int] | None = None,
    ) -> Any:
        """The gradients of step t (examples along the first axis) with canaries behind them, before they are clipped.

        With gradient accumulation call it for every microbatch, with last=False for all but the last one. `drawn` are the
        numbers of the canaries that your own sampler drew, where canaries are sampled as examples are. `examples` are the
        numbers of the examples, from 0 to population - 1: then it is tested whether they are sampled as stated.
        """
        if self._failed:
            return gradients
        try:
            self._note_examples(gradients, examples)
            return self._plant(t, gradients, last, drawn)
        except Exception as trouble:
            self._give_up(t, trouble)
            return gradients

    def release(self, t: int, release: Any, *, contributions: Any = None) -> None:
        """What step t released: the sum of clipped gradients and noise, divided as stated.

        `contributions` are the clipped gradients with the examples along the first axis, if the loop has them: then some are
        compared with what clipping should make of them.
        """
        if self._failed:
            return
        try:
            self._release(t, release, contributions)
        except Exception as trouble:
            self._give_up(t, trouble)

    def _note_examples(self, gradients: Any, examples: Sequence[int] | None) -> None:
        if examples is None:
            return
        if self._told.population is None:
            raise MismatchError("plant(..., examples=...) needs loop(population=...), the number of examples in all.")
        rows = leaves(gradients)[0].shape[0]
        if len(examples) != rows:
            raise MismatchError(f"plant(..., examples=...) with {len(examples)} numbers for {rows} rows of gradients.")
        who = np.asarray(as_numpy(examples), np.int64)
        if who.size and not (who.min() >= 0 and who.max() < self._told.population):
            wrong = who.max() if who.max() >= self._told.population else who.min()
            raise MismatchError(f"plant(..., examples=...) has example {wrong}, and population={self._told.population}.")
        self._who.append(who)

    def _plant(self, t: int, gradients: Any, last: bool, drawn: Sequence[int] | None) -> Any:
        if t != self._next or self._planted is not None:
            raise MismatchError(f"plant({t}, ...) where step {self._next} was expected: every step once, release(t) after it.")
        rows, _ = flat_rows(gradients, self._told.dim)
        short = int((norms_of(rows) <= self._told.total_norm).sum())
        total = clipped_sum(rows, self._description.clip, self._told.places)
        self._rows.append((total, Count(len(rows), short)))
        if not last:
            return gradients
        planted = self._canaries(t, drawn)
        self._planted = planted
        tensors = [leaf for leaf in leaves(gradients) if type(leaf).__module__.split(".")[0] == "torch"]
        self._draws = before_noise(None, tensors[0].device) if tensors else None
        sent = np.concatenate([planted.sent, self._filling(planted)])
        self._sample = (*rows[:_SAMPLES], *planted.sent[:_SAMPLES]) if len(self._rows) == 1 else ()
        self._picked = [*range(min(_SAMPLES, len(rows))), *range(len(rows), len(rows) + min(_SAMPLES, len(planted.sent)))]
        return with_rows(gradients, sent)

    def _canaries(self, t: int, drawn: Sequence[int] | None) -> StepCanaries:
        sampled = None
        if self._audit.sampled:
            assigned = self._audit.schedule.assigned
            own = assigned[t] if t < len(assigned) else np.zeros(0, np.int64)
            sampled = own if drawn is None else np.asarray(drawn, np.int64)
        return self._gradients.planted(t, self._told.total_norm, sampled)

    def _filling(self, planted: StepCanaries) -> Vector:
        """Rows of almost nothing, so that the shape of a step does not depend on coins, and compiled code stays compiled."""
        rows = 0 if planted.assigned is not None else self._audit.places - planted.indices.size
        filling = np.zeros((rows, self._told.dim), np.float32)
        filling[:, :] = np.float32(_NOTHING * self._told.total_norm / math.sqrt(self._told.dim))
        return filling

    def _release(self, t: int, release: Any, contributions: Any) -> None:
        planted = self._planted
        if planted is None or planted.number != t:
            raise MismatchError(f"release({t}, ...) without plant({t}, gradients) before it: its canaries are missing.")
        vector = np.asarray(flat_vector(release))
        if vector.shape != (self._told.dim,):
            raise MismatchError(f"a release of {vector.size} numbers, and loop(dim={self._told.dim}).")
        who = np.concatenate(self._who) if len(self._who) == len(self._rows) else None
        short = sum(each.unclipped or 0 for _, each in self._rows)
        count = Count(sum(each.examples for _, each in self._rows), short, who)
        self._gradients.observe(
            planted,
            vector,
            clip_norm=self._told.total_norm,
            denominator=self._told.denominator,
            others=np.sum([total for total, _ in self._rows], axis=0),
            count=count,
            samples=self._samples(contributions),
            redrawn=() if self._draws is None else self._draws.like(release, self._told.dim),
        )
        self._sizes.append(count.examples)
        self._planted, self._rows, self._who, self._next, self._done = None, [], [], t + 1, self._done + 1

    def _samples(self, contributions: Any) -> tuple[Sample, ...]:
        if contributions is None or not self._sample:
            return ()
        parts = [as_numpy(leaf)[self._picked] for leaf in leaves(contributions)]
        rows = np.concatenate([part.reshape(len(self._picked), -1) for part in parts], axis=1)
        return tuple(Sample(update, row) for update, row in zip(self._sample, rows, strict=True))

    def _give_up(self, t: int, trouble: Exception) -> None:
        """A mistake in the first step is raised: nothing is lost. Later the training goes on, and the result says why."""
        if self._done == 0:
            raise trouble
        self._failed = True
        self._audit.give_up(trouble)

    def _closing(self) -> dict[str, Any]:
        """What is claimed for the examples."""
        pattern = self._told.participation(max(self._done, 1))
        if pattern is None or not self._description.has_noise:
            return {}
        self._look_at_sizes()
        stated = self._told.accountant
        if stated is None:
            claim = accounting.claim_of(self._description, pattern, delta=self._audit.delta, unit="example", rounds=self._done)
            epsilon = claim.epsilon
        else:
            epsilon = float(stated(self._audit.delta)) if callable(stated) else float(stated)
        return {"participation": pattern.attendance, "epsilon_of_clients": epsilon}

    def _look_at_sizes(self) -> None:
        """Batches that Poisson sampling does not make: the claim of the canaries does not rest on it, that of examples does."""
        told = self._told
        if told.sampling != "poisson" or told.rate is None or self._audit.sampled or told.population is not None:
            return
        if sizes_by_chance(self._sizes, told.rate, told.examples) < _RARE:
            text = (
                f"batches have {min(self._sizes)} to {max(self._sizes)} examples, {np.mean(self._sizes):.4g} on average, and "
                f"not as Poisson sampling at rate {told.rate:g} of {told.examples:,} examples makes them: the epsilon of an "
                "example rests on that sampling"
            )
            self._audit.note("sampling", text, self._done - 1)
