"""Inputs that would turn a mistake into a leak are refused, each with a message that names the remedy."""

import numpy as np
import pytest
from scipy.stats import binom

import coalmine
from coalmine import CosineNull, GaussianNull, Guesses, MaxNull, Scores
from coalmine._random import stream
from coalmine.errors import AssignmentError, AuditError, MismatchError
from coalmine.estimators.band import contradicts_null

FALSE_ALARM = 1e-4  # each statistical test here fails for one seed in ten thousand; the seeds are fixed
DELTA = 1e-5
ONE_EACH = [
    coalmine.bound_band,
    coalmine.bound_threshold,
    coalmine.bound_gdp,
    coalmine.bound_bayesian,
    coalmine.bound_pointwise,
    coalmine.bound_one_run,
    coalmine.bound_one_run_fdp,
    coalmine.estimate_gaussian,
]


@pytest.mark.parametrize("null", [CosineNull(1000), MaxNull(CosineNull(1000), 5)], ids=["cosine", "max"])
def test_numbers_that_are_no_cosines(null):
    with pytest.raises(AuditError, match=r"not cosines: they reach 3.* leave out dim"):
        Scores.of([0.1, 3.0], null=null)
    assert Scores.of([0.1, 1.0 + 1e-9], null=null).value.size == 2  # rounding is no mistake


@pytest.mark.parametrize("statement", ONE_EACH, ids=lambda statement: statement.__name__)
def test_several_rows_of_one_canary_are_not_independent(statement):
    values = stream(0, "rows").standard_normal(80)
    canary = np.arange(80) % 20
    scores = Scores(values, canary % 2 == 0, labels={"canary": canary}, assignment="coins", null=GaussianNull())
    with pytest.raises(AuditError, match="80 scores of 20 canaries"):
        statement(scores, delta=DELTA)
    apart = Scores(values, canary % 2 == 0, labels={"canary": np.arange(80)}, assignment="coins", null=GaussianNull())
    assert statement(apart, delta=DELTA).epsilon >= 0


@pytest.mark.parametrize("statement", ONE_EACH, ids=lambda statement: statement.__name__)
def test_a_list_is_no_table(statement):
    with pytest.raises(TypeError, match=r"Scores\.of\(inserted, held_out\).* got list"):
        statement([1.0, 2.0], delta=DELTA)


@pytest.mark.parametrize(("inserted", "held_out"), [(1000, 0), (900, 100), (100, 900)])
def test_coins_that_cannot_have_been_fair(inserted, held_out):
    values = stream(0, "coins").standard_normal(1000)
    scores = Scores.of(values[:inserted], values[inserted:], null=GaussianNull(), assignment="coins")
    with pytest.raises(AssignmentError, match="fair coins do not fall like that"):
        coalmine.bound_one_run(scores, delta=DELTA, guesses=Guesses(50, 50))


def test_held_out_scores_that_contradict_the_null():
    rng = stream(0, "contradiction")
    values = rng.standard_normal((2, 500)) * 0.02  # cosines in 2,500 dimensions, said to be in 10,000
    scores = Scores.of(values[0], values[1], dim=10_000)
    with pytest.raises(MismatchError, match=r"500 held-out scores do not follow.*10,000 dimensions"):
        coalmine.audit_scores(scores, delta=DELTA, claim=coalmine.Claim(1.0, DELTA))
    assert coalmine.audit_scores(Scores.of(values[0], values[1], dim=2500), delta=DELTA).bound.epsilon == 0


@pytest.mark.parametrize("count", [1, 2, 30, 3000])
def test_a_right_null_is_contradicted_as_rarely_as_stated(count):
    """Also by an upper bound of the law, such as the union bound over rounds."""
    audits = 200
    wrong = 0
    for audit in range(audits):
        rng = stream(0, "right null", count, audit)
        wrong += contradicts_null(Scores.of([0.0], rng.standard_normal(count), null=GaussianNull()), confidence=0.9)
        maxima = rng.standard_normal((3, count)).max(axis=0)
        assert not contradicts_null(Scores.of([0.0], maxima, null=MaxNull(GaussianNull(), 3)))
    assert wrong <= binom.ppf(1 - FALSE_ALARM, audits, 0.1)
    assert wrong >= binom.ppf(FALSE_ALARM, audits, 0.1)


def test_a_maximum_over_rounds_has_no_headline_estimate():
    rng = stream(0, "maximum")
    inserted, held_out = rng.standard_normal((20, 300)).max(axis=0) + 1, rng.standard_normal((20, 300)).max(axis=0)
    result = coalmine.audit_scores(Scores.of(inserted, held_out, null=MaxNull(GaussianNull(), 20)), delta=DELTA)
    assert result.estimate is None
    assert any("maximum over rounds" in caveat for caveat in result.caveats)
    assert result.bound.epsilon >= 0


def test_reversed_scores_are_pointed_out():
    result = coalmine.audit_scores(Scores.of(np.linspace(-2.5, 0.5, 100), null=GaussianNull()), delta=DELTA)
    assert any(caveat.startswith("reversed:") for caveat in result.caveats)


def test_cosines_are_drawn_with_a_seed_a_generator_or_neither():
    law = CosineNull(50)
    assert law.rvs(3, rng=7).tolist() == law.rvs(3, np.random.default_rng(7)).tolist()
    assert law.rvs((2, 2)).shape == (2, 2)
    assert isinstance(law.rvs(), float)
