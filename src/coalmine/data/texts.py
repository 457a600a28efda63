"""Users with texts, and the windows of tokens that a language model learns from.

    texts = read_chat().at_least(20).capped(200)
    train, held_out = texts.split_users(0.1, seed=0)
    vocabulary = train.vocabulary("words", size=2_000)          # of the training users alone
    dataset = train.windows(vocabulary, length=20)

A window is a row of `length` features and as many targets: the targets are the features moved on by one token. Windows of
one text overlap by one token, so that every token but the first is a target exactly once; what is left of the last window
is padded.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.contracts import IndexArray
from coalmine.data.dataset import Examples, Federated, FederatedDataset, Rows, Source
from coalmine.data.users import IndexedUsers
from coalmine.data.vocabulary import PAD, Vocabulary

PACKINGS = ("separate", "joined", "first")


@dataclass(frozen=True, eq=False)
class Texts:
    """Some texts of one user, and their classes where they have any."""

    texts: tuple[str, ...]
    labels: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class FederatedTexts(Federated[Texts]):
    """Users with texts of their own; a text is an example."""

    texts: ClassVar[bool] = True

    def texts_of(self, user: str) -> tuple[str, ...]:
        """The texts of a user."""
        return self.load(user).texts

    def __iter__(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each user with their texts, one after the other."""
        for user in self.users:
            yield user, self.load(user).texts

    def vocabulary(self, unit: str, *, size: int | None = None) -> Vocabulary:
        """The most frequent tokens of these users: "characters", "words", or "tokens" for text already cut by spaces."""
        return Vocabulary.count((text for _, texts in self for text in texts), unit=unit, size=size)

    def windows(self, vocabulary: Vocabulary, *, length: int, packing: str = "separate") -> FederatedDataset:
        """Windows of `length` tokens to predict the next token.

        `packing` says where windows begin: "separate", every text begins a new one and long texts go on in the next; "joined",
        a user's texts follow each other without a gap, which leaves little padding; "first", one window for each text, what
        does not fit is left out (as is customary for Stack Overflow).
        """
        size = _validate.whole("length", length, least=1)
        how = _validate.one_of("packing", packing, PACKINGS)
        return FederatedDataset(self.name, self.users, _Windows(self, vocabulary, size, how))

    def labelled(self, vocabulary: Vocabulary, *, length: int) -> FederatedDataset:
        """One row of `length` tokens for each text, padded or cut, and its class as target."""
        size = _validate.whole("length", length, least=1)
        return FederatedDataset(self.name, self.users, _Labelled(self, vocabulary, size))


@dataclass(frozen=True, eq=False)
class TextsInMemory:
    """A source of texts in memory."""

    texts: Mapping[str, Sequence[str]]
    labels: Mapping[str, NDArray[Any]] | None = None

    @cached_property
    def users(self) -> tuple[str, ...]:
        """All user ids, sorted."""
        return tuple(sorted(self.texts))

    def sizes(self, users: Sequence[str]) -> IndexArray:
        """How many texts each of these users has."""
        return np.array([len(self.texts[user]) for user in users], np.int64)

    def load(self, user: str, rows: Rows) -> Texts:
        """Some of a user's texts."""
        texts = self.texts[user]
        chosen = texts[rows] if isinstance(rows, slice) else [texts[row] for row in rows]
        return Texts(tuple(chosen), None if self.labels is None else self.labels[user][rows])


def texts_dataset(name: str, source: Source[Texts]) -> FederatedTexts:
    """All users of a source of texts."""
    users = source.users
    return FederatedTexts(name, users if isinstance(users, IndexedUsers) else tuple(users), source)


@dataclass(frozen=True, eq=False)
class _Windows:
    """A source of windows, cut when a user is loaded."""

    texts: FederatedTexts
    vocabulary: Vocabulary
    length: int
    packing: str
    _counted: dict[str, int] = field(default_factory=dict)

    @property
    def users(self) -> Sequence[str]:
        return self.texts.users

    @property
    def digest(self) -> str:
        """A fingerprint of the windows, for data that are too large to be looked at."""
        tokens = hashlib.sha256("\n".join(self.vocabulary.tokens).encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.texts.identity} {tokens} {self.vocabulary.unit} {self.length} {self.packing}"

    def sizes(self, users: Sequence[str]) -> IndexArray:
        if self.packing == "first":  # one window for each text, whatever is in it
            return self.texts.sizes_of(users)
        for user in users:
            if user not in self._counted:
                self._counted[user] = int(self._windows_in(self._encoded(user)[1]).sum())
        return np.array([self._counted[user] for user in users], np.int64)

    def load(self, user: str, rows: Rows) -> Examples:
        encoded, lengths = self._encoded(user)
        counts = self._windows_in(lengths)
        ends = np.cumsum(lengths)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)  # 0, 1, … in each sequence
        first = np.repeat(ends - lengths, counts) + within * self.length
        place = first[:, None] + np.arange(self.length + 1)
        inside = place < np.repeat(ends, counts)[:, None]
        windows = np.where(inside, encoded[np.minimum(place, encoded.size - 1)], PAD)[rows] if place.size else place
        return Examples(windows[:, :-1].copy(), windows[:, 1:].copy())

    def _encoded(self, user: str) -> tuple[NDArray[np.int64], IndexArray]:
        """The sequences that are cut into windows, one after the other, and the length of each."""
        encoded, lengths = self.vocabulary.encode_all(self.texts.texts_of(user))
        return encoded, np.array([encoded.size]) if self.packing == "joined" and encoded.size else lengths

    def _windows_in(self, lengths: IndexArray) -> IndexArray:
        """How many windows each sequence gives; they overlap by one token."""
        return np.ones_like(lengths) if self.packing == "first" else -(-(lengths - 1) // self.length)


@dataclass(frozen=True, eq=False)
class _Labelled:
    """A source of texts with their classes, encoded when a user is loaded."""

    texts: FederatedTexts
    vocabulary: Vocabulary
    length: int

    @property
    def users(self) -> Sequence[str]:
        return self.texts.users

    def sizes(self, users: Sequence[str]) -> IndexArray:
        return self.texts.sizes_of(users)

    def load(self, user: str, rows: Rows) -> Examples:
        loaded = self.texts.load(user)
        if loaded.labels is None:
            raise ValueError(f"{self.texts.name}: the texts have no classes; use windows() to predict the next token.")
        encoded, lengths = self.vocabulary.encode_all(loaded.texts)
        place = (np.cumsum(lengths) - lengths)[:, None] + np.arange(self.length)
        inside = np.arange(self.length) < lengths[:, None]
        features = np.where(inside, encoded[np.minimum(place, encoded.size - 1)], PAD) if place.size else place
        return Examples(features[rows], loaded.labels[rows])
