"""What the attacks of CANIFE are tried on: data, a model, and checkpoints that were trained without privacy.

    name          stands for                        what is different
    fashion       CIFAR-10, one image per client    Fashion-MNIST, a network with one hidden layer of 128
    cifar         CIFAR-10, one image per client    the small network leaf-cnn (31,594 parameters) instead of ResNet18
    writers       CelebA                            MNIST by writer, each writer six clients; leaf-cnn as in ablations
    shakespeare   Shakespeare, Sent140              715 roles, the next of 20 characters, a recurrent layer of 64

The clip norm, 1, and the learning rates of clients are the paper's. Checkpoints are trained by plain SGD on all clients'
examples together: for an attack it matters what a model has learned, not how.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coalmine._random import stream
from coalmine.clients import LocalTraining, Trainer
from coalmine.contracts import Array, State, Vector
from coalmine.data.dataset import Examples
from coalmine.mechanisms import Gaussian
from coalmine.mechanisms.gaussian import length
from coalmine.papers.kit.experiment import Ask
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import parse_config, read_config
from coalmine.training.federation import Federation

CLIP = 1.0
_MOST_FLOATS = 40_000_000  # of clients' updates that are kept; more are computed again
_AT_ONCE = 50  # clients
_JUDGES = 16  # of a design; all others judge it too
_QUICK_OTHERS, _QUICK_MOCK, _QUICK_STEPS = 40, 24, 10


@dataclass(frozen=True)
class Recipe:
    """A task of the paper, or what stands for it."""

    words: str
    preset: str
    changes: tuple[str, ...]
    steps: int  # of the checkpoint's training, with batches of 64
    learning_rate: float  # of the checkpoint's training
    mock: int  # clients that a design may be shown
    others: int  # clients that cohorts are drawn from


RECIPES = {
    "fashion": Recipe("Fashion-MNIST, mlp", "fashion-mnist", ("data.users=8000",), 400, 0.05, 512, 2000),
    "cifar": Recipe(
        "CIFAR-10, leaf-cnn",
        "fashion-mnist",
        ('data.source="cifar10"', "data.users=21000", 'model.name="leaf-cnn"', "model.options={classes=10}"),
        800,
        0.05,
        512,
        600,
    ),
    "writers": Recipe(
        "MNIST by writer, leaf-cnn",
        "canife-writers",
        ('model.name="leaf-cnn"', "model.options={classes=10}", "client.learning_rate=0.899", "client.batch_size=32"),
        150,
        0.05,
        64,
        300,
    ),
    "shakespeare": Recipe(
        "Shakespeare's roles, LSTM",
        "canife-shakespeare",
        ("client.learning_rate=3.0", "client.batch_size=128"),
        400,
        1.0,
        128,
        300,
    ),
}


@dataclass(frozen=True)
class Where:
    """A checkpoint, and where it is kept: what a process needs to make it or to read it."""

    task: str
    folder: str
    data_dir: str | None
    seed: int
    full: bool
    share: float = 1.0  # of the checkpoint's steps

    @staticmethod
    def of(ask: Ask, task: str, share: float = 1.0) -> Where:
        """Beside the runs of an experiment."""
        folder = ask.out / "runs" / f"{ask.scale}-{ask.seed}" / "canife"
        return Where(task, str(folder), None if ask.data_dir is None else str(ask.data_dir), ask.seed, ask.full, share)

    @property
    def steps(self) -> int:
        """Of the training without privacy."""
        return round(self.share * (RECIPES[self.task].steps if self.full else _QUICK_STEPS))


@dataclass(frozen=True)
class Kept:
    """The model before one round of a private training that kept it, and where outcomes go."""

    task: str  # name of the training
    folder: str
    path: str  # of the model
    config: str  # of the training
    steps: int  # rounds that it was trained for
    seed: int
    mock: int
    others: int
    data_dir: str | None = None


@dataclass(frozen=True, eq=False)
class Ground:
    """A frozen model, and who is who: mock clients of the design, and the others, who fill the cohorts."""

    job: Federation
    parameters: Vector
    accuracy: float | None  # of the model on held-out clients, where it was measured
    mock: tuple[str, ...]
    others: tuple[str, ...]

    def examples(self, users: Sequence[str]) -> list[Examples]:
        """What these users have."""
        return [self.job.data.examples_of(user) for user in users]

    @property
    def judges(self) -> list[Examples]:
        """Some of the others."""
        return self.examples(self.others[:_JUDGES])

    @cached_property
    def _kept(self) -> NDArray[np.float32] | None:
        if len(self.others) * self.job.model.dim > _MOST_FLOATS:
            return None
        return np.concatenate(list(self._blocks(self.others)))

    @property
    def clip(self) -> float:
        """The clip norm."""
        return float(self.job.mechanism.describe().clip.norm)  # type: ignore[arg-type]

    @property
    def state(self) -> State:
        """Of the training, as a frozen round needs it."""
        return {"parameters": self.parameters, "mechanism.clip_norm": np.array(self.clip)}

    def _blocks(self, users: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Clipped updates of users, in clip norms."""
        trainer = Trainer(self.job.model, self.job.training)
        for start in range(0, len(users), _AT_ONCE):
            some = users[start : start + _AT_ONCE]
            orders = [stream(self.job.seed, "order of examples", user) for user in some]
            made = trainer.updates(self.parameters, self.examples(some), orders)
            yield np.stack([update.vector / np.float32(max(length(update.vector), self.clip)) for update in made])

    def projections(self, direction: Vector, *, mock: int = 0) -> Array:
        """What each of the others adds to a score, in clip norms; or each of the first `mock` mock clients."""
        if mock:
            blocks: Iterable[NDArray[np.float32]] = self._blocks(self.mock[:mock])
        else:
            blocks = self._blocks(self.others) if self._kept is None else (self._kept,)
        return np.concatenate([np.asarray(block @ direction, np.float64) for block in blocks])

    def with_noise(self, noise: float) -> Federation:
        """The training with this noise."""
        return replace(self.job, mechanism=Gaussian(self.clip, noise))


