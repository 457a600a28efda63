import copy
import pickle
import tracemalloc

import numpy as np
import pytest
from pytest import approx

from coalmine.canaries import FAMILIES, SphereCanaries, TransformCanaries
from coalmine.canaries._pool import Secret
from coalmine.canaries.transform import near_square, random_order, smooth_below
from coalmine.contracts import Canaries
from coalmine.errors import NonFiniteError
from coalmine.nulls import CosineNull, GaussianNull

SEED = 918_273_645_918_273_645
families = pytest.mark.parametrize("family", [SphereCanaries, TransformCanaries])
dims = pytest.mark.parametrize("dim", [60, 97, 1024, 2003])


def matrix(canaries):
    return np.stack([canaries.update(i) for i in range(canaries.count)]).astype(np.float64)


def some_vector(dim):
    return np.random.default_rng(dim).standard_t(3, dim)


@families
def test_the_contract_is_kept(family):
    canaries = family(100, 7, secret_seed=SEED)
    assert isinstance(canaries, Canaries)
    assert (canaries.dim, canaries.count, canaries.norm) == (100, 7, 1.0)
    assert FAMILIES[{SphereCanaries: "sphere", TransformCanaries: "transform"}[family]] is family


def test_each_family_knows_its_null():
    assert SphereCanaries(100, 7, secret_seed=1).null == CosineNull(100)
    assert SphereCanaries(100, 7, secret_seed=1).spare == 0
    transform = TransformCanaries(101, 7, secret_seed=1)
    assert transform.null is None
    assert (transform.capacity, transform.spare) == (100, 93)
    assert transform.gaussian_null(2.0) == GaussianNull(2.0, slack=np.log(3.18))


@families
@dims
def test_canaries_have_unit_norm_in_both_precisions(family, dim):
    for dtype, error in (("float32", 1e-6), ("float64", 1e-13)):
        canaries = family(dim, 9, secret_seed=SEED, dtype=dtype)
        assert canaries.update(4).dtype == dtype
        assert np.linalg.norm(matrix(canaries), axis=1) == approx(np.ones(9), abs=error)


@families
@dims
def test_single_precision_changes_a_canary_by_rounding_only(family, dim):
    single, double = family(dim, 20, secret_seed=SEED), family(dim, 20, secret_seed=SEED, dtype="float64")
    assert matrix(single) == approx(matrix(double), abs=2e-6 * dim**-0.5 * 5)
    vector = some_vector(dim)
    assert single.project(vector) == approx(double.project(vector), abs=5e-6 * np.linalg.norm(vector) / dim**0.5)


@families
@dims
def test_combine_project_and_update_are_one_matrix(family, dim):
    canaries = family(dim, 31, secret_seed=SEED, dtype="float64")
    rows, vector, weights = matrix(canaries), some_vector(dim), np.random.default_rng(1).standard_normal(31)
    assert canaries.project(vector) == approx(rows @ vector, abs=1e-12 * np.linalg.norm(vector))
    assert canaries.combine(np.arange(31), weights) == approx(weights @ rows, abs=1e-13 * np.linalg.norm(weights))
    # adjoint: <combine(w), v> = <w, project(v)>
    left, right = canaries.combine(np.arange(31), weights) @ vector, weights @ canaries.project(vector)
    assert left == approx(right, abs=1e-12 * np.linalg.norm(vector) * np.linalg.norm(weights))


@families
def test_order_repetition_and_zeros_of_the_weights_do_not_matter(family):
    canaries = family(500, 40, secret_seed=SEED)
    expected = canaries.combine([3, 17, 39], [1.0, -2.0, 0.5])
    assert np.array_equal(canaries.combine([39, 3, 17], [0.5, 1.0, -2.0]), expected)
    assert np.array_equal(canaries.combine([17, 3, 17, 39, 3], [-1.0, 0.25, -1.0, 0.5, 0.75]), expected)
    assert np.array_equal(canaries.combine([0, 3, 17, 39], [0.0, 1.0, -2.0, 0.5]), expected)
    assert np.array_equal(canaries.combine([], []), np.zeros(500))
    assert np.array_equal(canaries.combine(np.array([5], dtype=np.uint8), [1]), canaries.update(5))


