"""Files in the way of the command line: outputs that would replace something, inputs of any size and depth, interruptions."""

import errno
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from coalmine import Scores, _validate, audit_scores, cli
from coalmine._random import stream
from coalmine.data._files import deepest
from coalmine.errors import InputFileError, RunDirectoryError
from coalmine.runs import RunDirectory
from coalmine.training.config import read_config
from coalmine.training.sweep import OneRun, SweepRun, read_grid, sweep
from coalmine.workers import Workers

GRID = 'config = "tiny"\n[grid]\nmechanism.noise_multiplier = [0.5, 1.0]\n'


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """`typed("group", "x.csv")` in an own folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def type_in(*words):
        monkeypatch.setattr(sys, "argv", ["coalmine", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err and "internal error" not in err
        return stopped.value.code, out, err

    return type_in


@pytest.fixture
def scores(tmp_path):
    rng = stream(5, "files in the way")
    columns = np.column_stack([1 + rng.standard_normal(50), rng.standard_normal(50)])
    np.savetxt(tmp_path / "scores.csv", columns, delimiter=",", header="inserted,held_out", comments="")
    audit_scores(Scores.from_file(tmp_path / "scores.csv"), delta=1e-5).save(tmp_path / "result.json")
    return tmp_path / "scores.csv"


@pytest.fixture
def posts(tmp_path):
    lines = [f"u{number % 5},text {number},{number}" for number in range(40)]
    (tmp_path / "posts.csv").write_text("\n".join(["author,text,number", *lines]) + "\n")
    return tmp_path / "posts.csv"


# what is there already stays


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "scores.csv", "--delta", "1e-5", "-o", "scores.csv"),
        ("estimate", "scores.csv", "--delta", "1e-5", "-o", "link.csv"),
        ("report", "result.json", "-o", "result.json"),
        ("compare", "result.json", "result.json", "-o", "result.json"),
    ],
)
def test_an_output_never_replaces_what_is_read(typed, scores, words):
    """`estimate scores.csv -o scores.csv` put the result in the place of the scores."""
    (scores.parent / "link.csv").symlink_to(scores)
    before = {path: path.read_bytes() for path in (scores, scores.parent / "result.json")}
    code, out, err = typed(*words)
    assert (code, out) == (4, "") and "is what is read here, and would be replaced" in err
    assert all(path.read_bytes() == data for path, data in before.items())


@pytest.mark.parametrize("name", ["result.json", "config.toml", "manifest.json", "secret.json", "views/final-model.npz"])
def test_an_output_never_replaces_a_file_of_a_run(typed, scores, name):
    run = scores.parent / "run"
    (run / "views").mkdir(parents=True)
    (run / "config.toml").write_text("[run]\n")
    code, _, err = typed("estimate", "scores.csv", "--delta", "1e-5", "-o", f"run/{name}")
    assert code == 4 and "belongs to the run in" in err
    assert (run / "config.toml").read_text() == "[run]\n"
    assert typed("report", "result.json", "-o", "run/other.html")[0] == 0


def test_an_output_in_a_loop_of_links_is_one_message(typed, scores):
    (scores.parent / "loop").symlink_to(scores.parent / "loop")
    code, _, err = typed("estimate", "scores.csv", "--delta", "1e-5", "-o", "loop")
    assert code in (0, 4) and err.count("\n") <= 1  # the link may be replaced, or refused


@pytest.mark.parametrize(
    "words",
    [("estimate", "scores.csv", "--delta", "1e-5"), ("report", "result.json"), ("plan", "--strategy", "tree", "--rounds", "8")],
    ids=lambda words: words[0],
)
def test_an_output_never_replaces_a_file_of_another_kind(typed, scores, words):
    """`report result.json -o scores.csv` put a page in the place of somebody's scores."""
    other = scores.parent / "thesis.tex"
    other.write_text("years of work")
    code, _, err = typed(*words, "--picture" if words[0] == "plan" else "-o", "thesis.tex")
    assert code == 4 and "is there already and is no" in err and other.read_text() == "years of work"


@pytest.mark.parametrize(
    "words", [("estimate", "scores.csv", "--delta", "1e-5"), ("report", "result.json")], ids=["json", "page"]
)
def test_an_output_of_any_name_is_replaced_by_the_next_one(typed, scores, words):
    """As of a script that runs twice, or that had an empty file made by mktemp."""
    (scores.parent / "tmp.x1").touch()
    for _ in range(2):
        assert typed(*words, "-o", "tmp.x1")[0] in (0, 1, 3)
    assert (scores.parent / "tmp.x1").stat().st_size > 100


