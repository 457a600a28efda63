"""Named random streams that do not depend on the order in which they are asked for.

`stream(seed, "noise", 17)` is a counter-based generator (Philox) whose key is the SHA-256 of the seed and the names: the
same words give the same numbers whoever asks first, and different words give independent numbers.
"""

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator of its own for `names` under `seed`.

    >>> float(stream(0, "noise", 17).random()) == float(stream(0, "noise", 17).random())
    True
    >>> float(stream(0, "noise", 17).random()) == float(stream(0, "noise", 18).random())
    False
    """
    words = [int(seed), *names]
    text = "\x1f".join(f"{type(word).__name__}:{word}" for word in words)
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
