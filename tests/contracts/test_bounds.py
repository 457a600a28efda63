"""Every lower bound, with every threshold rule and both kinds of null, through one battery.

Inserted scores are N(3, 1), held-out ones N(0, 1), forty of each; lifted bounds get eighty runs with four of each.
A new bound costs one line in CASES.
"""

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from scipy import special
from scipy.stats import binom

from coalmine import (
    AllThresholds,
    CosineNull,
    Fixed,
    GaussianNull,
    Guesses,
    LowerBound,
    MaxNull,
    Scores,
    Split,
    bound_anytime,
    bound_band,
    bound_gdp,
    bound_one_run,
    bound_threshold,
)
from coalmine._random import stream
from coalmine.errors import AssignmentError, AuditError, NotEnoughCanariesError
from coalmine.estimators import BOUNDS, _detect, band
from coalmine.estimators._rates import EXCHANGEABLE, INDEPENDENT
from coalmine.estimators.anytime import SUB_GAUSSIAN
from coalmine.estimators.bayesian import bayesian_quantile
from coalmine.estimators.gdp import SHAPE
from coalmine.estimators.one_run import COINS

FALSE_ALARM = 1e-6  # the statistical tests fail by chance once in a million runs
DELTA = 1e-5
few = settings(max_examples=6, derandomize=True, deadline=None, database=None)


@dataclass(frozen=True)
class Case:
    name: str
    method: str
    options: dict = field(default_factory=dict)
    valid: bool = True
    shaped: bool = False  # assumes a Gaussian trade-off curve, hence delta > 0

    def __call__(self, scores, *, delta=DELTA, **confidence) -> LowerBound:
        return BOUNDS[self.method](scores, delta=delta, **confidence, **self.options)

    @property
    def split(self):
        """The threshold is chosen on a part of the scores, by default or on demand."""
        default = self.method in ("bayesian", "lifted") and "threshold" not in self.options
        return default or isinstance(self.options.get("threshold"), Split)

    @property
    def fixed(self):
        return isinstance(self.options.get("threshold"), Fixed)

    @property
    def samples(self):
        """Looks at held-out scores even where the null law is known."""
        return self.method in ("one-run", "one-run-fdp", "lifted")

    @property
    def count(self):
        return 320 if self.method == "lifted" else 40

    def proven(self, exact):
        """Whether the bound is a theorem: the anytime one needs a unit that is known, not measured."""
        return self.valid and (exact or self.method != "anytime")

    def moved(self, scale, shift):
        """The same case for scores that were moved."""
        if not self.fixed:
            return self
        return replace(self, options={**self.options, "threshold": Fixed(scale * self.options["threshold"].value + shift)})


FIXED = {"threshold": Fixed(1.5)}
TOGETHER = {"design": "same-run"}
CASES = [
    Case("band", "band"),
    Case("threshold, all", "threshold"),
    Case("threshold, all, Jeffreys", "threshold", {"interval": "jeffreys"}, valid=False),
    Case("threshold, fixed", "threshold", FIXED),
    Case("threshold, fixed, Jeffreys", "threshold", {**FIXED, "interval": "jeffreys"}, valid=False),
    Case("threshold, split", "threshold", {"threshold": Split()}),
    Case("threshold, split, Jeffreys", "threshold", {"threshold": Split(0.3, seed=2), "interval": "jeffreys"}, valid=False),
    Case("gdp, all", "gdp", shaped=True),
    Case("gdp, fixed", "gdp", FIXED, shaped=True),
    Case("gdp, split", "gdp", {"threshold": Split()}, shaped=True),
    Case("one run", "one-run"),
    Case("one run, planned", "one-run", {"guesses": Guesses(12, 5)}),
    Case("one run, f-DP", "one-run-fdp", shaped=True),
    Case("lifted, split", "lifted", TOGETHER),
    Case("lifted, Bernstein 1", "lifted", {**FIXED, **TOGETHER, "order": 1}),
    Case("lifted, Bernstein 2", "lifted", {**FIXED, **TOGETHER}),
    Case("lifted, Bernstein 4", "lifted", {**FIXED, **TOGETHER, "order": 4}),
    Case("lifted, published", "lifted", {**FIXED, **TOGETHER, "order": 4, "variance": "published"}, valid=False),
    Case("lifted, Wilson 2", "lifted", {**FIXED, **TOGETHER, "kind": "wilson"}, valid=False),
    Case("lifted, coins", "lifted", {**FIXED, "design": "coins"}),
    Case("anytime", "anytime", shaped=True),
    Case("Bayesian, split", "bayesian", valid=False),
    Case("Bayesian, fixed", "bayesian", FIXED, valid=False),
    Case("pointwise", "pointwise", valid=False),
    Case("pointwise, Clopper–Pearson", "pointwise", {"interval": "clopper-pearson"}, valid=False),
]
CHOSEN_BEFOREHAND = [case for case in CASES if not case.split]  # else the threshold, and the halves, depend on everything
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
unsplit = pytest.mark.parametrize("case", CHOSEN_BEFOREHAND, ids=lambda case: case.name)
both = pytest.mark.parametrize("exact", [True, False], ids=["exact null", "held-out null"])


