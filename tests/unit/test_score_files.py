import json
import pickle
import random
import sys
import warnings
import zipfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import score_files
from coalmine.contracts import Game, plain
from coalmine.errors import InputFileError, NonFiniteError, NotEnoughCanariesError
from coalmine.nulls import CosineNull, GaussianNull, MaxNull
from coalmine.scores import Scores

OFTEN = settings(deadline=None, derandomize=True, max_examples=60, database=None)


@pytest.fixture
def csv_file(tmp_path):
    def write(content):
        path = tmp_path / "scores.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def npz_file(tmp_path):
    def write(**columns):
        path = tmp_path / "scores.npz"
        np.savez(path, **columns)
        return path

    return write


@pytest.fixture
def parquet_file(tmp_path):
    def write(table):
        path = tmp_path / "scores.parquet"
        pyarrow.parquet.write_table(table if isinstance(table, pyarrow.Table) else pyarrow.table(table), path)
        return path

    return write


def rows(scores):
    return list(zip(scores.value.tolist(), scores.inserted.tolist(), strict=True))


LONG = [(0.5, True), (-0.25, False)]

# --------------------------------------------------------------------------- csv


@pytest.mark.parametrize(
    "content",
    [
        "value,inserted\n0.5,1\n-0.25,0\n",
        "value,inserted\n0.5,1\n-0.25,0",
        "inserted,value\n1,0.5\n0,-0.25\n",
        "score,inserted\n0.5,1\n-0.25,0\n",
        "VALUE, Inserted \n0.5,1\n-0.25,0\n",
        "value;inserted\n0.5;1\n-0.25;0\n",
        "value\tinserted\n0.5\t1\n-0.25\t0\n",
        "value,inserted\r\n0.5,1\r\n-0.25,0\r\n",
        "value,inserted\r0.5,1\r-0.25,0\r",
        "\ufeffvalue,inserted\n0.5,1\n-0.25,0\n",
        '"value","inserted"\n"0.5","1"\n"-0.25","0"\n',
        "value,inserted\n 0.5 , 1\n-0.25 ,0 \n",
        "value,inserted\n0.5,1\n\n-0.25,0\n\n\n",
        "value,inserted\n5e-1,true\n-.25,false\n",
        "value,inserted\n0.5,Yes\n-0.25,NO\n",
        "value,inserted\n0.5,1.0\n-0.25,0.0\n",
    ],
)
def test_the_long_layout_in_all_its_spellings(csv_file, content):
    scores = Scores.from_csv(csv_file(content))
    assert rows(scores) == LONG
    assert scores.labels == {}


@pytest.mark.parametrize(
    ("content", "inserted", "held_out"),
    [
        ("inserted,held_out\n0.5,0.1\n0.25,0.2\n", [0.5, 0.25], [0.1, 0.2]),
        ("held_out,inserted\n0.1,0.5\n", [0.5], [0.1]),
        ("inserted,held_out\n0.5,0.1\n0.25,\n0.125,\n", [0.5, 0.25, 0.125], [0.1]),
        ("inserted,held_out\n0.5,0.1\n,0.2\n , \n", [0.5], [0.1, 0.2]),
        ("Inserted;Held_Out\r\n1;2\r\n;3\r\n", [1.0], [2.0, 3.0]),
        ("\ufeffinserted\theld_out\n1\t2\n", [1.0], [2.0]),
    ],
)
def test_two_columns_of_scores(csv_file, content, inserted, held_out):
    scores = Scores.from_csv(csv_file(content))
    assert scores.inserted_values.tolist() == inserted
    assert scores.held_out_values.tolist() == held_out


def test_inserted_alone_needs_a_law(csv_file):
    path = csv_file("inserted\n0.5\n0.25\n")
    assert rows(Scores.from_csv(path, dim=100)) == [(0.5, True), (0.25, True)]
    assert Scores.from_csv(path, dim=100).null == CosineNull(100)
    assert Scores.from_csv(path, null=GaussianNull()).null == GaussianNull()
    with pytest.raises(NotEnoughCanariesError, match="nothing to compare"):
        Scores.from_csv(path)


