"""Epsilon and delta of Gaussian pairs in many dimensions: against one dimension, against quadrature, against 40 digits."""

import math

import mpmath
import numpy as np
import pytest

from coalmine import gaussian_delta, gaussian_epsilon, pair_delta, pair_epsilon, renyi_divergence, standard_pair
from coalmine._random import stream

FIRST, SECOND, GAP = np.array([[2, 0.5], [0.5, 1]]), np.array([[1.5, 0.2], [0.2, 1.25]]), np.array([0.3, -0.4])


@pytest.fixture(scope="module")
def plane():
    return standard_pair(GAP, FIRST, [0.0, 0.0], SECOND)


def exact_renyi(order, first, second):
    """40 digits, from determinants and inverses: no diagonalisation."""
    with mpmath.workdps(40):
        one, two = mpmath.matrix(first.tolist()), mpmath.matrix(second.tolist())
        mixed = (1 - order) * one + order * two
        gap = mpmath.matrix(GAP.tolist())
        square = (gap.T * mixed**-1 * gap)[0]
        dets = [mpmath.det(matrix) for matrix in (mixed, one, two)]
        logs = mpmath.log(dets[0]) + (order - 1) * mpmath.log(dets[1]) - order * mpmath.log(dets[2])
        return float(mpmath.mpf(order) / 2 * square - logs / (2 * (order - 1)))


@pytest.mark.parametrize(
    ("order", "known"), [(1.5, 0.2373396556545361908424272), (2, 0.3097277221910108477740265), (3, 0.5561967980873680549705176)]
)
def test_renyi_divergences_to_the_last_digit(plane, order, known):
    assert renyi_divergence(*plane, order) == pytest.approx(known, rel=1e-13)
    assert exact_renyi(mpmath.mpf(order), FIRST, SECOND) == pytest.approx(known, rel=1e-13)


def test_the_direction_matters_and_so_does_the_domain(plane):
    assert renyi_divergence(*plane, 2.0, order="q||p") == pytest.approx(0.6845661593081775327171382, rel=1e-13)
    assert renyi_divergence(*plane, 2.0, order="both") == renyi_divergence(*plane, 2.0, order="q||p")
    edge = 3.634728125654671
    assert math.isfinite(renyi_divergence(*plane, edge * (1 - 1e-12))) and math.isinf(
        renyi_divergence(*plane, edge * (1 + 1e-12))
    )
    near = renyi_divergence(*plane, 1 + 1e-7)
    assert renyi_divergence(*plane, 1.0) == pytest.approx(near, rel=1e-5)  # Kullback-Leibler is the limit


@pytest.mark.parametrize(
    ("epsilon", "order", "known"),
    [
        (0.25, "p||q", 0.107519044449466),
        (1.0, "p||q", 0.0116070973258462),
        (3.0, "p||q", 6.63677851412523e-5),
        (1.0, "q||p", 0.0550957890435133),
    ],
)
def test_delta_in_the_plane(plane, epsilon, order, known):
    assert pair_delta(*plane, epsilon, order) == pytest.approx(known, rel=1e-12)


def test_delta_in_the_plane_by_quadrature(plane):
    """The hockey stick itself, summed over a fine grid; its kink leaves an error of the step squared."""
    x, step_x = np.linspace(-12, 12, 3001, retstep=True)
    y, step_y = np.linspace(-9, 9, 3001, retstep=True)

    def density(covariance, mean):
        inverse = np.linalg.inv(covariance)
        u, v = x[:, None] - mean[0], y[None, :] - mean[1]
        square = inverse[0, 0] * u**2 + 2 * inverse[0, 1] * u * v + inverse[1, 1] * v**2
        return np.exp(-square / 2) / (2 * math.pi * math.sqrt(np.linalg.det(covariance)))

    excess = np.maximum(density(FIRST, GAP) - math.e * density(SECOND, np.zeros(2)), 0.0)
    assert pair_delta(*plane, 1.0, "p||q") == pytest.approx(float(excess.sum()) * step_x * step_y, rel=2e-5)


def test_epsilon_in_the_plane(plane):
    assert pair_epsilon(*plane, 1e-5, "p||q") == pytest.approx(3.746437048785, rel=1e-12)
    assert pair_epsilon(*plane, 1e-5, "q||p") == pytest.approx(6.265219607487, rel=1e-12)
    assert pair_epsilon(*plane, 1e-5) == pair_epsilon(*plane, 1e-5, "q||p")


def test_one_dimension_is_that_of_gaussian_delta():
    rng, compared = stream(0, "pairs"), 0
    while compared < 200:
        std, mean = math.exp(rng.normal() * rng.choice([0.3, 1.5])), rng.exponential() * rng.choice([1.0, 5.0])
        epsilon, order = rng.exponential() * rng.choice([0.01, 1.0, 5.0, 30.0]), rng.choice(["p||q", "q||p"])
        known = gaussian_delta(mean, std, 0.0, 1.0, epsilon, order=order)
        if known < 1e-70 or abs(std - 1) < 0.05:  # nearer to 1 the rounding of std² alone changes delta in the 12th digit
            continue
        assert pair_delta([std**2], [mean], epsilon, order) == pytest.approx(known, rel=1e-12)
        compared += 1


