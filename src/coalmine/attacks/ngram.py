"""A character n-gram model with Witten–Bell smoothing: a language model that is fitted in seconds, for studies of many seeds.

    p(c | h) = (n(hc) + t(h) p(c | h')) / (n(h) + t(h))

n counts, t(h) is the number of different characters after h, h' is h without its first character; below the empty context every
character has the same probability. More counts are added to a model by `with_texts`, as fine-tuning adds data to a model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from coalmine.contracts import Array

_START, _END = "\x02", "\x03"
_CHARACTERS = 130  # ASCII, and the two marks


class NGram:
    """Counts of characters after contexts of up to `order` - 1 characters, on top of those of another model."""

    def __init__(self, order: int = 6, base: NGram | None = None):
        self.order, self.base = order, base
        self.after: dict[str, Counter[str]] = {}  # of contexts that were seen here, with what the base has seen after them
        self.totals: dict[str, int] = {}

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
                    context = marked[place - size : place]
                    if context not in self.after:
                        known, total = (_NOTHING, 0) if self.base is None else self.base._seen(context)
                        self.after[context], self.totals[context] = known.copy(), total
                    self.after[context][marked[place]] += 1
                    self.totals[context] += 1

    def log_likelihood(self, text: str) -> float:
        """log p of a text and its end."""
        marked = _START + text + _END
        return sum(math.log(self._chance(marked, place)) for place in range(1, len(marked)))

    def log_likelihoods(self, texts: Sequence[str]) -> Array:
        """log p of every text."""
        return np.array([self.log_likelihood(text) for text in texts])

    def mean_loss(self, texts: Sequence[str]) -> float:
        """Mean negative log-likelihood of a character, the end of a text included."""
        return float(-self.log_likelihoods(texts).sum() / max(sum(len(text) + 1 for text in texts), 1))

    def _seen(self, context: str) -> tuple[Counter[str], int]:
        """(what was seen after a context, how much in all), here or in a model below."""
        model: NGram | None = self
        while model is not None:
            if context in model.after:
                return model.after[context], model.totals[context]
            model = model.base
        return _NOTHING, 0

    def _chance(self, marked: str, place: int) -> float:
        chance = 1.0 / _CHARACTERS
        for size in range(min(self.order - 1, place) + 1):
            own, total = self._seen(marked[place - size : place])
            if not total:
                break
            kinds = len(own)
            chance = (own[marked[place]] + kinds * chance) / (total + kinds)
        return chance


_NOTHING: Counter[str] = Counter()
