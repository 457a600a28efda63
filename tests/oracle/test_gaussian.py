"""Epsilon and delta between two Gaussians, against arithmetic with 60 digits and more.

The truth below is written from the definition, not from the code under test: the borders of the best event are the roots of
the privacy loss in the plain coordinate, both probabilities are complementary error functions, and they are subtracted. What
that cancels is paid with digits: the precision is doubled until two results agree.

delta(epsilon) decreases, so the two evaluations delta(found - 1e-9 found) >= delta >= delta(found + 1e-9 found) prove that the
true epsilon is within 1e-9 of the one found: the last step of a bisection, without the others.
"""

import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from pytest import approx

from coalmine.gaussian import gaussian_delta, gaussian_epsilon, gaussian_gap, halfline_epsilon

TOLERANCE = 1e-9
# Epsilon has a kink at zero, where delta is the total variation distance, and depends on 1 - delta where delta is nearly 1;
# delta has a cliff at the largest loss of a narrower P. There the last bits of an input move many digits of the answer, so the
# answer is required for an input that differs by this many units of the last place. Elsewhere that changes nothing.
LAST_BITS = 8 * 2.0**-53
DIRECTIONS = ("p||q", "q||p")


def hockey_stick(mean_p, std_p, mean_q, std_q, epsilon):
    """(delta, e^epsilon Q(S)) for S = {log p/q > epsilon}, to 20 digits."""
    gap, std_p, std_q = abs(mpf(mean_p) - mpf(mean_q)), mpf(std_p), mpf(std_q)
    scales = [abs(mp.log10(x)) for x in (std_p / std_q, gap / std_p, gap / std_q) if x > 0]
    digits, previous = 60 + 2 * int(max(scales)), None
    while digits < 5000:
        with mp.workdps(digits):
            found = _hockey_stick(abs(mpf(mean_p) - mpf(mean_q)), std_p, std_q, mpf(epsilon))
            agree = previous and all(abs(x - y) <= abs(x) * mpf(10) ** -20 for x, y in zip(found, previous, strict=True))
            if agree and (found[0] > 0 or found[1] == 0):  # not a difference that was lost in both
                return found
        digits, previous = 2 * digits, found
    raise ArithmeticError("no precision was enough")


def _hockey_stick(gap, std_p, std_q, epsilon):
    """P = N(gap, std_p²), Q = N(0, std_q²); the loss minus epsilon is a x² + b x + c."""
    a = (1 / std_q**2 - 1 / std_p**2) / 2
    b = gap / std_p**2
    c = mp.log(std_q / std_p) - gap**2 / (2 * std_p**2) - epsilon
    square = b * b - 4 * a * c
    if a < 0 and square <= 0:
        return mpf(0), mpf(0)  # P is narrower and its loss never reaches epsilon
    borders = [-c / b] if a == 0 else sorted([(-b - mp.sqrt(square)) / (2 * a), (-b + mp.sqrt(square)) / (2 * a)])

    def probability(mean, std):
        z = [(x - mean) / (std * mp.sqrt(2)) for x in borders]
        if a == 0:
            return mp.erfc(z[0]) / 2
        if a > 0:
            return (mp.erfc(-z[0]) + mp.erfc(z[1])) / 2
        low, high = z if z[1] > 0 else (-z[1], -z[0])
        return (mp.erfc(low) - mp.erfc(high)) / 2

    weight = mp.exp(epsilon) * probability(0, std_q)
    return probability(gap, std_p) - weight, weight


def arranged(case, order):
    """The first and the second distribution of a direction."""
    mean_p, std_p, mean_q, std_q = case
    return case if order == "p||q" else (mean_q, std_q, mean_p, std_p)


def assert_epsilon(case, delta, order, tolerance=TOLERANCE):
    found = gaussian_epsilon(*case, delta, order=order)
    about = f"epsilon{case} at delta={delta!r}, {order}: {found!r}"
    bits = LAST_BITS * (1 - math.log(delta))  # a logarithm of delta has no more
    pair, found = arranged(case, order), mpf(found)
    assert hockey_stick(*pair, found * (1 + tolerance))[0] <= delta * (1 + bits), about + " is too small"
    if found > 0:
        assert hockey_stick(*pair, found * (1 - tolerance))[0] >= delta * (1 - bits), about + " is too large"
    return float(found)


