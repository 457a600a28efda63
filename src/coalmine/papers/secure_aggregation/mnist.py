"""Users with MNIST's images, dealt out in the order of the file, and per-example gradients of softmax regression.

Softmax gradients sum to zero over the classes; that null space is public and harmless. So the last class is left out: the model
has 9 logits, and K = 9 (pixels + 1) coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coalmine.contracts import Array
from coalmine.data.mnist import read_mnist_images
from coalmine.mechanisms.examples import clipped_rows
from coalmine.papers.kit.experiment import Ask

CLASSES = 10


@dataclass(frozen=True, eq=False)
class Users:
    """Images of `users` users with `examples` each: features with a constant 1 at the end, and classes."""

    features: Array  # (users, examples, pixels + 1)
    targets: np.ndarray

    @property
    def dim(self) -> int:
        """Coordinates of the model."""
        return (CLASSES - 1) * int(self.features.shape[2])

    def outputs(self, user: int, parameters: Array) -> Array:
        """Probabilities minus the classes' indicators, without the last class: the gradient by the logits."""
        logits = self.features[user] @ parameters.reshape(CLASSES - 1, -1).T
        logits = np.hstack([logits, np.zeros((len(logits), 1))])
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        odds /= odds.sum(axis=1, keepdims=True)
        odds[np.arange(len(odds)), self.targets[user]] -= 1.0
        return np.asarray(odds[:, :-1])

    def gradients(self, user: int, parameters: Array, clip_norm: float) -> Array:
        """Clipped gradients, a row for every example."""
        back = self.outputs(user, parameters)
        rows = (back[:, :, None] * self.features[user][:, None, :]).reshape(len(back), -1)
        return np.asarray(clipped_rows(rows, clip_norm)[0])

    @cached_property
    def started(self) -> Array:
        """The parameters before the first round: zeros."""
        return np.zeros(self.dim)


def users_of(ask: Ask, *, users: int, examples: int, side: int | None, split: str = "train") -> Users:
    """MNIST dealt out to users in the order of the file; images pooled to `side` x `side` by means, None: as they are."""
    pixels, classes = read_mnist_images(ask.data_dir, split=split)
    pixels, classes = pixels[: users * examples], classes[: users * examples]
    grey = pixels.astype(np.float64) / 255
    if side is not None:
        step = 28 // side
        grey = grey.reshape(len(grey), side, step, side, step).mean(axis=(2, 4))
    flat = np.hstack([grey.reshape(len(grey), -1), np.ones((len(grey), 1))])
    return Users(flat.reshape(users, examples, -1), classes.reshape(users, examples))


def accuracy(parameters: Array, test: Users) -> float:
    """Share of right predictions."""
    logits = test.features[0] @ parameters.reshape(CLASSES - 1, -1).T
    best = np.hstack([logits, np.zeros((len(logits), 1))]).argmax(axis=1)
    return float((best == test.targets[0]).mean())
