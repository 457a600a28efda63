"""Lower bounds against published or independently computed numbers, to the digits in which they are printed.

Where the numbers come from:

* B1, caps of perfect separation: Beta quantiles (Clopper & Pearson 1934; Jeffreys), computed with scipy.stats.beta.
* AUTHORS, regression values in the tests of google-research/federated, one_shot_epe/empirical_privacy_estimation_test.py
  (2024-02), whose scores are numpy's default_rng(0xBAD5EED) normals; an independent computation gave the same.
* B2, local levels of the simultaneous band: Poissonised recursion, checked by a recursion over binomial counts.
* B3, Bayesian quantiles: definition of Zanella-Béguelin et al. (2023), midpoint rule with 200,000 nodes.
* B4, Gaussian trade-off: Nasr et al. (2023) with Clopper–Pearson, half of the risk for each rate.
* B5, one run: Steinke, Nasr & Jagielski (2023); equal to google-deepmind/jax_privacy (2026-08) to 1e-6.
* B6, one run, f-DP: Mahloujifar, Melis & Chaudhuri (2024); the last four from facebookresearch/PrivacyGuard (2026-05),
  whose grid of noise levels is 0.3 % wide.
* B7, exchangeable bits: Pillutla et al. (2023), "published" as in google-research/federated, lidp_auditing (2024-02).
* J4, anytime: Robbins (1970), Howard et al. (2021).
"""

from decimal import Decimal

import numpy as np
import pytest
from pytest import approx
from scipy import special
from scipy.stats import binom

from coalmine import (
    CosineNull,
    Fixed,
    GaussianNull,
    Scores,
    anytime_epsilons,
    bound_bayesian,
    bound_gdp,
    bound_lifted,
    bound_one_run,
    bound_one_run_fdp,
    bound_pointwise,
    bound_threshold,
    gaussian_gap,
)
from coalmine.estimators import _band
from coalmine.estimators._rates import epsilon_of_rates, log_binomial_upper
from coalmine.estimators.bayesian import bayesian_quantile
from coalmine.estimators.lifted import XBern
from coalmine.estimators.one_run import Guesses, one_run_epsilon, one_run_fdp_epsilon


def printed(number):
    """Equal to a printed number: at most half a unit of its last digit away."""
    exponent = Decimal(number).as_tuple().exponent
    return approx(float(number), abs=0.5000001 * 10.0**exponent)


def separated(count):
    """As many held-out as inserted canaries, no two of different kinds on the same side of 0."""
    return Scores.of(np.linspace(1, 2, count), np.linspace(-2, -1, count), assignment="coins")


# ---- B1: binomial bounds ----

B1_CAPS = {  # canaries of each kind: Clopper–Pearson and Jeffreys at 5 %, the same at 2.5 % for each rate; delta = 1e-6
    50: ("2.7847", "3.2452", "2.5696", "2.9709"),
    100: ("3.4930", "3.9454", "3.2813", "3.6741"),
    986: ("5.7949", "6.2402", "5.5865", "5.9716"),
    1000: ("5.8091", "6.2543", "5.6006", "5.9857"),
    5000: ("7.4197", "7.8643", "7.2115", "7.5959"),
}
INTERVALS = ("clopper-pearson", "jeffreys")


@pytest.mark.parametrize("count", B1_CAPS)
@pytest.mark.parametrize("interval", INTERVALS)
def test_caps_of_perfect_separation(count, interval):
    """A fixed threshold halves the risk between the rates; the papers' number gives all of it to both."""
    scores, column = separated(count), INTERVALS.index(interval)
    full, half = B1_CAPS[count][column], B1_CAPS[count][column + 2]
    assert bound_pointwise(scores, delta=1e-6, confidence=0.95, interval=interval).epsilon == printed(full)
    assert bound_pointwise(scores, delta=1e-6, confidence=0.975, interval=interval).ceiling == printed(half)
    for confidence, cap in ((0.9, full), (0.95, half)):
        found = bound_threshold(scores, delta=1e-6, confidence=confidence, threshold=Fixed(0.0), interval=interval)
        assert found.epsilon == found.ceiling == printed(cap)


