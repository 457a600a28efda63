"""LEAF's JSON layout, on small files of the same form."""

import json

import numpy as np
import pytest

from coalmine.data import Vocabulary, read_leaf, read_leaf_texts
from coalmine.errors import InputFileError


def write(path, people, **changed):
    content = {
        "users": list(people),
        "num_samples": [len(y) for _, y in people.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in people.items()},
    }
    path.write_text(json.dumps({**content, **changed}))
    return path


def test_images_from_several_files(tmp_path):
    write(tmp_path / "all_data_0.json", {"f2": ([[0.0, 0.25, 0.5, 1.0]], [3]), "f3": ([], [])}, hierarchies=[])
    write(tmp_path / "all_data_1.json", {"f1": ([[1, 1, 1, 1], [0, 0, 0, 0]], [61, 2])})
    dataset = read_leaf(tmp_path, shape=(2, 2), name="FEMNIST")
    assert dataset.users == ("f1", "f2", "f3")
    assert dataset.sizes.tolist() == [2, 1, 0]
    examples = dataset.examples_of("f2")
    assert examples.features.tolist() == [[[0.0, 0.25], [0.5, 1.0]]]
    assert (examples.features.dtype, examples.targets.dtype) == (np.float32, np.int64)
    assert dataset.examples_of("f1").targets.tolist() == [61, 2]
    assert dataset.examples_of("f3").features.shape == (0, 2, 2)
    assert read_leaf(tmp_path).examples_of("f1").features.shape == (2, 4)


def test_the_next_character_ends_the_text(tmp_path):
    path = write(tmp_path / "a.json", {"ROMEO": (["but sof", "ut soft"], ["t", ","]), "GHOST": (["mark me"], ["."])})
    dataset = read_leaf_texts(path)
    assert dict(dataset) == {"GHOST": ("mark me.",), "ROMEO": ("but soft", "ut soft,")}


def test_tweets_have_classes(tmp_path):
    tweets = [["1", "Mon", "q", "ann", "good day", "t"], ["2", "Tue", "q", "ann", "bad day", "t"]]
    path = write(tmp_path / "a.json", {"ann": (tweets, [1, 0])})
    dataset = read_leaf_texts(path, place=4)
    assert dataset.texts_of("ann") == ("good day", "bad day")
    labelled = dataset.labelled(Vocabulary.ascii(), length=8)
    assert labelled.examples_of("ann").targets.tolist() == [1, 0]


GOOD = {"u": ([[1.0, 2.0]], [1])}


@pytest.mark.parametrize(
    ("people", "changed", "message"),
    [
        (GOOD, {"num_samples": [2]}, "user 'u' should have 2 examples"),
        (GOOD, {"num_samples": []}, "1 users have 0 numbers of samples"),
        (GOOD, {"users": ["v"]}, "v is missing"),
        (GOOD, {"user_data": 3}, "not a file in LEAF's layout"),
        ({"u": ([[1.0], [1.0, 2.0]], [1, 1])}, {}, "user 'u'"),
        ({"u": (["text"], [1])}, {}, "user 'u'"),
        ({"u": ([[1.0]], ["a"])}, {}, "numbers were expected as y"),
        ({"u": ([[float("nan")]], [1])}, {}, "NaN or infinity among the features"),
        ({"u": ([[1.0]], [float("inf")])}, {}, "NaN or infinity among the targets"),
        ({"u": ([[1.0]], [1]), "v": ([[1.0, 2.0]], [1])}, {}, "2 different shapes"),
        ({}, {}, "0 different shapes"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(tmp_path, people, changed, message):
    with pytest.raises(InputFileError, match=message) as caught:
        read_leaf(write(tmp_path / "a.json", people, **changed))
    assert "a.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_user_in_two_files_is_an_error(tmp_path):
    for name in ("a.json", "b.json"):
        write(tmp_path / name, GOOD)
    with pytest.raises(InputFileError, match="user 'u' occurs a second time"):
        read_leaf(tmp_path)


def test_a_shape_that_does_not_fit(tmp_path):
    with pytest.raises(InputFileError, match=r"user 'u'.*reshape"):
        read_leaf(write(tmp_path / "a.json", GOOD), shape=(28, 28))


@pytest.mark.parametrize(
    ("people", "place", "message"),
    [
        ({"u": ([[1.0]], [1])}, None, "a text was expected"),
        ({"u": ([["a"]], [1])}, 4, "user 'u'"),
        ({"u": (["a", "b"], ["c", 3])}, None, "a text was expected"),
        ({"u": (["a"], [{"target": 1}])}, None, "numbers were expected as y"),
    ],
)
def test_texts_that_do_not_fit(tmp_path, people, place, message):
    with pytest.raises(InputFileError, match=message):
        read_leaf_texts(write(tmp_path / "a.json", people), place=place)


def test_a_file_cut_off_is_one_clear_error(tmp_path):
    path = write(tmp_path / "a.json", GOOD)
    whole = path.read_bytes()
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputFileError, match=r"a.json is not a file in LEAF's layout"):
            read_leaf(tmp_path)


def test_a_missing_folder_says_where_the_files_come_from(tmp_path):
    for path in (tmp_path, tmp_path / "none", tmp_path / "none.json"):
        with pytest.raises(InputFileError, match=r"LEAF .* writes them with its preprocess.sh"):
            read_leaf(path)