def assert_delta(case, epsilon, order, tolerance=TOLERANCE):
    found = gaussian_delta(*case, epsilon, order=order)
    about = f"delta{case} at epsilon={epsilon!r}, {order}: {found!r}"
    pair, epsilon = arranged(case, order), mpf(epsilon)
    smallest = 1e-290  # below lie the numbers without their full precision
    most = hockey_stick(*pair, epsilon * (1 - LAST_BITS))[0]
    assert found <= max(most * (1 + tolerance), smallest), about + " is too large"
    least = hockey_stick(*pair, epsilon * (1 + LAST_BITS))[0]
    assert found >= (least * (1 - tolerance) if least > smallest else 0), about + " is too small"
    return found


# mean and width of the second distribution (the first is standard normal), delta, epsilon in both orders, from 60 digits
REFERENCE = [
    (1, 1, 1e-6, "4.88655411746", "4.88655411746"),
    (1, 1, 1e-5, "4.37717809568", "4.37717809568"),
    (1, 1, 1e-2, "2.31778904030", "2.31778904030"),
    (0.5, 1, 1e-6, "2.25408465022", "2.25408465022"),
    (5, 1, 1e-6, "35.5663437141", "35.5663437141"),
    (20, 1, 1e-6, "294.171786258", "294.171786258"),
    (0.01, 1, 1e-6, "0.0336737801308", "0.0336737801308"),
    (0, 1.01, 1e-6, "0.00991766893738", "0.154148683076"),
    (0, 1.02, 1e-6, "0.019761680782", "0.336189294159"),
    (0, 1.05, 1e-6, "0.0487353895108", "0.940202411602"),
    (0, 1.1, 1e-6, "0.095242737497", "2.05722606854"),
    (0, 1.5, 1e-6, "0.405365715252", "13.8221430629"),
    (0, 2, 1e-6, "0.693037330805", "34.3406324322"),
    (0, 10, 1e-6, "2.30246459212", "1181.1449251"),
    (0, 0.9, 1e-6, "2.31952530259", "0.10529100716"),
    (0, 0.5, 1e-6, "34.3406324322", "0.693037330805"),
    (0, 0.1, 1e-6, "1181.1449251", "2.30246459212"),
    (1, 1.1, 1e-6, "2.41658620428", "7.48916269356"),
    (1, 0.9, 1e-6, "8.48918062127", "2.67671647344"),
    (2, 1.2, 1e-5, "4.57993405095", "15.3673295829"),
    (2, 0.8, 1e-5, "20.6096612246", "5.63957098359"),
    (20, 0.9, 1e-6, "365.909352926", "282.638507148"),
    (20, 1.1, 1e-6, "241.119684879", "305.944021584"),
    (100, 0.5, 1e-6, "21933.5748445", "5228.9391363"),
    (300, 0.5, 1e-6, "185736.310541", "45704.249538"),
    (0.6, 1.03, 8.202952242646147e-07, "2.07066029161", "3.46709885973"),
    (3, 1 + 1e-7, 1e-6, "18.1634399553", "18.1634492581"),
    (3, 1 - 1e-9, 1e-6, "18.1634458171", "18.1634457241"),
]
LARGER_REFERENCE = [(8, 0.9999, 1e-6, "69.26008089686"), (0, 1000, 1e-6, "11964043.6166")]

# noise multiplier of one Gaussian release, delta, epsilon; and the noise multiplier that gives exactly this epsilon
RELEASES = [
    *[(sigma, 1e-6, epsilon) for sigma, epsilon in [(0.541, "10.00192391"), (1.54, "3.00835517"), (4.22, "1.00119513")]],
    *[
        (sigma, 341000**-1.1, epsilon)
        for sigma, epsilon in [(0.0644, "194.1179"), (0.1023, "93.8198"), (0.1836, "40.2248"), (0.2344, "28.8814")]
    ],
    *[(sigma, 341000**-1.1, epsilon) for sigma, epsilon in [(0.0496, "298.9813"), (0.0986, "99.2258"), (0.2317, "29.3307")]],
    *[
        (sigma, 3383**-1.1, epsilon)
        for sigma, epsilon in [(0.16, "41.5582"), (0.18, "34.9435"), (0.195, "31.1145"), (0.25, "21.8925"), (0.315, "15.9642")]
    ],
    *[(0.2, delta, epsilon) for delta, epsilon in [(1e-5, "33.1037"), (60000**-1.1, "33.7581"), (1e-6, "35.5663")]],
]
EXACT_NOISE = [
    *[(epsilon, 1e-6, sigma) for epsilon, sigma in [(10, "0.54108683182"), (3, "1.54386141778"), (1, "4.22467888933")]],
    *[
        (epsilon, 341000**-1.1, sigma)
        for epsilon, sigma in [(300, "0.0494998350"), (100, "0.0980989812"), (30, "0.2278180291")]
    ],
]


