"""The laws of held-out scores against closed forms and 40-digit arithmetic.

The truth of the cosine is its density, (1-u²)^((d-3)/2) / B((d-1)/2, 1/2), integrated numerically; no incomplete beta function.
"""

import json
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from pytest import approx
from scipy import stats

from coalmine.contracts import Null
from coalmine.nulls import CosineNull, GaussianNull, MaxNull, describe, described

FALSE_ALARM = 1e-6  # each statistical test fails by chance once in a million seeds
OFTEN = settings(deadline=None, derandomize=True, max_examples=300, database=None)


def true_logsf(dim, t):
    """log P(cosine >= t) for t >= 0 by quadrature of the density, in pieces of its own length scale."""
    with mp.workdps(40):
        t, power = mpf(t), mpf(dim - 3) / 2
        if t == 1:
            return mp.ninf
        if dim == 2:
            return mp.log(mp.acos(t) / mp.pi)
        scale = min(1 / mp.sqrt(dim), 1 / (1 + dim * t))
        ends = [t]
        while ends[-1] < 1 and len(ends) < 50:
            ends.append(min(ends[-1] + 3 * scale, mpf(1)))
        integral = mp.quad(lambda u: ((1 - u * u) / (1 - t * t)) ** power, ends)
        return mp.log(integral) + power * mp.log(1 - t * t) - mp.log(mp.beta(mpf(dim - 1) / 2, mpf(1) / 2))


@pytest.mark.parametrize("dim", [2, 3, 4, 5, 10, 61, 62, 1000, 10**6, 4_100_000, 10**9, 10**12])
def test_cosine_tail_against_quadrature(dim):
    null = CosineNull(dim)
    for z in (0.01, 0.5, 0.99, 1.01, 2.0, 3.7, 4.0, 10.0, 40.0):
        t = z / math.sqrt(dim)
        if t >= 1:
            continue
        truth = true_logsf(dim, t)
        assert null.logsf(t) == approx(float(truth), rel=1e-14, abs=2e-14)
        assert null.sf(t) == approx(float(mp.exp(truth)), rel=1e-12)
        assert null.logsf(-t) == approx(float(mp.log1p(-mp.exp(truth))), rel=1e-14)
        assert null.sf(-t) == approx(float(1 - mp.exp(truth)), rel=1e-14)


@pytest.mark.parametrize("dim", [1000, 10_000, 10**6])
def test_cosine_tail_far_below_the_smallest_float(dim):
    """A tail of about e^-10000, where the density itself is zero in floats."""
    t = math.sqrt(-math.expm1(-2 * 10_000 / dim))
    found = CosineNull(dim).logsf(t)
    assert -10_100 < found < -9_900
    assert found == approx(float(true_logsf(dim, t)), rel=1e-14)
    assert CosineNull(dim).sf(t) == 0.0


@pytest.mark.parametrize(
    ("dim", "z", "logsf"),
    [
        (200, 5, "-15.84573938"),
        (1000, 10, "-55.85764897"),
        (10_000, 20, "-208.0065929"),
        (1_000_000, 40, "-805.2483236"),
        (4_100_000, 20, "-203.926863"),
    ],
)
def test_reference_tails(dim, z, logsf):
    half_unit = 0.5001 * 10.0 ** -len(logsf.partition(".")[2])
    assert CosineNull(dim).logsf(z / math.sqrt(dim)) == approx(float(logsf), rel=0, abs=half_unit)


VALUES = np.concatenate([np.linspace(-1, 1, 201), [1e-9, -1e-9, 1 - 1e-12, 1e-12 - 1]])


def test_two_dimensions_are_the_arcsine_law():
    assert CosineNull(2).cdf(VALUES) == approx([float(1 - mp.acos(mpf(t)) / mp.pi) for t in VALUES], rel=1e-14)
    assert CosineNull(2).ppf(np.linspace(0, 1, 101)) == approx(-np.cos(np.pi * np.linspace(0, 1, 101)), abs=3e-16)