def table(inserted, held_out, exact, null=None, assignment="coins"):
    """Scores with four canaries of each kind in every run."""
    value = np.concatenate([inserted, held_out])
    took_part = np.arange(value.size) < len(inserted)
    run = np.concatenate([np.arange(len(inserted)) // 4, np.arange(len(held_out)) // 4])
    return Scores(value, took_part, {"run": run}, assignment=assignment, null=(null or GaussianNull()) if exact else None)


@cache
def columns(count, gap=3.0):
    """(inserted, held out), on a grid of 2^-20 so that doubling and halving them loses nothing."""
    rng = stream(0, "conformance", count)
    inserted, held_out = rng.standard_normal(count) + gap, rng.standard_normal(count)
    return np.round(inserted * 2**20) / 2**20, np.round(held_out * 2**20) / 2**20


def typical(case, exact):
    return table(*columns(case.count), exact)


def assert_sound(found):
    assert isinstance(found.epsilon, float)
    assert 0.0 <= found.epsilon <= found.ceiling  # neither is NaN


def test_every_bound_takes_part():
    assert {case.method for case in CASES} == set(BOUNDS)


# ---- the ends of the scale ----


@both
@every
def test_perfect_separation_gives_the_ceiling(case, exact):
    found = case(table(np.full(case.count, 9.0), np.linspace(-1, 1, case.count), exact))
    assert_sound(found)
    assert np.isfinite(found.epsilon)
    assert found.epsilon > 0
    if case.method == "anytime" or (exact and not case.fixed and not case.samples):
        assert found.ceiling == np.inf  # nothing but the null law, or the mean, limits what could be shown
        assert found.epsilon > 10
    else:
        assert found.epsilon == found.ceiling


@both
@unsplit
def test_separated_groups_of_different_scores_give_the_ceiling_as_well(case, exact):
    """A threshold that was chosen on a part may cut off some of the rest; others must not."""
    found = case(table(np.linspace(8, 10, case.count), np.linspace(-1, 1, case.count), exact))
    assert found.epsilon == found.ceiling or found.ceiling == np.inf


@both
@every
def test_reversed_scores_are_no_evidence(case, exact):
    """Higher means inserted. The Bayesian region alone looks both ways, as it was published, and may see something."""
    found = case(table(columns(case.count)[0] - 6, columns(case.count)[1], exact))
    assert_sound(found)
    if case.method != "bayesian" or exact:
        assert found.epsilon == 0.0


@both
@every
def test_no_leakage_at_the_median_is_no_evidence(case, exact):
    """Both groups are the same normal quantiles: the most ordinary table of noise."""
    quantiles = special.ndtri((np.arange(case.count) + 0.5) / case.count)
    found = case(table(quantiles, quantiles, exact))
    assert_sound(found)
    if case.proven(exact):
        assert found.epsilon == 0.0


@both
@every
def test_all_scores_equal(case, exact):
    scores = table(np.full(case.count, 0.1), np.full(case.count, 0.1), exact)
    if case.method == "anytime" and not exact:
        with pytest.raises(NotEnoughCanariesError, match="all held-out scores are equal"):
            case(scores)
        return
    found = case(scores)
    assert_sound(found)
    if case.method == "bayesian":
        assert exact or found.epsilon < 0.2  # a credible limit is never quite 0
    elif not exact or case.samples:
        assert found.epsilon == 0.0


@both
@every
def test_one_canary(case, exact):
    """Either a number or a sentence that says that one is too few."""
    scores = table([2.0], [] if exact else [0.0], exact)
    too_few = case.split or case.method == "lifted" or "guesses" in case.options or (case.method == "anytime" and not exact)
    if too_few:
        with pytest.raises(NotEnoughCanariesError):
            case(scores)
    else:
        assert_sound(case(scores))


# ---- what must not matter ----


@both
@every
def test_the_order_of_the_rows_does_not_matter(case, exact):
    scores = typical(case, exact)
    order = stream(0, "rows").permutation(scores.value.size)
    shuffled = replace(
        scores, value=scores.value[order], inserted=scores.inserted[order], labels={"run": scores.labels["run"][order]}
    )
    expected = case(scores).epsilon
    assert case(shuffled).epsilon == (approx(expected, rel=1e-12) if case.method == "anytime" else expected)


@both
@every
def test_single_precision_is_accepted(case, exact):
    inserted, held_out = (column.astype(np.float32) for column in columns(case.count))
    found = case(table(inserted, held_out, exact))
    assert found.epsilon == case(table(inserted.astype(float), held_out.astype(float), exact)).epsilon
    assert type(found.epsilon) is float


@both
@unsplit
def test_the_unit_of_the_scores_does_not_matter(case, exact):
    """Not for split thresholds, where other numbers are shuffled into other halves."""
    inserted, held_out = columns(case.count)
    scale, shift = 4.0, 0.5
    moved = table(scale * inserted + shift, scale * held_out + shift, exact, null=GaussianNull(spread=scale, center=shift))
    here, there = case(typical(case, exact)), case.moved(scale, shift)(moved)
    assert there.epsilon == approx(here.epsilon, rel=1e-12)
    assert there.ceiling == approx(here.ceiling, rel=1e-12)


@pytest.mark.parametrize("case", [case for case in CHOSEN_BEFOREHAND if case.method != "anytime"], ids=lambda case: case.name)
def test_ties_across_the_groups_count_against_the_audit(case):
    """The same answer as if every tied held-out score had been a little larger, and no more than if it had been smaller."""
    inserted, held_out = (np.round(2 * column) / 2 for column in columns(case.count, gap=1.0))
    assert set(inserted) & set(held_out)

    def nudged(step):
        return case(table(inserted, held_out + step, exact=False)).epsilon

    assert nudged(0.0) == nudged(2.0**-30) <= nudged(-(2.0**-30))


# ---- what must not decrease or increase ----


@both
@unsplit
@few
@given(deltas=st.tuples(st.floats(1e-12, 0.9), st.floats(1e-12, 0.9)))
def test_a_larger_delta_explains_more(case, exact, deltas):
    scores = typical(case, exact)
    small, large = (case(scores, delta=delta) for delta in sorted(deltas))
    assert large.epsilon <= small.epsilon
    assert large.ceiling <= small.ceiling


@both
@unsplit
@few
@given(confidences=st.tuples(st.floats(0.01, 0.999), st.floats(0.01, 0.999)))
def test_more_confidence_shows_less(case, exact, confidences):
    scores = typical(case, exact)
    low, high = (case(scores, confidence=confidence) for confidence in sorted(confidences))
    assert high.epsilon <= low.epsilon + 1e-9
    assert high.ceiling <= low.ceiling + 1e-9


values = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 4.0, 1e6])


