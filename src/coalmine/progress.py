"""Progress on standard error: a bar on a terminal, about ten lines elsewhere, nothing if asked to be quiet. It never raises."""

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], description: str, *, total: int | None = None, quiet: bool = False) -> Iterator[Item]:
    """Yield the items, showing how far it got."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if quiet or not total:
        yield from items
        return
    display = _display(description, total)
    try:
        for done, item in enumerate(items, start=1):
            yield item
            with contextlib.suppress(Exception):  # a display that fails must not end the work
                display.show(done)
    finally:
        with contextlib.suppress(Exception):
            display.close()


class Rounds:
    """Progress of a run: what every round shows, and how long it will take; to be used as a context."""

    def __init__(self, description: str, total: int, *, done: int = 0, quiet: bool = False) -> None:
        self._begun, self._start, self._total = time.monotonic(), done, total
        self._display = None if quiet else _display(description, total)

    def __enter__(self) -> "Rounds":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            if self._display is not None:
                self._display.close()

    def show(self, done: int, text: str) -> None:
        """So many rounds are done, and this is to be seen."""
        spent = time.monotonic() - self._begun
        left = spent / max(done - self._start, 1) * (self._total - done)
        with contextlib.suppress(Exception):  # a display that fails must not end the work
            if self._display is not None:
                self._display.show(done, f" · {text} · {duration(left)} left" if done < self._total else f" · {text}")


def duration(seconds: float) -> str:
    """So many seconds, in words.

    >>> duration(42.4), duration(600), duration(7500)
    ('42 s', '10 min', '2.1 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class _Display(Protocol):
    def show(self, done: int, text: str = "") -> None: ...

    def close(self) -> None: ...


def _display(description: str, total: int) -> _Display:
    with contextlib.suppress(Exception):
        if sys.stderr.isatty():
            return _Bar(description, total)
    return _Lines(description, total)


class _Bar:
    def __init__(self, description: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self.progress: Any = Progress(console=Console(stderr=True), transient=True)
        self.description, self.task = description, self.progress.add_task(description, total=total)
        self.progress.start()

    def show(self, done: int, text: str = "") -> None:
        self.progress.update(self.task, completed=done, description=self.description + text)

    def close(self) -> None:
        self.progress.stop()


class _Lines:
    def __init__(self, description: str, total: int) -> None:
        self.description, self.total, self.step = description, total, max(1, -(-total // 10))

    def show(self, done: int, text: str = "") -> None:
        if done % self.step == 0 or done == self.total:
            print(f"{self.description}: {done} of {self.total}{text}", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        """Nothing is open."""
