"""Noise of PyTorch that anybody can draw again: from a generator whose seed can be tried.

A script that begins with `torch.manual_seed(42)` draws its noise from that generator; so does Hugging Face's `Trainer`, which
sets a seed of 42 by itself. Who knows the script knows the noise, however many numbers were drawn in between. The generator
says its seed, and its state just before the noise gives the noise once more; the tests of conformance compare the two.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalmine.adapters.arrays import leaves, own_order
from coalmine.conformance.guesses import UNSEEDED
from coalmine.contracts import Array, Redrawn

_TRIED = 2**32  # seeds that are soon tried: all that NumPy takes, and the clock in seconds
_ALL = 2**64


def guessable(seed: int) -> bool:
    """Whether somebody can try all seeds up to this one, or everybody has it.

    >>> guessable(42), guessable(-1), guessable(2124955896722577734)
    (True, True, False)
    """
    return seed % _ALL == UNSEEDED or min(seed % _ALL, -seed % _ALL) < _TRIED


@dataclass(frozen=True, eq=False)
class Draws:
    """A generator with a guessable seed, as it was before the noise was drawn."""

    seed: int
    state: Any
    device: Any

    @property
    def said(self) -> str:
        """Which generator, in words."""
        return "torch.Generator() without a seed" if self.seed == UNSEEDED else f"torch's generator with seed {self.seed}"

    def normals(self, shapes: Sequence[Sequence[int]]) -> list[Array]:
        """Standard normals of these shapes, one after the other."""
        torch = sys.modules["torch"]
        again = torch.Generator(device=self.device)
        again.set_state(self.state)
        made = [torch.normal(0.0, 1.0, size=tuple(shape), generator=again, device=self.device) for shape in shapes]
        return [each.reshape(-1).cpu().numpy() for each in made]

    def redrawn(self, shapes: Sequence[Sequence[int]]) -> Redrawn:
        """The same as one vector."""
        return Redrawn(np.concatenate(self.normals(shapes)), self.said)

    def like(self, tree: Any, dim: int) -> tuple[Redrawn, ...]:
        """Noise as a loop draws it for a release: all at once, or array by array in the order of the tree."""
        arrays = own_order(tree)
        made = [self.redrawn([(dim,)])]
        if len(arrays) > 1:
            by_array = dict(zip(map(id, arrays), self.normals([each.shape for each in arrays]), strict=True))
            made.append(Redrawn(np.concatenate([by_array[id(each)] for each in leaves(tree)]), self.said))
        return tuple(made)


def before_noise(generator: Any = None, device: Any = None) -> Draws | None:
    """The state of a generator (PyTorch's own for the device, if none is given); None if its seed cannot be guessed."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    found = generator if generator is not None else _usual(torch, torch.device(device or "cpu"))
    if not isinstance(found, torch.Generator) or not guessable(found.initial_seed()):
        return None
    return Draws(found.initial_seed(), found.get_state(), found.device)


def _usual(torch: Any, device: Any) -> Any:
    if device.type == "cpu":
        return torch.default_generator
    if device.type != "cuda" or not torch.cuda.default_generators:
        return None
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
