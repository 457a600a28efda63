"""Texts as numbers: characters, or words, and four special tokens.

    number   token
    0        pad    fills a window; never a target that counts
    1        bos    before each text
    2        eos    after each text
    3        unk    whatever the vocabulary does not have
    4, …     the tokens, the most frequent first

A vocabulary made from the training users' texts is itself a release of their data that no noise protects. What is measured
of a training run does not change by that, but its guarantee does not cover the vocabulary: `Vocabulary.ascii` needs no data.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate

PAD, BOS, EOS, UNK = range(4)
SPECIAL = 4  # numbers below are special tokens
UNITS = ("characters", "words", "tokens")
_NAMES = ("<pad>", "<bos>", "<eos>", "<unk>")
# a run of letters and digits, with apostrophes and hyphens inside it; anything else that is no space stands alone
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[^\s]")


def cut(text: str, unit: str) -> list[str]:
    """A text as tokens.

    `words` are lower-case, punctuation stands alone; `tokens` is for text that is already cut by spaces.

    >>> cut("Well, don't ask.", "words")
    ['well', ',', "don't", 'ask', '.']
    """
    if unit == "characters":
        return list(text)
    return _WORD.findall(text.lower()) if unit == "words" else text.split()


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that have a number of their own, from 4 on.

    >>> small = Vocabulary.count(["a cat", "a dog"], unit="words", size=1)
    >>> small.tokens, small.encode("a cow").tolist(), small.decode([1, 4, 3, 2])
    (('a',), [1, 4, 3, 2], '<bos> a <unk> <eos>')
    """

    tokens: tuple[str, ...] = field(repr=False)
    unit: str = "characters"

    def __post_init__(self) -> None:
        _validate.one_of("unit", self.unit, UNITS)
        if len(set(self.tokens)) < len(self.tokens):
            raise ValueError("a token of the vocabulary occurs twice.")
        if self.unit == "characters" and any(len(token) != 1 for token in self.tokens):
            raise ValueError("a vocabulary of characters holds single characters only.")

    @staticmethod
    def count(texts: Iterable[str], *, unit: str, size: int | None = None) -> "Vocabulary":
        """The `size` most frequent tokens of these texts (None: all); equally frequent ones in their order as text."""
        _validate.one_of("unit", unit, UNITS)
        most = None if size is None else _validate.whole("size", size, least=1)
        found: Counter[str] = Counter()
        for text in texts:
            found.update(cut(text, unit))
        ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:most]
        return Vocabulary(tuple(token for token, _ in ranked), unit)

    @staticmethod
    def ascii() -> "Vocabulary":
        """The 95 printable characters of ASCII and the end of line, known without looking at anybody's text."""
        return Vocabulary(("\n", *map(chr, range(32, 127))), "characters")

    def __len__(self) -> int:
        """How many numbers there are, special tokens included."""
        return SPECIAL + len(self.tokens)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {token: SPECIAL + place for place, token in enumerate(self.tokens)}

    @cached_property
    def _codes(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Code points in increasing order, and the numbers of these characters."""
        codes = np.array([ord(token) for token in self.tokens], np.uint32)
        order = np.argsort(codes)
        return codes[order], order + SPECIAL

    def encode(self, text: str) -> NDArray[np.int64]:
        """The numbers of a text, between bos and eos."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of several texts, one after the other, each between bos and eos; and how many numbers each text has."""
        if self.unit == "characters" and self.tokens:
            lengths = np.array([len(text) for text in texts], np.int64) + 2
            codes, numbers = self._codes
            given = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
            place = np.minimum(np.searchsorted(codes, given), codes.size - 1)
            inner = np.where(codes[place] == given, numbers[place], UNK)
        else:
            tokens = [cut(text, self.unit) for text in texts]
            lengths = np.array([len(each) for each in tokens], np.int64) + 2
            inner = np.array([self._numbers.get(token, UNK) for each in tokens for token in each], np.int64)
        encoded = np.empty(int(lengths.sum()), np.int64)
        ends = np.cumsum(lengths)
        is_inner = np.ones(encoded.size, bool)
        is_inner[ends - lengths] = is_inner[ends - 1] = False
        encoded[ends - lengths], encoded[ends - 1], encoded[is_inner] = BOS, EOS, inner
        return encoded, lengths

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of these numbers; special tokens are shown by name, padding is left out."""
        names = (*_NAMES, *self.tokens)
        return ("" if self.unit == "characters" else " ").join(names[number] for number in numbers if number != PAD)
