"""Null first: when nothing leaks, a 95 % bound is above zero in at most 5 % of audits."""

import pytest
from scipy.stats import binom

from coalmine.calibration import VALID, Case, false_statements

FALSE_ALARM = 1e-4  # each of these tests fails for one seed in ten thousand; the seeds are fixed
AUDITS = 1000
SLOW = {"lifted, split": 100}  # a hundred thresholds for each audit


def allowed(audits: int, confidence: float = 0.95) -> int:
    return int(binom.ppf(1 - FALSE_ALARM, audits, 1 - confidence))


def designs() -> list[tuple[str, int, bool]]:
    """Every valid bound with 100 and 1,000 canaries, exact and sampled null, as far as it has that design."""
    every = [(method, canaries, exact) for method in VALID for canaries in (100, 1000) for exact in (True, False)]
    return [design for design in every if has_design(*design)]


def has_design(method: str, canaries: int, exact_null: bool) -> bool:
    if method.startswith("lifted"):  # compares runs: no exact null; order 4 needs four canaries in each of the 40 runs
        return not exact_null and not (method.endswith("4") and canaries == 100)
    return exact_null or method != "anytime"  # valid with a known null law only, and says so


@pytest.mark.parametrize(("method", "canaries", "exact_null"), designs())
def test_noise_alone_rarely_looks_like_leakage(method: str, canaries: int, exact_null: bool) -> None:
    audits = SLOW.get(method, AUDITS)
    case = Case(method, epsilon=0.0, canaries=canaries, exact_null=exact_null)
    assert false_statements(case, audits) <= allowed(audits)


def test_the_calibration_notices_a_bound_that_is_not_one() -> None:
    """The same battery convicts the papers' uncorrected number: it exceeds zero in most audits without leakage."""
    case = Case("pointwise (papers)", epsilon=0.0, canaries=1000)
    assert false_statements(case, 200) > allowed(200)
