"""Binary tree aggregation (Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or Shuffling").

Every node of a binary tree over the rounds gets noise of its own. The sum of the first t rounds is that of the nodes of the
binary digits of t, and a release is the difference of two such sums. Nodes that hold rounds which never come are left out.

    honaker   value of a node of height h                                        what is released has
    none      its own                                                            the plain tree
    below     w · own + (1 - w) (left + right), w = 1/(2 - 2^-h)                 less noise (Honaker 2015, from below)
    full      the least-squares estimate from all nodes: B = A C⁺                the least noise that this tree allows

The full estimate of a sum uses nodes that come after it. Its noise is the same as that of the square, lower triangular matrix L
with LᵀL = CᵀC, which is what is used. With the other two the releases do not show all of the tree, so that the sensitivity of
the tree is an upper bound: an auditor sees at most sqrt(sᵀ(W Wᵀ)⁻¹s).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy  # its parts are loaded when they are used

from coalmine import _validate
from coalmine.contracts import Array, State
from coalmine.mechanisms.strategies.strategy import MOST_ROUNDS, CorrelatedStrategy, Draw, Plan, triangular_inverse

HONAKER = ("none", "below", "full")


@dataclass(frozen=True)
class Tree(CorrelatedStrategy):
    """A binary tree over the rounds.

    >>> strategy = Tree(16)
    >>> round(5**0.5 * strategy.first, 6), round(strategy.rms_error() / 5**0.5, 6)
    (1.0, 1.190786)
    """

    honaker: str = "below"
    kind: ClassVar[str] = "tree"
    options: ClassVar[tuple[str, ...]] = ("honaker",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.one_of("honaker", self.honaker, HONAKER)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], plan: Plan) -> CorrelatedStrategy:
        """`honaker`."""
        return cls(plan.rounds, options.get("honaker", "below"))

    @property
    def height(self) -> int:
        """Of the largest node whose rounds all come."""
        return self.rounds.bit_length() - 1

    @property
    def scale(self) -> float:
        """The largest column norm of the tree whose nodes have noise of variance 1."""
        return float(np.sqrt(self.height + 1))

    def matrix(self) -> Array:
        """A row for every node, or L."""
        self._check_dense()
        return _lower(self.rounds) if self.honaker == "full" else _nodes(self.rounds)

    def inverse(self) -> Array:
        """W, a column for every node, or L⁻¹."""
        self._check_dense()
        return triangular_inverse(_lower(self.rounds)) if self.honaker == "full" else _released(self.rounds, self.honaker)

    @property
    def first(self) -> float:
        """What the noise of one node is multiplied with, inverted."""
        return 1.0 / self.scale

    def whitening(self) -> Array:
        """The inverse of the Cholesky factor of W Wᵀ."""
        self._check_dense()
        return _lower(self.rounds) if self.honaker == "full" else _seen(self.rounds, self.honaker)

    @property
    def vectors(self) -> int:
        """One for every height; the full estimate draws all of the past again."""
        return self.rounds if self.honaker == "full" else self.height + 1

    @property
    def stored(self) -> int:
        """The same, unless they are drawn again."""
        return 0 if self.honaker == "full" else self.height + 1

    def check_size(self, dim: int) -> None:
        """Only the full estimate has a limit in time."""
        if self.honaker == "full":
            super().check_size(dim)

    def init(self, dim: int) -> State:
        """No node is complete."""
        return {} if self.honaker == "full" else {"nodes": np.zeros((self.height + 1, dim))}

    def noise(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """The sum of the nodes of t + 1, less that of the nodes of t."""
        if self.honaker == "full":
            return super().noise(number, dim, draw, state)
        nodes = state["nodes"].copy()
        value, height = draw("tree noise", 0, number), 0
        replaced = np.zeros(dim)
        while number >> height & 1:  # the left neighbour is complete: both become one node
            replaced += nodes[height]
            own = draw("tree noise", height + 1, number >> (height + 1))
            if self.honaker == "below":
                share = 1 / (2 - 2.0 ** -(height + 1))
                value = share * own + (1 - share) * (nodes[height] + value)
            else:
                value = own
            nodes[height] = 0.0
            height += 1
        nodes[height] = value
        return np.asarray((value - replaced) * self.scale), {"nodes": nodes}

    def _check_dense(self) -> None:
        if self.rounds > MOST_ROUNDS:
            raise ValueError(f"a tree over {self.rounds} rounds is not computed: at most {MOST_ROUNDS}. Use strategy 'blt'.")


def _places(rounds: int) -> list[tuple[int, int]]:
    """(height, position) of the complete nodes, in the order in which they are complete."""
    found = []
    for number in range(rounds):
        height = 0
        found.append((0, number))
        while number >> height & 1:
            height += 1
            found.append((height, number >> height))
    return found


@lru_cache(maxsize=8)
def _nodes(rounds: int) -> Array:
    places = _places(rounds)
    made = np.zeros((len(places), rounds))
    for row, (height, position) in enumerate(places):
        made[row, position << height : (position + 1) << height] = 1.0
    return np.asarray(made / np.sqrt(rounds.bit_length()))


@lru_cache(maxsize=8)
def _released(rounds: int, honaker: str) -> Array:
    """W: how the noise of the nodes makes that of the releases."""
    row_of = {place: row for row, place in enumerate(_places(rounds))}
    made, scale = np.zeros((rounds, len(row_of))), np.sqrt(rounds.bit_length())
    nodes: dict[int, Array] = {}
    for number in range(rounds):
        value, height, replaced = np.eye(1, len(row_of), row_of[0, number])[0], 0, np.zeros(len(row_of))
        while number >> height & 1:
            left = nodes.pop(height)
            replaced, height = replaced + left, height + 1
            own = np.eye(1, len(row_of), row_of[height, number >> height])[0]
            share = 1 / (2 - 2.0**-height) if honaker == "below" else 1.0
            value = share * own + (1 - share) * (left + value)
        nodes[height] = value
        made[number] = (value - replaced) * scale
    return made


@lru_cache(maxsize=8)
def _lower(rounds: int) -> Array:
    """L, lower triangular with LᵀL = CᵀC: a Cholesky factor from the last round backwards."""
    gram = _nodes(rounds).T @ _nodes(rounds)
    upper = scipy.linalg.cholesky(gram[::-1, ::-1], lower=False, check_finite=False)
    return np.asarray(upper.T[::-1, ::-1].T)


@lru_cache(maxsize=8)
def _seen(rounds: int, honaker: str) -> Array:
    made = _released(rounds, honaker)
    return triangular_inverse(np.asarray(scipy.linalg.cholesky(made @ made.T, lower=True, check_finite=False)))
