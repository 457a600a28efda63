"""Progress on standard error: a bar on a terminal, about ten lines elsewhere, nothing if asked to be quiet. It never raises."""

import contextlib
import sys
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


class _Display(Protocol):
    def show(self, done: int) -> None: ...

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
        self.task = self.progress.add_task(description, total=total)
        self.progress.start()

    def show(self, done: int) -> None:
        self.progress.update(self.task, completed=done)

    def close(self) -> None:
        self.progress.stop()


class _Lines:
    def __init__(self, description: str, total: int) -> None:
        self.description, self.total, self.step = description, total, max(1, -(-total // 10))

    def show(self, done: int) -> None:
        if done % self.step == 0 or done == self.total:
            print(f"{self.description}: {done} of {self.total}", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        """Nothing is open."""