def test_an_upper_rate_of_the_released_code():
    """Jeffreys, no errors in 1,000 trials at 5 %."""
    assert np.exp(log_binomial_upper(np.array([0]), 1000, 0.05, "jeffreys"))[0] == printed("0.0019184067")


@pytest.mark.parametrize(("trials", "errors"), [(1, 0), (1, 1), (10, 0), (10, 10), (50, 7), (1000, 1), (1000, 999)])
def test_clopper_pearson_solves_its_own_equation(trials, errors):
    """At the upper bound, so few errors have probability exactly `level`; after only errors the bound is 1."""
    upper = float(np.exp(log_binomial_upper(np.array([errors]), trials, 0.05, "clopper-pearson"))[0])
    assert upper == 1.0 if errors == trials else binom.cdf(errors, trials, upper) == approx(0.05, rel=1e-10)


@pytest.mark.parametrize(("rate_times_n", "trials", "misses"), [(1.95, 1000, "0.14"), (10, 1000, "0.066")])
def test_jeffreys_is_not_a_bound(rate_times_n, trials, misses):
    """How often the true rate is above the bound, by the exact binomial law; 5 % nominally."""
    rate, errors = rate_times_n / trials, np.arange(trials + 1)
    chances = binom.pmf(errors, trials, rate)
    missed = {name: chances[np.exp(log_binomial_upper(errors, trials, 0.05, name)) < rate].sum() for name in INTERVALS}
    assert missed["jeffreys"] == printed(misses)
    assert missed["clopper-pearson"] <= 0.05


def authors_scores(count, dim):
    rng = np.random.default_rng(0xBAD5EED)
    return rng.normal(dim**-0.5, dim**-0.5, count), rng.normal(0.0, dim**-0.5, count)


def test_the_authors_regression_values_of_epsilon_lo():
    """Exact null below 1,000 dimensions, N(0, 1/d) from there on; and with unobserved canaries."""
    common = {"delta": 1e-2, "confidence": 0.99}
    low, high = authors_scores(100, 200)[0], authors_scores(100, 2000)[0]
    assert bound_pointwise(Scores.of(low, dim=200), **common).epsilon == printed("1.394838")
    assert bound_pointwise(Scores.of(high, null=GaussianNull(2000**-0.5)), **common).epsilon == printed("1.3880321")
    assert bound_pointwise(Scores.of(*authors_scores(100, 1)), **common).epsilon == printed("0.6839449")


@pytest.mark.parametrize(("dim", "epsilon"), [(200, "2.3753263"), (2000, "2.32324")])
def test_threshold_epsilon_of_a_gaussian_against_the_exact_null(dim, epsilon):
    """mean = std = d^-1/2, delta = 1e-2; the authors' 2.317789 at d = 2,000 has the Gaussian null."""
    thresholds = np.linspace(0, 4, 20_001)
    log_fnr, exact = special.log_ndtr(thresholds - 1), CosineNull(dim).logsf(thresholds * dim**-0.5)
    assert epsilon_of_rates(log_fnr, exact, 1e-2).max() == printed(epsilon)
    assert epsilon_of_rates(log_fnr, special.log_ndtr(-thresholds), 1e-2).max() == printed("2.317789")


# ---- B2: the band ----

B2_LEVELS = {  # canaries: local level for 95, 97.5 and 99 %
    2: ("2.7160e-2", "1.3242e-2", "5.1835e-3"),
    50: ("3.2874e-3", "1.4741e-3", "5.2702e-4"),
    100: ("2.4609e-3", "1.0938e-3", "3.8696e-4"),
    316: ("1.6618e-3", "7.3154e-4", "2.5583e-4"),
    1000: ("1.2170e-3", "5.3292e-4", "1.8517e-4"),  # 5.32918e-4; the recursion over binomial counts agrees to 1e-10
}


@pytest.mark.parametrize("count", B2_LEVELS)
def test_local_levels_of_the_band(count):
    for confidence, level in zip((0.95, 0.975, 0.99), B2_LEVELS[count], strict=True):
        assert _band.local_level(count, confidence) == printed(level)


