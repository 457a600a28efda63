"""Coverage at leakage: a valid bound exceeds the true epsilon in at most its nominal share of audits."""

import numpy as np
import pytest
from scipy.stats import beta, binom

from coalmine._random import stream
from coalmine.calibration import VALID, Case, binary_false_statements, ever_wrong, false_statements
from coalmine.estimators._band import local_level
from coalmine.estimators._rates import Fixed
from coalmine.estimators.anytime import anytime_gaps, bound_anytime
from coalmine.estimators.band import bound_band
from coalmine.estimators.lifted import XBern
from coalmine.estimators.one_run import one_run_epsilon
from coalmine.estimators.threshold import bound_threshold
from coalmine.nulls import GaussianNull
from coalmine.scores import Scores

FALSE_ALARM = 1e-4  # each statistical test here fails for one seed in ten thousand; the seeds are fixed
AUDITS = 500


def allowed(audits: int, miss: float = 0.05) -> int:
    return int(binom.ppf(1 - FALSE_ALARM, audits, miss))


DESIGNS = [
    (method, exact_null)
    for method in VALID
    for exact_null in (True, False)
    # lifted bounds compare runs and have no exact null; anytime is valid with a known law only
    if exact_null != method.startswith("lifted") or (not exact_null and method != "anytime")
]


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize(("method", "exact_null"), DESIGNS)
def test_valid_bounds_stay_below_the_truth(method: str, exact_null: bool, epsilon: float) -> None:
    audits = 60 if method == "lifted, split" else AUDITS
    case = Case(method, epsilon=epsilon, exact_null=exact_null)
    assert false_statements(case, audits) <= allowed(audits)


BINARY = {
    "band": bound_band,
    "fixed": lambda scores, **common: bound_threshold(scores, threshold=Fixed(0.5), **common),
    "all": bound_threshold,
}


def worst_rates(name: str, canaries: int, exact_null: bool) -> list[float]:
    """False-negative rates at which a bound from counts is most often wrong: just above its own limit after 0, 1, 2 errors."""
    risk = 0.05 if exact_null else 0.025
    level = {"band": local_level(canaries, 1 - risk), "fixed": risk, "all": risk / canaries}[name]
    return [float(beta.ppf(1 - level, errors + 1, canaries - errors)) + 1e-9 for errors in (0, 1, 2)]


@pytest.mark.parametrize("errors", range(3))
@pytest.mark.parametrize("exact_null", [True, False], ids=["exact", "sampled"])
@pytest.mark.parametrize("name", BINARY)
def test_binary_scores_at_the_worst_false_negative_rate(name: str, exact_null: bool, errors: int) -> None:
    """Exact: the counts are enumerated, so this test has no false alarms at all."""
    canaries, fpr = 60, 0.05
    fnr = worst_rates(name, canaries, exact_null)[errors]
    chance = binary_false_statements(BINARY[name], fnr=fnr, fpr=fpr, canaries=canaries, exact_null=exact_null, delta=1e-5)
    assert chance <= 0.05 + 1e-6


def test_a_fixed_threshold_uses_up_its_risk_at_the_worst_rate() -> None:
    """The test above is sharp: at the worst rate the Clopper–Pearson bound is wrong in all but the full 5 %."""
    fnr = worst_rates("fixed", 60, exact_null=True)[0]
    chance = binary_false_statements(BINARY["fixed"], fnr=fnr, fpr=0.05, canaries=60, exact_null=True, delta=1e-5)
    assert 0.0499 < chance <= 0.05 + 1e-6


def test_jeffreys_is_not_valid_at_its_worst_rate() -> None:
    """The reason for its valid=False: it misses 14 % at a false-negative rate of 1.95/n."""

    def jeffreys(scores, **common):
        return bound_threshold(scores, threshold=Fixed(0.5), interval="jeffreys", **common)

    chance = binary_false_statements(jeffreys, fnr=1.95 / 1000, fpr=0.05, canaries=1000, exact_null=True, delta=1e-5)
    assert 0.13 < chance < 0.15


# fifty guesses cannot show an epsilon of 3: even all right, they have probability 0.09
@pytest.mark.parametrize(("guesses", "epsilon"), [(50, 0.5), (50, 1.0), (200, 0.5), (200, 1.0), (200, 3.0)])
def test_one_run_bound_is_exact_for_randomised_response(guesses: int, epsilon: float) -> None:
    """Randomised response attains the binomial law of the theorem, so the miss rate is computed, not simulated."""
    counts = np.arange(guesses + 1)
    chance = binom.pmf(counts, guesses, 1 / (1 + np.exp(-epsilon)))
    limits = np.array([one_run_epsilon(guesses, guesses, int(count), 0.0, 0.95) for count in counts])
    wrong = float(chance[limits > epsilon * (1 + 1e-9)].sum())
    assert wrong <= 0.05
    assert wrong > 0.005  # and the bound is not idle


def test_one_run_bound_pays_for_delta() -> None:
    """With probability delta a coin is simply revealed: the extra right guesses stay within the price of delta."""
    canaries, epsilon, delta = 200, 1.0, 1e-3
    rate = delta + (1 - delta) / (1 + np.exp(-epsilon))
    counts = np.arange(canaries + 1)
    limits = np.array([one_run_epsilon(canaries, canaries, int(count), delta, 0.95) for count in counts])
    assert float(binom.pmf(counts, canaries, rate)[limits > epsilon].sum()) <= 0.05


@pytest.mark.parametrize("effect", [0.0, 0.7])
def test_anytime_bound_is_rarely_wrong_ever(effect: float) -> None:
    sequences = 400
    assert ever_wrong(effect, scores=2000, sequences=sequences) <= allowed(sequences)


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("correlation", [0.0, 0.3, 1.0])
def test_bernstein_intervals_hold_for_correlated_bits(order: int, correlation: float) -> None:
    """Beta-binomial bits: from independent to all equal."""
    rng = np.random.default_rng(5)
    trials, runs, bits, mean = 300, 100, 8, 0.1
    wrong = 0
    for _ in range(trials):
        if correlation == 1.0:
            shares = (rng.random(runs) < mean).astype(float)
        else:
            spread = 1e9 if correlation == 0.0 else 1 / correlation - 1
            shares = rng.binomial(bits, rng.beta(mean * spread, (1 - mean) * spread, runs)) / bits
        left, right = XBern.of(shares, np.full(runs, bits), order).interval(0.05, order=order, kind="bernstein")
        wrong += not left <= mean <= right
    assert wrong <= allowed(trials, miss=0.10)


@pytest.mark.parametrize("effect", [0.0, 3.0])
def test_anytime_bound_allows_for_a_spread_that_was_measured(effect: float) -> None:
    """Scores in units of a spread measured on 120 directions: above the true effect in at most 5 % of 400 audits.

    A large effect is where a spread that is too small counts most: without the allowance it is exceeded in more.
    """
    rng, above, naive = stream(7, "measured spread", round(effect)), 0, 0
    for _ in range(400):
        spread = np.sqrt(np.square(rng.standard_normal(120)).mean())
        values = (np.concatenate([effect + rng.standard_normal(300), rng.standard_normal(10)])) / spread
        scores = Scores(values, np.arange(310) < 300, null=GaussianNull(directions=120))
        bound = bound_anytime(scores, delta=1e-5)
        assert bound.valid
        above += bound.details["mu"] > effect
        naive += anytime_gaps(values[:300], 0.95)[-1] > effect
    assert above <= allowed(400)
    assert not effect or naive > 60
