"""One client's local training: parameters and examples in, update out.

    trainer = Trainer(model, LocalTraining(learning_rate=0.1))
    for update in trainer.updates(parameters, cohort, rngs): ...

An update is what local SGD added to the parameters: final minus initial, one flat vector. There are two ways to it that give
the same numbers up to rounding: one client after the other, and for small dense models a group of clients at once (see
`coalmine.models.stacked`), which is chosen by the model alone. Whatever way, what a group of `group_size` clients gives depends
on these clients, their generators and the parameters alone, bit for bit, as long as torch works with one thread.

Central DP-SGD is the case of clients with one example and `LocalTraining(batch_size=None, learning_rate=1.0)`: the update is
minus the gradient.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.clients.local_training import Evaluation, LocalTraining, Update
from coalmine.clients.single import single_gradients
from coalmine.contracts import IndexArray
from coalmine.data.dataset import Examples
from coalmine.models.model import FlatModule, Model
from coalmine.models.stacked import StackedDense, aims_of, dense_shapes, one_step

EVALUATED_AT_ONCE = 128
STACKED_DIM = 200_000  # above, the matrices of one client keep a processor busy
STACKED_BYTES = 2 << 20  # of weights in a group: what stays in a processor's cache
STACKED_CLIENTS = 32  # more gain little, and a cohort must make several groups
LARGEST_KEPT = 32 << 20  # bytes: of a larger array the memory may be given back (more than this glibc does not allow)
BLOCK_BYTES = 8 << 20  # of features copied at a time


class Trainer:
    """Trains clients of one model in one way; can be pickled, and keeps one module for all clients.

    >>> from coalmine.models import logistic
    >>> model = logistic(shape=2, classes=2)
    >>> trainer = Trainer(model, LocalTraining(learning_rate=0.1))
    >>> client = Examples(np.eye(2, dtype=np.float32), np.array([0, 1]))
    >>> update, = trainer.updates(model.initial(0), [client], [np.random.default_rng(0)])
    >>> update.vector.shape, update.examples, update.steps
    ((6,), 2, 1)
    """

    def __init__(self, model: Model, training: LocalTraining) -> None:
        self.model, self.training = model, training
        self._scratch: NDArray[np.float32] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Trainer, (self.model, self.training)

    @cached_property
    def _flat(self) -> FlatModule:
        return self.model.flat()

    @cached_property
    def _stacked(self) -> tuple[torch.Size, ...] | None:
        return dense_shapes(self.model, self._flat.module) if self.model.dim <= STACKED_DIM else None

    @property
    def group_size(self) -> int:
        """How many clients make one piece of work: as many as are trained at once."""
        if self._stacked is None:
            return 1
        return min(max(STACKED_BYTES // (4 * self.model.dim), 4), STACKED_CLIENTS)

    def updates(
        self, parameters: NDArray[Any], cohort: Sequence[Examples], rngs: Sequence[np.random.Generator]
    ) -> Iterator[Update]:
        """The update of each client, in order; clients without examples give zeros.

        Longer cohorts are cut into groups of `group_size` by position.
        """
        if len(cohort) != len(rngs):
            raise ValueError(f"{len(cohort)} clients do not fit {len(rngs)} generators: each client needs its own.")
        begin = np.ascontiguousarray(parameters, np.float32)
        if begin.shape != (self.model.dim,):
            raise ValueError(f"parameters of shape {begin.shape} do not fit {self.model.name}, which has {self.model.dim:,}.")
        soft = any(examples.targets.dtype.kind == "f" for examples in cohort)  # probabilities of classes
        if self._stacked is None or soft:
            for examples, rng in zip(cohort, rngs, strict=True):
                yield self._alone(begin, examples, rng)
        else:
            for start in range(0, len(cohort), self.group_size):
                group = slice(start, start + self.group_size)
                yield from self._together(self._stacked, begin, cohort[group], rngs[group])

    def single_updates(self, parameters: NDArray[Any], examples: Examples) -> NDArray[np.float32]:
        """What one step over each example alone would add to the parameters: a row for every example.

        Rows times parameters floats of memory: what mechanisms that protect single examples need.
        """
        self._flat.put(np.ascontiguousarray(parameters, np.float32))
        if not len(examples):
            return np.zeros((0, self.model.dim), np.float32)
        rows = single_gradients(
            self.model, self._flat, _tensor(self.model.inputs(examples.features)), _targets(examples.targets)
        )
        return rows.mul_(-self.training.learning_rate).numpy()

    def evaluate(self, parameters: NDArray[Any], examples: Examples) -> Evaluation:
        """Loss and correct predictions of these parameters."""
        self._flat.put(parameters)
        self._flat.module.eval()
        found = Evaluation()
        with torch.inference_mode():
            for start in range(0, len(examples), EVALUATED_AT_ONCE):
                part = slice(start, start + EVALUATED_AT_ONCE)
                features, targets = _tensor(self.model.inputs(examples.features[part])), _targets(examples.targets[part])
                outputs, terms = self._flat.module(features), self.model.count_terms(targets)
                loss = float(self.model.loss(outputs, targets)) * terms if terms else 0.0
                found += Evaluation(loss, terms, *self.model.count_correct(outputs, targets))
        return found

    def _alone(self, begin: NDArray[np.float32], examples: Examples, rng: np.random.Generator) -> Update:
        """One client on the module itself."""
        rows, counts = self.training.batches(len(examples), rng)
        if not len(rows):
            return Update(np.zeros(self.model.dim, np.float32))
        flat, training = self._flat, self.training
        flat.put(begin)
        flat.module.train()
        velocity: list[Tensor] | None = None
        features, targets = self.model.inputs(examples.features), examples.targets
        loss_sum, terms = 0.0, 0
        before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(int(rng.integers(2**63)))  # for modules that draw, as dropout does
        try:
            for row, count in zip(rows, counts, strict=True):
                wanted = _targets(targets[row[:count]])
                loss = self.model.training_loss(flat.module, _tensor(features[row[:count]]), wanted)
                gradients = torch.autograd.grad(loss, flat.parameters, allow_unused=True, materialize_grads=False)
                velocity = _step(flat.parameters, gradients, velocity, training.learning_rate, training.momentum)
                weight = self.model.count_terms(wanted)
                loss_sum, terms = loss_sum + loss.item() * weight, terms + weight
        finally:
            torch.default_generator.set_state(before)
        flat.check_constants()
        vector = flat.vector.numpy() - begin
        return Update(vector, loss_sum / max(terms, 1), min(len(examples), int(counts.sum())), len(rows))

    def _together(
        self,
        shapes: tuple[torch.Size, ...],
        begin: NDArray[np.float32],
        cohort: Sequence[Examples],
        rngs: Sequence[np.random.Generator],
    ) -> Iterator[Update]:
        """A group of clients at once; those with more steps come first, so that whoever is still at work is a prefix."""
        plans = [self.training.batches(len(examples), rng) for examples, rng in zip(cohort, rngs, strict=True)]
        order = sorted(range(len(cohort)), key=lambda place: -len(plans[place][1]))
        order = [place for place in order if len(plans[place][1])]
        if order:
            width = max(plans[place][0].shape[1] for place in order)
            work = [_Client(self.model, cohort[place], *plans[place], width, shapes[0][1]) for place in order]
            changed, losses = self._steps(shapes, torch.from_numpy(begin), work)
        else:
            changed, losses = np.zeros((0, begin.size), np.float32), np.zeros(0)
        where = {place: number for number, place in enumerate(order)}
        for place, examples in enumerate(cohort):
            number, steps = where.get(place), len(plans[place][1])
            if number is None:
                yield Update(np.zeros(begin.size, np.float32))
            else:
                used = int(plans[place][1].sum())
                yield Update(changed[number], float(losses[number]) / used, min(len(examples), used), steps)

    def _room(self, *shape: int) -> NDArray[np.float32]:
        """Where batches are put together, always the same memory: new memory costs more than what is written into it.

        From torch, which aligns it to cache lines; numpy does not.
        """
        size = int(np.prod(shape))
        if self._scratch is None or self._scratch.size < size:
            self._scratch = torch.empty(size).numpy()
        return self._scratch[:size].reshape(shape)

    @torch.inference_mode()
    def _steps(
        self, shapes: tuple[torch.Size, ...], begin: Tensor, work: "list[_Client]"
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """(updates, sums of the losses) of clients in the order of their work."""
        losses = np.zeros(len(work))
        rate, momentum = self.training.learning_rate, self.training.momentum
        steps, width, inputs = len(work[0].counts), work[0].rows.shape[1], shapes[0][1]
        single = steps == 1
        models = None if single else StackedDense(shapes, begin, len(work))
        at_once = min(max(BLOCK_BYTES // (4 * len(work) * width * inputs), 1), steps)
        room = self._room(len(work), at_once, width, inputs)
        for start in range(0, steps, at_once):
            stop = min(start + at_once, steps)
            active = sum(len(client.counts) > start for client in work)
            features = room[:active, : stop - start]
            targets = np.zeros((active, stop - start, width), np.int64)
            counts = np.zeros((active, stop - start), np.int64)
            for place, client in enumerate(work[:active]):
                client.fill(start, stop, features[place], targets[place], counts[place])
            counted = np.arange(width) < counts[:, :, None]
            share = counted / np.maximum(counts, 1)[:, :, None].astype(np.float32)
            taken, wanted = torch.from_numpy(features), torch.from_numpy(targets)
            aims = aims_of(wanted, torch.from_numpy(share.astype(np.float32, copy=False)), shapes[-1][0])
            chosen = torch.zeros(wanted.shape)
            at_work = np.count_nonzero(counts, axis=0).tolist()
            for step, now in enumerate(at_work):
                batch = taken[:now, step], wanted[:now, step], aims[:now, step]
                if models is None:
                    changed, chosen[:now, step] = one_step(shapes, begin, *batch, rate)
                else:
                    chosen[:now, step] = models.step(*batch, rate, momentum)
            losses[:active] -= (chosen.numpy() * counted).sum((1, 2), dtype=np.float64)
        return (changed if models is None else models.changes()).numpy(), losses


class _Client:
    """A client's batches, as the stacked way takes them."""

    def __init__(self, model: Model, examples: Examples, rows: IndexArray, counts: IndexArray, width: int, inputs: int) -> None:
        features = model.inputs(examples.features).reshape(len(examples), -1)
        if features.shape[1] != inputs:
            raise ValueError(f"features of {features.shape[1]} numbers do not fit {model.name}, which takes {inputs}.")
        self.features, self.targets, self.counts = features, examples.targets.astype(np.int64, copy=False), counts
        self.rows = (
            rows if rows.shape[1] == width else np.concatenate([rows, np.repeat(rows[:, :1], width - rows.shape[1], 1)], 1)
        )

    def fill(self, start: int, stop: int, features: NDArray[Any], targets: NDArray[Any], counts: NDArray[Any]) -> None:
        """Writes the batches of these steps; where there are none any more, the counts stay zero."""
        rows = self.rows[start:stop]
        np.take(self.features, rows, axis=0, out=features[: len(rows)], mode="clip")
        targets[: len(rows)] = self.targets[rows]
        counts[: len(rows)] = self.counts[start:stop]