def test_the_band_is_24_times_less_strict_than_bonferroni():
    assert _band.local_level(1000, 0.95) / (0.05 / 1000) == printed("24.3")


# ---- B3: Bayesian ----

B3_QUANTILES = {  # (FN, TP, FP, TN): quantiles 5, 50, 95 % at delta = 1e-5
    (0, 1000, 0, 1000): ("7.2072", "9.5582", "14.5010"),
    (0, 100, 0, 100): ("4.8964", "7.2519", "12.1961"),
    (50, 950, 50, 950): ("2.8282", "3.0134", "3.2235"),
    (100, 900, 10, 990): ("4.0117", "4.4829", "5.0432"),
    (300, 200, 100, 400): ("0.5226", "0.6920", "0.8676"),
    (250, 250, 250, 250): ("0.0040", "0.0437", "0.1271"),
}


@pytest.mark.parametrize("counts", B3_QUANTILES)
def test_bayesian_quantiles(counts):
    for probability, epsilon in zip((0.05, 0.5, 0.95), B3_QUANTILES[counts], strict=True):
        assert bayesian_quantile(*counts, 1e-5, probability) == printed(epsilon)


@pytest.mark.parametrize("counts", [(0, 1000, 0, 1000), (50, 950, 50, 950), (300, 200, 100, 400)])
def test_the_bayesian_limit_counts_errors_as_the_confusion_matrix_says(counts):
    missed, found, alarms, cleared = counts
    scores = Scores.of([-1.0] * missed + [1.0] * found, [1.0] * alarms + [-1.0] * cleared)
    assert bound_bayesian(scores, delta=1e-5, threshold=Fixed(0.0)).epsilon == printed(B3_QUANTILES[counts][0])


# ---- B4: Gaussian trade-off ----

B4_SEPARATED = {  # canaries of each kind: mu, epsilon at delta = 1e-5 and 1e-6
    100: ("3.5928", "21.1203", "22.8972"),
    1000: ("5.3598", "36.4895", "39.1274"),
    10000: ("6.7504", "50.8003", "54.1160"),
}


@pytest.mark.parametrize("count", B4_SEPARATED)
def test_gaussian_trade_off_under_perfect_separation(count):
    mu, *epsilons = B4_SEPARATED[count]
    for delta, epsilon in zip((1e-5, 1e-6), epsilons, strict=True):
        found = bound_gdp(separated(count), delta=delta, threshold=Fixed(0.0))
        assert found.details["mu"] == printed(mu)
        assert found.epsilon == found.ceiling == printed(epsilon)


# ---- B5 and B6: one run ----

B5 = {  # (canaries, guesses, right): delta = 0, 1e-6, 1e-5, 1e-4
    (100, 100, 100): ("3.4930", "3.4927", "3.4902", "3.4654"),
    (100, 100, 75): ("0.7022", "0.7022", "0.7019", "0.6995"),
    (1000, 1000, 1000): ("5.8091", "5.8064", "5.7823", "5.5293"),
    (1000, 1000, 900): ("2.0212", "2.0212", "2.0206", "2.0152"),
    (1000, 1000, 600): ("0.2975", "0.2974", "0.2972", "0.2950"),
    (1000, 200, 190): ("2.3979", "2.3974", "2.3936", "2.3526"),
    (1000, 100, 100): ("3.4930", "3.4902", "3.4654", "3.2023"),
    (1000, 50, 50): ("2.7847", "2.7819", "2.7562", "2.4813"),
    (10000, 10000, 6000): ("0.3717", "0.3717", "0.3715", "0.3691"),
    (10000, 500, 480): ("2.7950", "2.7926", "2.7704", "2.2429"),
}
B6 = {  # (canaries, guesses, right): delta = 1e-6, 1e-5, 1e-4
    (100, 100, 100): ("9.0709", "8.2162", "7.2579"),
    (100, 100, 75): ("1.7864", "1.5736", "1.3325"),
    (1000, 1000, 1000): ("13.5142", "12.3346", "11.0135"),
    (1000, 1000, 900): ("4.2296", "3.7793", "3.2726"),
    (1000, 1000, 600): ("0.6734", "0.5835", "0.4808"),
    (1000, 200, 190): ("4.3801", "3.9161", "3.3941"),
    (1000, 100, 100): ("6.1695", "5.5490", "4.8522"),
    (10000, 500, 480): ("4.2418", "3.7904", "3.2824"),
}
PRIVACY_GUARD = {(1000, 800, 500): 0.8377, (2000, 1500, 1000): 1.1993, (1000, 100, 75): 1.1505, (1000, 1000, 800): 2.6268}