@families
def test_the_order_of_calls_does_not_matter(family):
    dim, vector = 777, some_vector(777)
    first = family(dim, 50, secret_seed=SEED)
    one = [first.update(11), first.project(vector), first.combine([1, 2], [1.0, 1.0]), first.project(vector)]
    other = family(dim, 50, secret_seed=SEED)
    two = [other.combine([1, 2], [1.0, 1.0]), other.project(vector, spare=other.spare)[:50], other.update(49), other.update(11)]
    assert np.array_equal(one[0], two[3])
    assert np.array_equal(one[1], two[1]) and np.array_equal(one[1], one[3])
    assert np.array_equal(one[2], two[0])


@families
def test_a_larger_pool_begins_with_the_smaller_one(family):
    for dim in (90, 3000, 40_000):
        small, large = family(dim, 5, secret_seed=SEED), family(dim, 70, secret_seed=SEED)
        assert np.array_equal(small.update(4), large.update(4))
        assert np.array_equal(small.project(some_vector(dim)), large.project(some_vector(dim))[:5])


@families
def test_seeds_make_different_canaries(family):
    one, other = family(5000, 3, secret_seed=1), family(5000, 3, secret_seed=2)
    assert np.abs(matrix(one) @ matrix(other).T).max() < 0.1
    assert one.update(0) @ one.update(1) == approx(0.0, abs=0.1)


def test_spare_rows_are_further_rows_of_the_same_map():
    vector = some_vector(1009)
    pool = TransformCanaries(1009, 20, secret_seed=SEED)
    everything = TransformCanaries(1009, 1000, secret_seed=SEED)
    assert np.array_equal(pool.project(vector, spare=980), everything.project(vector))
    assert np.array_equal(pool.project(vector, spare=7), everything.project(vector)[:27])
    release = pool.combine(np.arange(20), np.ones(20))
    assert pool.project(release, spare=980) == approx(np.repeat([1.0, 0.0], [20, 980]), abs=1e-6)
    with pytest.raises(ValueError, match="spare=981 is more than the 980 unused directions"):
        pool.project(vector, spare=981)
    with pytest.raises(ValueError, match="spare=1 is more than the 0 unused directions"):
        SphereCanaries(1009, 20, secret_seed=SEED).project(vector, spare=1)


GROUPS = [slice(0, 40), slice(40, 41), slice(41, 300), slice(250, 997), slice(0, 997)]


@families
def test_a_group_counts_alone(family):
    canaries = family(997, 30, secret_seed=SEED, dtype="float64")
    vector, rows = some_vector(997), matrix(canaries)
    for group in GROUPS:
        assert canaries.project(vector, group=group) == approx(rows[:, group] @ vector[group], abs=1e-12)
    assert np.array_equal(canaries.project(vector, group=slice(0, 997)), canaries.project(vector))


@families
@pytest.mark.parametrize(
    "groups", [GROUPS, GROUPS[1:2], [slice(3, 13), slice(990, 997)], []], ids=["rows", "one", "columns", "none"]
)
def test_norms_within_groups(family, groups):
    """Both ways to compute them: a transform for every row, or one for every coordinate of the groups."""
    canaries = family(997, 30, secret_seed=SEED, dtype="float64")
    rows = matrix(canaries)
    found = canaries.norms(groups)
    assert found.shape == (len(groups), 30)
    for norms, group in zip(found, groups, strict=True):
        assert norms == approx(np.linalg.norm(rows[:, group], axis=1), abs=1e-12)


@pytest.mark.parametrize("groups", [GROUPS, [slice(3, 13)]], ids=["rows", "columns"])
def test_norms_of_spare_rows(groups):
    pool, everything = (TransformCanaries(997, count, secret_seed=SEED, dtype="float64") for count in (10, 40))
    assert pool.norms(groups, spare=30) == approx(everything.norms(groups), abs=1e-12)


@families
def test_a_cosine_within_a_group_is_a_cosine(family):
    canaries, group = family(997, 30, secret_seed=SEED), slice(100, 160)
    vector = np.zeros(997)
    vector[group] = 3.0 * canaries.update(7)[group]
    cosines = canaries.project(vector, group=group) / canaries.norms([group])[0] / np.linalg.norm(vector[group])
    assert cosines[7] == approx(1.0, abs=1e-6)
    assert (np.abs(cosines) <= 1 + 1e-6).all()