def test_three_dimensions_are_uniform():
    assert CosineNull(3).cdf(VALUES) == approx((1 + VALUES) / 2, rel=1e-14)
    assert CosineNull(3).sf(VALUES) == approx((1 - VALUES) / 2, rel=1e-14)
    assert CosineNull(3).ppf(np.linspace(0, 1, 101)) == approx(2 * np.linspace(0, 1, 101) - 1, abs=3e-16)


def test_the_normal_approximation_is_off_by_z_to_the_fourth_over_4d():
    for dim, z, error in [(1000, 5, -0.145), (1000, 10, -2.63), (10_000, 20, -4.09), (10**6, 40, -0.64)]:
        found = CosineNull(dim).logsf(z / math.sqrt(dim)) - stats.norm.logsf(z)
        assert found == approx(error, rel=0.01)
        assert found == approx(-(z**4) / (4 * dim), rel=0.15)


def test_beyond_the_ends():
    null = CosineNull(7)
    for outside in (1.0, 1.5, math.inf):
        assert (null.sf(outside), null.logsf(outside)) == (0.0, -math.inf)
        assert (null.cdf(outside), null.logcdf(outside)) == (1.0, 0.0)
        assert (null.sf(-outside), null.logsf(-outside)) == (1.0, 0.0)
    assert null.sf(0.0) == null.cdf(0.0) == 0.5
    assert (null.ppf(0.0), null.ppf(0.5), null.ppf(1.0)) == (-1.0, 0.0, 1.0)


@OFTEN
@given(st.integers(2, 10**12), st.floats(allow_nan=False))
def test_any_value_has_a_tail(dim, value):
    null = CosineNull(dim)
    assert 0 <= null.sf(value) <= 1
    assert null.logsf(value) <= 0
    assert null.sf(value) == null.cdf(-value)
    assert null.logsf(value) == null.logcdf(-value)
    assert math.exp(null.logsf(value)) == approx(null.sf(value), rel=1e-12, abs=1e-300)


@OFTEN
@given(st.integers(2, 10**12), st.floats(-45, 45), st.floats(-45, 45))
def test_the_tail_falls(dim, one, other):
    low, high = sorted((one / math.sqrt(dim), other / math.sqrt(dim)))
    assert CosineNull(dim).logsf(high) <= CosineNull(dim).logsf(low) * (1 - 1e-14) + 1e-15


@pytest.mark.parametrize("dim", [2, 3, 4, 10, 100, 1000, 10**6, 10**12])
@pytest.mark.parametrize("probability", [5e-324, 1e-300, 1e-100, 1e-16, 1e-4, 0.1, 0.3, 0.4999999, 0.5])
def test_quantiles_are_inverse_to_the_tail(dim, probability):
    """The quantile t is right if the next floats (five, to allow for its rounding) have the probability between them."""
    null = CosineNull(dim)
    t = null.ppf(probability)
    assert -1 <= t <= 0
    room = max(5 * np.spacing(abs(t)), 1e-15 * null.spread)
    assert null.logcdf(t - room) <= math.log(probability) * (1 - 1e-14) + 1e-15
    assert null.logcdf(t + room) >= math.log(probability) * (1 + 1e-14) - 1e-15


@OFTEN
@given(st.integers(2, 10**9), st.floats(0, 1))
def test_any_probability_has_a_quantile(dim, probability):
    null = CosineNull(dim)
    t = null.ppf(probability)
    assert -1 <= t <= 1
    assert null.cdf(t) == approx(probability, rel=0, abs=1e-8 if dim == 2 else 1e-14)  # arccos has a root at 1
    assert (t < 0, t > 0) == (probability < 0.5, probability > 0.5)
    if probability >= 0.5:
        assert null.ppf(1 - probability) == -t


