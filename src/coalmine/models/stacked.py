"""Several copies of a small dense model, trained at once.

One client of a small model leaves a processor mostly idle: its matrices are tiny and every operation has a price. Here the
weights of `copies` clients lie side by side, (copies, outputs, inputs), and every operation is done for all of them: products
of matrices in batches, with the gradient added to the weights inside the product.

The backward pass is written by hand. For logits z of a batch with weights w (1 / batch size, or 0 where a batch is short),
activations a and the class y:

    dz = w (softmax(z) - e_y)        db = sum dz        dW = dz^T a        da = (dz W) where a > 0
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from coalmine.models.model import Model, mean_cross_entropy, split


def dense_shapes(model: Model, module: nn.Module) -> tuple[torch.Size, ...] | None:
    """The shapes of weight, bias, weight, bias, … if the model is such a stack of layers; None for any other model.

    Such a stack is an `nn.Sequential` of linear layers with bias and a rectifier between each two, perhaps after a flattening,
    with the mean cross entropy as loss.
    """
    if type(module) is not nn.Sequential or model.loss is not mean_cross_entropy:
        return None
    layers = list(module)
    if layers and type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1):
        layers = layers[1:]
    linear, between = layers[::2], layers[1::2]
    if len(layers) % 2 == 0 or any(type(layer) is not nn.ReLU for layer in between):
        return None
    parameters = [parameter for layer in linear for parameter in layer.parameters()]
    if any(type(layer) is not nn.Linear for layer in linear) or len({id(each) for each in parameters}) < 2 * len(linear):
        return None
    return tuple(parameter.shape for parameter in parameters) if all(each.requires_grad for each in parameters) else None


class StackedDense:
    """`copies` dense models that begin at the same flat vector of parameters and go their own ways."""

    def __init__(self, shapes: Sequence[torch.Size], vector: Tensor, copies: int) -> None:
        self._begin, self._copies, self._shapes = vector, copies, tuple(shapes)
        parts = [part.repeat(copies, *(1 for _ in part.shape)) for part in split(vector, self._shapes)]
        self._weights, self._biases = parts[::2], parts[1::2]
        self._velocity: list[Tensor] = []

    def step(self, features: Tensor, targets: Tensor, aims: Tensor, learning_rate: float, momentum: float) -> Tensor:
        """One step of gradient descent for the first copies, as many as there are features.

        features (copies, batch, inputs), targets (copies, batch) of int64 and the `aims` made of them. Returns the logarithm
        of the probability that each target had, (copies, batch).
        """
        active = features.shape[0]
        weights, biases = [part[:active] for part in self._weights], [part[:active] for part in self._biases]
        inputs = [features]
        for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            outputs = torch.baddbmm(bias.unsqueeze(1), inputs[-1], weight.transpose(1, 2))
            inputs.append(torch.relu_(outputs) if place < len(weights) - 1 else outputs)
        back, chosen = _softmax_gradient(inputs.pop(), targets, aims)
        velocities = self._velocities() if momentum else []
        for place in reversed(range(len(weights))):
            onward = None
            if place:
                onward = _through_rectifier(torch.bmm(back, weights[place]), inputs[place])
            if momentum:
                weight, bias = velocities[2 * place][:active], velocities[2 * place + 1][:active]
                weight.baddbmm_(back.transpose(1, 2), inputs[place], beta=momentum)
                bias.mul_(momentum).add_(back.sum(1))
                weights[place].add_(weight, alpha=-learning_rate)
                biases[place].add_(bias, alpha=-learning_rate)
            else:
                weights[place].baddbmm_(back.transpose(1, 2), inputs[place], alpha=-learning_rate)
                biases[place].add_(back.sum(1), alpha=-learning_rate)
            if onward is not None:
                back = onward
        return chosen

    def changes(self) -> Tensor:
        """What was added to the parameters of each copy, (copies, dim)."""
        changed = torch.empty(self._copies, self._begin.numel())
        parts = [part for pair in zip(self._weights, self._biases, strict=True) for part in pair]
        for into, part, begin in zip(split(changed, self._shapes), parts, split(self._begin, self._shapes), strict=True):
            torch.sub(part, begin, out=into)
        return changed

    def _velocities(self) -> list[Tensor]:
        if not self._velocity:
            self._velocity = [torch.zeros_like(part) for pair in zip(self._weights, self._biases, strict=True) for part in pair]
        return self._velocity


def one_step(
    shapes: Sequence[torch.Size], vector: Tensor, features: Tensor, targets: Tensor, aims: Tensor, learning_rate: float
) -> tuple[Tensor, Tensor]:
    """What a single step adds to the parameters of each copy, (copies, dim), and what `StackedDense.step` returns.

    All copies still have the same weights, so that nothing is copied, and each gradient is written where it is to be.
    """
    copies, batch = targets.shape
    parts = split(vector, tuple(shapes))
    weights, biases = parts[::2], parts[1::2]
    inputs = [features.reshape(copies * batch, -1)]
    for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        outputs = torch.addmm(bias, inputs[-1], weight.T)
        inputs.append(torch.relu_(outputs) if place < len(weights) - 1 else outputs)
    back, chosen = _softmax_gradient(inputs.pop().view(copies, batch, -1), targets, aims)
    changed = torch.empty(copies, vector.numel())
    into = split(changed, tuple(shapes))
    for place in reversed(range(len(weights))):
        wide = inputs[place].view(copies, batch, -1)
        scaled = back * -learning_rate
        if batch == 1:
            torch.mul(scaled.transpose(1, 2), wide, out=into[2 * place])
        else:
            torch.bmm(scaled.transpose(1, 2), wide, out=into[2 * place])
        torch.sum(scaled, 1, out=into[2 * place + 1])
        if place:
            onward = torch.mm(back.view(copies * batch, -1), weights[place])
            back = _through_rectifier(onward, inputs[place]).view(copies, batch, -1)
    return changed, chosen


def aims_of(targets: Tensor, share: Tensor, classes: int) -> Tensor:
    """-w e_y for each example, (..., classes): minus its share w in the mean at the place of its class y, else 0.

    The share is 1 / batch size, and 0 for rows that only fill up a short batch.
    """
    return torch.zeros(*targets.shape, classes).scatter_(-1, targets.unsqueeze(-1), -share.unsqueeze(-1))


def _softmax_gradient(outputs: Tensor, targets: Tensor, aims: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of each copy's loss by its outputs, (copies, batch, classes), and the logarithms of the probabilities."""
    logarithms = torch.log_softmax(outputs, 2)
    back: Tensor = torch.ops.aten._log_softmax_backward_data.default(aims, logarithms, 2, torch.float32)
    return back, logarithms.gather(2, targets.unsqueeze(2)).squeeze_(2)


def _through_rectifier(gradient: Tensor, outputs: Tensor) -> Tensor:
    """The gradient where the rectifier let its input pass, 0 elsewhere."""
    passed: Tensor = torch.ops.aten.threshold_backward.default(gradient, outputs, 0)
    return passed
