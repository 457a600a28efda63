"""From a released vector to a row of `Projections`: inner products with canaries and with unused directions.

Columns are the pool, then `spare` unused directions of the same family, then the pool of a second family none of which is ever
inserted (`unused`). The last is how sphere canaries, which have no spare directions, get theirs: a `TransformCanaries` with a
seed of its own costs one transform for thousands of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coalmine import _validate
from coalmine.contracts import Array, Canaries, Projections, Vector
from coalmine.errors import NonFiniteError

KINDS = ("mean", "residual", "step", "total_change", "model", "whitened", "ratio")
_PIECE = 1 << 16
LEAST_PARAMETERS = 500  # in fewer, the scores of a layer say nothing about its noise


@dataclass(frozen=True)
class ProjectionRow:
    """What the canaries see of one vector: a row of `Projections`."""

    inner: Array  # with unit directions; within a group, divided by their length there
    norm: float


def project_row(
    canaries: Canaries,
    vector: Vector,
    *,
    spare: int = 0,
    unused: Canaries | None = None,
    group: slice | None = None,
    norm_in_group: Array | None = None,
) -> ProjectionRow:
    """One vector seen by the canaries, by `spare` unused directions, and by the pool of `unused`.

    With `group` only those coordinates count; `norm_in_group` is how long directions are there (`norms_in_group`, once a run).

    >>> from coalmine.canaries import TransformCanaries
    >>> canaries = TransformCanaries(1000, 3, secret_seed=1)
    >>> seen = project_row(canaries, 2 * canaries.update(1), spare=5)
    >>> seen.inner.size, bool(seen.inner[1] > 1.999), round(seen.norm, 3)
    (8, True, 2.0)
    """
    inner = canaries.project(vector, spare=spare, group=group) / canaries.norm
    if unused is not None:
        inner = np.concatenate([inner, unused.project(vector, group=group) / unused.norm])
    if (group is None) != (norm_in_group is None):
        raise ValueError("group and norm_in_group belong together: norms_in_group(canaries, group, ...) measures them.")
    if norm_in_group is not None:
        if norm_in_group.shape != inner.shape:
            shape = norm_in_group.shape
            raise ValueError(f"norm_in_group must have one entry per direction ({inner.size}); got shape {shape}.")
        inner = np.divide(inner, norm_in_group, out=np.zeros_like(inner), where=norm_in_group > 0)
    part = np.asarray(vector if group is None else vector[group])
    return ProjectionRow(inner, math.sqrt(_sum_of_squares(part)))


def _sum_of_squares(vector: Vector) -> float:
    """In float64, in halves: those of numpy's own sum, so that it is the same number without a second vector."""
    if vector.size <= _PIECE:
        return float(np.square(vector, dtype=np.float64).sum())
    half = vector.size // 2
    half -= half % 8
    return _sum_of_squares(vector[:half]) + _sum_of_squares(vector[half:])


def norms_in_group(canaries: Canaries, group: slice, *, spare: int = 0, unused: Canaries | None = None) -> Array:
    """How long each direction is within a group of coordinates, in the order of the columns of `project_row`."""
    lengths = canaries.norms([group], spare=spare)[0] / canaries.norm
    return lengths if unused is None else np.concatenate([lengths, unused.norms([group])[0] / unused.norm])


def stack(
    sights: Sequence[ProjectionRow],
    *,
    kind: str,
    rounds: ArrayLike,
    amplitude: ArrayLike,
    pool: int,
    dim: int,
    group: str | None = None,
    norm_in_group: Array | None = None,
) -> Projections:
    """Rows put together, in the order of `rounds`; `amplitude` is what taking part adds to a canary's inner product.

    `dim` is the number of coordinates seen: the group's, within a group.
    """
    _validate.one_of("kind", kind, KINDS)
    numbers, sizes = np.asarray(rounds), np.asarray(amplitude, dtype=np.float64)
    if not sights or numbers.shape != (len(sights),) or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"rounds must hold one whole number for each of the {len(sights)} rows, at least one.")
    sizes = np.broadcast_to(sizes, numbers.shape).copy()
    widths = {row.inner.shape for row in sights}
    if len(widths) > 1:
        raise ValueError(f"all rows must have the same columns; got shapes {', '.join(map(str, sorted(widths)))}.")
    return Projections(
        kind=kind,
        rounds=numbers.astype(np.int64),
        inner=np.stack([row.inner for row in sights]),
        norm=np.array([row.norm for row in sights]),
        amplitude=sizes,
        pool=_validate.whole("pool", pool, least=1),
        dim=_validate.whole("dim", dim, least=2),
        norm_in_group=norm_in_group,
        group=group,
    )


def groups_of(layers: Mapping[str, slice], least: int = LEAST_PARAMETERS) -> dict[str, slice]:
    """The layers that are large enough to be judged on their own.

    >>> groups_of({"embedding": slice(0, 9000), "bias": slice(9000, 9010)})
    {'embedding': slice(0, 9000, None)}
    """
    least = _validate.whole("least", least, least=1)
    return {name: place for name, place in layers.items() if place.stop - place.start >= least}


def check_finite(projections: Projections) -> None:
    """NaN or infinity stops the audit and says where it was."""
    good = np.isfinite(projections.norm) & np.isfinite(projections.amplitude)
    good &= np.array([bool(np.isfinite(row).all()) for row in projections.inner])
    if not good.all():
        raise NonFiniteError(
            f"NaN or infinity in what was seen of round {projections.rounds[~good][0]} ({projections.kind}): nothing was "
            "computed. Find the update or the release that was not finite."
        )
