"""What a bug of the zoo is: a correct federation in, the same with one bug out, and what is known about that bug."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from coalmine import _validate
from coalmine.contracts import Claim, Participation
from coalmine.contracts.finding_sentences import finding

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
        return self._sentences[0]

    @property
    def seen(self) -> str:
        """What an audit sees of it, in a sentence."""
        return self._sentences[1]

    @property
    def code(self) -> str:
        """The class itself, to be read."""
        return inspect.getsource(self.kind)  # type: ignore[arg-type]

    @property
    def _sentences(self) -> tuple[str, str]:
        first, second = inspect.cleandoc(self.kind.__doc__ or "").split("\n\n")[:2]
        return " ".join(first.split()), " ".join(second.split())


BUGS: dict[str, Bug] = {}
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


@dataclass(frozen=True)
class Listing:
    """Bugs explained, in words or as JSON."""

    bugs: tuple[Bug, ...]
    with_code: bool

    def __str__(self) -> str:
        return "\n\n".join(self._entry(each) for each in self.bugs)

    def to_json(self) -> str:
        """As one JSON document."""
        words = ("name", "setting", "fault", "seen", "source", "canaries", "sentence", "where")
        return json.dumps([{word: getattr(each, word) for word in words} for each in self.bugs], indent=2) + "\n"

    def _entry(self, each: Bug) -> str:
        mark = " (innocent)" if each.innocent else "" if each.canaries else " (canaries cannot see it)"
        said = [f"{each.name}{mark}", f"  {each.fault} {each.seen}"]
        if each.sentence:
            said.append(f"  The sentence that is false: {finding(each.sentence, {})}.")
        said.append(f"  Source: {each.source}")
        return "\n".join([*said, "", each.code] if self.with_code else said)


def listing(names: Sequence[str] = ()) -> Listing:
    """Bugs by their names, with their code; or all of them, without."""
    for name in names:
        _validate.one_of("bug", name, BUGS)
    return Listing(tuple(BUGS[name] for name in names or BUGS), with_code=bool(names))
