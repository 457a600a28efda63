"""Transform canaries against the dense matrices they stand for, written from the formula and not from the code.

c_i = D1 F' D2 F' ... e_{pi(i)}, F the Kronecker product of two DCT-II matrices on the window of each block, the signs and the
order of the rows taken from the streams that the package promises to use.
"""

import math

import numpy as np
import pytest
from pytest import approx
from scipy.stats import chisquare, norm

from coalmine._random import stream
from coalmine.canaries import SphereCanaries, TransformCanaries
from coalmine.canaries.transform import near_square, smooth_below

FALSE_ALARM = 1e-6  # each statistical test fails by chance once in a million seeds
SEED = 20
SMALL = range(2, 71)
LARGER = [81, 97, 125, 128, 251, 256, 360, 509]


def distance(found, expected):
    return np.abs(found - expected).max()


def dct_matrix(size):
    """F[k, n] = sqrt(2/size) cos(pi (2n+1) k / (2 size)), the first row divided by sqrt(2)."""
    frequency, place = np.ogrid[:size, :size]
    rows = math.sqrt(2 / size) * np.cos(math.pi * (2 * place + 1) * frequency / (2 * size))
    rows[0] /= math.sqrt(2)
    return rows


def dense_map(dim, seed):
    """The whole orthogonal d x d matrix; its first w rows are the possible canaries."""
    width = smooth_below(dim)
    first, second = near_square(width)
    transform = np.kron(dct_matrix(first), dct_matrix(second))
    result = np.eye(dim)
    starts = (0, 0, 0) if width == dim else (dim - width, 0, dim - width, 0)
    for number, start in enumerate(starts):
        bits = np.unpackbits(np.frombuffer(stream(seed, "canary", "signs", number).bytes((width + 7) // 8), dtype=np.uint8))
        block = np.eye(dim)
        block[start : start + width, start : start + width] = transform * (1.0 - 2.0 * bits[:width])
        result = block @ result
    return result


def all_rows(dim, dtype="float64", seed=SEED):
    canaries = TransformCanaries(dim, smooth_below(dim), secret_seed=seed, dtype=dtype)
    return canaries, np.stack([canaries.update(i) for i in range(canaries.count)])


@pytest.mark.parametrize("dim", [*SMALL, *LARGER])
def test_rows_are_exactly_orthonormal(dim):
    _, rows = all_rows(dim)
    assert distance(rows @ rows.T, np.eye(len(rows))) < 2e-14 * math.log2(2 * dim)


@pytest.mark.parametrize("dim", [2, 3, 7, 12, 23, 64, 97, 128, 251, 360])
def test_rows_are_those_of_the_dense_matrix(dim):
    canaries, rows = all_rows(dim)
    dense = dense_map(dim, SEED)
    assert distance(dense @ dense.T, np.eye(dim)) < 1e-12
    agreement = np.abs(rows @ dense[: len(rows)].T)
    assert np.array_equal(np.sort(agreement.argmax(axis=1)), np.arange(len(rows)))  # each row once
    order = agreement.argmax(axis=1)
    assert distance(rows, dense[order]) < 1e-13
    vector, weights = np.random.default_rng(dim).standard_normal((2, dim))
    assert distance(canaries.project(vector), (dense @ vector)[order]) < 1e-12
    weights = weights[: len(rows)]
    assert distance(canaries.combine(np.arange(len(rows)), weights), dense[order].T @ weights) < 1e-12


def test_the_order_of_the_rows_is_random():
    """Over 3,000 seeds every row of 24 comes first equally often."""
    counts = np.zeros(24)
    for seed in range(3000):
        counts[TransformCanaries(24, 1, secret_seed=seed)._rows[0]] += 1
    assert chisquare(counts).pvalue > FALSE_ALARM


@pytest.mark.parametrize("dim", [8191, 8192, 8209, 10_007, 65_537])
def test_large_maps_are_orthonormal(dim):
    """M M' = I on random vectors; of all rows, and of a hundred one by one."""
    canaries = TransformCanaries(dim, smooth_below(dim), secret_seed=SEED, dtype="float64")
    every = np.arange(canaries.count)
    for weights in np.random.default_rng(dim).standard_normal((5, canaries.count)):
        vector = canaries.combine(every, weights)
        assert np.linalg.norm(vector) == approx(np.linalg.norm(weights), rel=1e-13)
        assert distance(canaries.project(vector), weights) < 1e-12
    rows = np.stack([canaries.update(i) for i in range(100)])
    assert distance(rows @ rows.T, np.eye(100)) < 1e-12


def test_rows_of_8209_dimensions_by_brute_force():
    """w = 8,192 of d = 8,209: inner products of 1,024 rows with all rows."""
    canaries = TransformCanaries(8209, 8192, secret_seed=SEED)
    rows = np.empty((8192, 8209), dtype=np.float32)
    for i in range(8192):
        rows[i] = canaries.update(i)
    assert distance(rows[:1024] @ rows.T, np.eye(1024, 8192)) < 3e-6


@pytest.mark.parametrize("dim", [1009, 40_000, 600_011])
def test_single_precision_is_precise_enough(dim):
    """Errors of scores against double precision, in units of the standard deviation of a score: one, and the mean of many.

    A gap is told to 1/sqrt(k) standard deviations at best; a millionth of one is nothing, and it does not add up either.
    """
    count = smooth_below(dim) // 2
    single, double = (TransformCanaries(dim, count, secret_seed=SEED, dtype=dtype) for dtype in ("float32", "float64"))
    rng = np.random.default_rng(dim)
    for vector in (rng.standard_normal(dim), rng.standard_t(1.5, dim), np.ones(dim), np.eye(1, dim, 5)[0]):
        unit = np.linalg.norm(vector) / math.sqrt(dim)
        errors = (single.project(vector, spare=100) - double.project(vector, spare=100)) / unit
        assert np.sqrt(np.mean(errors**2)) < 1e-6
        assert np.abs(errors).max() < 1e-5
        assert abs(errors.mean()) < 1e-7 + 5e-6 / math.sqrt(count)
    total = single.combine(np.arange(count), np.ones(count))
    exact = double.combine(np.arange(count), np.ones(count))
    assert np.linalg.norm(total - exact) < 1e-6 * np.linalg.norm(exact)
    assert distance(single.project(total), 1.0) < 1e-5


def test_single_precision_within_the_sphere():
    """Products are summed in double precision: the error is that of the vector given, not of the number of coordinates."""
    canaries = SphereCanaries(300_000, 4, secret_seed=SEED, dtype="float64")
    vector = np.random.default_rng(0).standard_normal(300_000)
    exact = np.array([math.fsum(canaries.update(i) * vector) for i in range(4)])
    assert canaries.project(vector) == approx(exact, abs=1e-12)
    assert canaries.project(vector.astype(np.float32)) == approx(exact, abs=1e-6)


def side_extremes(size, blocks):
    """Least and largest entry of (F∘F)^blocks times its size, F of one side of the array."""
    power = np.linalg.matrix_power(dct_matrix(size) ** 2, blocks) * size
    return np.array([power.min(), power.max()])


@pytest.mark.parametrize("dim", [1000, 4096, 100_000, 4_050_000, 4_096_000, 4_194_304, 100_000_000])
def test_three_blocks_give_every_row_the_same_variance(dim):
    """Var <c_i, X> = sum_m V_im X_m² over the signs, V = P_a³ (x) P_b³ with P = F∘F. V_im d is 1 up to 2/a."""
    shape = near_square(dim)
    sides = [min(side, 1000) for side in shape]  # larger sides are closer to 1, and too large for a dense matrix
    low, high = np.prod([side_extremes(side, 3) for side in sides], axis=0)
    assert 1 - 2 / shape[0] < low <= high < 1 + 2 / shape[0]
    low, high = np.prod([side_extremes(side, 2) for side in sides], axis=0)
    assert low < 0.4 and high > 1.9  # with two blocks some rows have twice the variance, others a third, at any dimension


@pytest.mark.parametrize("dim", [71, 997, 1009, 2003])
def test_four_windows_give_every_row_the_same_variance(dim):
    """The same for windows: the product of the squared blocks, which are the identity outside their windows."""
    width = smooth_below(dim)
    squared = np.kron(*(dct_matrix(side) ** 2 for side in near_square(width)))

    def extremes(starts):
        result = np.eye(dim)
        for start in starts:
            result[start : start + width] = squared @ result[start : start + width]
        return dim * result[:width].min(), dim * result[:width].max()

    gap, allowed = dim - width, 2 / near_square(width)[0]
    low, high = extremes((gap, 0, gap, 0))
    assert 1 - allowed < low <= high < 1 + allowed
    low, high = extremes((0, gap, 0))
    assert low < 0.7 and high > 1.3  # three windows leave the last coordinates with two blocks


def test_variance_of_a_coordinate_over_seeds():
    """The formula above against 6,000 seeds, at a size where it is not yet flat: 3 x 5 dimensions."""
    expected = np.kron(*(np.linalg.matrix_power(dct_matrix(side) ** 2, 3) for side in near_square(15)))
    squares = np.array([dense_map(15, seed) ** 2 for seed in range(6000)])
    error = squares.std(axis=0) / math.sqrt(len(squares))
    limit = norm.isf(FALSE_ALARM / (2 * expected.size))
    assert (np.abs(squares.mean(axis=0) - expected) / error).max() < limit
    assert (np.abs(squares.mean(axis=0) - 1 / 15) / error).max() > limit  # and the test can tell it from flat


@pytest.mark.parametrize("dim", [2, 3, 50, 1000])
def test_sphere_canaries_are_normalised_normals_of_their_streams(dim):
    canaries = SphereCanaries(dim, 5, secret_seed=SEED, dtype="float64")
    normals = stream(SEED, "canary", 0).standard_normal((5, dim), dtype=np.float32).astype(np.float64)
    rows = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    for i in range(5):
        assert distance(canaries.update(i), rows[i]) < 1e-15


def test_blocks_of_sphere_canaries_have_streams_of_their_own():
    """With 2^19 coordinates two canaries make a block: the third begins the next one, the fourth is its second."""
    canaries = SphereCanaries(1 << 19, 5, secret_seed=SEED, dtype="float64")
    block = stream(SEED, "canary", 1).standard_normal((2, 1 << 19), dtype=np.float32).astype(np.float64)
    for index, normal in ((2, block[0]), (3, block[1])):
        assert distance(canaries.update(index), normal / np.linalg.norm(normal)) < 1e-15
