"""A character n-gram model with Witten–Bell smoothing: a language model that is fitted in seconds, for studies of many seeds.

    p(c | h) = (n(hc) + t(h) p(c | h')) / (n(h) + t(h))

n counts, t(h) is the number of different characters after h, h' is h without its first character; below the empty context every
character has the same probability. More counts are added to a model by `with_texts`, as fine-tuning adds data to a model.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from coalmine.contracts import Array

_START, _END = "\x02", "\x03"
_CHARACTERS = 130  # ASCII, and the two marks


class NGram:
    """Counts of characters after contexts of up to `order` - 1 characters, on top of those of another model."""

    def __init__(self, order: int = 6, base: NGram | None = None):
        self.order, self.base = order, base
        self.after: dict[str, Counter[str]] = defaultdict(Counter)

    def with_texts(self, texts: Iterable[str]) -> NGram:
        """Another model that has seen these texts too."""
        made = NGram(self.order, self)
        made.add(texts)
        return made

    def add(self, texts: Iterable[str]) -> None:
        """See these texts."""
        for text in texts:
            marked = _START + text + _END
            for place in range(1, len(marked)):
                for size in range(min(self.order - 1, place) + 1):
                    self.after[marked[place - size : place]][marked[place]] += 1

    def log_likelihood(self, text: str) -> float:
        """log p of a text and its end."""
        marked = _START + text + _END
        return sum(math.log(self._chance(marked, place)) for place in range(1, len(marked)))

    def log_likelihoods(self, texts: Sequence[str]) -> Array:
        """log p of every text."""
        return np.array([self.log_likelihood(text) for text in texts])

    def _counted(self, context: str, character: str) -> tuple[int, int, int]:
        """(times of the character after the context, of any character, different characters)."""
        own = self.after.get(context, _NOTHING)
        here = own[character], own.total(), len(own)
        if self.base is None:
            return here
        times, total, kinds = self.base._counted(context, character)
        if not own:
            return times, total, kinds
        known = self.base._characters(context)
        return times + here[0], total + here[1], kinds + sum(each not in known for each in own)

    def _characters(self, context: str) -> set[str]:
        """The characters that were seen after a context."""
        below = set() if self.base is None else self.base._characters(context)
        return below | set(self.after.get(context, ()))

    def _chance(self, marked: str, place: int) -> float:
        chance = 1.0 / _CHARACTERS
        for size in range(min(self.order - 1, place) + 1):
            times, total, kinds = self._counted(marked[place - size : place], marked[place])
            if not total:
                break
            chance = (times + kinds * chance) / (total + kinds)
        return chance


_NOTHING: Counter[str] = Counter()
