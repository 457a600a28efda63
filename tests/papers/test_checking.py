"""What must be true of real runs is found false where it is: each judge is given a run that is wrong in one thing."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from pytest import approx

from coalmine.papers.kit.checking import CheckedNumber, by_kind, one_by_one, pooled_ratio, rises, slope_of
from coalmine.papers.kit.rules import allowed
from coalmine.papers.one_shot import run_checks
from coalmine.papers.one_shot.run_checks import compared, left_in_all
from coalmine.papers.one_shot.table4 import CRITICAL, TABLE4, _judged

RIGHT = {  # view: estimate, its standard error, valid bound
    "known-others": (99.0, 0.8, 80.0),
    "known-rounds": (95.0, 0.8, 75.0),
    "final-model": (1.2, 0.3, 0.4),
}


class _Run:
    """A run that says these things of itself."""

    path = "here"

    least_gap = 9.9

    def __init__(self, said=None, *, claim=99.2, mean=0.5, error=0.03, predicted=0.48, seen=10.0, normal=0.5):
        self.said, self.claim = {**RIGHT, **(said or {})}, claim
        self.mean_cosine, self.mean_cosine_error, self.predicted_cosine = mean, error, predicted
        self.seen, self.normal = seen, normal

    def stated(self, view):
        epsilon, _, bound = self.said[view]
        return (
            SimpleNamespace(epsilon=epsilon),
            SimpleNamespace(epsilon=bound),
            self.claim,
        )

    def error(self, view):
        return self.said[view][1]

    def beyond(self, view):
        return 6.0 if self.said[view][2] > self.claim else -math.inf

    def gap(self, view):
        return self.seen, 0.03

    def normality(self, view):
        return self.normal


def failed(run, noise=0.1):
    checks = one_by_one(list(compared("here", noise, run)))
    return [check.text for check in checks if not check.passed]


def test_a_right_run_passes_all_eight():
    found = list(compared("here", 0.1, _Run()))
    seen = [run_checks.ANALYTIC, run_checks.LEAST]
    assert [each.kind for each in found] == [run_checks.WITHIN] * 3 + seen + [run_checks.ORDER] * 2 + [run_checks.LEFT]
    assert failed(_Run()) == []


def test_a_view_that_sees_less_than_clients_hide_is_found():
    assert failed(_Run(seen=9.5)) == ["here: known rounds shows a gap of 9.5 ± 0.03; clients' sums as noise would leave 9.9"]


def test_a_signal_with_the_wrong_sign_is_found():
    """Its estimate is 0 with an interval of 0 to 0."""
    found = failed(_Run({"known-others": (0.0, 0.0, 0.0)}, mean=-0.4))
    assert len(found) == 3 and "gives the analytic value, 0 ± 0 for 99.2" in found[0] and "mean cosine" in found[-1]
    assert failed(_Run({"final-model": (0.0, 0.0, 0.0)})) == []


def test_no_normals_are_not_compared_with_a_bound():
    silent = _Run({"final-model": (1.2, 0.01, 9.0)}, claim=math.inf)
    assert failed(silent, 0.0) == ["here, final model: valid bound 9 <= estimate 1.2 ± 0.01 <= claim inf"]
    assert failed(_Run({"final-model": (1.2, 0.01, 9.0)}, claim=math.inf, normal=1e-6), 0.0) == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"known-others": (210.0, 0.8, 80.0)}, ["estimate 210", "gives the analytic value, 210"]),  # half the noise
        ({"known-others": (90.0, 0.8, 80.0)}, ["gives the analytic value, 90", "known rounds shows no more than known others"]),
        ({"known-rounds": (95.0, 0.8, 100.0)}, ["known rounds: valid bound 100"]),  # above the claim
        ({"final-model": (1.2, 0.3, 9.0)}, ["final model: valid bound 9"]),  # above the estimate
        (
            {"known-rounds": (99.2, 0.01, 75.0), "final-model": (99.3, 0.01, 0.0)},
            ["final model: valid", "final model shows no more"],
        ),
    ],
)
def test_a_wrong_view_is_found(said, words):
    found = failed(_Run(said))
    assert len(found) == len(words) and all(word in text for word, text in zip(words, found, strict=True)), found


def test_a_bound_above_its_claim_fails_however_wide_the_estimate_is():
    assert failed(_Run({"known-rounds": (95.0, 50.0, 99.3)})) == [
        "here, known rounds: valid bound 99.3 <= estimate 95 ± 50 <= claim 99.2"
    ]


def test_canaries_that_are_undone_are_found():
    assert failed(_Run(mean=0.25)) == ["here: mean cosine with the final model 0.25 ± 0.03, by what canaries added 0.48"]


def test_without_noise_nothing_is_said_of_rounding():
    silent = _Run({"known-others": (1e12, 1.0, 2e12)}, claim=math.inf)
    found = list(compared("here", 0.0, silent))
    assert len(found) == 5 and not any("known others" in each.text for each in found)
    assert failed(silent, 0.0) == []


def test_runs_together_find_what_none_of_them_does():
    """Twenty runs that lost a tenth each, of which each is sure to a tenth."""
    runs = [_Run(mean=0.45, error=0.05, predicted=0.5) for _ in range(20)]
    assert not any(failed(run) for run in runs)
    assert left_in_all(runs).distance == approx((0.1 - run_checks.UNDONE) * math.sqrt(20) / 0.1)
    assert pooled_ratio([(0.45, 0.05, 0.5)] * 20) == (approx(0.9), approx(0.1 / math.sqrt(20)))


def test_a_ratio_is_that_of_weighted_least_squares():
    rng = np.random.default_rng(0)
    wanted, error = rng.uniform(0.1, 2, 30), rng.uniform(0.01, 0.1, 30)
    mean = 0.97 * wanted + error * rng.standard_normal(30)
    (fitted,), *_ = np.linalg.lstsq((wanted / error)[:, None], mean / error, rcond=None)
    assert pooled_ratio(list(zip(mean, error, wanted, strict=True)))[0] == approx(fitted)


def test_many_right_comparisons_fail_once_in_a_thousand():
    """Of 100,000 experiments with 28 right comparisons each about 100 fail; a false alarm of this test is rarer than 1e-6."""
    farthest = np.abs(np.random.default_rng(0).standard_normal((100_000, 28))).max(axis=1)
    assert 50 < (farthest > allowed(28)).sum() < 150


def test_the_farthest_of_each_kind_is_shown():
    checks = by_kind([CheckedNumber("a", "near", 1.0), CheckedNumber("a", "far", 9.0), CheckedNumber("b", "fine", -2.0)])
    assert [check.passed for check in checks] == [False, True]
    assert "far" in checks[0].text and "+9.0" in checks[0].text and checks[0].text.startswith("a, 2 comparisons")


def test_what_cannot_be_compared_fails():
    checks = by_kind([CheckedNumber("a", "near", 1.0), CheckedNumber("a", "nothing", math.nan)])
    assert not checks[0].passed and "nothing" in checks[0].text


@pytest.mark.parametrize(
    ("values", "errors", "good"),
    [
        ([1.0, 2.0, 3.0, 4.0], [0.3] * 4, True),
        ([4.0, 3.0, 2.0, 1.0], [0.3] * 4, False),
        ([1.0, 1.0, 1.0, 1.0], [0.3] * 4, False),
        ([1.0, 1.1, 1.2, 1.3], [0.3] * 4, False),  # not more than chance
        ([3.0, 2.0, 1.0, 3.1], [0.3] * 4, False),  # the last is above the first, and there is no trend
        ([1.0, 2.0, 3.0, math.inf], [0.3, 0.3, 0.3, math.inf], True),
        ([math.inf] * 4, [math.inf] * 4, False),
        ([0.0] * 4, [0.0] * 4, False),
    ],
)
def test_a_trend_is_more_than_two_ends(values, errors, good):
    assert rises("here", [1, 2, 4, 8], values, errors).passed == good


def test_a_slope_is_that_of_weighted_least_squares():
    values, errors = [1.0, 2.5, 3.0, 5.0], [0.1, 0.5, 0.2, 0.4]
    (slope, _), covariance = np.polyfit([0, 1, 2, 3], values, 1, w=1 / np.array(errors), cov="unscaled")
    assert slope_of([0, 1, 2, 3], values, errors) == (approx(slope), approx(math.sqrt(covariance[0, 0])))


def cosines(statistics):
    places = [(noise, times) for noise, row in TABLE4.items() for times in row]
    seen = SimpleNamespace(final=np.zeros(1000))
    return {
        place: SimpleNamespace(anderson_darling=lambda value=value: value, seen=seen)
        for place, value in zip(places, statistics, strict=True)
    }


def test_cosines_that_are_no_normals_are_found():
    rows, checks = _judged(cosines([0.3] * 15))
    assert all(check.passed for check in checks) and {row.verdict for row in rows} == {"same shape"}
    rows, checks = _judged(cosines([0.3] * 14 + [11.0]))  # few, but grossly
    assert [check.passed for check in checks] == [True, False] and rows[-1].verdict == "differs"
    rows, checks = _judged(cosines([0.3] * 5 + [CRITICAL[0.15] + 0.01] * 10))  # none grossly, but many
    assert [check.passed for check in checks] == [False, True]
