"""Colours that everybody tells apart: verdicts and series as people with a colour-vision deficiency see them.

The matrices are those of Machado, Oliveira & Fernandes (2009), "A Physiologically-based Model for Simulation of Color Vision
Deficiency", severity 1.0, for linear RGB. Distances are CIE76 in CIE Lab (D65): 2.3 is just noticeable; ten times that is asked
of the colours of two series, which lie in one figure. A verdict has a word, a sign and a shape besides.
"""

import re
from importlib import resources
from itertools import combinations

import numpy as np
import pytest

JUST_NOTICEABLE = 2.3
SERIES, VERDICTS = 10 * JUST_NOTICEABLE, 5 * JUST_NOTICEABLE
VISION = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
WHITE = np.array([0.95047, 1.0, 1.08883])


def themes():
    """The variables of the style sheet: light, dark and printed."""
    text = resources.files("coalmine.report").joinpath("templates/base.css").read_text(encoding="utf-8")
    found = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", text, re.DOTALL)]
    return dict(zip(("light", "dark", "print"), found, strict=True))


def lab(colour, vision):
    """CIE Lab of a colour as it is seen."""
    coded = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    xyz = np.array(TO_XYZ) @ np.clip(np.array(VISION[vision]) @ linear, 0, 1) / WHITE
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(first, second, vision):
    return float(np.linalg.norm(lab(first, vision) - lab(second, vision)))


def test_the_distance_is_the_published_one():
    """White and black are 100 apart, pure red is at 53.24, 80.09, 67.20; a red-green blind eye confuses red and green."""
    assert distance("#ffffff", "#000000", "full") == pytest.approx(100, abs=0.01)
    assert lab("#ff0000", "full") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert distance("#ff0000", "#5b8c00", "deuteranopia") < 0.5 * distance("#ff0000", "#5b8c00", "full")


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_everybody_tells_verdicts_and_series_apart(theme, vision):
    colours = themes()[theme]
    for first, second in combinations(("orange", "green", "gold"), 2):  # violated, consistent, inconclusive
        assert distance(colours[first], colours[second], vision) > VERDICTS, (first, second)
    assert distance(colours["orange"], colours["blue"], vision) > SERIES


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_everybody_sees_them_on_their_paper(theme, vision):
    colours = themes()[theme]
    for name in ("orange", "green", "gold", "blue", "ink"):
        assert distance(colours[name], colours["paper"], vision) > SERIES, name
