"""The grid in this process: what strategies and ClientApps expect of one."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from coalmine.adapters.flower import LocalGrid
from coalmine.adapters.flower.records import Layout, arrays_of
from coalmine.errors import MismatchError


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


def record(**arrays):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def test_a_model_as_a_vector_and_back():
    model = record(weight=np.ones((2, 3), "float32"), count=np.array(7), bias=np.zeros(2, "float32"))
    layout = Layout.of(model)
    assert layout.dim == 8
    assert layout.floats == {"weight": slice(0, 6), "bias": slice(6, 8)}
    moved = layout.moved(model, np.arange(8, dtype="float32"))
    assert layout.fits(moved)
    assert (layout.vector(moved) - layout.vector(model)).tolist() == list(range(8))
    assert moved["count"].numpy() == 7
    assert moved["weight"].numpy().dtype == np.float32
    assert not layout.fits(record(weight=np.ones((2, 3))))


@pytest.mark.parametrize("value", [0.0, 1.0, -3e4, 6e4])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_nothing_is_almost_nothing_and_not_nothing(value, kind):
    model = record(weight=np.full(50, value, kind))
    layout = Layout.of(model)
    moved = layout.vector(layout.unmoved(model, 0.1)).astype(float) - layout.vector(model).astype(float)
    assert np.count_nonzero(moved) == 1
    assert 0 < moved.max() <= max(2e-7, 1e-3 * abs(value))


def test_messages_carry_one_record_of_arrays():
    LocalGrid(lambda message, context: message, 1)
    two = Message(RecordDict({"a": record(x=[1.0]), "b": record(x=[1.0])}), dst_node_id=1, message_type=MessageType.TRAIN)
    with pytest.raises(MismatchError, match="2 records of arrays"):
        arrays_of(two)
