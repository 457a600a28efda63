"""What people see: the sketch and colours on a terminal that allows them, plain text everywhere else.

Terminals are pseudo terminals with a process of its own behind them.
"""

import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

from coalmine import AuditResult, Claim, CosineNull, GaussianNull, MaxNull, Scores, audit_scores, terminal
from coalmine.drawing import WIDTH, Picture, sketch

COALMINE = Path(sys.executable).with_name("coalmine")
ESCAPE = "\x1b["
BLOCKS = "▁▂▃▄▅▆▇█"


def normals(count, mean=0.0):
    return ndtri((np.arange(count) + 0.5) / count) + mean


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A score file, and what `print` says about its audit."""
    path = tmp_path_factory.mktemp("terminal") / "scores.csv"
    columns = np.column_stack([normals(200, 4.0), normals(200)])
    np.savetxt(path, columns, delimiter=",", header="inserted,held_out", comments="")
    result = audit_scores(Scores.from_csv(path), delta=1e-5, claim=Claim(1.0, 1e-5))
    assert result.verdict.word == "VIOLATED"
    return path, str(result)


def environment(**changes):
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "COLORTERM")
    }
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **changes}


def words(path):
    return [COALMINE, "estimate", str(path), "--delta", "1e-5", "--claim", "1", "--quiet"]


def on_a_terminal(command, columns=100, **changes):
    """(exit code, what the terminal received)."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment(**changes), close_fds=True
    ) as child:
        os.close(theirs)
        received = b""
        while select.select([ours], [], [], 120)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            received += part
        errors = child.stderr.read().decode()
    os.close(ours)
    assert "Traceback" not in errors, errors
    return child.returncode, received.decode("utf-8").replace("\r\n", "\n")


def piped(command, encoding="utf-8", **changes):
    done = subprocess.run(command, capture_output=True, env=environment(**changes), timeout=300)
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stdout.decode(encoding)


def without_codes(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_terminal_gets_colour_a_symbol_and_a_sketch(stored):
    path, plain = stored
    code, shown = on_a_terminal(words(path))
    assert code == 1
    first, *rest = shown.splitlines()
    assert re.match(r"\x1b\[[0-9;]*31m✗ VIOLATED\x1b\[0m  ", first)  # 31 is red
    assert ESCAPE not in "".join(rest)
    assert without_codes(shown).removeprefix("✗ ").startswith(plain)
    drawn = rest[-6:]
    assert "held out" in drawn[1] and "inserted" in drawn[3] and "▲" in drawn[4] and "▲ claim" in drawn[5]
    assert all(set(line) & set(BLOCKS) for line in drawn[:4])
    assert max(map(len, drawn)) <= 60


def test_a_pipe_gets_what_print_says(stored):
    path, plain = stored
    assert piped(words(path)) == (1, plain + "\n")


def test_nobody_at_the_other_end_is_no_traceback(stored):
    path, _ = stored
    for end in ("| true", ">&-"):
        command = " ".join(map(str, words(path))) + " " + end
        done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment(), timeout=300)
        assert "Traceback" not in done.stderr and "internal error" not in done.stderr, done.stderr


def test_no_colour_leaves_the_sketch(stored):
    path, _ = stored
    _, shown = on_a_terminal(words(path), NO_COLOR="1")
    assert "\x1b" not in shown
    assert set(shown) & set(BLOCKS) and shown.startswith("✗ VIOLATED  ")


def test_an_empty_no_color_is_none(stored):
    path, _ = stored
    assert ESCAPE in on_a_terminal(words(path), NO_COLOR="")[1]


def test_colour_may_be_forced_into_a_pipe_but_no_sketch(stored):
    path, plain = stored
    _, shown = piped(words(path), FORCE_COLOR="1")
    assert ESCAPE in shown and not set(shown) & set(BLOCKS)
    assert without_codes(shown) == f"✗ {plain}\n"
    assert "\x1b" not in piped(words(path), FORCE_COLOR="1", NO_COLOR="1")[1]


@pytest.mark.parametrize("name", ["dumb", "DUMB", "unknown"])
def test_a_dumb_terminal_gets_plain_text(stored, name):
    path, plain = stored
    assert on_a_terminal(words(path), TERM=name) == (1, plain + "\n")


def test_a_terminal_without_unicode_gets_colour_and_no_sketch(stored):
    path, plain = stored
    _, shown = on_a_terminal(words(path), PYTHONIOENCODING="ascii")
    assert ESCAPE in shown and without_codes(shown) == plain + "\n"


def test_a_narrow_terminal_gets_no_sketch(stored):
    path, _ = stored
    assert not set(on_a_terminal(words(path), columns=59)[1]) & set(BLOCKS)
    assert set(on_a_terminal(words(path), columns=60)[1]) & set(BLOCKS)


