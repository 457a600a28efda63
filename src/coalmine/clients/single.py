"""Gradients of single examples: one row for each.

By torch's vectorising map over a stateless copy of the module; one after the other, and slower, where it has no rule for a
layer: recurrent ones, attention, and some modules of one's own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from coalmine.models.model import FlatModule, Model

AT_ONCE = 64  # examples that are differentiated together


def single_gradients(model: Model, flat: FlatModule, features: Tensor, targets: Tensor) -> Tensor:
    """The gradient of each example's loss by the flat parameters, (examples, dim)."""
    flat.module.eval()  # what depends on other examples, as batch statistics do, has no gradient of one example
    if model.features == "tokens":
        return _one_by_one(model, flat, features, targets)
    try:
        return _together(model, flat, features, targets)
    except RuntimeError:  # what torch raises for layers that its map cannot vectorise; a fault of the module comes again
        return _one_by_one(model, flat, features, targets)


def _together(model: Model, flat: FlatModule, features: Tensor, targets: Tensor) -> Tensor:
    module = flat.module
    by_name = {name: parameter.detach() for name, parameter in module.named_parameters() if parameter.requires_grad}

    def loss(values: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        return model.loss(torch.func.functional_call(module, values, (one.unsqueeze(0),)), target.unsqueeze(0))

    of_all = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), chunk_size=AT_ONCE)(by_name, features, targets)
    return torch.cat([of_all[name].reshape(len(features), -1) for name in by_name], dim=1).detach()


def _one_by_one(model: Model, flat: FlatModule, features: Tensor, targets: Tensor) -> Tensor:
    trained = [parameter for parameter in flat.module.parameters() if parameter.requires_grad]
    rows = []
    for one, target in zip(features, targets, strict=True):
        loss = model.loss(flat.module(one.unsqueeze(0)), target.unsqueeze(0))
        parts = torch.autograd.grad(loss, trained)
        rows.append(torch.cat([part.reshape(-1) for part in parts]))
    return torch.stack(rows).detach()
