"""The Gaussian estimate, its diagnostics and the simulated mechanism against published or derived numbers.

Where the numbers come from:

* A5, sensitivities of epsilon: envelope theorem at equal widths (delta = 1e-6), checked against 60-digit arithmetic.
* C41, widths of the mean-only interval: 2 · 1.96 · A5's standard error at 1,000 canaries.
* C44, what the literal estimator says when nothing leaks: independent simulation, two or three digits.
* C3, Anderson–Darling: critical values of D'Agostino & Stephens (1986, table 4.7); powers by independent simulation.
* J3, moments of the cosines of Algorithm 1 of Andrew et al. (2024): derived, checked by brute force.
* Table 1 of Andrew et al. (2024): here only its plumbing, with two simulations per cell.
"""

import json
from decimal import Decimal

import numpy as np
import pytest
from pytest import approx
from scipy import special
from scipy.stats import binom, chi2, ks_2samp, norm

from coalmine import CosineNull, GaussianNull, Scores, estimate_gaussian, gaussian_epsilon, gaussian_gap
from coalmine._random import stream
from coalmine.estimators.diagnostics import anderson_darling, diagnose
from coalmine.estimators.gaussian_fit import _zero_leakage
from coalmine.papers.one_shot import table1 as paper
from coalmine.papers.one_shot.numbers import TABLE1
from coalmine.simulation import simulate_gaussian_mechanism

FALSE_ALARM = 1e-6  # each statistical comparison below fails by chance once in a million runs
SIGMAS = float(-norm.ppf(FALSE_ALARM / 2))
DELTA = 341_000**-1.1


def printed(number):
    """Equal to a printed number: at most half a unit of its last digit away."""
    return approx(float(number), abs=0.5000001 * 10.0 ** Decimal(number).as_tuple().exponent)


def assert_share(count, trials, share, rounding=0.0):
    """A count of a Binomial(trials, share) variable; the share itself may be rounded by this much."""
    low = binom.ppf(FALSE_ALARM / 2, trials, max(share - rounding, 0.0))
    assert low <= count <= binom.ppf(1 - FALSE_ALARM / 2, trials, min(share + rounding, 1.0))


def ideal_scores(mu, count, width=1.0):
    """Normal quantiles moved to have exactly this mean and this width (dividing by count) in units of the null."""
    z = special.ndtri((np.arange(count) + 0.5) / count)
    return Scores.of(mu + width * z / z.std(), null=GaussianNull())


# ---- A5 and C41: error bars ----

A5 = {  # epsilon: mu, d epsilon/d mu, slopes for wider and narrower, standard error and noise of the width at 1,000 canaries
    1: ("0.2367", "4.554", "18.70", "19.78", "0.144", "0.418"),
    3: ("0.6477", "5.143", "22.16", "25.49", "0.163", "0.495"),
    10: ("1.8481", "6.486", "29.10", "41.09", "0.205", "0.651"),
    30: ("4.4089", "9.117", "41.94", "82.14", "0.288", "0.938"),
    100: ("10.2211", "14.961", "69.91", "222.8", "0.473", "1.563"),
}


def slope(function, at, step):
    return (function(at + step) - function(at)) / step


@pytest.mark.parametrize("epsilon", A5)
def test_sensitivities_of_epsilon(epsilon):
    """Any error of the width raises epsilon: the slopes of both sides point up."""
    mu = gaussian_gap(epsilon, 1e-6)
    by_gap = slope(lambda gap: gaussian_epsilon(0, 1, gap, 1, 1e-6), mu, 1e-6)
    wider = slope(lambda width: gaussian_epsilon(0, 1, mu, width, 1e-6), 1.0, 1e-6)
    narrower = -slope(lambda width: gaussian_epsilon(0, 1, mu, width, 1e-6), 1.0, -1e-6)
    found = (mu, by_gap, wider, narrower, by_gap / np.sqrt(1000), wider / np.sqrt(2000))
    assert found == tuple(printed(number) for number in A5[epsilon])


@pytest.mark.parametrize("epsilon", A5)
def test_the_interval_has_the_standard_error_of_the_formula(epsilon):
    """A very narrow interval, so that epsilon is linear across it."""
    found = estimate_gaussian(ideal_scores(gaussian_gap(epsilon, 1e-6), 1000), delta=1e-6, confidence=0.01)
    assert found.epsilon == approx(epsilon, rel=1e-9)
    assert (found.high - found.low) / (2 * special.ndtri(0.505)) == printed(A5[epsilon][4])


