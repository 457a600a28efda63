"""The Gaussian estimate in all its variants, with both kinds of null, through one battery."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from scipy import special

from coalmine import GaussianNull, MaxNull, Scores, estimate_gaussian, simulate_gaussian_mechanism
from coalmine._random import stream
from coalmine.errors import NonFiniteError, NotEnoughCanariesError

DELTA = 1e-5
VARIANTS = [
    {"variance": "null", "formula": "exact"},
    {"variance": "null", "formula": "threshold"},
    {"variance": "fitted", "formula": "exact"},
    {"variance": "fitted", "formula": "threshold"},
]
every = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant['variance']}, {variant['formula']}")
both = pytest.mark.parametrize("exact", [True, False], ids=["exact null", "held-out null"])


def table(inserted, held_out, exact, null=None):
    return Scores.of(inserted, held_out, null=(null or GaussianNull()) if exact else None)


def quantiles(count, mean=0.0, width=1.0):
    """The most ordinary normal sample of this size."""
    z = special.ndtri((np.arange(count) + 0.5) / count)
    return mean + width * z / z.std()


def typical(exact, gap=1.0):
    rng = stream(0, "estimates")
    return table(rng.standard_normal(60) + gap, rng.standard_normal(80), exact)


def estimate(scores, variant, **options):
    return estimate_gaussian(scores, **{"delta": DELTA, **variant, **options})


def assert_sound(found):
    assert 0.0 <= found.low <= found.epsilon <= found.high  # none is NaN
    assert 0.0 <= found.floor < np.inf
    assert 0.0 <= found.p_value <= 1.0
    assert all(np.isfinite(value) or value == np.inf for value in found.details.values())


def flagged(found):
    return {flag.split(":")[0] for flag in found.flags}


# ---- odd tables ----


@both
@every
def test_an_ordinary_table(variant, exact):
    found = estimate(typical(exact), variant)
    assert_sound(found)
    assert found.low < found.epsilon < found.high
    assert (found.delta, found.confidence, found.details["count"]) == (DELTA, 0.95, 60)
    assert str(found).startswith("epsilon about")


@both
@every
def test_one_canary(variant, exact):
    scores = table([1.0], quantiles(20), exact)
    if variant["variance"] == "fitted":
        with pytest.raises(NotEnoughCanariesError, match="no width to fit"):
            estimate(scores, variant)
    else:
        assert_sound(estimate(scores, variant))


@both
@every
def test_two_canaries(variant, exact):
    assert_sound(estimate(table([1.0, 1.5], [0.0, 0.3], exact), variant))


@both
@every
def test_inserted_scores_all_equal(variant, exact):
    """No width at all is not the null's width: the literal estimate is infinite, the default says that something is odd."""
    found = estimate(table(np.full(30, 0.1), quantiles(30), exact), variant)
    assert_sound(found)
    assert "variance" in flagged(found)
    assert found.details["std"] == 0.0
    assert (found.epsilon == np.inf) is (variant["variance"] == "fitted")


@every
@pytest.mark.parametrize("value", [0.0, 0.1, -1e9 / 3])
def test_held_out_scores_all_equal(variant, value):
    """Also where the mean of equal numbers is not that number: np.full(3, 0.1).std() is 1e-17."""
    with pytest.raises(NotEnoughCanariesError, match="all held-out scores are equal"):
        estimate(Scores.of([1.0, 2.0, 3.0], np.full(3, value)), variant)


@every
def test_one_held_out_score(variant):
    with pytest.raises(NotEnoughCanariesError, match="spread cannot be measured"):
        estimate(Scores.of([1.0, 2.0], [0.0]), variant)


@both
@every
def test_ties(variant, exact):
    """A grid of half standard deviations moves the estimate little and breaks nothing."""
    scores = typical(exact)
    rounded = replace(scores, value=np.round(2 * scores.value) / 2)
    found, smooth = estimate(rounded, variant), estimate(scores, variant)
    assert_sound(found)
    assert smooth.low < found.epsilon < smooth.high


@both
@every
def test_reversed_scores(variant, exact):
    """A negative gap is no leak of the kind that is looked for; the literal fit is symmetric, as printed."""
    found = estimate(table(quantiles(60, mean=-2.0), quantiles(80), exact), variant)
    assert_sound(found)
    if variant["variance"] == "null":
        assert found.epsilon == found.low == found.high == 0.0
        assert found.p_value > 0.999


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite(variant, bad):
    for inserted, held_out in (([1.0, bad], [0.0, 1.0]), ([1.0, 2.0], [0.0, bad])):
        with pytest.raises(NonFiniteError, match="NaN or infinite"):
            estimate(Scores.of(inserted, held_out), variant)


