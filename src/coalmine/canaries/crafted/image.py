"""The search over pixels: Adam on all canaries at once, the best of each kept by what the whole pool says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from coalmine.canaries.crafted.objectives import Objective, mutual_overlap
from coalmine.canaries.crafted.options import Crafting
from coalmine.canaries.crafted.pool import MockClients, SeenCanaries
from coalmine.contracts import Streams
from coalmine.data.dataset import Examples

_RARE, _RARE_LENGTH, _MOST_PIXELS = 64, 20.0, 4096
_LOOK = 10  # steps between two looks at the whole pool, where a step sees a part of it
_NEARLY_ALL = 0.95  # of the canaries
_SURE = 6.0  # logit of the class that soft targets begin with


def craft_images(
    clients: MockClients,
    pool: Sequence[Examples],
    objective: Objective,
    options: Crafting,
    streams: Streams,
    *,
    count: int,
    classes: int,
    enough: float | None,
) -> tuple[list[Examples], list[Tensor]]:
    """(canaries of one example each, the probabilities of classes that they were designed with).

    `enough` is the squared overlap, in squared clip norms, at which the design stops.
    """
    rng = streams("images")
    pixels, logits = _begin(pool, options, rng, count, classes, clients)
    pixels.requires_grad_()
    soft = options.target == "soft"
    changed = [pixels, logits.requires_grad_()] if soft else [pixels]
    optimiser = torch.optim.Adam(changed, lr=options.learning_rate)
    best, kept = torch.full((count,), torch.inf), [each.detach().clone() for each in (pixels, logits)]
    for step in range(options.steps("image") + 1):
        targets = torch.softmax(logits, 1) if soft else logits
        part = None
        if options.minibatch is not None and options.minibatch < clients.count:
            part = torch.from_numpy(rng.permutation(clients.count)[: options.minibatch].copy())
        if part is not None and options.keep_best and step % _LOOK == 0:
            with torch.set_grad_enabled(clients.shapes is None):
                seen = clients.see(pixels, targets)
            _keep(objective(seen.cosines, seen.norms, seen.gram).detach(), best, kept, (pixels, logits))
        seen = clients.see(pixels, targets, part)
        losses = objective(seen.cosines, seen.norms, seen.gram)
        if part is None and options.keep_best:
            _keep(losses.detach(), best, kept, (pixels, logits))
            if enough is not None and _is_enough(seen, objective, enough):
                break
        if step == options.steps("image"):
            break
        gradients = torch.autograd.grad(losses.sum(), changed)
        for each, gradient in zip(changed, gradients, strict=True):
            each.grad = torch.nan_to_num(gradient)
        optimiser.step()
        if options.box is not None:
            with torch.no_grad():
                pixels.clamp_(*options.box)
    found, labels = kept if options.keep_best else [pixels.detach(), logits.detach()]
    labels = torch.softmax(labels, 1) if soft else labels
    return _as_examples(found, labels, soft=soft), list(labels)


def begun_images(
    clients: MockClients, pool: Sequence[Examples], options: Crafting, streams: Streams, *, count: int, classes: int
) -> list[Examples]:
    """The canaries before the first step of `craft_images`."""
    pixels, logits = _begin(pool, options, streams("images"), count, classes, clients)
    soft = options.target == "soft"
    return _as_examples(pixels, torch.softmax(logits, 1) if soft else logits, soft=soft)


def _begin(
    pool: Sequence[Examples], options: Crafting, rng: np.random.Generator, count: int, classes: int, clients: MockClients
) -> tuple[Tensor, Tensor]:
    """(pixels, probabilities of classes; for soft targets their logits) before the first step."""
    inputs = np.concatenate([clients.model.inputs(examples.features) for examples in pool]).astype(np.float32)
    chosen = rng.integers(len(inputs), size=count)
    labels = rng.integers(classes, size=count)
    if options.target == "sample":
        labels = np.concatenate([examples.targets for examples in pool])[chosen]
    elif isinstance(options.target, int):
        if not 0 <= options.target < classes:
            raise ValueError(f"target={options.target} is no class of this model, which has {classes}.")
        labels = np.full(count, options.target)
    begin: NDArray[Any]
    if options.init == "sample":
        begin = inputs[chosen]
    elif options.init == "rare" and inputs[0].size <= _MOST_PIXELS:
        flat = inputs.reshape(len(inputs), -1).astype(np.float64)
        directions = np.linalg.eigh(flat.T @ flat)[1][:, : min(_RARE, flat.shape[1])]
        mixed = rng.standard_normal((count, directions.shape[1])) @ directions.T
        begin = (_RARE_LENGTH * mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).reshape(count, *inputs.shape[1:])
    else:
        begin = rng.random((count, *inputs.shape[1:]))
    one_hot = functional.one_hot(torch.from_numpy(np.asarray(labels, np.int64)), classes).float()
    if options.box is not None:
        begin = np.clip(begin, *options.box)
    return torch.from_numpy(np.array(begin, np.float32)), one_hot * _SURE if options.target == "soft" else one_hot


def _keep(losses: Tensor, best: Tensor, kept: list[Tensor], now: tuple[Tensor, Tensor]) -> None:
    """Each canary that is better than it ever was."""
    better = losses < best
    best[better] = losses[better]
    for old, new in zip(kept, now, strict=True):
        old[better] = new.detach()[better]


def _is_enough(seen: SeenCanaries, objective: Objective, enough: float) -> bool:
    """Whether the others add little to the noise, over nearly all canaries, and nearly all gradients are long enough.

    If every canary had to be so, the last of many would keep all others at work for three to ten times as many steps.
    """
    overlap = objective.cohort * seen.cosines.square().mean(0) + mutual_overlap(seen.gram) / 2
    most = overlap.sort().values[: math.ceil(_NEARLY_ALL * len(overlap))]
    return bool((most.mean() <= enough) & ((seen.norms >= objective.needed).float().mean() >= _NEARLY_ALL))


def _as_examples(pixels: Tensor, labels: Tensor, *, soft: bool) -> list[Examples]:
    """A client of one example for each canary; soft targets stay probabilities."""
    targets = labels.numpy() if soft else labels.argmax(1).numpy()
    return [Examples(one[None].copy(), targets[place : place + 1].copy()) for place, one in enumerate(pixels.numpy())]
