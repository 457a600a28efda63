"""Local training: what a client may ask for, batches, bits that repeat, evaluation, modules of one's own."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from coalmine._random import stream
from coalmine.clients import Evaluation, LocalTraining, Trainer
from coalmine.data.dataset import Examples
from coalmine.models import Model, chat_lstm, emnist_cnn, gpt, logistic, mlp

pytestmark = pytest.mark.usefixtures("one_thread")

SCRIPT = """
import hashlib, numpy as np
from coalmine._random import stream
from coalmine.clients import LocalTraining, Trainer, quiet_threads
from coalmine.data.dataset import Examples
from coalmine.models import chat_lstm, emnist_cnn, mlp


quiet_threads()
MODELS = [mlp(shape=(8, 8), classes=3, hidden=(20, 9)), emnist_cnn(classes=3, shape=(8, 8)), chat_lstm(vocabulary=12)]

def cohort(model):
    for size in (20, 0, 5, 33, 16, 1):
        rng = stream(0, "client", size)
        if model.name == "chat-lstm":
            windows = rng.integers(1, 12, (size, 9))
            yield Examples(windows[:, :-1].copy(), windows[:, 1:].copy())
        else:
            yield Examples(rng.random((size, 8, 8), np.float32), rng.integers(0, 3, size))

def digest():
    found = hashlib.sha256()
    for model in MODELS:
        trainer = Trainer(model, LocalTraining(learning_rate=0.1, batch_size=8, epochs=2, momentum=0.5))
        for update in trainer.updates(model.initial(0), list(cohort(model)), [stream(1, "batches", i) for i in range(6)]):
            found.update(update.vector.tobytes() + repr(update.loss).encode())
    return found.hexdigest()
