"""How a client trains, what it sends, and how well a model predicts for it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.contracts import IndexArray


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a client trains: SGD with momentum over its own examples, in batches that its own generator shuffles.

    `batch_size=None` takes all examples at once. `max_examples` limits a client to a random choice of its examples,
    `max_steps` ends the training early. Momentum begins at zero in every round and counts as in torch.optim.SGD.
    """

    learning_rate: float
    epochs: int = 1
    batch_size: int | None = 16
    momentum: float = 0.0
    max_steps: int | None = None
    max_examples: int | None = None

    def __post_init__(self) -> None:
        _validate.positive("learning_rate", self.learning_rate)
        _validate.whole("epochs", self.epochs, least=1)
        if self.momentum != 0:
            _validate.between("momentum", self.momentum, 0.0, 1.0)
        for name in ("batch_size", "max_steps", "max_examples"):
            if getattr(self, name) is not None:
                _validate.whole(name, getattr(self, name), least=1)

    def batches(self, examples: int, rng: np.random.Generator) -> tuple[IndexArray, IndexArray]:
        """Which examples each step takes, (steps, batch), and how many of them count: a short batch is filled up.

        >>> rows, counts = LocalTraining(learning_rate=0.1, batch_size=2).batches(3, np.random.default_rng(0))
        >>> rows.shape, counts.tolist()
        ((2, 2), [2, 1])
        """
        chosen = np.arange(examples)
        if self.max_examples is not None and examples > self.max_examples:
            chosen = rng.permutation(examples)[: self.max_examples]
        size = chosen.size if self.batch_size is None else min(self.batch_size, chosen.size)
        if not size:
            return np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
        in_epoch = -(-chosen.size // size)
        steps = min(self.epochs * in_epoch, self.max_steps or self.epochs * in_epoch)
        rows = np.empty((-(-steps // in_epoch), in_epoch * size), np.int64)
        for row in rows:
            row[: chosen.size] = rng.permutation(chosen) if in_epoch > 1 else chosen
            row[chosen.size :] = row[0]
        counts = np.full(rows.shape[0] * in_epoch, size)
        counts[in_epoch - 1 :: in_epoch] = chosen.size - (in_epoch - 1) * size
        return rows.reshape(-1, size)[:steps], counts[:steps]


@dataclass(frozen=True, eq=False)
class Update:
    """What a client sends before any clipping, and what is known of its training."""

    vector: NDArray[np.float32]  # final minus initial parameters
    loss: float = 0.0  # mean over the training, each batch before its step
    examples: int = 0  # that the client has trained on
    steps: int = 0


@dataclass(frozen=True)
class Evaluation:
    """Loss and correct predictions, as sums, so that evaluations of several parts can be added."""

    loss_sum: float = 0.0
    terms: int = 0  # of the loss
    correct: int = 0
    counted: int = 0  # predictions that count: for a language model, those of no special token

    def __add__(self, other: "Evaluation") -> "Evaluation":
        return Evaluation(
            self.loss_sum + other.loss_sum,
            self.terms + other.terms,
            self.correct + other.correct,
            self.counted + other.counted,
        )

    @property
    def loss(self) -> float:
        """The mean loss; NaN if there is nothing to judge."""
        return self.loss_sum / self.terms if self.terms else float("nan")

    @property
    def accuracy(self) -> float:
        """The share of correct predictions; NaN if none counts."""
        return self.correct / self.counted if self.counted else float("nan")
