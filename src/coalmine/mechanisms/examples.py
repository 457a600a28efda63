"""Mechanisms that protect single examples of a client: full gradients (GD-DP) and batches (SGD-DP), with noise of the clients.

    paper (Zhang & Psounis 2024)   here        meaning
    C                              clip_norm   every example's gradient is clipped to it
    D                              examples    of every client; one who has fewer has zero gradients for the others
    B                              batch       examples that an update is the mean of
    sigma²                         floor       variance of the noise that each client adds to its update, in every coordinate
    N - |T|                        honest      clients whose noise the claim counts on

A client sends (1/D) · sum of clipped gradients + N(0, floor). `Public.clip_norm` is what one example adds at most: C/D, or
C/B of a batch. The server adds no noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.contracts import (
    Array,
    ByClients,
    Clip,
    Context,
    Contribution,
    Description,
    Noise,
    ProtectedExamples,
    Public,
    Release,
    State,
    Streams,
    Total,
    Vector,
)
from coalmine.errors import NonFiniteError
from coalmine.mechanisms.distributed import least_cohort

Own = TypeVar("Own", bound="FullGradient")


def clipped_rows(rows: NDArray[Any], norm: float) -> tuple[NDArray[Any], int]:
    """(every row cut to `norm`, how many were short enough); before anything is made of them."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    if not np.isfinite(lengths).all():
        bad = np.flatnonzero(~np.isfinite(lengths))
        raise NonFiniteError(f"{bad.size} gradients have NaN or infinite entries, the first is that of example {bad[0]}")
    short = lengths <= norm
    factors = np.where(short, 1.0, norm / np.maximum(lengths, 1e-300))
    return (rows * factors[:, None]).astype(rows.dtype, copy=False), int(short.sum())


@dataclass(frozen=True)
class FullGradient:
    """GD-DP: the mean of all clipped gradients of a client, and isotropic noise. The least noise of all that are proved."""

    clip_norm: float
    floor: float
    examples: int
    honest: int

    weights: ClassVar[Literal["equal", "batch", "gaussian"]] = "equal"
    of_the_run: ClassVar[tuple[str, ...]] = ("honest",)

    def __post_init__(self) -> None:
        _validate.positive("clip_norm", self.clip_norm)
        _validate.non_negative("floor", self.floor)
        _validate.whole("examples", self.examples, least=1)
        _validate.whole("honest", self.honest, least=1)

    @classmethod
    def from_config(cls: type[Own], options: Mapping[str, Any], context: Context) -> Own:
        """From a section [mechanism]; all clients of a round are honest unless `honest` says how many are."""
        stated = {name: value for name, value in options.items() if value is not None}
        stated.setdefault("honest", least_cohort(context))
        return cls(**stated)

    @property
    def share(self) -> float:
        """What one example adds to the sum at most."""
        return self.clip_norm / self.examples

    def describe(self) -> Description:
        """Clipping of single examples; every client adds noise."""
        least = math.sqrt(self.honest * self.floor) / self.share
        return Description(
            clip=Clip(self.share, over="example"),
            noise=Noise(least, least, added_by=ByClients(self.honest, self.honest)),
            examples=ProtectedExamples(self.examples, self._batch, self.weights),
        )

    @property
    def _batch(self) -> int:
        return self.examples

    def without_noise(self: Own) -> Own:
        """The same without noise."""
        return replace(self, floor=0.0)

    def init(self, dim: int) -> State:
        """Nothing changes from round to round."""
        return {}

    def announce(self, state: State, round_number: int, denominator: float) -> Public:
        """What one example adds at most, and the expected cohort."""
        return Public(round_number, self.share, denominator)

    def client(
        self, update: Vector, public: Public, examples: int = 1, own: NDArray[Any] | None = None, *, secret: Streams
    ) -> Contribution:
        """The mean of clipped gradients with noise; without `own` the update is the gradient of the client's only example."""
        rows = np.asarray(update)[None] if own is None else own
        if len(rows) > self.examples:
            raise ValueError(
                f"a client has {len(rows)} examples, and the mechanism was made for {self.examples}: state the largest number "
                "as mechanism.examples, or limit clients by data.cap."
            )
        kept, short = clipped_rows(rows, self.clip_norm)
        mean, noise = self._update(kept, secret)
        return Contribution(mean + noise, unclipped=short == len(rows), without_noise=mean)

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        """(what is sent without noise, the noise)."""
        return self._mean(rows), np.asarray(math.sqrt(self.floor) * secret("noise").standard_normal(rows.shape[1]))

    def _mean(self, rows: NDArray[Any]) -> Array:
        return np.asarray(rows.sum(axis=0, dtype=np.float64) / self.examples)

    def release(self, state: State, total: Total, public: Public, secret: Streams) -> tuple[Release, State]:
        """The mean over clients; all noise is in it already."""
        vector = total.vector() / public.denominator
        return Release(public.round, vector, public.clip_norm, public.denominator), state


@dataclass(frozen=True)
class BatchGradient(FullGradient):
    """SGD-DP: the mean of a secret batch, drawn without replacement, and isotropic noise."""

    batch: int = 32

    weights: ClassVar[Literal["equal", "batch", "gaussian"]] = "batch"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _validate.whole("batch", self.batch, least=1) <= self.examples:
            raise ValueError(f"batch={self.batch!r} is not allowed: it must be at most examples={self.examples}.")

    @property
    def share(self) -> float:
        """What one example adds to the sum at most: it is one of a batch."""
        return self.clip_norm / self.batch

    @property
    def _batch(self) -> int:
        return self.batch

    def _mean(self, rows: NDArray[Any]) -> Array:
        return np.asarray(rows.sum(axis=0, dtype=np.float64) / self.batch)

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        places = secret("batch").permutation(self.examples)[: self.batch]
        return super()._update(rows[places[places < len(rows)]], secret)
