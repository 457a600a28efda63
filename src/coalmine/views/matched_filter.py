"""The matched filter: the best linear score of a canary that took part in known rounds, whatever the noise is like.

    score_i = s_i' R⁻¹ x_i / sqrt(s_i' R⁻¹ s_i)

    symbol    here           meaning
    x_i       inner          inner products of the canary with what was seen of every round
    s_i       signals        what taking part adds to them: the amplitude in its rounds, 0 in the others
    R         correlation    covariance of x over rounds, for a direction that took no part; in units of the rounds' spreads

With independent noise R is diagonal and the score is a weighted sum over the canary's own rounds. Noise that was drawn once and
reused, or is correlated by design, shows in the other rounds too, and R⁻¹ subtracts it: a plain sum sees nothing of that.

R comes from one half of the unused directions, and the spread of a score from the other half, so that an error of R costs power
and never validity:

* If no correlation is significant (the largest of them at a risk of 1 in 1,000, or the sum of their squares at four standard
  errors), R is diagonal. The filter is then no estimate at all, costs nothing, and both halves serve as the null.
* Where the mechanism describes how its noise is correlated, R⁻¹ is that of the description if it serves better than the
  diagonal on the unused directions. It chooses weights and nothing else: the spread of a score is still measured.
* Otherwise the correlations, all of them or only the significant ones, are shrunk towards the diagonal. By how much is tried
  out on a quarter of the directions: the one with the largest signal against the noise there is taken, if it beats the
  diagonal by 2 %. A formula for the best shrinkage of a covariance (Ledoit & Wolf 2004) has another aim than this score:
  for reused noise it shrinks almost nothing, although the weakest directions of R are the ones that count.

Of more than 2,048 rounds, R is made of blocks of neighbouring rounds: time and memory grow with their number and not with its
square. What comes back in another block is then not subtracted (the tests of the mechanism compare all rounds). The spread of a
score is measured over all rounds in any case, so that this too costs power and never validity.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from coalmine.contracts import Array, IndexArray

_SHRINKAGES = (0.7, 0.3, 0.1, 0.02, 1e-3, 1e-5)  # tried in this order while they gain
_RISK = 1e-3  # of seeing a correlation where there is none
_STANDARD_ERRORS = 4.0
_WORTH = 0.02  # what a filter must gain in signal-to-noise, as a variance, before it replaces the plain sum
_TRIED = 256  # patterns on which the shrinkage is tried out
_LEAST = 40  # directions, below which nothing is estimated
_BLOCK = 1024  # columns filtered at once
_CELLS = 1 << 22  # rounds times columns handled at once
WHOLE = 2048  # rounds whose correlations are looked at together; where there are more, within blocks of so many


@dataclass(frozen=True, eq=False)
class Patterns:
    """The different sets of rounds among the canaries, since many share theirs."""

    signals: Array  # a row for every round, a column for every pattern, in units of the rounds' spreads
    of: IndexArray  # by canary

    @staticmethod
    def among(presence: NDArray[np.bool_], amplitude: Array) -> Patterns:
        """The patterns of canaries that are present in these rounds and add `amplitude` there."""
        packed = np.packbits(presence, axis=0).T
        keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, first, of = np.unique(keys, return_index=True, return_inverse=True)
        return Patterns(presence[:, first] * amplitude[:, None], of.astype(np.int64).ravel())


@dataclass(frozen=True, eq=False)
class Filter:
    """Weights of the rounds for every pattern."""

    weights: Array  # in units of the rounds' spreads, as the signals
    norms: Array  # sqrt(s' R⁻¹ s), the standard deviation of the score if R is right
    diagonal: bool
    estimated: bool = False  # R comes from directions that took no part: they cannot serve as a null as well


def gram(inner: Array, spreads: Array) -> Array:
    """Mean over columns of the products of every two rows, in units of the spreads."""
    scaled = np.asarray(inner @ inner.T)
    scaled /= max(inner.shape[1], 1) * spreads[:, None] * spreads
    return scaled


def fit(signals: Array, inner: Array, spreads: Array, design: Array | None = None) -> Filter:
    """The filter for these signals, by blocks of rounds where they are many; see `_fit`."""
    rounds = inner.shape[0]
    if rounds <= WHOLE or design is not None:
        return _fit(signals, inner, spreads, design)
    edges = np.linspace(0, rounds, -(-rounds // WHOLE) + 1).astype(int)
    parts = [slice(first, last) for first, last in pairwise(edges)]
    made = [_fit(signals[part], inner[part], spreads[part], None) for part in parts]
    if all(each.diagonal for each in made):
        return _plain(signals)
    squares = sum(np.square(each.norms) for each in made)
    return Filter(np.concatenate([each.weights for each in made]), np.sqrt(squares), diagonal=False, estimated=True)


def _fit(signals: Array, inner: Array, spreads: Array, design: Array | None) -> Filter:
    """The filter for these signals, its R from the columns of `inner`: directions that took no part.

    `design` is R⁻¹ as the mechanism describes its noise. It is taken where it gains more on these directions than the diagonal,
    and an estimate only where that gains even more.
    """
    rounds, count = inner.shape
    if rounds == 1 or count < _LEAST:
        return _plain(signals) if design is None or rounds == 1 else _designed(signals, design)
    half = count // 2
    first, second = gram(inner[:, :half], spreads), gram(inner[:, half:], spreads)
    whole = (half * first + (count - half) * second) / count
    usual = _plain(signals)
    if design is not None:
        made = _designed(signals, design)
        usual = made if _gain(signals, made.weights, whole) > _gain(signals, signals, whole) else usual
    if not _significant(_correlation(whole), count):
        return usual
    tried = signals[:, np.unique(np.linspace(0, signals.shape[1] - 1, _TRIED).astype(int))]
    tried = tried[:, (tried != 0).any(axis=0)]
    if not tried.size:
        return usual
    begin = tried if usual.diagonal or design is None else design @ tried
    best, chosen = _gain(tried, begin, second) + _WORTH, None
    for sparse in (False, True):
        last = -np.inf
        for shrinkage in _SHRINKAGES:
            weights = _solve(_shrunk(first, half, sparse, shrinkage), tried)
            found = -np.inf if weights is None else _gain(tried, weights, second)
            if found > best:
                best, chosen = found, (sparse, shrinkage)
            if found <= last:
                break
            last = found
    weights = None if chosen is None else _solve(_shrunk(whole, count, *chosen), signals)
    if weights is None:
        return usual
    norms = np.sqrt(np.maximum(np.einsum("tp,tp->p", signals, weights), 0.0))
    return Filter(weights, norms, diagonal=False, estimated=True)


def spreads_of_scores(weights: Array, inner: Array, spreads: Array) -> Array:
    """sqrt(w' S w) for every pattern, S measured on the columns of `inner`: the spread of its score."""
    if inner.shape[0] <= WHOLE:
        covariance = gram(inner, spreads)
        return np.asarray(np.sqrt(np.maximum(np.einsum("tp,tp->p", weights, covariance @ weights), 0.0)))
    found, size = np.empty(weights.shape[1]), max(1, _CELLS // inner.shape[0])
    for start in range(0, found.size, size):  # without the covariance, which is as large as the square of the rounds
        part = slice(start, start + size)
        scores = (weights[:, part] / spreads[:, None]).T @ inner
        found[part] = np.sqrt(np.square(scores).mean(axis=1))
    return found


def filtered(weights: Array, of: IndexArray, inner: Array, spreads: Array) -> Array:
    """w' x for every column, with the weights of its pattern."""
    found = np.empty(inner.shape[1])
    size = min(_BLOCK, max(1, _CELLS // max(inner.shape[0], 1)))
    for start in range(0, found.size, size):
        part = slice(start, start + size)
        found[part] = np.einsum("tj,tj->j", weights[:, of[part]] / spreads[:, None], inner[:, part])
    return found


def _plain(signals: Array) -> Filter:
    return Filter(signals, np.sqrt(np.square(signals).sum(axis=0)), diagonal=True)


def _designed(signals: Array, design: Array) -> Filter:
    weights = design @ signals
    return Filter(weights, np.sqrt(np.maximum(np.einsum("tp,tp->p", signals, weights), 0.0)), diagonal=False)


def _correlation(second_moments: Array) -> Array:
    size = np.sqrt(np.diag(second_moments))
    size[size == 0] = 1.0
    return np.asarray(second_moments / size[:, None] / size)


def _limit(pairs: int, count: int) -> float:
    """What no correlation of `count` independent directions exceeds, among so many pairs of rounds."""
    return float(-special.ndtri(_RISK / (2 * pairs)) / np.sqrt(count))


def _significant(correlation: Array, count: int) -> bool:
    above = correlation[np.triu(np.ones(correlation.shape, np.bool_), 1)]
    squares = count * float(above @ above)
    surprise = (squares - above.size) / np.sqrt(2 * above.size)
    return bool(np.abs(above).max() > _limit(above.size, count) or surprise > _STANDARD_ERRORS)


def _shrunk(moments: Array, count: int, sparse: bool, shrinkage: float) -> Array:
    correlation = _correlation(moments)
    if sparse:
        correlation[np.abs(correlation) < _limit(moments.size // 2, count)] = 0.0
    correlation *= 1 - shrinkage
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _solve(correlation: Array, signals: Array) -> Array | None:
    """R⁻¹ s; None if R is no covariance, as may happen to one with entries set to zero."""
    try:
        factor = linalg.cholesky(correlation, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return None
    return np.asarray(linalg.cho_solve((factor, True), signals, check_finite=False))


def _gain(signals: Array, weights: Array, covariance: Array) -> float:
    """Mean logarithm of (s'w)² / w'Sw: signal against noise."""
    noise = np.einsum("tp,tp->p", weights, covariance @ weights)
    signal = np.einsum("tp,tp->p", signals, weights) ** 2
    tiny = np.finfo(np.float64).tiny
    return float(np.mean(np.log(np.maximum(signal, tiny)) - np.log(np.maximum(noise, tiny))))