@pytest.mark.parametrize(("epsilon", "width"), [(1, "0.56"), (3, "0.64"), (10, "0.80")])
def test_width_of_the_95_percent_interval(epsilon, width):
    found = estimate_gaussian(ideal_scores(gaussian_gap(epsilon, 1e-6), 1000), delta=1e-6)
    assert found.high - found.low == printed(width)
    assert gaussian_epsilon(0, 1, [0.0, found.details["mean"] + 1.959964 / np.sqrt(1000)], 1, 1e-6)[1] == approx(found.high)


@pytest.mark.parametrize("epsilon", [1, 3, 10])
def test_the_interval_of_the_literal_estimate_is_the_image_of_a_rectangle(epsilon):
    """Gap and width with half of the risk each; equal widths lie inside, where epsilon has its minimum."""
    mu, count = gaussian_gap(epsilon, 1e-6), 1000
    found = estimate_gaussian(ideal_scores(mu, count), delta=1e-6, variance="fitted")
    gaps = mu + special.stdtrit(count - 1, 0.9875) * np.array([-1, 1]) / np.sqrt(count - 1)
    widths = np.sqrt(count / chi2.ppf([0.9875, 0.0125], count - 1))
    assert found.epsilon == approx(epsilon, rel=1e-9)
    assert found.low == approx(gaussian_epsilon(0, 1, gaps[0], 1, 1e-6), rel=1e-9)
    assert found.high == approx(gaussian_epsilon(0, 1, gaps[1], widths, 1e-6).max(), rel=1e-9)


@pytest.mark.parametrize(("epsilon", "width"), [(1, 2.2), (10, 3.5)])
def test_average_width_of_the_interval_of_the_literal_estimate(epsilon, width):
    """Three to four times as wide as the mean-only one."""
    mu, widths = gaussian_gap(epsilon, 1e-6), []
    for audit in range(25):
        scores = Scores.of(stream(0, "width", audit).standard_normal(1000) + mu, null=GaussianNull())
        found = estimate_gaussian(scores, delta=1e-6, variance="fitted")
        widths.append(found.high - found.low)
    assert np.mean(widths) == approx(width, abs=0.05 + SIGMAS * np.std(widths, ddof=1) / np.sqrt(25))


def test_equal_widths_make_the_three_estimates_one():
    scores = ideal_scores(1.0, 500)
    found = [estimate_gaussian(scores, delta=1e-5).epsilon]
    found += [estimate_gaussian(scores, delta=1e-5, variance="fitted", formula=name).epsilon for name in ("exact", "threshold")]
    assert found == approx([4.37717809568] * 3, rel=1e-9)


@pytest.mark.parametrize(
    ("mu", "width", "threshold", "exact"),
    [
        (0, 1.05, "0.8722", "0.940202411602"),
        (0, 0.95, "0.9244", "0.9960"),
        (0.25, 1.05, "2.0790", "2.0790"),
        (1, 1.1, "7.4892", "7.48916269356"),
        (1, 0.9, "8.4892", "8.48918062127"),
        (3, 0.8, "34.6767", "34.6767"),
    ],
)
def test_the_two_formulas_of_the_papers(mu, width, threshold, exact):
    """delta = 1e-6; the first version's formula sees half-lines only, which matters where the gap is small."""
    scores = ideal_scores(mu, 200, width)
    assert estimate_gaussian(scores, delta=1e-6, variance="fitted").epsilon == printed(exact)
    assert estimate_gaussian(scores, delta=1e-6, variance="fitted", formula="threshold").epsilon == printed(threshold)


# ---- C44: what no leakage gives ----

C44 = {  # (canaries, delta): mean, median, 95 % quantile of the literal estimate when nothing leaks
    (100, DELTA): ("1.56", "1.32", "3.64"),
    (316, DELTA): ("0.78", "0.64", "1.88"),
    (1000, DELTA): ("0.41", "0.35", "0.92"),
    (3162, DELTA): ("0.22", "0.19", "0.50"),
    (10000, DELTA): ("0.11", "0.10", "0.25"),
    (1000, 3383**-1.1): ("0.21", "0.17", "0.49"),
}
HALF = 0.005  # half a unit of the last digit


