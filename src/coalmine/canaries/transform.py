"""Canaries that are rows of an exactly orthonormal fast map with random signs: all inner products in O(d log d).

    c_i = D1 F' D2 F' D3 F' e_{pi(i)}

    symbol     here               meaning
    d          dim                number of parameters
    F          scipy.fft.dctn     orthonormal DCT-II of an a x b array, a b = d: the Kronecker product of two DCTs
    D1 D2 D3   signs              independent random signs on the coordinates before each transform
    pi         rows               a uniformly random order of the rows
    k          count              canaries of the pool: the first k rows; the others are spare, a free held-out null
    w          capacity           number of rows that can be canaries

A weighted sum of canaries is one inverse map of the weights, and all inner products with a vector are one forward map, whatever
k is. What that does to the scores of a release = sum of canaries + X + sigma Z:

* Canaries do not disturb each other: <c_i, release> = 1 + <c_i, X> + sigma N(0,1) for an inserted one, without the 1, and with
  the same variance, for a spare one. The mean of the inserted scores over the standard deviation of the spare ones is
  1/sqrt(sigma² + |X|²/d), even at k = d/2. (Independent directions: 1/sqrt(sigma² + (k + |X|²)/d).)
* The noise part is exactly normal and independent over rows. <c_i, X> has mean 0 and, given the other blocks, is a weighted sum
  of the signs of the last; its variance is sum_m V_im X_m² with V = (F∘F)³: |X|²/d for every row, up to a factor 1 ± 2/a.
* |v| enters the cosine <c_i, v>/|v|, so that the cosines of canaries of this pool have a variance below 1/d in a vector v that
  contains some of them. A null law with variance 1/d is then too wide: safe for a bound, wrong for a test of the variance.

Where we depart from two sign blocks with a DCT of length d each, and why:

* The DCT is two-dimensional, a near 512: about twice as fast as one of length d, which does not fit the cache, and it needs
  none of its tables. Products with small orthogonal matrices (three or four factors, by BLAS) are slower than that and, with
  two sign blocks, fail the test of kurtosis (a spike: .034 ± .002 at d = 10⁶, .13 ± .01 at 2^14).
* Three blocks instead of two. One gives the scores of a spike the shape of a cosine. With two, marginals look normal, but some
  rows resonate: V_im d runs from .58 to 1.42 (two-dimensional .33 to 2.03) at any d, and a tail bound with the average
  variance is wrong for those rows. With three it is 1 ± 2/a. Together this costs no more than two one-dimensional blocks.
* A dimension with a large prime factor would make transforms slow (a DCT of 4,050,748 costs over ten of 4,096,000). Then blocks
  act on windows of w = the largest 2^a 3^b 5^c below d, in turn the last w and the first w coordinates; the map stays exactly
  orthonormal in R^d, and its first w rows mix all coordinates. Four such blocks, since those outside a window miss its block:
  with three, the last coordinates have V_im d from .54 to 1.57 (d = 997) and fail the test of kurtosis at d = 8,209.
* Transforms run in float32 by default; the error is about 4e-7 of the root mean square of the scores.

`benchmarks/canaries.py` measures these alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from coalmine.canaries._pool import Pool, Secret
from coalmine.contracts import Array, Vector
from coalmine.errors import NonFiniteError
from coalmine.nulls import GaussianNull

_PIECE = 1 << 15  # entries whose signs are unpacked at once, in the cache
_LINES = 512  # preferred length of the strided side of the two-dimensional transform
SIGNS_SLACK = math.log(3.18)  # P(sum of signs >= t) <= 3.18 P(normal of the same variance >= t): Bentkus & Dzindzalieta (2015)


class TransformCanaries(Pool):
    """`count` orthonormal canaries of R^dim, and the unused rows of the same map.

    >>> canaries = TransformCanaries(1009, 20, secret_seed=1)
    >>> canaries.capacity, canaries.spare
    (1000, 980)
    >>> total = canaries.combine([3, 4], [1.0, 2.0])
    >>> abs(canaries.project(total)).round(4).tolist()[:6]
    [0.0, 0.0, 0.0, 1.0, 2.0, 0.0]

    Args:
        dim: Dimensions.
        count: Canaries.
        secret_seed: From which they are drawn; as secret as the canaries.
        dtype: Of the vectors.
    """

    orthogonal = True
    slack = SIGNS_SLACK
    null = None  # the spare rows tell: `project(vector, spare=n)`

    def __init__(self, dim: int, count: int, *, secret_seed: int, dtype: str = "float32"):
        super().__init__(dim, count, secret_seed=secret_seed, dtype=dtype)
        self._capacity = smooth_below(self.dim)
        if not self.count <= self.capacity:
            raise ValueError(
                f"count={self.count} canaries do not fit into {self.dim} dimensions: at most {self.capacity} rows are usable."
            )
        self._blocks = _blocks(self.dim, self.capacity, self._secret)
        self._rows = random_order(self.capacity, self.count, self._secret)

    @property
    def capacity(self) -> int:
        """w, the number of rows that can be canaries: d, or the largest 2^a 3^b 5^c below it."""
        return self._capacity

    @property
    def spare(self) -> int:
        """Rows that are no canaries."""
        return self.capacity - self.count

    def gaussian_null(self, spread: float) -> GaussianNull:
        """A normal tail for scores of standard deviation `spread`, with 1.16 nats for the clients' part, a sum of signs.

        It assumes that this is every row's standard deviation (true up to 1/a) and that the clients' updates do not depend on
        the canary, which has not yet acted on the model; the spare rows' empirical law needs only the second.
        """
        return GaussianNull(spread, slack=SIGNS_SLACK)

    def combine(self, indices: ArrayLike, weights: ArrayLike) -> Vector:
        """Weighted sum of canaries, by one inverse transform."""
        totals = self._totals(indices, weights)
        self._check_size("the weights", totals)
        work = np.zeros(self.dim, dtype=self._dtype)
        work[self._rows[: self.count]] = totals
        return self._inverse(work)

    def direction(self, index: int) -> Vector:
        """One canary, as `update` up to rounding, with one transform less."""
        if not 0 <= index < self.count:
            raise ValueError(f"index must lie between 0 and {self.count - 1}; got {index}.")
        return self._row(int(self._rows[index]))

    def project(self, vector: Vector, *, spare: int = 0, group: slice | None = None) -> Array:
        """Inner products of all canaries and of `spare` unused rows with a vector, by one transform."""
        array, spare, group = self._checked(vector, spare, group)
        self._check_size("the vector's entries", array)
        rows = self._first_rows(self.count + spare)
        work = np.zeros(self.dim, dtype=self._dtype)
        work[group] = array[group]
        return np.take(self._forward(work), rows, mode="clip").astype(np.float64)

    def norms(self, groups: Sequence[slice], *, spare: int = 0) -> Array:
        """Norms of the rows limited to each group, exactly.

        They take a transform for every row, or one for every coordinate of the groups if those are fewer. That is worth it
        once before a run, not every round; on average over rows the squared norm is the group's share of the coordinates.
        """
        total = self.count + self._checked_spare(spare)
        checked = [self._checked_group(group) for group in groups]
        squares = np.zeros((len(checked), total))
        if sum(group.stop - group.start for group in checked) <= total:
            for row, group in enumerate(checked):
                for place in range(group.start, group.stop):
                    spike = np.zeros(self.dim, dtype=self._dtype)
                    spike[place] = 1.0
                    squares[row] += self.project(spike, spare=total - self.count) ** 2
        else:
            for column, place in enumerate(self._first_rows(total)):
                canary = self._row(int(place))
                for row, group in enumerate(checked):
                    squares[row, column] = np.square(canary[group], dtype=np.float64).sum()
        return np.sqrt(squares)

    def _check_size(self, what: str, values: Vector) -> None:
        """Inside a transform there are sums of up to d entries, times a small constant."""
        if not max(-values.min(), values.max()) <= np.finfo(self._dtype).max / (16 * self.dim):
            raise NonFiniteError(f"{what} are too large for {self._dtype.name}; scale them, or use dtype='float64'.")

    def _first_rows(self, number: int) -> NDArray[np.intp]:
        if number > self._rows.size:
            self._rows = random_order(self.capacity, number, self._secret)
        return self._rows[:number]

    def _forward(self, work: Vector) -> Vector:
        """... F D2 F D1 work, in place: signs, then transform, block by block."""
        for block in self._blocks:
            part = work[block.window]
            block.sign(part)
            _in_place(fft.dctn, part.reshape(block.shape))
        return work

    def _row(self, place: int) -> Vector:
        """One row of the map. Its first transform is that of a single one: the product of two cosines, which costs nothing."""
        first = self._blocks[-1]
        sides = [np.zeros(length, dtype=self._dtype) for length in first.shape]
        for side, one in zip(sides, divmod(place - first.window.start, first.shape[1]), strict=True):
            side[one] = 1.0
        work = np.zeros(self.dim, dtype=self._dtype)
        part = work[first.window].reshape(first.shape)
        np.multiply.outer(*(fft.idct(side, norm="ortho") for side in sides), out=part)
        first.sign(work[first.window])
        return self._inverse(work, self._blocks[:-1])

    def _inverse(self, work: Vector, blocks: Sequence[_Block] | None = None) -> Vector:
        """D1 F' D2 F' ... work, in place: the transpose of `_forward`."""
        for block in reversed(self._blocks if blocks is None else blocks):
            part = work[block.window]
            _in_place(fft.idctn, part.reshape(block.shape))
            block.sign(part)
        return work


@dataclass(frozen=True)
class _Block:
    """Random signs and a transform on a window of the coordinates."""

    window: slice
    shape: tuple[int, int]
    signs: NDArray[np.uint8] = field(repr=False)  # a bit each, 1 for minus; as secret as the seed

    def sign(self, part: Vector) -> None:
        """Random signs on all entries, in place: the highest bit of a float is its sign."""
        whole = np.dtype(f"u{part.itemsize}")
        numbers, highest = part.view(whole), whole.type(8 * part.itemsize - 1)
        for start in range(0, part.size, _PIECE):
            bits = np.unpackbits(self.signs[start // 8 : (start + _PIECE) // 8], count=min(_PIECE, part.size - start))
            numbers[start : start + _PIECE] ^= bits.astype(whole) << highest


def _blocks(dim: int, width: int, secret: Secret) -> tuple[_Block, ...]:
    """Three blocks on all coordinates, or four on windows that overlap."""
    starts = (0, 0, 0) if width == dim else (dim - width, 0, dim - width, 0)
    shape = near_square(width)
    return tuple(
        _Block(slice(start, start + width), shape, _signs(width, secret.stream("signs", number)))
        for number, start in enumerate(starts)
    )


def _signs(number: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    return np.frombuffer(rng.bytes(-(-number // 8)), dtype=np.uint8)


def _in_place(transform: Callable[..., Vector], part: Vector) -> None:
    """scipy may, but need not, overwrite its argument."""
    result = transform(part, norm="ortho", overwrite_x=True)
    if not np.may_share_memory(result, part):
        part[...] = result


def random_order(size: int, first: int, secret: Secret) -> NDArray[np.intp]:
    """The first entries of a uniformly random order of range(size); asking for more never changes the ones before.

    The head of the order consists of independent uniform draws without the repeated ones, O(first) instead of O(size); what
    comes after it is a shuffle of the rest.
    """
    head = max(1, size // 64)
    number = min(first, head)
    rng, drawn, earliest = secret.stream("rows"), np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    while earliest.size < number:
        drawn = np.concatenate([drawn, rng.integers(size, size=2 * number)])
        earliest = np.sort(np.unique(drawn, return_index=True)[1])
    chosen = drawn[earliest[:number]]
    if first <= head:
        return chosen
    left = np.ones(size, dtype=bool)
    left[chosen] = False
    rest = np.flatnonzero(left)
    secret.stream("rows", "rest").shuffle(rest)
    return np.concatenate([chosen, rest[: first - head]])


def smooth_below(limit: int) -> int:
    """The largest number 2^a 3^b 5^c that is at most `limit`.

    >>> smooth_below(4_096_000), smooth_below(4_050_748), smooth_below(8209)
    (4096000, 4050000, 8192)
    """
    odd = (five * three for five in _powers(5, limit) for three in _powers(3, limit // five))
    return max(part << ((limit // part).bit_length() - 1) for part in odd)


def _powers(base: int, limit: int) -> Iterator[int]:
    power = 1
    while power <= limit:
        yield power
        power *= base


def near_square(size: int) -> tuple[int, int]:
    """Two factors of `size`: the first near 512, or near the root if that is smaller.

    >>> near_square(4_096_000), near_square(4_050_000), near_square(6)
    ((512, 8000), (500, 8100), (2, 3))
    """
    aim = math.log(min(_LINES, math.sqrt(size)))
    factors = (part for part in range(1, math.isqrt(size) + 1) if size % part == 0)
    first = min(factors, key=lambda part: abs(math.log(part) - aim))
    return first, size // first
