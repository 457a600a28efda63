"""Federated data sets: users first-class, loaded when asked for.

    source                  what it reads
    read_chat               chats of real users, the bundled default (package chitchat-dataset)
    read_digits             8×8 digits of scikit-learn, in clients of one or several
    read_mnist_writers      MNIST by writer (idx files and QMNIST's writers)
    read_fashion_mnist      Fashion-MNIST, in clients of one or several
    read_cifar10            CIFAR-10, in clients of one or several
    read_msweb              visits to the areas of a web site, 32,710 users
    read_shakespeare, read_emnist, read_stack_overflow      files in TensorFlow Federated's HDF5 layout
    read_tff_texts, read_tff_examples                       any other file of that layout
    read_leaf, read_leaf_texts                              folders in LEAF's JSON layout
    read_table, read_text_table                             csv or parquet, grouped by a column
    group_examples, group_texts                             data in memory, grouped by a key
    read_grouped                                            a folder that `group_by_user` wrote, of any size
    synthetic_texts                                         random sentences of users of Stack Overflow's sizes

Files come from `data_dir` or the folder that the environment variable COALMINE_DATA names; nothing is downloaded. Texts become
examples by `FederatedTexts.windows` with a `Vocabulary`.
"""

import inspect
from collections.abc import Callable
from typing import Any

from coalmine import _validate
from coalmine.data.chat import read_chat
from coalmine.data.cifar import read_cifar10
from coalmine.data.dataset import Examples, FederatedDataset, Source
from coalmine.data.digits import read_digits
from coalmine.data.grouped import open_grouped, read_grouped
from coalmine.data.grouping import GroupedInfo, group_by_user
from coalmine.data.leaf import read_leaf, read_leaf_texts
from coalmine.data.mnist import read_fashion_mnist, read_mnist_writers
from coalmine.data.msweb import read_msweb
from coalmine.data.synthetic import synthetic_texts
from coalmine.data.tables import group_examples, group_texts, read_table, read_text_table
from coalmine.data.texts import FederatedTexts
from coalmine.data.tff import read_emnist, read_shakespeare, read_stack_overflow, read_tff_examples, read_tff_texts
from coalmine.data.vocabulary import SPECIAL, Vocabulary

__all__ = [
    "SOURCES",
    "SPECIAL",
    "Examples",
    "FederatedDataset",
    "FederatedTexts",
    "GroupedInfo",
    "Source",
    "Vocabulary",
    "group_by_user",
    "group_examples",
    "group_texts",
    "open_grouped",
    "read",
    "read_chat",
    "read_cifar10",
    "read_digits",
    "read_emnist",
    "read_fashion_mnist",
    "read_grouped",
    "read_leaf",
    "read_leaf_texts",
    "read_mnist_writers",
    "read_msweb",
    "read_shakespeare",
    "read_stack_overflow",
    "read_table",
    "read_text_table",
    "read_tff_examples",
    "read_tff_texts",
    "synthetic_texts",
]

SOURCES: dict[str, Callable[..., FederatedDataset | FederatedTexts]] = {
    "chat": read_chat,
    "digits": read_digits,
    "mnist-writers": read_mnist_writers,
    "fashion-mnist": read_fashion_mnist,
    "cifar10": read_cifar10,
    "msweb": read_msweb,
    "shakespeare": read_shakespeare,
    "emnist": read_emnist,
    "stack-overflow": read_stack_overflow,
    "tff": read_tff_examples,
    "tff-texts": read_tff_texts,
    "leaf": read_leaf,
    "leaf-texts": read_leaf_texts,
    "table": read_table,
    "text-table": read_text_table,
    "grouped": read_grouped,
    "stack-overflow-shape": synthetic_texts,
}


def read(source: str, **options: Any) -> FederatedDataset | FederatedTexts:
    """A source by its name, as in a configuration; `SOURCES` has them all.

    >>> print(read("digits", group=10))
    digits: 180 users, 1,797 examples
    """
    reader = SOURCES[_validate.one_of("source", source, SOURCES)]
    allowed = list(inspect.signature(getattr(reader, "__wrapped__", reader)).parameters)
    for option in options:
        _validate.one_of(f"an option of source {source!r}", option, allowed)
    return reader(**options)
