"""Noise by frequency: what is missing in a few of them leaves every coordinate as it is, and hardly shows at any one shift.

Its magnitudes by frequency show strength that repeats along the coordinates: rows or columns of a layer that are quieter.

symbol   here      meaning
P_k      power     Σ_t |FFT z_t|² at frequency k
d, T               coordinates, rounds

2 P_k / d is a chi-square with 2 T degrees of freedom, and frequencies are independent (zeros that were added up to a quick
length correlate neighbours by the square of their share of the length, which is nothing). Of them, and of neighbours together:

statistic                           law
the weakest and strongest           chi-square, for each of them
Σ of the squared normals            chi-square with as many degrees of freedom as there are: strength that varies
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammainc, gammaincc

from coalmine.conformance.laws import Tail, chi_square, least_likely, worst
from coalmine.conformance.noise_blocks import normal_scores
from coalmine.contracts import Array

MOST = 1 << 18  # of which single ones are looked at; where there are more, so many neighbours together
_FEWEST, _VARIED = 8, 64  # sums that are compared, and of which it is said how much they vary
_TOGETHER = 4  # that make one of the next length


def tail(power: Array, length: int, coordinates: int, rounds: int, what: str = "noise") -> Tail:
    """The least likely of all; `length` is that of the transform. The mean of everything is another test's."""
    strengths = 2 * power[1 : (length + 1) // 2].astype(np.float64) / max(coordinates, 1)
    together, tails = max(1, -(-strengths.size // MOST)), list[Tail]()
    while strengths.size // together >= _FEWEST:
        whole = strengths[: strengths.size // together * together].reshape(-1, together)
        tails.append(_of(whole.sum(axis=1), 2.0 * rounds * together, together, length, what))
        together *= _TOGETHER
    return worst(tails)


def _of(sums: Array, freedom: float, together: int, length: int, what: str) -> Tail:
    low, high = gammainc(freedom / 2, sums / 2), gammaincc(freedom / 2, sums / 2)
    places = [int(np.argmin(low)), int(np.argmin(high))]
    periods = [f"{what} with a period of {length / (1 + (place + 0.5) * together - 0.5):.4g} coordinates" for place in places]
    weakest, strongest = float(low[places[0]]), float(high[places[1]])
    tails = [least_likely([Tail(weakest, where=periods[0]), Tail(strongest, where=periods[1])], 2 * sums.size)]
    if sums.size >= _VARIED:
        scores = normal_scores(low, high)
        varied = min(chi_square(float(scores @ scores), sums.size))
        tails.append(Tail(min(1.0, 2 * varied), where=f"frequencies of {what}, which differ"))
    return worst(tails)
