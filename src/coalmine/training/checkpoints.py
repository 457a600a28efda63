"""After which rounds the state of a training is written: after every one; of a large model some seconds apart.

    bytes of the state      written
    up to 16 MB             after every round
    more                    a second for every MB after the last time, a minute at most; and after the last round

At 1.2 million parameters the state of a model under audit has 28 MB, and writing them takes a twentieth of a short round.
Whoever resumes makes the rounds after it again, with the same bits. Where a hook hears of every round, every round is written,
so that it hears of none twice.
"""

from __future__ import annotations

import time

from coalmine.runs import STATE, RunDirectory

_SMALL = 16_000_000  # bytes
_RATE = 1_000_000  # bytes for every second that passes
_LONGEST = 60.0  # seconds


class Checkpoints:
    """Of one training in one directory."""

    def __init__(self, directory: RunDirectory, rounds: int, *, all_of_them: bool):
        self._directory, self._rounds, self._all = directory, rounds, all_of_them
        self._last = time.monotonic()

    def due(self, done: int) -> bool:
        """Whether the state after so many rounds is to be written."""
        size, now = (self._directory.path / STATE).stat().st_size, time.monotonic()
        soon = size > _SMALL and now - self._last < min(size / _RATE, _LONGEST)
        if soon and not self._all and done < self._rounds:
            return False
        self._last = now
        return True
