"""A model as a vector and back: what canaries can live in, and what is refused."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from scipy.stats import norm

from coalmine.adapters.flower import Audit, LocalGrid, Statement, audited, canary_mod, client_view
from coalmine.adapters.flower.records import ArrayLayout, arrays_of
from coalmine.errors import MismatchError

FALSE_ALARM = 1e-6


def record(**arrays):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def test_a_model_as_a_vector_and_back():
    model = record(weight=np.ones((2, 3), "float32"), scale=np.asarray(7, "float64"), bias=np.zeros(2, "float32"))
    layout = ArrayLayout.of(model)
    assert layout.dim == 9
    assert layout.floats == {"weight": slice(0, 6), "scale": slice(6, 7), "bias": slice(7, 9)}
    moved = layout.moved(model, np.arange(9, dtype="float32"))
    assert layout.fits(moved)
    assert (layout.vector(moved) - layout.vector(model)).tolist() == list(range(9))
    assert [array.numpy().dtype for array in moved.values()] == ["float32", "float64", "float32"]
    assert not layout.fits(record(weight=np.ones((2, 3))))


@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0, -3e4, 6e4])
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(50,), ()])
def test_nothing_is_almost_nothing_and_not_nothing(value, kind, shape):
    model = record(weight=np.full(shape, value, kind))
    layout = ArrayLayout.of(model)
    moved = layout.vector(layout.unmoved(model, 0.1)) - layout.vector(model)  # in its own precision, as Flower does
    assert np.count_nonzero(moved) == 1
    assert 0 < moved.max() <= max(2e-7, 1e-3 * abs(value))
    assert np.linalg.norm(moved) > 0


WHOLE = (r"array 'odd' holds whole numbers \({0}\).*out of the record.*as float32", ["int64", "int32", "uint8", "bool"])
HALF = (r"array 'odd' is of kind {0}.*float32 and float64.*convert on the clients", ["float16", "complex64"])


@pytest.mark.parametrize(("kind", "message"), [(kind, said.format(kind)) for said, kinds in (WHOLE, HALF) for kind in kinds])
def test_arrays_that_no_canary_can_live_in_are_refused(kind, message):
    with pytest.raises(MismatchError, match=message):
        ArrayLayout.of(record(weight=np.ones(50, "float32"), odd=np.ones(3, kind)))


@pytest.mark.parametrize("kind", ["int64", "float16"])
def test_they_are_refused_in_the_first_round(digits, kind):
    audit = Audit(delta=1e-5, rounds=3, pool=30, secret_seed=1, statement=Statement(unused_rows=500))
    model = ArrayRecord({**digits.initial_arrays(), "odd": Array(np.ones(3, kind))})
    strategy = audited(digits.fixed_clipping(audit, 1.0), audit)
    with pytest.raises(MismatchError, match=r"array 'odd'"):
        strategy.start(LocalGrid(digits.client_app(), digits.CLIENTS), model, 3)


@pytest.mark.parametrize("kind", ["int64", "float16"])
def test_canaries_that_are_clients_refuse_them_too(kind):
    audit = Audit(delta=1e-5, rounds=3, pool=30, secret_seed=1)
    watching = client_view(audit, clip_norm=1.0, noise_multiplier=1.0, cohort=30)
    for mod in (canary_mod(audit, clip_norm=1.0, metrics={}), watching):
        errors = []

        def app(message, context, mod=mod, errors=errors):
            with pytest.raises(MismatchError) as caught:
                mod(message, context, lambda message, context: message)
            errors.append(str(caught.value))
            return message

        grid = LocalGrid(app, [{"canary-id": 0}])
        content = RecordDict({"arrays": record(weight=np.ones(500, "float32"), odd=np.ones(3, kind))})
        grid.send_and_receive([grid.create_message(content, MessageType.TRAIN, grid.get_node_ids()[0])])
        assert "array 'odd'" in errors[0]


def test_a_model_with_a_single_number_in_it(digits):
    """Its canaries are seen as they should be; two-sided false alarm 1e-6, the seeds are fixed."""
    audit = Audit(delta=1e-5, rounds=5, pool=200, secret_seed=2, statement=Statement(unused_rows=1000))
    model = ArrayRecord({"temperature": Array(np.asarray(1.0, "float32")), **digits.initial_arrays()})

    def step(arrays, own, rate):
        moved = digits.local_step(ArrayRecord({name: arrays[name] for name in digits.initial_arrays()}), own, rate)
        return ArrayRecord({"temperature": arrays["temperature"], **moved})

    strategy = audited(digits.fixed_clipping(audit, 1.0), audit)
    strategy.start(LocalGrid(digits.client_app(step=step), digits.CLIENTS), model, 5)
    estimate = next(each for each in audit.result.estimates if each.key == "gaussian-mean")
    assert abs(estimate.details["mean"] - 1.0) <= -norm.ppf(FALSE_ALARM / 2) / np.sqrt(estimate.details["count"])


def test_messages_carry_one_record_of_arrays():
    LocalGrid(lambda message, context: message, 1)
    two = Message(RecordDict({"a": record(x=[1.0]), "b": record(x=[1.0])}), dst_node_id=1, message_type=MessageType.TRAIN)
    with pytest.raises(MismatchError, match="2 records of arrays"):
        arrays_of(two)