def printed(text):
    """A printed number, exact to half a unit of its last digit."""
    return approx(float(text), rel=0, abs=0.5001 * 10.0 ** -len(text.partition(".")[2]))


@pytest.mark.parametrize(("mean", "std", "delta", "forward", "backward"), REFERENCE)
def test_reference_values(mean, std, delta, forward, backward):
    case = (0.0, 1.0, mean, std)
    found = {order: assert_epsilon(case, delta, order, tolerance=1e-12) for order in DIRECTIONS}
    assert found == {"p||q": printed(forward), "q||p": printed(backward)}
    assert gaussian_epsilon(*case, delta) == gaussian_epsilon(*case, delta, order="both") == max(found.values())


@pytest.mark.parametrize(("mean", "std", "delta", "larger"), LARGER_REFERENCE)
def test_reference_values_of_the_larger_direction(mean, std, delta, larger):
    found = [assert_epsilon((0.0, 1.0, mean, std), delta, order, tolerance=1e-12) for order in DIRECTIONS]
    assert max(found) == gaussian_epsilon(0.0, 1.0, mean, std, delta) == printed(larger)


@pytest.mark.parametrize(("mean", "std", "delta"), [row[:3] for row in [*REFERENCE, *LARGER_REFERENCE]])
def test_delta_of_the_reference_values(mean, std, delta):
    case = (0.0, 1.0, mean, std)
    for order in DIRECTIONS:
        epsilon = gaussian_epsilon(*case, delta, order=order)
        for factor in (0, 0.5, 1, 1.5):
            assert_delta(case, factor * epsilon, order)
    both = gaussian_delta(*case, epsilon)
    assert both == max(gaussian_delta(*case, epsilon, order=order) for order in DIRECTIONS)


@pytest.mark.parametrize(("sigma", "delta", "epsilon"), RELEASES)
def test_one_gaussian_release(sigma, delta, epsilon):
    found = gaussian_epsilon(0, sigma, 1, sigma, delta)
    assert found == printed(epsilon)
    assert found == gaussian_epsilon(1, sigma, 0, sigma, delta)


@pytest.mark.parametrize("sigma", [0.05, 0.2, 1, 4.22, 30, 1000])
@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-6, 1e-12, 1e-30])
def test_dp_accounting_is_a_second_referee(sigma, delta):
    assert gaussian_epsilon(0, sigma, 1, sigma, delta) == approx(get_epsilon_gaussian(sigma, delta), rel=TOLERANCE, abs=1e-12)


def total_variation(case):
    return hockey_stick(*case, 0)[0]


@pytest.mark.parametrize("exponent", [3, 6, 9, 12, 15])
@pytest.mark.parametrize("sign", [1, -1])
def test_nearly_equal_widths(exponent, sign):
    std = 1 + sign * 10.0**-exponent
    assert std != 1
    for gap in (0.0, 1e-29, 1e-12, 1e-5, 1e-2):
        case = (0.0, 1.0, gap, std)
        distance = total_variation(case)
        for delta in (1e-1, 1e-6, 1e-30, float(distance / 2), float(distance * mpf("1e-10"))):
            for order in DIRECTIONS:
                found = assert_epsilon(case, delta, order)
                assert (found > 0) == (delta < distance)


@pytest.mark.parametrize("gap", [1e-200, 1e-100, 1e-30, 1e-20, 1e-15, 1e-10, 1e-5, 1e-2, 1.0])
def test_equal_widths_and_a_tiny_gap(gap):
    case = (0.0, 1.0, gap, 1.0)
    distance = total_variation(case)
    for fraction in (0.9, 0.5, 1e-2, 1e-6, 1e-30):
        epsilon = assert_epsilon(case, float(distance * fraction), "both")
        assert epsilon > 0
        assert_delta(case, epsilon, "both")
    for factor in (0.0, 0.1, 1.0, 5.0):
        assert_delta(case, factor * gap, "both")


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e8, 1e12])
@pytest.mark.parametrize("inverse", [False, True])
def test_wildly_different_scales(scale, inverse):
    std = 1 / scale if inverse else scale
    for gap in (0.0, 1e-6 * std, std, 10 * std, 1e8 * std, 1.0, 1e8):
        for delta in (1 - 1e-6, 0.9, 1e-6, 1e-30):
            for order in DIRECTIONS:
                epsilon = assert_epsilon((0.0, 1.0, gap, std), delta, order)
                assert_delta((0.0, 1.0, gap, std), epsilon / 2, order)


