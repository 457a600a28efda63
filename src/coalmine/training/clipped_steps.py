"""Central DP-SGD on dense layers, without the gradient of any single example.

The length of an example's gradient follows from its factors (`coalmine.canaries.crafted.ghost`), and the sum of clipped
gradients is one product of factors for each layer. The same law as rounds of clients with one example each, in a twentieth
of the time; for experiments that need many trained models and no audit of the training itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from coalmine.canaries.crafted.ghost import ghosts
from coalmine.contracts import IndexArray, Vector
from coalmine.data.dataset import Examples
from coalmine.models import Model
from coalmine.models.stacked import dense_shapes


def clipped_steps(
    model: Model,
    begin: Vector,
    examples: Examples,
    order: IndexArray,
    *,
    batch: int,
    steps: int,
    clip_norm: float,
    noise_multiplier: float,
    learning_rate: float,
    momentum: float,
    rng: np.random.Generator,
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """(number of steps done, parameters) after each step; a step takes the next `batch` examples in this order."""
    shapes = dense_shapes(model, model.build())
    if shapes is None:
        raise ValueError(f"{model.name} has other layers than dense ones: train it with coalmine.run.")
    parameters, speed = torch.from_numpy(np.array(begin, np.float32)), torch.zeros(model.dim)
    for number in range(1, steps + 1):
        some = order[(number - 1) * batch : number * batch]
        total = _clipped_sum(shapes, parameters, Examples(examples.features[some], examples.targets[some]), clip_norm)
        noise = torch.from_numpy(rng.standard_normal(total.numel(), np.float32)) * (noise_multiplier * clip_norm)
        speed = momentum * speed - (total + noise) / batch
        parameters = parameters + learning_rate * speed
        yield number, parameters.numpy()


def _clipped_sum(shapes: tuple[torch.Size, ...], parameters: Tensor, batch: Examples, clip_norm: float) -> Tensor:
    """The sum of the examples' gradients, each clipped."""
    targets = functional.one_hot(torch.from_numpy(batch.targets), shapes[-1][0]).float()
    made = ghosts(shapes, parameters, torch.from_numpy(batch.features), targets)
    weights = torch.clamp(clip_norm / made.norms(), max=1.0)[:, None]
    parts = [(back * weights, own) for back, own in zip(made.backward, made.inputs, strict=True)]
    return torch.cat([part for back, own in parts for part in ((back.T @ own).flatten(), back.sum(0))])
