"""Exposure of inserted secrets (Carlini et al. 2019, "The Secret Sharer"): how far up a secret ranks among its alternatives.

    exposure = log2 |R| - log2 rank

R are candidates that could have been the secret, drawn in the same way; rank 1 is the likeliest. A secret that the model does
not know has a uniform rank, and an exposure above e with probability 2^-e. A ranking, never an epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from coalmine.contracts import Array, Streams
from coalmine.errors import NotEnoughCanariesError

FORM = "My SSN is {}"
_DIGITS = 9


def make_secrets(count: int, secret: Streams, form: str = FORM) -> list[str]:
    """Different secrets: random digits in a form."""
    rng, found = secret("secrets"), dict[str, None]()
    while len(found) < count:
        found[form.format("".join(map(str, rng.integers(0, 10, _DIGITS))))] = None
    return list(found)


def exposures(
    inserted: Sequence[str], candidates: Sequence[str], log_likelihoods: Callable[[Sequence[str]], Array]
) -> list[float]:
    """The exposure of each inserted secret among candidates that were not inserted."""
    if not candidates:
        raise NotEnoughCanariesError("an exposure needs candidates that were not inserted.")
    others, own = log_likelihoods(candidates), log_likelihoods(inserted)
    size = len(candidates) + 1
    return [math.log2(size) - math.log2(1 + int((others >= value).sum())) for value in own]
