"""Does the code do what the accountant was told? One check for every sentence of a description.

    check.py            what a check is, and what it is fed with
    residual.py         from a round to its noise, made standard normal by the description
    by_round.py         numbers of every round in bounded memory
    totals.py           what several checks remember together
    long_transform.py   the power of a long row of numbers
    laws.py             laws of the statistics under the description
    noise_scale.py      the standard deviation: in all, by round, by layer, by coordinate
    noise_blocks.py     of neighbouring coordinates in single rounds
    noise_left.py       of the sum of all releases
    noise_shape.py      Gaussian, not rounded, mean zero
    noise_structure.py  new in every round, independent, nothing of earlier rounds
    noise_again.py      parts of earlier rounds that come back
    noise_spectrum.py   by frequency
    magnitudes.py       the same whatever the signs
    guesses.py          not from a guessable seed
    comparing.py        a contribution beside the clip of its update
    clipping.py         contributions, canaries, the denominator
    cohorts.py          who took part
    cohort_pairs.py     pairs of rounds and of clients that are alike
    quantile.py         the noise of adaptive clipping's count
    battery.py          all of them, judged as one family

A further check is a class with `applies`, `init`, `observe` and `conclude`, a line in `CHECKS`, and its sentence in
`coalmine.contracts.finding_sentences`.
"""

from coalmine.conformance.battery import Battery
from coalmine.conformance.check import Check, Subject
from coalmine.conformance.clipping import CONTRIBUTIONS
from coalmine.conformance.cohorts import COHORTS
from coalmine.conformance.comparing import compare, compare_examples
from coalmine.conformance.guesses import GUESSES
from coalmine.conformance.noise_scale import SCALE
from coalmine.conformance.noise_shape import SHAPE
from coalmine.conformance.noise_structure import STRUCTURE
from coalmine.conformance.quantile import QUANTILE

CHECKS: tuple[Check, ...] = (*SCALE, *SHAPE, *STRUCTURE, *GUESSES, *CONTRIBUTIONS, *COHORTS, *QUANTILE)

__all__ = ["CHECKS", "Battery", "Check", "Subject", "compare", "compare_examples"]