@both
@every
@few
@given(data=st.data())
def test_whatever_the_scores_the_number_is_sound(case, exact, data):
    """Ties, few distinct values, outliers, any delta, any confidence: never NaN, never negative, never above the ceiling."""
    inserted, held_out = (data.draw(st.lists(values, min_size=24, max_size=24)) for _ in range(2))
    delta = data.draw(st.floats(1e-9, 0.99))
    confidence = data.draw(st.floats(0.01, 0.9999))
    try:
        assert_sound(case(table(inserted, held_out, exact), delta=delta, confidence=confidence))
    except NotEnoughCanariesError:
        assert case.method == "anytime"
        assert len(set(held_out)) == 1


# ---- arguments ----


@every
@pytest.mark.parametrize("delta", [1.0, 1.5, -1e-3, float("nan"), float("inf"), "small", None], ids=repr)
def test_an_impossible_delta_is_refused(case, delta):
    with pytest.raises(ValueError, match="delta"):
        case(typical(case, exact=False), delta=delta)


@both
@every
def test_delta_zero_is_refused_or_right(case, exact):
    """Pure differential privacy: no number where a Gaussian shape is assumed, else the limit of small deltas."""
    scores = typical(case, exact)
    if case.shaped:
        with pytest.raises(ValueError, match="delta=0 is not allowed"):
            case(scores, delta=0)
    else:
        assert case(scores, delta=0).epsilon == approx(case(scores, delta=1e-14).epsilon, rel=1e-6)