"""


def images(size, number=0, dtype=np.float32):
    rng = stream(0, "images", number)
    features = rng.integers(0, 256, (size, 4, 4)).astype(np.uint8)
    return Examples(features if dtype == np.uint8 else (features / np.float32(255)).astype(dtype), rng.integers(0, 3, size))


def rngs(count):
    return [stream(1, "batches", place) for place in range(count)]


SMALL = mlp(shape=(4, 4), classes=3, hidden=(5,))


def test_one_thread():
    assert torch.get_num_threads() == 1


def test_bits_repeat_here_and_in_another_process():
    names: dict = {}
    exec(compile(SCRIPT, "script", "exec"), names)
    here = names["digest"]()
    assert here == names["digest"]()
    shown = subprocess.run([sys.executable, "-c", SCRIPT + "\nprint(digest())"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == here


@pytest.mark.parametrize("model", [SMALL, emnist_cnn(classes=3, shape=(8, 8))], ids=lambda model: model.name)
def test_a_group_depends_on_itself_alone(model):
    """What was trained before, and what is trained after it in the same call, leaves no trace."""
    side = 4 if model is SMALL else 8
    cohort = [Examples(stream(0, "x", n).random((n, side, side), np.float32), np.arange(n) % 3) for n in (5, 30, 0, 17)] * 40
    trainer = Trainer(model, LocalTraining(learning_rate=0.1, momentum=0.9))
    size = trainer.group_size
    cohort = cohort[: 2 * size + 1]
    begin, chance = model.initial(0), rngs(len(cohort))
    whole = [update.vector.tobytes() for update in trainer.updates(begin, cohort, chance)]
    other = pickle.loads(pickle.dumps(trainer))
    chance = rngs(len(cohort))
    parts = [slice(start, start + size) for start in (2 * size, size, 0)]
    found = {
        part.start: [update.vector.tobytes() for update in other.updates(begin, cohort[part], chance[part])] for part in parts
    }
    assert [vector for start in sorted(found) for vector in found[start]] == whole


def test_random_layers_draw_from_the_clients_generator():
    model = Model("mine", lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.5), nn.Linear(8, 3)))
    trainer, begin, cohort = Trainer(model, LocalTraining(learning_rate=0.1)), model.initial(0), [images(20), images(20)]
    torch.manual_seed(7)
    first, second = trainer.updates(begin, cohort, rngs(2))
    after = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(3), after)
    again = next(iter(trainer.updates(begin, cohort[1:], rngs(2)[1:])))
    assert second.vector.tobytes() == again.vector.tobytes() != first.vector.tobytes()


def test_the_order_of_examples_is_the_generators_alone():
    trainer, begin = Trainer(SMALL, LocalTraining(learning_rate=0.1, batch_size=2)), SMALL.initial(0)
    one, two = (next(iter(trainer.updates(begin, [images(9)], [stream(seed, "batches")]))).vector for seed in (0, 1))
    assert not np.array_equal(one, two)


@pytest.mark.parametrize("examples", [1, 2, 5, 16, 17])
@pytest.mark.parametrize(
    "options", [{}, {"epochs": 3}, {"batch_size": None}, {"max_steps": 2}, {"max_examples": 4, "epochs": 2}]
)
def test_every_epoch_takes_every_example_once(examples, options):
    training = LocalTraining(**({"learning_rate": 0.1, "batch_size": 4} | options))
    rows, counts = training.batches(examples, stream(0, "batches"))
    kept = min(examples, training.max_examples or examples)
    in_epoch = 1 if training.batch_size is None else -(-kept // min(training.batch_size, kept))
    assert len(rows) == len(counts) == min(training.epochs * in_epoch, training.max_steps or 10**9)
    taken = [row[:count].tolist() for row, count in zip(rows, counts, strict=True)]
    for start in range(0, len(taken), in_epoch):
        epoch = [each for batch in taken[start : start + in_epoch] for each in batch]
        assert len(set(epoch)) == len(epoch)
        if start + in_epoch <= len(taken):
            assert len(epoch) == kept
    if training.max_examples and not training.max_steps:
        assert len({each for batch in taken for each in batch}) == kept


@pytest.mark.parametrize("model", [SMALL, Model("mine", lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False)))])
def test_a_client_without_examples_gives_zeros(model):
    (update,) = Trainer(model, LocalTraining(learning_rate=0.1)).updates(model.initial(0), [images(0)], rngs(1))
    assert update.vector.shape == (model.dim,) and update.vector.dtype == np.float32 and not update.vector.any()
    assert (update.loss, update.examples, update.steps) == (0.0, 0, 0)


@pytest.mark.parametrize("way", ["together", "alone"])
def test_features_of_any_kind_train_alike(way):
    trainer, begin = Trainer(SMALL, LocalTraining(learning_rate=0.1, batch_size=4)), SMALL.initial(0)
    if way == "alone":
        trainer._stacked = None
    found = [
        next(trainer.updates(begin, [images(9, dtype=kind)], rngs(1))).vector for kind in (np.float32, np.float64, np.uint8)
    ]
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_arrays_that_must_not_be_written_are_not_written():
    examples = images(9)
    before = examples.features.copy()
    for array in (examples.features, examples.targets):
        array.flags.writeable = False
    for training in (LocalTraining(learning_rate=0.1), LocalTraining(learning_rate=0.1, batch_size=None)):
        for stacked in (True, False):
            trainer = Trainer(SMALL, training)
            if not stacked:
                trainer._stacked = None
            list(trainer.updates(SMALL.initial(0), [examples], rngs(1)))
            trainer.evaluate(SMALL.initial(0), examples)
    assert np.array_equal(examples.features, before)


def test_parameters_handed_in_stay_as_they_are():
    begin = SMALL.initial(0)
    for stacked in (True, False):
        trainer = Trainer(SMALL, LocalTraining(learning_rate=0.5, momentum=0.9, batch_size=2))
        if not stacked:
            trainer._stacked = None
        updates = [*trainer.updates(begin, [images(9)], rngs(1)), *trainer.updates(begin, [images(9), images(4, 1)], rngs(2))]
        assert all(update.vector.any() for update in updates)
        trainer.evaluate(begin, images(3))
        kept = [update.vector.copy() for update in updates]
        list(trainer.updates(begin + 1, [images(9)], rngs(1)))
        assert all(np.array_equal(update.vector, copy) for update, copy in zip(updates, kept, strict=True))
        assert np.array_equal(begin, SMALL.initial(0))


def test_a_module_and_a_loss_of_ones_own():
    """Regression by least squares: one step from zero goes along the mean of target times features."""

    def squared(outputs, targets):
        return ((outputs.squeeze(1) - targets) ** 2).mean() / 2

    model = Model("line", lambda: nn.Linear(2, 1, bias=False), squared, lambda outputs, targets: (0, 0))
    features, targets = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.5, 1.5])
    trainer = Trainer(model, LocalTraining(learning_rate=1.0, batch_size=None))
    (update,) = trainer.updates(np.zeros(2), [Examples(features, targets)], rngs(1))
    assert np.allclose(update.vector, targets @ features / 2)
    assert update.loss == pytest.approx((targets**2).mean() / 2)
    evaluation = trainer.evaluate(np.zeros(2), Examples(features, targets))
    assert evaluation.loss == pytest.approx(update.loss) and np.isnan(evaluation.accuracy)


def test_parameters_that_are_not_used_stay():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(16, 3), nn.Linear(2, 2)

        def forward(self, features):
            return self.used(features.flatten(1))

    model = Model("half", Half)
    for momentum in (0.0, 0.9):
        trainer = Trainer(model, LocalTraining(learning_rate=0.1, momentum=momentum))
        (update,) = trainer.updates(model.initial(0), [images(20)], rngs(1))
        assert not update.vector[model.groups["idle"]].any() and update.vector[model.groups["used"]].all()


def test_buffers_that_training_changes_are_refused():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 3)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, features):
            if self.training:
                self.seen += len(features)
            return self.layer(features.flatten(1))

    model = Model("counting", Counting)
    with pytest.raises(ValueError, match="training changed the buffer 'seen'"):
        list(Trainer(model, LocalTraining(learning_rate=0.1)).updates(model.initial(0), [images(3)], rngs(1)))


def test_updates_that_are_not_finite_are_handed_on():
    examples = Examples(np.full((3, 4, 4), np.inf, np.float32), np.zeros(3, np.int64))
    for stacked in (True, False):
        trainer = Trainer(SMALL, LocalTraining(learning_rate=0.1))
        if not stacked:
            trainer._stacked = None
        broken, whole = trainer.updates(SMALL.initial(0), [examples, images(5)], rngs(2))
        assert np.isnan(broken.vector).any() and np.isfinite(whole.vector).all()


def test_evaluation_sums_what_counts():
    model = logistic(shape=2, classes=3)
    examples = Examples(stream(0, "x").random((300, 2), np.float32), stream(0, "y").integers(0, 3, 300))
    trainer, vector = Trainer(model, LocalTraining(learning_rate=0.1)), model.initial(0)
    found = trainer.evaluate(vector, examples)
    logits = examples.features @ vector[:6].reshape(3, 2).T + vector[6:]
    log_probability = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert found.loss == pytest.approx(-log_probability[np.arange(300), examples.targets].mean(), rel=1e-5)
    assert (found.correct, found.counted) == ((logits.argmax(1) == examples.targets).sum(), 300)
    halves = [
        trainer.evaluate(vector, Examples(examples.features[part], examples.targets[part]))
        for part in np.split(np.arange(300), 2)
    ]
    together = halves[0] + halves[1]
    assert (together.correct, together.counted, together.terms) == (found.correct, 300, 300)
    assert together.loss_sum == pytest.approx(found.loss_sum)
    assert np.isnan(Evaluation().loss)


def test_evaluation_of_a_language_model_does_not_depend_on_how_it_is_cut():
    model = chat_lstm(vocabulary=12, embedding=4, hidden=6)
    windows = stream(0, "w").integers(0, 12, (130, 6))
    windows[40:50] = 0
    trainer, vector = Trainer(model, LocalTraining(learning_rate=0.1)), model.initial(0)
    found = trainer.evaluate(vector, Examples(windows[:, :-1], windows[:, 1:]))
    single = sum((trainer.evaluate(vector, Examples(row[None, :-1], row[None, 1:])) for row in windows), Evaluation())
    assert (found.terms, found.counted) == (int((windows[:, 1:] > 0).sum()), int((windows[:, 1:] > 3).sum()))
    assert (single.terms, single.correct, single.counted) == (found.terms, found.correct, found.counted)
    assert single.loss == pytest.approx(found.loss, rel=1e-5)


def test_training_learns():
    """Two clouds of points, told apart after a few steps."""
    rng = stream(0, "clouds")
    targets = rng.integers(0, 2, 400)
    examples = Examples((rng.standard_normal((400, 2)) + 3 * targets[:, None]).astype(np.float32), targets)
    model = mlp(shape=2, classes=2, hidden=(8,))
    trainer, vector = Trainer(model, LocalTraining(learning_rate=0.1, epochs=3)), model.initial(0)
    (update,) = trainer.updates(vector, [examples], rngs(1))
    assert trainer.evaluate(vector + update.vector, examples).accuracy > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate=0.0 is not allowed"),
        ({"learning_rate": float("nan")}, "learning_rate is NaN"),
        ({"epochs": 0}, "epochs=0 is not allowed"),
        ({"batch_size": 0}, "batch_size=0 is not allowed"),
        ({"momentum": 1.0}, "momentum=1.0 is not allowed"),
        ({"max_steps": 0}, "max_steps=0 is not allowed"),
        ({"max_examples": 2.5}, "max_examples=2.5 is not allowed"),
    ],
)
def test_trainings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LocalTraining(**({"learning_rate": 0.1} | options))


def test_what_does_not_fit_is_refused():
    trainer = Trainer(SMALL, LocalTraining(learning_rate=0.1))
    with pytest.raises(ValueError, match="2 clients do not fit 1 generators"):
        list(trainer.updates(SMALL.initial(0), [images(3)] * 2, rngs(1)))
    with pytest.raises(ValueError, match=r"parameters of shape \(3,\) do not fit mlp, which has 103"):
        list(trainer.updates(np.zeros(3), [images(3)], rngs(1)))
    wrong = Examples(np.zeros((2, 5), np.float32), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="features of 5 numbers do not fit mlp, which takes 16"):
        list(trainer.updates(SMALL.initial(0), [wrong], rngs(1)))


SINGLE = {
    "mlp": (mlp(shape=(8, 8), classes=3), False),
    "cnn": (emnist_cnn(classes=3, shape=(8, 8)), False),
    "lstm": (chat_lstm(vocabulary=12, embedding=4, hidden=6), True),
    "gpt": (gpt(vocabulary=12), True),
}


@pytest.mark.parametrize("name", SINGLE)
def test_updates_of_single_examples_are_those_of_clients_with_one(name):
    """Layers that torch cannot vectorise over examples are differentiated one by one."""
    (model, texts), rng = SINGLE[name], stream(0, "single", name)
    windows = rng.integers(1, 12, (4, 9))
    shown = Examples(rng.random((4, 8, 8), np.float32), rng.integers(0, 3, 4))
    every = Examples(windows[:, :-1].copy(), windows[:, 1:].copy()) if texts else shown
    trainer, parameters = Trainer(model, LocalTraining(learning_rate=0.5, batch_size=None)), model.initial(0)
    alone = [Examples(every.features[i : i + 1], every.targets[i : i + 1]) for i in range(4)]
    known = [update.vector for update in trainer.updates(parameters, alone, [stream(0, "order", i) for i in range(4)])]
    assert trainer.single_updates(parameters, every) == pytest.approx(np.array(known), abs=1e-6)
    assert np.abs(known).max() > 1e-3
