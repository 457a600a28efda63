"""Canaries designed for one model: data, the updates that the real client makes of them, and what they are worth.

    paper          here          meaning
    health         health        how much of the paper's loss the design removed, on the pool
    -              reach         length of the clipped update, in clip norms
    -              overlap       what the others of a round add to a score, in standard deviations of the noise
    -              visibility    reach over the spread of the score; 1 / noise multiplier is the best there is
    -              efficiency    visibility over the best there is

All but the health are measured on clients that the design never saw. Health says little: a canary whose gradient is almost zero
can have a health of 0.9999.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.canaries.crafted.options import Crafting
from coalmine.canaries.crafted.vectors import CraftedCanaries
from coalmine.contracts import Array, Streams, Vector
from coalmine.data.dataset import Examples
from coalmine.errors import AuditError, NonFiniteError

if TYPE_CHECKING:
    from coalmine.clients import LocalTraining, Trainer
    from coalmine.models import Model

LEAST_COSINE = 0.99  # between the update of the real client and the gradient that was designed
_JUDGES = 4  # one in so many clients of the pool judges, where no others are given


@dataclass(frozen=True, eq=False)
class Crafted:
    """Designed canaries; as secret as the seed until the audit is over.

    Args:
        samples: One client's data for each canary.
        updates: (canaries, dim): what the real client makes of them.
        metrics: By name (health, reach, overlap, visibility, efficiency, cosine), one number for each canary.
        shares: By layer, its share of the squared length of each update.
        flags: What a reader must know of the design.
        forged: Whether the updates were made longer than the client makes them.
    """

    samples: tuple[Examples, ...] = field(repr=False)  # one client's data each
    updates: NDArray[np.float32] = field(repr=False)  # (canaries, dim): what the real client makes of them
    metrics: Mapping[str, Array]  # health, reach, overlap, visibility, efficiency, cosine: one number for each canary
    shares: Mapping[str, Array] = field(default_factory=dict, repr=False)  # by layer, of the squared length of each update
    flags: tuple[str, ...] = ()
    forged: bool = False  # whether the updates were made longer than the client makes them

    @cached_property  # a matrix as large as the updates, which every draw of a round asks for
    def directions(self) -> CraftedCanaries:
        """The updates as directions."""
        return CraftedCanaries(self.updates)

    @property
    def median(self) -> int:
        """The canary whose visibility is the median one."""
        order = np.argsort(self.metrics["visibility"], kind="stable")
        return int(order[len(order) // 2])

    def summary(self) -> dict[str, Any]:
        """Medians over canaries, and the mean share of each layer."""
        found: dict[str, Any] = {name: float(np.median(values)) for name, values in self.metrics.items()}
        found["shares"] = {name: float(values.mean()) for name, values in self.shares.items()}
        return {"canaries": len(self.samples), **found, "flags": list(self.flags)}


def design_canaries(
    model: Model,
    parameters: Vector,
    training: LocalTraining,
    pool: Sequence[Examples],
    *,
    count: int,
    clip_norm: float,
    noise_multiplier: float,
    cohort_size: float,
    options: Crafting | None = None,
    streams: Streams,
    held_out: Sequence[Examples] = (),
) -> Crafted:
    """`count` clients' data whose updates at these parameters stand out of the noisy sum of a round, and off each other.

    `pool` holds mock clients that the design may look at, `held_out` others that judge it; without these every fourth client of
    the pool judges and is not designed with. Clients of either must not be in a round that is scored. The cost is iterations ×
    canaries × pool × parameters, less for dense layers; memory is (pool + canaries) × parameters floats at most.

    Args:
        model: Of the training.
        parameters: At which they are designed.
        training: How a client trains.
        pool: Mock clients that the design may look at.
        count: Canaries.
        clip_norm: Of updates.
        noise_multiplier: Of the round.
        cohort_size: Clients in a round.
        options: How they are designed.
        streams: Secret random numbers.
        held_out: Mock clients that judge the design.

    Returns:
        The canaries, with measures of their quality.
    """
    from coalmine.canaries.crafted.search import search
    from coalmine.clients import Trainer

    count = _validate.whole("count", count, least=1)
    clip_norm, noise = _validate.clip_norm(clip_norm), _validate.non_negative("noise_multiplier", noise_multiplier)
    cohort = _validate.positive("cohort_size", cohort_size)
    if not np.isfinite(parameters).all():
        raise NonFiniteError("parameters contain NaN or infinity: no canary can be designed for a model that diverged.")
    if not isinstance(options, Crafting | None):
        raise ValueError(f"options={options!r} is not allowed: coalmine.Crafting(...) holds the choices of a design.")
    check_count(count, model.dim)
    pool = [client for client in pool if len(client)]
    if not held_out:
        pool, held_out = [each for place, each in enumerate(pool) if place % _JUDGES], pool[::_JUDGES]
    if not pool or not held_out:
        raise ValueError("the pool is too small: a design needs clients with examples, and others that judge it.")
    text = np.asarray(pool[0].features).dtype.kind in "iu" and model.features != "numbers"
    told = (options or Crafting()).resolved(text=text, cohort_size=round(cohort))
    trainer = Trainer(model, training)
    forged = 1 / training.learning_rate if told.undo_learning_rate else 1.0
    needed = told.norm_margin * clip_norm / (training.learning_rate * forged)
    enough = told.stop_overlap**2 * noise**2 if noise > 0 and told.stop_overlap > 0 else None
    found = search(
        trainer, parameters, pool, told, streams, count=count, text=text, clip_norm=clip_norm, needed=needed,
        cohort=cohort, enough=enough,
    )  # fmt: skip
    updates, cosines = _real_updates(trainer, parameters, found.samples, found.gradients, streams)
    if not told.use_as_is:
        _refuse_unlike(cosines)
    updates *= np.float32(forged)
    metrics = _judged(trainer, parameters, updates, held_out, clip_norm=clip_norm, noise=noise, cohort=cohort)
    if not all(np.isfinite(each).all() for each in metrics.values()):
        raise NonFiniteError("mock clients' updates contain NaN or infinity: look at the data of pool and held_out.")
    metrics |= {"health": found.health, "cosine": cosines}
    squares = np.einsum("ij,ij->i", updates, updates, dtype=np.float64)
    shares = {
        name: np.einsum("ij,ij->i", updates[:, place], updates[:, place], dtype=np.float64) / squares
        for name, place in model.groups.items()
    }
    return Crafted(tuple(found.samples), updates, metrics, shares, told.flags, told.undo_learning_rate)


def _real_updates(
    trainer: Trainer, parameters: Vector, samples: Sequence[Examples], gradients: NDArray[Any], streams: Streams
) -> tuple[NDArray[np.float32], Array]:
    """(updates of the real client, their cosines with the designed gradients)."""
    orders = [streams("client", place) for place in range(len(samples))]
    updates = np.stack([update.vector for update in trainer.updates(parameters, samples, orders)])
    inner = -np.einsum("ij,ij->i", updates, gradients, dtype=np.float64)
    lengths = np.linalg.norm(updates.astype(np.float64), axis=1) * np.linalg.norm(gradients.astype(np.float64), axis=1)
    cosines = np.divide(inner, lengths, out=np.zeros(len(inner)), where=lengths > 0)
    return updates, cosines


def _refuse_unlike(cosines: Array) -> None:
    """Refuses updates that are not what was designed."""
    if not cosines.min() >= LEAST_COSINE:
        raise AuditError(
            f"the update of a crafted canary has the cosine {cosines.min():.3f} with the gradient it was designed by; at least "
            f"{LEAST_COSINE} is needed. The client does something else with it than one step: dropout, many local steps, "
            "momentum over them, or a learning rate at which it diverges. Design for a client with one step; for several steps "
            "of a dense network with unroll=True; or take the update as it is with use_as_is=True."
        )


def _judged(
    trainer: Trainer,
    parameters: Vector,
    updates: NDArray[np.float32],
    held_out: Sequence[Examples],
    *,
    clip_norm: float,
    noise: float,
    cohort: float,
) -> dict[str, Array]:
    """What the canaries are worth, on clients that the design never saw."""
    from coalmine.canaries.crafted.pool import clipped_updates

    directions = CraftedCanaries(updates)
    squares = np.zeros(len(updates))
    size = 64  # clients at a time: no matrix of all
    for start in range(0, len(held_out), size):
        for row in clipped_updates(trainer, parameters, held_out[start : start + size], clip_norm):
            squares += np.square(directions.project(row))
    variance = cohort * squares / len(held_out)
    reach = np.minimum(directions.lengths / clip_norm, 1.0)
    visibility = reach / np.sqrt(noise**2 + variance)
    overlap = np.sqrt(variance) / (noise or 1.0)
    return {"reach": reach, "overlap": overlap, "visibility": visibility, "efficiency": visibility * noise}


def check_count(count: int, dim: int) -> None:
    """Refuses as many canaries as a model has parameters."""
    if not count < dim:
        raise ValueError(
            f"{count:,} crafted canaries for {dim:,} parameters: none is left to measure the noise on. Design fewer."
        )