@every
@pytest.mark.parametrize("confidence", [0, 1, 95, -0.5, float("nan"), "high"], ids=repr)
def test_an_impossible_confidence_is_refused(case, confidence):
    with pytest.raises(ValueError, match="confidence"):
        case(typical(case, exact=False), confidence=confidence)


@pytest.mark.parametrize("method", ["threshold", "gdp", "lifted", "bayesian"])
@pytest.mark.parametrize("threshold", [1.5, "best", Fixed], ids=repr)
def test_a_threshold_must_say_how_it_was_chosen(method, threshold):
    with pytest.raises(ValueError, match="Fixed"):
        BOUNDS[method](table(*columns(320), exact=False), delta=DELTA, threshold=threshold)


@pytest.mark.parametrize("method", ["bayesian", "lifted"])
def test_bounds_at_one_threshold_refuse_all_thresholds(method):
    with pytest.raises(ValueError, match="threshold=AllThresholds"):
        BOUNDS[method](table(*columns(320), exact=False), delta=DELTA, threshold=AllThresholds())


@pytest.mark.parametrize("bad", [{"order": 3}, {"kind": "normal"}, {"variance": "sample"}], ids=str)
def test_unknown_kinds_of_lifted_intervals_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        BOUNDS["lifted"](table(*columns(320), exact=False), delta=DELTA, **bad)


@pytest.mark.parametrize("method", ["threshold", "pointwise"])
def test_unknown_intervals_are_refused(method):
    with pytest.raises(ValueError, match="interval='wald'"):
        BOUNDS[method](table(*columns(40), exact=False), delta=DELTA, interval="wald")


@pytest.mark.parametrize("assignment", ["fixed", "unknown"])
@pytest.mark.parametrize("method", ["one-run", "one-run-fdp"])
def test_one_run_bounds_need_coins(method, assignment):
    with pytest.raises(AssignmentError, match="coins"):
        BOUNDS[method](table(*columns(40), exact=False, assignment=assignment), delta=DELTA)


def test_more_guesses_than_canaries_are_refused():
    with pytest.raises(NotEnoughCanariesError, match="81 guesses about 80 canaries"):
        bound_one_run(table(*columns(40), exact=False), delta=DELTA, guesses=Guesses(41, 40))


@pytest.mark.parametrize("bad", [(-1, 3), (0, 0), (1.5, 2), (float("nan"), 1)], ids=str)
def test_impossible_guesses_are_refused(bad):
    with pytest.raises(ValueError, match="positive"):
        Guesses(*bad)