def test_a_page_that_cannot_be_written_leaves_the_old_one(typed, scores, monkeypatch):
    """A full disk left half a page in the place of the whole one."""

    def full(path, *_, **__):
        with open(path, "w") as file:  # noqa: PTH123 - Path.open may be what is replaced
            file.write("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    assert typed("report", "result.json", "-o", "page.html")[0] == 0
    before = (scores.parent / "page.html").read_bytes()
    monkeypatch.setattr(Path, "write_text", full)
    code, _, err = typed("report", "result.json", "-o", "page.html")
    assert code == 4 and "No space left on device" in err
    assert (scores.parent / "page.html").read_bytes() == before
    assert not list(scores.parent.glob("*.part"))


def test_a_sweep_among_other_files_is_refused(typed, tmp_path):
    """Its folder had the same grid.toml, so that runs were made beside somebody's files."""
    (tmp_path / "grid.toml").write_text(GRID)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunDirectoryError, match="holds more than runs of this grid"):
        sweep(read_grid(tmp_path / "grid.toml"), tmp_path)


def test_a_folder_that_is_no_run_is_not_emptied(tmp_path):
    (tmp_path / "run-0000").mkdir()
    (tmp_path / "run-0000" / "notes.txt").write_text("mine")
    said = OneRun()(SweepRun(str(tmp_path / "run-0000"), ""))
    assert "is no run and is not empty ('notes.txt')" in said
    assert (tmp_path / "run-0000" / "notes.txt").read_text() == "mine"
    run = tmp_path / "killed"
    (run / "checkpoint").mkdir(parents=True)
    (run / "config.toml.part").touch()
    RunDirectory(run)._empty()
    assert not any(run.iterdir())


@pytest.mark.parametrize("kind", ["file", "loop", "dangling"])
def test_groups_into_something_that_is_no_folder(typed, posts, kind):
    place = posts.parent / "out"
    {
        "file": place.touch,
        "loop": lambda: place.symlink_to(place),
        "dangling": lambda: place.symlink_to(posts.parent / "nowhere"),
    }[kind]()
    code, _, err = typed("group", "posts.csv", "--user", "author", "--out", "out")
    assert code == 4 and ("is a file" if kind == "file" else "is a link that leads nowhere") in err


# sizes and depths


def test_grouped_data_as_one_json_document(typed, posts):
    """It ended in an internal error: the folder is no JSON."""
    code, out, _ = typed("group", "posts.csv", "--user", "author", "--out", "grouped", "--stats", "--json")
    found = json.loads(out)
    assert (code, found["users"], found["rows"], found["path"]) == (0, 5, 40, "grouped")
    assert found["statistics"]["rows_of_a_user"]["largest"] == 8
    assert "1 bucket" in typed("group", "grouped", "--stats")[1].splitlines()[0].split(" rows in ")[1]


def test_a_table_of_too_many_columns_is_refused_at_once(typed, tmp_path):
    """200,000 of them took gigabytes and did not answer."""
    many = 20_000
    (tmp_path / "wide.csv").write_text(",".join(f"c{n}" for n in range(many)) + "\n" + ",".join("1" * many) + "\n")
    code, _, err = typed("group", "wide.csv", "--user", "c1", "--out", "out")
    assert code == 4 and "at most 2,000 are grouped" in err
    assert typed("group", "wide.csv", "--user", "c1", "--column", "c2", "--out", "few")[0] == 0
    code, _, err = typed("group", "wide.csv", "--user", "nobody", "--out", "out2")
    assert code == 4 and f"and {many - 20:,} more" in err and len(err) < 1_000
    (tmp_path / "wider.csv").write_text("a," * 20_000 + "a\n")
    code, _, err = typed("group", "wider.csv", "--user", "a", "--out", "out3")
    assert code == 4 and "has 20,001 columns; at most 20,000 are read" in err
    code, _, err = typed("estimate", "wide.csv", "--delta", "1e-5")
    assert code == 4 and f"and {many - 20:,} more" in err and len(err) < 1_000


def test_json_lines_that_are_nested_too_deeply(typed, tmp_path):
    """The reader of such lines crashed, and Python with it."""
    (tmp_path / "deep.jsonl").write_text('{"author": "u1"}\n' + '{"author":' * 50_000 + "1" + "}" * 50_000 + "\n")
    code, _, err = typed("group", "deep.jsonl", "--user", "author", "--out", "out")
    assert code == 4 and "nested more than 1,000 deep" in err


def test_depth_of_brackets_by_line():
    """Against one bracket after the other, in blocks of any size."""
    rng = stream(6, "brackets")
    for _ in range(50):
        data = bytes(rng.choice([*b"{}[]\nab"], size=rng.integers(200)).tolist())
        most = depth = 0
        for byte in data:
            depth = 0 if byte == 10 else depth + (byte in b"{[") - (byte in b"}]")
            most = max(most, depth)
        assert all(deepest(io.BytesIO(data), size) == most for size in (1, 7, 64, 1000))


