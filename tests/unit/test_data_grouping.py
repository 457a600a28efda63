"""Grouped data: the same groups as a dictionary makes, the same bytes whoever does the work, and every bad row answered."""

import csv
import gzip
import json
import pickle
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coalmine._random import stream
from coalmine.data import group_by_user, group_texts, open_grouped, read
from coalmine.data._group_buckets import hash_texts
from coalmine.data.grouped import statistics
from coalmine.data.grouping import parse_bytes, read_info
from coalmine.errors import InputFileError

ROWS = 30_000


@pytest.fixture(scope="module")
def rows():
    rng = stream(0, "grouped rows")
    users = [f"user {number % 700}" if number % 5 else "giant" for number in rng.zipf(1.4, ROWS).tolist()]
    texts = [f"text {number} é\n" * int(rng.integers(1, 4)) for number in range(ROWS)]
    return users, texts, rng.integers(0, 50, ROWS)


@pytest.fixture(scope="module")
def table(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("in") / "rows.parquet"
    users, texts, number = rows
    pq.write_table(pa.table({"user": users, "text": texts, "number": number}), path, row_group_size=5000)
    return path


def grouped(users, values):
    found = defaultdict(list)
    for user, value in zip(users, values, strict=True):
        found[user].append(value)
    return found


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_groups_are_those_of_a_dictionary(rows, table, tmp_path):
    info = group_by_user(table, tmp_path / "out", user="user", memory="1MB")
    assert info.buckets > 2 and info.rows == ROWS
    data, right = open_grouped(tmp_path / "out"), grouped(*rows[:2])
    assert list(data.users) == sorted(right)
    assert {user: list(data.texts_of(user)) for user in data.users} == right
    assert data.sizes.tolist() == [len(right[user]) for user in data.users]


@pytest.mark.parametrize("options", [{"memory": "1MB", "buckets": 1}, {"format": "parquet"}, {"buckets": 7}])
def test_buckets_over_the_memory_and_other_formats_hold_the_same(rows, table, tmp_path, options):
    """With one bucket and 1 MB of memory the bucket is far over its budget, and so is the largest user."""
    group_by_user(table, tmp_path / "out", user="user", **options)
    data, right = open_grouped(tmp_path / "out", text="text"), grouped(*rows[:2])
    assert {user: list(data.texts_of(user)) for user in data.users} == right


def test_bytes_do_not_depend_on_workers_or_on_the_input_s_batches(rows, table, tmp_path):
    users, texts, number = rows
    other = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"user": users, "text": texts, "number": number}), other, row_group_size=700)
    group_by_user(table, tmp_path / "one", user="user", buckets=5)
    group_by_user(table, tmp_path / "two", user="user", buckets=5, workers=2)
    group_by_user(other, tmp_path / "three", user="user", buckets=5)
    one, two, three = (contents(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two
    assert {name: data for name, data in one.items() if name != "manifest.json"} == {
        name: data for name, data in three.items() if name != "manifest.json"
    }


def test_every_kind_of_input_gives_the_same_groups(rows, tmp_path):
    users, texts, number = (list(each[:500]) for each in rows)
    right = grouped(users, texts)
    dictionaries = [{"user": u, "text": t, "number": int(n)} for u, t, n in zip(users, texts, number, strict=True)]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerows([["user", "text", "number"], *([row["user"], row["text"], row["number"]] for row in dictionaries)])
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in dictionaries)
    table = pa.table({"user": pa.array(users).dictionary_encode(), "text": texts, "number": number})
    given = [tmp_path / "a.csv", tmp_path / "a.jsonl.gz", iter(dictionaries), dictionaries, table, table.to_batches(100)]
    for place, each in enumerate(given):
        group_by_user(each, tmp_path / f"out{place}", user="user", buckets=3)
        data = open_grouped(tmp_path / f"out{place}")
        assert {user: list(data.texts_of(user)) for user in data.users} == right
    group_by_user(table, tmp_path / "key", key=lambda batch: [text[-2:-1] + "k" for text in batch["text"].to_pylist()])
    assert list(open_grouped(tmp_path / "key").users) == ["ék"]


def test_data_sets_of_hugging_face(rows, tmp_path):
    """Whole, filtered, and streamed."""
    datasets = pytest.importorskip("datasets")
    users, texts, number = (list(each[:500]) for each in rows)
    whole = datasets.Dataset.from_dict({"user": users, "text": texts, "number": number})
    right, some = grouped(users, texts), [place for place in range(500) if place % 3]
    given = {"whole": (whole, right), "streamed": (whole.to_iterable_dataset(num_shards=3), right)}
    given["selected"] = whole.select(some), grouped([users[place] for place in some], [texts[place] for place in some])
    for name, (source, groups) in given.items():
        group_by_user(source, tmp_path / name, user="user", buckets=3)
        data = open_grouped(tmp_path / name, text="text")
        assert {user: list(data.texts_of(user)) for user in data.users} == groups


def test_selections_are_those_of_data_in_memory(rows, table, tmp_path):
    group_by_user(table, tmp_path / "out", user="user")
    lazy, here = open_grouped(tmp_path / "out", text="text"), group_texts(*rows[:2])
    assert list(lazy.at_least(20).users) == list(here.at_least(20).users)
    for one, two in zip(lazy.split_users(0.1, seed=3), here.split_users(0.1, seed=3), strict=True):
        assert list(one.users) == list(two.users)
    assert list(lazy.first(5).users) == list(here.first(5).users)
    one, two = lazy.capped(3, seed=1).at_least(2), here.capped(3, seed=1).at_least(2)
    assert [one.texts_of(user) for user in one.users] == [two.texts_of(user) for user in two.users]
    chosen = list(here.users)[3:30:4]
    assert list(lazy.only(reversed(chosen)).users) == chosen
    assert "nobody" not in lazy.users and chosen[0] in lazy.users
    with pytest.raises(ValueError, match="'nobody' is not one of"):
        lazy.only(["nobody"])
    with pytest.raises(ValueError, match="is not one of"):
        lazy.only(chosen).load(here.users[0])
    assert len(pickle.dumps(lazy)) < 2000  # a path, not the users
    again = pickle.loads(pickle.dumps(lazy.only(chosen)))
    assert list(again.users) == chosen and again.texts_of(chosen[0]) == here.texts_of(chosen[0])


def test_order_limit_and_duplicates(tmp_path):
    rows = [{"user": "a", "at": at, "text": text} for at, text in [(3, "c"), (1, "a"), (2, "b"), (1, "a"), (2, "b2")]]
    group_by_user(rows, tmp_path / "ordered", user="user", order_by="at")
    assert open_grouped(tmp_path / "ordered").texts_of("a") == ("a", "a", "b", "b2", "c")
    info = group_by_user(rows, tmp_path / "limited", user="user", order_by="at", max_rows_per_user=3, dedup=True)
    assert open_grouped(tmp_path / "limited").texts_of("a") == ("a", "b", "b2")
    assert info.dropped == {"missing_key": 0, "duplicates": 1, "over_limit": 1}


def test_examples_and_plain_columns(tmp_path):
    rows = [{"user": 7 - number % 3, "x": [number, 1.5], "y": number, "z": 2 * number} for number in range(9)]
    group_by_user(rows, tmp_path / "out", user="user")
    data = open_grouped(tmp_path / "out", features="x", target="y")
    assert data.users[0] == "5" and data.examples_of("5").features.tolist() == [[2.0, 1.5], [5.0, 1.5], [8.0, 1.5]]
    assert read("grouped", path=tmp_path / "out", features=["z", "y"], target="y").examples_of("7").features.tolist() == [
        [0, 0], [6, 3], [12, 6],
    ]  # fmt: skip
    plain = open_grouped(tmp_path / "out")
    assert {user: loaded.columns["y"].tolist() for user, loaded in plain} == {"5": [2, 5, 8], "6": [1, 4, 7], "7": [0, 3, 6]}
    with pytest.raises(ValueError, match="say which to train on"):
        read("grouped", path=tmp_path / "out")
    for form, kind in (("numpy", np.ndarray), ("arrow", pa.ChunkedArray)):
        user, columns = next(plain.iter(format=form))
        assert user == "5" and isinstance(columns["y"], kind)
    import torch

    assert torch.equal(next(plain.iter(format="torch"))[1]["y"], torch.tensor([2, 5, 8]))


def test_texts_may_be_bytes_and_must_be_texts(tmp_path):
    """TFDS hands in bytes."""
    rows = [{"user": b"a", "text": "é".encode(), "n": 1, "wrong": b"\xff"}]
    group_by_user(iter(rows), tmp_path / "out", user="user")
    assert open_grouped(tmp_path / "out", text="text").texts_of("a") == ("é",)
    with pytest.raises(InputFileError, match="'wrong' of user 'a' holds bytes that are not UTF-8"):
        open_grouped(tmp_path / "out", text="wrong").texts_of("a")
    with pytest.raises(ValueError, match="'n' has values of type int64"):
        open_grouped(tmp_path / "out", text="n")


def test_statistics_count_rows_words_and_characters(tmp_path):
    rows = [{"user": "a", "text": "two words"}, {"user": "a", "text": " "}, {"user": "b", "text": "one"}]
    group_by_user(rows, tmp_path / "out", user="user")
    found = statistics(tmp_path / "out")
    assert (found["users"], found["rows"], found["text"]["words"], found["text"]["characters"]) == (2, 3, 3, 13)
    assert found["rows_of_a_user"]["largest"] == 2


@pytest.mark.parametrize("user", [None, "", float("nan")])
def test_a_row_without_a_user_is_refused_or_counted(tmp_path, user):
    rows = [{"user": 1.0 if isinstance(user, float) else "a", "text": "x"}, {"user": user, "text": "y"}]
    with pytest.raises(InputFileError, match=r"input 1, row 2: column 'user' is empty"):
        group_by_user(rows, tmp_path / "out", user="user")
    info = group_by_user(rows, tmp_path / "other", user="user", missing_key="drop")
    assert info.dropped["missing_key"] == 1 and info.users == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([pa.table({"user": ["1"], "t": ["x"]}), pa.table({"user": [1], "t": ["y"]})], "two users or one"),
        ([pa.table({"user": ["1"], "t": ["x"]}), pa.table({"user": ["1"], "t": [3]})], "has the columns t: int64"),
        ([pa.table({"user": ["a\x00b"], "t": ["x"]})], "NUL"),
        ([pa.table({"user": pa.array([b"\xff"]), "t": ["x"]})], "not UTF-8"),
        ([pa.table({"user": [1.5], "t": ["x"]})], "fractions"),
        ([pa.table([["a"], ["b"], ["c"]], names=["user", "t", "t"])], "two columns 't'"),
        ([pa.table({"who": ["a"], "t": ["x"]})], "no column 'user'"),
        ([pa.table({"user": ["a"]})], "no column beside the key"),
        ([pa.table({"user": pa.array([], pa.string()), "t": pa.array([], pa.string())})], "nothing to group"),
        ([pa.table({"user": pa.array([[1]]), "t": ["x"]})], "keys must be text or whole numbers"),
        ([pa.table({"user": [2.0**53, 2.0**53 + 2], "t": ["x", "y"]})], r"above 2\*\*53"),
        ([pa.table({"user": [1.0, float("inf")], "t": ["x", "y"]})], r"above 2\*\*53"),
        ([pa.table({"user": ["a"], "__user__": ["x"]})], "rename it"),
    ],
)
def test_bad_rows_are_answered(tmp_path, given, said):
    with pytest.raises(InputFileError, match=said):
        group_by_user(given, tmp_path / "out", user="user")


