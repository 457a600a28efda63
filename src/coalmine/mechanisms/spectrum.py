r"""Spectra of per-example gradients: span, leverage, and how far water stands on them. numpy only; K x K is never formed.

G has a row for every example. With weights of variance 1/(BD) its rows give a covariance GᵀG/(BD), whose eigenvalues other than
zero are those of the Gram matrix G Gᵀ/(BD).

    symbol        here             meaning
    lambda_k      eigenvalues      of a covariance
    sigma²        level, floor     the water level: lambda_k < level is lifted to it
    l_r           leverages        g_rᵀ (GᵀG)⁺ g_r, between 0 and 1
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array
from coalmine.errors import NonFiniteError

_LEAST = {4: 1e-6, 8: 1e-12}  # by bytes of a float: smaller eigenvalues of a Gram matrix, relative to the largest, are rounding
_COLUMNS = 1 << 14
_FEW = 8  # below one in so many eigenvalues an iterative method is faster
LARGEST_SIDE = 5_000  # of the smaller side of G: beyond it the decomposition takes minutes


def leverages(gradients: ArrayLike, tolerance: float | None = None, sketch: int | None = None) -> Array:
    """The leverage of every row (example): 1 if it is outside the span of all others, 0 for a zero gradient.

    Singular values below `tolerance` times the largest one count as zero; by default what rounding of the input's own type
    makes of them. The ranks are found in float64 whatever the type is.

    >>> [round(float(value), 6) for value in leverages([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])]
    [0.5, 0.5, 1.0, 0.0]

    A matrix with more than 5,000 rows and columns takes too long. With `sketch` its rows are projected onto so many random
    directions first. What comes out is approximate: a leverage never above the true one, since directions are only lost.

    Args:
        gradients: (examples, dim).
        tolerance: Singular values below this share of the largest count as zero.
        sketch: Random directions, for matrices that are too large; None: exact.

    Returns:
        One number between 0 and 1 for each row.
    """
    if sketch is not None:
        gradients = _sketched(gradients, _validate.whole("sketch", sketch, least=1))
    rows, least = _rows("gradients", gradients, tolerance)
    if rows.shape[0] == 0 or not rows.any():
        return np.zeros(rows.shape[0])
    basis, core = None, rows
    if rows.shape[0] > 2 * rows.shape[1]:
        basis, core = np.linalg.qr(rows)
    elif rows.shape[1] > 2 * rows.shape[0]:
        core = np.asarray(np.linalg.qr(rows.T, mode="r")).T  # the same left singular vectors
    left, values, _ = np.linalg.svd(core, full_matrices=False)
    left = left[:, values > least * values[0]]
    if basis is not None:
        left = basis @ left
    found = np.minimum(np.einsum("ij,ij->i", left, left), 1.0)
    return np.where(rows.any(axis=1), found, 0.0)


def outside_span(gradients: ArrayLike, others: ArrayLike, tolerance: float = 1e-9) -> Any:
    """Whether a gradient (a row of `others`, each) has a part outside the span of the rows of `gradients`.

    Theorem 1 of Zhang & Psounis (2024): if it does, a sum with weights that are not zero shows it, and no epsilon is finite.
    A part below `tolerance` of the gradient's norm is taken for rounding.

    >>> outside_span([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [3.0, 4.0, 0.0]), outside_span([[1.0, 0.0]], [0.0, 1.0])
    (False, True)

    Args:
        gradients: (examples, dim).
        others: One gradient, or one in each row.
        tolerance: Share of the norm that counts as rounding.

    Returns:
        True or False, for each row where there are several.
    """
    basis = span(gradients)
    asked = np.asarray(others, np.float64)
    vectors, _ = _rows("others", np.atleast_2d(asked), None)
    if vectors.shape[1] != basis.shape[1]:
        raise ValueError(f"gradients have {basis.shape[1]} coordinates, and others {vectors.shape[1]}.")
    norms = np.linalg.norm(vectors, axis=1)
    rest = vectors - (vectors @ basis.T) @ basis
    rest -= (rest @ basis.T) @ basis  # once more: what rounding left of the first time
    found = np.linalg.norm(rest, axis=1) > tolerance * norms
    return bool(found[0]) if asked.ndim == 1 else found


def span(gradients: ArrayLike, tolerance: float | None = None) -> Array:
    """An orthonormal basis of the span of the rows; rows are normalised first, so that a small gradient counts as any other."""
    rows, least = _rows("gradients", gradients, tolerance)
    norms = np.linalg.norm(rows, axis=1)
    rows = rows[norms > 0] / norms[norms > 0, None]
    if rows.shape[0] == 0:
        return np.zeros((0, rows.shape[1]))
    if rows.shape[0] > 2 * rows.shape[1]:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(right[values > least * values[0]])


def water_fill(eigenvalues: ArrayLike, level: float) -> Array:
    """The variance to add in each direction so that none has less than `level`: (level - eigenvalue)+.

    Of everything that may be added so that all directions reach the level, this has the least trace.

    >>> water_fill([4.0, 1.0, 0.0], 1.25).tolist()
    [0.0, 0.25, 1.25]

    Args:
        eigenvalues: Of what is there already.
        level: That every direction shall reach.

    Returns:
        What is added, by direction.
    """
    return np.asarray(np.maximum(_validate.non_negative("level", level) - _eigenvalues(eigenvalues), 0.0))


def water_level(eigenvalues: ArrayLike, budget: float) -> float:
    """The level that a total variance of `budget` reaches: the inverse of the sum of `water_fill`.

    >>> water_level([4.0, 1.0, 0.0], 1.5)
    1.25

    Args:
        eigenvalues: Of what is there already.
        budget: Total variance that may be added.

    Returns:
        The level.
    """
    ground = np.sort(_eigenvalues(eigenvalues))
    if ground.size == 0:
        raise ValueError("eigenvalues is empty: there is nothing to fill.")
    budget = _validate.non_negative("budget", budget)
    count = np.arange(1, ground.size + 1)
    levels = (budget + np.cumsum(ground)) / count  # if the lowest `count` directions are under water
    under = np.flatnonzero(levels >= ground)  # the last one that reaches its own ground
    return float(levels[under[-1]])


class Spectrum:
    """Eigenpairs of the covariance of one user's update, from the Gram matrix of its examples: (D x K) in, D x D inside."""

    def __init__(self, gradients: NDArray[Any], scale: float, above: float = 0.0):
        """Of clipped rows; the covariance is GᵀG times `scale`, 1/(BD). Eigenvalues up to `above` may be left out."""
        self.gradients = gradients
        self.scale = scale
        values, vectors = _eigenpairs(_gram(gradients), above / scale)
        least = _LEAST[gradients.dtype.itemsize] * float(values[-1]) if len(values) else 0.0
        kept = values > max(least, 0.0)
        self.eigenvalues = values[kept] * scale  # rising; the others are zero
        self._vectors = vectors[:, kept] / np.sqrt(values[kept])  # u_k = Gᵀ v_k / sqrt(mu_k)

    def apply(self, weights: Array, where: NDArray[np.bool_] | None = None) -> Array:
        """sum_k weights_k u_k over the eigenvectors asked for."""
        vectors = self._vectors if where is None else self._vectors[:, where]
        return np.asarray((vectors @ weights) @ self.gradients, np.float64)

    def inner(self, vector: Array, where: NDArray[np.bool_] | None = None) -> Array:
        """<u_k, vector> for the eigenvectors asked for."""
        vectors = self._vectors if where is None else self._vectors[:, where]
        return np.asarray((self.gradients @ vector) @ vectors, np.float64)

    def directions(self, where: NDArray[np.bool_] | None = None) -> Array:
        """The eigenvectors asked for, as columns."""
        vectors = self._vectors if where is None else self._vectors[:, where]
        return np.asarray(self.gradients.T @ vectors, np.float64)


def _gram(gradients: NDArray[Any]) -> Array:
    """G Gᵀ in float64, of some columns at a time: rounding of float32 would be seen as eigenvalues."""
    gram = np.zeros((len(gradients), len(gradients)))
    for start in range(0, gradients.shape[1], _COLUMNS):
        part = gradients[:, start : start + _COLUMNS].astype(np.float64)
        gram += part @ part.T
    return gram


def _eigenpairs(gram: Array, above: float) -> tuple[Array, Array]:
    """Rising eigenvalues and their vectors; where the trace allows only few of them above a level, only those."""
    most = int(np.trace(gram) / above) if above > 0 else len(gram)
    if most == 0:
        return np.zeros(0), np.zeros((len(gram), 0))
    if most > len(gram) // _FEW:
        values, vectors = np.linalg.eigh(gram)
        return values, vectors
    from scipy.sparse.linalg import eigsh

    values, vectors = eigsh(gram, k=most, v0=np.ones(len(gram)))  # always the same start: the same bits
    order = np.argsort(values)
    return values[order], vectors[:, order]


def _sketched(gradients: ArrayLike, count: int) -> Array:
    """Inner products of all rows with the same random directions, some columns at a time."""
    given = np.asarray(gradients)
    if given.ndim != 2 or given.dtype.kind not in "fiub":
        _rows("gradients", given, None)  # says what is wrong
    found, rng = np.zeros((given.shape[0], count)), stream(0, "sketch of gradients")
    for start in range(0, given.shape[1], _COLUMNS):
        part = given[:, start : start + _COLUMNS]
        found += part @ rng.standard_normal((part.shape[1], count))
    return found


def _rows(name: str, value: ArrayLike, tolerance: float | None) -> tuple[Array, float]:
    """A matrix in float64, and the relative size below which a singular value is rounding."""
    given = np.asarray(value)
    if given.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be a matrix of real numbers; this is of type {given.dtype}.")
    if given.ndim != 2:
        raise ValueError(f"{name} must be a matrix with a row for every example; this has {given.ndim} dimensions.")
    if min(given.shape) > LARGEST_SIDE:
        raise ValueError(
            f"{name} of {given.shape[0]} x {given.shape[1]} is too large for an exact decomposition: the smaller side may be "
            f"{LARGEST_SIDE}. `leverages(..., sketch=2000)` gives lower bounds by random directions."
        )
    eps = float(np.finfo(given.dtype).eps) if given.dtype.kind == "f" else float(np.finfo(np.float64).eps)
    rows = given.astype(np.float64)
    if not np.isfinite(rows).all():
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        raise NonFiniteError(f"{name}: {bad.size} rows have NaN or infinite entries, the first is row {bad[0]}.")
    return rows, max(given.shape) * eps if tolerance is None else _validate.non_negative("tolerance", tolerance)


def _eigenvalues(value: ArrayLike) -> Array:
    found = np.asarray(value, np.float64)
    if found.ndim != 1 or not np.isfinite(found).all() or not (found >= -1e-8 * np.abs(found).sum()).all():
        raise ValueError("eigenvalues must be a list of finite numbers of at least 0: those of a covariance.")
    return np.maximum(found, 0.0)