@families
def test_the_seed_is_not_shown(family):
    canaries = family(100, 7, secret_seed=SEED)
    shown = [
        repr(canaries),
        str(canaries),
        f"{canaries}",
        repr(vars(canaries)),
        repr(canaries._secret),
        str(copy.copy(canaries)),
    ]
    for text in shown:
        assert str(SEED) not in text
    assert "secret_seed=not shown" in repr(canaries)
    for wrong in (-SEED, SEED + 0.5, str(SEED), None, True, float("nan")):
        with pytest.raises(ValueError, match="Its value is not shown") as error:
            family(100, 7, secret_seed=wrong)
        assert str(SEED) not in str(error.value)


@families
def test_copies_are_the_same_canaries(family):
    canaries = family(100, 7, secret_seed=SEED)
    for twin in (copy.deepcopy(canaries), pickle.loads(pickle.dumps(canaries))):
        assert np.array_equal(twin.update(3), canaries.update(3))


@families
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 1}, "dim=1 is not allowed"),
        ({"dim": float("nan")}, "dim is NaN"),
        ({"count": 0}, "count=0 is not allowed"),
        ({"dtype": "float16"}, "dtype='float16' is not allowed: it must be one of 'float32', 'float64'"),
        ({"dtype": np.float32}, "dtype=.* is not allowed"),
    ],
)
def test_wrong_arguments(family, arguments, message):
    with pytest.raises(ValueError, match=message):
        family(**{"dim": 100, "count": 7, "secret_seed": 1, **arguments})


def test_more_canaries_than_rows():
    assert TransformCanaries(101, 100, secret_seed=1).spare == 0
    with pytest.raises(ValueError, match="count=101 canaries do not fit into 101 dimensions: at most 100 rows are usable"):
        TransformCanaries(101, 101, secret_seed=1)
    assert SphereCanaries(101, 1000, secret_seed=1).count == 1000


@families
@pytest.mark.parametrize(
    ("indices", "weights", "message"),
    [
        ([7], [1.0], "between 0 and 6; got 7 to 7"),
        ([-1, 2], [1.0, 1.0], "between 0 and 6; got -1 to 2"),
        ([1, 2], [1.0], r"shapes \(2,\) and \(1,\)"),
        ([0.5], [1.0], "of type float64"),
        ([True], [1.0], "of type bool"),
        (3, 1.0, r"shapes \(\) and \(\)"),
    ],
)
def test_wrong_indices(family, indices, weights, message):
    with pytest.raises(ValueError, match=message):
        family(100, 7, secret_seed=1).combine(indices, weights)


@families
def test_wrong_vectors(family):
    canaries = family(100, 7, secret_seed=1)
    for wrong in (np.ones(99), np.ones((1, 100)), np.ones(100, dtype=int), np.ones(100, dtype=complex)):
        with pytest.raises(ValueError, match="vector must hold 100 floats"):
            canaries.project(wrong)
    for group in (slice(0, 101), slice(5, 5), slice(None), slice(-5, 3), slice(0, 10, 2), 3, slice(0.5, 7)):
        with pytest.raises(ValueError, match=r"group=.* is not allowed"):
            canaries.project(np.ones(100), group=group)
        with pytest.raises(ValueError, match=r"group=.* is not allowed"):
            canaries.norms([group])


@families
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_with_its_place(family, bad):
    canaries = family(100, 7, secret_seed=1)
    vector = np.ones(100, dtype=np.float32)
    vector[[31, 77]] = bad
    with pytest.raises(NonFiniteError, match="2 NaN or infinite entries, the first at coordinate 31"):
        canaries.project(vector, group=slice(0, 10))
    with pytest.raises(NonFiniteError, match="the weight of canary 5"):
        canaries.combine([2, 5], [1.0, bad])


def test_a_vector_too_large_for_single_precision_is_refused():
    vector = np.full(100, 1e39)
    with pytest.raises(NonFiniteError, match="too large for float32"):
        TransformCanaries(100, 7, secret_seed=1).project(vector)
    with pytest.raises(NonFiniteError, match="the weights are too large for float32"):
        TransformCanaries(100, 7, secret_seed=1).combine([2], [1e39])
    assert np.isfinite(TransformCanaries(100, 7, secret_seed=1, dtype="float64").project(vector)).all()


