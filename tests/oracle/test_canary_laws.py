"""The laws of canary scores: of canaries that took no part, against any vector, and of canaries in a release without clients.

The vectors are those that break a fast map with too few random signs: a spike, a few spikes, heavy tails, a row of another
orthogonal matrix, the last coordinates only, one line or one column of the array that is transformed.
"""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from coalmine.canaries import SphereCanaries, TransformCanaries
from coalmine.canaries.transform import near_square, smooth_below
from coalmine.estimators.diagnostics import diagnose
from coalmine.nulls import CosineNull

FALSE_ALARM = 1e-6  # each p-value below is allowed to fail by chance once in a million seeds
THREE_ERRORS = 3.0  # for means against closed forms: a false alarm of 0.27 % each, with seeds that are fixed
SEEDS = {16_384: 40, 8_209: 80, 100_000: 8, 10_007: 60}  # dimension -> independent draws of the signs: about 600,000 scores


def spikes(dim, places, heights=1.0):
    vector = np.zeros(dim)
    vector[places] = heights
    return vector


def vectors(dim):
    rng = np.random.default_rng(dim)
    _, length = near_square(smooth_below(dim))
    parity = np.bitwise_count(np.arange(dim) & 0b1011010110) & 1
    return {
        "first": spikes(dim, 0),
        "spike": spikes(dim, dim // 3),
        "last": spikes(dim, dim - 1),
        "3-sparse": spikes(dim, rng.choice(dim, 3, replace=False), [1.0, -2.0, 0.5]),
        "16-sparse": spikes(dim, rng.choice(dim, 16, replace=False)),
        "t_2": rng.standard_t(2, dim),
        "Hadamard row": 1.0 - 2.0 * parity,
        "last 17": spikes(dim, slice(dim - 17, dim)),
        "one line": spikes(dim, slice(0, length), rng.standard_normal(length)),
        "one column": spikes(dim, slice(3, dim, length)),
    }


def standardised(canaries, vector):
    """All rows, canaries and spare ones, in units of the standard deviation |v|/sqrt(d)."""
    return canaries.project(vector, spare=canaries.spare) * math.sqrt(canaries.dim) / np.linalg.norm(vector)


def battery(z):
    """p-values of: variance 1, normality (Anderson–Darling), skewness, kurtosis (two-sided), P(z > 3) and P(z < -3)."""
    found = diagnose(z)
    beyond = [stats.binomtest(int(count), z.size, stats.norm.sf(3)).pvalue for count in ((z > 3).sum(), (z < -3).sum())]
    return {
        "variance": found.variance_p_value,
        "normality": found.normality_p_value,
        "skewness": found.skewness_p_value,
        "kurtosis": float(2 * ndtr(-abs(found.excess_kurtosis) * math.sqrt(z.size / 24))),
        "upper tail": beyond[0],
        "lower tail": beyond[1],
    }


@pytest.mark.parametrize("dim", SEEDS)
@pytest.mark.parametrize("name", vectors(100))
def test_transform_rows_are_normal_against_any_vector(dim, name):
    vector = vectors(dim)[name]
    draws = [standardised(TransformCanaries(dim, 100, secret_seed=seed), vector) for seed in range(SEEDS[dim])]
    z = np.concatenate(draws)
    assert abs(z.var() - 1) < 0.01 and abs(stats.kurtosis(z)) < 0.04 and abs((z > 3).mean() - 1.35e-3) < 2e-4
    for test, p_value in battery(z).items():
        assert p_value > FALSE_ALARM, (test, p_value)


@pytest.mark.parametrize("name", ["first", "spike", "3-sparse"])
def test_the_battery_convicts_one_block(name):
    """The same rows with one sign block and one transform: far from normal, and the tests above see it."""
    dim = 16_384
    canaries = TransformCanaries(dim, 100, secret_seed=0)
    canaries._blocks = canaries._blocks[:1]
    found = battery(standardised(canaries, vectors(dim)[name]))
    assert found["normality"] < FALSE_ALARM and found["kurtosis"] < FALSE_ALARM


def test_a_row_keeps_its_variance_over_seeds():
    """The same row and spike over many seeds: each row by itself is normal with variance 1, not only all rows together."""
    dim, rows = 1000, 1000
    squares = np.zeros(rows)
    for seed in range(400):
        canaries = TransformCanaries(dim, rows, secret_seed=seed)
        scores = np.empty(rows)
        scores[canaries._rows] = canaries.project(spikes(dim, 10))
        squares += dim * scores**2
    # the exact variances are within 2/25 of 1, see test_canaries; chi² with 400 degrees of freedom, 1,000 rows
    limits = stats.chi2.ppf([FALSE_ALARM / rows / 2, 1 - FALSE_ALARM / rows / 2], 400)
    assert limits[0] * (1 - 2 / 25) < squares.min() and squares.max() < limits[1] * (1 + 2 / 25)


@pytest.mark.parametrize("dim", [2, 3, 10, 200, 2000])
def test_sphere_scores_follow_the_cosine_law(dim):
    canaries = SphereCanaries(dim, 3000, secret_seed=7)
    for vector in (spikes(dim, 0), np.random.default_rng(dim).standard_normal(dim)):
        cosines = canaries.project(vector) / np.linalg.norm(vector)
        assert stats.kstest(cosines, canaries.null.cdf).pvalue > FALSE_ALARM


def test_sphere_canaries_within_a_group():
    """Masked, they follow the law of all coordinates; divided by the norm within the group, that of the group."""
    canaries, group = SphereCanaries(1000, 3000, secret_seed=8), slice(100, 110)
    vector = np.random.default_rng(1).standard_normal(1000)
    scores = canaries.project(vector, group=group) / np.linalg.norm(vector[group])
    assert stats.kstest(scores, CosineNull(1000).cdf).pvalue > FALSE_ALARM
    norms = canaries.norms([group])[0]
    assert stats.kstest(scores / norms, CosineNull(10).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(norms**2, stats.beta(5, 495).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(scores, CosineNull(10).cdf).pvalue < FALSE_ALARM  # the trap: not divided, but judged by the group's law


@pytest.mark.parametrize("size", [10, 600])
def test_transform_canaries_within_a_group(size):
    dim, group = 8209, slice(8209 - size, 8209)
    vector = np.random.default_rng(size).standard_normal(dim)
    scores, norms = [], []
    for seed in range(8):
        canaries = TransformCanaries(dim, 400, secret_seed=seed)
        scores.append(canaries.project(vector, group=group) / np.linalg.norm(vector[group]))
        norms.append(canaries.norms([group])[0])
    scores, norms = np.concatenate(scores), np.concatenate(norms)
    assert stats.kstest(scores, CosineNull(dim).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(scores / norms, CosineNull(size).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(norms**2, stats.beta(size / 2, (dim - size) / 2).cdf).pvalue > FALSE_ALARM


def release(canaries, inserted, sigma, seed, clients=None):
    noise = np.random.default_rng([seed, 99]).standard_normal(canaries.dim)
    total = canaries.combine(np.arange(inserted), np.ones(inserted)) + sigma * noise
    return total if clients is None else total + clients


@pytest.mark.parametrize("sigma", [0.5, 1.0])
@pytest.mark.parametrize(("dim", "inserted", "runs"), [(8192, 80, 150), (8192, 800, 60), (8192, 4096, 40), (8209, 4104, 40)])
def test_transform_canaries_without_clients(dim, inserted, runs, sigma):
    """mean over the standard deviation of spare rows = 1/sigma, even at k = d/2: canaries do not disturb each other.

    The null from a law with variance 1/d instead: cosines have mean 1/sqrt(S) and variance (S - k/d)/S, S = sigma² + k/d.
    """
    spare = 4000
    gaps, means, spreads = [], [], []
    for seed in range(runs):
        canaries = TransformCanaries(dim, inserted, secret_seed=seed)
        vector = release(canaries, inserted, sigma, seed)
        scores = canaries.project(vector, spare=spare)
        gaps.append(scores[:inserted].mean() / scores[inserted:].std(ddof=1))
        cosines = scores / np.linalg.norm(vector) * math.sqrt(dim)
        means.append(cosines[:inserted].mean())
        spreads.append(cosines[inserted:].var())
    within(gaps, 1 / sigma, math.sqrt(1 / inserted + 1 / (2 * spare * sigma**2)))
    total = sigma**2 + inserted / dim
    within(means, total**-0.5)
    within(spreads, sigma**2 / total)


def test_transform_canaries_with_clients():
    """With a sum of clients X: 1/sqrt(sigma² + |X|²/d), whatever shape X has."""
    dim, inserted, sigma = 8209, 500, 0.5
    for clients in (40.0 * spikes(dim, 3), np.full(dim, 60 / math.sqrt(dim))):
        gaps = []
        for seed in range(60):
            canaries = TransformCanaries(dim, inserted, secret_seed=seed)
            scores = canaries.project(release(canaries, inserted, sigma, seed, clients), spare=4000)
            gaps.append(scores[:inserted].mean() / scores[inserted:].std(ddof=1))
        within(gaps, 1 / math.sqrt(sigma**2 + clients @ clients / dim))


@pytest.mark.parametrize("sigma", [0.541, 1.0])
@pytest.mark.parametrize(("dim", "inserted", "runs"), [(5000, 100, 40), (1000, 500, 60)])
def test_sphere_canaries_without_clients(dim, inserted, runs, sigma):
    """sqrt(d) times the mean cosine = S^-1/2, S = sigma² + k/d, with the variance that the closed form predicts."""
    means = []
    for seed in range(runs):
        canaries = SphereCanaries(dim, inserted, secret_seed=seed)
        vector = release(canaries, inserted, sigma, seed)
        means.append(canaries.project(vector).mean() * math.sqrt(dim) / np.linalg.norm(vector))
    expected = (sigma**2 + inserted / dim) ** -0.5
    r = inserted / (inserted + sigma**2 * dim)
    pairs, noise, length = (
        2 * (inserted - 1) / (inserted * dim) * (1 - r / 2) ** 2,
        sigma**2 / inserted * (1 - r) ** 2,
        (1 - r) ** 2,
    )
    within(means, expected, expected * math.sqrt(pairs + noise + length / (2 * dim)))
    corrected = (np.mean(means) ** -2 - inserted / dim) ** -0.5
    assert corrected == pytest.approx(1 / sigma, rel=3 * 0.08 / math.sqrt(runs))


def within(values, expected, error=None):
    """The mean within three standard errors; the error of one value as predicted, or as observed."""
    observed = np.std(values, ddof=1)
    if error is not None:  # and the prediction itself is right: chi² at the declared rate
        low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(values) - 1) / (len(values) - 1)
        assert low < (observed / error) ** 2 < high
    assert abs(np.mean(values) - expected) < THREE_ERRORS * (observed if error is None else error) / math.sqrt(len(values))
