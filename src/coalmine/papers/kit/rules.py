"""Rules that verdicts and checks follow: how far apart is too far, and what it means to stand in a paper's order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from coalmine.papers.kit.paper_result import RowVerdict

RISK = 0.001  # that one of an experiment's checks fails right code
NOT_A_BOUND = "CANIFE's epsilon of a round, and whatever is composed of it, is not a bound."
AGREES = 3.3  # standard errors that a comparison allows: by chance it is missed once in a thousand


def allowed(comparisons: int, freedom: float = math.inf) -> float:
    """Standard errors that the farthest of so many exceeds by chance with probability RISK; with Student's degrees of freedom.

    >>> round(allowed(1), 2), round(allowed(28), 2), round(allowed(1, freedom=3), 2)
    (3.29, 4.13, 12.92)
    """
    from scipy.special import ndtri, stdtrit

    share = RISK / 2 / comparisons
    return float(-ndtri(share) if math.isinf(freedom) else -stdtrit(freedom, share))


def in_order(
    paper: Sequence[float],
    ours: Sequence[float],
    errors: Sequence[float],
    width: float = 2.0,
    *,
    apart: Sequence[bool] | None = None,
) -> list[RowVerdict | None]:
    """Whether each of our numbers stands where the paper's order has it among the others.

    "differs" if it is on the wrong side of another one by more than the error of both, "same shape" if it is not and is on the
    right side of some other by as much; None if the errors allow neither to be said. `width` is in standard errors of the
    difference. To be on the right side of one that stands `apart` is no merit: the others must be told from each other.

    >>> in_order([30.0, 10.0, 1.0], [9.0, 5.0, 5.1], [0.1, 0.1, 0.1]), in_order([3.0, 1.0], [1.0, 2.0], [0.1, 0.1])
    (['same shape', 'same shape', 'same shape'], ['differs', 'differs'])
    >>> in_order([30.0, 10.0, 1.0], [9.0, 5.0, 5.1], [0.1, 0.1, 0.1], apart=[True, False, False])
    ['same shape', None, None]
    >>> in_order([1, 2, 4], [1.0, 1.0, 1.1], [0.1, 0.1, 0.1])
    [None, None, None]
    """
    aside = [False] * len(ours) if apart is None else apart
    right, wrong = [False] * len(ours), [False] * len(ours)
    for first in range(len(ours)):
        for second in range(len(ours)):
            if paper[first] > paper[second]:
                slack = width * math.hypot(errors[first], errors[second])
                if ours[second] < ours[first] - slack:
                    right[first] |= not aside[second]
                    right[second] |= not aside[first]
                if ours[first] < ours[second] - slack:
                    wrong[first] = wrong[second] = True
    return ["differs" if bad else "same shape" if good else None for good, bad in zip(right, wrong, strict=True)]
