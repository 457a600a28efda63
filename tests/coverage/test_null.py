"""Null first: when nothing leaks, a 95 % bound is above zero in at most 5 % of audits."""

import pytest
from scipy.stats import binom

from coalmine.calibration import VALID, Case, false_statements

FALSE_ALARM = 1e-6  # each of these tests fails by chance at most once in a million times
AUDITS = 1000
SLOW = {"lifted, split": 60}  # a hundred thresholds for each audit


def allowed(audits: int, confidence: float = 0.95) -> int:
    return int(binom.ppf(1 - FALSE_ALARM, audits, 1 - confidence))


@pytest.mark.parametrize("exact_null", [True, False], ids=["exact", "sampled"])
@pytest.mark.parametrize("canaries", [100, 1000])
@pytest.mark.parametrize("method", VALID)
def test_noise_alone_rarely_looks_like_leakage(method: str, canaries: int, exact_null: bool) -> None:
    if method.startswith("lifted") and exact_null:
        pytest.skip("lifted bounds compare runs; they have no exact null")
    if method == "anytime" and not exact_null:
        pytest.skip("valid with a known null law only, and says so")
    if method == "lifted, Bernstein 4" and canaries == 100:
        pytest.skip("order 4 needs four canaries in each of the 40 runs")
    audits = SLOW.get(method, AUDITS)
    case = Case(method, epsilon=0.0, canaries=canaries, exact_null=exact_null)
    assert false_statements(case, audits) <= allowed(audits)


def test_the_calibration_notices_a_bound_that_is_not_one() -> None:
    """The same battery convicts the papers' uncorrected number: it exceeds zero in most audits without leakage."""
    case = Case("pointwise (papers)", epsilon=0.0, canaries=1000)
    assert false_statements(case, 200) > allowed(200)