def test_arrays_and_scalars():
    null = CosineNull(50)
    grid = np.linspace(-1, 1, 12).reshape(3, 4)
    for function in (null.sf, null.cdf, null.logsf, null.logcdf):
        assert function(grid).shape == (3, 4)
        assert isinstance(function(0.1), float)
        assert function(grid.tolist())[1, 2] == approx(function(grid[1, 2]), rel=1e-14)
    assert null.ppf(grid**2).shape == (3, 4)
    assert isinstance(null.ppf(0.3), float)
    assert null.ppf([]).shape == null.sf([]).shape == null.logsf([]).shape == (0,)


def test_bad_arguments_are_refused():
    for dim in (1, 0, -3, 2.5, math.nan, "many"):
        with pytest.raises(ValueError, match=r"^dim"):
            CosineNull(dim)
    for function in (CosineNull(5).sf, CosineNull(5).logsf, CosineNull(5).cdf, CosineNull(5).ppf, GaussianNull().logsf):
        with pytest.raises(ValueError, match="NaN"):
            function([0.1, math.nan])
    for probability in (-1e-9, 1.1, math.inf):
        with pytest.raises(ValueError, match="probability must lie between 0 and 1"):
            CosineNull(5).ppf(probability)


def test_whole_floats_are_dimensions():
    assert CosineNull(1e6) == CosineNull(10**6)
    assert CosineNull(1e6).dim == 10**6
    assert isinstance(CosineNull(np.int64(7)).dim, int)


@pytest.mark.parametrize("dim", [2, 3, 10, 1000, 10**9])
def test_samples_follow_the_law(dim):
    null = CosineNull(dim)
    sample = null.rvs(20_000, rng=np.random.default_rng(5))
    assert np.abs(sample).max() <= 1
    assert stats.kstest(sample, null.cdf).pvalue > FALSE_ALARM
    # the test has power: a spread that is 6 % off is noticed
    assert stats.kstest(np.clip(1.06 * sample, -1, 1), null.cdf).pvalue < FALSE_ALARM


def test_samples_are_cosines_of_random_directions():
    """Brute force: normal vectors against a fixed one, two-sample test against the sampler."""
    rng = np.random.default_rng(6)
    vectors, fixed = rng.standard_normal((20_000, 12)), rng.standard_normal(12)
    cosines = vectors @ fixed / np.linalg.norm(vectors, axis=1) / np.linalg.norm(fixed)
    assert stats.kstest(cosines, CosineNull(12).cdf).pvalue > FALSE_ALARM
    assert stats.ks_2samp(cosines, CosineNull(12).rvs(20_000, rng=rng)).pvalue > FALSE_ALARM


def test_sample_moments():
    dim, count = 20, 200_000
    sample = CosineNull(dim).rvs(count, rng=np.random.default_rng(7))
    second, fourth = 1 / dim, 3 / (dim * (dim + 2))
    eighth = 105 / (dim * (dim + 2) * (dim + 4) * (dim + 6))
    z = stats.norm.isf(FALSE_ALARM / 6)
    assert abs(sample.mean()) < z * math.sqrt(second / count)
    assert abs((sample**2).mean() - second) < z * math.sqrt((fourth - second**2) / count)
    assert abs((sample**4).mean() - fourth) < z * math.sqrt((eighth - fourth**2) / count)


def test_sample_shapes():
    rng = np.random.default_rng(8)
    assert isinstance(CosineNull(5).rvs(rng=rng), float)
    assert CosineNull(5).rvs((2, 3), rng=rng).shape == (2, 3)
    first, second = (CosineNull(5).rvs(4, rng=np.random.default_rng(1)) for _ in range(2))
    assert (first == second).all()


def test_the_cosine_law_describes_itself():
    null = CosineNull(1_000_000)
    assert isinstance(null, Null)
    assert (null.center, null.spread, null.slack) == (0.0, 1e-3, 0.0)
    assert null.assumptions == ("scores are cosines with independent, uniformly random directions of 1,000,000 dimensions",)
    assert null.name == "cosine with a random direction in 1,000,000 dimensions, exact"