@pytest.mark.parametrize("std", [1.0, 1 + 1e-12, 1 - 1e-12, 0.9, 2.0])
@pytest.mark.parametrize("gap", [30.0, 1e3, 1e6, 1e8])
def test_a_large_gap(std, gap):
    for delta in (0.999, 0.1, 1e-6, 1e-30):
        for order in DIRECTIONS:
            assert_epsilon((0.0, 1.0, gap, std), delta, order, tolerance=1e-13 * max(1, 1e-3 / (1 - delta)))


def test_random_cases():
    rng = np.random.default_rng(20240701)
    for _ in range(300):
        std = float(rng.choice([10 ** rng.uniform(-0.3, 0.3), 10 ** rng.uniform(-8, 8), 1 + rng.normal() / 100]))
        gap = float(rng.choice([rng.normal(), 10 ** rng.uniform(-10, 3)])) * rng.choice([1, std])
        case = (0.0, 1.0, gap, std)
        order = str(rng.choice(DIRECTIONS))
        epsilon = assert_epsilon(case, float(rng.choice([rng.uniform(), 10 ** -rng.uniform(0, 30)])), order)
        assert_delta(case, epsilon * rng.uniform(0, 1.5), order)


@pytest.mark.parametrize("case", [(0.0, 1.0, 1.0, 1.0), (0.0, 1.0, 1e-3, 1.0), (0.0, 1.0, 0.0, 1.001), (0.0, 1.0, 3.0, 0.5)])
def test_just_inside_the_total_variation_distance(case):
    """A delta of (1 - x) times the distance leaves an epsilon of the order of x, with x times fewer digits."""
    for order in DIRECTIONS:
        distance = hockey_stick(*arranged(case, order), 0)[0]
        for x in (1e-2, 1e-4, 1e-6):
            assert assert_epsilon(case, float(distance * (1 - x)), order, tolerance=max(TOLERANCE, 1e-12 / x)) > 0
        assert gaussian_epsilon(*case, float(distance * (1 + mpf(1e-9))), order=order) == 0


def test_just_below_the_largest_loss():
    """A narrower P has a largest loss; there delta falls to zero like the power 3/2 of what is missing."""
    for std, gap in [(0.5, 0.0), (0.5, 1.0), (0.999, 0.1), (1e-8, 0.0), (1e-3, 50.0)]:
        largest = -math.log(std) + gap**2 / (2 * (1 - std**2))
        for missing in (1e-1, 1e-3, 1e-6, 1e-9):
            assert_delta((0.0, std, gap, 1.0), largest * (1 - missing), "p||q", tolerance=max(TOLERANCE, 1e-15 / missing))
        assert gaussian_delta(0.0, std, gap, 1.0, largest * (1 + 1e-12), order="p||q") == 0
        assert gaussian_epsilon(0.0, std, gap, 1.0, 0.0, order="p||q") == approx(largest, rel=1e-12)
        for delta in (1e-100, 1e-300):
            assert_epsilon((0.0, std, gap, 1.0), delta, "p||q")


@pytest.mark.parametrize("order", ["both", *DIRECTIONS])
def test_delta_of_epsilon_is_delta(order):
    rng = np.random.default_rng(7)
    for _ in range(60):
        case = (0.0, 1.0, abs(rng.normal()) * 5, 10 ** rng.uniform(-1, 1))
        delta = 10 ** -rng.uniform(0.5, 12)
        epsilon = gaussian_epsilon(*case, delta, order=order)
        back = gaussian_delta(*case, epsilon, order=order)
        if epsilon == 0:
            assert back <= delta
            continue
        # epsilon is rounded, and |d log delta / d epsilon| is e^epsilon Q(S) / delta, which is large near the largest loss
        slope = max(hockey_stick(*arranged(case, each), epsilon)[1] for each in DIRECTIONS if order in ("both", each)) / delta
        assert back == approx(delta, rel=max(TOLERANCE, 4 * 2.0**-53 * epsilon * float(slope)))


