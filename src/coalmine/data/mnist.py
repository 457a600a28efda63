"""MNIST by writer, and Fashion-MNIST, from idx files.

MNIST has no writers in its files. QMNIST, which traced every image back to its origin, publishes them: a table of n × 8
32-bit numbers in idx format, of which column 0 is the class, 1 the series of the collection and 2 the writer. Its training
table has MNIST's 60,000 rows in MNIST's order; the first 10,000 rows of its test table are MNIST's test images.

Federated EMNIST has ten times as many writers. To come near that number each writer can be split into several clients; that
is not what federated EMNIST is, and the name of the data set says so.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine.data._files import Origin, broken, find
from coalmine.data.dataset import Examples, FederatedDataset, Stacked, in_groups
from coalmine.data.idx import read_idx, read_images

_FILES = {"train": "train", "test": "t10k"}
_MNIST = Origin(
    "MNIST's images and labels",
    "MNIST publishes them; many mirrors have them, and torchvision fetches them.",
    ("mnist", "MNIST/raw"),
)
_QMNIST = Origin(
    "QMNIST's table of writers",
    "The QMNIST project publishes it; torchvision fetches it.",
    ("qmnist_writers", "qmnist", "QMNIST/raw"),
)
_FASHION = Origin(
    "Fashion-MNIST's images and labels",
    "The Fashion-MNIST project publishes them; Debian has them as dataset-fashion-mnist, and torchvision fetches them.",
    ("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
    alone="fashion",  # its files have the names of MNIST's
)


def read_mnist_images(
    data_dir: str | Path | None = None, *, split: str = "train"
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """MNIST's images and classes in the order of the files, without users."""
    which = _FILES[_validate.one_of("split", split, _FILES)]
    images, labels = (find(f"{which}-{kind}-ubyte.gz", _MNIST, data_dir) for kind in ("images-idx3", "labels-idx1"))
    return read_images(images, labels)


def read_mnist_writers(data_dir: str | Path | None = None, *, split: str = "train", parts: int = 1) -> FederatedDataset:
    """MNIST's images grouped by who wrote them: 28×28 grey values from 0 to 1, classes 0 to 9.

    With `parts` each writer becomes so many clients, the images dealt out in turn: "0007/2" has every parts-th image of
    writer 7, beginning with the third.
    """
    which = _FILES[_validate.one_of("split", split, _FILES)]
    parts = _validate.whole("parts", parts, least=1)
    images, labels = (find(f"{which}-{kind}-ubyte.gz", _MNIST, data_dir) for kind in ("images-idx3", "labels-idx1"))
    table = find(f"qmnist-{split}-labels-idx2-int.gz", _QMNIST, data_dir)
    pixels, classes = read_images(images, labels)
    rows = read_idx(table)
    if rows.ndim != 2 or rows.shape[1] != 8 or rows.dtype != np.int32:
        raise broken(table, f"it holds {rows.dtype} of shape {rows.shape}", what="QMNIST's table of n × 8 numbers")
    if len(rows) < len(classes) or not np.array_equal(rows[: len(classes), 0], classes):
        raise broken(table, f"its classes are not those of {labels.name}", what="the table of these images")
    writer = rows[: len(classes), 2].astype(np.int64)
    order = np.argsort(writer, kind="stable")
    numbers, counts = np.unique(writer, return_counts=True)
    if parts > counts.min():
        raise ValueError(f"parts={parts} is too many: writer {numbers[counts.argmin()]} has {counts.min()} images.")
    ends = np.cumsum(counts)
    dealt = [order[end - count : end][part::parts] for end, count in zip(ends, counts, strict=True) for part in range(parts)]
    ids = (f"{number:04d}" for number in numbers)
    users = tuple(ids) if parts == 1 else tuple(f"{writer}/{part}" for writer in ids for part in range(parts))
    starts = np.concatenate([[0], np.cumsum([each.size for each in dealt])])
    name = f"MNIST by writer ({split})" + ("" if parts == 1 else f", each writer split into {parts} clients")
    return FederatedDataset(name, users, Stacked(users, Examples(pixels, classes), np.concatenate(dealt), starts, grey=True))


def read_fashion_mnist(data_dir: str | Path | None = None, *, split: str = "train", group: int = 1) -> FederatedDataset:
    """Fashion-MNIST, which has no users: one image per client, or `group` consecutive images.

    28×28 grey values from 0 to 1, classes 0 to 9.
    """
    which = _FILES[_validate.one_of("split", split, _FILES)]
    images, labels = (find(f"{which}-{kind}-ubyte.gz", _FASHION, data_dir) for kind in ("images-idx3", "labels-idx1"))
    return in_groups(f"Fashion-MNIST ({split})", Examples(*read_images(images, labels)), group, grey=True)
