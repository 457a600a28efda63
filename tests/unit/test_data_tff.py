"""TensorFlow Federated's HDF5 layout, on small files of the same form."""

import pickle

import h5py
import numpy as np
import pytest

from coalmine.data import (
    Vocabulary,
    read_emnist,
    read_shakespeare,
    read_stack_overflow,
    read_tff_examples,
    read_tff_texts,
)
from coalmine.errors import InputFileError

SNIPPETS = {"PLAY_ROMEO": ["But soft!", "It is the east,\nand"], "PLAY_JULIET": ["Ay me!"], "HAMLET_GHOST": ["Mark me."] * 30}


def write(path, people):
    """Clients in any order, each a group of fields."""
    with h5py.File(path, "w") as file:
        for client, fields in people.items():
            for name, content in fields.items():
                file.create_dataset(f"examples/{client}/{name}", data=content)
    return path


def fixed(texts):
    return np.array([text.encode() for text in texts])


def variable(texts):
    return np.array(texts, h5py.string_dtype())


@pytest.mark.parametrize("store", [fixed, variable])
def test_shakespeare_by_role(tmp_path, store):
    write(tmp_path / "shakespeare_train.h5", {role: {"snippets": store(said)} for role, said in SNIPPETS.items()})
    dataset = read_shakespeare(tmp_path)
    assert dataset.users == ("HAMLET_GHOST", "PLAY_JULIET", "PLAY_ROMEO")
    assert str(dataset) == "Shakespeare (train): 3 users, 33 examples"
    assert {user: list(texts) for user, texts in dataset} == {user: SNIPPETS[user] for user in dataset.users}
    assert dataset.at_least(2).capped(2).texts_of("HAMLET_GHOST") == ("Mark me.",) * 2
    windows = dataset.windows(Vocabulary.ascii(), length=8)
    assert windows.examples_of("PLAY_JULIET").features.shape == (1, 8)
    kept, held_out = dataset.split_examples(0.5, seed=0)
    assert sorted(kept.texts_of("PLAY_ROMEO") + held_out.texts_of("PLAY_ROMEO")) == sorted(SNIPPETS["PLAY_ROMEO"])


def test_stack_overflow_sentences_are_cut_by_spaces(tmp_path):
    people = {
        "00000002": {
            "tokens": variable(["how do i sort a list ?", "thanks !"]),
            "score": [3, 1],
            "title": variable(["a", "a"]),
        },
        "00000001": {"tokens": variable(["use sorted ."]), "score": [7], "title": variable(["a"])},
    }
    (tmp_path / "stackoverflow").mkdir()
    write(tmp_path / "stackoverflow/stackoverflow_held_out.h5", people)
    dataset = read_stack_overflow(tmp_path, split="held_out")
    assert dataset.users == ("00000001", "00000002")
    vocabulary = dataset.vocabulary("tokens", size=3)
    examples = dataset.windows(vocabulary, length=4, packing="first").examples_of("00000002")
    assert examples.features.shape == (2, 4)


@pytest.mark.parametrize("axes", [(), (1,)])
def test_federated_emnist_by_writer(tmp_path, axes):
    pixels = {"f0000_14": np.linspace(0, 1, 2 * 784, dtype="f4").reshape(2, 28, 28), "f0001_41": np.ones((3, 28, 28), "f4")}
    labels = {"f0000_14": [3, 1], "f0001_41": [0, 9, 9]}
    people = {
        writer: {"pixels": pixels[writer], "label": np.array(labels[writer], "i4").reshape(-1, *axes)} for writer in pixels
    }
    write(tmp_path / "fed_emnist_digitsonly_test.h5", people)
    dataset = read_emnist(tmp_path, split="test")
    assert str(dataset) == "federated EMNIST, digits (test): 2 users, 5 examples"
    examples = dataset.examples_of("f0000_14")
    assert np.array_equal(examples.features, pixels["f0000_14"])
    assert examples.targets.tolist() == [3, 1]
    assert (examples.features.dtype, examples.targets.dtype) == (np.float32, np.int64)
    assert dataset.capped(2, seed=0).examples_of("f0001_41").features.shape == (2, 28, 28)
    assert dataset.in_memory().examples_of("f0001_41").targets.tolist() == [0, 9, 9]
    with pytest.raises(InputFileError, match=r"fed_emnist_test.h5.*TensorFlow Federated publishes"):
        read_emnist(tmp_path, split="test", digits=False)


def test_any_file_of_the_layout_and_colours_as_shares(tmp_path):
    people = {"c": {"image": np.full((2, 4, 4, 3), 51, "u1"), "label": np.array([1, 2])}}
    dataset = read_tff_examples(write(tmp_path / "cifar.h5", people), "image", "label")
    assert dataset.name == "cifar"
    assert np.allclose(dataset.examples_of("c").features, 0.2)


def test_a_data_set_on_disk_can_go_to_another_process(tmp_path):
    path = write(tmp_path / "a.h5", {"u": {"snippets": fixed(["x"])}})
    dataset = read_tff_texts(path, "snippets")
    assert len(pickle.dumps(dataset)) < 2_000
    assert pickle.loads(pickle.dumps(dataset)).texts_of("u") == ("x",)


def test_a_file_cut_off_is_one_clear_error(tmp_path):
    path = write(tmp_path / "shakespeare_train.h5", {role: {"snippets": fixed(said)} for role, said in SNIPPETS.items()})
    whole = path.read_bytes()
    for length in range(0, len(whole), 211):
        path.write_bytes(whole[:length])
        with pytest.raises(InputFileError, match=r"shakespeare_train.h5 is not a complete HDF5 file") as caught:
            list(read_shakespeare(tmp_path))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"other": fixed(["x"])}, "snippets"),
        ({"snippets": np.array([b"\xff\xfe"])}, "utf-8"),
        ({"snippets": np.arange(3)}, "a text was expected"),
    ],
)
def test_texts_that_are_none(tmp_path, fields, message):
    path = write(tmp_path / "a.h5", {"u": fields})
    with pytest.raises(InputFileError, match=message):
        list(read_tff_texts(path, "snippets"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pixels": np.zeros((2, 3)), "label": [1, 2, 3]}, "2 features do not fit 3 targets"),
        ({"pixels": np.array([[np.nan]]), "label": [1]}, "NaN or infinity"),
        ({"pixels": fixed(["x"]), "label": [1]}, "numbers were expected"),
        ({"label": [1]}, "pixels"),
    ],
)
def test_numbers_that_do_not_fit(tmp_path, fields, message):
    path = write(tmp_path / "a.h5", {"u": fields})
    with pytest.raises(InputFileError, match=message):
        read_tff_examples(path, "pixels", "label").examples_of("u")


def test_other_hdf5_files_are_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["examples"] = np.arange(3)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["data"] = np.arange(3)
    for name in ("a.h5", "b.h5"):
        with pytest.raises(InputFileError, match="layout of TensorFlow Federated"):
            read_tff_texts(tmp_path / name, "snippets")
    with pytest.raises(InputFileError, match="there is no file"):
        read_tff_texts(tmp_path / "c.h5", "snippets")