@pytest.mark.parametrize("counts", B5)
def test_one_run(counts):
    for delta, epsilon in zip((0.0, 1e-6, 1e-5, 1e-4), B5[counts], strict=True):
        assert one_run_epsilon(*counts, delta, 0.95) == printed(epsilon)


@pytest.mark.parametrize("counts", B6)
def test_one_run_f_dp(counts):
    for delta, epsilon in zip((1e-6, 1e-5, 1e-4), B6[counts], strict=True):
        assert one_run_fdp_epsilon(*counts, delta, 0.95) == printed(epsilon)


@pytest.mark.parametrize("counts", PRIVACY_GUARD)
def test_one_run_f_dp_against_another_implementation(counts):
    assert one_run_fdp_epsilon(*counts, 1e-6, 0.95) == approx(PRIVACY_GUARD[counts], rel=0.003)


def test_as_many_right_guesses_as_by_chance_are_no_evidence():
    """Where PrivacyGuard returns 0.3975."""
    assert one_run_fdp_epsilon(1000, 800, 400, 1e-6, 0.95) == 0.0
    assert one_run_epsilon(1000, 800, 400, 1e-6, 0.95) == 0.0


@pytest.mark.parametrize(("right", "counts"), [(100, (1000, 100, 100)), (190, (1000, 200, 190))])
def test_one_run_bounds_count_guesses_at_both_ends(right, counts):
    """Half of the guesses at either end; wrong ones come from canaries on the wrong side."""
    canaries, guesses, _ = counts
    value, inserted = np.arange(float(canaries)), np.arange(canaries) >= canaries // 2
    inserted[: guesses - right] = True
    scores, plan = Scores(value, inserted, assignment="coins"), Guesses(guesses // 2, guesses // 2)
    found, shaped = bound_one_run(scores, delta=1e-5, guesses=plan), bound_one_run_fdp(scores, delta=1e-5, guesses=plan)
    assert found.details["right"] == right
    assert found.epsilon == printed(B5[counts][2])
    assert shaped.epsilon == printed(B6[counts][1])


def test_one_run_with_two_thousand_coins_caps_at_6_45():
    assert one_run_epsilon(2000, 2000, 2000, 1e-5, 0.95) == printed("6.45")


# ---- B7: exchangeable bits ----

B7_METHODS = {
    "W1": {"order": 1, "kind": "wilson"},
    "W2": {"order": 2, "kind": "wilson"},
    "W4 exact": {"order": 4, "kind": "wilson", "variance": "exact"},
    "W4 code": {"order": 4, "kind": "wilson", "variance": "published"},
    "B1": {"order": 1, "kind": "bernstein"},
    "B2": {"order": 2, "kind": "bernstein"},
    "B4 code": {"order": 4, "kind": "bernstein", "variance": "published"},
}
B7_INDEPENDENT = {  # (p, runs, bits): left/right at 5 % each, for each method
    (0.5, 1000, 10): (
        ".474028/.525972 .484341/.512215 .483816/.511686 .483127/.512374 .459428/.540572 .472274/.520390 .471299/.519822"
    ),
    (0.5, 1000, 32): (
        ".474028/.525972 .486474/.509819 .487753/.507405 .486162/.508996 .459428/.540572 .474480/.517517 .474427/.515786"
    ),
    (0.01, 1000, 10): ".005987/.016657 .005991/.014315 .004958/.015442 .004957/.015442 .003459/.023794 0/.022019 0/.024158",
    (0.05, 4096, 64): (
        ".044690/.055904 .048348/.051573 .048400/.051497 .048398/.051499 .041853/.059538 .046403/.053414 .046214/.053562"
    ),
}
B7_IDENTICAL = {"W2": ".034686/.065314", "W4 exact": ".032178/.067822"}  # p = 0.05, 1,000 runs, 10 bits


@pytest.mark.parametrize("design", B7_INDEPENDENT)
@pytest.mark.parametrize("method", B7_METHODS)
def test_intervals_of_independent_bits(design, method):
    p, runs, bits = design
    left, right = B7_INDEPENDENT[design].split()[list(B7_METHODS).index(method)].split("/")
    found = XBern((p, p**2, p**3, p**4), runs, bits).interval(0.05, **B7_METHODS[method])
    assert found[0] == (0.0 if left == "0" else printed(left))
    assert found[1] == printed(right)


@pytest.mark.parametrize("method", B7_IDENTICAL)
def test_intervals_of_identical_bits(method):
    left, right = B7_IDENTICAL[method].split("/")
    found = XBern((0.05,) * 4, 1000, 10).interval(0.05, **B7_METHODS[method])
    assert found == (printed(left), printed(right))


def test_moments_and_the_margin_of_variance_one_quarter():
    """100 runs of 8 bits with i mod 9 ones; the vectorised half of the published code leaves the margin out (.39356)."""
    found = XBern.of(np.array([i % 9 for i in range(100)]) / 8, np.full(100, 8), 2)
    assert found.interval(0.05, order=2, kind="wilson")[0] == printed(".39700")


def test_the_exact_variance_of_pairs():
    """The order-4 interval for mu_2 solves n (x - m_2)² = z² Var(m_2), the variance here by enumerating a beta-binomial."""
    bits, runs, ones = 6, 10**8, np.arange(7)
    chances = special.comb(bits, ones) * special.beta(ones + 2.0, bits - ones + 3.0) / special.beta(2.0, 3.0)
    falling = [np.prod([(ones - i) / (bits - i) for i in range(order)], axis=0) for order in range(1, 5)]
    moments = tuple(float(chances @ values) for values in falling)
    variance = float(chances @ falling[1] ** 2) - moments[1] ** 2
    upper = XBern(moments, runs, bits)._second_moment(0.05, "wilson", "exact")
    assert (upper - moments[1]) * np.sqrt(runs) / -special.ndtri(0.05) == approx(np.sqrt(variance), rel=1e-3)


def test_the_lifted_bound_is_made_of_these_intervals():
    """32 bits of which exactly half exceed 0 when held out; 30 of 32 when inserted."""
    values = np.tile([1.0] * 30 + [-1.0] * 2 + [1.0] * 16 + [-1.0] * 16, 1000)
    inserted, run = np.tile(np.arange(64) < 32, 1000), np.repeat(np.arange(1000), 64)
    scores = Scores(values, inserted, {"run": run})
    found = bound_lifted(scores, delta=1e-3, threshold=Fixed(0.0))

    def moments(ones):
        return tuple(np.cumprod([(ones - i) / (32 - i) for i in range(2)]))

    left, _ = XBern(moments(30), 1000, 32).interval(0.025, order=2, kind="bernstein")
    _, right = XBern(moments(16), 1000, 32).interval(0.025, order=2, kind="bernstein")
    assert found.epsilon == approx(max(np.log((left - 1e-3) / right), np.log((1 - 1e-3 - right) / (1 - left))), rel=1e-12)


# ---- J4: anytime ----


@pytest.mark.parametrize(("scores", "epsilon"), [(200, "1.85"), (1000, "2.55"), (2000, "2.68")])
def test_the_running_bound_at_a_true_epsilon_of_3(scores, epsilon):
    """The bound when the average is exactly the effect; with a fixed number of scores it would be 2.41, 2.73, 2.81."""
    effect = gaussian_gap(3.0, 1e-6)
    assert anytime_epsilons(np.full(scores, effect), delta=1e-6)[-1] == printed(epsilon)
