"""Participation patterns: what they say of themselves, and what they refuse."""

import math

import numpy as np
import pytest

from coalmine import FixedSize, Once, Poisson, Repeated, claim

GOOD = [
    (Once(), "once"),
    (Repeated(1), "once"),
    (Repeated(8), "8 times"),
    (Poisson(0.01, 1000), "Poisson sampling at rate 0.01 for 1000 rounds"),
    (Poisson(1, 1), "Poisson sampling at rate 1 for 1 rounds"),
    (FixedSize(50, 3400, 20), "50 of 3400 clients without replacement for 20 rounds"),
    (FixedSize(5, 5, 1), "5 of 5 clients without replacement for 1 rounds"),
]


@pytest.mark.parametrize(("pattern", "words"), GOOD, ids=lambda value: str(value))
def test_patterns_say_what_they_are(pattern, words):
    assert str(pattern) == words


def test_one_presentation_is_once_for_a_claim():
    assert str(Repeated(1)) == str(Once())


def test_patterns_are_values():
    assert Poisson(0.1, 5) == Poisson(0.1, 5) != Poisson(0.1, 6)
    assert len({Once(), Once(), Repeated(2), Repeated(2), FixedSize(1, 2, 3), FixedSize(1, 2, 3)}) == 3
    with pytest.raises(AttributeError):
        Poisson(0.1, 5).rate = 0.2


@pytest.mark.parametrize("rate", [0, -0.1, 1.5, math.nan, math.inf, "often", None])
def test_a_rate_is_a_probability(rate):
    with pytest.raises(ValueError, match="rate"):
        Poisson(rate, 10)


def test_a_rate_out_of_range_says_how_to_get_one():
    with pytest.raises(ValueError, match=r"rate=1.5 is not a probability.*50 / 3400 gives 0\.0147"):
        Poisson(1.5, 10)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, math.nan, math.inf, "many", None])
def test_counts_are_whole_and_positive(wrong):
    for make, name in (
        (lambda: Repeated(wrong), "times"),
        (lambda: Poisson(0.1, wrong), "rounds"),
        (lambda: FixedSize(wrong, 10, 1), "cohort_size"),
        (lambda: FixedSize(1, wrong, 1), "population"),
        (lambda: FixedSize(1, 10, wrong), "rounds"),
    ):
        with pytest.raises(ValueError, match=f"{name}"):
            make()


def test_a_number_is_its_value_whatever_its_type():
    """A claim for "8.0 times" would not match scores of "8 times"."""
    assert Repeated(8.0) == Repeated(np.int64(8)) == Repeated("8") == Repeated(8)
    assert {str(Repeated(times)) for times in (8.0, np.int64(8), "8", 8)} == {"8 times"}
    assert str(FixedSize(np.int32(2), 4.0, np.uint8(1))) == "2 of 4 clients without replacement for 1 rounds"
    assert str(Poisson(np.float32(0.5), 3.0)) == "Poisson sampling at rate 0.5 for 3 rounds"
    assert claim(Repeated("8"), noise_multiplier="1", delta="1e-5") == claim(Repeated(8), noise_multiplier=1, delta=1e-5)


def test_a_cohort_is_part_of_its_population():
    with pytest.raises(ValueError, match="cohort_size=11 exceeds population=10"):
        FixedSize(11, 10, 1)