@every
def test_a_maximum_over_rounds_needs_held_out_scores(variant):
    null = MaxNull(GaussianNull(), 10)
    with pytest.raises(ValueError, match="maximum over rounds"):
        estimate(Scores.of(quantiles(20), null=null), variant)
    scores = Scores.of(quantiles(20, mean=3.0), quantiles(20, mean=2.0), null=null)
    if variant["variance"] == "null":  # a maximum is no shifted normal
        with pytest.raises(ValueError, match="no mean-only estimate"):
            estimate(scores, variant)
    else:
        found = estimate(scores, variant)
        assert found.epsilon == estimate(scores.sampled(), variant).epsilon
        assert any(flag.startswith("maximum:") for flag in found.flags)


# ---- arguments ----


@every
@pytest.mark.parametrize("delta", [0, 1, -1e-3, float("nan"), "small", None], ids=repr)
def test_an_impossible_delta_is_refused(variant, delta):
    with pytest.raises(ValueError, match="delta"):
        estimate(typical(exact=True), variant, delta=delta)


@every
@pytest.mark.parametrize("confidence", [0, 1, 95, float("nan")], ids=repr)
def test_an_impossible_confidence_is_refused(variant, confidence):
    with pytest.raises(ValueError, match="confidence"):
        estimate(typical(exact=True), variant, confidence=confidence)


@pytest.mark.parametrize("bad", [{"variance": "sample"}, {"formula": "v1"}], ids=str)
def test_unknown_variants_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        estimate_gaussian(typical(exact=True), delta=DELTA, **bad)


# ---- what must not matter ----


@both
@every
def test_the_order_of_the_rows_does_not_matter(variant, exact):
    scores = typical(exact)
    order = stream(0, "rows").permutation(scores.value.size)
    found = estimate(scores, variant)
    shuffled = estimate(replace(scores, value=scores.value[order], inserted=scores.inserted[order]), variant)
    assert [shuffled.epsilon, shuffled.low, shuffled.high] == approx([found.epsilon, found.low, found.high], rel=1e-9)


@both
@every
def test_single_precision_is_accepted(variant, exact):
    inserted, held_out = (quantiles(50, mean).astype(np.float32) for mean in (1.0, 0.0))
    double = table(inserted.astype(float), held_out.astype(float), exact)
    assert estimate(table(inserted, held_out, exact), variant).epsilon == estimate(double, variant).epsilon


@both
@every
def test_the_unit_of_the_scores_does_not_matter(variant, exact):
    scale, shift = 0.001, 7.0
    scores = typical(exact)
    null = GaussianNull(spread=scale, center=shift) if exact else None
    moved = estimate(replace(scores, value=scale * scores.value + shift, null=null), variant)
    found = estimate(scores, variant)
    for name in ("epsilon", "low", "high", "floor", "p_value"):
        assert getattr(moved, name) == approx(getattr(found, name), rel=1e-7)


def test_for_equal_widths_the_two_formulas_are_one():
    scores = typical(exact=False)
    assert estimate(scores, VARIANTS[0]).epsilon == estimate(scores, VARIANTS[1]).epsilon


@both
def test_the_threshold_formula_is_never_larger(exact):
    for gap in (0.0, 1.0):
        scores = typical(exact, gap)
        assert estimate(scores, VARIANTS[3]).epsilon <= estimate(scores, VARIANTS[2]).epsilon * (1 + 1e-9)


# ---- what must increase or decrease ----


@both
@every
def test_a_larger_delta_explains_more(variant, exact):
    scores = typical(exact)
    found = [estimate(scores, variant, delta=delta) for delta in (1e-9, 1e-5, 1e-2, 0.3)]
    for smaller, larger in itertools.pairwise(found):
        for name in ("epsilon", "low", "high", "floor"):
            assert getattr(larger, name) <= getattr(smaller, name)


@both
@settings(max_examples=25, derandomize=True, deadline=None, database=None)
@given(deltas=st.tuples(st.floats(1e-12, 0.9), st.floats(1e-12, 0.9)))
def test_the_default_estimate_decreases_with_any_delta(exact, deltas):
    small, large = (estimate(typical(exact), VARIANTS[0], delta=delta) for delta in sorted(deltas))
    for name in ("epsilon", "low", "high", "floor"):
        assert getattr(large, name) <= getattr(small, name) * (1 + 1e-9)


