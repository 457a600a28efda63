"""Numbers in words that never say more than was shown: lower bounds are rounded down, needed factors up."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def rounded_down(value: float, digits: int = 3) -> float:
    """To so many digits, never above the value.

    >>> rounded_down(1.829), rounded_down(9.997), rounded_down(3.5), rounded_down(float("inf"))
    (1.82, 9.99, 3.5, inf)
    """
    return _rounded(value, digits, ROUND_FLOOR)


def rounded_up(value: float, digits: int = 2) -> float:
    """To so many digits, never below the value.

    >>> rounded_up(2.01), rounded_up(1.84), rounded_up(2.0), rounded_up(1234.5)
    (2.1, 1.9, 2.0, 1300.0)
    """
    return _rounded(value, digits, ROUND_CEILING)


def told_apart(bound: float, claim: float, digits: int = 3) -> tuple[str, str]:
    """A lower bound, rounded down, and the smaller claim that it exceeds, with as many digits as it takes to see that.

    >>> told_apart(3.5, 3.0), told_apart(4.3783, 4.3772)
    (('3.5', '3'), ('4.378', '4.377'))
    """
    for many in range(digits, 18):
        least, claimed = f"{rounded_down(bound, many):.{many}g}", f"{claim:.{many}g}"
        if float(least) > float(claimed):
            return least, claimed
    return repr(bound), repr(claim)


def _rounded(value: float, digits: int, way: str) -> float:
    if not math.isfinite(value):
        return value
    return float(Context(prec=digits, rounding=way).create_decimal(Decimal(repr(float(value)))))


def percent(share: float) -> str:
    """A share in percent, never rounded up to certainty.

    >>> percent(0.95), percent(0.999), percent(1 - 1e-12)
    ('95%', '99.9%', '99.9999999999%')
    """
    return f"{100 * share:.{10 if share <= 1 - 1e-10 or share >= 1 else 12}g}%"