# --------------------------------------------------------------------------- maximum over rounds


def test_the_union_bound_adds_log_rounds():
    base = CosineNull(100)
    null = MaxNull(base, 50)
    assert null.logsf(0.5) == approx(base.logsf(0.5) + math.log(50), rel=1e-15)
    assert null.logsf([-1.0, 0.0, 0.1, 1.0]).tolist() == [0.0, 0.0, 0.0, -math.inf]
    assert null.slack == approx(math.log(50))
    assert MaxNull(GaussianNull(slack=1.0), 2).slack == approx(1 + math.log(2))
    assert MaxNull(base, 1).logsf(0.3) == base.logsf(0.3)
    assert isinstance(null.logsf(0.5), float)


@pytest.mark.parametrize("correlation", [0.0, 0.9, -0.1])
def test_the_maximum_stays_below_the_union_bound(correlation):
    """Normal scores of 10 rounds, independent or correlated: the bound holds, and is nearly met by independent ones far out."""
    rounds, count = 10, 200_000
    rng = np.random.default_rng(9)
    covariance = np.full((rounds, rounds), correlation) + (1 - correlation) * np.eye(rounds)
    scores = rng.standard_normal((count, rounds)) @ np.linalg.cholesky(covariance).T
    largest = scores.max(axis=1)
    null = MaxNull(GaussianNull(), rounds)
    thresholds = [0.0, 1.0, 2.0, 2.5, 3.0, 3.5, 4.0]
    for threshold in thresholds:
        bound, seen = math.exp(null.logsf(threshold)), int((largest >= threshold).sum())
        assert seen <= stats.binom.isf(FALSE_ALARM / len(thresholds), count, bound)
        if correlation <= 0 and threshold >= 2.5:
            assert seen >= stats.binom.ppf(FALSE_ALARM / len(thresholds), count, 0.9 * bound)


def test_the_maximum_of_cosines_stays_below_the_union_bound():
    """One canary against the releases of 20 rounds that share a common part."""
    dim, rounds, count = 30, 20, 50_000
    rng = np.random.default_rng(10)
    releases = rng.standard_normal((rounds, dim)) + rng.standard_normal(dim)
    releases /= np.linalg.norm(releases, axis=1, keepdims=True)
    canaries = rng.standard_normal((count, dim))
    largest = (canaries @ releases.T / np.linalg.norm(canaries, axis=1, keepdims=True)).max(axis=1)
    null = MaxNull(CosineNull(dim), rounds)
    for z in (1.0, 2.0, 3.0, 4.0):
        threshold = z / math.sqrt(dim)
        seen = int((largest >= threshold).sum())
        assert seen <= stats.binom.isf(FALSE_ALARM / 4, count, math.exp(null.logsf(threshold)))


def test_the_maximum_has_no_moments_and_says_so():
    null = MaxNull(CosineNull(10), 3)
    for name in ("center", "spread"):
        with pytest.raises(ValueError, match="depend on the trajectory"):
            getattr(null, name)
    assert null.name == "maximum over 3 rounds (union bound) of: cosine with a random direction in 10 dimensions, exact"
    assert null.assumptions == CosineNull(10).assumptions
    assert MaxNull(GaussianNull(), 2).assumptions == GaussianNull().assumptions
    for rounds in (0, -1, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"^rounds"):
            MaxNull(CosineNull(10), rounds)


# --------------------------------------------------------------------------- normal scores


def test_normal_tails():
    null = GaussianNull(spread=2.0, center=1.0)
    for z in (-40.0, -3.0, 0.0, 1.0, 10.0, 140.0):
        with mp.workdps(40):
            truth = mp.log(mp.erfc(mpf(z) / mp.sqrt(2)) / 2)
        assert null.logsf(1.0 + 2.0 * z) == approx(float(truth), rel=1e-14)
    assert (null.logsf(math.inf), null.logsf(-math.inf)) == (-math.inf, 0.0)
    assert null.logsf([[1.0, 3.0]]).shape == (1, 2)
    assert isinstance(null, Null)


