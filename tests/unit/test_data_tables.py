"""Tables and arrays grouped by a key."""

import random

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.data import group_examples, group_texts, read_table, read_text_table
from coalmine.errors import InputFileError

OFTEN = settings(deadline=None, derandomize=True, max_examples=60, database=None)
TABLE = {
    "user": ["bob", "ann", "bob", "01", "1"],
    "age": [44, 31, 44, 20, 19],
    "income": [1800.5, 2100.0, 1799.0, 0.0, 1.0],
    "note": ["hi, all", "", 'a "b"', "line\nbreak", "é"],
    "bought": [0, 1, 1, 0, 1],
}


def write(path, columns=TABLE, separator=","):
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return path

    def cell(value):
        quoted = str(value).replace('"', '""')
        return f'"{quoted}"' if isinstance(value, str) else str(value)

    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([separator.join(columns), *(separator.join(map(cell, row)) for row in rows)]) + "\n")
    return path


@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("csv", ";"), ("tsv", "\t"), ("parquet", "")])
def test_a_table_of_numbers(tmp_path, ending, separator):
    path = write(tmp_path / f"visits.{ending}", separator=separator)
    dataset = read_table(path, user="user", features=["age", "income"], target="bought")
    assert str(dataset) == "visits: 4 users, 5 examples"
    assert dataset.users == ("01", "1", "ann", "bob")
    examples = dataset.examples_of("bob")
    assert examples.features.tolist() == [[44.0, 1800.5], [44.0, 1799.0]]
    assert examples.targets.tolist() == [0, 1]
    assert (examples.features.dtype, examples.targets.dtype) == (np.float32, np.int64)
    single = read_table(path, user="user", features="age", target="income", name="ages")
    assert single.name == "ages"
    assert single.examples_of("ann").features.tolist() == [31]
    assert single.examples_of("ann").features.dtype == np.int64
    assert single.examples_of("ann").targets.dtype == np.float32


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_of_texts(tmp_path, ending):
    path = write(tmp_path / f"notes.{ending}")
    texts = read_text_table(path, user="user", text="note", label="bought")
    assert dict(texts) == {"01": ("line\nbreak",), "1": ("é",), "ann": ("",), "bob": ("hi, all", 'a "b"')}
    assert texts.load("bob").labels.tolist() == [0, 1]
    assert read_text_table(path, user="user", text="note").load("bob").labels is None


