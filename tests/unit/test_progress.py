"""Progress: shown on standard error only, about ten lines without a terminal, and never the reason why the work ends."""

import io
import sys

import pytest

from coalmine.progress import track


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Broken(io.StringIO):
    """A stream that fails whatever is asked of it."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, _):
        raise self.error

    def flush(self):
        raise self.error


class Unasked(io.StringIO):
    def isatty(self):
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 17, 99, 100, 101, 1000])
def test_about_ten_lines_without_a_terminal(count, capsys):
    assert list(track(range(count), "counting")) == list(range(count))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert min(count, 5) <= len(lines) <= 11
    assert lines[-1] == f"counting: {count} of {count}"
    assert len(set(lines)) == len(lines)


def test_an_item_is_counted_when_it_is_done(capsys):
    items = track([1, 2], "work")
    next(items)
    assert capsys.readouterr().err == ""
    next(items)
    assert capsys.readouterr().err == "work: 1 of 2\n"


def test_quiet_is_silent(capsys):
    assert list(track([1, 2, 3], "counting", quiet=True)) == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


def test_nothing_to_do_is_silent(capsys):
    assert list(track([], "counting")) == []
    assert capsys.readouterr() == ("", "")


def test_an_unknown_length_is_silent_unless_it_is_told(capsys):
    assert list(track(iter([1, 2]), "counting")) == [1, 2]
    assert capsys.readouterr() == ("", "")
    assert list(track(iter([1, 2]), "counting", total=2)) == [1, 2]
    assert capsys.readouterr().err == "counting: 1 of 2\ncounting: 2 of 2\n"


@pytest.mark.parametrize("total", [1, 2, 50])
def test_a_wrong_total_loses_no_item(total):
    assert list(track(iter(range(10)), "counting", total=total)) == list(range(10))


def test_a_bar_on_a_terminal(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert list(track(range(30), "counting")) == list(range(30))
    assert "counting" in terminal.getvalue()
    assert "30 of 30" not in terminal.getvalue()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("closed"), UnicodeError("no such letter")], ids=lambda e: str(e))
def test_a_broken_stream_does_not_end_the_work(monkeypatch, error):
    monkeypatch.setattr(sys, "stderr", Broken(error))
    assert list(track(range(20), "counting")) == list(range(20))


def test_a_terminal_that_breaks_does_not_end_the_work(monkeypatch):
    class BrokenTerminal(Broken, Terminal):
        pass

    monkeypatch.setattr(sys, "stderr", BrokenTerminal(OSError("gone")))
    assert list(track(range(20), "counting")) == list(range(20))


@pytest.mark.parametrize("stream", [None, Unasked()], ids=["none", "closed"])
def test_no_stream_at_all_does_not_end_the_work(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(track(range(20), "counting")) == list(range(20))


def test_an_error_of_the_work_is_passed_on(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())

    def work():
        yield 1
        raise ZeroDivisionError

    items = track(work(), "working", total=3)
    assert next(items) == 1
    with pytest.raises(ZeroDivisionError):
        next(items)


def test_leaving_early_is_fine(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    for item in track(range(100), "counting"):
        if item == 3:
            break
    assert item == 3
