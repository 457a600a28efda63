"""Mock clients that a design looks at: their clipped updates, made by the real client, beside the gradients of canaries.

Three ways to the same numbers, chosen by the model and by how clients train:

* dense layers, every client takes one step: factors of the examples (`ghost`), no row as long as the model;
* dense layers, several steps: rows of updates, and factors of the canaries: of their first gradient, or of all steps that the
  client takes on a canary (`unroll`);
* any other model: rows of updates, and whole gradients of the canaries by double backpropagation, canaries x model floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coalmine._random import stream
from coalmine.canaries.crafted.ghost import ClientSteps, Ghosts, ghosts, unrolled
from coalmine.clients import Trainer
from coalmine.contracts import Array, Vector
from coalmine.data.dataset import Examples
from coalmine.mechanisms.gaussian import length
from coalmine.models import Model
from coalmine.models.model import FlatModule
from coalmine.models.stacked import dense_shapes

MOST_FLOATS = 1 << 29  # of rows that are kept, or of gradients with their graph
MOST_STEPS = 8  # that a design unrolls


@dataclass(frozen=True, eq=False)
class SeenCanaries:
    """What a design sees of some canaries; all differentiable by what they are made of."""

    cosines: Tensor  # (mock clients, canaries): <clipped update in clip norms, direction of the gradient>, up to one sign
    norms: Tensor  # (canaries,): of the gradients
    gram: Tensor  # (canaries, canaries): cosines of the gradients with each other


@dataclass(frozen=True, eq=False)
class MockClients:
    """Clients of the pool at fixed parameters."""

    model: Model
    parameters: Tensor
    shapes: tuple[torch.Size, ...] | None = None  # of dense layers
    rows: Tensor | None = None  # (clients, dim), clipped updates in clip norms
    examples: Ghosts | None = None
    weights: Tensor | None = None  # (clients, examples): what each example has of its client's clipped update
    flat: FlatModule | None = field(default=None, repr=False)
    steps: ClientSteps | None = None  # of a client on one example, if a design looks at all of them

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.weights if self.rows is None else self.rows)  # type: ignore[arg-type]

    def see(self, features: Tensor, targets: Tensor, chosen: Tensor | None = None) -> SeenCanaries:
        """What `chosen` clients, or all, have of the canaries with these features and probabilities of classes."""
        if self.shapes is None:
            return self.seen_by([self.gradient(one, target) for one, target in zip(features, targets, strict=True)], chosen)
        found = self.ghosts(features, targets)
        norms = found.norms()
        if self.examples is not None and self.weights is not None:
            weights = self.weights if chosen is None else self.weights[chosen]
            inner = weights @ self.examples.products(found)
        else:
            inner = found.along(self._rows(chosen), self.shapes)
        return SeenCanaries(inner / norms, norms, found.products(found) / torch.outer(norms, norms))

    def ghosts(self, features: Tensor, targets: Tensor) -> Ghosts:
        """Of dense layers: the gradients of canaries, or what all steps of a client make of them."""
        assert self.shapes is not None
        if self.steps is None:
            return ghosts(self.shapes, self.parameters, features, targets)
        return unrolled(self.shapes, self.parameters, features, targets, self.steps)

    def seen_by(self, gradients: Sequence[Tensor], chosen: Tensor | None = None) -> SeenCanaries:
        """The same from whole gradients."""
        whole = torch.stack(list(gradients))
        norms = torch.sqrt(whole.square().sum(1) + 1e-12)
        unit = whole / norms[:, None]
        return SeenCanaries(self._rows(chosen) @ unit.T, norms, unit @ unit.T)

    def gradient(self, features: Tensor, targets: Tensor) -> Tensor:
        """The gradient of one image's loss by the parameters, to be differentiated again."""
        assert self.flat is not None
        outputs = self.flat.module(features.unsqueeze(0))
        return self.differentiated(functional.cross_entropy(outputs, targets.unsqueeze(0)))

    def differentiated(self, loss: Tensor) -> Tensor:
        """The gradient of a loss by the parameters, flat, to be differentiated again."""
        assert self.flat is not None
        parts = torch.autograd.grad(loss, self.flat.parameters, create_graph=True, allow_unused=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    def _rows(self, chosen: Tensor | None) -> Tensor:
        assert self.rows is not None
        return self.rows if chosen is None else self.rows[chosen]


def mock_clients(
    trainer: Trainer, parameters: Vector, pool: Sequence[Examples], clip_norm: float, *, unroll: bool = False
) -> MockClients:
    """The pool through the real client, in the cheapest of the three ways."""
    model, flat = trainer.model, trainer.model.flat()
    flat.put(np.asarray(parameters, np.float32))
    flat.module.eval()
    begin = torch.from_numpy(np.array(parameters, np.float32))
    shapes = dense_shapes(model, flat.module)
    steps = _unrolled_steps(trainer, dense=shapes is not None) if unroll else None
    if shapes is not None and all(_one_step(trainer, examples) for examples in pool):
        return _by_factors(trainer, begin, shapes, pool, clip_norm)
    if len(pool) * model.dim > MOST_FLOATS:
        raise ValueError(
            f"a pool of {len(pool)} clients of a model with {model.dim:,} parameters needs "
            f"{4 * len(pool) * model.dim / 1e9:.1f} GB: take at most {MOST_FLOATS // model.dim} clients."
        )
    rows = torch.from_numpy(np.stack(clipped_updates(trainer, parameters, pool, clip_norm)).astype(np.float32))
    return MockClients(model, begin, shapes, rows, flat=flat, steps=steps)


def clipped_updates(trainer: Trainer, parameters: Vector, clients: Sequence[Examples], clip_norm: float) -> list[Array]:
    """What clients would contribute, in clip norms; the order of a mock client's examples is public."""
    orders = [stream(0, "order of examples", "mock client", place) for place in range(len(clients))]
    found = []
    for update in trainer.updates(parameters, clients, orders):
        found.append(np.asarray(update.vector / max(length(update.vector), clip_norm), np.float64))
    return found


def _one_step(trainer: Trainer, examples: Examples) -> bool:
    training = trainer.training
    whole = training.max_examples is None or len(examples) <= training.max_examples
    return whole and len(training.batches(len(examples), stream(0, "steps"))[1]) == 1


def _unrolled_steps(trainer: Trainer, *, dense: bool) -> ClientSteps | None:
    """What a client does with one example; None if that is one step."""
    training = trainer.training
    count = len(training.batches(1, stream(0, "steps"))[1])
    if count == 1:
        return None
    if not dense:
        raise ValueError(f"{trainer.model.name}: unroll=True is for models of dense layers, as mlp. Leave it out.")
    if count > MOST_STEPS:
        raise ValueError(
            f"unroll=True is for at most {MOST_STEPS} steps; a client takes {count} on one example. Lower client.epochs, set "
            "client.max_steps, or take use_as_is=True."
        )
    return ClientSteps(count, training.learning_rate, training.momentum)


def _by_factors(
    trainer: Trainer, begin: Tensor, shapes: tuple[torch.Size, ...], pool: Sequence[Examples], clip_norm: float
) -> MockClients:
    """A client's only step is minus the learning rate times the mean of its examples' gradients, then clipped."""
    model, sizes = trainer.model, [len(examples) for examples in pool]
    rows = [model.inputs(examples.features).reshape(len(examples), -1) for examples in pool]
    wrong = next((each.shape[1] for each in rows if each.shape[1] != shapes[0][1]), None)
    if wrong is not None:
        raise ValueError(f"features of {wrong} numbers do not fit {model.name}, which takes {shapes[0][1]}.")
    features = torch.from_numpy(np.concatenate(rows).astype(np.float32))
    classes = shapes[-1][0]
    targets = functional.one_hot(torch.from_numpy(np.concatenate([each.targets for each in pool]).astype(np.int64)), classes)
    with torch.no_grad():
        made = ghosts(shapes, begin, features, targets.float())
        weights = torch.zeros(len(pool), sum(sizes))
        edges = np.cumsum([0, *sizes])
        for place, (start, stop) in enumerate(pairwise(edges.tolist())):
            part = Ghosts(tuple(each[start:stop] for each in made.inputs), tuple(each[start:stop] for each in made.backward))
            norm = trainer.training.learning_rate / sizes[place] * float(part.products(part).sum().clamp(min=0).sqrt())
            weights[place, start:stop] = trainer.training.learning_rate / sizes[place] / max(norm, clip_norm)
    return MockClients(model, begin, shapes, examples=made, weights=weights)