def test_labels_are_read_by_name(csv_file):
    content = "group,value,run,inserted,canary,replicate,round\n1,0.5,2,1,3,4,5\n-1,0.25,-2,0,-3,-4,9007199254740993\n"
    scores = Scores.from_csv(csv_file(content), assignment="coins", view="final model")
    assert {name: column.tolist() for name, column in scores.labels.items()} == {
        "group": [1, -1],
        "run": [2, -2],
        "canary": [3, -3],
        "replicate": [4, -4],
        "round": [5, 9007199254740993],  # not a float in between
    }
    assert (scores.assignment, scores.view) == ("coins", "final model")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"scores\.csv is empty.*Known layouts"),
        ("\n\n", r"scores\.csv is empty.*Known layouts"),
        ("\nvalue,inserted\n1,1\n", r"scores\.csv is empty, or its first line is"),
        (
            "epsilon,delta\n1,2\n",
            r"scores\.csv: the columns do not fit\. Found 'epsilon', 'delta'\. Known layouts: 'value,inserted'",
        ),
        ("value\n1\n", "the columns do not fit. Found 'value'."),
        ("value,held_out\n1,1\n", "the columns do not fit. Found 'value', 'held_out'."),
        ("held_out\n1\n", "the columns do not fit. Found 'held_out'."),
        ("value,inserted,loss\n1,1,1\n", "the columns do not fit. Found 'value', 'inserted', 'loss'."),
        ("value,inserted,\n1,1,\n", "the columns do not fit. Found 'value', 'inserted', ''."),
        ("inserted,held_out,run\n1,1,1\n", "the columns do not fit"),
        ("0.5,1\n0.25,0\n", "the columns do not fit. Found '0.5', '1'."),
        ("# comment\nvalue,inserted\n1,1\n", "the columns do not fit. Found '# comment'."),
        ("value|inserted\n1|1\n", r"the columns do not fit. Found 'value\|inserted'"),
        ("value,inserted,Value\n1,1,1\n", "a column name occurs twice. Found the columns 'value', 'inserted', 'Value'"),
        ("value,inserted,score\n1,1,1\n", "a column name occurs twice. Found the columns 'value', 'inserted', 'score'"),
        ("value,inserted\n1,1\n2\n", r"scores\.csv, line 3: 1 cells where the header has 2"),
        ("value,inserted\n1,1\n\n2,0,5\n", r"scores\.csv, line 4: 3 cells where the header has 2"),
        ("inserted,held_out\n1,2\n3\n", r"line 3: 1 cells where the header has 2"),
        ("value,inserted\nhigh,1\n", r"line 2: cannot read \['high', '1'\]; expected value a number"),
        ("value,inserted\n,1\n", r"line 2: cannot read \['', '1'\]"),
        ("value,inserted\n1,2\n", r"line 2: cannot read \['1', '2'\].*inserted 1/0 or true/false"),
        ("value,inserted\n1,\n", r"line 2: cannot read \['1', ''\]"),
        ("value;inserted\n0,5;1\n", r"line 2: cannot read \['0,5', '1'\]"),
        ("value,inserted,run\n1,1,1.5\n", r"line 2: cannot read .*the other columns whole numbers"),
        ("value,inserted,run\n1,1,\n", r"line 2: cannot read"),
        ("value,inserted,run\n1,1,9223372036854775808\n", r"line 2: cannot read"),
        ("value,inserted\n1\0,1\n", "line 2|readable csv"),
        ("inserted,held_out\n1,2\nx,3\n", r"line 3: 'x' in column 'inserted' is not a number"),
        ("inserted,held_out\n1,2\n,3\n4,5\n", r"line 3: column 'inserted' has an empty cell followed by a score on line 4"),
        ("value,inserted\n" + "1" * 200_000 + ",1\n", r"scores\.csv is not a readable csv file: field larger"),
        ("value,inserted\n1,1\n".encode("utf-16"), r"scores\.csv is not a text file in UTF-8"),
        (b"value,inserted\n" + b"1,1\n" * 10_000 + b"\xff,1\n", r"scores\.csv is not a text file in UTF-8"),
        (b"PK\x03\x04\xff\xfe", "UTF-8"),
    ],
)
def test_a_csv_file_that_does_not_fit_says_why(csv_file, content, message):
    with pytest.raises(InputFileError, match=message):
        Scores.from_csv(csv_file(content))


