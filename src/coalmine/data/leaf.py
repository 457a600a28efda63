"""The JSON layout of LEAF, in which its preprocessing writes FEMNIST, Shakespeare, Sent140, CelebA and others.

A folder of files (one for train, one for test), each of the form

    {"users": ["u1", …], "num_samples": [2, …], "user_data": {"u1": {"x": [x1, x2], "y": [y1, y2]}, …}}

    data set       x                                                y
    FEMNIST        784 numbers                                      class
    synthetic      60 numbers                                       class
    Shakespeare    80 characters                                    the character that follows
    Sent140        a list of texts, of which number 4 is the tweet  class

JSON cannot be read user by user: all files of the folder are read once, and kept as arrays or texts.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.contracts import IndexArray
from coalmine.data._files import broken
from coalmine.data.dataset import Examples, FederatedDataset, Stacked
from coalmine.data.texts import FederatedTexts, TextsInMemory, texts_dataset
from coalmine.errors import InputFileError

_WHAT = "a file in LEAF's layout (users, num_samples, user_data)"


def read_leaf(path: str | Path, *, shape: Sequence[int] | None = None, name: str = "LEAF") -> FederatedDataset:
    """Examples of numbers, from a folder of json files or one file; with `shape` as (28, 28) each example gets it."""
    loaded: dict[str, Examples] = {}
    for file, user, x, y in _people(Path(path)):
        try:
            features = np.array(x, np.float32)
            if features.ndim == 0 or not np.isfinite(features).all():
                raise ValueError("NaN or infinity among the features")
            if shape is not None:
                features = features.reshape(len(x), *shape)
            loaded[user] = Examples(features, _labels(y))
        except (ValueError, TypeError, OverflowError) as error:
            raise broken(file, f"user {user!r}: {error}", what="a LEAF file of numbers") from None
    users = tuple(sorted(loaded))
    shapes = {loaded[user].features.shape[1:] for user in users if len(loaded[user])}
    if len(shapes) != 1:
        raise broken(Path(path), f"its examples have {len(shapes)} different shapes", what="a LEAF data set of numbers")
    have = [loaded[user] for user in users if len(loaded[user])]
    examples = Examples(np.concatenate([each.features for each in have]), np.concatenate([each.targets for each in have]))
    starts: IndexArray = np.concatenate([[0], np.cumsum([len(loaded[user]) for user in users])])
    return FederatedDataset(name, users, Stacked(users, examples, np.arange(len(examples)), starts))


def read_leaf_texts(path: str | Path, *, place: int | None = None, name: str = "LEAF") -> FederatedTexts:
    """Texts, from a folder of json files or one file.

    Where y is text (Shakespeare: the next character) it ends the text of x, else it is the class of the text. Where x is a list
    of texts, `place` says which of them is meant (Sent140: 4).
    """
    if place is not None:
        _validate.whole("place", place)
    texts: dict[str, list[str]] = {}
    labels: dict[str, NDArray[Any]] = {}
    for file, user, x, y in _people(Path(path)):
        try:
            said = [_text(each if place is None else each[place]) for each in x]
            if y and isinstance(y[0], str):
                texts[user] = [text + _text(end) for text, end in zip(said, y, strict=True)]
            else:
                texts[user], labels[user] = said, _labels(y)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            raise broken(file, f"user {user!r}: {error}", what="a LEAF file of texts") from None
    return texts_dataset(name, TextsInMemory(texts, labels if len(labels) == len(texts) else None))


def _people(path: Path) -> Iterator[tuple[Path, str, list[Any], list[Any]]]:
    """(file, user, x, y) of all users of all files."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise InputFileError(
            f"there are no json files at {str(path)!r}. LEAF (TalwalkarLab/leaf) writes them with its preprocess.sh: "
            "give the folder data/<data set>/data/train or …/test."
        )
    seen: set[str] = set()
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            users, counts, everything = (content[part] for part in ("users", "num_samples", "user_data"))
            if len(users) != len(counts):
                raise ValueError(f"{len(users)} users have {len(counts)} numbers of samples")
            for user, count in zip(users, counts, strict=True):
                x, y = everything[user]["x"], everything[user]["y"]
                if not (isinstance(x, list) and isinstance(y, list) and len(x) == len(y) == count):
                    raise ValueError(f"user {user!r} should have {count} examples")
                if user in seen:
                    raise ValueError(f"user {user!r} occurs a second time")
                seen.add(user)
                yield file, _text(user), x, y
        except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
            raise broken(file, reason, what=_WHAT) from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, found {str(value)[:40]!r}")
    return value


def _labels(y: list[Any]) -> NDArray[Any]:
    labels = np.array(y)
    if labels.size and labels.dtype.kind not in "iufb":
        raise TypeError(f"numbers were expected as y, found {str(y[0])[:40]!r}")
    if labels.dtype.kind == "f" and labels.size:
        if not np.isfinite(labels).all():
            raise ValueError("NaN or infinity among the targets")
        return labels.astype(np.float32)
    return labels.astype(np.int64)
