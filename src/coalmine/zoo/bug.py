"""What a bug of the zoo is: a correct federation in, the same with one bug out, and what is known about that bug."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from coalmine.contracts import Claim, Participation
from coalmine.zoo.reading import sentences

if TYPE_CHECKING:  # a list of bugs loads no trainer
    from coalmine.training.federation import Federation


class Kind(Protocol):
    """Something with one bug, mostly a class. Its docstring has two sentences: what is wrong, and what an audit sees of it."""

    def into(self, job: Federation, secret_seed: int) -> Federation:
        """The same federation with the bug in it."""


@runtime_checkable
class WrongClaim(Protocol):
    """A kind whose bug is in the claim."""

    def stated(self, job: Federation) -> Participation:
        """Who takes part when, as the accountant is told."""

    def claimed(self, job: Federation, delta: float) -> Claim:
        """What is claimed for a federation."""


@dataclass(frozen=True)
class Bug:
    """A bug, the setting in which it is audited, where it comes from, and what to expect."""

    name: str
    setting: str  # of `coalmine.zoo.settings.SETTINGS`
    kind: Kind
    source: str  # who met it, or who describes it
    canaries: bool = True  # whether canaries see it; if not, only the tests of the mechanism's description do
    sentence: str = ""  # of the description, that is found false: a key of `coalmine.contracts.finding_sentences`
    where: str | None = None  # the layer that must be named
    innocent: bool = False  # unusual code that leaks no more than is claimed: an alarm is a false one

    @property
    def fault(self) -> str:
        """What is wrong, in a sentence."""
        return sentences(self.kind.__doc__ or "")[0]

    @property
    def seen(self) -> str:
        """What an audit sees of it, in a sentence."""
        return sentences(self.kind.__doc__ or "")[1]

    @property
    def code(self) -> str:
        """The class itself, to be read."""
        return inspect.getsource(self.kind)  # type: ignore[arg-type]


BUGS: dict[str, Bug] = {}  # of the files that are loaded; `coalmine.zoo.bugs` loads them all
AnyKind = TypeVar("AnyKind", bound=Kind)


def bug(name: str, setting: str, source: str, **known: Any) -> Callable[[AnyKind], AnyKind]:
    """Take a class into the zoo."""

    def take(kind: AnyKind) -> AnyKind:
        BUGS[name] = Bug(name, setting, kind, source, **known)
        return kind

    return take


class Replacing:
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
