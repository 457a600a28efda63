"""Named random streams that do not depend on the order in which they are asked for.

`stream(seed, "noise", 17)` is a counter-based generator (Philox) whose key is the SHA-256 of the seed and the names: the
same words give the same numbers whoever asks first, and different words give independent numbers.
"""

import hashlib
from collections.abc import Iterable
from operator import index

import numpy as np
from numpy.typing import NDArray

_ANY = ("utf-8", "surrogatepass")  # names may come from files: half a surrogate pair is a name too


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator of its own for `names` under `seed`.

    >>> float(stream(0, "noise", 17).random()) == float(stream(0, "noise", 17).random())
    True
    >>> float(stream(0, "noise", 17).random()) == float(stream(0, "noise", 18).random())
    False
    """
    digest = hashlib.sha256(_key(seed, *names)).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def lots(seed: int, name: str, labels: Iterable[str]) -> NDArray[np.uint64]:
    """One random 64-bit number for each label: its own whatever the other labels are, and cheaper than a stream for each.

    >>> bool(lots(0, "users", ["ann", "bob"])[1] == lots(0, "users", ["bob"])[0])
    True
    """
    begin = hashlib.sha256(_key(seed, name, ""))

    def drawn(label: str) -> int:
        hashed = begin.copy()
        hashed.update(label.encode(*_ANY))
        return int.from_bytes(hashed.digest()[:8], "little")

    return np.fromiter(map(drawn, labels), np.uint64)  # one by one: there may be millions


def _key(*words: str | int) -> bytes:
    # any kind of whole number counts as its value: 17 and numpy's 17 name the same stream, and 17.5 is an error
    return "\x1f".join(f"str:{word}" if isinstance(word, str) else f"int:{index(word):d}" for word in words).encode(*_ANY)
