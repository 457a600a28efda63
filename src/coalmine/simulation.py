"""Scores of a simulated audit of the Gaussian mechanism, exact in distribution at any dimension.

Algorithm 1 of the one-shot paper releases rho = X + sum of k canaries + sigma·Z in R^d and scores each canary by its
cosine with rho. Only inner products matter, so the canaries and the noise can be replaced by the rows of a random
lower-triangular matrix (Bartlett's decomposition of a Wishart matrix): row i has the length-giving entry chi_{d-i+1}
on the diagonal and standard normals to its left. That is O(k²) instead of O(k d), and d = 10⁷ is as cheap as d = 10⁴.
The matrix itself is never kept for more than 8,192 canaries: its rows are drawn twice, and memory grows with k alone.
"""

from typing import Literal

import numpy as np

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, Attendance, Game
from coalmine.nulls import CosineNull
from coalmine.scores import Scores

MOST_CANARIES = 200_000
_WHOLE = 8192  # canaries whose matrix is kept


def simulate_gaussian_mechanism(
    dim: int,
    canaries: int,
    sigma: float,
    *,
    seed: int,
    norm_of_data: float = 0.0,
    held_out: int = 0,
    method: Literal["bartlett", "direct"] = "bartlett",
) -> Scores:
    """Cosines of `canaries` inserted random unit vectors with a release of noise multiplier `sigma`.

    `norm_of_data` is the norm of the sum of all other clients' clipped updates, in units of the clip norm;
    `held_out` adds canaries that took no part. `method="direct"` makes the vectors themselves, O(canaries · dim), for checking.

    >>> scores = simulate_gaussian_mechanism(10_000_000, 1000, 0.541, seed=1)
    >>> bool(1.7 < scores.inserted_values.mean() * 10_000_000**0.5 < 2.0)                     # near 1/sigma = 1.85
    True

    Args:
        dim: Parameters.
        canaries: That are inserted.
        sigma: Noise multiplier of the release.
        seed: Of the simulation.
        norm_of_data: Of the others' sum, in clip norms.
        held_out: Canaries that take no part.
        method: "bartlett" or "direct".

    Returns:
        Their cosines with the release.
    """
    dim, canaries = _validate.whole("dim", dim, least=2), _validate.whole("canaries", canaries, least=1)
    held_out = _validate.whole("held_out", held_out)
    sigma, norm_of_data = _validate.non_negative("sigma", sigma), _validate.non_negative("norm_of_data", norm_of_data)
    _validate.one_of("method", method, ("bartlett", "direct"))
    rng = stream(seed, "gaussian mechanism", method, dim, canaries, repr(sigma), repr(norm_of_data))
    if method == "direct":
        inserted, others = _direct(dim, canaries, sigma, norm_of_data, held_out, rng)
    else:
        if not dim > canaries + 1:
            raise ValueError(f"dim={dim} must exceed canaries + 1 = {canaries + 1}; use method='direct' for fewer dimensions.")
        if canaries > MOST_CANARIES:
            raise ValueError(
                f"canaries={canaries} is too many: the time grows with their square, and {MOST_CANARIES:,}, the most that is "
                "allowed, take minutes. Simulate several releases instead."
            )
        simulate = _bartlett if canaries <= _WHOLE else _bartlett_by_row
        inserted = simulate(dim, canaries, sigma, norm_of_data, rng)
        others = np.asarray(CosineNull(dim).rvs(held_out, rng=rng))
    return Scores(
        value=np.concatenate([inserted, others]),
        inserted=np.arange(canaries + held_out) < canaries,
        assignment="fixed",
        null=CosineNull(dim),
        dim=dim,
        statistic="cosine",
        view="one-release",
        game=Game("client", "add-or-remove-one", Attendance("repeated", times=1), "rounds known"),
    )


def _bartlett(dim: int, canaries: int, sigma: float, norm_of_data: float, rng: np.random.Generator) -> Array:
    """k+1 Gaussian vectors of R^d in coordinates adapted to them: column 0 along the data, then one new axis per vector."""
    rows = canaries + 1
    lengths = np.sqrt(rng.chisquare(dim - 1 - np.arange(rows)))
    vectors = np.zeros((rows, rows + 1))
    vectors[:, 0] = rng.standard_normal(rows)
    for row in range(rows):
        vectors[row, 1 : row + 1] = rng.standard_normal(row)
    vectors[np.arange(rows), np.arange(1, rows + 1)] = lengths
    squares = np.einsum("ij,ij->i", vectors, vectors)
    norms = np.sqrt(squares[:-1])
    release = (1 / norms) @ vectors[:-1] + sigma * vectors[-1]
    release[0] += norm_of_data
    return np.asarray(vectors[:-1] @ release / norms / np.linalg.norm(release))


def _bartlett_by_row(dim: int, canaries: int, sigma: float, norm_of_data: float, rng: np.random.Generator) -> Array:
    """The same in memory for a few vectors: rows are drawn once for the release, and once more for their products with it."""
    rows = canaries + 1
    lengths = np.sqrt(rng.chisquare(dim - 1 - np.arange(rows)))
    first, begun = rng.standard_normal(rows), rng.bit_generator.state
    release, norms = np.zeros(rows + 1), np.empty(rows)
    for row in range(rows):
        drawn = rng.standard_normal(row)
        norms[row] = np.sqrt(first[row] ** 2 + drawn @ drawn + lengths[row] ** 2)
        weight = sigma if row == canaries else 1 / norms[row]
        release[1 : row + 1] += weight * drawn
        release[[0, row + 1]] += weight * np.array([first[row], lengths[row]])
    ended, rng.bit_generator.state = rng.bit_generator.state, begun
    release[0] += norm_of_data
    products = first[:-1] * release[0] + lengths[:-1] * release[1:-1]
    for row in range(canaries):
        products[row] += rng.standard_normal(row) @ release[1 : row + 1]
    rng.bit_generator.state = ended
    return np.asarray(products / norms[:-1] / np.linalg.norm(release))


def _direct(
    dim: int, canaries: int, sigma: float, norm_of_data: float, held_out: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """The vectors themselves."""
    vectors = rng.standard_normal((canaries + held_out, dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    release = vectors[:canaries].sum(axis=0) + sigma * rng.standard_normal(dim)
    release[0] += norm_of_data
    cosines = vectors @ release / np.linalg.norm(release)
    return cosines[:canaries], cosines[canaries:]
