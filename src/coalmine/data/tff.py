"""The HDF5 layout in which TensorFlow Federated publishes its simulation data sets.

    examples/<client id>/<field>        one array for each field, its first axis running over the client's examples

    file                              fields
    shakespeare_{train,test}.h5       snippets (text)
    fed_emnist_{train,test}.h5        pixels (float32, 28×28; paper is 1 and ink 0), label; 62 classes
    fed_emnist_digitsonly_….h5        the same with 10 classes
    stackoverflow_{train,test,held_out}.h5   tokens (a sentence, cut by spaces), creation_date, score, tags, title, type

Users are sorted by id. Train and test files of Shakespeare and EMNIST have the same users with different examples. The file is
opened for each user that is asked for, so that a data set may go to other processes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.contracts import IndexArray
from coalmine.data._files import Origin, broken, existing, find, needs
from coalmine.data.dataset import Examples, FederatedDataset, Rows, as_shares
from coalmine.data.texts import FederatedTexts, Texts, texts_dataset

_WHAT = "a complete HDF5 file in the layout of TensorFlow Federated (examples/<client>/<field>)"
_PUBLISHED = "TensorFlow Federated publishes them with its simulation data sets"
_UNREADABLE = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError)
_SHAKESPEARE = Origin("The snippets of Shakespeare by role", f"{_PUBLISHED} (shakespeare).", ("shakespeare_tff", "shakespeare"))
_EMNIST = Origin("The images of federated EMNIST", f"{_PUBLISHED} (emnist).", ("emnist_tff", "emnist", "fed_emnist"))
_OVERFLOW = Origin(
    "The sentences of Stack Overflow by user", f"{_PUBLISHED} (stackoverflow).", ("stackoverflow_tff", "stackoverflow")
)


def read_shakespeare(data_dir: str | Path | None = None, *, split: str = "train") -> FederatedTexts:
    """Shakespeare's plays: the users are roles, the texts what they say in a row."""
    _validate.one_of("split", split, ("train", "test"))
    return read_tff_texts(find(f"shakespeare_{split}.h5", _SHAKESPEARE, data_dir), "snippets", name=f"Shakespeare ({split})")


def read_stack_overflow(data_dir: str | Path | None = None, *, split: str = "train") -> FederatedTexts:
    """Stack Overflow: what users wrote, sentence by sentence; tokens are cut by spaces (`unit="tokens"`)."""
    _validate.one_of("split", split, ("train", "test", "held_out"))
    return read_tff_texts(find(f"stackoverflow_{split}.h5", _OVERFLOW, data_dir), "tokens", name=f"Stack Overflow ({split})")


def read_emnist(data_dir: str | Path | None = None, *, split: str = "train", digits: bool = True) -> FederatedDataset:
    """Federated EMNIST: handwritten digits (or with `digits=False` letters as well) by writer, paper 1 and ink 0."""
    _validate.one_of("split", split, ("train", "test"))
    file = f"fed_emnist_{'digitsonly_' if digits else ''}{split}.h5"
    name = f"federated EMNIST{', digits' if digits else ''} ({split})"
    return read_tff_examples(find(file, _EMNIST, data_dir), "pixels", "label", name=name)


def read_tff_texts(path: str | Path, field: str, *, name: str | None = None) -> FederatedTexts:
    """Any file of this layout, with one text field as texts."""
    source = _Texts(_Clients(existing(path, what=_WHAT)), field)
    return texts_dataset(Path(path).stem if name is None else name, source)


def read_tff_examples(path: str | Path, features: str, targets: str, *, name: str | None = None) -> FederatedDataset:
    """Any file of this layout, with one field as features and one as targets; bytes are taken as grey values or colours."""
    source = _Arrays(_Clients(existing(path, what=_WHAT)), features, targets)
    return FederatedDataset(Path(path).stem if name is None else name, source.users, source)


@dataclass(frozen=True, eq=False)
class _Clients:
    """The clients of a file."""

    path: Path

    @contextmanager
    def open(self) -> Iterator[Any]:
        try:
            import h5py
        except ImportError:
            raise needs("h5py", what="the HDF5 layout of TensorFlow Federated") from None
        try:
            with h5py.File(self.path, "r") as file:
                yield file["examples"]
        except _UNREADABLE as error:
            raise broken(self.path, _reason(error), what=_WHAT) from None

    @cached_property
    def users(self) -> tuple[str, ...]:
        with self.open() as clients:
            return tuple(sorted(clients.keys()))

    def sizes(self, users: Sequence[str], field: str) -> IndexArray:
        with self.open() as clients:
            return np.array([clients[user][field].shape[0] for user in users], np.int64)


@dataclass(frozen=True, eq=False)
class _Texts:
    clients: _Clients
    field: str

    @property
    def users(self) -> tuple[str, ...]:
        return self.clients.users

    def sizes(self, users: Sequence[str]) -> IndexArray:
        return self.clients.sizes(users, self.field)

    def load(self, user: str, rows: Rows) -> Texts:
        with self.clients.open() as clients:
            found = _rows(clients[user][self.field], rows)
            return Texts(tuple(_text(each) for each in found))


@dataclass(frozen=True, eq=False)
class _Arrays:
    clients: _Clients
    features: str
    targets: str

    @property
    def users(self) -> tuple[str, ...]:
        return self.clients.users

    def sizes(self, users: Sequence[str]) -> IndexArray:
        return self.clients.sizes(users, self.targets)

    def load(self, user: str, rows: Rows) -> Examples:
        with self.clients.open() as clients:
            features, targets = (_numbers(_rows(clients[user][field], rows)) for field in (self.features, self.targets))
            return Examples(features, targets[:, 0] if targets.shape[1:] == (1,) else targets)


def _rows(field: Any, rows: Rows) -> NDArray[Any]:
    return np.asarray(field[rows] if isinstance(rows, slice) else field[:][rows])


def _text(value: Any) -> str:
    if not isinstance(value, (bytes, str)):
        raise TypeError(f"a text was expected, found {type(value).__name__}")
    return value if isinstance(value, str) else value.decode()


def _numbers(array: NDArray[Any]) -> NDArray[Any]:
    """Floats as float32, whole numbers as int64, bytes of more than one axis (images) as shares of 255."""
    if array.dtype == np.uint8 and array.ndim > 1:
        return as_shares(array)
    if array.dtype.kind not in "iufb":
        raise TypeError(f"numbers were expected, found {array.dtype}")
    if array.dtype.kind != "f":
        return array.astype(np.int64)
    if not np.isfinite(array).all():
        raise ValueError("NaN or infinity among the numbers")
    return array.astype(np.float32)


def _reason(error: BaseException) -> object:
    return f"{error.args[0]}" if isinstance(error, KeyError) and error.args else error