@pytest.mark.parametrize("number", ["nan", "NaN", "inf", "-inf", "1e999"])
def test_scores_in_a_file_must_be_finite(csv_file, number):
    for content in (f"value,inserted\n1,1\n{number},0\n", f"inserted,held_out\n1,{number}\n"):
        with pytest.raises(NonFiniteError, match=r"value contains 1 NaN or infinite scores \(positions 1\)"):
            Scores.from_csv(csv_file(content))


def test_a_file_without_rows_has_no_canaries(csv_file, npz_file, parquet_file):
    for content in ("value,inserted\n", "value,inserted,run\n", "inserted,held_out\n", "inserted\n"):
        with pytest.raises(NotEnoughCanariesError, match="no inserted canary"):
            Scores.from_csv(csv_file(content), dim=100)
    with pytest.raises(NotEnoughCanariesError):
        Scores.from_npz(npz_file(value=np.zeros(0), inserted=np.zeros(0, dtype=bool)))
    with pytest.raises(NotEnoughCanariesError):
        Scores.from_parquet(parquet_file({"value": pyarrow.array([], "float64"), "inserted": pyarrow.array([], "bool")}))


# --------------------------------------------------------------------------- npz


def test_npz_layouts(npz_file):
    path = npz_file(value=[0.5, -0.25], inserted=[True, False], run=[7, 8])
    assert rows(Scores.from_npz(path)) == LONG
    assert Scores.from_npz(path).labels["run"].tolist() == [7, 8]
    assert rows(Scores.from_npz(npz_file(Score=[0.5, -0.25], INSERTED=[1, 0]))) == LONG
    assert rows(Scores.from_npz(npz_file(value=[0.5, -0.25], inserted=[1.0, 0.0]))) == LONG
    assert rows(Scores.from_npz(npz_file(held_out=[-0.25], inserted=[0.5]))) == LONG
    two = Scores.from_npz(npz_file(inserted=[0.5, 1.0, 2.0], held_out=[0.25]))
    assert (two.inserted_values.tolist(), two.held_out_values.tolist()) == ([0.5, 1.0, 2.0], [0.25])
    assert Scores.from_npz(npz_file(inserted=[0.5]), dim=50).null == CosineNull(50)


def test_npz_columns_of_any_number_type(npz_file):
    path = npz_file(
        value=np.array([0.5, -0.25], dtype=">f4"), inserted=np.array([1, 0], dtype=np.uint8), run=np.array([1, 2], dtype=">i2")
    )
    scores = Scores.from_npz(path)
    assert rows(scores) == LONG
    assert scores.labels["run"].dtype == np.int64


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"arr_0": [1.0]}, "the columns do not fit. Found 'arr_0'"),
        ({"value": [1.0]}, "the columns do not fit. Found 'value'"),
        ({"value": [1.0], "inserted": [1], "loss": [1.0]}, "Found 'value', 'inserted', 'loss'"),
        ({"value": [1.0], "score": [1.0], "inserted": [1]}, "a column name occurs twice"),
        ({"value": [1.0, 2.0, 3.0], "inserted": [1, 0]}, r"columns of different lengths: \{'value': 3, 'inserted': 2\}"),
        ({"value": [1.0, 2.0], "inserted": [1, 0], "run": [1]}, "columns of different lengths"),
        ({"value": [[1.0, 2.0]], "inserted": [1]}, r"'value' must be a flat column of numbers; got float64 of shape \(1, 2\)"),
        ({"value": 1.0, "inserted": [1]}, r"'value' must be a flat column of numbers; got float64 of shape \(\)"),
        ({"value": ["a"], "inserted": [1]}, "'value' must be a flat column of numbers; got <U1"),
        ({"value": [1j], "inserted": [1]}, "'value' must be a flat column of numbers; got complex128"),
        ({"value": [1.0], "inserted": ["yes"]}, "'inserted' must be a flat column of numbers"),
        ({"value": [1.0, 2.0], "inserted": [1, 2]}, "'inserted' must hold 1/0 or true/false beside 'value'"),
        ({"value": [1.0, 2.0], "inserted": [1.0, np.nan]}, "'inserted' must hold 1/0 or true/false beside 'value'"),
        ({"value": [1.0], "inserted": [1], "run": [0.5]}, r"scores\.npz: 'run' must hold whole numbers"),
        ({"value": [1.0], "inserted": [1], "run": [1e300]}, "'run' must hold whole numbers"),
        ({"value": [1.0], "inserted": [1], "run": np.array([2**63], dtype=np.uint64)}, "'run' must hold whole numbers"),
    ],
)
def test_an_npz_file_that_does_not_fit_says_why(npz_file, columns, message):
    with pytest.raises(InputFileError, match=message):
        Scores.from_npz(npz_file(**columns))


