"""The power of long rows of numbers, in their own place, is that of numpy's transform."""

from types import SimpleNamespace

import numpy as np
import pytest

from coalmine.conformance import totals
from coalmine.conformance.check import Moments, Round, RoundNoise
from coalmine.conformance.long_transform import LONG, add_power, is_long


@pytest.mark.parametrize("length", [2, 6, 8, 10, 64, 90, 1250, 2**12 * 3, 2 * 3**9])
def test_the_power_is_added_to_what_is_there(length):
    values = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    power = np.ones(length // 2 + 1, np.float32)
    expected = 1 + np.abs(np.fft.rfft(values.astype(np.float64))) ** 2
    add_power(power, values)
    assert np.allclose(power, expected, rtol=1e-3, atol=1e-4 * length)


def test_rows_that_are_short_or_odd_are_left_to_the_transform_of_one_dimension():
    assert [is_long(length) for length in (LONG - 2, LONG, LONG + 1)] == [False, True, False]


def test_what_checks_remember_is_the_same_in_both_ways(monkeypatch):
    noise = np.random.default_rng(0).standard_normal(3000)
    moments = Moments(np.array([3000.0]), np.array([[noise.sum()], [noise @ noise], [0.0], [0.0]]))
    seen = Round(SimpleNamespace(round=0), 1.0, 1.0, noise=RoundNoise(noise, moments))
    found = []
    for long in (False, True):
        monkeypatch.setattr(totals, "is_long", lambda length, long=long: long)
        memory = totals.init(noise.size)
        totals.observe(memory, seen)
        totals.observe(memory, seen)
        found.append(totals.within_rounds(memory))
    assert np.allclose(*found, atol=1e-2)
    assert found[0][0] == pytest.approx(2 * noise.size, rel=1e-5)
