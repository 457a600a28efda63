"""Layers of weighted sums: the perceptron with hidden layers, and the logistic model, which has none."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod

from torch import nn

from coalmine import _validate
from coalmine.models.model import Model


def dense_layers(*widths: int) -> nn.Sequential:
    """Linear layers between these widths, with a rectifier between each two: layers `dense1`, `dense2`, …"""
    layers = nn.Sequential()
    layers.add_module("flatten", nn.Flatten())
    for number, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        if number > 1:
            layers.add_module(f"relu{number - 1}", nn.ReLU())
        layers.add_module(f"dense{number}", nn.Linear(inputs, outputs))
    return layers


def mlp(*, shape: Sequence[int] | int, classes: int, hidden: Sequence[int] = (32,)) -> Model:
    """A perceptron; `shape` is that of one example's features.

    >>> mlp(shape=(28, 28), classes=62).dim
    27166
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    inputs = prod(_validate.whole("shape", size, least=1) for size in sizes)
    if isinstance(hidden, str) or len(hidden) > _validate.MOST_LAYERS:
        said = f"a list of at most {_validate.MOST_LAYERS:,} whole numbers, as [32]"
        raise ValueError(f"hidden={str(hidden)[:40]!r} is not allowed: it must be {said}.")
    inner = [_validate.whole("hidden", size, least=1) for size in hidden]
    build = partial(dense_layers, inputs, *inner, _validate.whole("classes", classes, least=2))
    return Model("mlp" if inner else "logistic", build, features="numbers")


def logistic(*, shape: Sequence[int] | int, classes: int) -> Model:
    """One weighted sum for each class.

    >>> logistic(shape=64, classes=10).dim
    650
    """
    return mlp(shape=shape, classes=classes, hidden=())
