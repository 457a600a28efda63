"""A convolutional network on the same users: the network of federated EMNIST on 7 x 7 pixels, 28,426 parameters.

Gradients of single images are those of the client trainer, as in a run; torch is loaded when the first of them is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from coalmine.contracts import Array
from coalmine.mechanisms.examples import clipped_rows
from coalmine.papers.secure_aggregation.mnist import CLASSES, Users


@dataclass(frozen=True, eq=False)
class Network:
    """Users with a network instead of softmax regression: what `Users` offers to a training."""

    users: Users
    test: Users
    side: int

    @property
    def targets(self) -> np.ndarray:
        """Classes, by user."""
        return self.users.targets

    @property
    def dim(self) -> int:
        """Parameters of the network."""
        return int(self._trainer.model.dim)

    @cached_property
    def started(self) -> Array:
        """The parameters before the first round."""
        return np.asarray(self._trainer.model.initial(0), np.float64)

    def gradients(self, user: int, parameters: Array, clip_norm: float) -> Array:
        """Clipped gradients, a row for every example."""
        rows = -self._trainer.single_updates(parameters, self._examples(self.users, user))
        return np.asarray(clipped_rows(rows, clip_norm)[0])

    def accuracy(self, parameters: Array) -> float:
        """Share of right predictions on the test images."""
        found = self._trainer.evaluate(parameters.astype(np.float32), self._examples(self.test, 0))
        return float(found.correct / max(found.counted, 1))

    @cached_property
    def _trainer(self) -> Any:
        from coalmine.clients import LocalTraining, Trainer
        from coalmine.models import emnist_cnn

        return Trainer(
            emnist_cnn(classes=CLASSES, shape=(self.side, self.side)), LocalTraining(learning_rate=1.0, batch_size=None)
        )

    def _examples(self, users: Users, user: int) -> Any:
        from coalmine.data.dataset import Examples

        images = users.features[user][:, :-1].reshape(-1, self.side, self.side)
        return Examples(images.astype(np.float32), users.targets[user].astype(np.int64))