def test_no_message_is_longer_than_a_screen(typed):
    code, _, err = typed("report", "x" * 100_000)
    assert code == 4 and len(err) < 2_200 and "more characters)" in err


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"schema": "coalmine-manifest/1", "files": {}}', "no"])
def test_a_folder_of_something_else_is_no_grouped_data(typed, posts, text):
    (posts.parent / "folder").mkdir()
    (posts.parent / "folder" / "manifest.json").write_text(text)
    code, _, err = typed("group", "folder", "--stats")
    assert code == 4 and ("is damaged" in err or "is no grouped data" in err)


def test_settings_have_a_size_and_a_depth(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text("a = " + "[" * 50_000 + "]" * 50_000)
    for read in (read_config, read_grid):
        with pytest.raises(InputFileError, match="nested too deeply"):
            read(path)
    path.write_text("[grid]\nx = [" + "1," * 600_000 + "1]\n")
    for read in (read_config, read_grid):
        with pytest.raises(InputFileError, match="at most 1 MB"):
            read(path)


@pytest.mark.parametrize("text", ["grid = 5\n", "slurm = 5\n[grid]\nmechanism.noise_multiplier = [1]\n"])
def test_a_section_of_a_grid_that_is_a_number(tmp_path, text):
    path = tmp_path / "grid.toml"
    path.write_text(f'config = "tiny"\n{text}' if "slurm" in text else text)
    with pytest.raises(ValueError, match="write a section"):
        read_grid(path)


@pytest.mark.parametrize("workers", [0, 1025, 10**20])
def test_workers_have_a_limit(workers):
    with pytest.raises(ValueError, match="at least 1 and at most 1,024"):
        _validate.workers(workers)
    with pytest.raises(ValueError, match="at least 1 and at most 1,024"):
        Workers(workers, None)


@pytest.mark.parametrize("words", [("--seeds", 10**12), ("--correct", 10**12), ("--workers", 10**9)])
def test_the_zoo_has_limits(typed, words):
    code, _, err = typed("zoo", "half-noise", *words)
    assert code == 2 and "at most" in err


@pytest.mark.parametrize("verb", [("report",), ("check", "--max-epsilon", "3")])
@pytest.mark.parametrize("kind", ["pipe", "device", "enormous"])
def test_a_result_that_never_ends(typed, scores, verb, kind):
    """Nobody writes into the pipe: its reader waited for ever. The device took all memory."""
    place = scores.parent / "given"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        with place.open("wb") as file:
            file.truncate(10**9)  # of holes: no block of the disk is used
    code, out, err = typed(*verb, "given")
    said = "has 1,000 MB; at most 500 MB are read" if kind == "enormous" else "is a pipe or a device"
    assert (code, out) == (4, "") and said in err


def test_names_do_not_steer_a_terminal(typed, scores, monkeypatch):
    """What goes to standard error is not a terminal here; typer would take such codes away by itself."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = []
    monkeypatch.setattr("typer.echo", lambda text="", **_: said.append(text))
    typed("report", "result.json", "-o", "page\x1b[31m.html")
    assert said == ["wrote page\\x1b[31m.html"]


# numbers


def test_noise_that_floats_cannot_divide_by(typed):
    """The message named a variable of ours."""
    code, out, _ = typed("account", "--noise-multiplier", "1e-320", "--delta", "1e-5")
    assert code == 0 and "epsilon = inf" in out
    code, _, err = typed("account", "--noise-multiplier", "1e-320", "--epsilon", "3")
    assert code == 2 and "nothing to state" in err


def test_a_delta_is_refused_with_what_is_allowed(typed, scores):
    code, _, err = typed("estimate", "scores.csv", "--delta", "-1")
    assert code == 2 and "it must be at least 0 and below 1" in err
    assert typed("estimate", "scores.csv", "--delta", "0")[0] == 0


def test_a_confidence_next_to_certainty_is_not_called_certainty(typed):
    code, out, _ = typed("plan", "--claim", "3", "--delta", "1e-5", "--canaries", "50", "--confidence", "0.999999999999")
    assert code == 0 and "confidence 99.9999999999%" in out


# interruptions


@pytest.mark.parametrize(
    ("words", "place", "said"),
    [
        (
            ("group", "posts.csv", "--user", "author", "--out", "out"),
            "coalmine.data.grouping.group_by_user",
            "the same command",
        ),
        (("plan", "--claim", "3", "--delta", "1e-5"), "coalmine.estimators.power.plan", "interrupted."),
        (("report", "result.json"), "coalmine.report.page.report", "interrupted."),
        (("craft", "run"), "coalmine.training.crafting.craft", "interrupted."),
        (("infer",), "coalmine.training.inference.infer", "interrupted."),
        (("selftest",), "coalmine.selftest.selftest", "interrupted."),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_interruption_is_said(typed, posts, scores, monkeypatch, words, place, said):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    code, out, err = typed(*words)
    assert (code, out) == (130, "") and "coalmine: interrupted" in err and said in err
