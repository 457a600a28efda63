"""From a pool to designed samples: chooses between pixels and tokens, and says what gradients the samples have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from coalmine.canaries.crafted.image import begun_images, craft_images
from coalmine.canaries.crafted.objectives import Objective
from coalmine.canaries.crafted.options import Crafting
from coalmine.canaries.crafted.pool import MockClients, mock_clients
from coalmine.canaries.crafted.text import TextSearch, allowed_tokens, craft_texts, row_gradients
from coalmine.clients import Trainer
from coalmine.contracts import Array, Streams, Vector
from coalmine.data.dataset import Examples
from coalmine.models.language import SPECIAL


@dataclass(frozen=True, eq=False)
class Found:
    """Designed samples, the gradients of their losses, and how much of the paper's loss the design removed."""

    samples: list[Examples]
    gradients: NDArray[np.float32]
    health: Array


def search(
    trainer: Trainer,
    parameters: Vector,
    pool: Sequence[Examples],
    options: Crafting,
    streams: Streams,
    *,
    count: int,
    text: bool,
    clip_norm: float,
    needed: float,
    cohort: float,
    enough: float | None,
) -> Found:
    """Design `count` samples with gradients of length `needed`, for rounds of `cohort` clients.

    At a squared overlap of `enough` the design stops.
    """
    with _second_derivatives():
        clients = mock_clients(trainer, parameters, pool, clip_norm, unroll=options.unroll)
        objective = Objective(options.loss, options.hinge, needed, cohort)
        if text:
            texts = _text_search(clients, objective, options, pool, streams)
            samples = craft_texts(texts, pool, streams, count=count, enough=enough)
            begun = [texts.examples(texts.random_rows(streams("text", place), 1)) for place in range(count)]
        else:
            classes = _classes(clients)
            samples, _ = craft_images(clients, pool, objective, options, streams, count=count, classes=classes, enough=enough)
            begun = begun_images(clients, pool, options, streams, count=count, classes=classes)
        gradients, before = (_gradients(trainer, parameters, some, clients, text=text) for some in (samples, begun))
        published = Objective("covariance", "squared", needed, cohort)
        ended, started = (_loss(clients, published, rows) for rows in (gradients, before))
        return Found(samples, gradients, (started - ended) / np.maximum(started, 1e-30))


@contextmanager
def _second_derivatives() -> Iterator[None]:
    """Without oneDNN, whose recurrent layer has none."""
    before = torch.backends.mkldnn.set_flags(_enabled=False)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before[0])  # type: ignore[no-untyped-call]


def _gradients(
    trainer: Trainer, parameters: Vector, samples: Sequence[Examples], clients: MockClients, *, text: bool
) -> NDArray[np.float32]:
    """The gradient of each sample's loss by plain differentiation, whichever way the design went; unrolled, of all steps."""
    if text:
        return np.concatenate([row_gradients(clients, sample).numpy() for sample in samples])
    if clients.steps is not None:
        return _unrolled_gradients(clients, samples)
    rows = trainer.single_updates(parameters, _joined(samples))
    return np.asarray(rows / np.float32(-trainer.training.learning_rate), np.float32)


def _joined(samples: Sequence[Examples]) -> Examples:
    return Examples(np.concatenate([each.features for each in samples]), np.concatenate([each.targets for each in samples]))


def _unrolled_gradients(clients: MockClients, samples: Sequence[Examples]) -> NDArray[np.float32]:
    whole = _joined(samples)
    features, targets = clients.model.inputs(whole.features).astype(np.float32), torch.from_numpy(whole.targets)
    if not targets.is_floating_point():
        targets = functional.one_hot(targets.long(), _classes(clients))
    with torch.no_grad():
        return np.asarray(clients.ghosts(torch.from_numpy(features), targets.float()).vectors().numpy())


def _loss(clients: MockClients, objective: Objective, gradients: NDArray[np.float32]) -> Array:
    """The paper's loss of each gradient by itself, in units of the length that is needed."""
    norms = np.linalg.norm(gradients.astype(np.float64), axis=1)
    unit = torch.from_numpy(gradients / np.maximum(norms, 1e-12)[:, None].astype(np.float32))
    if clients.rows is not None:
        cosines = clients.rows @ unit.T
    else:
        assert clients.examples is not None and clients.weights is not None and clients.shapes is not None
        cosines = clients.weights @ clients.examples.along(unit, clients.shapes).T
    scaled = replace(objective, needed=1.0)
    return np.asarray(scaled(cosines, torch.from_numpy(norms / objective.needed)).double().numpy())


def _classes(clients: MockClients) -> int:
    if clients.shapes is not None:
        return int(clients.shapes[-1][0])
    assert clients.flat is not None
    last = [parameter for parameter in clients.flat.parameters if parameter.ndim == 1]
    if not last:
        raise ValueError(f"{clients.model.name}: the number of classes cannot be read off its last bias.")
    return int(last[-1].numel())


def _text_search(
    clients: MockClients,
    objective: Objective,
    options: Crafting,
    pool: Sequence[Examples],
    streams: Streams,
) -> TextSearch:
    """What every text of the pool shares: length, first token, kind of target."""
    features = np.asarray(pool[0].features)
    labelled = np.ndim(pool[0].targets) == 1
    firsts = {int(token) for client in pool for token in np.unique(client.features[:, 0])}
    embedding = next(module for module in clients.flat.module.modules() if isinstance(module, torch.nn.Embedding))  # type: ignore[union-attr]
    classes = 0 if not labelled else _classes(clients)
    label = None
    if labelled:
        label = options.target if isinstance(options.target, int) else int(streams("label").integers(classes))
    return TextSearch(
        clients,
        objective,
        options,
        allowed_tokens(embedding.num_embeddings, specials=options.specials),
        firsts.pop() if len(firsts) == 1 and min(firsts) < SPECIAL else None,
        features.shape[1] + (0 if labelled else 1),
        label,
    )
