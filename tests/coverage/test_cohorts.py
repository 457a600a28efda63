"""Cohorts drawn in time of their own size have the law of a coin for each client: sizes, pairs, and every subset."""

import numpy as np
import pytest
from scipy import stats

from coalmine import Poisson
from coalmine._random import stream
from coalmine.participation import sampled

FALSE_ALARM = 1e-6
DRAWS = 40_000


@pytest.fixture
def sparse(monkeypatch):
    monkeypatch.setattr(sampled, "DENSE", 0)


def test_every_subset_of_six_clients_is_as_likely_as_with_coins(sparse):
    counts = np.zeros(64)
    for draw in range(DRAWS):
        cohort = sampled.draw_poisson(6, 0.3, stream(draw, "subsets"))
        assert np.all(np.diff(cohort) > 0)
        counts[int((1 << cohort).sum())] += 1
    sizes = np.array([bin(subset).count("1") for subset in range(64)])
    assert stats.chisquare(counts, DRAWS * 0.3**sizes * 0.7 ** (6 - sizes)).pvalue > FALSE_ALARM


def test_sizes_and_pairs_of_many_clients(sparse):
    """Sizes against the binomial law; how often both of two clients are in, for the clients 0, 1, 2, ... of 30."""
    sizes, together, single = [], np.zeros((30, 30)), np.zeros(30)
    for draw in range(5000):
        cohort = sampled.draw_poisson(30, 0.2, stream(draw, "pairs of clients"))
        sizes.append(cohort.size)
        inside = np.zeros(30)
        inside[cohort] = 1
        together += np.outer(inside, inside)
        single += inside
    limits = np.arange(2, 12)
    observed = np.histogram(sizes, [-1, *limits, 31])[0]
    law = np.diff(np.concatenate([[0], stats.binom.cdf(limits - 1, 30, 0.2), [1]]))
    assert stats.chisquare(observed, 5000 * law).pvalue > FALSE_ALARM
    pairs = together[np.triu_indices(30, 1)]
    z = (pairs - 5000 * 0.04) / np.sqrt(5000 * 0.04 * 0.96)
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / 2 / pairs.size)
    assert np.abs((single - 1000) / np.sqrt(800)).max() < stats.norm.isf(FALSE_ALARM / 60)


def test_small_populations_keep_their_draws_and_large_ones_resume():
    """Up to 100,000 clients the numbers of a seed are those of one coin each; above, any round can be drawn by itself."""
    coins = np.flatnonzero(stream(3, "cohort", 5).random(1000) < 0.05)
    assert np.array_equal(list(Poisson(0.05, 8).cohorts(1000, 8, 3))[5], coins)
    large = list(Poisson(1e-5, 4).cohorts(5_000_000, 4, 3))
    assert all(
        np.array_equal(one, two) for one, two in zip(large[2:], Poisson(1e-5, 4).cohorts(5_000_000, 4, 3, start=2), strict=True)
    )
    assert 0 < np.mean([cohort.size for cohort in large]) < 200
