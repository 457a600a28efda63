"""Inner products of gradients of dense layers without the gradients themselves.

The gradient of one example by a layer's weights is the product of what comes back to the layer's outputs, b, and its inputs, a.
So for two examples, over all layers, biases included:

    <grad_1, grad_2> = sum (b_1 · b_2) (a_1 · a_2 + 1)

No vector as long as the model is made for a canary, and the backward pass is written out, so that one pass of autograd through
it gives the derivative by the pixels.

A client that takes several steps on one example (`unrolled`) adds one such product for each step, so that its update is a sum
of as many; the model before a step is the one before the training less the products so far, which are never multiplied out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coalmine.models.model import split


@dataclass(frozen=True, eq=False)
class Ghosts:
    """Gradients of some examples as pairs of factors, layer by layer; of several steps the sum, step after step in the rows."""

    inputs: tuple[Tensor, ...]  # (steps × examples, inputs of the layer)
    backward: tuple[Tensor, ...]  # (steps × examples, outputs of the layer)
    steps: int = 1

    def products(self, other: Ghosts) -> Tensor:
        """<gradient of mine, gradient of theirs>, (mine, theirs)."""
        pairs = zip(self.inputs, self.backward, other.inputs, other.backward, strict=True)
        found: Tensor = sum((back @ theirs.T) * (own @ given.T + 1) for own, back, given, theirs in pairs)  # type: ignore[assignment]
        return other._folded(self._folded(found.T).T)

    def _folded(self, values: Tensor) -> Tensor:
        """The sum over my steps, which are in the last dimension."""
        return values if self.steps == 1 else values.reshape(*values.shape[:-1], self.steps, -1).sum(-2)

    def norms(self) -> Tensor:
        """The length of each gradient."""
        if self.steps > 1:
            return torch.sqrt(torch.diagonal(self.products(self)).clamp(min=0) + 1e-12)
        pairs = zip(self.inputs, self.backward, strict=True)
        squares = sum(back.square().sum(1) * (own.square().sum(1) + 1) for own, back in pairs)
        return torch.sqrt(torch.as_tensor(squares) + 1e-12)

    def along(self, rows: Tensor, shapes: Sequence[torch.Size]) -> Tensor:
        """<each row of whole vectors, gradient of mine>, (rows, mine)."""
        parts = split(rows, tuple(shapes))
        total = rows.new_zeros(len(rows), len(self.inputs[0]))
        for weight, bias, own, back in zip(parts[::2], parts[1::2], self.inputs, self.backward, strict=True):
            total = total + torch.einsum("moe,eo->me", weight @ own.T, back) + bias @ back.T
        return self._folded(total)

    def vectors(self) -> Tensor:
        """The gradients themselves, (examples, dim)."""
        parts = []
        for own, back in zip(self.inputs, self.backward, strict=True):
            parts += [torch.einsum("eo,ei->eoi", back, own).flatten(1), back]
        return self._folded(torch.cat(parts, 1).T).T


@dataclass(frozen=True)
class ClientSteps:
    """The steps of a client over one example: gradient descent with momentum, as `LocalTraining` says."""

    count: int
    learning_rate: float
    momentum: float

    def share(self, first: int, step: int) -> float:
        """How often the gradient of step `first` is in the way that is made before `step`."""
        return (1 - self.momentum ** (step - first)) / (1 - self.momentum)


def unrolled(shapes: Sequence[torch.Size], parameters: Tensor, features: Tensor, targets: Tensor, steps: ClientSteps) -> Ghosts:
    """The sum of gradients that a client's whole training on each example alone makes: minus its update over the rate."""
    made: list[Ghosts] = []
    for step in range(steps.count):
        moved = [(steps.learning_rate * steps.share(place, step), each) for place, each in enumerate(made)]
        made.append(ghosts(shapes, parameters, features, targets, moved))
    inputs = tuple(torch.cat(layer) for layer in zip(*(each.inputs for each in made), strict=True))
    shares = [steps.share(place, steps.count) for place in range(steps.count)]
    scaled = [[share * back for back in each.backward] for share, each in zip(shares, made, strict=True)]
    return Ghosts(inputs, tuple(torch.cat(layer) for layer in zip(*scaled, strict=True)), steps.count)


def ghosts(
    shapes: Sequence[torch.Size],
    parameters: Tensor,
    features: Tensor,
    targets: Tensor,
    moved: Sequence[tuple[float, Ghosts]] = (),
) -> Ghosts:
    """Of every example, with `targets` as probabilities of the classes.

    `moved` are gradients, with factors, that each example's own model has gone down before.
    """
    parts = split(parameters, tuple(shapes))
    weights, biases = parts[::2], parts[1::2]
    inputs, value = [], features.flatten(1)
    for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        inputs.append(value)
        value = torch.addmm(bias, value, weight.T)
        for rate, past in moved:
            value = value - rate * past.backward[place] * ((past.inputs[place] * inputs[place]).sum(1, keepdim=True) + 1)
        value = torch.relu(value) if place < len(weights) - 1 else value
    back = torch.softmax(value, 1) * targets.sum(1, keepdim=True) - targets
    backward = [back]
    for place in reversed(range(1, len(weights))):
        onward = back @ weights[place]
        for rate, past in moved:
            onward = onward - rate * (past.backward[place] * back).sum(1, keepdim=True) * past.inputs[place]
        back = onward * (inputs[place] > 0)
        backward.insert(0, back)
    return Ghosts(tuple(inputs), tuple(backward))
