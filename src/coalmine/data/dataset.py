"""Users and what each of them has, loaded when it is asked for.

`Federated` knows its users by id, in a fixed order, and how to select among them and among what they have; it reads nothing
until it is asked. A source (one file of this package each) says who the users are, how much each has, and loads one user.
`FederatedDataset` is the case of features and targets as arrays; `coalmine.data.texts` has the case of texts.

Selections are lazy and depend on the public seed and the user's id alone, not on the other users nor on the order of
anything: the same arguments give the same arrays. They compose from left to right:

    train, held_out = dataset.at_least(20).capped(100).split_users(0.1, seed=0)
"""

import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine._random import lots, stream
from coalmine.contracts import IndexArray
from coalmine.data.iteration import FORMATS, columns_of, formatted
from coalmine.data.users import IndexedUsers

Rows = slice | IndexArray  # which of a user's examples: the first ones as a slice, else increasing positions
_MANY = 100_000  # users above whom sizes are not looked at where a source has a fingerprint of its own
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
Self = TypeVar("Self", bound="Federated[Any]")


class Source(Protocol[T_co]):
    """Where the examples of users come from."""

    @property
    def users(self) -> Sequence[str]:
        """All user ids, in a fixed order: sorted."""

    def sizes(self, users: Sequence[str]) -> IndexArray:
        """How many examples each of these users has."""

    def load(self, user: str, rows: Rows) -> T_co:
        """Some of a user's examples."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Features and targets, one row for each example."""

    features: NDArray[Any]
    targets: NDArray[Any]

    def __post_init__(self) -> None:
        if len(self.features) != len(self.targets):
            raise ValueError(f"{len(self.features)} features do not fit {len(self.targets)} targets.")

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Cap:
    """At most `most` examples of a user: the first ones, or with a seed a random choice, in their order."""

    most: int
    seed: int | None = None

    def count(self, size: IndexArray) -> IndexArray:
        """How many of `size` examples are kept."""
        return np.minimum(size, self.most)

    def rows(self, user: str, size: int) -> IndexArray:
        """Which of `size` examples are kept."""
        if self.seed is None or size <= self.most:
            return np.arange(min(size, self.most))
        return np.sort(stream(self.seed, "capped examples", user).permutation(size)[: self.most])


@dataclass(frozen=True)
class Part:
    """A random share of a user's examples, or what that share leaves; at least one example is always left."""

    share: float
    seed: int
    held_out: bool

    def count(self, size: IndexArray) -> IndexArray:
        """How many of `size` examples are kept."""
        held_out: IndexArray = np.clip(np.floor(self.share * size + 0.5).astype(np.int64), 0, np.maximum(size - 1, 0))
        return held_out if self.held_out else size - held_out

    def rows(self, user: str, size: int) -> IndexArray:
        """Which of `size` examples are kept."""
        held_out = size - int(replace(self, held_out=False).count(np.array(size)))
        order = stream(self.seed, "held-out examples", user).permutation(size)
        return np.sort(order[:held_out] if self.held_out else order[held_out:])


