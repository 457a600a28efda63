"""Numbers of every round in bounded memory: where there are more than `MOST` rounds, those of neighbours are added up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coalmine.contracts import Array

MOST = 4096  # rows that are kept


def empty(width: int) -> Array:
    """No round yet; the last column says how many rounds are in a row."""
    return np.zeros((0, width + 1))


def appended(rows: Array, values: Sequence[float]) -> Array:
    """With one round more.

    >>> rows = empty(1)
    >>> for number in range(3 * MOST):
    ...     rows = appended(rows, [1.0])
    >>> rows.shape, rows[0].tolist(), rows.sum(axis=0).tolist()
    ((3072, 2), [4.0, 4.0], [12288.0, 12288.0])
    """
    new = np.array([*values, 1.0])
    if rows.shape[0] and rows[-1, -1] < rows[0, -1]:
        rows[-1] += new
        return rows
    if rows.shape[0] == MOST:
        rows = rows.reshape(MOST // 2, 2, -1).sum(axis=1)
        return appended(rows, values)
    return np.vstack([rows, new])


def full(rows: Array) -> Array:
    """The rows that have as many rounds as the first."""
    return rows[rows[:, -1] == rows[0, -1]] if rows.shape[0] else rows
