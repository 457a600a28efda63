"""Fine-tuning of a language model on the texts of users: without privacy, or with DP-SGD that protects examples or users.

    protection   batch                               clipped                         sum divided by
    none         shuffled windows                    nothing                         windows
    example      windows by Poisson sampling         the gradient of a window        the expected number of windows
    user         users by Poisson sampling           the mean gradient of a user     the expected number of users

Noise of `noise_multiplier` clip norms is added to the sum; AdamW takes the noisy mean as its gradient. The claim of `example`
for a user is that of `ExamplePoisson` with as many windows as the largest user has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine import _validate
from coalmine.contracts import Array, Streams
from coalmine.data.vocabulary import PAD, Vocabulary
from coalmine.models.model import FlatModule, Model
from coalmine.participation.sampled import draw_poisson
from coalmine.progress import track

PROTECTIONS = ("none", "example", "user")
_AT_ONCE = 256  # windows whose likelihood is computed at once


@dataclass(frozen=True)
class Tuning:
    """How a model is fine-tuned."""

    learning_rate: float = 1e-3
    batch_size: float = 64  # windows of a step on average, or users with protection="user"
    steps: int = 100
    protection: str = "none"
    noise_multiplier: float = 0.0
    clip_norm: float = 1.0
    weight_decay: float = 0.0
    units: float | None = None  # windows or users that were expected before any coin; None: those there are

    def __post_init__(self) -> None:
        _validate.one_of("protection", self.protection, PROTECTIONS)
        _validate.positive("learning_rate", self.learning_rate)
        _validate.positive("batch_size", self.batch_size)
        _validate.whole("steps", self.steps, least=1)


def windows_of(texts: Sequence[str], vocabulary: Vocabulary, length: int) -> NDArray[np.int64]:
    """One row of `length` + 1 tokens for each piece of a text, padded; pieces of one text overlap by a token."""
    rows = []
    for text in texts:
        encoded = vocabulary.encode(text)
        for first in range(0, max(encoded.size - 1, 1), length):
            piece = encoded[first : first + length + 1]
            rows.append(np.pad(piece, (0, length + 1 - piece.size), constant_values=PAD))
    return np.stack(rows) if rows else np.zeros((0, length + 1), np.int64)


class LanguageModel:
    """A transformer with parameters: likelihoods of texts, and fine-tuning."""

    def __init__(self, model: Model, vocabulary: Vocabulary, length: int, parameters: NDArray[np.float32]):
        self.model, self.vocabulary, self.length = model, vocabulary, length
        self.parameters = parameters

    def log_likelihoods(self, texts: Sequence[str]) -> Array:
        """log p of every text: a sum over its tokens, the end included, padding and the beginning not."""
        pieces = [windows_of([text], self.vocabulary, self.length) for text in texts]
        owner = np.repeat(np.arange(len(texts)), [len(each) for each in pieces])
        rows, found = np.concatenate(pieces), []
        flat = self._flat()
        flat.module.eval()
        with torch.inference_mode():
            for first in range(0, len(rows), _AT_ONCE):
                batch = torch.from_numpy(rows[first : first + _AT_ONCE])
                chances = torch.log_softmax(flat.module(batch[:, :-1]), -1)
                chosen = chances.gather(-1, batch[:, 1:, None])[..., 0].double()
                found.append((chosen * (batch[:, 1:] != PAD)).sum(1).numpy())
        summed: Array = np.bincount(owner, np.concatenate(found), minlength=len(texts)).astype(np.float64)
        return summed

    def mean_loss(self, texts: Sequence[str]) -> float:
        """Mean negative log-likelihood of a token."""
        tokens = sum(self.vocabulary.encode(text).size - 1 for text in texts)
        return float(-self.log_likelihoods(texts).sum() / max(tokens, 1))

    def fine_tuned(
        self, texts: Sequence[Sequence[str]], tuning: Tuning, secret: Streams, *, progress: str = "", quiet: bool = True
    ) -> LanguageModel:
        """The model after fine-tuning on users' texts; `progress` says what is shown meanwhile, unless `quiet`."""
        users = [windows_of(own, self.vocabulary, self.length) for own in texts]
        flat = self._flat()
        flat.module.train()
        optimiser = torch.optim.AdamW(flat.parameters, lr=tuning.learning_rate, weight_decay=tuning.weight_decay)
        batches = _BATCHES[tuning.protection](users, tuning, secret)
        for step in track(range(tuning.steps), progress, quiet=quiet):
            gradient = batches(self.model, flat, step)
            for parameter, part in zip(flat.parameters, gradient, strict=True):
                parameter.grad = part
            torch.nn.utils.clip_grad_norm_(flat.parameters, 1.0) if tuning.protection == "none" else None
            optimiser.step()
        return LanguageModel(self.model, self.vocabulary, self.length, flat.vector.numpy().copy())

    def _flat(self) -> FlatModule:
        flat = self.model.flat()
        flat.put(self.parameters)
        return flat


def _gradients(model: Model, flat: FlatModule, rows: NDArray[np.int64]) -> list[Tensor]:
    """The gradient of the mean loss of these windows."""
    batch = torch.from_numpy(rows)
    loss = model.training_loss(flat.module, batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
    return list(torch.autograd.grad(loss, flat.parameters))


class _Plain:
    """Shuffled windows, epoch after epoch."""

    def __init__(self, users: list[NDArray[np.int64]], tuning: Tuning, secret: Streams):
        self.rows, self.tuning, self.secret = np.concatenate(users), tuning, secret

    def __call__(self, model: Model, flat: FlatModule, step: int) -> list[Tensor]:
        size = int(self.tuning.batch_size)
        per_epoch = max(-(-len(self.rows) // size), 1)
        order = self.secret("order of windows", step // per_epoch).permutation(len(self.rows))
        return _gradients(model, flat, self.rows[order[step % per_epoch * size :][:size]])


class _Private:
    """Poisson samples of units, each clipped by itself; noise on the sum."""

    def __init__(self, users: list[NDArray[np.int64]], tuning: Tuning, secret: Streams):
        by_user = tuning.protection == "user"
        self.units = users if by_user else list(np.concatenate(users)[:, None, :])
        self.tuning, self.secret = tuning, secret
        self.expected = max(len(self.units), 1) if tuning.units is None else tuning.units
        self.rate = min(tuning.batch_size / self.expected, 1.0)

    def __call__(self, model: Model, flat: FlatModule, step: int) -> list[Tensor]:
        total = [torch.zeros_like(parameter) for parameter in flat.parameters]
        for place in draw_poisson(len(self.units), self.rate, self.secret("batch", step)):
            found = _gradients(model, flat, self.units[place])
            norm = float(torch.sqrt(torch.stack([part.square().sum() for part in found]).sum()))
            factor = min(1.0, self.tuning.clip_norm / max(norm, 1e-12))
            for summed, part in zip(total, found, strict=True):
                summed.add_(part, alpha=factor)
        rng, scale = self.secret("noise", step), self.tuning.noise_multiplier * self.tuning.clip_norm
        return [
            (summed + torch.from_numpy(rng.standard_normal(tuple(summed.shape), np.float32)) * scale)
            / (self.rate * self.expected)
            for summed in total
        ]


_BATCHES: dict[str, Callable[..., Callable[[Model, FlatModule, int], list[Tensor]]]] = {
    "none": _Plain,
    "example": _Private,
    "user": _Private,
}
