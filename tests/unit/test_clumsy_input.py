"""What a clumsy user types: numbers that would take all memory or all day, and files in the way."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import coalmine
from coalmine import _validate, cli, manifest, models
from coalmine._random import stream
from coalmine.accounting.claims import calibrate_noise, plain_gaussian
from coalmine.accounting.events import event_of
from coalmine.cli import options
from coalmine.cli.strategies import patience
from coalmine.errors import CoalmineError, RunDirectoryError
from coalmine.estimators.lifted_plan import plan_lifted
from coalmine.estimators.power import Design, best_guesses, plan
from coalmine.mechanisms import Gaussian
from coalmine.mechanisms.strategies import Plan, make_strategy
from coalmine.participation import ExamplePoisson, FixedSize, MinSeparation, Poisson
from coalmine.runs import RunDirectory
from coalmine.training.config import checked, read_config
from coalmine.training.work import contribute


@pytest.mark.parametrize("design", [Design(1_000_000_000), Design(10, 1_000_000_000)])
def test_a_plan_has_a_limit(design):
    with pytest.raises(ValueError, match="at most 1,000,000"):
        plan(3.0, delta=1e-6, design=design)


def test_guesses_of_many_coins_are_those_of_fewer():
    few, many = (best_guesses(count, 3.0, delta=1e-6)[0].total / count for count in (200_000, 1_000_000))
    assert few == many


@pytest.mark.parametrize("made", [lambda n: Poisson(0.5, n), lambda n: FixedSize(1, 9, n), lambda n: MinSeparation(2, 1, n)])
def test_rounds_have_a_limit(made):
    with pytest.raises(ValueError, match="at most 10,000,000"):
        made(10**12)
    assert made(_validate.MOST_ROUNDS).rounds == _validate.MOST_ROUNDS


def test_a_training_has_fewer_rounds_than_an_accountant(tmp_path):
    """A schedule of 10,000,000 rounds took minutes and gigabytes before the first one began."""
    with pytest.raises(ValueError, match=r"participation\.rounds=1000001 is not allowed.*at most 1,000,000"):
        coalmine.run("tiny", tmp_path / "run", set=["participation.rounds=1000001"], quiet=True)
    assert not (tmp_path / "run").exists()


def test_very_long_runs_are_accounted_without_a_grid():
    long = Poisson(0.5, 10_000_000)
    assert coalmine.claim(long, noise_multiplier=100.0, delta=1e-5).accountant.endswith("RDP")
    with pytest.raises(ValueError, match="use accountant='rdp'"):
        event_of(plain_gaussian(1.0), long, accountant="pld")


@pytest.mark.parametrize("clip_norm", [1e-30, 1e-13, 1e13, float("inf"), 0.0])
def test_clip_norms_that_single_precision_cannot_hold(clip_norm):
    with pytest.raises(ValueError, match="between 1e-12 and 1e\\+12"):
        Gaussian(clip_norm=clip_norm, noise_multiplier=1.0)


@pytest.mark.parametrize("kind", ["file", "fifo", "loop"])
def test_a_run_directory_that_is_none(tmp_path, kind):
    out = tmp_path / "out"
    {"file": out.touch, "fifo": lambda: os.mkfifo(out), "loop": lambda: out.symlink_to(out)}[kind]()
    with pytest.raises(RunDirectoryError, match="is not a directory"):
        RunDirectory.create(out, config="", secret_seed=1)


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_place_that_is_taken_is_refused_before_data_are_read(tmp_path, monkeypatch, repeats):
    monkeypatch.setattr("coalmine.training.running.load_task", lambda config: pytest.fail("data were read"))
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="is not a directory"):
        coalmine.run("tiny", tmp_path / "file", set=[f"run.repeats={repeats}"], quiet=True)
    with pytest.raises(RunDirectoryError, match="already exists and is not empty"):
        coalmine.run("tiny", tmp_path, set=[f"run.repeats={repeats}"], quiet=True)


class Forgetful(Gaussian):
    def client(self, update, public, examples=1):
        super().client(update, public, examples)  # and the result is forgotten


class Halved(Gaussian):
    def client(self, update, public, examples=1):
        return super().client(update[::2], public, examples)


@pytest.mark.parametrize(("kind", "said"), [(Forgetful, "gave None"), (Halved, "shape \\(2,\\)")])
def test_a_mechanism_that_returns_nothing_is_told_so(kind, said):
    mechanism = kind(clip_norm=1.0, noise_multiplier=1.0)
    public = mechanism.announce(mechanism.init(4), 0, 1.0)
    with pytest.raises(CoalmineError, match=said):
        contribute(mechanism, np.ones(4, dtype=np.float32), public, 1, None)


def test_the_package_runs_as_a_module():
    found = subprocess.run([sys.executable, "-m", "coalmine", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("coalmine ")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interruption_before_anything_was_begun(tmp_path):
    script = "import coalmine.cli.options as o, sys\n"
    script += "def interrupted(*_):\n    raise KeyboardInterrupt\n"
    script += "o.run_config = interrupted\nsys.argv = ['coalmine', 'run', 'tiny']\n"
    script += "from coalmine.__main__ import main\nmain()\n"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 130
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("mechanism.noise=1", "did you mean 'noise_multiplier'"),
        ("run.workers=100000", "less than or equal to 1024"),
        ("run.repeats=1000000000", "less than or equal to 10000"),
        ("privacy.delta=0", "greater than 0"),
        ("client.learning_rate=1e300", "less than or equal to 3"),
        ("client.epochs=1000000000", "less than or equal to 10000"),
        ("participation.round=3", "did you mean 'rounds'"),
    ],
)
def test_configurations_that_are_refused_before_anything_is_read(change, said):
    with pytest.raises(ValueError, match=said):
        read_config("tiny", ["mechanism.kind=adaptive", change])


@pytest.mark.parametrize(
    "made",
    [
        lambda: models.mlp(shape=4, classes=2, hidden=[1] * 1001),
        lambda: models.mlp(shape=4, classes=2, hidden="32"),
        lambda: models.text_classifier(vocabulary=50, layers=10**9),
        lambda: models.chat_lstm(vocabulary=50, layers=10**9),
        lambda: models.gpt(vocabulary=50, layers=10**9),
    ],
)
def test_models_have_at_most_a_thousand_layers(made):
    """Ten thousand took minutes before the first round, with no word."""
    with pytest.raises(ValueError, match="at most 1,000"):
        made()


def test_an_unknown_key_of_an_optional_section():
    for change in ("canary_users=1000000000", "epochs=1e9", "reference_steps=1000000000", "attack_texts=1000000"):
        with pytest.raises(ValueError, match="less than or equal to"):
            read_config("infer-chat", [f"inference.{change}"])
    data = read_config("infer-chat").model_dump(mode="json", exclude_none=True)
    data["inference"]["epoch"] = 3
    with pytest.raises(ValueError, match=r"unknown key 'inference\.epoch', did you mean 'epochs'"):
        checked(data)


@pytest.mark.parametrize("verb", [["plan", "--claim", "3"], ["account", "--noise-multiplier", "1"]])
def test_delta_zero_is_refused_where_it_is_said_to_be_excluded(verb, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["coalmine", *verb, "--delta", "0"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2 and "excluded" in capsys.readouterr().err


def test_a_model_larger_than_memory_is_one_message(monkeypatch, capsys):
    monkeypatch.setattr(cli, "app", lambda: torch.empty(2**60))
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 4 and "not enough memory" in capsys.readouterr().err


def test_an_estimate_that_fits_the_width_says_so():
    rng = stream(3, "wide scores")
    wide = coalmine.Scores.of(1 + 1.6 * rng.standard_normal(300), rng.standard_normal(300))
    result = coalmine.audit_scores(wide, delta=1e-5)
    said = next(each for each in result.caveats if each.code == "width-fitted")
    assert result.estimate.key == "gaussian-fitted" and "by the mean alone" in str(said)
    alike = coalmine.Scores.of(1 + rng.standard_normal(300), rng.standard_normal(300))
    plain = coalmine.audit_scores(alike, delta=1e-5)
    assert plain.estimate.key == "gaussian-mean" and not any(each.code == "width-fitted" for each in plain.caveats)


@pytest.mark.parametrize(
    ("name", "options", "plan"),
    [
        ("tree", {}, {"rounds": 10**12}),
        ("toeplitz", {}, {"rounds": 10**6}),
        ("banded", {"bands": 1000}, {"rounds": 100_000, "participations": 100, "separation": 1000}),
        ("blt", {}, {"rounds": 100_000, "participations": 100_000}),
    ],
)
def test_strategies_have_a_limit(name, options, plan):
    """Each took all memory or did not answer within a minute."""
    with pytest.raises(ValueError, match=r"at most (100,000|65,536)|not searched"):
        make_strategy(name, options, Plan(**plan))


def test_a_unit_of_too_many_examples_is_refused():
    with pytest.raises(ValueError, match="at most 1,000,000"):
        ExamplePoisson(0.01, 1000, 10**9)
    with pytest.raises(ValueError, match="fewer examples of a unit"):
        coalmine.claim(ExamplePoisson(0.01, 1000, 10**6), noise_multiplier=1.0, delta=1e-5)


def test_noise_of_examples_is_not_searched_from_too_far_away():
    """The answer was the noise without sampling, 10,000,000, after minutes."""
    with pytest.raises(ValueError, match="not searched"):
        calibrate_noise(ExamplePoisson(1e-9, 1_000_000, 10_000), epsilon=4.0, delta=1e-6)


def command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["coalmine", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


@pytest.fixture
def scores(tmp_path):
    path = tmp_path / "scores.csv"
    rng = stream(4, "clumsy")
    columns = np.column_stack([1 + rng.standard_normal(50), rng.standard_normal(50)])
    np.savetxt(path, columns, delimiter=",", header="inserted,held_out", comments="")
    return path


def test_a_result_never_replaces_what_is_not_a_file(tmp_path, scores):
    """`-o /dev/null` of the superuser put a file in the place of the device."""
    result = coalmine.audit_scores(coalmine.Scores.from_file(scores), delta=1e-5)
    pipe, real, link = tmp_path / "pipe", tmp_path / "real.json", tmp_path / "link.json"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    result.save(pipe)
    assert os.read(reader, 10).startswith(b"{") and pipe.is_fifo()
    os.close(reader)
    link.symlink_to(real)
    result.save(link)
    assert link.is_symlink() and coalmine.AuditResult.load(real).to_json() == result.to_json()


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="/dev/fd of POSIX")
def test_a_pipe_without_a_path_is_an_output():
    """`-o /dev/stdout | less` looked for a file with the name of the pipe."""
    read, write = os.pipe()
    manifest.put(f"/dev/fd/{write}", "whole")
    os.close(write)
    with os.fdopen(read) as file:
        assert file.read() == "whole"


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path, scores, monkeypatch, capsys):
    os.mkfifo(tmp_path / "pipe.json")
    assert command(monkeypatch, "estimate", str(scores), "--delta", "1e-5", "-o", str(tmp_path / "pipe.json")) == 4
    assert "a pipe that nobody reads" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "SCORES", "--delta", "1e-5", "-o", "PLACE"),
        ("report", "SCORES", "-o", "PLACE"),
        ("compare", "SCORES", "SCORES", "-o", "PLACE"),
        ("plan", "--strategy", "all", "--rounds", "8", "--picture", "PLACE"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("place", ["", "nowhere/result"])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(tmp_path, scores, monkeypatch, capsys, words, place):
    given = {"SCORES": str(scores), "PLACE": str(tmp_path / place)}
    assert command(monkeypatch, *(given.get(word, word) for word in words)) == 4
    said = capsys.readouterr().err
    assert "is a directory; name a file" in said or "there is no directory" in said


def test_a_confidence_that_rounding_turns_into_certainty(monkeypatch, scores, capsys):
    assert command(monkeypatch, "estimate", str(scores), "--delta", "1e-5", "--confidence", "0.9999999999999999") == 2
    assert "at most 1 - 1e-12" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--claim", "nan"), ("--delta", "1"), ("--canaries", "1000000000")])
def test_a_plan_is_not_begun_for_what_is_refused(monkeypatch, capsys, option):
    usual = {"--claim": "3", "--delta": "1e-6", "--canaries": "100"}
    assert command(monkeypatch, "plan", *(word for pair in {**usual, option[0]: option[1]}.items() for word in pair)) == 2
    assert "planning" not in capsys.readouterr().err


@pytest.mark.parametrize("confidence", [1e-300, 1e-13])
def test_a_confidence_of_nothing(confidence):
    """It ended in "a cannot be empty" of numpy."""
    with pytest.raises(ValueError, match="must be at least 1e-12"):
        plan(3.0, delta=1e-6, design=Design(100), confidence=confidence)


@pytest.mark.parametrize(
    "pattern", [Poisson(1e-300, 10), ExamplePoisson(1e-15, 10, 5), FixedSize(1, 10**9, 10), Poisson(1e-7, 100)]
)
def test_noise_is_not_searched_where_hardly_anybody_takes_part(pattern):
    """The search went on for ever towards noise of nothing."""
    with pytest.raises(ValueError, match="epsilon is 0 without any noise"):
        calibrate_noise(pattern, epsilon=4.0, delta=1e-5)


def test_many_runs_are_planned_within_memory():
    with pytest.raises(ValueError, match="together at most 10,000,000"):
        plan_lifted(4.0, delta=1e-5, runs=10**9, canaries=1000)


def test_a_stated_zcdp_has_a_limit(monkeypatch, capsys):
    assert command(monkeypatch, "account", "--zcdp", "1e308", "--delta", "1e-5") == 2
    assert "zcdp=1e+308 is not allowed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("plan", "bands", "said"),
    [
        (Plan(500, 10, 50), 500, True),
        (Plan(2000, 4, 500), None, True),
        (Plan(100, 10, 10), None, False),
    ],
)
def test_a_search_that_takes_long_is_announced(plan, bands, said):
    """500 bands of 500 rounds were searched for 13 s without a word."""
    assert bool(patience(plan, bands)) is said


def test_a_long_message_keeps_its_end(monkeypatch, scores, capsys):
    assert command(monkeypatch, "estimate", str(scores), "--delta", "1e-5", "--method", "x" * 100_000) == 2
    said = capsys.readouterr().err
    assert len(said) < 3_000 and "'band'" in said and "more characters" in said


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" + bytes(100), b"\x93NUMPY", bytes(100), None])
def test_gradients_in_a_file_that_is_no_archive(monkeypatch, tmp_path, capsys, content):
    """An empty file was "Aborted!" with the exit code of a violation, a pipe was waited for, and a damaged one our fault."""
    path = tmp_path / "gradients.npz"
    os.mkfifo(path) if content is None else path.write_bytes(content)
    assert command(monkeypatch, "account", "--gradients", str(path), "--delta", "1e-5") == 4
    said = capsys.readouterr().err
    assert "gradients.npz" in said and "internal" not in said and "allow_pickle" not in said


def test_the_end_of_a_file_is_no_interruption(monkeypatch, capsys):
    def ends(*_, **__):
        raise EOFError("No data left in file")

    monkeypatch.setattr(options, "two_of_three", ends)
    assert command(monkeypatch, "account", "--noise-multiplier", "1", "--delta", "1e-5") == 4
    assert "a file ends too early (No data left in file)" in capsys.readouterr().err
