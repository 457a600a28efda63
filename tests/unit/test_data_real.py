"""The published files themselves, where they are at hand: counts of users and examples as their publishers state them."""

import os

import numpy as np
import pytest

from coalmine.data import Vocabulary, read_fashion_mnist, read_mnist_writers, read_msweb, read_shakespeare
from coalmine.data.vocabulary import UNK

pytestmark = pytest.mark.skipif(
    not os.environ.get("COALMINE_DATA"),
    reason="needs the published files: set COALMINE_DATA to the folder that holds mnist, qmnist_writers, shakespeare_tff, "
    "fashion_mnist and msweb",
)


def test_mnist_by_writer():
    train, test = (read_mnist_writers(split=split) for split in ("train", "test"))
    assert str(train) == "MNIST by writer (train): 539 users, 60,000 examples"
    assert str(test) == "MNIST by writer (test): 297 users, 10,000 examples"
    assert (train.sizes.min(), train.sizes.max()) == (19, 131)
    assert not set(train.users) & set(test.users)
    assert train.examples_of(train.users[0]).features.shape[1:] == (28, 28)
    assert len(read_mnist_writers(parts=6)) == 3_234


def test_shakespeare():
    train, test = (read_shakespeare(split=split) for split in ("train", "test"))
    assert str(train) == "Shakespeare (train): 715 users, 16,068 examples"
    assert str(test) == "Shakespeare (test): 715 users, 2,356 examples"
    assert train.users == test.users
    assert (np.median(train.sizes), train.sizes.max()) == (8, 292)
    assert len(train.vocabulary("characters").tokens) == 78
    few = train.only(train.users[:5]).windows(Vocabulary.ascii(), length=80).all_examples()
    assert not (few.targets == UNK).any()


def test_fashion_mnist():
    assert str(read_fashion_mnist(group=100)) == "Fashion-MNIST (train): 600 users, 60,000 examples"
    assert len(read_fashion_mnist(split="test")) == 10_000


def test_msweb():
    dataset = read_msweb()
    assert str(dataset) == "msweb: 32,710 users, 98,653 examples"
    assert dataset.examples_of(dataset.users[0]).features.shape == (3, 285)
    assert dataset.sizes.min() >= 1