@pytest.mark.parametrize("design", C44, ids=str)
def test_the_zero_leakage_floor_of_the_literal_estimate(design):
    mean, median, high = (float(number) for number in C44[design])
    draws = _zero_leakage(design[0], None, design[1])
    assert draws.mean() == approx(mean, abs=HALF + SIGMAS * draws.std() / np.sqrt(draws.size))
    for quantile, share in ((median, 0.5), (high, 0.95)):
        below, above = (draws <= quantile - HALF).sum(), (draws <= quantile + HALF).sum()
        assert below <= binom.ppf(1 - FALSE_ALARM, draws.size, share)
        assert above >= binom.ppf(FALSE_ALARM, draws.size, share)


@pytest.mark.parametrize("null_count", [None, 100])
def test_the_floor_is_the_law_of_the_estimate_when_nothing_leaks(null_count):
    """Whole audits of pure noise against the draws that floor and p-value come from."""
    found = []
    for audit in range(60):
        rng = stream(0, "noise alone", audit)
        held_out = None if null_count is None else rng.standard_normal(null_count)
        scores = Scores.of(rng.standard_normal(100), held_out, null=GaussianNull() if null_count is None else None)
        found.append(estimate_gaussian(scores, delta=1e-5, variance="fitted"))
    draws = _zero_leakage(100, null_count, 1e-5)
    assert ks_2samp([estimate.epsilon for estimate in found], draws).pvalue > FALSE_ALARM
    assert {estimate.floor for estimate in found} == {np.quantile(draws, 0.95)}
    for estimate in found:
        assert estimate.p_value == approx(np.mean(draws >= estimate.epsilon), abs=1 / draws.size)


def test_the_floor_of_the_mean_only_estimate():
    """Closed: epsilon at 1.645 standard errors of the mean, half the floor of the literal estimate and less."""
    found = estimate_gaussian(ideal_scores(0.0, 1000), delta=DELTA)
    assert found.floor == approx(gaussian_epsilon(0, 1, special.ndtri(0.95) / np.sqrt(1000), 1, DELTA), rel=1e-9)
    assert found.floor == printed("0.1998")
    assert found.epsilon == approx(0.0, abs=1e-12)
    assert found.p_value == approx(0.5)


# ---- C3: shape ----

CRITICAL = {0.561: 0.15, 0.631: 0.10, 0.752: 0.05, 0.873: 0.025, 1.035: 0.01}  # A*: how often normal scores exceed it
POWER = {10: (0.81, 0.97), 20: (0.23, 0.64), 50: (0.08, 0.25)}  # Student's t: found at 5 % by Anderson–Darling, by kurtosis


def studentised(samples):
    return (samples - samples.mean(axis=1, keepdims=True)) / samples.std(axis=1, ddof=1, keepdims=True)


@pytest.mark.parametrize("count", [20, 200])
def test_critical_values_of_anderson_and_darling(count):
    """The table is printed to three digits, which moves its levels by less than one in fifty."""
    trials = 10_000
    normals = studentised(stream(0, "anderson", count).standard_normal((trials, count)))
    statistics = np.array([anderson_darling(z) for z in normals])
    for critical, share in CRITICAL.items():
        assert_share((statistics > critical).sum(), trials, share, rounding=0.02 * share)


def test_p_values_of_the_diagnostics_are_calibrated():
    trials, count = 4_000, 400
    normals = stream(0, "diagnostics").standard_normal((trials, count))
    shapes = [diagnose(sample) for sample in normals]
    for name, rounding in (("variance_p_value", 0.0), ("normality_p_value", 0.002), ("skewness_p_value", 0.005)):
        p_values = np.array([getattr(shape, name) for shape in shapes])
        assert_share((p_values < 0.05).sum(), trials, 0.05, rounding=rounding)
    # the kurtosis of 400 normals is still skewed: 6 % instead of 5 %
    assert_share(sum(shape.heavy_tail_p_value < 0.05 for shape in shapes), trials, 0.055, rounding=0.01)


def test_the_variance_test_against_held_out_scores_is_calibrated():
    trials = 4_000
    rng, small = stream(0, "variance against held out"), 0
    for _ in range(trials):
        held_out = rng.standard_normal(30)
        inserted = (rng.standard_normal(20) - held_out.mean()) / held_out.std(ddof=1)
        small += diagnose(inserted, null_count=30).variance_p_value < 0.05
    assert_share(small, trials, 0.05)


