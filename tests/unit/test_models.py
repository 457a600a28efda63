"""Models: how many parameters, where each layer lies, the flat vector and its views, and what is refused."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from coalmine.data.vocabulary import PAD, SPECIAL
from coalmine.models import (
    MODELS,
    Model,
    chat_lstm,
    emnist_cnn,
    language,
    leaf_cnn,
    logistic,
    mlp,
    resnet18_gn,
    shakespeare_lstm,
    stack_overflow_lstm,
    text_classifier,
)
from coalmine.models.language import count_tokens, count_words, mean_token_loss
from coalmine.models.stacked import dense_shapes

SMALL = {
    "emnist-cnn": {"classes": 3, "shape": (8, 8)},
    "leaf-cnn": {"classes": 3, "shape": (8, 8)},
    "resnet18-gn": {"classes": 3, "shape": (8, 8), "groups": 2, "base": 4},
    "text-classifier": {"vocabulary": 12, "classes": 3, "embedding": 4, "hidden": 5},
    "stack-overflow-lstm": {"vocabulary": 12, "embedding": 4, "hidden": 5},
    "shakespeare-lstm": {"vocabulary": 12, "hidden": 6},
    "chat-lstm": {"vocabulary": 12, "embedding": 4, "hidden": 6, "layers": 2},
    "mlp": {"shape": (3, 4), "classes": 3, "hidden": (5, 4)},
    "logistic": {"shape": 12, "classes": 3},
    "gpt": {"vocabulary": 12, "context": 8, "width": 8, "heads": 2, "layers": 1},
}


def small(name):
    return MODELS[name](**SMALL[name])


def lstm(vocabulary, embedding, hidden):
    return vocabulary * embedding + 4 * hidden * (embedding + hidden + 1)


@pytest.mark.parametrize(
    ("model", "dim"),
    [
        (emnist_cnn(), 1_206_590),
        (emnist_cnn(classes=10), 1_199_882),
        (emnist_cnn(classes=10, shape=(32, 32, 3)), 27 * 32 + 32 + 18_496 + 128 * (64 * 14 * 14 + 1) + 1_290),
        (leaf_cnn(shape=(32, 32, 3), classes=2), 29_282),  # printed in CANIFE, as is the next
        (resnet18_gn(shape=(32, 32, 3), classes=2), 11_177_538),
        (leaf_cnn(shape=(28, 28), classes=10), 10 * 32 + 3 * 9_248 + 64 + 289 * 10),
        (text_classifier(vocabulary=50), lstm(50, 100, 100) + 4 * 100 * 201 + 202),
        (stack_overflow_lstm(), 4_050_748),
        (shakespeare_lstm(vocabulary=90), lstm(90, 8, 256) + 257 * 90),
        (shakespeare_lstm(vocabulary=90, layers=2), lstm(90, 8, 256) + 4 * 256 * 513 + 257 * 90),
        (chat_lstm(vocabulary=100), lstm(100, 64, 128) + 129 * 64 + 100),
        (chat_lstm(vocabulary=100, tied=False), lstm(100, 64, 128) + 129 * 100),
        (mlp(shape=(28, 28), classes=62), 785 * 32 + 33 * 62),
        (mlp(shape=784, classes=10, hidden=(64, 32)), 785 * 64 + 65 * 32 + 33 * 10),
        (logistic(shape=(28, 28), classes=10), 7_850),
    ],
    ids=lambda value: value.name if isinstance(value, Model) else None,
)
def test_parameters_are_counted_by_hand(model, dim):
    assert model.dim == dim
    assert sum(each.numel() for each in model.build().parameters()) == dim


@pytest.mark.parametrize("name", MODELS)
def test_groups_cut_the_vector_into_layers(name):
    model = small(name)
    assert model.name == name
    ends = [0]
    for label, group in model.groups.items():
        layer = model.build().get_submodule("" if label == name else label)  # parameters of the model itself
        assert group.start == ends[-1]
        ends.append(group.stop)
        if name != "chat-lstm" or label != "output":  # whose weight is that of the embedding
            assert group.stop - group.start == sum(each.numel() for each in layer.parameters(recurse=False))
    assert ends[-1] == model.dim


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_views_of_one_vector(name):
    model = small(name)
    flat, vector = model.flat(), model.initial(3)
    flat.put(vector)
    assert np.array_equal(flat.vector.numpy(), vector)
    assert np.array_equal(torch.cat([each.detach().flatten() for each in flat.parameters]).numpy(), vector)
    flat.vector.add_(1.0)
    assert np.array_equal(torch.cat([each.detach().flatten() for each in flat.parameters]).numpy(), vector + np.float32(1))
    named = dict(flat.module.named_parameters())
    for label, group in model.groups.items():
        own = torch.cat([each.detach().flatten() for key, each in named.items() if (key.rpartition(".")[0] or name) == label])
        assert torch.equal(own, flat.vector[group])


@pytest.mark.parametrize("name", MODELS)
def test_the_beginning_depends_on_the_seed_alone(name):
    model = small(name)
    torch.manual_seed(1)
    first = model.initial(5)
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), after), "the caller's random numbers go on undisturbed"
    torch.rand(1)
    again = pickle.loads(pickle.dumps(model)).initial(5)
    assert first.dtype == np.float32 and first.shape == (model.dim,)
    assert first.tobytes() == again.tobytes()
    assert not np.array_equal(first, model.initial(6))


def test_a_vector_of_another_size_does_not_fit():
    with pytest.raises(ValueError, match=r"shape \(38,\) does not fit 39 parameters"):
        small("logistic").flat().put(np.zeros(38, np.float32))


def test_tied_outputs_are_one_parameter():
    module = chat_lstm(vocabulary=12, embedding=4, hidden=6).flat().module
    assert module.output.weight is module.embedding.weight
    assert module.output.weight.data_ptr() == module.embedding.weight.data_ptr()


def test_special_tokens_have_one_numbering():
    assert (language.PAD, language.SPECIAL) == (PAD, SPECIAL)


def test_padding_is_in_no_loss_and_special_tokens_in_no_accuracy():
    targets = torch.tensor([[4, 2, 0], [5, 3, 1]])
    outputs = torch.zeros(2, 3, 6)
    outputs[0, 0, 4] = outputs[0, 1, 2] = outputs[1, 1, 3] = 1.0
    assert count_words(outputs, targets) == (1, 2)
    assert count_tokens(targets) == 5
    probability = torch.softmax(outputs, -1)
    wanted = [probability[row, time, targets[row, time]].log() for row, time in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2))]
    assert float(mean_token_loss(outputs, targets)) == pytest.approx(-float(sum(wanted)) / 5, rel=1e-6)
    assert float(mean_token_loss(outputs, torch.zeros_like(targets))) == 0.0


@pytest.mark.parametrize("lengths", [(7, 7, 7), (2, 5, 1), (3, 0, 3), (0, 0, 0), (4, 1, 7)])
@pytest.mark.parametrize(
    "model",
    [
        chat_lstm(vocabulary=30, embedding=5, hidden=6),
        chat_lstm(vocabulary=30, embedding=5, hidden=6, layers=2, tied=False),
        stack_overflow_lstm(vocabulary=30, embedding=5, hidden=6),
    ],
    ids=["tied", "untied", "projected"],
)
def test_a_loss_without_padding_is_the_loss(model, lengths):
    """Value and gradients, whatever part of the rows is padding, and whatever stands where no target does."""
    rng = np.random.default_rng(3)
    tokens = torch.from_numpy(rng.integers(0, 30, (3, 7)))
    targets = torch.from_numpy(rng.integers(1, 30, (3, 7)))
    for row, length in zip(targets, lengths, strict=True):
        row[length:] = PAD
    flat = model.flat()
    losses = mean_token_loss(flat.module(tokens), targets), mean_token_loss.direct(flat.module, tokens, targets)
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-6)
    usual, short = (torch.autograd.grad(loss, flat.parameters, materialize_grads=True, allow_unused=True) for loss in losses)
    for one, other in zip(usual, short, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-7)


def test_training_takes_the_loss_of_the_model_and_its_shorter_way_only_with_it():
    model, other = chat_lstm(vocabulary=9, embedding=4, hidden=4), lambda outputs, targets: outputs.sum() * 0 + 42.0
    tokens = torch.ones(2, 3, dtype=torch.int64)
    assert replace(model, loss=other).training_loss(model.flat().module, tokens, tokens).item() == 42.0
    embedded = nn.Embedding(9, 9)  # a module of another kind goes the long way
    usual = mean_token_loss(embedded(tokens), tokens)
    assert model.training_loss(embedded, tokens, tokens).item() == usual.item()


def test_the_image_model_is_the_usual_one_with_the_hidden_layer_permuted():
    model = emnist_cnn(classes=3, shape=(10, 8))
    flat = model.flat()
    flat.put(model.initial(0))
    mine = flat.module
    usual = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    usual.extend([nn.Linear(64 * 3 * 2, 128), nn.ReLU(), nn.Linear(128, 3)])
    with torch.no_grad():
        for theirs, ours in ((usual[0], mine.conv1), (usual[2], mine.conv2), (usual[6], mine.hidden), (usual[8], mine.output)):
            theirs.load_state_dict(ours.state_dict())
        usual[6].weight.copy_(mine.hidden.weight.view(128, 3, 2, 64).permute(0, 3, 1, 2).flatten(1))
        features = torch.rand(5, 10, 8)
        assert torch.allclose(mine(features), usual(features.unsqueeze(1)), atol=1e-5)


def test_the_recurrent_layer_is_the_usual_one_with_one_bias():
    torch.manual_seed(0)
    mine, usual = language.Lstm(3, 5), nn.LSTM(3, 5)
    with torch.no_grad():
        for theirs, ours in zip(usual.parameters(), [mine.weight_ih, mine.weight_hh, mine.bias, mine.zeros], strict=True):
            theirs.copy_(ours)
    inputs = torch.rand(7, 2, 3)
    assert torch.allclose(mine(inputs), usual(inputs)[0], atol=1e-6)


def test_features_become_what_the_model_takes():
    numbers, tokens, any_kind = small("mlp"), small("chat-lstm"), Model("mine", nn.Identity)
    grey = np.array([[0, 51, 255]], np.uint8)
    assert np.allclose(numbers.inputs(grey), [[0, 0.2, 1]]) and numbers.inputs(grey).dtype == np.float32
    assert numbers.inputs(grey.astype(np.int64)).tolist() == [[0.0, 51.0, 255.0]]
    assert tokens.inputs(grey).tolist() == [[0, 51, 255]] and tokens.inputs(grey).dtype == np.int64
    assert any_kind.inputs(grey).dtype == np.float32
    assert any_kind.inputs(grey.astype(np.int32)).dtype == np.int64
    same = np.ones((2, 2), np.float32)
    assert numbers.inputs(same) is same or np.shares_memory(numbers.inputs(same), same)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), r"the layer '1' \(BatchNorm1d\) keeps running averages"),
        (lambda: nn.ReLU(), "has no trainable parameter"),
        (lambda: nn.LazyLinear(2), "'weight' has no shape yet"),
        (lambda: nn.Linear(2, 2).double(), r"'weight' is torch.float64 on cpu; float32 on cpu is needed"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_modules_that_cannot_be_a_flat_vector_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        _ = Model("mine", build).dim


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: emnist_cnn(classes=1), "classes=1 is not allowed"),
        (lambda: emnist_cnn(shape=(28,)), r"shape=\(28,\) is not allowed"),
        (lambda: emnist_cnn(shape=(5, 28)), "at least 6 each"),
        (lambda: chat_lstm(vocabulary=4), "vocabulary=4 is not allowed"),
        (lambda: mlp(shape=(0,), classes=2), "shape=0 is not allowed"),
        (lambda: mlp(shape=4, classes=2, hidden=(0,)), "hidden=0 is not allowed"),
        (lambda: Model("mine", nn.Identity, features="words"), "features='words' is not allowed"),
    ],
)
def test_options_out_of_range_are_refused(construct, message):
    with pytest.raises(ValueError, match=message):
        construct()


def test_parameters_that_do_not_train_are_the_same_wherever_they_are_built():
    def build():
        module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        module[0].requires_grad_(False)
        return module

    model = Model("head", build)
    assert model.dim == 10 and model.groups == {"2": slice(0, 10)}
    assert torch.equal(model.flat().module[0].weight, model.flat().module[0].weight)


@pytest.mark.parametrize(
    ("layers", "stacked"),
    [
        ([nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)], True),
        ([nn.Flatten(), nn.Linear(4, 2)], True),
        ([nn.Flatten(2), nn.Linear(4, 2)], False),
        ([nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)], False),
        ([nn.Linear(4, 3), nn.ReLU()], False),
        ([nn.Linear(4, 3), nn.Linear(3, 2)], False),
        ([nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)], False),
        ([], False),
    ],
)
def test_plain_dense_layers_are_recognised(layers, stacked):
    module = nn.Sequential(*layers)
    assert (dense_shapes(Model("mine", lambda: module), module) is not None) == stacked
    assert dense_shapes(Model("mine", lambda: module, nn.functional.multi_margin_loss), module) is None
