"""Scores under a known covariance, and the law of likelihood ratios."""

import math

import numpy as np
import pytest
from scipy import stats

from coalmine import Claim, claim_gaussian_sampling, judge
from coalmine._random import stream
from coalmine.canaries.aimed import aimed_directions
from coalmine.contracts import Null
from coalmine.errors import MismatchError
from coalmine.estimators.band import bound_band
from coalmine.gaussian_pairs import loss_logsf
from coalmine.scores import Scores
from coalmine.views.whitened import LikelihoodRatioNull, filters_of, log_ratios

FALSE_ALARM = 1e-6


def test_filters_whiten_and_the_whitened_one_is_the_best():
    rng = stream(0, "whitened")
    root = rng.normal(size=(6, 9))
    covariance, directions = root @ root.T, np.linalg.qr(rng.normal(size=(6, 3)))[0]
    gains = {}
    for statistic in ("whitened", "plain"):
        filters = filters_of(covariance, directions, statistic)
        assert np.einsum("ij,ij->j", filters, covariance @ filters) == pytest.approx(np.ones(3))
        gains[statistic] = np.einsum("ij,ij->j", filters, directions)
    assert (gains["whitened"] >= gains["plain"]).all()
    assert gains["whitened"] ** 2 == pytest.approx(np.diag(directions.T @ np.linalg.inv(covariance) @ directions))


def test_the_law_of_a_likelihood_ratio():
    a, m, times = (0.6, 1.5), (0.4, -0.2), 5
    null = LikelihoodRatioNull(a, m, times)
    assert isinstance(null, Null)
    rows = stream(1, "ratios").normal(size=(40_000, times, 2))
    found = log_ratios(rows, a, m).sum(axis=1)
    assert abs(found.mean() - null.center) < stats.norm.isf(FALSE_ALARM / 2) * null.spread / 200
    assert found.std() == pytest.approx(null.spread, rel=0.05)
    for value in (-3.0, -1.0, 0.0, 1.0, 2.5):
        chance = math.exp(null.logsf(value))
        low, high = stats.binom(40_000, chance).ppf([FALSE_ALARM / 10, 1 - FALSE_ALARM / 10])
        assert low <= (found >= value).sum() <= high


def test_the_law_in_one_dimension_is_a_normal_tail():
    """Equal variances: L is N(-mu²/2, mu²) under Q."""
    for value in (-4.0, -0.5, 0.3, 6.0):
        known = stats.norm.logsf((value + 0.5) / 1.0)
        assert loss_logsf([1.0], [1.0], value) == pytest.approx(known, rel=1e-9)


def test_a_quadratic_score_finds_what_a_linear_one_does_not():
    """Two orthogonal records: both covariances change; the bound by the law null has no ceiling of held-out scores."""
    a, m, times, count = (1.24, 1 / 1.24), (0.08, 0.07), 100, 1000
    rng = stream(2, "orthogonal")
    first = np.asarray(m) + np.sqrt(a) * rng.normal(size=(count, times, 2))
    second = rng.normal(size=(count, times, 2))
    ratios = [log_ratios(rows, a, m).sum(axis=1) for rows in (first, second)]
    linear = [(rows @ np.array([m[0] / a[0], m[1] / a[1]])).sum(axis=1) for rows in (first, second)]
    null = LikelihoodRatioNull(a, m, times)
    by_law = bound_band(Scores.of(ratios[0], ratios[1], null=null), delta=1e-4).epsilon
    by_sample = bound_band(Scores.of(linear[0], linear[1]), delta=1e-4).epsilon
    assert by_law > by_sample + 1


def test_aims():
    covariance = np.diag([4.0, 0.0, 2.0, 0.0, 1.0])
    assert np.abs(aimed_directions(covariance, 1, "top")).ravel() == pytest.approx([1, 0, 0, 0, 0])
    outside = aimed_directions(covariance, 2, "outside-span")
    assert np.abs(covariance @ outside).max() < 1e-12
    with pytest.raises(ValueError, match="only 2 directions"):
        aimed_directions(covariance, 3, "outside-span")


def test_a_claim_for_these_data_decides_nothing_unless_it_is_named_so():
    scores = Scores.of(stream(3, "a").normal(size=200) + 3, stream(3, "b").normal(size=200))
    bound = bound_band(scores, delta=1e-4)
    claim = claim_gaussian_sampling(least_eigenvalue=5.0, examples=1200, batch=32, clip_norm=10.0, delta=1e-4)
    with pytest.raises(MismatchError, match="these data only"):
        judge(claim, bound)
    assert judge(claim, bound, for_these_data=True).word == "VIOLATED"
    assert judge(Claim(0.4, 1e-4), bound).word == "VIOLATED"