# --------------------------------------------------------------------------- edges


@pytest.mark.parametrize("order", ["both", *DIRECTIONS])
@pytest.mark.parametrize("std", [0.0, 5e-324, 1e-3, 1.0, 1e308])
def test_equal_distributions_are_indistinguishable(std, order):
    for mean in (0.0, -1e308, 5e-324):
        for delta in (0.0, 1e-300, 0.5, 1.0):
            assert gaussian_epsilon(mean, std, mean, std, delta, order=order) == 0
        for epsilon in (0.0, 1.0, math.inf):
            assert gaussian_delta(mean, std, mean, std, epsilon, order=order) == 0


@pytest.mark.parametrize("case", [(0, 0, 0, 1), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 5e-324, 0), (1, 0, 2, 3)])
@pytest.mark.parametrize("order", ["both", *DIRECTIONS])
def test_a_width_of_zero_is_told_apart_for_sure(case, order):
    for delta in (0.0, 1e-6, 1 - 2**-53):
        assert gaussian_epsilon(*case, delta, order=order) == math.inf
    assert gaussian_epsilon(*case, 1.0, order=order) == 0
    for epsilon in (0.0, 1.0, 1e308):
        assert gaussian_delta(*case, epsilon, order=order) == 1


def test_delta_zero_is_the_largest_loss():
    assert gaussian_epsilon(0, 1, 1, 1, 0.0) == math.inf
    assert gaussian_epsilon(0, 2, 0, 1, 0.0, order="p||q") == math.inf
    assert gaussian_epsilon(0, 1, 0, 2, 0.0, order="p||q") == approx(math.log(2), rel=1e-15)
    assert gaussian_epsilon(0, 1, 3, 2, 0.0, order="p||q") == approx(math.log(2) + 1.5, rel=1e-15)
    assert gaussian_epsilon(0, 1, 3, 2, 0.0) == math.inf


def test_delta_of_one_or_more_asks_nothing():
    for delta in (1.0, 1.5, 1e300):
        assert gaussian_epsilon(0, 1, 1e9, 1e-9, delta) == 0


def test_an_infinite_epsilon_leaves_nothing():
    assert gaussian_delta(0, 1, 1, 1, math.inf) == 0
    assert gaussian_delta(0, 1, 1e300, 1e-300, math.inf) == 0


def test_a_gap_beyond_the_largest_float_is_still_a_gap():
    assert gaussian_epsilon(-1e308, 1e308, 1e308, 1e308, 1e-6) == approx(gaussian_epsilon(-1, 1, 1, 1, 1e-6), rel=1e-14)
    assert gaussian_delta(-1e308, 1e308, 1e308, 5e307, 3.0) == approx(gaussian_delta(-1, 1, 1, 0.5, 3.0), rel=1e-14)
    assert halfline_epsilon(-1e308, 1e308, 1e308, 1e308, 1e-6) == approx(halfline_epsilon(-1, 1, 1, 1, 1e-6), rel=1e-14)


def test_a_width_far_below_the_other_one():
    """200 log 10 = 460.517 is the largest loss of a width of 1e-200 against 1."""
    for delta in (0.9, 1e-5, 1e-30):
        assert 457 < assert_epsilon((0.0, 1e-200, 0.0, 1.0), delta, "p||q") < 460.518
    for epsilon in (0.0, 400.0, 460.0, 460.5, 460.517):
        assert_delta((0.0, 1e-200, 0.0, 1.0), epsilon, "p||q")
    assert gaussian_delta(0, 1e-200, 0, 1, 460.518, order="p||q") == 0


BAD_ARGUMENTS = [
    ("mean_p", math.nan, "NaN"),
    ("std_p", math.nan, "NaN"),
    ("mean_q", [0, math.nan], "NaN"),
    ("std_q", math.nan, "NaN"),
    ("mean_p", math.inf, "infinity"),
    ("std_p", math.inf, "infinity"),
    ("mean_q", -math.inf, "infinity"),
    ("std_q", math.inf, "infinity"),
    ("std_p", -1, "at least 0"),
    ("std_q", [1, -1e-300], "at least 0"),
]


