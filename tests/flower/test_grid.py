"""The grid in this process: what strategies and ClientApps expect of one."""

import random
import sys

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from coalmine.adapters.flower import Audit, LocalGrid, Statement


@pytest.fixture
def counting_app():
    app = ClientApp()

    @app.train()
    def train(message, context):
        seen = context.state.config_records.get("seen", ConfigRecord({"times": 0}))
        seen["times"] += 1
        context.state["seen"] = seen
        del message.content["config"]["stage"]  # as secure aggregation does
        found = {"times": seen["times"], "partition": context.node_config["partition-id"], "rate": context.run_config["rate"]}
        return Message(RecordDict({"found": ConfigRecord(found)}), reply_to=message)

    return app


def messages(grid):
    content = RecordDict({"config": ConfigRecord({"stage": "one"})})  # one record for all, as strategies do
    return [grid.create_message(content, MessageType.TRAIN, node, "1") for node in grid.get_node_ids()]


def test_nodes_have_a_memory_a_partition_and_a_record_of_their_own(counting_app):
    grid = LocalGrid(counting_app, 3, {"rate": 0.5})
    for times in (1, 2):
        replies = grid.send_and_receive(messages(grid), timeout=1.0)
        assert [dict(reply.content["found"].items()) for reply in replies] == [
            {"times": times, "partition": place, "rate": 0.5} for place in range(3)
        ]
        assert [reply.metadata.src_node_id for reply in replies] == grid.get_node_ids()


def test_what_a_client_raises_comes_back_as_an_error(counting_app):
    grid = LocalGrid(counting_app, 2)  # without the run configuration that it reads
    replies = grid.send_and_receive(messages(grid))
    assert [reply.has_error() for reply in replies] == [True, True]
    assert "KeyError" in replies[0].error.reason


def test_replies_wait_until_they_are_pulled(counting_app):
    grid = LocalGrid(counting_app, [{"partition-id": 8}, {"partition-id": 9}], {"rate": 1.0})
    grid.silent = {0}
    names = grid.push_messages(messages(grid))
    assert [reply.content["found"]["partition"] for reply in grid.pull_messages(names)] == [9]
    assert list(grid.pull_messages(names)) == []
    assert grid.run.run_id == 1
    grid.set_run(2)


def test_a_grid_has_nodes(counting_app):
    with pytest.raises(ValueError, match="nodes=0"):
        LocalGrid(counting_app, 0)


@pytest.fixture
def drawing_app():
    """Clients that seed the global generators, or do not, and then draw from them."""

    def made(seed=None):
        app = ClientApp()

        @app.train()
        def train(message, context):
            if seed is not None:
                np.random.seed(seed)
                random.seed(seed)
            found = {"numpy": float(np.random.random()), "python": random.random()}
            return Message(RecordDict({"found": ConfigRecord(found)}), reply_to=message)

        return app

    return made


def drawn(app, times=2):
    """What two nodes drew, and what the server draws after each time."""
    np.random.seed(7)
    random.seed(7)
    grid, clients, server = LocalGrid(app, 2), [], []
    for _ in range(times):
        replies = grid.send_and_receive(messages(grid))
        clients.append([tuple(reply.content["found"].values()) for reply in replies])
        server.append((np.random.random(), random.random()))
    return clients, server


def test_what_the_server_draws_does_not_depend_on_its_clients(drawing_app):
    np.random.seed(7)
    random.seed(7)
    alone = [(np.random.random(), random.random()) for _ in range(2)]
    assert drawn(drawing_app())[1] == alone
    assert drawn(drawing_app(seed=42))[1] == alone


def test_a_client_that_raises_leaves_the_servers_generators_alone():
    def app(message, context):
        np.random.seed(42)
        raise RuntimeError("the battery is empty")

    np.random.seed(7)
    alone = np.random.random()
    np.random.seed(7)
    grid = LocalGrid(app, 1)
    assert grid.send_and_receive(messages(grid))[0].has_error()
    assert np.random.random() == alone


def test_nodes_draw_numbers_of_their_own_that_can_be_repeated(drawing_app):
    clients, server = drawn(drawing_app())
    for place in range(2):  # NumPy's and Python's
        numbers = [client[place] for round_ in clients for client in round_] + [after[place] for after in server]
        assert len(set(numbers)) == len(numbers)
    assert drawn(drawing_app()) == (clients, server)
    seeded, _ = drawn(drawing_app(seed=42))
    assert len({client for round_ in seeded for client in round_}) == 1  # a client that seeds gets what it asked for


class Torch:
    """As much of PyTorch as the grid knows: a default generator."""

    def __init__(self):
        self.default_generator, self.state = self, 1

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state

    def manual_seed(self, seed):
        self.state = seed


def test_pytorchs_generator_too_where_it_is_loaded(monkeypatch):
    torch, seen = Torch(), []
    monkeypatch.setitem(sys.modules, "torch", torch)

    def app(message, context):
        seen.append(torch.state)
        torch.state += 1
        return message

    grid = LocalGrid(app, 2)
    for _ in range(2):
        grid.send_and_receive(messages(grid))
    first, second, *later = seen
    assert torch.state == 1
    assert len({torch.state, first, second}) == 3
    assert later == [first + 1, second + 1]


def test_pytorch_may_be_loaded_by_a_client(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    def app(message, context):
        monkeypatch.setitem(sys.modules, "torch", Torch())
        return message

    grid = LocalGrid(app, 2)
    for _ in range(2):
        assert not any(reply.has_error() for reply in grid.send_and_receive(messages(grid)))


@pytest.mark.parametrize("seed", [None, 42])
def test_clients_that_seed_numpy_do_not_make_a_correct_application_guilty(digits, seed):
    """Noise of every round from one seed would be known after the first. A correct application is VIOLATED in at most 5 %."""
    audit = Audit(delta=1e-5, rounds=5, pool=100, secret_seed=61, statement=Statement(unused_rows=1000))

    def step(arrays, own, rate):
        if seed is not None:
            np.random.seed(seed)
        return digits.local_step(arrays, own, rate)

    result = digits.train(digits.fixed_clipping(audit, 1.0), audit, digits.client_app(step=step))
    assert result.verdict.word != "VIOLATED"