def test_scores_in_an_npz_file_must_be_finite(npz_file):
    with pytest.raises(NonFiniteError):
        Scores.from_npz(npz_file(value=[1.0, np.nan], inserted=[1, 0]))
    with pytest.raises(NonFiniteError):
        Scores.from_npz(npz_file(inserted=[1.0], held_out=[np.inf]))
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        with pytest.raises(NonFiniteError):
            Scores.from_npz(npz_file(value=np.array(["1e400", "1"]).astype(np.longdouble), inserted=[1, 0]))


def test_a_single_array_is_no_table(tmp_path):
    path = tmp_path / "scores.npz"
    with path.open("wb") as file:
        np.save(file, np.arange(3.0))
    with pytest.raises(InputFileError, match=r"holds a single array, not named columns. Known layouts"):
        Scores.from_npz(path)


class Explosive:
    """Unpickling this would be noticed."""

    def __reduce__(self):
        return warnings.warn, ("this file was executed",)


def test_nothing_is_unpickled(tmp_path, npz_file):
    path = npz_file(value=np.array([1.0, Explosive()], dtype=object), inserted=[1, 0])
    with pytest.raises(InputFileError, match="it holds Python objects or is no archive; nothing is ever unpickled"):
        Scores.from_npz(path)
    path = tmp_path / "pickle.npz"
    path.write_bytes(pickle.dumps(Explosive()))
    with pytest.raises(InputFileError, match="it holds Python objects or is no archive; nothing is ever unpickled"):
        Scores.from_npz(path)


def test_members_that_are_no_arrays_are_refused(tmp_path):
    path = tmp_path / "scores.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("value", "0.5")
        archive.writestr("inserted", "1")
    with pytest.raises(InputFileError, match="'value' must be a flat column of numbers"):
        Scores.from_npz(path)
    with zipfile.ZipFile(path, "w"):
        pass
    with pytest.raises(InputFileError, match="the columns do not fit"):
        Scores.from_npz(path)