def test_from_python_print_has_the_sketch_and_show_the_colour_too(stored):
    path, plain = stored
    script = (
        "from coalmine import Claim, Scores, audit_scores\n"
        f"result = audit_scores(Scores.from_csv({str(path)!r}), delta=1e-5, claim=Claim(1.0, 1e-5))\n"
        "{}"
    )
    assert piped([sys.executable, "-c", script.format("print(result)")]) == (0, plain + "\n")
    assert on_a_terminal([sys.executable, "-c", script.format("print(result)")], TERM="dumb") == (0, plain + "\n")
    _, printed = on_a_terminal([sys.executable, "-c", script.format("print(result)")])
    assert printed.startswith(plain) and set(printed) & set(BLOCKS) and ESCAPE not in printed
    _, shown = on_a_terminal([sys.executable, "-c", script.format("result.show()")])
    assert ESCAPE in shown and set(shown) & set(BLOCKS)
    assert piped([sys.executable, "-c", script.format("result.show()")]) == (0, plain + "\n")


def test_letters_that_a_pipe_cannot_hold_are_spelled():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal.show("accuracy 43.1 ± 0.2%, ε ≥ 1, naïve", file=file)
    assert file.buffer.getvalue() == b"accuracy 43.1 +/- 0.2%, epsilon >= 1, na?ve\n"


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_names_from_files_do_not_steer_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    terminal.show("VIOLATED  view: \x1b[2J\x07\x9b31m\u202e\r\nnext", word="VIOLATED", file=screen)
    assert screen.getvalue() == "✗ VIOLATED  view: \\x1b[2J\\x07\\x9b31m\\u202e\\r\nnext\n"


def test_a_run_without_an_audit_is_plain(capsys):
    terminal.show("training      6 rounds")
    assert capsys.readouterr().out == "training      6 rounds\n"


# the sketch

HARD = {
    "one canary": Scores.of([0.3], dim=400),
    "far away": Scores.of(normals(50, 700.0), normals(50)),
    "huge": Scores.of([1e308, -1e308], [1e307, -1.7e308, 3.0]),
    "ties": Scores.of(np.zeros(9), np.zeros(9)),
    "maximum": Scores.of(normals(50, 4.0) / 100, null=MaxNull(CosineNull(10_000), 30)),
}


@pytest.mark.parametrize("name", HARD)
def test_every_result_can_be_drawn(name):
    result = audit_scores(HARD[name], delta=1e-5, claim=Claim(3.0, 1e-5))
    lines = sketch(result.picture)
    assert 4 <= len(lines) <= 6
    assert all(len(line) <= WIDTH == 60 for line in lines)
    assert any("inserted" in line and set(line) & set(BLOCKS) for line in lines)


def test_one_score_is_seen_among_thousands():
    lines = sketch(Picture(range(49), {"inserted": [100_000] + [0] * 46 + [1]}))
    assert lines[1] == "  inserted  █" + " " * 46 + "▁"


def test_heights_are_shares_of_the_highest():
    upper, lower, *_ = sketch(Picture(range(5), {"row": [16, 8, 4, 12]}))
    assert (upper[12:], lower[12:]) == ("█  ▄", "██▄█")


def test_more_bins_than_columns_are_put_together():
    lines = sketch(Picture(range(1001), {"row": [1] * 1000}))
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("picture", [Picture((), {}), Picture((1.0,), {"row": ()}), Picture((0.0, 1.0), {"row": (0,)})])
def test_nothing_is_no_picture(picture):
    assert sketch(picture) == []


def test_the_claim_is_marked_where_the_inserted_scores_would_be():
    """A claim of epsilon 4.3772 at delta 1e-5 is a gap of one standard deviation, six columns of 48 between -4 and 4."""
    marked = audit_scores(Scores.of(normals(99), null=GaussianNull()), delta=1e-5, claim=Claim(4.3775, 1e-5)).picture
    assert marked.mark == pytest.approx(1.0, abs=1e-3)
    line = sketch(marked)[-2][12:]
    assert line.index("▲") == 24 + 6
    assert line[24] == "┼"  # zero


@pytest.mark.parametrize("name", ["maximum", "one of each"])
def test_nothing_is_marked_where_no_shift_is_expected(name):
    scores = HARD["maximum"] if name == "maximum" else Scores.of([1.0], [0.0])
    assert audit_scores(scores, delta=1e-5, claim=Claim(3.0, 1e-5)).picture.mark is None


def test_an_infinite_claim_and_a_far_one_have_no_mark():
    def lines(epsilon):
        return sketch(audit_scores(Scores.of(normals(99), null=GaussianNull()), delta=1e-5, claim=Claim(epsilon, 1e-5)).picture)

    assert "▲" not in "".join(lines(float("inf"))) + "".join(lines(1e4))


def test_the_null_law_is_drawn_where_nothing_was_held_out():
    result = audit_scores(Scores.of(normals(99), null=GaussianNull()), delta=1e-5)
    assert list(result.picture.rows) == ["null law", "inserted"]
    assert sum(result.picture.rows["null law"]) == pytest.approx(99, rel=1e-3)
    assert list(audit_scores(HARD["maximum"], delta=1e-5).picture.rows) == ["inserted"]


def test_a_result_from_a_file_is_drawn_the_same():
    result = audit_scores(HARD["far away"], delta=1e-5, claim=Claim(3.0, 1e-5))
    assert sketch(AuditResult.from_json(result.to_json()).picture) == sketch(result.picture)