@pytest.mark.parametrize("freedom", POWER)
def test_kurtosis_sees_heavy_tails_that_anderson_and_darling_misses(freedom):
    trials = 600
    samples = stream(0, "heavy tails", freedom).standard_t(freedom, (trials, 1000))
    shapes = [diagnose(sample) for sample in samples]
    for name, power in zip(("normality_p_value", "heavy_tail_p_value"), POWER[freedom], strict=True):
        assert_share(sum(getattr(shape, name) < 0.05 for shape in shapes), trials, power, rounding=0.01)


def test_how_often_three_of_fifteen_tests_reject():
    """The paper says 68 %, which is the probability of two or more."""
    assert binom.sf(2, 15, 0.15) == printed("0.396")
    assert binom.sf(1, 15, 0.15) == printed("0.68")


# ---- J3: moments of the simulated mechanism ----

DESIGNS = [  # (dimensions, canaries, noise, norm of the data)
    (400, 20, 1.0, 0.0),
    (400, 20, 1.0, 15.0),
    (120, 80, 0.5, 0.0),
    (120, 80, 0.1, 10.0),
]


def simulated(dim, canaries, sigma, norm_of_data, method, runs, held_out=0):
    """(inserted, held out) cosines in units of the null, one row per run."""
    rows = [
        simulate_gaussian_mechanism(
            dim, canaries, sigma, seed=seed, norm_of_data=norm_of_data, held_out=held_out, method=method
        )
        for seed in range(runs)
    ]
    return tuple(np.array([part(row) for row in rows]) * dim**0.5 for part in (inserted_of, held_out_of))


def inserted_of(scores):
    return scores.inserted_values


def held_out_of(scores):
    return scores.held_out_values


@pytest.mark.parametrize("method", ["bartlett", "direct"])
@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_moments_of_the_cosines(design, method):
    """Mean S^-½ (1 + O(1/d)) and variance (S - 1/d)/S with S = sigma² + (k + |X|²)/d."""
    dim, canaries, sigma, norm_of_data = design
    runs = 400
    cosines, _ = simulated(*design, method, runs)
    spread = sigma**2 + (canaries + norm_of_data**2) / dim
    means, squares = cosines.mean(axis=1), (cosines**2).mean(axis=1)
    mean, second = spread**-0.5, 1 / spread + (spread - 1 / dim) / spread
    assert means.mean() == approx(mean, abs=mean / dim + SIGMAS * means.std() / np.sqrt(runs))
    assert squares.mean() == approx(second, abs=3 * second / dim + SIGMAS * squares.std() / np.sqrt(runs))


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_the_fast_sampler_has_the_law_of_the_vectors_themselves(design):
    """Bartlett against direct by what depends on the joint law of a run's cosines, not on each of them alone."""
    runs = 300
    statistics = {
        "mean": lambda row: row.mean(),
        "width": lambda row: row.std(),
        "largest": lambda row: row.max(),
        "smallest": lambda row: row.min(),
        "first": lambda row: row[0],
        "last": lambda row: row[-1],
        "product of two": lambda row: row[0] * row[1],
    }
    fast, _ = simulated(*design, "bartlett", runs)
    slow, _ = simulated(*design, "direct", runs)
    for name, statistic in statistics.items():
        p_value = ks_2samp([statistic(row) for row in fast], [statistic(row) for row in slow]).pvalue
        assert p_value > FALSE_ALARM / len(statistics), name


@pytest.mark.parametrize("method", ["bartlett", "direct"])
def test_canaries_that_took_no_part_follow_the_exact_null(method):
    """Uniform ranks under CosineNull, also in few dimensions where a normal law would not do."""
    _, held_out = simulated(30, 10, 0.5, 2.0, method, 100, held_out=20)
    ranks = CosineNull(30).cdf(held_out.ravel() * 30**-0.5)
    # scores of one run share their release, which changes nothing: each canary is independent of it
    assert ks_2samp(ranks, (np.arange(200_000) + 0.5) / 200_000).pvalue > FALSE_ALARM


def test_spread_of_the_mean_cosine():
    """sd of the mean over canaries, relative to the mean: 0.0545 by the formula at d = 10,000, k = 100, sigma = 0.541."""
    dim, canaries, sigma, runs = 10_000, 100, 0.541, 1_500
    means = simulated(dim, canaries, sigma, 0.0, "bartlett", runs)[0].mean(axis=1)
    r = canaries / (canaries + sigma**2 * dim)
    variance = 2 * (canaries - 1) / (canaries * dim) * (1 - r / 2) ** 2 + (sigma**2 / canaries + 1 / (2 * dim)) * (1 - r) ** 2
    assert np.sqrt(variance) == printed("0.0545")
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], runs - 1) / (runs - 1)
    assert low < means.var(ddof=1) / means.mean() ** 2 / variance < high


