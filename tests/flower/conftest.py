"""A Flower application of a few lines: real images of digits, a small network in NumPy, local SGD, mean of the updates."""

import logging
import random
import sys

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from coalmine import data
from coalmine._random import stream
from coalmine.adapters.flower import LocalGrid, audited

HIDDEN = 96
CLASSES = 10
SIDE = 64
CLIENTS = 20
DIM = SIDE * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES

logging.getLogger("flwr").setLevel(logging.ERROR)


@pytest.fixture(scope="session")
def digits():
    """This file, for tests."""
    return sys.modules[__name__]


@pytest.fixture(autouse=True)
def own_noise(request):
    """The same noise and samples in every run of a test."""
    seed(len(request.node.name) + sum(request.node.name.encode()))


def seed(number):
    """Flower draws its noise from NumPy's global generator, and clients from Python's."""
    np.random.seed(number)
    random.seed(number)


def initial_arrays(seed=0):
    rng = stream(seed, "model")
    arrays = {
        "hidden.weight": rng.standard_normal((SIDE, HIDDEN)) / 8,
        "hidden.bias": np.zeros(HIDDEN),
        "out.weight": rng.standard_normal((HIDDEN, CLASSES)) / 10,
        "out.bias": np.zeros(CLASSES),
    }
    return ArrayRecord({name: Array(value.astype(np.float32)) for name, value in arrays.items()})


def examples():
    """The images of every client."""
    found = data.read("digits", group=80)
    return [found.examples_of(user) for user in found.users[:CLIENTS]]


EXAMPLES = examples()


def local_step(arrays, own, rate):
    """One pass of gradient descent over a client's images."""
    weight, bias, out, out_bias = (arrays[name].numpy().copy() for name in arrays)
    pixels = own.features.reshape(len(own.features), -1)
    for part in range(0, len(pixels), 20):
        x, y = pixels[part : part + 20], own.targets[part : part + 20]
        hidden = np.maximum(x @ weight + bias, 0)
        logits = hidden @ out + out_bias
        chance = np.exp(logits - logits.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        chance[np.arange(len(y)), y] -= 1
        chance /= len(y)
        back = (chance @ out.T) * (hidden > 0)
        out -= rate * hidden.T @ chance
        out_bias -= rate * chance.sum(axis=0)
        weight -= rate * x.T @ back
        bias -= rate * back.sum(axis=0)
    return ArrayRecord({name: Array(value) for name, value in zip(arrays, (weight, bias, out, out_bias), strict=True)})


def client_app(
    mods=(), num_examples=lambda partition: 1, rate=0.2, fails=lambda partition, round_number: False, step=local_step
):
    """A ClientApp; by default every client says that it has one example, so that all weigh the same."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        partition = int(context.node_config["partition-id"])
        if fails(partition, int(message.content["config"]["server-round"])):
            raise RuntimeError("the battery is empty")
        arrays = step(message.content["arrays"], EXAMPLES[partition % len(EXAMPLES)], rate)
        metrics = MetricRecord({"num-examples": num_examples(partition), "loss": 0.5 + partition})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def fed_avg(clients=CLIENTS, **options):
    return FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients, **options)


def fixed_clipping(audit, noise, clip=0.3, clients=CLIENTS, inner=None):
    return DifferentialPrivacyServerSideFixedClipping(
        inner or fed_avg(clients), noise_multiplier=noise, clipping_norm=clip, num_sampled_clients=clients + audit.places
    )


def train(strategy, audit, app=None, clients=CLIENTS, mods=()):
    grid = LocalGrid(app or client_app(mods=mods), clients)
    wrapped = audited(strategy, audit, mods=mods)
    wrapped.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=audit.rounds)
    return audit.result


def rounds(strategy, audit, number, app=None, clients=CLIENTS):
    """The first rounds of a training, which then stops."""
    grid, wrapped, arrays = LocalGrid(app or client_app(), clients), audited(strategy, audit), initial_arrays()
    for place in range(1, number + 1):
        replies = grid.send_and_receive(wrapped.configure_train(place, arrays, ConfigRecord(), grid))
        arrays, _ = wrapped.aggregate_train(place, replies)


def accountant():
    """Flower's own, where this version has one."""
    serverapp = pytest.importorskip("flwr.serverapp")
    if not hasattr(serverapp, "PrivacyConfig"):
        pytest.skip("this flwr has no accountant")
    settings = serverapp.PrivacyConfig(
        target_delta=1e-5,
        population_size=100,
        neighboring_relation=serverapp.NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=serverapp.SamplingMethod.NO_AMPLIFICATION,
    )
    return serverapp.RdpAccountant(settings)