@lru_cache(maxsize=1)
def ground(where: Where | Kept) -> Ground:
    """The frozen model and its clients."""
    return _checkpoint(where) if isinstance(where, Where) else _of_run(where)


def _of_run(where: Kept) -> Ground:
    from safetensors.numpy import load_file

    job = _loaded(where.config, where.seed)
    return Ground(job, load_file(where.path)["parameters"], None, *_who(job, where.seed, where.task, where.mock, where.others))


@lru_cache(maxsize=1)
def _loaded(config: str, seed: int) -> Federation:
    """The same for all models of a training."""
    told = parse_config(config, quiet=True)
    return federation(told, load_task(told), seed)


def _checkpoint(where: Where) -> Ground:
    """Made once and then read."""
    recipe, job = RECIPES[where.task], job_of(where)
    path = Path(where.folder) / f"{where.task}-{where.steps}.npz"
    if not path.is_file():
        _train(job, where, path)
    with np.load(path, allow_pickle=False) as kept:
        parameters, accuracy = kept["parameters"], float(kept["accuracy"])
    mock, others = (recipe.mock, recipe.others) if where.full else (_QUICK_MOCK, _QUICK_OTHERS)
    return Ground(job, parameters, accuracy, *_who(job, where.seed, where.task, mock, others))


def _who(job: Federation, seed: int, task: str, mock: int, others: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    order = stream(seed, "clients of an attack", task).permutation(len(job.data))[: mock + others]
    users = tuple(job.data.users[place] for place in np.asarray(order).tolist())
    return users[:mock], users[mock:]


def job_of(where: Where) -> Federation:
    """The task as a federation, without canaries."""
    recipe = RECIPES[where.task]
    changes = [
        "canaries.pool=0",
        'crafting.mode="off"',
        *recipe.changes,
        f"mechanism.clip_norm={CLIP}",
        f"run.seed={where.seed}",
    ]
    if where.data_dir is not None:
        changes.append(f"data.options.data_dir={str(Path(where.data_dir).resolve())!r}")
    config = read_config(recipe.preset, changes)
    return federation(config, load_task(config), where.seed)


def _train(job: Federation, where: Where, path: Path) -> None:
    recipe, trained = RECIPES[where.task], job.initial
    if where.steps:
        everything = job.data.all_examples()
        plain = LocalTraining(
            learning_rate=recipe.learning_rate, epochs=100, batch_size=64, momentum=0.9, max_steps=where.steps
        )
        rng = stream(where.seed, "checkpoint", where.task)
        (update,) = Trainer(job.model, plain).updates(job.initial, [everything], [rng])
        trained = job.initial + update.vector
    judged = Trainer(job.model, job.training).evaluate(trained, job.held_out.all_examples())  # type: ignore[union-attr]
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.stem + ".part.npz")
    np.savez(aside, parameters=trained, accuracy=judged.accuracy)
    aside.replace(path)