def test_epsilon_in_one_dimension_where_variances_are_extreme():
    for variance in (1e-6, 1e-3, 0.5, 2.0, 1e3, 1e6):
        for mean in (0.0, 0.1, 10.0):
            for delta in (1e-12, 1e-5, 0.3):
                known = gaussian_epsilon(mean, math.sqrt(variance), 0.0, 1.0, delta)
                assert pair_epsilon([variance], [mean], delta) == pytest.approx(known, rel=1e-8)


def test_equal_variances_are_one_gaussian_whatever_the_rank():
    means = stream(1, "means").normal(size=30)
    known = gaussian_delta(0.0, 1.0, float(np.linalg.norm(means)), 1.0, 2.5)
    assert pair_delta(np.ones(30), means, 2.5) == pytest.approx(known, rel=1e-12)


def test_delta_may_be_tiny():
    assert pair_delta([1.0], [1.0], 18.0) == pytest.approx(gaussian_delta(0.0, 1.0, 1.0, 1.0, 18.0), rel=1e-11)
    assert pair_delta([1.0], [1.0], 18.0) < 1e-68


def test_composition_adds_cumulants():
    assert pair_epsilon([1.2], [0.3], 1e-6, "p||q", times=50) == pytest.approx(16.139425194508444, rel=1e-12)
    assert pair_epsilon([1.2] * 50, [0.3] * 50, 1e-6, "p||q") == pytest.approx(16.139425194508444, rel=1e-12)


def test_rank_one_thousand_is_its_own_inverse():
    rng = stream(2, "pairs")
    variances, means = np.exp(0.05 * rng.normal(size=1000)), 0.05 * rng.normal(size=1000)
    epsilon = pair_epsilon(variances, means, 1e-5)
    assert pair_delta(variances, means, epsilon) == pytest.approx(1e-5, rel=1e-10)


def test_a_sum_of_chi_squares_by_simulation():
    """False alarm: 1e-6 (five standard errors of a mean of 200,000)."""
    rng = stream(3, "pairs")
    a, m = np.array([0.3, 1.7, 2.5]), np.array([0.5, 0.0, 1.0])
    x = m + np.sqrt(a) * rng.normal(size=(200_000, 3))
    loss = np.sum(x**2 / 2 - (x - m) ** 2 / (2 * a) - np.log(a) / 2, axis=1)
    values = np.maximum(-np.expm1(0.7 - loss), 0.0)
    assert abs(values.mean() - pair_delta(a, m, 0.7, "p||q")) < 5 * values.std() / math.sqrt(len(values))


def test_edges():
    assert pair_delta([1.0, 1.0], [0.0, 0.0], 0.0) == 0.0 and pair_epsilon([1.0], [0.0], 0.0) == 0.0
    assert pair_epsilon([0.5], [1.0], 0.0, "p||q") == pytest.approx(
        gaussian_epsilon(1.0, math.sqrt(0.5), 0, 1, 0.0, order="p||q")
    )
    assert math.isinf(pair_epsilon([2.0], [0.0], 0.0, "p||q"))
    assert pair_delta([0.0], [0.0], 5.0) == 1.0 and math.isinf(pair_epsilon([0.0], [0.0], 1e-5))
    assert pair_delta([2.0], [1.0], math.inf) == 0.0
    assert pair_epsilon([1.0001], [0.001], 0.5) == 0.0
    assert pair_delta([1.5], [0.3], [0.0, 1.0]).shape == (2,)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pair_delta([-1.0], [0.0], 1.0), "variances"),
        (lambda: pair_delta([1.0], [math.nan], 1.0), "means"),
        (lambda: pair_delta([1.0], [1.0], -1.0), "epsilon"),
        (lambda: pair_epsilon([1.0], [1.0], 1.0), "delta"),
        (lambda: pair_epsilon([1.0], [1.0], 1e-5, order="p"), "order"),
        (lambda: pair_epsilon([1.0], [1.0], 1e-5, times=0), "times"),
        (lambda: standard_pair([0, 0], [[1, 1], [0, 1]], [0, 0], np.eye(2)), "not symmetric"),
        (lambda: standard_pair([0, 0], [[1, 2], [2, 1]], [0, 0], np.eye(2)), "no covariance"),
        (lambda: standard_pair([0, 0], np.eye(2), [0, 0], np.diag([1.0, 0.0])), "singular"),
        (lambda: pair_delta([1.2], [0.0, 0.0], 1.0), "one number for all"),
        (lambda: standard_pair([math.nan], [[1.0]], [0.0], [[1.0]]), "finite means"),
    ],
)
def test_bad_input_is_one_message(call, words):
    with pytest.raises(ValueError, match=words):
        call()