@pytest.mark.parametrize(("by", "said"), [("user", "beside the key"), ("when", "beside the key"), ("l", "values are list")])
def test_what_cannot_order_rows_is_said_before_anything_is_sorted(tmp_path, by, said):
    given = pa.table({"user": ["a", "b"], "l": [[1], [2]], "t": ["x", "y"]})
    with pytest.raises(InputFileError, match=said):
        group_by_user(given, tmp_path / "out", user="user", order_by=by)
    assert not (tmp_path / "out" / "parts").exists() or not list((tmp_path / "out" / "parts").iterdir())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"user": "a", "t": "x"}, {"user": "b", "t": "y", "more": 1}], "column 'more'"),  # was left out and nothing said
        ([{"user": "a", "t": "x"}, {"user": 1, "t": "y"}], "cannot be put into columns"),
        ([{"user": "\ud800", "t": "x"}], "cannot be put into columns"),
    ],
)
def test_rows_that_do_not_fit_together_are_answered(tmp_path, rows, said):
    with pytest.raises(ValueError, match=said):
        group_by_user(rows, tmp_path / "out", user="user")


@pytest.mark.parametrize("name", ["open.csv", "open.csv.gz"])
def test_a_quotation_mark_that_is_never_closed_swallows_no_rows(tmp_path, name):
    """The rows after it, of other users, would become one text of this user."""
    whole = 'user,text\na,"two\nlines"\nb,"and a ""word""\n"\n'
    for text, right in ((whole, True), (whole + 'c,"never\nd,closed\n', False)):
        path = tmp_path / str(right) / name
        path.parent.mkdir()
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        if right:
            group_by_user(path, tmp_path / "out", user="user")
            assert open_grouped(tmp_path / "out").texts_of("b") == ('and a "word"\n',)
            continue
        with pytest.raises(InputFileError, match="never closed"):
            group_by_user(path, tmp_path / "not", user="user")