def test_slack_enlarges_the_tail_but_not_beyond_one():
    exact, enlarged = GaussianNull(), GaussianNull(slack=math.log(3.18))
    assert enlarged.logsf(4.0) == approx(exact.logsf(4.0) + math.log(3.18), rel=1e-15)
    assert enlarged.logsf(-4.0) == 0.0
    assert enlarged.slack == math.log(3.18)


def test_the_slack_of_random_signs_covers_them():
    """P(sum of signs >= x) <= 3.18 P(normal >= x) for every vector of weights; equality nearly occurs for two equal weights."""
    null = GaussianNull(slack=math.log(3.18))
    signs = np.array(np.meshgrid(*[[-1, 1]] * 12)).reshape(12, -1)
    rng = np.random.default_rng(11)
    for weights in [np.eye(12)[0], np.r_[1, 1, np.zeros(10)], np.ones(12), rng.standard_normal(12), np.arange(12.0)]:
        sums = np.sort(weights @ signs / np.linalg.norm(weights))
        at_least = (sums.size - np.searchsorted(sums, sums - 1e-9)) / sums.size
        assert (np.log(at_least) <= null.logsf(sums - 1e-9)).all()
    assert math.log(0.25) > GaussianNull(slack=math.log(3.1)).logsf(math.sqrt(2))


def test_normal_laws_describe_themselves():
    assert GaussianNull().name == "normal with mean 0 and standard deviation 1"
    assert GaussianNull(slack=0.5).name == "normal with mean 0 and standard deviation 1, tail enlarged by 0.50 nats"
    assert GaussianNull(spread=0.25, center=-3).assumptions == (
        "held-out scores are normal with mean -3 and standard deviation 0.25",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("spread", value) for value in (0.0, -1.0, math.nan, math.inf, "wide")],
        *[("slack", value) for value in (-0.1, math.nan, math.inf)],
        *[("center", value) for value in (math.nan, math.inf, -math.inf, "here")],
    ],
)
def test_bad_parameters_of_a_normal_law_are_named(name, value):
    with pytest.raises(ValueError, match=f"^{name}"):
        GaussianNull(**{name: value})


@OFTEN
@given(st.floats(5e-324, 1.7e308), st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False))
def test_any_value_has_a_normal_tail(spread, center, value):
    assert GaussianNull(spread, center, 0.5).logsf(value) <= 0


# --------------------------------------------------------------------------- laws in files


LAWS = st.recursive(
    st.one_of(
        st.builds(CosineNull, st.integers(2, 10**15)),
        st.builds(GaussianNull, st.floats(1e-300, 1e300), st.floats(-1e300, 1e300), st.floats(0, 1e300)),
    ),
    lambda law: st.builds(MaxNull, law, st.integers(1, 10**9)),
    max_leaves=3,
)


@OFTEN
@given(st.none() | LAWS)
def test_a_law_survives_its_description(law):
    assert described(json.loads(json.dumps(describe(law)))) == law


@pytest.mark.parametrize(
    "data",
    [
        3,
        "cosine",
        [],
        {},
        {"law": "cosine"},
        {"law": "uniform"},
        {"law": "max", "base": None, "rounds": 3},
        {"law": "cosine", "dim": 1},
    ],
)
def test_what_describes_no_law_is_refused(data):
    with pytest.raises(ValueError, match=r"^not a known null law|^dim=1 is not allowed"):
        described(data)


def test_a_law_of_another_kind_cannot_be_described():
    with pytest.raises(ValueError, match=r"of type object cannot be saved; save scores\.sampled\(\) instead"):
        describe(object())
