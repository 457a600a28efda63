"""`coalmine account` for secure aggregation."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from coalmine.cli import app
from coalmine.errors import InputFileError

SETTING = ["account", "--water-filling", "--users", "50", "--examples", "1200", "--batch", "32", "--clip-norm", "10"]


def answer(*words):
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_two_of_floor_epsilon_and_delta():
    found = answer(*SETTING, "--floor", "0.01", "--rounds", "100", "--delta", "1e-4")
    assert found["epsilon"] == pytest.approx(1.1356371, abs=1e-7) and found["tighter_epsilon"] < found["epsilon"]
    theorem = answer(*SETTING, "--floor", "0.01", "--rounds", "100", "--delta", "1e-4", "--formula", "theorem4")
    assert theorem["epsilon"] == pytest.approx(2.4742231, abs=1e-7)
    back = answer(*SETTING, "--epsilon", "1.1356371", "--rounds", "100", "--delta", "1e-4")
    assert back["floor"] == pytest.approx(0.01, rel=1e-6)
    other = answer(*SETTING, "--epsilon", "1.1356371", "--rounds", "100", "--floor", "0.01")
    assert other["delta"] == pytest.approx(1e-4, rel=1e-5)


def test_text_names_the_assumptions():
    done = CliRunner().invoke(app, [*SETTING, "--floor", "1e-9", "--delta", "1e-4"])
    assert "floor too low" in done.output and "independent and secret" in done.output


def test_honest_and_surviving_clients():
    whole = answer("account", "--noise-multiplier", "2", "--delta", "1e-5")
    for survivors in (9, 10, 11):
        found = answer("account", "--noise-multiplier", "2", "--delta", "1e-5", "--honest", "10", "--survivors", str(survivors))
        assert found["noise_multiplier"] == pytest.approx(2 * math.sqrt(survivors / 10))
        assert (found["epsilon"] < whole["epsilon"]) == (survivors > 10)


def test_fewer_survivors_are_flagged():
    shared = ["account", "--noise-multiplier", "2", "--delta", "1e-5", "--honest", "10"]
    assert "fewer survivors than promised: 9 of 10" in answer(*shared, "--survivors", "9")["survivors"]
    assert "survivors" not in answer(*shared, "--survivors", "10")
    alone = answer("account", "--noise-multiplier", "2", "--delta", "1e-5", "--honest", "1")
    assert "local differential privacy" in alone["noise of clients"]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ([*SETTING, "--floor", "1", "--delta", "1e-4", "--noise-multiplier", "1"], "--noise-multiplier"),
        ([*SETTING, "--floor", "1", "--delta", "1e-4", "--sampling-rate", "0.1"], "--sampling-rate"),
        (["account", "--noise-multiplier", "1", "--delta", "1e-5", "--floor", "1"], "--floor"),
        (["account", "--noise-multiplier", "1", "--delta", "1e-5", "--formula", "tight"], "--formula"),
        (["account", "--gradients", "G.npz", "--epsilon", "1"], "--epsilon"),
        (["account", "--gradients", "G.npz", "--water-filling"], "--water-filling"),
    ],
)
def test_options_that_would_be_ignored_are_refused(words, option):
    with pytest.raises(ValueError, match=option):
        CliRunner().invoke(app, words, catch_exceptions=False)


@pytest.mark.parametrize("bad", [np.zeros((0, 3)), np.array([["a", "b"]]), np.eye(2) * 1j])
def test_files_without_real_numbers_are_refused(bad, tmp_path):
    np.savez(tmp_path / "G.npz", gradients=bad, user=np.zeros(len(bad), int))
    with pytest.raises(InputFileError, match="real numbers"):
        CliRunner().invoke(app, ["account", "--gradients", str(tmp_path / "G.npz")], catch_exceptions=False)


def test_gradients_of_a_file(tmp_path):
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(40, 5))
    gradients[0] = 0.0
    wide = np.hstack([gradients, np.zeros((40, 1))])
    wide[7, 5] = 1.0  # the only record with anything in the last coordinate
    np.savez(tmp_path / "G.npz", gradients=wide, user=np.repeat(np.arange(4), 10))
    found = answer("account", "--gradients", str(tmp_path / "G.npz"), "--batch", "5", "--delta", "1e-4")
    assert found["outside_span"] == 1 and found["largest_epsilon"] == "inf" and found["rank"] == 6
    assert found["leverages"][0] == 0.0 and found["leverages"][7] == pytest.approx(1.0)
    assert 0 < found["median_epsilon"] < 100 and found["examples"] == 10


def test_gradients_that_are_too_many_are_sketched_and_it_is_said(tmp_path, monkeypatch):
    from coalmine.cli import secure_aggregation

    np.savez(tmp_path / "G.npz", gradients=np.random.default_rng(1).normal(size=(40, 30)), user=np.arange(40) // 10)
    exact = answer("account", "--gradients", str(tmp_path / "G.npz"))
    monkeypatch.setattr(secure_aggregation, "LARGEST_SIDE", 20)
    monkeypatch.setattr(secure_aggregation, "_SKETCH", 10)
    found = answer("account", "--gradients", str(tmp_path / "G.npz"))
    assert found["sketch"] == 10 and exact["sketch"] is None
    assert found["largest_epsilon"] < exact["largest_epsilon"]
    assert "random directions" in CliRunner().invoke(app, ["account", "--gradients", str(tmp_path / "G.npz")]).output


def test_gradients_whose_users_nobody_names_are_refused(tmp_path):
    """Taken for those of one user they would have another epsilon."""
    np.savez(tmp_path / "G.npz", gradients=np.eye(4), owner=np.arange(4) // 2)
    with pytest.raises(InputFileError, match="no array 'user'"):
        CliRunner().invoke(app, ["account", "--gradients", str(tmp_path / "G.npz")], catch_exceptions=False)
    found = answer("account", "--gradients", str(tmp_path / "G.npz"), "--users-key", "owner")
    assert found["users"] == 2 and found["examples"] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["account", "--water-filling", "--floor", "1", "--delta", "1e-4"],
        [*SETTING, "--delta", "1e-4"],
        [*SETTING, "--floor", "1", "--delta", "1e-4", "--epsilon", "1"],
        ["account", "--noise-multiplier", "1", "--delta", "1e-5", "--survivors", "3"],
        ["account", "--epsilon", "1", "--delta", "1e-5", "--honest", "3"],
    ],
)
def test_what_does_not_go_together_is_one_message(words):
    with pytest.raises(ValueError, match=r"give exactly two|needs|need"):
        CliRunner().invoke(app, words, catch_exceptions=False)