def test_streams_of_arrow_are_read_and_a_list_of_json_is_named(tmp_path):
    table = pa.table({"user": ["a", "b"], "t": ["x", "y"]})
    with pa.ipc.new_stream(str(tmp_path / "stream.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert group_by_user(tmp_path / "stream.arrow", tmp_path / "out", user="user").users == 2
    (tmp_path / "list.json").write_text('[{"user": "a", "t": "x"}]')
    with pytest.raises(InputFileError, match="one object a line"):
        group_by_user(tmp_path / "list.json", tmp_path / "not", user="user")


def test_a_refused_grouping_can_be_called_again_with_other_options(tmp_path):
    """A row without a user stops the first call; the second, which drops such rows, is not refused as another one."""
    path = tmp_path / "rows.csv"
    path.write_text("user,t\na,x\n,y\n")
    with pytest.raises(InputFileError, match="is empty"):
        group_by_user(path, tmp_path / "out", user="user")
    group_by_user(path, tmp_path / "out", user="user", missing_key="drop")
    group_by_user(path, tmp_path / "at once", user="user", missing_key="drop")
    assert contents(tmp_path / "out") == contents(tmp_path / "at once")


def test_rows_in_memory_are_not_taken_for_those_of_another_call(tmp_path):
    group_by_user([{"user": "a", "t": "x"}], tmp_path / "out", user="user")
    with pytest.raises(InputFileError, match="cannot be compared"):
        group_by_user([{"user": "b", "t": "y"}], tmp_path / "out", user="user")
    assert list(open_grouped(tmp_path / "out").users) == ["a"]


@pytest.mark.parametrize("name", ["bucket-0000.arrow", "index.arrow", "manifest.json"])
def test_a_damaged_store_is_not_called_finished(table, tmp_path, name):
    group_by_user(table, tmp_path / "out", user="user", buckets=1)
    path = tmp_path / "out" / name
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputFileError, match="is damaged"):
        group_by_user(table, tmp_path / "out", user="user", buckets=1)
    with pytest.raises(InputFileError, match=name):
        open_grouped(tmp_path / "out", text="text").texts_of("giant")


def test_other_inputs_or_options_are_refused(table, tmp_path):
    group_by_user(table, tmp_path / "out", user="user")
    assert group_by_user(table, tmp_path / "out", user="user") == read_info(tmp_path / "out")  # nothing to do
    with pytest.raises(InputFileError, match="other inputs, or made with other options"):
        group_by_user(table, tmp_path / "out", user="user", dedup=True)
    with pytest.raises(InputFileError, match="is no grouped data"):
        open_grouped(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(InputFileError, match="is not empty"):
        group_by_user(table, tmp_path / "full", user="user")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    (tmp_path / "bad.csv").write_bytes(b"user,t\na,\xff\n")
    (tmp_path / "bad.doc").write_bytes(b"")
    for name in ("bad.parquet", "bad.csv", "bad.doc", "none.csv"):
        with pytest.raises(InputFileError, match=name):
            group_by_user(tmp_path / name, tmp_path / f"out of {name}", user="user")


def test_memory_is_a_number_of_bytes():
    assert (parse_bytes("2MB"), parse_bytes(3_000_000), parse_bytes("1gb")) == (2_000_000, 3_000_000, 10**9)
    for wrong in ("much", "10KB", "-1GB", "1XB"):
        with pytest.raises(ValueError, match="memory="):
            parse_bytes(wrong)


def test_the_hash_is_fixed():
    """Files written with one version are found with another: these numbers never change."""
    words = pa.array(["", "a", "12345678", "123456789", "é" * 20])
    naive = [hash_one(word) for word in words.to_pylist()]
    assert hash_texts(words).tolist() == naive
    assert hash_texts(pa.array(["x", *words.to_pylist()]).slice(1)).tolist() == naive
    assert naive[1] == 4490210150949542640


def hash_one(word):
    """The same with Python's own numbers."""

    def mixed(value):
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        return value ^ (value >> 31)

    data = word.encode()
    found = mixed((0x9E3779B97F4A7C15 + len(data)) % 2**64)
    for place in range(0, len(data), 8):
        found = mixed(found ^ int.from_bytes(data[place : place + 8].ljust(8, b"\0"), "little"))
    return found
