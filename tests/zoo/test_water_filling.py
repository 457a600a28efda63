"""Bugs of noise for single records: those that can be seen are caught, correct code is not accused."""

import pytest

from coalmine.zoo.water_filling import RECORD_BUGS, audit_record


@pytest.mark.parametrize("name", [name for name, each in RECORD_BUGS.items() if each.visible])
def test_a_bug_that_can_be_seen_is_caught(name):
    assert audit_record(RECORD_BUGS[name], 0).verdict.word == "VIOLATED"
    assert RECORD_BUGS[name].fault.endswith(".") and RECORD_BUGS[name].source


def test_a_bug_that_only_adds_noise_is_not_accused():
    assert audit_record(RECORD_BUGS["centred-covariance"], 0).verdict.word != "VIOLATED"


@pytest.mark.parametrize("method", ["band", "gdp"])
def test_correct_code_is_not_accused(method):
    """Two seeds; a right audit accuses both once in 400."""
    words = [audit_record(None, seed, method).verdict.word for seed in (1, 2)]
    assert words != ["VIOLATED", "VIOLATED"]
