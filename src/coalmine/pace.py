"""Whether the calls of a job are done in this process or shared among workers: by the clock, and never for long the slower way.

Where a call takes a few thousandths of a second, as with a tiny model, telling workers about it takes longer than doing it. A
large model's parameters and sums must be moved; and a machine may have no second processor to spare. So after some calls that
were shared, the next ones are tried in this process, and the quicker way is gone on with. Of a long call, a few tasks are tried
first: that tells enough, where they are clearly slower, and costs little.
"""

from __future__ import annotations

SHORT = 0.5  # seconds of a call, up to which whole calls are tried at once
SHARED_FIRST, TRIED = 12, 4  # calls that workers do before any is tried in this process, and how many are
SURE = 2  # of these, so many must be slower before the others are spared: other work may be in the way of one
LONG_FIRST, SAMPLES, PART = 4, 2, 8  # the same of long calls: of so many calls, one task of so many is tried first


class Pace:
    """By the quickest of a few calls of each kind.

    >>> pace = Pace()
    >>> for _ in range(SHARED_FIRST + 1 + TRIED):
    ...     pace.took(0.001 if pace.here else 0.004)
    >>> pace.here
    True
    """

    def __init__(self) -> None:
        self._shared, self._own = list[float](), list[float]()
        self.here, self._decided, self._sampling, self._samples = False, False, False, 0

    def part(self, tasks: int) -> int:
        """How many of the next call's tasks are done in this process."""
        if self.here:
            return tasks
        return max(1, tasks // PART) if self._sampling and tasks > 1 else 0

    def took(self, seconds: float) -> None:
        """How long a call took, in the way that `here` says."""
        if self._decided:
            return
        (self._own if self.here else self._shared).append(seconds)
        if len(self._shared) < LONG_FIRST:
            return
        if not self.here and self._middle > SHORT:
            self._sampling = True
            return
        if len(self._shared) < SHARED_FIRST and not self.here:
            return
        short = self._middle <= SHORT
        own = self._own[1:] if short else self._own  # the first short call makes things ready; of long ones, a part did
        if len(own) == (TRIED if short else 1):
            self._decide(min(own) < min(self._shared[-TRIED:]))  # the best of as many
        elif len(own) >= SURE and min(own) > self._middle:
            self._decide(False)
        else:
            self.here = True

    def sampled(self, seconds: float) -> None:
        """How long a whole call would take here, by a part of its tasks; the first such part also makes things ready."""
        self._samples += 1
        if self._samples < SAMPLES:
            return
        self._sampling = False
        if seconds < self._middle:
            self.here = True
        else:
            self._decide(False)

    @property
    def _middle(self) -> float:
        shared = sorted(self._shared[1:])  # the first call starts the workers
        return shared[len(shared) // 2]

    def _decide(self, here: bool) -> None:
        self.here, self._decided = here, True
