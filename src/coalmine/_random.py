"""Named random streams that do not depend on the order in which they are asked for.

`stream(seed, "noise", 17)` is a counter-based generator (Philox) whose key is the SHA-256 of the seed and the names: the
same words give the same numbers whoever asks first, and different words give independent numbers.
"""

import hashlib
from operator import index

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator of its own for `names` under `seed`.

    >>> float(stream(0, "noise", 17).random()) == float(stream(0, "noise", 17).random())
    True
    >>> float(stream(0, "noise", 17).random()) == float(stream(0, "noise", 18).random())
    False
    """
    # any kind of whole number counts as its value: 17 and numpy's 17 name the same stream, and 17.5 is an error
    text = "\x1f".join(f"str:{word}" if isinstance(word, str) else f"int:{index(word):d}" for word in (seed, *names))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
