"""Reads numbers as papers print them: "9.89 ± 0.71", "30 %", "45800"."""

from __future__ import annotations


def read_number(printed: str) -> float | None:
    """The number, without what stands behind ± and without a percent sign; None if it is none.

    >>> read_number("9.89 ± 0.71"), read_number("25 %"), read_number("very close")
    (9.89, 25.0, None)
    """
    try:
        return float(printed.partition("±")[0].strip().rstrip("%"))
    except ValueError:
        return None


def read_mean(printed: str) -> tuple[float, float]:
    """(mean, standard deviation) of "mean ± standard deviation".

    >>> read_mean("0.972 ± 0.148")
    (0.972, 0.148)
    """
    mean, std = printed.split(" ± ")
    return float(mean), float(std)


def last_digit(printed: str) -> float:
    """The size of the last digit: printed numbers are rounded to it.

    >>> last_digit("9.89"), last_digit("30")
    (0.01, 1.0)
    """
    return 10.0 ** -len(printed.partition(".")[2])
