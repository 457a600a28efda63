"""Canaries among per-example gradients: what an engine and a loop of one's own have in common.

    symbol   here            meaning
    C        clip_norm       norm to which every example's gradient is clipped
    n        denominator     what the noisy sum is divided by, the same in every step
    c_i      directions      unit vectors; canary i is a gradient of `canary_norm` · C · c_i, which the code must clip to C c_i

Only inserted canaries join: the denominator is fixed, so that who stays away needs no place. Neighbouring data sets differ in
one example; taking part moves the sum by at most C, which is "add or remove one".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coalmine.audit.application import Application, observed
from coalmine.audit.attached import AttachedAudit
from coalmine.contracts import Array, Clip, IndexArray, Public, Redrawn, RoundCanaries, Sample, Vector
from coalmine.errors import MismatchError, NonFiniteError

_CLEARLY = 5.0  # standard errors
_FAR = 2.0  # factor of a scale that is not a matter of chance


@dataclass(frozen=True, eq=False)
class StepCanaries:
    """The canaries of a step: who they are, what they sent, and what clipping as described makes of it."""

    number: int
    indices: IndexArray  # inserted
    assigned: IndexArray | None  # all that were sampled, whichever way their coins fell; None: as the schedule says
    places: int
    sent: Vector  # (canaries, dim), float32; overwritten in the next step
    part: Array  # the sum of the same, clipped as the description says


@dataclass(frozen=True)
class Count:
    """Examples of a step, how many of them were short enough to pass unclipped, and who they are; None: not known."""

    examples: int
    unclipped: int | None = None
    who: IndexArray | None = None  # which of all examples, where the loader says it


class GradientAudit:
    """An audit of training that clips per-example gradients: canaries for every step, and what was released.

    `typed`: what a release is divided by was typed in, and may be a mistake; an engine's own number is for the audit to judge.
    """

    def __init__(self, audit: AttachedAudit, application: Application, *, typed: bool = True):
        noise = application.description.noise
        self._typed, self._noise = typed, 0.0 if noise is None else noise.multiplier
        self.audit, self._clip, self.groups = audit, application.description.clip, dict(application.groups)
        self.dim = application.initial.size
        self._sent = np.zeros((0, self.dim), np.float32)  # kept, since fresh memory costs more than what is written into it
        audit.begin(application)

    def planted(self, number: int, clip_norm: float, drawn: IndexArray | None = None) -> StepCanaries:
        """The canaries of a step; `drawn` are those that a sampler drew, where one does that."""
        audit, schedule = self.audit, self.audit.schedule
        later = number >= audit.rounds and drawn is None
        assigned = drawn if drawn is not None else np.zeros(0, np.int64) if later else schedule.assigned[number]
        inserted = assigned[schedule.inserted[assigned]]
        if len(self._sent) < inserted.size:
            self._sent = np.empty((inserted.size, self.dim), np.float32)
        sent, clip, part = self._sent[: inserted.size], self._clip_now(clip_norm), np.zeros(self.dim)
        for row, index in enumerate(inserted):
            sent[row] = audit.update(int(index), clip_norm, self.dim)
            part += clip_rows(sent[row : row + 1], clip, self.groups)[0]
        return StepCanaries(number, inserted, assigned if audit.sampled else None, int(assigned.size), sent, part)

    def observe(
        self,
        planted: StepCanaries,
        release: Vector,
        *,
        clip_norm: float,
        denominator: float,
        others: Array | None,
        count: Count,
        samples: Sequence[Sample] = (),
        redrawn: tuple[Redrawn, ...] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """What a step released: the noisy sum over `denominator`. `others` is the examples' part of the sum itself."""
        number = planted.number
        if not np.isfinite(release).all():
            raise NonFiniteError(f"the release of step {number + 1} has NaN or infinite entries; nothing can be found in it.")
        if number == 0:
            check_scale(planted, release * denominator, others, self._noise * clip_norm if self._typed else None)
        seen = observed(
            number,
            release,
            clip_norm=clip_norm,
            denominator=denominator,
            clients=count.examples,
            inserted=int(planted.indices.size),
            places=planted.places,
            others=None if others is None else others / denominator,
            unclipped=count.unclipped,
            facts=facts,
        )
        canaries = RoundCanaries(planted.indices, None, planted.part / denominator, assigned=planted.assigned)
        public = Public(number, clip_norm, denominator)
        self.audit.observe(
            replace(
                seen,
                canaries=canaries,
                public=public,
                samples=tuple(samples),
                redrawn=redrawn,
                cohort=count.who,
                count=count.examples + int(planted.indices.size),
                unclipped=count.unclipped,
            )
        )

    def _clip_now(self, clip_norm: float) -> Clip:
        return self._clip if isinstance(self._clip.norm, tuple) else replace(self._clip, norm=clip_norm)


