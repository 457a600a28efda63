"""Pairs of rounds with almost the same cohort, and clients that always come together: what sums over all pairs do not show.

Who came is kept as bits, of as many of the first rounds as fit into `CELLS` clients times rounds, at most `ROUNDS`: each
round costs as much as its cohort is large, the end one sort of the clients and one product of the rounds.

statistic                          law under sampling by chance
largest overlap of two rounds      hypergeometric, given their sizes; for each of all pairs of rounds
different histories of clients     Poisson: clients are independent, and each moves the number by at most 1, so that
                                   P(D <= E D - t) <= exp(-2 t² / N) (McDiarmid)
pairs of clients of one history    P(X >= x) <= E X / x (Markov)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, xlogy

from coalmine.conformance.laws import Tail, hypergeometric_above, worst
from coalmine.contracts import Array, Sampling

CELLS = 1 << 22  # clients times rounds that are kept
ROUNDS = 1024
_EXACT = 8  # pairs of rounds whose tail is computed: the least likely ones by a bound
Bits = NDArray[np.uint8]


def nothing(population: int) -> Bits:
    """No round yet."""
    return np.zeros((0, -(-population // 8)), np.uint8)


def kept(bits: Bits, cohort: Any, population: int) -> Bits:
    """With one round more, if there is room for it."""
    if bits.shape[0] >= min(ROUNDS, CELLS // max(population, 1)):
        return bits
    present = np.zeros(population, np.uint8)
    present[cohort] = 1
    return np.vstack([bits, np.packbits(present)])


def pair_tails(bits: Bits, population: int, sampling: Sampling) -> list[Tail]:
    """Both kinds of pairs; nothing is said of fewer than two rounds or clients."""
    if bits.shape[0] < 2 or population < 2:
        return []
    present = np.unpackbits(bits, axis=1, count=population)
    return [_rounds(present, population), _clients(present, population, sampling)]


def _rounds(present: Bits, population: int) -> Tail:
    """The largest overlap, as unlikely as it is for the sizes of the two rounds."""
    as_numbers = present.astype(np.float32)
    common = (as_numbers @ as_numbers.T).astype(np.float64)  # whole numbers below 2^24: exact
    sizes, (first, second) = np.diag(common).copy(), np.triu_indices(present.shape[0], 1)
    bounds = _chernoff(common[first, second], sizes[first], sizes[second], population)
    least = np.argsort(bounds, kind="stable")[:_EXACT]
    tails = [
        (hypergeometric_above(common[one, two], population, sizes[one], sizes[two]), int(one), int(two))
        for one, two in zip(first[least], second[least], strict=True)
    ]
    tail, one, two = min(tails)
    return Tail(min(1.0, tail * first.size), "unknown", f"clients that rounds {one + 1} and {two + 1} have in common")


def _chernoff(common: Array, one: Array, two: Array, population: int) -> Array:
    """log of a bound of P(overlap >= common): -n KL(common / n, m / N), where it is more than the mean (Hoeffding 1963)."""
    share, rate = common / np.maximum(one, 1.0), two / population
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = xlogy(share, share / rate) + xlogy(1 - share, (1 - share) / (1 - rate))
    return np.asarray(np.where(share > rate, -one * np.nan_to_num(apart), 0.0))


def _clients(present: Bits, population: int, sampling: Sampling) -> Tail:
    """Clients that came in the same rounds."""
    rounds = present.shape[0]
    histories = np.ascontiguousarray(np.packbits(present.T, axis=1))
    counts = np.unique(histories.view(np.dtype((np.void, histories.shape[1]))).ravel(), return_counts=True)[1].astype(
        np.float64
    )
    pairs = float((counts * (counts - 1) / 2).sum())
    expected = population * (population - 1) / 2 * _alike(population, sampling) ** rounds
    where = "pairs of clients that came in the same rounds"
    tails = [Tail(min(1.0, expected / pairs) if pairs else 1.0, "unknown", where)]
    if sampling.cohort_size is None:
        fewer = max(different_histories(population, rounds, sampling.rate) - counts.size, 0.0)
        tails.append(Tail(math.exp(-2 * fewer**2 / population), "unknown", where))
    return worst(tails)


def _alike(population: int, sampling: Sampling) -> float:
    """Probability that two clients are both in a round or both not."""
    size, rate = sampling.cohort_size, sampling.rate
    if size is None:
        return rate**2 + (1 - rate) ** 2
    both, none = size * (size - 1), (population - size) * (population - size - 1)
    return (both + none) / (population * (population - 1))


def different_histories(population: int, rounds: int, rate: float) -> float:
    """E D = Σ_k C(T, k) (1 - (1 - q^k (1 - q)^(T - k))^N): different histories of independent clients."""
    times = np.arange(rounds + 1.0)
    ways = gammaln(rounds + 1) - gammaln(times + 1) - gammaln(rounds - times + 1)
    chance = times * math.log(rate) + (rounds - times) * math.log1p(-rate)
    one = np.exp(np.minimum(chance, -1e-12))
    seen = np.where(chance < -25, math.log(population) + chance, np.log(-np.expm1(population * np.log1p(-one)) + 1e-300))
    return float(np.exp(logsumexp(ways + np.minimum(seen, 0.0))))
