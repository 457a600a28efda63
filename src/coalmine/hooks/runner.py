"""Calls all hooks of one run, and keeps the run safe from them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]
Hook = Callable[[Event], object]

FOLDER = "hooks"  # in the run directory


class HookRunner:
    """Tells all hooks of one run; to be used as a context, which ends with `close()` of those that have it."""

    def __init__(self, hooks: Iterable[Hook] = (), directory: Path = Path()):
        self._hooks, self._directory = list(hooks), directory

    def __enter__(self) -> HookRunner:
        return self

    def __exit__(self, *_: object) -> None:
        for hook in tuple(self._hooks):
            self._safely(hook, _close, hook)

    @property
    def listening(self) -> bool:
        """Whether there is any hook."""
        return bool(self._hooks)

    def __call__(self, kind: str, event: Event) -> None:
        """One event for every hook that has not failed yet."""
        for hook in tuple(self._hooks):
            if not self._safely(hook, hook, {"event": kind, **deepcopy(dict(event))}):
                _quietly(_close, hook)  # it hears nothing more, but may hold a file or a connection

    def _safely(self, hook: Hook, act: Callable[..., object], *arguments: object) -> bool:
        try:
            act(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit: a tracker that gives up must not end the training
            self._leave_out(hook, error)
            return False
        return True

    def _leave_out(self, hook: Hook, error: BaseException) -> None:
        self._hooks = [other for other in self._hooks if other is not hook]
        name, said = _name(hook), _said(error)
        with suppress(Exception):
            print(f"coalmine: hook {name} failed and is left out: {said}", file=sys.stderr, flush=True)  # noqa: T201
        with suppress(Exception):
            self._directory.joinpath(FOLDER).mkdir(exist_ok=True)
            with self._directory.joinpath(FOLDER, "errors.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"time": round(time.time(), 3), "hook": name, "error": said}) + "\n")


def _close(hook: Hook) -> None:
    """If it has something to close."""
    close = getattr(hook, "close", None)
    if close is not None:
        close()


def _quietly(act: Callable[..., object], *arguments: object) -> object:
    """What an act of others gives; None if it fails, however it fails."""
    try:
        return act(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _attribute(hook: Hook, name: str) -> str:
    return " ".join(str(getattr(hook, name)).split())


def _name(hook: Hook) -> str:
    for attribute in ("name", "__qualname__"):
        found = _quietly(_attribute, hook, attribute)
        if found:
            return str(found)
    return type(hook).__name__


def _said(error: BaseException) -> str:
    """In one line; also of an error that cannot say what it is."""
    message = _quietly(lambda: " ".join(str(error).split()))
    return f"{type(error).__name__}: {'(its message cannot be shown)' if message is None else message}"[:300].rstrip()