def clip_rows(rows: Vector, clip: Clip, groups: Mapping[str, slice]) -> Vector:
    """Rows of per-example gradients, clipped as a description says: each as a whole, or layer by layer."""
    found = np.array(rows)
    for place, norm in _bounds(clip, groups):
        found[:, place] *= _factors(norms_of(rows[:, place]), norm, rows)[:, None]
    return found


def clipped_sum(rows: Vector, clip: Clip, groups: Mapping[str, slice]) -> Array:
    """The sum of the same rows, without a copy of them."""
    found = np.empty(rows.shape[1])
    for place, norm in _bounds(clip, groups):
        found[place] = _factors(norms_of(rows[:, place]), norm, rows) @ rows[:, place]
    return found


def clipped_parts(parts: Sequence[Vector], clip: Clip) -> tuple[Array, Array]:
    """(the same sum, the norms before clipping) of rows that come in one array for each parameter, without joining these."""
    norms = [norms_of(part) for part in parts]
    together: Array = np.sqrt(np.sum(np.square(norms), axis=0))
    if isinstance(clip.norm, tuple):
        factors = [_factors(each, norm, part) for each, norm, part in zip(norms, clip.norm, parts, strict=True)]
    else:
        factors = [_factors(together, clip.norm or 0.0, part) for part in parts]
    summed = [factor @ part for factor, part in zip(factors, parts, strict=True)]
    return np.concatenate(summed).astype(np.float64), together


def norms_of(rows: Vector) -> Array:
    """The norm of every row."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)), dtype=np.float64)


def _bounds(clip: Clip, groups: Mapping[str, slice]) -> list[tuple[slice, float]]:
    """Which coordinates are clipped together, and to which norm."""
    if isinstance(clip.norm, tuple):
        return list(zip(groups.values(), clip.norm, strict=True))
    return [(slice(None), clip.norm or 0.0)]


def _factors(norms: Array, clip_norm: float, rows: Vector) -> Vector:
    """min(1, C / norm), in the precision of the rows."""
    return np.asarray(np.minimum(1.0, clip_norm / np.maximum(norms, 1e-30)), dtype=rows.dtype)


def check_scale(planted: StepCanaries, total: Vector, others: Array | None, spread: float | None = 0.0) -> None:
    """In the first step: does the release have the sign and the scale that were stated? `total` is n · release.

    It is regressed on what canaries and examples add together: with the stated scale the coefficient is 1, up to the noise. A
    fault in clipping shows in two coefficients, of canaries and of examples, that differ, or in a sum that is longer beside
    noise that is as stated (`spread` is its standard deviation); that is for the audit to say. None: nobody stated a scale.
    """
    parts = [part for part in (planted.part, others) if part is not None and np.any(part)]
    if not parts:
        return
    (scale, error), *_ = _coefficients(total, [np.sum(parts, axis=0)])
    if scale < -_CLEARLY * error:
        raise MismatchError(
            "the gradients of the first step are in the release with the opposite sign: hand over the noisy gradient, "
            "not the step that is added to the model."
        )
    if spread is None or _longer_sum(total - scale * np.sum(parts, axis=0), scale, spread):
        return
    (first, one), *rest = _coefficients(total, parts)
    second, other = rest[0] if rest else (first, one)
    agree = abs(first - second) < _CLEARLY * np.hypot(one, other)
    if scale > _CLEARLY * error and agree and not 1 / _FAR < scale < _FAR:
        raise MismatchError(
            f"the release of the first step is {scale:.3g} times what was stated: give scale=..., by which the sum of clipped "
            "gradients is multiplied (1/batch for a mean, 1 for a sum)."
        )


def _longer_sum(noise: Array, scale: float, spread: float) -> bool:
    """Whether the noise is nearer to what was stated than to what another scale makes of that."""
    if not spread or not scale > 0 or not np.any(noise):
        return False
    ratio = float(np.log(np.sqrt(noise @ noise / noise.size) / spread))
    return abs(ratio) < abs(ratio - float(np.log(scale)))


def _coefficients(total: Vector, parts: Sequence[Array]) -> list[tuple[float, float]]:
    """(coefficient, its standard error) of every part, by least squares."""
    columns = np.stack(parts, axis=1)
    inverse = np.linalg.pinv(columns.T @ columns)
    found = inverse @ (columns.T @ total)
    rest = total - columns @ found
    spread = float(rest @ rest) / max(total.size - len(parts), 1)
    return [(float(each), float(np.sqrt(spread * inverse[place, place]))) for place, each in enumerate(found)]