@both
@every
def test_more_confidence_is_a_wider_interval(variant, exact):
    scores = typical(exact)
    found = [estimate(scores, variant, confidence=confidence) for confidence in (0.1, 0.95, 0.9999)]
    assert len({estimate.epsilon for estimate in found}) == 1
    for narrow, wide in itertools.pairwise(found):
        assert wide.low <= narrow.low
        assert wide.high >= narrow.high
        assert wide.floor >= narrow.floor


@both
@every
def test_a_larger_gap_is_a_larger_estimate_and_a_smaller_p_value(variant, exact):
    found = [estimate(typical(exact, gap), variant) for gap in (0.5, 2.0, 50.0)]
    for smaller, larger in itertools.pairwise(found):
        assert larger.epsilon > smaller.epsilon
        assert larger.p_value <= smaller.p_value


@both
@every
@settings(max_examples=6, derandomize=True, deadline=None, database=None)
@given(data=st.data())
def test_whatever_the_scores_the_numbers_are_sound(variant, exact, data):
    values = st.sampled_from([-3.0, -1.0, 0.0, 0.1, 0.5, 1.0, 2.0, 1e6])
    inserted, held_out = (data.draw(st.lists(values, min_size=2, max_size=30)) for _ in range(2))
    delta = data.draw(st.sampled_from([1e-9, 1e-4, 0.3]))
    confidence = data.draw(st.floats(0.01, 0.9999))
    try:
        assert_sound(estimate(table(inserted, held_out, exact), variant, delta=delta, confidence=confidence))
    except NotEnoughCanariesError:
        assert not exact
        assert len(set(held_out)) == 1


# ---- flags ----


@both
@every
def test_ordinary_scores_at_a_supported_delta_raise_no_flag(variant, exact):
    found = estimate(table(quantiles(1000, 1.0), quantiles(1000), exact), variant, delta=0.01)
    assert found.flags == ()
    assert found.details["supported_delta"] == 0.01


@both
@every
def test_a_delta_below_one_over_the_canaries_is_an_extrapolation(variant, exact):
    scores = table(quantiles(100, 1.0), quantiles(100), exact)
    assert "tail-extrapolation" in flagged(estimate(scores, variant, delta=0.0099))
    assert "tail-extrapolation" not in flagged(estimate(scores, variant, delta=0.01))


@both
@every
@pytest.mark.parametrize("width", [0.8, 1.25])
def test_another_width_than_the_null_is_flagged(variant, exact, width):
    found = estimate(table(quantiles(400, 1.0, width), quantiles(400), exact), variant, delta=0.01)
    assert flagged(found) == {"variance"}
    assert "times the width of the null" in found.flags[0]


@both
@every
def test_heavy_tails_are_flagged(variant, exact):
    tails = special.stdtrit(4, (np.arange(1000) + 0.5) / 1000)
    found = estimate(table(1 + tails / tails.std(), quantiles(1000), exact), variant, delta=0.01)
    assert {"heavy-tail", "normality"} <= flagged(found)
    assert "variance" not in flagged(found)


@both
@every
def test_skewed_scores_are_flagged(variant, exact):
    skewed = -np.log1p(-(np.arange(500) + 0.5) / 500)
    found = estimate(table(skewed / skewed.std(), quantiles(500), exact), variant, delta=0.01)
    assert {"skewness", "normality"} <= flagged(found)


def test_a_few_far_scores_contradict_the_fit():
    """One canary in ten is found for certain: what the scores alone prove is far above what a normal law explains."""
    scores = table(np.append(quantiles(900), np.full(100, 30.0)), [], exact=True)
    found = estimate_gaussian(scores, delta=0.01)
    assert "tail-contradicted" in flagged(found)
    assert found.details["supported_bound"] > found.details["supported_high"]


def test_canaries_that_disturb_each_other_are_flagged():
    """300 canaries in 400 dimensions look as if the noise were sqrt(sigma² + k/d) instead of sigma."""
    crowded = estimate_gaussian(simulate_gaussian_mechanism(400, 300, 0.3, seed=0), delta=0.01)
    (flag,) = (flag for flag in crowded.flags if flag.startswith("interference"))
    assert "300 canaries" in flag
    assert "400 dimensions" in flag
    roomy = estimate_gaussian(simulate_gaussian_mechanism(4_000_000, 300, 0.3, seed=0), delta=0.01)
    assert "interference" not in flagged(roomy)
    held_out = simulate_gaussian_mechanism(400, 300, 0.3, seed=0, held_out=50).sampled()
    assert "interference" not in flagged(estimate_gaussian(held_out, delta=0.01))  # dimensions unknown to the estimate
