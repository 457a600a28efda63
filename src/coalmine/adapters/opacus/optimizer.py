"""An optimizer of Opacus with canaries: a subclass of its own class, so that isinstance, schedulers and state stay as they are.

After Opacus has clipped and summed the examples of a step, the same code is called once more with the canaries as the only
examples: they are clipped and added by it, as one more physical batch would be (`BatchMemoryManager`). What the examples added
is known from before. In some steps examples are also clipped here, on their own, and one of them by Opacus alone.

Of large models one step of several is audited. In the others Opacus's own sum is compared with what it releases, so that noise
that is missing in a single step is seen, and one gradient that is far too long passes through Opacus's clipping alone.

Ghost clipping has no per-example gradients. There the canaries' norms pass through the module's own clipping factors, and each
canary is added with its factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from opacus.optimizers import DPOptimizer

from coalmine._random import stream
from coalmine.adapters.gradients import Count, GradientAudit, StepCanaries, clipped_parts
from coalmine.adapters.seeds import Draws, before_noise
from coalmine.conformance.residual import LEAST_NOISE
from coalmine.contracts import Array, Clip, Description, Glance, IndexArray, Sample, Vector
from coalmine.errors import MismatchError

_LARGE = 4_000_000  # numbers in the gradients of a step, above which
_SOME = 4  # one of so many audited steps is clipped here as well
_KEPT = ("sample_size", "unclipped_num")  # that adaptive clipping counts
_NAME = "_coalmine_steps"  # in the state of the optimizer


class Steps:
    """What is known of the steps of one training."""

    def __init__(self, module: Any, drawn: Any = None, every: int = 1):
        self.module, self.drawn, self.every = module, drawn, every
        self.taken, self.done, self.failed = 0, 0, False  # all steps; those that were audited
        self._next = -1  # the step of this block of steps that is audited
        self._clear()

    def begun(self, gradients: GradientAudit, description: Description) -> Steps:
        """With the audit that looks at them."""
        self.gradients, self.description = gradients, description
        return self

    def _clear(self) -> None:
        self.examples, self.unclipped = 0, 0
        self.own: Array | None = None  # the sum of the examples as it is clipped here
        self.whole = True  # whether all physical batches of the step are in it
        self.planted: StepCanaries | None = None
        self.others: Array | None = None
        self.samples: list[Sample] = []
        self.clip_norm = 0.0
        self.who: IndexArray | None = None
        self.sums: list[Any] = []  # of a step that is not audited: what Opacus made of the examples, before the noise
        self.longest: float | None = None
        self.draws: Draws | None = None  # of the noise, before it

    @property
    def active(self) -> bool:
        """Whether this step is audited: of large models one of every so many, which only the secret knows."""
        if self.failed or self.every == 1:
            return not self.failed
        block = self.taken // self.every
        if self._next // self.every != block:
            seed = int(self.gradients.audit.fingerprint, 16)
            self._next = block * self.every + int(stream(seed, "audited steps", block).integers(self.every))
        return self.taken == self._next

    def passed(self, optimizer: Any) -> None:
        """A step that is not audited: its noise is measured, and its batch is forgotten."""
        if self.drawn is not None and not self.failed:
            self.drawn.next_step()
        noise = self.description.noise
        if self.sums and not self.failed and noise is not None and noise.multiplier > 0:
            spread, scale = noise.multiplier * self.clip_norm, denominator_of(optimizer)
            squares = [
                _squares(each.grad, total, scale, spread) for each, total in zip(optimizer.params, self.sums, strict=True)
            ]
            if all(np.isfinite(squares)):
                sizes = np.array([float(total.numel()) for total in self.sums])
                self.gradients.audit.glance(Glance(self.taken, np.array(squares), sizes, self.longest))
        self.taken += 1
        self._clear()

    def glanced(self, optimizer: Any) -> None:
        """The sum of a step that is not audited, as it is before the noise."""
        self.clip_norm = float(optimizer.max_grad_norm)
        self.sums = [parameter.summed_grad.detach().clone() for parameter in optimizer.params]

    def look(self, optimizer: Any) -> None:
        """The examples of a physical batch, before Opacus clips them."""
        self.clip_norm = float(optimizer.max_grad_norm)
        samples = optimizer.grad_samples
        count = len(samples[0])
        self.examples += count
        self.first: Vector | None = None
        if count * self.gradients.dim > _LARGE and self.done % _SOME:
            self.whole = False
            return
        parts = [each.detach().reshape(count, each.shape[1:].numel()).to("cpu").float().numpy() for each in samples]
        self.first = np.concatenate([part[:1] for part in parts], axis=1)
        clip = self.description.clip if isinstance(self.description.clip.norm, tuple) else Clip(self.clip_norm)
        total, norms = clipped_parts(parts, clip)
        self.own = total if self.own is None else self.own + total
        self.unclipped += int((norms <= self.clip_norm).sum())

    def plant(self, others: Vector) -> StepCanaries:
        """The canaries of a step; `others` is what Opacus made of the examples."""
        batch = None if self.drawn is None else self.drawn.next_step()
        self.who = None if batch is None else batch.examples
        sampled = batch.canaries if batch is not None and self.gradients.audit.sampled else None
        self.planted = self.gradients.planted(self.done, self.clip_norm, sampled)
        self.others = self.own if self.whole and self.own is not None else others.astype(np.float64)
        return self.planted

    def released(self, optimizer: Any) -> None:
        """The end of a step: what Opacus hands to the inner optimizer."""
        if self.planted is None:
            raise MismatchError("a step without clipping: this optimizer does not call clip_and_accumulate of Opacus.")
        denominator = denominator_of(optimizer)
        release = flat([parameter.grad for parameter in optimizer.params])
        if release.size != self.gradients.dim:
            raise MismatchError(
                f"the model had {self.gradients.dim} parameters when training began, and has {release.size} now."
            )
        self.gradients.observe(
            self.planted,
            release,
            clip_norm=self.clip_norm,
            denominator=denominator,
            others=self.others,
            count=Count(self.examples, self.unclipped if self.whole and self.own is not None else None, self.who),
            samples=self.samples,
            redrawn=() if self.draws is None else (self.draws.redrawn([each.shape for each in optimizer.params]),),
        )
        self.done, self.taken = self.done + 1, self.taken + 1
        self._clear()

    @contextmanager
    def safely(self) -> Iterator[None]:
        """What goes wrong in the first step is raised; later the training goes on, and the result says why there is none."""
        try:
            yield
        except Exception as trouble:
            if self.done == 0:
                raise
            self.failed = True
            self.gradients.audit.give_up(trouble)


def audited(optimizer: DPOptimizer, steps: Steps) -> Any:
    """An object of a subclass, which shares all state with the optimizer that it stands for."""
    ghost = hasattr(optimizer, "accumulate")
    parent = type(optimizer)
    made: Any = type(f"Audited{parent.__name__}", (_GhostCanaries if ghost else _Canaries, parent), {"__module__": __name__})
    if ghost and not hasattr(steps.module, "get_clipping_coef"):
        raise MismatchError("ghost clipping needs the module that make_private returned: attach(..., module=module).")
    found = made.__new__(made)
    found.__dict__ = optimizer.__dict__
    vars(found)[_NAME] = steps
    return found


def denominator_of(optimizer: Any) -> float:
    """What Opacus divides the noisy sum by."""
    return (
        float(optimizer.expected_batch_size) * optimizer.accumulated_iterations if optimizer.loss_reduction == "mean" else 1.0
    )


def _squares(release: Any, total: Any, scale: float, spread: float) -> float:
    """Σ z² of one parameter; not a number where single precision hides the noise, or nothing was released."""
    if release is None or release.numel() != total.numel():
        return float("nan")
    noisy = release.detach().reshape(-1) * scale
    rounding = float(torch.finfo(noisy.dtype).eps) * float(torch.linalg.vector_norm(noisy))
    noise = noisy.sub_(total.reshape(-1)).square_().sum(dtype=torch.float64).item()
    return noise / spread**2 if rounding <= LEAST_NOISE * spread * np.sqrt(total.numel()) else float("nan")


def flat(tensors: list[Any]) -> Vector:
    """As one vector of float32 in main memory."""
    joined: Vector = torch.cat([each.detach().reshape(-1) for each in tensors]).to("cpu").float().numpy()
    return joined


class _Watched:
    """What both kinds have in common: the release is seen when Opacus is done with a step."""

    def pre_step(self, closure: Any = None) -> Any:
        """As Opacus does; then the release is looked at."""
        steps: Steps = vars(self)[_NAME]
        noise, accounted = float(self.noise_multiplier), steps.description.noise  # type: ignore[attr-defined]
        active = steps.active
        done = super().pre_step(closure)  # type: ignore[misc]
        if done and not active:
            with steps.safely():
                steps.passed(self)
        elif done and not steps.failed:
            with steps.safely():
                told = {accounted.accounted, accounted.multiplier} if accounted is not None else set()
                if not any(np.isclose(noise, each) for each in told):
                    raise MismatchError(f"noise multiplier {noise:g} in step {steps.done + 1}: an audit is of one mechanism.")
                steps.released(self)
        return done

    def add_noise(self) -> None:
        """As Opacus does, after a look at the generator."""
        steps: Steps = vars(self)[_NAME]
        if steps.active and not getattr(self, "secure_mode", False):
            with steps.safely():
                steps.draws = before_noise(self.generator, self.params[0].device)  # type: ignore[attr-defined]
        super().add_noise()  # type: ignore[misc]

    def _shaped(self, rows: Vector) -> list[Any]:
        """Rows as per-example gradients of every parameter, on its device."""
        found, start = [], 0
        for parameter in self.params:  # type: ignore[attr-defined]
            part = rows[:, start : start + parameter.numel()]
            start += parameter.numel()
            tensor = torch.from_numpy(np.ascontiguousarray(part)).to(device=parameter.device, dtype=parameter.dtype)
            found.append(tensor.reshape(len(rows), *parameter.shape))
        return found


class _Canaries(_Watched):
    """Canaries among per-example gradients."""

    def clip_and_accumulate(self) -> None:
        """As Opacus does; in the last physical batch of a step once more, with canaries."""
        steps: Steps = vars(self)[_NAME]
        if not steps.active:
            super().clip_and_accumulate()  # type: ignore[misc]
            if not self._check_skip_next_step(pop_next=False) and not steps.failed:  # type: ignore[attr-defined]
                with steps.safely():
                    steps.glanced(self)
                    steps.longest = self._kept_of_much(steps)
            return None
        with steps.safely():
            steps.look(self)
        super().clip_and_accumulate()  # type: ignore[misc]
        if not self._check_skip_next_step(pop_next=False) and not steps.failed:  # type: ignore[attr-defined]
            with steps.safely():
                self._plant(steps)
        return None

    def _plant(self, steps: Steps) -> None:
        parameters = self.params  # type: ignore[attr-defined]
        kept = [(each.grad_sample, each.summed_grad) for each in parameters]
        planted = steps.plant(flat([summed for _, summed in kept]))
        if steps.first is not None:
            firsts = [each[:1] for each in (steps.first, planted.sent) if len(each)]
            steps.samples = [Sample(each[0], flat(self._alone(self._shaped(each)))) for each in firsts]
        if not planted.indices.size:
            return
        try:
            for parameter, (_, summed), rows in zip(parameters, kept, self._shaped(planted.sent), strict=True):
                parameter.grad_sample, parameter.summed_grad = rows, summed.clone()
            super().clip_and_accumulate()  # type: ignore[misc]
        except Exception:
            for parameter, (_, summed) in zip(parameters, kept, strict=True):
                parameter.summed_grad = summed
            raise
        finally:
            for parameter, (sample, _) in zip(parameters, kept, strict=True):
                parameter.grad_sample = sample

    def _kept_of_much(self, steps: Steps) -> float:
        """Clip norms that Opacus leaves of a gradient that is far too long, the same in every coordinate."""
        entry = steps.gradients.audit.replies.canary_norm * steps.clip_norm / np.sqrt(steps.gradients.dim)
        row = [each.new_full((1, *each.shape), entry) for each in self.params]  # type: ignore[attr-defined]
        squares = sum(float(torch.linalg.vector_norm(each, dtype=torch.float64)) ** 2 for each in self._alone(row))
        return float(np.sqrt(squares) / steps.clip_norm)

    def _alone(self, row: list[Any]) -> list[Any]:
        """What Opacus makes of one gradient, by parameter; nothing of that stays."""
        parameters, counted = self.params, {name: vars(self)[name] for name in _KEPT if name in vars(self)}  # type: ignore[attr-defined]
        kept = [(each.grad_sample, each.summed_grad) for each in parameters]
        try:
            for parameter, rows in zip(parameters, row, strict=True):
                parameter.grad_sample, parameter.summed_grad = rows, None
            super().clip_and_accumulate()  # type: ignore[misc]
            return [each.summed_grad for each in parameters]
        finally:
            vars(self).update(counted)
            for parameter, (sample, summed) in zip(parameters, kept, strict=True):
                parameter.grad_sample, parameter.summed_grad = sample, summed


class _GhostCanaries(_Watched):
    """Canaries beside gradients that were clipped by their norms alone."""

    def accumulate(self) -> None:
        """As Opacus does; in the last physical batch of a step canaries are added."""
        steps: Steps = vars(self)[_NAME]
        super().accumulate()  # type: ignore[misc]
        if not steps.active:
            if not self._check_skip_next_step(pop_next=False) and not steps.failed:  # type: ignore[attr-defined]
                with steps.safely():
                    steps.glanced(self)
            return
        with steps.safely():
            steps.clip_norm = float(self.max_grad_norm)  # type: ignore[attr-defined]
            steps.examples += len(next(each._norm_sample for each in self.params))  # type: ignore[attr-defined]
            if not self._check_skip_next_step(pop_next=False):  # type: ignore[attr-defined]
                self._plant(steps)

    def _plant(self, steps: Steps) -> None:
        parameters = self.params  # type: ignore[attr-defined]
        planted = steps.plant(flat([each.summed_grad for each in parameters]))
        if not planted.indices.size:
            return
        shaped, trained = self._shaped(planted.sent), steps.module.trainable_parameters
        kept = [each._norm_sample for each in trained]
        try:
            for each in trained:
                each._norm_sample = torch.zeros(len(planted.sent), device=each.device)
            for parameter, rows in zip(parameters, shaped, strict=True):
                parameter._norm_sample = rows.reshape(len(rows), -1).norm(2, dim=-1)
            factors = steps.module.get_clipping_coef()
        finally:
            for each, norms in zip(trained, kept, strict=True):
                each._norm_sample = norms
        for parameter, rows in zip(parameters, shaped, strict=True):
            parameter.summed_grad += torch.einsum("i,i...", factors.to(rows), rows)
