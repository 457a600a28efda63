"""A strategy that begins anew every so many rounds: C is block diagonal.

Noise of a block knows nothing of the blocks before it. Its normals are new ones: a restart that drew those of the first block
again would show them, as the difference of two releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coalmine.contracts import Array, State
from coalmine.mechanisms.strategies.strategy import MOST_ROUNDS, CorrelatedStrategy, Draw, Plan


@dataclass(frozen=True)
class Restarted(CorrelatedStrategy):
    """The same strategy for every `strategy.rounds` rounds."""

    strategy: Any = None  # for the rounds of a block
    kind: ClassVar[str] = "restarted"

    @classmethod
    def from_options(cls, options: Mapping[str, Any], plan: Plan) -> CorrelatedStrategy:
        """The strategy that is restarted is made beforehand."""
        return cls(plan.rounds, options["strategy"])

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.strategy, CorrelatedStrategy):
            raise ValueError(f"strategy={self.strategy!r} cannot be restarted: it must be a strategy of correlated noise.")

    @property
    def every(self) -> int:
        """Rounds of a block."""
        return int(self.strategy.rounds)

    def matrix(self) -> Array:
        """Blocks along the diagonal; the last may be cut off."""
        whole = self._blocks(self.strategy.matrix())
        return np.asarray(whole[self._complete(whole), : self.rounds])

    def inverse(self) -> Array:
        """The same of the inverse."""
        kept = self._complete(self._blocks(self.strategy.matrix()))
        return np.asarray(self._blocks(self.strategy.inverse())[: self.rounds, kept])

    def whitening(self) -> Array:
        """The same of what whitens a block."""
        return np.asarray(self._blocks(self.strategy.whitening())[: self.rounds, : self.rounds])

    @property
    def bands(self) -> int | None:
        """Those of the strategy; blocks do not overlap."""
        known = self.strategy.bands
        return int(known) if known is not None else None

    @property
    def first(self) -> float:
        """That of a block."""
        return float(self.strategy.first)

    def least_column(self) -> float:
        """That of a block."""
        return float(self.strategy.least_column())

    @property
    def vectors(self) -> int:
        """Those of a block."""
        return int(self.strategy.vectors)

    @property
    def stored(self) -> int:
        """Those of a block."""
        return int(self.strategy.stored)

    def check_size(self, dim: int) -> None:
        """As for a block."""
        self.strategy.check_size(dim)

    def init(self, dim: int) -> State:
        """As of a block."""
        state: State = self.strategy.init(dim)
        return state

    def noise(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """Those of the block, from normals of its own."""
        block, place = divmod(number, self.every)
        if block and not place:
            state = self.strategy.init(dim)
        made: tuple[Array, State] = self.strategy.noise(place, dim, partial(draw, "block", block) if block else draw, state)
        return made

    def _blocks(self, one: Array) -> Array:
        if self.rounds > MOST_ROUNDS:
            raise ValueError(f"restarts over {self.rounds} rounds are not computed: at most {MOST_ROUNDS}.")
        return np.asarray(np.kron(np.eye(-(-self.rounds // self.every)), one))

    def _complete(self, whole: Array) -> NDArray[np.bool_]:
        return np.asarray(~(whole[:, self.rounds :] != 0).any(axis=1))
