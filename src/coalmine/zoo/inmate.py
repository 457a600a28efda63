"""What an inmate of the zoo is: a correct federation in, the same with one bug out, and what is known about that bug."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar

from coalmine.federation import Federation
from coalmine.views import View


class Kind(Protocol):
    """A class with one bug. Its docstring has two sentences: what is wrong, and what an audit sees of it."""

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation with the bug in it."""


@dataclass(frozen=True)
class Inmate:
    """A bug, the setting in which it is examined, where it comes from, and what to expect."""

    name: str
    setting: str  # of `coalmine.zoo.settings.SETTINGS`
    kind: type[Kind]
    source: str  # who met it, or who describes it
    visible: bool = True  # whether an audit of this kind can see it
    instead: str = ""  # what would see it, if not
    where: str | None = None  # the layer that must be named
    view: View | None = None  # if it is not the setting's

    @property
    def bug(self) -> str:
        """What is wrong, in a sentence."""
        return self._sentences[0]

    @property
    def seen(self) -> str:
        """What an audit sees of it, in a sentence."""
        return self._sentences[1]

    @property
    def code(self) -> str:
        """The class itself, to be read."""
        return inspect.getsource(self.kind)

    @property
    def _sentences(self) -> tuple[str, str]:
        first, second = inspect.cleandoc(self.kind.__doc__ or "").split("\n\n")[:2]
        return " ".join(first.split()), " ".join(second.split())


INMATES: dict[str, Inmate] = {}
AnyKind = TypeVar("AnyKind", bound=Kind)


def inmate(name: str, setting: str, source: str, **known: Any) -> Callable[[type[AnyKind]], type[AnyKind]]:
    """Take a class into the zoo."""

    def take(kind: type[AnyKind]) -> type[AnyKind]:
        INMATES[name] = Inmate(name, setting, kind, source, **known)
        return kind

    return take


class InPlaceOfTheRightOne:
    """For mechanisms: the settings of the one that is right, in a class that is not."""

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation with this mechanism."""
        right: Any = job.mechanism
        wrong: Any = cls(**{item.name: getattr(right, item.name) for item in fields(right)}, **cls.further(job))
        return replace(job, mechanism=wrong)

    @classmethod
    def further(cls, job: Federation) -> dict[str, Any]:
        """What it must know beyond that."""
        return {}
