"""Gradients of single examples: one row for each, by torch's vectorising map over a stateless copy of the module."""

from __future__ import annotations

import torch
from torch import Tensor

from coalmine.models.model import FlatModule, Model

AT_ONCE = 64  # examples that are differentiated together


def single_gradients(model: Model, flat: FlatModule, features: Tensor, targets: Tensor) -> Tensor:
    """The gradient of each example's loss by the flat parameters, (examples, dim)."""
    module = flat.module
    module.eval()  # what depends on other examples, as batch statistics do, has no gradient of one example
    by_name = {name: parameter.detach() for name, parameter in module.named_parameters() if parameter.requires_grad}

    def loss(values: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        return model.loss(torch.func.functional_call(module, values, (one.unsqueeze(0),)), target.unsqueeze(0))

    of_all = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), chunk_size=AT_ONCE)(by_name, features, targets)
    return torch.cat([of_all[name].reshape(len(features), -1) for name in by_name], dim=1).detach()
