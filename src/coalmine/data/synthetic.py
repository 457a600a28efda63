"""Synthetic users of the sizes of Stack Overflow's: to measure what an audit costs where the data cannot be had.

Words are drawn from Zipf's law over 10,000 of them, independently: nothing but their frequency can be learned. Numbers of
sentences are log-normal with median 90, at most 256 (the mean is about 115); sentences have 13 words on average, and the first
20 count with `packing="first"`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, IndexArray
from coalmine.data.dataset import Rows
from coalmine.data.texts import FederatedTexts, Texts, texts_dataset

WORDS = 10_000
_MEDIAN, _WIDTH, _MOST, _MEAN_LENGTH = 90, 1.0, 256, 13


@dataclass(frozen=True)
class _Synthetic:
    """Users made when they are asked for, each from a random stream of their own."""

    count: int
    seed: int

    @cached_property
    def users(self) -> tuple[str, ...]:
        return tuple(f"user {number:06d}" for number in range(self.count))

    @property
    def digest(self) -> str:
        """A fingerprint: these users follow from two numbers."""
        return f"synthetic {self.count} {self.seed}"

    @cached_property
    def _frequencies(self) -> Array:
        return np.cumsum(1.0 / np.arange(1, WORDS + 1)) / np.sum(1.0 / np.arange(1, WORDS + 1))

    def sizes(self, users: Sequence[str]) -> IndexArray:
        return np.array([self._size(stream(self.seed, "synthetic", user)) for user in users], np.int64)

    def load(self, user: str, rows: Rows) -> Texts:
        rng = stream(self.seed, "synthetic", user)
        lengths = rng.geometric(1 / _MEAN_LENGTH, self._size(rng))
        words = np.searchsorted(self._frequencies, rng.random(int(lengths.sum())))
        texts = [" ".join(f"w{word}" for word in part) for part in np.split(words, np.cumsum(lengths)[:-1])]
        return Texts(tuple(texts[rows] if isinstance(rows, slice) else [texts[row] for row in rows]))

    @staticmethod
    def _size(rng: np.random.Generator) -> int:
        return int(np.clip(round(rng.lognormal(np.log(_MEDIAN), _WIDTH)), 1, _MOST))


def synthetic_texts(users: int = 521, *, seed: int = 0) -> FederatedTexts:
    """Users with random sentences, cut by spaces (`unit="tokens"`)."""
    source = _Synthetic(_validate.whole("users", users, least=1), _validate.whole("seed", seed))
    return texts_dataset("synthetic users", source)
