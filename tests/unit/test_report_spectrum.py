"""Drawings of spectra and of per-record epsilons."""

import math

from coalmine.report.spectrum import epsilons_of_records, number_line, water_and_ground
from coalmine.report.style import svg


def test_water_ground_and_canaries_are_drawn():
    text = svg(water_and_ground([4.0, 1.0, 0.1, 0.0], 0.5, heights=[0.6]))
    assert "water: added" in text and "ground: in the data" in text and "canaries" in text


def test_epsilons_on_a_line():
    compared = [("the canaries' own pair", 0.66), ("claimed, tight", 20.0), ("Theorem 4", math.inf)]
    text = svg(number_line([("measured, at least", 0.0)], compared))
    assert "Theorem 4 ∞" in text and "claimed, tight 20" in text and "measured, at least 0" in text
    assert "epsilon" in svg(number_line([("measured, at least", 0.0)]))


def test_infinite_epsilons_have_a_bar_of_their_own():
    text = svg(epsilons_of_records([0.1, 0.2, 0.5, math.inf]))
    assert "outside: infinite" in text and "∞" in text
    assert "outside: infinite" not in svg(epsilons_of_records([0.1, 0.2]))
    assert "epsilon of a record" in svg(epsilons_of_records([math.inf, 0.0]))