@pytest.mark.parametrize(("function", "last"), [(gaussian_epsilon, "delta"), (gaussian_delta, "epsilon")])
def test_bad_arguments_are_named(function, last):
    good = {"mean_p": 0, "std_p": 1, "mean_q": 1, "std_q": 1, last: 0.1}
    for name, value, word in [*BAD_ARGUMENTS, (last, math.nan, "NaN"), (last, -1e-9, "at least 0"), (last, -math.inf, "")]:
        with pytest.raises(ValueError, match=f"^{name}.*{word}"):
            function(**{**good, name: value})
    with pytest.raises(ValueError, match=r"order='q\|p' is not allowed.*'p\|\|q'"):
        function(**good, order="q|p")


def test_an_infinite_delta_is_named():
    with pytest.raises(ValueError, match=r"^delta contains infinity"):
        gaussian_epsilon(0, 1, 1, 1, math.inf)


def test_arrays_broadcast_and_agree_with_scalars():
    mean, std, delta = (
        np.linspace(-3, 3, 7)[:, None, None],
        np.array([0.0, 0.5, 1.0, 1.1])[:, None],
        np.array([0, 1e-6, 0.5, 1]),
    )
    for order in ("both", *DIRECTIONS):
        epsilons = gaussian_epsilon(0, 1, mean, std, delta, order=order)
        assert epsilons.shape == (7, 4, 4)
        assert epsilons.dtype == np.float64
        deltas = gaussian_delta(0, 1, mean, std, np.array([0, 0.1, 5, math.inf]), order=order)
        for (i, j, k), epsilon in np.ndenumerate(epsilons):
            pair = (0, 1, float(mean[i, 0, 0]), float(std[j, 0]))
            alone = gaussian_epsilon(*pair, float(delta[k]), order=order)
            assert isinstance(alone, float)
            assert epsilon == approx(alone, rel=1e-13)
            assert deltas[i, j, k] == approx(gaussian_delta(*pair, [0, 0.1, 5, math.inf][k], order=order), rel=1e-13)


def test_empty_arrays_and_shapes_that_do_not_fit():
    assert gaussian_epsilon([], 1, 0, 1, 0.1).shape == (0,)
    assert gaussian_delta(np.zeros((2, 0)), 1, 0, 1, 0.1).shape == (2, 0)
    with pytest.raises(ValueError, match="broadcast"):
        gaussian_epsilon([0, 1], 1, [0, 1, 2], 1, 0.1)


def test_whole_numbers_and_small_floats_are_numbers_too():
    expected = gaussian_epsilon(0.0, 1.0, 2.0, 1.0, 1e-3)
    assert gaussian_epsilon(0, 1, 2, True, 1e-3) == expected
    assert gaussian_epsilon(np.float32(0), np.int8(1), np.float16(2), 1, 1e-3) == expected


# --------------------------------------------------------------------------- properties

ANY = st.floats(allow_nan=False, allow_infinity=False)
ANY_WIDTH = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
ANY_DELTA = st.one_of(st.floats(0, 1), st.floats(0, 1e-300), st.floats(1 - 1e-15, 2))
# the corners of the float range far more often than chance would visit them
CORNER = st.sampled_from(
    [0.0, 5e-324, 1e-310, 1e-300, 1e-160, 1e-150, 1e-16, 1.0, 1 + 2**-52, 1e16, 1e150, 1e160, 1e300, 1.7e308]
)
WIDTH, MEAN = st.one_of(ANY_WIDTH, CORNER), st.one_of(ANY, CORNER, CORNER.map(lambda x: -x))
ORDER = st.sampled_from(["both", *DIRECTIONS])
OFTEN = settings(deadline=None, derandomize=True, max_examples=300, database=None)


@OFTEN
@given(MEAN, WIDTH, MEAN, WIDTH, ANY_DELTA, ORDER)
def test_epsilon_of_any_finite_input_is_a_number(mean_p, std_p, mean_q, std_q, delta, order):
    assert gaussian_epsilon(mean_p, std_p, mean_q, std_q, delta, order=order) >= 0


@OFTEN
@given(MEAN, WIDTH, MEAN, WIDTH, st.one_of(ANY_WIDTH, CORNER, st.just(math.inf)), ORDER)
def test_delta_of_any_finite_input_is_a_probability(mean_p, std_p, mean_q, std_q, epsilon, order):
    assert 0 <= gaussian_delta(mean_p, std_p, mean_q, std_q, epsilon, order=order) <= 1


