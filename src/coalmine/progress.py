"""Progress on standard error: a bar on a terminal, about ten lines elsewhere, nothing if asked to be quiet. It never raises."""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], description: str, *, total: int | None = None, quiet: bool = False) -> Iterator[Item]:
    """Yield the items, showing how far it got."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if quiet or not total:
        yield from items
    elif sys.stderr.isatty():
        yield from _bar(items, description, total)
    else:
        yield from _lines(items, description, total)


def _bar(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        for item in items:
            yield item
            progress.advance(task)


def _lines(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    step = max(1, -(-total // 10))
    for done, item in enumerate(items, start=1):
        yield item
        if done % step == 0 or done == total:
            with contextlib.suppress(OSError):
                print(f"{description}: {done} of {total}", file=sys.stderr, flush=True)  # noqa: T201