@dataclass(frozen=True, eq=False)
class Federated(Generic[T]):
    """Users in a fixed order, each with examples of their own."""

    texts: ClassVar[bool] = False  # texts, which are to be cut into examples

    name: str
    users: Sequence[str]  # a tuple; or, for data on disk, places in an index
    source: Source[T] = field(repr=False)
    selections: tuple[Cap | Part, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.users, IndexedUsers) and len(set(self.users)) < len(self.users):
            raise ValueError(f"{self.name}: a user id occurs twice.")

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other processes: not what was computed on the way."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __len__(self) -> int:
        return len(self.users)

    def __str__(self) -> str:
        return f"{self.name}: {len(self.users):,} users, {int(self.sizes.sum()):,} examples"

    @cached_property
    def _known(self) -> Container[str]:
        return self.users if isinstance(self.users, IndexedUsers) else frozenset(self.users)

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells this data set from others without loading it: users and sizes, or the fingerprint of a store."""
        if isinstance(self.users, IndexedUsers):
            return self.users.digest, getattr(self.source, "digest", self.name), self.selections
        if len(self.users) > _MANY and (digest := getattr(self.source, "digest", None)) is not None:
            names = hashlib.sha256("\n".join(self.users).encode("utf-8", "surrogatepass")).hexdigest()
            return names, digest, self.selections
        return self.users, self.sizes.tolist()

    @property
    def indexed(self) -> bool:
        """Whether users are an index of files, of which one user is read at once."""
        return isinstance(self.users, IndexedUsers)

    @cached_property
    def sizes(self) -> IndexArray:
        """How many examples each user has, in the order of `users`."""
        sizes: IndexArray = np.array(self.sizes_of(self.users))
        sizes.flags.writeable = False
        return sizes

    def sizes_of(self, users: Sequence[str]) -> IndexArray:
        """How many examples each of these users has."""
        sizes = self.source.sizes(users)
        for selection in self.selections:
            sizes = selection.count(sizes)
        return sizes

    def load(self, user: str) -> T:
        """What a user has."""
        if user not in self._known:
            raise ValueError(f"{user!r} is not one of the {len(self.users):,} users of {self.name}.")
        if not self.selections:
            return self.source.load(user, slice(None))
        rows = np.arange(int(self.source.sizes([user])[0]))
        for selection in self.selections:
            rows = rows[selection.rows(user, rows.size)]
        first_ones = rows.size == 0 or rows[-1] == rows.size - 1  # they increase
        return self.source.load(user, slice(0, rows.size) if first_ones else rows)

    def only(self: Self, users: Iterable[str]) -> Self:
        """These users alone, in the order they have here."""
        if isinstance(self.users, IndexedUsers):
            numbers, strange = self.users.numbers_of(users)
        else:
            wanted = set(users)
            strange = sorted(user for user in wanted if user not in self._known)
            numbers = np.array([number for number, user in enumerate(self.users) if user in wanted], np.int64)
        if strange:
            raise ValueError(f"{strange[0]!r} is not one of the {len(self.users):,} users of {self.name}.")
        return self._taken(numbers)

    def first(self: Self, count: int) -> Self:
        """The first `count` users."""
        return replace(self, users=self.users[: _validate.whole("count", count, least=1)])

    def spaced(self: Self, count: int) -> Self:
        """`count` users, evenly spaced."""
        return self._taken(np.unique(np.linspace(0, len(self.users) - 1, count).astype(np.int64)))

    def _taken(self: Self, numbers: IndexArray) -> Self:
        """The users at these numbers, which increase."""
        if isinstance(self.users, IndexedUsers):
            return replace(self, users=self.users.taken(numbers))
        return replace(self, users=tuple(self.users[number] for number in numbers.tolist()))

    def at_least(self: Self, examples: int) -> Self:
        """The users who have at least so many examples."""
        least = _validate.whole("examples", examples)
        return self._taken(np.flatnonzero(self.sizes >= least))

    def capped(self: Self, examples: int, *, seed: int | None = None) -> Self:
        """At most so many examples of each user: the first ones, or with a seed a random choice of them."""
        most = _validate.whole("examples", examples, least=1)
        chosen = None if seed is None else _validate.whole("seed", seed)
        return replace(self, selections=(*self.selections, Cap(most, chosen)))

    def split_users(self: Self, held_out: float, *, seed: int) -> tuple[Self, Self]:
        """(training users, held-out users): `held_out` is a share below 1 or a number of users."""
        people = len(self.users)
        if people < 2:
            raise ValueError(f"{self.name} has {people} users; a split needs at least 2.")
        if 0 < _validate.number("held_out", held_out) < 1:
            count = min(max(int(held_out * people + 0.5), 1), people - 1)
        else:
            count = _validate.whole("held_out", held_out, least=1)
            if count >= people:
                raise ValueError(f"held_out={held_out!r} leaves no training user: {self.name} has {people:,} users.")
        seed = _validate.whole("seed", seed)
        drawn = lots(seed, "held-out user", self.users)
        order = np.argsort(drawn, kind="stable")  # users with equal lots, if there ever are any, in their order
        return self._taken(np.sort(order[count:])), self._taken(np.sort(order[:count]))

    def split_examples(self: Self, held_out: float, *, seed: int) -> tuple[Self, Self]:
        """(training, held out): a share of each user's examples is held out.

        Every user keeps at least one example for training; who is left without a held-out example is no user of the second.
        """
        share, seed = _validate.between("held_out", held_out, 0.0, 1.0), _validate.whole("seed", seed)
        train, rest = (replace(self, selections=(*self.selections, Part(share, seed, held_out=held))) for held in (False, True))
        return train, rest.at_least(1)

    def iter(self, format: str = "numpy") -> Iterator[tuple[str, Any]]:
        """Each user with their columns: as arrays of "numpy", as tensors of "torch", or as an "arrow" table."""
        _validate.one_of("format", format, FORMATS)
        for user in self.users:
            yield user, formatted(columns_of(self.load(user)), format)


@dataclass(frozen=True, eq=False)
class FederatedDataset(Federated[Examples]):
    """Users with features and targets.

    >>> from coalmine.data import group_examples
    >>> dataset = group_examples(["bob", "ann", "bob"], features=[[1.0], [2.0], [3.0]], targets=[0, 1, 1], name="toy")
    >>> print(dataset)
    toy: 2 users, 3 examples
    >>> dataset.users, dataset.examples_of("bob").features.tolist()
    (('ann', 'bob'), [[1.0], [3.0]])
    """

    def examples_of(self, user: str) -> Examples:
        """The examples of a user."""
        return self.load(user)

    def __iter__(self) -> Iterator[tuple[str, Examples]]:
        """Each user with their examples, one after the other."""
        for user in self.users:
            yield user, self.load(user)

    def all_examples(self) -> Examples:
        """The examples of all users, one user after the other: for an evaluation."""
        return _joined(self.name, [examples for _, examples in self])

    def in_memory(self) -> "FederatedDataset":
        """The same data set with everything loaded: for data that is asked for again and again and fits."""
        loaded = [examples for _, examples in self]
        starts: IndexArray = np.concatenate([[0], np.cumsum([len(examples) for examples in loaded])])
        joined = _joined(self.name, loaded)
        return FederatedDataset(self.name, self.users, Stacked(self.users, joined, np.arange(len(joined)), starts))


def _joined(name: str, loaded: Sequence[Examples]) -> Examples:
    if not loaded:
        raise ValueError(f"{name} has no users.")
    return Examples(np.concatenate([each.features for each in loaded]), np.concatenate([each.targets for each in loaded]))


@dataclass(frozen=True, eq=False)
class Stacked:
    """A source in memory: all examples in one pair of arrays, the user at place i has the rows `order[starts[i]:starts[i+1]]`.

    Grey values from 0 to 255 are kept as bytes and become numbers from 0 to 1 when they are loaded.
    """

    users: Sequence[str]
    examples: Examples
    order: IndexArray
    starts: IndexArray
    grey: bool = False

    @cached_property
    def _places(self) -> dict[str, int]:
        return {user: place for place, user in enumerate(self.users)}

    def sizes(self, users: Sequence[str]) -> IndexArray:
        """How many examples each of these users has."""
        return np.diff(self.starts)[[self._places[user] for user in users]] if users else np.zeros(0, np.int64)

    def load(self, user: str, rows: Rows) -> Examples:
        """Some of a user's examples."""
        place = self._places[user]
        chosen = self.order[self.starts[place] : self.starts[place + 1]][rows]
        features = self.examples.features[chosen]
        return Examples(as_shares(features) if self.grey else features, self.examples.targets[chosen])


def as_shares(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Grey values from 0 to 255 as numbers from 0 to 1."""
    return np.asarray(pixels / np.float32(255), dtype=np.float32)


def in_groups(name: str, examples: Examples, group: int, *, grey: bool = False) -> FederatedDataset:
    """Data without users: clients made of `group` consecutive examples each (the last may have fewer)."""
    size = _validate.whole("group", group, least=1)
    count = -(-len(examples) // size)
    users = tuple(f"{place:0{len(str(count - 1))}d}" for place in range(count))
    starts = np.minimum(np.arange(count + 1) * size, len(examples))
    return FederatedDataset(name, users, Stacked(users, examples, np.arange(len(examples)), starts, grey))