@settings(OFTEN, max_examples=100)
@given(MEAN, WIDTH, MEAN, WIDTH, st.floats(1e-300, 1 - 2**-53))
def test_halfline_epsilon_of_any_finite_input_is_a_number(mean_p, std_p, mean_q, std_q, delta):
    assert halfline_epsilon(mean_p, std_p, mean_q, std_q, delta) >= 0


USUAL_MEAN, USUAL_WIDTH = st.floats(-30, 30), st.floats(0.01, 100)


@settings(OFTEN, max_examples=60)
@given(USUAL_MEAN, USUAL_WIDTH, USUAL_MEAN, USUAL_WIDTH, ORDER)
def test_epsilon_falls_with_delta(mean_p, std_p, mean_q, std_q, order):
    delta = np.concatenate([[0.0], np.logspace(-300, -10, 30), np.logspace(-9.9, 0, 200)])
    epsilon = gaussian_epsilon(mean_p, std_p, mean_q, std_q, delta, order=order)
    before, after = epsilon[:-1], epsilon[1:]
    assert (after <= before * (1 + 1e-14)).all()


@OFTEN
@given(USUAL_MEAN, USUAL_WIDTH, USUAL_MEAN, USUAL_WIDTH, ORDER)
def test_delta_falls_with_epsilon(mean_p, std_p, mean_q, std_q, order):
    delta = gaussian_delta(mean_p, std_p, mean_q, std_q, np.linspace(0, 50, 200), order=order)
    before, after = delta[:-1], delta[1:]
    assert (after <= before * (1 + 1e-13)).all()


DELTAS = np.array([0.0, 1e-20, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.99])


@settings(OFTEN, max_examples=30)
@given(*[st.integers(-1000, 1000), st.integers(1, 1000)] * 2, ORDER, st.integers(-500, 500))
def test_only_the_shape_counts(mean_p, std_p, mean_q, std_q, order, exponent):
    """Reflections, these shifts and scales by powers of two are exact in floats, and so must be the answer."""

    def epsilon(shift=0.0, scale=1.0):
        return gaussian_epsilon(
            scale * mean_p + shift, abs(scale) * std_p, scale * mean_q + shift, abs(scale) * std_q, DELTAS, order=order
        )

    for moved in (epsilon(scale=-1.0), epsilon(shift=2.0**40), epsilon(scale=2.0**exponent)):
        assert (moved == epsilon()).all()


@settings(OFTEN, max_examples=40)
@given(USUAL_MEAN, USUAL_WIDTH, USUAL_MEAN, USUAL_WIDTH)
def test_both_directions_are_symmetric(mean_p, std_p, mean_q, std_q):
    p, q = (mean_p, std_p), (mean_q, std_q)
    for function, last in [(gaussian_epsilon, DELTAS), (gaussian_delta, 10 * DELTAS)]:
        forward, backward = function(*p, *q, last, order="p||q"), function(*p, *q, last, order="q||p")
        assert (forward == function(*q, *p, last, order="q||p")).all()
        assert (np.maximum(forward, backward) == function(*p, *q, last)).all()
        assert (function(*q, *p, last) == function(*p, *q, last)).all()


# --------------------------------------------------------------------------- the inverse, and threshold attacks


@pytest.mark.parametrize(("epsilon", "delta", "sigma"), EXACT_NOISE)
def test_noise_for_an_epsilon(epsilon, delta, sigma):
    assert 1 / gaussian_gap(epsilon, delta) == printed(sigma)


@pytest.mark.parametrize("epsilon", [1e-20, 1e-3, 1.0, 1e4, 1e290])
@pytest.mark.parametrize("delta", [0.999, 1e-6, 1e-30, 1e-300])
def test_gap_is_the_inverse_of_epsilon(epsilon, delta):
    gap = mpf(gaussian_gap(epsilon, delta))
    if epsilon > 1e100:  # too many digits for the truth; the gap is sqrt(2 epsilon) then
        assert gap == approx(math.sqrt(2 * epsilon), rel=TOLERANCE)
        return
    assert (
        hockey_stick(0, 1, gap * (1 + TOLERANCE), 1, epsilon)[0]
        >= delta
        >= hockey_stick(0, 1, gap * (1 - TOLERANCE), 1, epsilon)[0]
    )


@pytest.mark.parametrize("delta", [0.9, 1e-6, 1e-20, 1e-300])
def test_the_gap_of_epsilon_zero_has_delta_as_total_variation(delta):
    gap = gaussian_gap(0.0, delta)
    assert mp.erf(mpf(gap) / mp.sqrt(8)) == approx(delta, rel=1e-14)
    assert gaussian_epsilon(0, 1, gap * (1 - 1e-12), 1, delta) == 0
    assert gaussian_gap(1e-310, delta) == approx(gap, rel=1e-14)


