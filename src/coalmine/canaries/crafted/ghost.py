"""Inner products of gradients of dense layers without the gradients themselves.

The gradient of one example by a layer's weights is the product of what comes back to the layer's outputs, b, and its inputs, a.
So for two examples, over all layers, biases included:

    <grad_1, grad_2> = sum (b_1 · b_2) (a_1 · a_2 + 1)

No vector as long as the model is made for a canary, and the backward pass is written out, so that one pass of autograd through
it gives the derivative by the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coalmine.models.model import split


@dataclass(frozen=True, eq=False)
class Ghosts:
    """Gradients of some examples as pairs of factors, layer by layer."""

    inputs: tuple[Tensor, ...]  # (examples, inputs of the layer)
    backward: tuple[Tensor, ...]  # (examples, outputs of the layer)

    def products(self, other: Ghosts) -> Tensor:
        """<gradient of mine, gradient of theirs>, (mine, theirs)."""
        pairs = zip(self.inputs, self.backward, other.inputs, other.backward, strict=True)
        return sum((back @ theirs.T) * (own @ given.T + 1) for own, back, given, theirs in pairs)  # type: ignore[return-value]

    def norms(self) -> Tensor:
        """The length of each gradient."""
        pairs = zip(self.inputs, self.backward, strict=True)
        squares = sum(back.square().sum(1) * (own.square().sum(1) + 1) for own, back in pairs)
        return torch.sqrt(torch.as_tensor(squares) + 1e-12)

    def along(self, rows: Tensor, shapes: Sequence[torch.Size]) -> Tensor:
        """<each row of whole vectors, gradient of mine>, (rows, mine)."""
        parts = split(rows, tuple(shapes))
        total = rows.new_zeros(len(rows), len(self.inputs[0]))
        for weight, bias, own, back in zip(parts[::2], parts[1::2], self.inputs, self.backward, strict=True):
            total = total + torch.einsum("moe,eo->me", weight @ own.T, back) + bias @ back.T
        return total


def ghosts(shapes: Sequence[torch.Size], parameters: Tensor, features: Tensor, targets: Tensor) -> Ghosts:
    """Of every example, with `targets` as probabilities of the classes."""
    parts = split(parameters, tuple(shapes))
    weights, biases = parts[::2], parts[1::2]
    inputs, value = [], features.flatten(1)
    for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        inputs.append(value)
        value = torch.addmm(bias, value, weight.T)
        value = torch.relu(value) if place < len(weights) - 1 else value
    back = torch.softmax(value, 1) * targets.sum(1, keepdim=True) - targets
    backward = [back]
    for place in reversed(range(1, len(weights))):
        back = (back @ weights[place]) * (inputs[place] > 0)
        backward.insert(0, back)
    return Ghosts(tuple(inputs), tuple(backward))