def test_a_truncated_npz_file_is_refused(tmp_path):
    path = tmp_path / "scores.npz"
    Scores.of(np.arange(50.0), np.arange(50.0)).save(path)
    content = path.read_bytes()
    for length in [0, 1, 10, *range(50, len(content), 50), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(InputFileError, match=r"scores\.npz is not a complete npz file \(.+\)\. Write it again"):
            Scores.from_npz(path)


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_a_damaged_file_is_an_input_error_or_still_readable(tmp_path, ending):
    """Random bytes changed: never an exception of another kind, never a file left open (a warning, hence a failure here)."""
    path = tmp_path / f"scores.{ending}"
    scores = Scores.of(np.arange(50.0), np.arange(50.0))
    if ending == "npz":
        scores.save(path)
    else:
        pyarrow.parquet.write_table(pyarrow.table({"value": scores.value, "inserted": scores.inserted}), path)
    content, rng = path.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            score_files.read(path)
        except InputFileError:
            refused += 1
    assert refused > 30


@pytest.mark.parametrize("null", [None, CosineNull(7), GaussianNull(2.0, -1.5, 0.25), MaxNull(CosineNull(9), 4)])
def test_saved_scores_say_what_they_are(tmp_path, null):
    game = Game(unit="client", relation="replace-one")
    about = {"null": null, "assignment": "coins", "dim": 7, "statistic": "dot product", "view": "final model", "game": game}
    about["combined"] = "likelihood-ratio"
    scores = Scores([0.5, -0.25], [True, False], labels={"run": [1, 2]}, **about)
    scores.save(tmp_path / "scores.npz")
    back = Scores.from_npz(tmp_path / "scores.npz")
    assert {name: getattr(back, name) for name in about} == about
    assert back.sha256 == scores.sha256


@pytest.mark.parametrize(
    ("statistic", "maximum", "ratio"),
    [("maximum over rounds of the cosine", True, False), ("likelihood ratio", False, True), ("cosine", False, False)],
)
def test_files_that_say_in_words_how_rounds_became_a_score_are_read(npz_file, statistic, maximum, ratio):
    """Those of the first version; what a later version adds is left out."""
    about = {
        "null": None,
        "game": plain(Game()),
        "assignment": "coins",
        "dim": 7,
        "statistic": statistic,
        "view": "known others",
    }
    first = npz_file(value=[0.5, -0.25], inserted=[1, 0], about=json.dumps({**about, "added later": 1}))
    scores = Scores.from_npz(first)
    assert (scores.maximum, scores.likelihood_ratio, scores.view) == (maximum, ratio, "known-others")
    assert not Scores([0.5, -0.25], [True, False], statistic=statistic).maximum, "words alone decide nothing"


def test_the_caller_goes_before_the_file(tmp_path):
    path = tmp_path / "scores.npz"
    Scores.of([0.5], [-0.25], dim=7, assignment="coins").save(path)
    back = Scores.from_npz(path, null=GaussianNull(), assignment="fixed")
    assert (back.null, back.assignment, back.dim) == (GaussianNull(), "fixed", 7)
    assert Scores.from_npz(path, dim=9).null == CosineNull(9)


@pytest.mark.parametrize("about", ["", "{", "[]", "{}", '{"null": null}', '{"__class__": "os.system"}', 3, [1.0, 2.0]])
def test_a_file_that_says_something_else_about_itself_is_refused(npz_file, about):
    with pytest.raises(InputFileError, match=r"scores\.npz: its entry 'about' is not what Scores\.save writes"):
        Scores.from_npz(npz_file(value=[0.5, -0.25], inserted=[1, 0], about=about))


def test_a_law_that_cannot_be_saved_leaves_no_file(tmp_path):
    class Other:
        slack = 0.0

    path = tmp_path / "scores.npz"
    with pytest.raises(ValueError, match="cannot be saved"):
        Scores([0.5], [True], null=Other()).save(path)
    assert not path.exists()


# --------------------------------------------------------------------------- parquet


def test_parquet_layouts(parquet_file):
    path = parquet_file({"value": [0.5, -0.25], "inserted": [True, False], "run": [7, 8]})
    assert rows(Scores.from_parquet(path)) == LONG
    assert Scores.from_parquet(path).labels["run"].tolist() == [7, 8]
    assert rows(Scores.from_parquet(parquet_file({" Score": [0.5, -0.25], "Inserted": [1, 0]}))) == LONG
    small = {"value": pyarrow.array([0.5, -0.25], "float32"), "inserted": pyarrow.array([1, 0], "uint8")}
    assert rows(Scores.from_parquet(parquet_file(small))) == LONG
    assert Scores.from_parquet(parquet_file({"inserted": [0.5]}), dim=50).null == CosineNull(50)


def test_parquet_columns_in_several_chunks(parquet_file):
    table = pyarrow.concat_tables([pyarrow.table({"value": [x], "inserted": [flag]}) for x, flag in LONG])
    assert rows(Scores.from_parquet(parquet_file(table))) == LONG


@pytest.mark.parametrize("names", [("inserted", "held_out"), ("INSERTED", " Held_Out ")])
def test_the_end_of_the_shorter_parquet_column_may_be_empty(parquet_file, names):
    path = parquet_file(dict(zip(names, ([0.5, 1.0, 2.0], [0.25, None, None]), strict=True)))
    scores = Scores.from_parquet(path)
    assert (scores.inserted_values.tolist(), scores.held_out_values.tolist()) == ([0.5, 1.0, 2.0], [0.25])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"value": [1.0, None], "inserted": [True, False]}, "column 'value' has 1 empty cells; every row needs a value"),
        ({"value": [1.0, 2.0], "inserted": [True, None]}, "column 'inserted' has 1 empty cells"),
        ({"value": [1.0, 2.0], "inserted": [True, False], "run": [None, None]}, "column 'run' has 2 empty cells"),
        ({"inserted": [1.0, 2.0, 3.0], "held_out": [1.0, None, 2.0]}, "column 'held_out' has empty cells before its end"),
        ({"epsilon": [1.0]}, "the columns do not fit. Found 'epsilon'"),
        ({"value": ["a"], "inserted": [True]}, "'value' must be a flat column of numbers"),
        ({"value": [[1.0]], "inserted": [True]}, "'value' must be a flat column of numbers"),
        ({"value": [1.0], "inserted": [True], "run": [0.5]}, "'run' must hold whole numbers"),
        (
            pyarrow.Table.from_arrays(
                [pyarrow.array([1.0]), pyarrow.array([True]), pyarrow.array([2.0])], ["value", "inserted", "value"]
            ),
            "a column name occurs twice. Found the columns 'value', 'inserted', 'value'",
        ),
    ],
)
def test_a_parquet_file_that_does_not_fit_says_why(parquet_file, table, message):
    with pytest.raises(InputFileError, match=message):
        Scores.from_parquet(parquet_file(table))


