"""Argument errors: what came, what is allowed, what to do; and NaN passes nowhere."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from coalmine import _validate

NAN = math.nan
NOT_NUMBERS = [None, "much", "", [1.0], {}, object(), 1j, 10**400]


@pytest.mark.parametrize(
    "value", [0, 1, -2.5, True, "3", "1e-5", math.inf, -math.inf, Fraction(1, 3), Decimal("0.1"), np.float32(2)]
)
def test_number_accepts_whatever_is_one(value):
    found = _validate.number("x", value)
    assert type(found) is float
    assert found == float(value)


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=lambda value: str(value)[:10])
def test_number_refuses_what_is_none(value):
    with pytest.raises(ValueError, match=r"^x=.* is not a number\.$"):
        _validate.number("x", value)


@pytest.mark.parametrize(
    "check",
    [
        lambda x: _validate.number("x", x),
        lambda x: _validate.between("x", x, 0.0, 1.0),
        lambda x: _validate.delta(x),
        lambda x: _validate.delta(x, allow_zero=True),
        lambda x: _validate.confidence(x),
        lambda x: _validate.non_negative("x", x),
        lambda x: _validate.positive("x", x),
        lambda x: _validate.whole("x", x),
    ],
)
@pytest.mark.parametrize("value", [NAN, "nan", np.float32("nan"), Decimal("nan")], ids=["float", "text", "float32", "decimal"])
def test_nan_passes_nowhere(check, value):
    with pytest.raises(ValueError, match="is NaN; a number is needed"):
        check(value)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.1, math.inf, -math.inf])
def test_between_excludes_both_ends(value):
    with pytest.raises(ValueError, match=r"x=.* is not allowed: it must be between 0 and 1, both excluded\. \(ask\)"):
        _validate.between("x", value, 0.0, 1.0, hint="ask")
    assert _validate.between("x", 0.5, 0.0, 1.0) == 0.5


def test_delta_is_a_probability_and_zero_only_where_it_makes_sense():
    assert _validate.delta(1e-5) == 1e-5
    assert _validate.delta(0, allow_zero=True) == 0.0
    assert _validate.delta(5e-324) == 5e-324
    for allow_zero in (True, False):
        for value in (1, 1.5, -1e-9, math.inf):
            with pytest.raises(ValueError, match=r"delta=.*1 / population\*\*1\.1 is customary"):
                _validate.delta(value, allow_zero=allow_zero)
    with pytest.raises(ValueError, match="infinite epsilon at delta=0; bound_band and bound_threshold accept it"):
        _validate.delta(0.0)


@pytest.mark.parametrize(("value", "hint"), [(95, "for 95 percent write 0.95"), (99.9, "write 0.999")])
def test_a_confidence_in_percent_is_understood_and_refused(value, hint):
    with pytest.raises(ValueError, match=hint):
        _validate.confidence(value)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.95, 100, 950])
def test_a_confidence_is_a_share(value):
    with pytest.raises(ValueError, match=r"confidence=.* between 0 and 1, both excluded\.$"):
        _validate.confidence(value)
    assert _validate.confidence(0.95) == 0.95


@pytest.mark.parametrize("value", [-1e-300, math.inf, -math.inf])
def test_non_negative_and_positive_are_finite(value):
    for check in (_validate.non_negative, _validate.positive):
        with pytest.raises(ValueError, match=r"x=.* and finite"):
            check("x", value)


def test_zero_is_non_negative_and_not_positive():
    assert _validate.non_negative("x", 0) == 0.0
    assert _validate.positive("x", 5e-324) == 5e-324
    with pytest.raises(ValueError, match="above 0 and finite"):
        _validate.positive("x", 0)


@pytest.mark.parametrize("value", [3, 3.0, "3", "3.0", np.int32(3), np.float64(3.0), Fraction(3), Decimal(3)])
def test_whole_returns_a_plain_integer(value):
    found = _validate.whole("x", value, least=3)
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize("value", [2**53 + 1, np.int64(2**62 + 1), 10**18 + 7])
def test_whole_keeps_every_digit(value):
    assert _validate.whole("x", value) == int(value)


@pytest.mark.parametrize("value", [2.5, 2, -1, math.inf, -math.inf, "2.5"])
def test_whole_refuses_fractions_and_what_is_too_small(value):
    with pytest.raises(ValueError, match=r"x=.* a whole number of at least 3"):
        _validate.whole("x", value, least=3)


@pytest.mark.parametrize("value", ["c", "", "A", None, 3, ["a"], ("a",)])
def test_one_of_lists_what_is_allowed(value):
    for allowed in (("a", "b"), {"a": 1, "b": 2}):
        with pytest.raises(ValueError, match=r"x=.* is not allowed: it must be one of 'a', 'b'"):
            _validate.one_of("x", value, allowed)
    assert _validate.one_of("x", "a", ("a", "b")) == "a"