def test_lifted_bounds_need_runs():
    with pytest.raises(AssignmentError, match="run"):
        BOUNDS["lifted"](Scores.of(*columns(40)), delta=DELTA)
    with pytest.raises(NotEnoughCanariesError, match="1 runs"):
        BOUNDS["lifted"](table(*columns(4), exact=False), delta=DELTA, **FIXED)
    with pytest.raises(NotEnoughCanariesError, match="0 inserted and held-out"):
        BOUNDS["lifted"](table(columns(8)[0], [], exact=True), delta=DELTA, **FIXED)


def test_the_anytime_bound_refuses_a_maximum_over_rounds():
    scores = table(*columns(40), exact=True, null=MaxNull(GaussianNull(), 5))
    with pytest.raises(AuditError, match="maximum"):
        bound_anytime(scores, delta=DELTA)


# ---- what a bound says about itself ----


@both
@every
def test_a_bound_says_whether_it_is_one_and_what_it_rests_on(case, exact):
    found = case(typical(case, exact))
    assert found.valid is case.proven(exact)
    assert (SHAPE in found.assumptions) is case.shaped
    assert (found.delta, found.confidence) == (DELTA, 0.95)
    assert found.method
    assert found.multiplicity
    assert ("approximate" in str(found)) is not found.valid
    expected = {
        "one-run": {COINS},
        "one-run-fdp": {COINS, SHAPE},
        "anytime": {SHAPE, SUB_GAUSSIAN, *([] if exact else [EXCHANGEABLE])},
    }.get(case.method, {INDEPENDENT, *(GaussianNull().assumptions if exact else [EXCHANGEABLE])})
    if case.method == "lifted":
        assert "runs are independent" in found.assumptions[0]
    else:
        assert expected <= set(found.assumptions)


def test_an_exact_null_needs_no_assumption_about_held_out_scores():
    found = bound_band(Scores.of(np.linspace(0.1, 0.5, 20), dim=50), delta=DELTA)
    assert found.assumptions == (INDEPENDENT, *CosineNull(50).assumptions)


DETECTING = [case for case in CASES if case.name in (
    "band", "threshold, all", "threshold, fixed", "threshold, split", "gdp, all", "gdp, fixed", "gdp, split", "one run",
    "one run, f-DP", "lifted, Bernstein 2", "anytime", "pointwise", "Bayesian, fixed",
)]  # fmt: skip


@pytest.fixture
def few_replicates(monkeypatch):
    """Less exact and quicker: for statements that hold with any number of simulated audits."""
    kept = (band._normal_order_statistics, band._detectable)  # which remember what 200 of them gave
    for each in kept:
        each.cache_clear()
    monkeypatch.setattr(_detect, "REPLICATES", 40)
    yield
    for each in kept:
        each.cache_clear()


@both
@pytest.mark.parametrize("case", DETECTING, ids=lambda case: case.name)
@pytest.mark.usefixtures("few_replicates")
def test_what_a_design_detects_grows_with_the_claim(case, exact):
    found = case(typical(case, exact))
    claimed = found.detectable_above(0.5)
    if case.method == "bayesian" and not exact:
        assert found.detectable == approx(0, abs=1e-3)  # a credible limit is above 0 even when nothing leaks
    else:
        assert found.detectable > 0
    assert max(found.detectable, 0.5) < claimed < np.inf
    assert found.detectable_above(found.ceiling) == np.inf


def test_at_delta_zero_no_gaussian_leak_is_the_smallest():
    assert bound_band(table(*columns(40), exact=False), delta=0).detectable == np.inf


# ---- regressions ----


def pure_dp_scores(epsilon, count, rng):
    """Scores of an epsilon-DP release whose best bound is epsilon at every threshold: the worst case for choosing one."""
    share = special.expit(-epsilon)  # of the null law above the only change of the likelihood ratio
    above, uniform = rng.random(count) < 1 - share, rng.random(count)
    return Scores.of(-special.ndtri(np.where(above, share * uniform, share + (1 - share) * uniform)), null=GaussianNull())