def test_canaries_disturb_each_other_by_k_over_d():
    """1/sigma² = 1/(mu^-2 - k/d), the correction that the interference flag reports."""
    dim, canaries, sigma, runs = 400, 300, 0.3, 150
    means = simulated(dim, canaries, sigma, 0.0, "bartlett", runs)[0].mean(axis=1)
    error = SIGMAS * means.std() / np.sqrt(runs) * 2 * means.mean() ** -3
    assert means.mean() ** -2 - canaries / dim == approx(sigma**2, abs=error + 2 / dim)


def test_the_simulated_release_is_reproducible_and_described():
    again = [simulate_gaussian_mechanism(1000, 10, 1.0, seed=3, held_out=5) for _ in range(2)]
    assert again[0].sha256 == again[1].sha256
    assert again[0].sha256 != simulate_gaussian_mechanism(1000, 10, 1.0, seed=4, held_out=5).sha256
    assert again[0].null == CosineNull(1000)
    assert (again[0].assignment, again[0].dim) == ("fixed", 1000)
    assert (again[0].inserted_values.size, again[0].held_out_values.size) == (10, 5)
    assert np.abs(again[0].value).max() <= 1


def test_no_noise_and_one_canary_is_a_cosine_of_one():
    assert simulate_gaussian_mechanism(50, 1, 0.0, seed=0).value == approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 1}, "dim"),
        ({"canaries": 0}, "canaries"),
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": float("nan")}, "sigma"),
        ({"norm_of_data": -1.0}, "norm_of_data"),
        ({"held_out": -1}, "held_out"),
        ({"method": "guess"}, "method"),
        ({"canaries": 100}, "direct"),
    ],
)
def test_what_cannot_be_simulated(arguments, message):
    with pytest.raises(ValueError, match=message):
        simulate_gaussian_mechanism(**{"dim": 100, "canaries": 10, "sigma": 1.0, "seed": 0, **arguments})


# ---- Table 1, its plumbing ----


@pytest.fixture(scope="module")
def quick():
    return paper.table1(simulations=2, seed=5)


def test_table_1_has_every_cell_twice(quick):
    cells = [(cell.estimator, cell.sigma, cell.dim) for cell in quick.cells]
    assert cells == [(name, sigma, dim) for name in ("mean", "fitted") for sigma in (0.541, 1.54, 4.22) for dim in paper.DIMS]
    for cell in quick.cells:
        assert cell.canaries == round(cell.dim**0.5)
        assert cell.analytic == approx({0.541: 10.0, 1.54: 3.0, 4.22: 1.0}[cell.sigma], rel=0.003)
        printed = TABLE1[cell.sigma][cell.dim]
        assert [cell.paper_mean, cell.paper_std] == [float(number) for number in printed.split(" ± ")]
        assert np.isfinite([cell.mean, cell.std, cell.z_mean, cell.z_std]).all()


def test_table_1_as_data_and_as_text(quick):
    data = json.loads(json.dumps(quick.to_dict()))
    assert data["simulations"] == 2
    assert len(data["cells"]) == 24
    assert data["worst_z"] == {name: quick.worst(name) for name in ("mean", "fitted")}
    assert len(str(quick).splitlines()) == 2 + 24 + 1


@pytest.mark.parametrize("sigma", TABLE1)
@pytest.mark.parametrize("estimator", paper.ESTIMATORS)
def test_a_cell_is_the_estimate_of_its_scores(quick, estimator, sigma):
    """The table takes a shortcut to epsilon; `estimate_gaussian` must say the same about the same scores."""
    dim, variance = 10_000, {"mean": "null", "fitted": "fitted"}[estimator]
    tables = [simulate_gaussian_mechanism(dim, 100, sigma, seed=5 * 1_000_003 + number) for number in range(2)]
    epsilons = [estimate_gaussian(table, delta=paper.DELTA, variance=variance).epsilon for table in tables]
    (cell,) = (cell for cell in quick.cells if (cell.estimator, cell.sigma, cell.dim) == (estimator, sigma, dim))
    assert cell.mean == approx(np.mean(epsilons), rel=1e-9)
    assert cell.std == approx(np.std(epsilons, ddof=1), rel=1e-6)
