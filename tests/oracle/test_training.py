"""Local training against independent twins: torch.optim.SGD in a plain loop, and finite differences of the loss."""

import numpy as np
import pytest
import torch

from coalmine._random import stream
from coalmine.clients import LocalTraining, Trainer
from coalmine.data.dataset import Examples
from coalmine.models import MODELS

pytestmark = pytest.mark.usefixtures("one_thread")

TOLERANCE = 2e-5  # of the largest entry of an update: float32 sums in another order
OPTIONS = {
    "emnist-cnn": {"classes": 3, "shape": (8, 8)},
    "leaf-cnn": {"classes": 3, "shape": (8, 8)},
    "resnet18-gn": {"classes": 3, "shape": (8, 8), "groups": 2, "base": 4},
    "text-classifier": {"vocabulary": 12, "classes": 3, "embedding": 4, "hidden": 5},
    "stack-overflow-lstm": {"vocabulary": 12, "embedding": 4, "hidden": 5},
    "shakespeare-lstm": {"vocabulary": 12, "hidden": 6},
    "chat-lstm": {"vocabulary": 12, "embedding": 4, "hidden": 6, "layers": 2},
    "mlp": {"shape": (8, 8), "classes": 3, "hidden": (7, 5)},
    "logistic": {"shape": (8, 8), "classes": 3},
    "gpt": {"vocabulary": 12, "context": 8, "width": 8, "heads": 2, "layers": 1},
}
TRAININGS = {
    "one epoch": LocalTraining(learning_rate=0.1, batch_size=4),
    "momentum": LocalTraining(learning_rate=0.05, batch_size=3, epochs=3, momentum=0.9),
    "few steps": LocalTraining(learning_rate=0.1, batch_size=2, epochs=2, max_steps=3),
    "few examples": LocalTraining(learning_rate=0.1, batch_size=4, epochs=2, max_examples=6),
    "all at once": LocalTraining(learning_rate=1.0, batch_size=None),
    "all at once, repeated": LocalTraining(learning_rate=0.3, batch_size=None, epochs=4, momentum=0.5),
}


def client(name, size, number=0):
    rng = stream(0, "client", number)
    if "lstm" in name or name == "gpt":
        windows = rng.integers(1, 12, (size, 8))
        windows[:, 5:] *= rng.integers(0, 2, (size, 1))  # some are padded
        return Examples(windows[:, :-1].copy(), windows[:, 1:].copy())
    if name == "text-classifier":
        texts = rng.integers(1, 12, (size, 8))
        texts[:, 5:] *= rng.integers(0, 2, (size, 1))
        return Examples(texts, rng.integers(0, 3, size))
    return Examples(rng.random((size, 8, 8), np.float32), rng.integers(0, 3, size))


def plain_loop(model, begin, examples, training, rng):
    """The update by torch's own optimiser on a module of its own."""
    module = model.build()
    torch.nn.utils.vector_to_parameters(torch.tensor(begin), module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=training.learning_rate, momentum=training.momentum)
    rows, counts = training.batches(len(examples), rng)
    for row, count in zip(rows, counts, strict=True):
        optimizer.zero_grad()
        features, targets = (torch.tensor(each[row[:count]]) for each in (examples.features, examples.targets))
        outputs = module(features)
        if outputs.ndim == 3:
            loss = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=0)
        else:
            loss = -outputs.log_softmax(1)[torch.arange(len(targets)), targets].mean()
        loss.backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy() - begin


def assert_close(mine, theirs):
    assert np.abs(mine - theirs).max() <= TOLERANCE * np.abs(theirs).max()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", TRAININGS)
def test_updates_are_those_of_a_plain_loop(name, training):
    model, training = MODELS[name](**OPTIONS[name]), TRAININGS[training]
    begin = model.initial(0)
    cohort = [client(name, size, size) for size in (10, 1, 7, 4)]
    updates = list(Trainer(model, training).updates(begin, cohort, [stream(1, "batches", place) for place in range(4)]))
    for place, (examples, update) in enumerate(zip(cohort, updates, strict=True)):
        assert_close(update.vector, plain_loop(model, begin, examples, training, stream(1, "batches", place)))


@pytest.mark.parametrize("name", MODELS)
def test_updates_are_minus_the_slope_of_the_loss(name):
    """Central differences of the loss in double precision, in random directions: nothing of autograd is trusted."""
    model = MODELS[name](**OPTIONS[name])
    begin, examples = model.initial(0), client(name, 5)
    trainer = Trainer(model, LocalTraining(learning_rate=1.0, batch_size=None))
    (update,) = trainer.updates(begin, [examples], [stream(1, "batches")])
    module = model.build().double()
    features = torch.tensor(examples.features)
    features = features.double() if features.is_floating_point() else features

    def loss(vector):
        torch.nn.utils.vector_to_parameters(torch.tensor(vector), module.parameters())
        with torch.no_grad():
            return float(model.loss(module(features), torch.tensor(examples.targets)))

    assert update.loss == pytest.approx(loss(begin.astype(np.float64)), rel=1e-5)
    for number in range(5):
        direction = stream(2, "direction", number).standard_normal(model.dim)
        step = 1e-5 / np.linalg.norm(direction)  # below the distance to most kinks of the rectifiers
        slope = (loss(begin + step * direction) - loss(begin - step * direction)) / (2 * step)
        scale = np.linalg.norm(update.vector.astype(np.float64)) * np.linalg.norm(direction)
        assert abs(update.vector @ direction + slope) <= 1e-4 * scale


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("name", ["mlp", "logistic"])
def test_clients_at_once_give_what_one_after_the_other_gives(name, training):
    """Many ragged clients, empty ones and single examples among them, over several groups."""
    model = MODELS[name](**OPTIONS[name])
    begin = model.initial(0)
    together, alone = Trainer(model, TRAININGS[training]), Trainer(model, TRAININGS[training])
    alone._stacked = None
    sizes = [int(size) for size in stream(3, "sizes").integers(0, 12, 150)]
    cohort = [client(name, size, place) for place, size in enumerate(sizes)]
    found = [
        list(each.updates(begin, cohort, [stream(1, "batches", place) for place in range(len(cohort))]))
        for each in (together, alone)
    ]
    assert together.group_size < len(cohort)
    for size, mine, theirs in zip(sizes, *found, strict=True):
        assert (mine.steps, mine.examples) == (theirs.steps, theirs.examples)
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-5)
        if size:
            assert_close(mine.vector, theirs.vector)
        else:
            assert not mine.vector.any() and not theirs.vector.any()
