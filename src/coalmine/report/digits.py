"""Epsilons as pages show them."""

from __future__ import annotations

import math

from coalmine.rounding import rounded_down


def number(value: float) -> str:
    """Three digits, as epsilons are shown; infinity has its own sign.

    >>> number(7.5463), number(9.997), number(0.0), number(float("inf")), number(123.456), number(2106.3), number(7.4681e8)
    ('7.55', '10.0', '0', '∞', '123', '2,106', '7.5e8')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= 1e6:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if abs(value) >= 1 else f"{value:.3g}"


def at_least(value: float) -> str:
    """A lower bound as `number` shows it, rounded down.

    >>> at_least(1.829), at_least(9.997), at_least(123.9), at_least(0.0), at_least(float("inf"))
    ('1.82', '9.99', '123', '0', '∞')
    """
    whole = 100 <= abs(value) < 1e6
    return number(float(math.floor(value)) if whole else rounded_down(value, 3 if abs(value) < 100 else 2))


def most(ceiling: float) -> str:
    """What a bound could have shown at most.

    >>> most(5.284), most(float("inf"))
    ('5.28', 'any')
    """
    return "any" if math.isinf(ceiling) else number(ceiling)


def power_of_ten(value: float) -> str:
    """A small number without filling zeros.

    >>> power_of_ten(1e-05), power_of_ten(0.001)
    ('1e-5', '0.001')
    """
    return f"{value:g}".replace("e-0", "e-")