def test_a_parquet_score_that_is_not_a_number_is_not_an_empty_cell(parquet_file):
    with pytest.raises(NonFiniteError):
        Scores.from_parquet(parquet_file({"value": [1.0, float("nan")], "inserted": [True, False]}))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"value,inserted\n1,1\n", b"PAR1" + bytes(100) + b"PAR1"])
def test_what_is_no_parquet_file_is_refused(tmp_path, content):
    path = tmp_path / "scores.parquet"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=r"^scores\.parquet is not a readable parquet file: ."):
        Scores.from_parquet(path)


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch, parquet_file):
    path = parquet_file({"inserted": [0.5]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputFileError, match=r'pip install "coalmine\[parquet\]"'):
        Scores.from_parquet(path, dim=50)


# --------------------------------------------------------------------------- any format


def test_the_ending_tells_the_format(csv_file, npz_file, parquet_file):
    columns = {"value": [0.5, -0.25], "inserted": [True, False]}
    text = csv_file("value,inserted\n0.5,1\n-0.25,0\n")
    paths = [text, npz_file(**columns), parquet_file(columns)]
    for ending in ("tsv", "txt", "CSV"):
        paths.append(text.with_suffix(f".{ending}"))
        paths[-1].write_bytes(text.read_bytes())
    for path in paths:
        assert rows(Scores.from_file(path)) == rows(Scores.from_file(str(path))) == LONG
    assert len({Scores.from_file(path).sha256 for path in paths}) == 1


def test_another_ending_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(InputFileError, match=r"scores\.json': the ending must be one of \.csv, \.tsv, \.txt, \.npz, \.parquet"):
        Scores.from_file(tmp_path / "scores.json")
    for read in (Scores.from_csv, Scores.from_npz, Scores.from_parquet):
        for missing in ("nowhere.csv", "."):
            with pytest.raises(InputFileError, match="there is no file"):
                read(tmp_path / missing)
    with pytest.raises(InputFileError, match=r"there is no file '.*nowhere\.npz'"):
        Scores.from_file(tmp_path / "nowhere.npz")


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(-(2**63), 2**63 - 1)
TABLES = st.lists(st.tuples(FLOATS, st.booleans(), WHOLE, WHOLE), min_size=1, max_size=20)


def table_of(cells):
    value, inserted, run, canary = zip(*cells, strict=True)
    labels = {"run": np.array(run, dtype=np.int64), "canary": np.array(canary, dtype=np.int64)}
    return Scores(value, inserted, labels=labels, null=GaussianNull()) if any(inserted) else None


def assert_same(scores, other):
    assert scores.value.tobytes() == other.value.tobytes()  # the sign of zero too
    assert scores.inserted.tolist() == other.inserted.tolist()
    assert {name: column.tolist() for name, column in scores.labels.items()} == {
        name: column.tolist() for name, column in other.labels.items()
    }
    assert scores.sha256 == other.sha256


@OFTEN
@given(TABLES)
def test_what_was_saved_is_read(tmp_path_factory, cells):
    scores = table_of(cells)
    if scores is None:
        return
    path = tmp_path_factory.mktemp("saved") / "scores"
    scores.save(path)
    assert_same(Scores.from_npz(path, null=GaussianNull()), scores)


@OFTEN
@given(TABLES, st.sampled_from(",;\t"), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\ufeff"]))
def test_what_was_written_as_csv_is_read(tmp_path_factory, cells, separator, newline, mark):
    scores = table_of(cells)
    if scores is None:
        return
    lines = [
        ("value", "inserted", "run", "canary"),
        *((repr(value), int(flag), run, canary) for value, flag, run, canary in cells),
    ]
    path = tmp_path_factory.mktemp("csv") / "scores.csv"
    path.write_text(mark + newline.join(separator.join(map(str, line)) for line in lines), encoding="utf-8", newline="")
    assert_same(Scores.from_csv(path, null=GaussianNull()), scores)


@OFTEN
@given(TABLES)
def test_what_was_written_as_parquet_is_read(tmp_path_factory, cells):
    scores = table_of(cells)
    if scores is None:
        return
    path = tmp_path_factory.mktemp("parquet") / "scores.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"value": scores.value, "inserted": scores.inserted, **scores.labels}), path)
    assert_same(Scores.from_parquet(path, null=GaussianNull()), scores)


@OFTEN
@given(st.lists(FLOATS, min_size=1, max_size=8), st.lists(FLOATS, max_size=8))
def test_two_columns_written_as_csv_are_read(tmp_path_factory, inserted, held_out):
    length = max(len(inserted), len(held_out))
    columns = [[*map(repr, column), *[""] * (length - len(column))] for column in (inserted, held_out)]
    lines = ["inserted,held_out", *(",".join(cells) for cells in zip(*columns, strict=True))]
    path = tmp_path_factory.mktemp("csv") / "scores.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    scores = Scores.from_csv(path, null=GaussianNull())
    assert_same(scores, Scores.of(inserted, held_out, null=GaussianNull()))


def test_files_of_any_size_are_refused_before_they_are_read(tmp_path, monkeypatch):
    """A sparse file of 50 GB was read as one line, until memory ended."""
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(score_files.MOST_BYTES + 1)
    packed = tmp_path / "packed.npz"
    np.savez_compressed(packed, inserted=np.zeros(200_000), held_out=np.zeros(200_000))
    assert packed.stat().st_size < 1_000_000
    with pytest.raises(InputFileError, match=r"large\.csv has 1,000 MB; at most"):
        score_files.read(large)
    monkeypatch.setattr(score_files, "MOST_BYTES", 1_000_000)
    with pytest.raises(InputFileError, match=r"packed\.npz has 3 MB; at most 1 MB"):
        score_files.read(packed)


@pytest.mark.parametrize("content", ["x" * (1 << 20), "inserted,held_out\n" + "1," * (1 << 20)])
def test_a_file_without_line_ends_is_not_read_as_one_line(csv_file, content):
    with pytest.raises(InputFileError, match="a line of more than 1,048,576 characters"):
        score_files.read(csv_file(content))


def test_tables_of_any_length_are_refused(tmp_path, csv_file, monkeypatch):
    monkeypatch.setattr(score_files, "MOST_CELLS", 1_000)
    path = tmp_path / "scores.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"inserted": np.zeros(600), "held_out": np.zeros(600)}), path)
    for file in (path, csv_file("inserted,held_out\n" + "1,2\n" * 600)):
        with pytest.raises(InputFileError, match="cells; at most 1,000 are read"):
            score_files.read(file)
