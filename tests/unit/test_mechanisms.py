"""Clipping, noise, order-free sums, adaptive clipping; the server's optimisers."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine._random import stream
from coalmine.contracts import Contribution, Public
from coalmine.errors import NonFiniteError
from coalmine.mechanisms import AdaptiveGaussian, FixedPointSum, Gaussian
from coalmine.mechanisms.gaussian import length
from coalmine.training.server import ServerAdam, ServerSGD

SECRET = partial(stream, 5)
PUBLIC = Public(round=3, clip_norm=2.0, denominator=10.0)


def total_of(vectors, clip_norm=2.0, unclipped=0):
    total = FixedPointSum(len(vectors[0]), clip_norm)
    for vector in vectors:
        total.add(Contribution(np.asarray(vector), unclipped=bool(unclipped)))
    return total


@given(st.permutations(range(7)), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_a_sum_depends_neither_on_order_nor_on_grouping(order, cut):
    vectors = [stream(1, "v", number).standard_normal(50).astype(np.float32) for number in range(7)]
    plain = total_of(vectors)
    left, right = total_of([vectors[i] for i in order[:cut]]), total_of([vectors[i] for i in order[cut:]])
    left.merge(right)
    assert np.array_equal(plain.total(), left.total())
    assert left.count == 7
    assert np.allclose(plain.vector(), np.sum(vectors, axis=0, dtype=np.float64), atol=7 * 2.0 * 2**-40)


def test_a_sum_survives_the_way_to_another_process():
    import pickle

    total = pickle.loads(pickle.dumps(total_of([[1.0, 2.0]])))
    total.add(Contribution(np.array([1.0, 1.0])))
    assert total.vector().tolist() == [2.0, 3.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_contribution_that_does_not_fit_is_refused(bad):
    total = FixedPointSum(3, 1.0)
    with pytest.raises(NonFiniteError, match="not added"):
        total.add(Contribution(np.array([0.0, bad, 0.0])))
    assert total.count == 0 and not total.total().any()


def test_clipping_cuts_what_is_too_long_and_nothing_else():
    mechanism = Gaussian(2.0, 0.0)
    short, long = np.array([0.6, 0.8], np.float32), np.array([3e4, 4e4], np.float32)
    kept = mechanism.client(short, PUBLIC)
    assert kept.unclipped and np.array_equal(kept.vector, short)
    cut = mechanism.client(long, PUBLIC)
    assert not cut.unclipped
    assert np.allclose(cut.vector, [1.2, 1.6], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_refused_with_its_place(bad):
    update = np.zeros(10, np.float32)
    update[4] = bad
    with pytest.raises(NonFiniteError, match="first at coordinate 4"):
        Gaussian(1.0, 1.0).client(update, PUBLIC)


def test_noise_has_the_stated_size_and_is_new_every_round():
    """Standard deviation of 200,000 normals: 5 standard errors, false-alarm rate 6e-7."""
    dim, noise = 200_000, 0.7
    mechanism = Gaussian(2.0, noise)
    first, _ = mechanism.release({}, FixedPointSum(dim, 2.0), PUBLIC, SECRET)
    again, _ = mechanism.release({}, FixedPointSum(dim, 2.0), PUBLIC, SECRET)
    other, _ = mechanism.release({}, FixedPointSum(dim, 2.0), Public(4, 2.0, 10.0), SECRET)
    expected = noise * 2.0 / 10.0
    assert abs(first.vector.std() / expected - 1) < 5 / np.sqrt(2 * dim)
    assert np.array_equal(first.vector, again.vector)
    assert abs(np.corrcoef(first.vector, other.vector)[0, 1]) < 5 / np.sqrt(dim)


def test_a_long_vector_has_its_noise_block_by_block():
    """What is drawn for a coordinate does not depend on how long the vector is beyond its block."""
    mechanism = Gaussian(1.0, 1.0)
    long = mechanism.noise((1 << 20) + 5, PUBLIC, SECRET)
    assert np.array_equal(long[1 << 20 :], SECRET("noise", 3, 1).standard_normal(5))


def test_the_mean_is_divided_by_the_expected_cohort_unless_told_otherwise():
    total = total_of([[1.0, 0.0], [1.0, 0.0]])
    assert Gaussian(2.0, 0.0).release({}, total, PUBLIC, SECRET)[0].vector.tolist() == [0.2, 0.0]
    flagged = Gaussian(2.0, 0.0, divide_by_actual_cohort=True)
    assert flagged.release({}, total, PUBLIC, SECRET)[0].vector.tolist() == [1.0, 0.0]
    assert flagged.describe().denominator == "realised"
    assert Gaussian(2.0, 0.0).describe().denominator == "expected"


@pytest.mark.parametrize(("noise", "count_noise"), [(0.5, 2.0), (1.0, 0.6), (3.0, 10.0)])
def test_adaptive_clipping_pays_for_the_count(noise, count_noise):
    """The two releases compose to the stated noise: 1/z² = 1/z_Delta² + 1/(2 sigma_b)² (Andrew et al. 2021, Theorem 1)."""
    mechanism = AdaptiveGaussian(1.0, noise, count_noise=count_noise)
    assert mechanism.update_noise_multiplier > noise
    assert mechanism.update_noise_multiplier**-2 + (2 * count_noise) ** -2 == pytest.approx(noise**-2, rel=1e-12)


def test_adaptive_clipping_follows_the_quantile():
    """Norms are 1 … 100 without noise: the clip norm comes near their median, from unclipped and from above."""
    for start in (1.0, 1000.0):
        mechanism = AdaptiveGaussian(start, 0.0)
        state = mechanism.init(1)
        for number in range(300):
            public = mechanism.announce(state, number, 100.0)
            total = FixedPointSum(1, public.clip_norm)
            for norm in range(1, 101):
                total.add(mechanism.client(np.array([float(norm)]), public))
            _, state = mechanism.release(state, total, public, SECRET)
        assert float(state["clip_norm"]) == pytest.approx(50, abs=2)


def test_a_count_noise_that_leaves_nothing_for_the_updates_is_refused():
    with pytest.raises(ValueError, match="must be above 1"):
        AdaptiveGaussian(1.0, 2.0, count_noise=0.9)


@pytest.mark.parametrize("arguments", [(0.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (np.nan, 1.0), (1.0, np.inf)])
def test_a_mechanism_checks_its_numbers(arguments):
    with pytest.raises(ValueError):
        Gaussian(*arguments)


def test_the_length_of_a_long_vector_is_that_of_its_blocks():
    vector = stream(0, "x").standard_normal(3_000_000).astype(np.float32)
    assert length(vector) == pytest.approx(np.sqrt(np.sum(vector.astype(np.float64) ** 2)), rel=1e-12)


def test_momentum_adds_up_the_means():
    server = ServerSGD(learning_rate=0.5, momentum=0.9)
    state = server.init(2)
    steps = []
    for _ in range(3):
        step, state = server.step(state, np.array([1.0, -2.0]))
        steps.append(step)
    assert np.allclose(steps[2], 0.5 * (1 + 0.9 + 0.81) * np.array([1.0, -2.0]), rtol=1e-6)
    assert ServerSGD().step({}, np.array([1.0, 3.0]))[0].tolist() == [1.0, 3.0]


def test_adam_is_that_of_torch():
    torch = pytest.importorskip("torch")
    server = ServerAdam(learning_rate=0.02, first_decay=0.8, second_decay=0.95, stabiliser=1e-3)
    state, ours = server.init(30), np.zeros(30, np.float32)
    theirs = torch.zeros(30, requires_grad=True)
    adam = torch.optim.Adam([theirs], lr=0.02, betas=(0.8, 0.95), eps=1e-3)
    for number in range(20):
        mean = stream(0, "mean", number).standard_normal(30)
        step, state = server.step(state, mean)
        ours += step
        theirs.grad = torch.tensor(-mean, dtype=torch.float32)
        adam.step()
    assert np.allclose(ours, theirs.detach().numpy(), atol=2e-6)


@pytest.mark.parametrize(
    "make", [lambda: ServerSGD(momentum=1.0), lambda: ServerSGD(0.0), lambda: ServerAdam(first_decay=-0.1)]
)
def test_servers_check_their_numbers(make):
    with pytest.raises(ValueError):
        make()