@families
def test_arguments_are_left_as_they_are(family):
    canaries, vector = family(120, 7, secret_seed=1), np.arange(120, dtype=np.float32)
    canaries.project(vector)
    assert np.array_equal(vector, np.arange(120))
    update = canaries.update(2)
    update[:] = 0
    assert np.linalg.norm(canaries.update(2)) == approx(1.0)


def test_strided_and_double_vectors_are_accepted():
    canaries, vector = TransformCanaries(120, 7, secret_seed=1), some_vector(240)
    assert np.array_equal(canaries.project(vector[::2]), canaries.project(vector[::2].copy()))


@families
@pytest.mark.parametrize("dim", [1_000_000, 1_000_003])
def test_memory_is_a_handful_of_vectors(family, dim):
    """In units of a vector of 32-bit numbers; nowhere near count x dim."""
    count = 200 if family is TransformCanaries else 12
    vector = np.random.default_rng(0).standard_normal(dim, dtype=np.float32)
    tracemalloc.start()
    canaries = family(dim, count, secret_seed=1)
    canaries.project(vector)
    canaries.combine(np.arange(count), np.ones(count))
    canaries.update(1)
    peak = tracemalloc.get_traced_memory()[1] / (4 * dim)
    tracemalloc.stop()
    assert peak <= 5


def test_memory_with_half_of_all_rows():
    dim = 1_000_000
    vector = np.random.default_rng(0).standard_normal(dim, dtype=np.float32)
    tracemalloc.start()
    canaries = TransformCanaries(dim, dim // 2, secret_seed=1)
    canaries.project(vector)
    peak = tracemalloc.get_traced_memory()[1] / (4 * dim)
    tracemalloc.stop()
    assert peak <= 8


def test_the_random_order_is_an_order_and_its_beginning_stays():
    secret = Secret(SEED)
    for size in (1, 2, 3, 63, 64, 65, 128, 1000, 20_000):
        order = random_order(size, size, secret)
        assert np.array_equal(np.sort(order), np.arange(size))
        for first in {1, size // 100, size // 64, size // 64 + 1, size // 3} - {0}:
            assert np.array_equal(random_order(size, min(first, size), secret), order[:first])


def test_smooth_numbers():
    smooth = sorted(n for a in range(12) for b in range(8) for c in range(5) if (n := 2**a * 3**b * 5**c) < 3000)
    for limit in range(1, 3000, 7):
        assert smooth_below(limit) == max(n for n in smooth if n <= limit)
    assert [smooth_below(d) for d in (2**22, 4_096_000, 4_050_748, 10**8, 10**8 + 7)] == [
        2**22,
        4_096_000,
        4_050_000,
        10**8,
        10**8,
    ]
    for d in range(2, 5000):
        assert d / 2 < smooth_below(d) <= d  # the windows overlap


def test_two_factors():
    for size in (1, 2, 3, 8, 1000, 8192, 4_096_000, 3**14, 2**27, 10**8):
        a, b = near_square(size)
        assert a * b == size and a <= b
    assert near_square(10**8) == (500, 200_000)


@pytest.mark.parametrize(
    ("family", "dim", "beginning"),
    [
        (SphereCanaries, 20, [0.211562, 0.056562, -0.447966, 0.044739]),
        (SphereCanaries, 23, [-0.07186, 0.124342, -0.214714, 0.030603]),
        (TransformCanaries, 20, [0.014949, 0.173476, 0.122884, -0.149208]),
        (TransformCanaries, 23, [0.350672, -0.178461, 0.167843, 0.065708]),
    ],
)
def test_canaries_stay_the_same_from_version_to_version(family, dim, beginning):
    """A run that is resumed, or a release that is looked at later, must meet the canaries that it was trained with."""
    assert family(dim, 4, secret_seed=12345).update(2)[:4] == approx(beginning, abs=1e-6)


def test_the_order_of_rows_stays_the_same_from_version_to_version():
    order = random_order(6400, 6400, Secret(12345))
    assert order[[0, 1, 2, 99, 100, 101, 102]].tolist() == [1985, 47, 5564, 6212, 2012, 2137, 5915]


@pytest.mark.parametrize("dim", [1000, 1009])
def test_a_direction_is_the_canary_up_to_rounding(dim):
    canaries = TransformCanaries(dim, 20, secret_seed=1)
    for index in (0, 7, 19):
        assert np.allclose(canaries.direction(index), canaries.update(index), atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="between 0 and 19"):
        canaries.direction(20)
