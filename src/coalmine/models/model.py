"""A model as training and audit see it: one flat vector of parameters, a loss, and what counts as correct.

`Model` is a recipe that can be sent to another process; `FlatModule` is a module built from it, whose trainable parameters are
views of one flat tensor, so that a vector goes in with one copy and a step on the module is a step on the vector.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from coalmine import _validate
from coalmine._random import stream

Loss = Callable[[Tensor, Tensor], Tensor]
FEATURES = ("any", "numbers", "tokens")


def mean_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over examples of -log of the probability that the outputs give to the class."""
    return functional.cross_entropy(outputs, targets)


def count_largest(outputs: Tensor, targets: Tensor) -> tuple[int, int]:
    """(how many classes have the largest output, how many there are)."""
    return int((outputs.argmax(-1) == targets).sum()), targets.numel()


def count_rows(targets: Tensor) -> int:
    """How many examples there are: what a mean over examples is divided by."""
    return len(targets)


class Layout(NamedTuple):
    """Where the trainable parameters lie in the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    dim: int
    groups: dict[str, slice]


@dataclass(frozen=True, eq=False)
class Model:
    """How to build a module, and how to judge what it puts out.

    Any module goes: `Model("mine", build)` with a function that builds it (of a module, so that it can be pickled) and, if the
    targets are not classes, a loss of one's own. `loss` is a mean, of `count_terms(targets)` terms; `count_correct` gives how
    many predictions are right and how many count. A loss may have a method `direct(module, features, targets)`, a shorter
    way to the same number for models whose outputs cost much and do not all count; training takes it.

    Features of `"numbers"` become float32, bytes being grey values of 0 to 255 that become 0 to 1; `"tokens"` become int64;
    with `"any"` floats and bytes are numbers, all other integers tokens.

    >>> from torch import nn
    >>> mine = Model("mine", lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
    >>> mine.dim, mine.groups
    (23, {'0': slice(0, 15, None), '2': slice(15, 23, None)})
    >>> mine.initial(seed=0).shape
    (23,)
    """

    name: str
    build: Callable[[], nn.Module]
    loss: Loss = mean_cross_entropy
    count_correct: Callable[[Tensor, Tensor], tuple[int, int]] = count_largest
    count_terms: Callable[[Tensor], int] = count_rows
    features: str = "any"

    def __post_init__(self) -> None:
        _validate.one_of("features", self.features, FEATURES)

    @cached_property
    def _layout(self) -> Layout:
        return _layout(self.name, self._built(0))

    @property
    def dim(self) -> int:
        """How many trainable parameters there are."""
        return self._layout.dim

    @property
    def groups(self) -> dict[str, slice]:
        """Where each layer lies in the flat vector, by its name in the module: weight and bias of a layer together."""
        return dict(self._layout.groups)

    @property
    def tensors(self) -> dict[str, slice]:
        """Where each parameter tensor lies in the flat vector, by its name in the module: weights and biases apart.

        >>> from torch import nn
        >>> Model("mine", lambda: nn.Linear(4, 3)).tensors
        {'weight': slice(0, 12, None), 'bias': slice(12, 15, None)}
        """
        edges = np.cumsum([0, *(shape.numel() for shape in self._layout.shapes)]).tolist()
        return {name: slice(*place) for name, place in zip(self._layout.names, pairwise(edges), strict=True)}

    def initial(self, seed: int) -> NDArray[np.float32]:
        """The flat vector of a freshly initialised module: the same for the same seed, whatever torch drew before."""
        module = self._built(_validate.whole("seed", seed))
        return torch.cat([parameter.detach().reshape(-1) for _, parameter in _trainable(module)]).numpy()

    def flat(self) -> "FlatModule":
        """A module whose trainable parameters are views of one flat tensor."""
        return FlatModule(self._built(0), self._layout)

    def _built(self, seed: int) -> nn.Module:
        """A module; what is random and not trainable in it is the same wherever it is built with this seed."""
        with _own_randomness(int(stream(seed, "initial parameters").integers(2**63))):
            return self.build()

    def training_loss(self, module: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch, by the shorter way if the loss has one."""
        direct: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = getattr(self.loss, "direct", None)
        return self.loss(module(features), targets) if direct is None else direct(module, features, targets)

    def inputs(self, features: NDArray[Any]) -> NDArray[Any]:
        """Features of a data set as this model takes them; without a copy where they already are so."""
        kind = features.dtype.kind
        if self.features == "tokens" or (self.features == "any" and kind in "bi"):
            return features.astype(np.int64, copy=False)
        if features.dtype == np.uint8:
            return np.asarray(features / np.float32(255), np.float32)
        return features.astype(np.float32, copy=False)


class FlatModule:
    """A module whose trainable parameters are views of one flat float32 tensor, `vector`.

    >>> from torch import nn
    >>> flat = Model("mine", lambda: nn.Linear(2, 1)).flat()
    >>> flat.put(np.array([1.0, 2.0, 3.0], np.float32))
    >>> flat.module.weight.tolist(), flat.module.bias.tolist()
    ([[1.0, 2.0]], [3.0])
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self.module = module
        self.parameters = [parameter for _, parameter in _trainable(module)]
        self.vector = torch.empty(layout.dim)
        with torch.no_grad():
            for parameter, view in zip(self.parameters, split(self.vector, layout.shapes), strict=True):
                view.copy_(parameter)
                parameter.data = view
        self._constants = [(name, buffer, buffer.clone()) for name, buffer in module.named_buffers()]

    def put(self, vector: NDArray[Any]) -> None:
        """Fills in the parameters from a flat vector."""
        if vector.shape != (self.vector.numel(),):
            raise ValueError(f"a vector of shape {vector.shape} does not fit {self.vector.numel():,} parameters.")
        self.vector.numpy()[:] = vector

    def check_constants(self) -> None:
        """Refuses a module whose buffers changed in training: they would be trained and never sent."""
        for name, buffer, before in self._constants:
            if not torch.equal(buffer, before):
                raise ValueError(
                    f"training changed the buffer {name!r}, which is no parameter: it would stay on the client. Only modules "
                    "all of whose state is in parameters can be trained here."
                )


def split(vector: Tensor, shapes: tuple[torch.Size, ...]) -> list[Tensor]:
    """Views of a flat tensor in these shapes, one after the other; leading dimensions of the tensor stay."""
    parts = torch.split_with_sizes(vector, [shape.numel() for shape in shapes], dim=-1)
    return [part.view(*vector.shape[:-1], *shape) for part, shape in zip(parts, shapes, strict=True)]


def _trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]


def _layout(name: str, module: nn.Module) -> Layout:
    """Checks a module and says where its parameters lie."""
    for place, inner in module.named_modules():
        if isinstance(inner, nn.modules.batchnorm._NormBase) and inner.track_running_stats:
            raise ValueError(
                f"{name}: the layer {place!r} ({type(inner).__name__}) keeps running averages, which training changes and no "
                "update carries. Use GroupNorm or LayerNorm, or track_running_stats=False."
            )
    named = _trainable(module)
    if not named:
        raise ValueError(f"{name}: the module has no trainable parameter.")
    for label, parameter in named:
        if isinstance(parameter, nn.UninitializedParameter):
            raise ValueError(f"{name}: {label!r} has no shape yet; give lazy layers their sizes.")
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise ValueError(f"{name}: {label!r} is {parameter.dtype} on {parameter.device}; float32 on cpu is needed.")
    groups, start = {}, 0
    for owner, members in groupby(named, key=lambda item: item[0].rpartition(".")[0]):
        stop = start + sum(parameter.numel() for _, parameter in members)
        groups[owner or name], start = slice(start, stop), stop
    shapes = tuple(parameter.shape for _, parameter in named)
    return Layout(tuple(label for label, _ in named), shapes, start, groups)


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """torch's default generator begins anew with this seed, and afterwards goes on as if nothing had happened."""
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(before)