def test_gap_names_its_bad_arguments():
    for epsilon in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"^epsilon"):
            gaussian_gap(epsilon, 1e-6)
    for delta in (0.0, 1.0, -0.1, math.nan, 2.0):
        with pytest.raises(ValueError, match=r"^delta"):
            gaussian_gap(1.0, delta)


HALFLINE = [
    (0, 1.05, 0.8722, 0.9402),
    (0, 0.95, 0.9244, 0.9960),
    (0.25, 1.05, 2.0790, 2.0790),
    (1, 1.1, 7.4892, 7.4892),
    (1, 0.9, 8.4892, 8.4892),
    (3, 0.8, 34.6767, 34.6767),
]


@pytest.mark.parametrize(("mean", "std", "halfline", "full"), HALFLINE)
def test_threshold_attacks(mean, std, halfline, full):
    assert halfline_epsilon(0, 1, mean, std, 1e-6) == approx(halfline, abs=5.001e-5)
    assert gaussian_epsilon(0, 1, mean, std, 1e-6) == approx(full, abs=5.001e-5)


def true_halfline(mean, std, delta, threshold):
    """The formula of the first version of the one-shot paper at one threshold, in 40 digits."""
    with mp.workdps(40):
        p, q = mpf(threshold), (mpf(threshold) - mean) / mpf(std)
        left = (mp.ncdf(p) - delta) / mp.ncdf(q)
        right = (mp.ncdf(-q) - delta) / mp.ncdf(-p)
        return max(mp.log(ratio) if ratio > 0 else mpf("-inf") for ratio in (left, right))


@pytest.mark.parametrize(("mean", "std"), [(0, 1.05), (0, 0.95), (0.25, 1.05), (1, 0.9), (-1, 1), (2, 30), (50, 1), (0.01, 1)])
def test_threshold_attacks_against_a_golden_section(mean, std):
    delta = 1e-6
    grid = np.concatenate([np.linspace(-6, 6, 121), mean + std * np.linspace(-6, 6, 121)])
    start = max(grid, key=lambda threshold: true_halfline(mean, std, delta, threshold))
    step = max(0.1, 0.1 * std)
    low, high = start - step, start + step
    for _ in range(40):
        left, right = low + 0.382 * (high - low), high - 0.382 * (high - low)
        if true_halfline(mean, std, delta, left) > true_halfline(mean, std, delta, right):
            high = right
        else:
            low = left
    truth = max(float(true_halfline(mean, std, delta, (low + high) / 2)), 0.0)
    assert halfline_epsilon(0, 1, mean, std, delta) == approx(truth, rel=TOLERANCE)


@settings(OFTEN, max_examples=100)
@given(USUAL_MEAN, USUAL_WIDTH, USUAL_MEAN, USUAL_WIDTH, st.floats(1e-30, 0.99))
def test_threshold_attacks_see_no_more_than_all_attacks(mean_p, std_p, mean_q, std_q, delta):
    epsilon = gaussian_epsilon(mean_p, std_p, mean_q, std_q, delta)
    assert halfline_epsilon(mean_p, std_p, mean_q, std_q, delta) <= epsilon * (1 + TOLERANCE) + 1e-12


def test_threshold_attacks_do_not_mind_where_zero_is():
    """A narrow score far from zero: the thresholds are not resolved in the plain coordinate."""
    unit = 2.0**-10
    expected = halfline_epsilon(0, unit, unit, unit, 1e-6)
    assert halfline_epsilon(2.0**30, unit, 2.0**30 + unit, unit, 1e-6) == approx(expected, rel=1e-13)
    assert expected == approx(gaussian_epsilon(0, 1, 1, 1, 1e-6), rel=TOLERANCE)


def test_threshold_attacks_name_their_bad_arguments():
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"^delta"):
            halfline_epsilon(0, 1, 1, 1, delta)
    with pytest.raises(ValueError, match=r"^std_q"):
        halfline_epsilon(0, 1, 1, -1, 0.1)
    assert halfline_epsilon(0, 0, 0, 0, 0.1) == 0
    assert halfline_epsilon(0, 1, 0, 0, 0.1) == math.inf
