"""The power of a long row of real numbers, in the place of the row: a transform of rows and columns that fit the cache.

    N = 2 A B      numbers; read as A B complex ones, x_2m + i x_(2m+1), and these as a table of A rows and B columns
    Z[a, b]        the transform at frequency a + A b: of the columns, times exp(-2πi a b / AB), of the rows
    X[k]           E + exp(-2πi k / N) O with E, O the even and odd parts of Z about k and AB - k

A transform of one dimension takes four vectors beside the row: its result, its tables and two copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

LONG = 9 << 17  # numbers, from which on this is quicker
_ROWS = 16  # at once
Table = NDArray[np.complex64]


def is_long(length: int) -> bool:
    """Whether `add_power` is for rows of that length."""
    return length >= LONG and length % 2 == 0


def add_power(power: NDArray[np.float32], values: NDArray[np.float32]) -> None:
    """Adds |rfft(values)|² to `power`; the values are overwritten.

    >>> values, power = np.arange(12.0, dtype=np.float32), np.zeros(7, np.float32)
    >>> expected = np.abs(np.fft.rfft(values)) ** 2
    >>> add_power(power, values)
    >>> bool(np.allclose(power, expected, atol=1e-3))
    True
    """
    half = values.size // 2
    rows = max(part for part in range(1, math.isqrt(half) + 1) if half % part == 0)
    columns = half // rows
    table = values.view(np.complex64).reshape(rows, columns)
    _in_place(fft.fft, table, axis=0)
    turn = np.exp(np.arange(columns) * (-2j * math.pi / half))
    turned = np.ones(columns, np.complex128)
    for row in range(1, rows):
        turned *= turn
        table[row] *= turned
    _in_place(fft.fft, table, axis=1)
    nyquist = float(table[0, 0].real) - float(table[0, 0].imag)
    by_row = power[:half].reshape(columns, rows)  # frequency a + A b
    fine, coarse = (np.exp(np.arange(count) * (-1j * math.pi * step / half)) for count, step in ((rows, 1), (columns, rows)))
    for first in range(0, rows, _ROWS):
        some = np.arange(first, min(first + _ROWS, rows))
        there, mirrored = table[some], _mirrored(table, some)
        odd = (there - mirrored) * (-0.5j * np.multiply.outer(fine[some], coarse)).astype(np.complex64)
        found = 0.5 * (there + mirrored) + odd
        by_row[:, first : first + some.size] += (found.real**2 + found.imag**2).T
    power[half] += nyquist * nyquist


def _mirrored(table: Table, rows: NDArray[np.int64]) -> Table:
    """By (row, column) of frequency k, the conjugate of what is at frequency AB - k."""
    found = table[-rows % table.shape[0], ::-1].conj()
    if rows[0] == 0:
        found[0] = np.roll(found[0], 1)
    return found


def _in_place(transform: Callable[..., Any], table: Table, axis: int) -> None:
    """scipy may, but need not, overwrite its argument."""
    result = transform(table, axis=axis, overwrite_x=True)
    if not np.may_share_memory(result, table):
        table[...] = result