def _step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    velocity: list[Tensor] | None,
    learning_rate: float,
    momentum: float,
) -> list[Tensor] | None:
    """One step of SGD in place; the velocity to be handed to the next one."""
    with torch.no_grad():
        if momentum:
            if velocity is None:
                velocity = [torch.zeros_like(parameter) for parameter in parameters]
            for old, new in zip(velocity, gradients, strict=True):
                old.mul_(momentum)
                if new is not None:
                    old.add_(new)
            gradients = velocity
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.add_(gradient, alpha=-learning_rate)
    return velocity


def _tensor(array: NDArray[Any]) -> Tensor:
    """An array as a tensor, sharing its memory where torch may."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _targets(targets: NDArray[Any]) -> Tensor:
    return _tensor(targets.astype(np.float32 if targets.dtype.kind == "f" else np.int64, copy=False))


def quiet_threads(dim: int = 0) -> None:
    """Settings of a process that trains: one thread, and memory that is kept rather than returned to the system.

    One thread makes results repeatable, and several processes use the cores better than several threads. The memory of
    activations is otherwise given back and asked for anew in every step; keeping it saves about a tenth of the time. Vectors of
    a model with more than 8 million parameters (`dim`) are given back: kept, they leave holes that no other of them fits into.
    All this is for the C library of Linux (glibc's mallopt); elsewhere nothing is done about memory.
    """
    torch.set_num_threads(1)
    try:
        mallopt: Callable[[int, int], int] = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # no such library, or none with that function
        return
    large = 4 * dim >= LARGEST_KEPT  # then half a vector is given back too, and little is asked for in advance
    of_large = ((-4, 1 << 16), (-3, LARGEST_KEPT // 2)) if large else ((-4, 0),)  # M_MMAP_MAX, M_MMAP_THRESHOLD
    for option, value in (*of_large, (-1, 2**31 - 1), (-2, (4 if large else 64) << 20)):  # M_TRIM_THRESHOLD, M_TOP_PAD
        mallopt(option, value)