def test_parquet_may_hold_whole_numbers_as_keys_and_lists_as_features(tmp_path):
    path = tmp_path / "a.parquet"
    write(path, {"id": [10, 9, 10], "x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [0, 1, 2]})
    dataset = read_table(path, user="id", features="x", target="y")
    assert dataset.users == ("9", "10")
    assert dataset.examples_of("10").features.tolist() == [[1.0, 2.0], [5.0, 6.0]]
    write(path, {"id": [10, 9], "x": [[1.0, 2.0], [3.0]], "y": [0, 1]})
    with pytest.raises(InputFileError, match=r"a.parquet .*column 'x'"):
        read_table(path, user="id", features="x", target="y")


@OFTEN
@given(st.lists(st.tuples(st.one_of(st.sampled_from("abc"), st.text(min_size=1, max_size=3)), st.integers(-5, 5)), max_size=30))
def test_grouping_is_that_of_the_slow_twin(rows):
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    dataset = group_examples(np.array(keys, object), np.array(values, int)[:, None], np.array(values, int))
    twin = {key: [value for other, value in rows if other == key] for key in sorted(set(keys))}
    assert {user: examples.targets.tolist() for user, examples in dataset} == twin
    assert list(dataset.users) == sorted(twin)
    assert dataset.sizes.tolist() == [len(values) for values in twin.values()]


def test_keys_that_are_whole_numbers_are_sorted_by_value():
    dataset = group_examples(np.array([10, 9, -1, 10], np.int8), np.zeros((4, 2)), np.arange(4))
    assert dataset.users == ("-1", "9", "10")
    assert dataset.examples_of("10").targets.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: group_examples(["a", None], [1, 2], [1, 2]), "a key must be text or a whole number.*found None"),
        (lambda: group_examples(["a", ""], [1, 2], [1, 2]), "found ''"),
        (lambda: group_examples([1.0, 2.0], [1, 2], [1, 2]), "found 1.0"),
        (lambda: group_examples([["a"]], [1], [1]), "one entry for each row"),
        (lambda: group_examples(["a"], [1, 2], [1, 2]), "1 keys do not fit 2 examples"),
        (lambda: group_examples(["a"], [1], [1, 2]), "1 features do not fit 2 targets"),
        (lambda: group_examples(["a"], ["x"], [1]), "features must hold numbers"),
        (lambda: group_examples(["a"], [1.0], [float("nan")]), "targets has NaN or infinity in row 0"),
        (lambda: group_examples(["a"], [1e300], [1]), "beyond the range of float32"),
        (lambda: group_examples(["a"], [1.0], np.array([2**63], np.uint64)), "beyond the range of int64"),
        (lambda: group_texts(["a"], ["x", "y"]), "1 keys do not fit 2 texts"),
        (lambda: group_texts(["a"], [3]), "texts must be text; found 3"),
        (lambda: group_texts(["a"], ["x"], labels=[1, 2]), "2 labels do not fit 1 texts"),
    ],
)
def test_arrays_that_do_not_fit(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("user,x\na,1\n", "has no column 'y'; found 'user', 'x'"),
        ("user,x,x,y\na,1,1,1\n", "more than one column 'x'"),
        ("", "no column 'user'; found none"),
        ("user,x,y\na,1\n", "line 2 has 2 cells where the header has 3"),
        ("user,x,y\na,1,1\nb,,1\n", "line 3: column 'x' is empty"),
        ("user,x,y\n ,1,1\n", "line 2: column 'user' is empty"),
        ("user,x,y\na,1,1\nb,one,1\n", r"a.csv, line 3: 'one' in column 'x' is not a number"),
        ("user,x,y\na,1,nan\n", "y|targets"),
        ("user,x,y\na,1,1e999\n", "NaN or infinity"),
        (b"user,x,y\n\xff,1,1\n", "utf-8"),
        ('user,x,y\n"a,1,1\n', "not a readable csv table"),
    ],
)
def test_csv_files_that_do_not_fit(tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputFileError, match=message) as caught:
        read_table(path, user="user", features=["x"], target="y")
    assert "a.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parquet_files_that_do_not_fit(tmp_path):
    path = write(tmp_path / "a.parquet", {"user": ["a", None], "x": [1.0, 2.0], "y": [0, 1]})
    with pytest.raises(InputFileError, match="column 'user' has 1 empty cells"):
        read_table(path, user="user", features="x", target="y")
    with pytest.raises(InputFileError, match="has no column 'z'; found 'user', 'x', 'y'"):
        read_table(path, user="user", features="z", target="y")
    write(path, {"user": ["a", "b"], "x": ["1", "2"], "y": [0, 1]})
    with pytest.raises(InputFileError, match="x must hold numbers"):
        read_table(path, user="user", features="x", target="y")
    write(path, {"user": [1.5, 2.5], "x": [1, 2], "y": [0, 1]})
    with pytest.raises(InputFileError, match="a key must be text or a whole number"):
        read_table(path, user="user", features="x", target="y")


def test_a_parquet_file_cut_off_or_damaged_is_an_error_or_still_readable(tmp_path):
    path = write(tmp_path / "a.parquet")
    whole = path.read_bytes()
    for length in range(0, len(whole), 53):
        path.write_bytes(whole[:length])
        with pytest.raises(InputFileError, match=r"a.parquet is not a readable parquet table"):
            read_table(path, user="user", features="age", target="bought")
    chance = random.Random(0)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            list(read_table(path, user="user", features="age", target="bought"))
        except InputFileError as error:
            assert "\n" not in str(error)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputFileError, match="there is no file"):
        read_table(tmp_path / "a.csv", user="u", features="x", target="y")
    (tmp_path / "a.pkl").touch()
    with pytest.raises(InputFileError, match=r"must be one of .csv"):
        read_table(tmp_path / "a.pkl", user="u", features="x", target="y")