@pytest.mark.parametrize("count", [150, 300, 400])
def test_halves_are_split_at_random_and_not_by_rank(count):
    """Shuffling sorted scores with one fixed seed split them by rank, and missed in 23 % of audits with 300 canaries."""
    audits, epsilon = 200, 1.0
    missed = 0
    for audit in range(audits):
        scores = pure_dp_scores(epsilon, count, stream(0, "split", count, audit))
        missed += bound_threshold(scores, delta=0, threshold=Split()).epsilon > epsilon
    assert missed <= binom.ppf(1 - FALSE_ALARM, audits, 0.05)


@pytest.mark.parametrize("gap", [8.0, 16.0])
def test_a_split_threshold_is_one_that_the_other_half_reaches(gap):
    """The best threshold for one half alone is its largest score, above which the other half may have none."""
    rng = stream(0, "far", int(gap))
    tables = [Scores.of(rng.standard_normal(100) + gap, null=GaussianNull()) for _ in range(40)]
    found = [bound_threshold(scores, delta=DELTA, threshold=Split()).epsilon for scores in tables]
    assert np.quantile(found, 0.2) > gap**2 / 3


def test_few_held_out_scores_do_not_fool_the_anytime_bound():
    """Their mean is uncertain, too: with 2,000 inserted and 30 held-out scores, ignoring that missed in one of three audits."""
    audits, missed = 200, 0
    for audit in range(audits):
        rng = stream(0, "few held out", audit)
        missed += bound_anytime(Scores.of(rng.standard_normal(2000), rng.standard_normal(30)), delta=DELTA).epsilon > 0
    assert missed <= binom.ppf(1 - FALSE_ALARM, audits, 0.05)


@pytest.mark.parametrize("case", [case for case in CASES if case.fixed and not case.samples], ids=lambda case: case.name)
def test_the_ceiling_of_a_fixed_threshold_counts_its_false_alarms(case):
    """Even with a known null law: no score at 1.5 standard deviations can show more than its false-positive rate allows."""
    found = case(table(np.full(40, 1e3), [], exact=True))
    assert found.epsilon == found.ceiling < np.inf
    assert case.moved(2.0, 0.0)(table(np.full(40, 1e3), [], exact=True)).ceiling > found.ceiling


@pytest.mark.parametrize("threshold", [1.0, 2.0])
def test_no_evidence_where_both_rates_are_certain(threshold):
    """No cosine reaches the threshold and none could: inf - inf, without a warning."""
    assert bound_gdp(Scores.of([0.1, 0.2, 0.3], dim=20), delta=DELTA, threshold=Fixed(threshold)).epsilon == 0.0


def test_detectable_of_a_maximum_is_in_the_units_of_one_round():
    cosines = np.linspace(-0.02, 0.04, 40)
    maximum = Scores.of(cosines, null=MaxNull(CosineNull(10_000), 20))
    standard = Scores.of(100 * cosines, null=GaussianNull(slack=float(np.log(20))))
    here = bound_threshold(maximum, delta=DELTA, threshold=Fixed(0.03))
    there = bound_threshold(standard, delta=DELTA, threshold=Fixed(3.0))
    assert here.detectable == there.detectable < np.inf


@pytest.mark.parametrize("counts", [(0, 100, 0, 100), (30, 70, 5, 95), (90, 10, 60, 40), (250, 250, 250, 250)])
def test_the_bayesian_posterior_does_not_mind_which_answer_is_called_yes(counts):
    missed, found, alarms, cleared = counts
    for probability in (0.05, 0.5, 0.95):
        here = bayesian_quantile(missed, found, alarms, cleared, DELTA, probability)
        assert bayesian_quantile(found, missed, cleared, alarms, DELTA, probability) == approx(here, rel=1e-6)
        assert bayesian_quantile(alarms, cleared, missed, found, DELTA, probability) == approx(here, rel=1e-6)


@pytest.mark.parametrize("confidence", [1e-12, 0.3, 1 - 1e-12])
@every
def test_extreme_confidences_are_still_numbers(case, confidence):
    assert_sound(case(typical(case, exact=False), confidence=confidence))
