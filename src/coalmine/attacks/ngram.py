"""A character n-gram model with Witten–Bell smoothing: a language model that is fitted in seconds, for studies of many seeds.

    p(c | h) = (n(hc) + t(h) p(c | h')) / (n(h) + t(h))

n counts, t(h) is the number of different characters after h, h' is h without its first character; below the empty context every
character has the same probability. More counts are added to a model by `with_texts`, as fine-tuning adds data to a model.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

_START, _END = "\x02", "\x03"
_CHARACTERS = 130  # ASCII, and the two marks


class NGram:
    """Counts of characters after contexts of up to `order` - 1 characters."""

    def __init__(self, order: int = 6):
        self.order = order
        self.after: dict[str, Counter[str]] = defaultdict(Counter)

    def with_texts(self, texts: Iterable[str]) -> NGram:
        """Another model that has seen these texts too."""
        made = NGram(self.order)
        for context, counts in self.after.items():
            made.after[context] = counts.copy()
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

    def _chance(self, marked: str, place: int) -> float:
        chance = 1.0 / _CHARACTERS
        for size in range(min(self.order - 1, place) + 1):
            counts = self.after.get(marked[place - size : place])
            if not counts:
                break
            kinds = len(counts)
            chance = (counts[marked[place]] + kinds * chance) / (counts.total() + kinds)
        return chance
