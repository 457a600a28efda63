"""Correlated noise on the command line: pinned keys and options, and what does not go together."""

import json

import pytest
from pytest import approx
from typer.testing import CliRunner

from coalmine.cli import app

KEYS = {"epsilon", "noise_multiplier", "sensitivity", "rms_error", "max_error", "memory_vectors"}
LONG = ("--rounds", "2048", "--separation", "256", "--participations", "8", "--delta", "1e-5")


def told(*words):
    found = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.mark.parametrize(
    ("words", "sensitivity", "rms", "largest", "vectors"),
    [
        (("independent",), 2.828427, None, None, 0),
        (("toeplitz", "--damping", "0.01"), 2.850559, 3.539119 * 1.461807, 4.772192 * 1.461807, 2048),
        (("toeplitz",), 4.115574, 3.330517, 3.493229, 2048),
        (("banded", "--bands", "16"), 2.828427, 8.626950, 11.914879, 15),
        (("banded", "--bands", "16", "--objective", "max"), 2.828427, 8.656836, 11.883075, 15),
        (("blt", "--buffers", "2"), None, None, None, 2),
    ],
)
def test_account_states_a_strategy(words, sensitivity, rms, largest, vectors):
    found = told("account", "--strategy", *words, *LONG, "--noise-multiplier", "4")
    assert set(found) >= KEYS and found["noise_multiplier"] == 4 and found["memory_vectors"] == vectors
    for name, value in (("sensitivity", sensitivity), ("rms_error", rms), ("max_error", largest)):
        assert value is None or found[name] == approx(value, rel=1e-5)
    assert found["loss"] == approx(found["sensitivity"] * found["rms_error"])
    back = told("account", "--strategy", *words, *LONG, "--epsilon", str(found["epsilon"]))
    assert back["noise_multiplier"] == approx(4, rel=1e-6) and back["epsilon"] == approx(found["epsilon"])


@pytest.mark.parametrize(("honaker", "rms"), [("none", 5.297), ("below", 4.151), ("full", 2.810)])
def test_account_states_trees(honaker, rms):
    words = ("--rounds", "128", "--noise-multiplier", "1", "--delta", "1e-5")
    found = told("account", "--strategy", "tree", "--honaker", honaker, *words)
    assert found["sensitivity"] == approx(1) and found["rms_error"] == approx(rms, abs=1e-3)


def test_stated_zcdp():
    assert told("account", "--zcdp", "0.81", "--delta", "1e-10")["epsilon"] == approx(8.548917, abs=1e-6)
    assert told("account", "--zcdp", "1.86", "--delta", "1e-10")["epsilon"] == approx(13.688308, abs=1e-6)


def test_more_participations_than_fit_are_counted_as_many_as_fit_and_that_is_said():
    words = (
        "account",
        "--strategy",
        "banded",
        "--rounds",
        "64",
        "--separation",
        "8",
        "--noise-multiplier",
        "1",
        "--delta",
        "1e-5",
    )
    found = CliRunner().invoke(app, [*words, "--participations", "9", "--json"], catch_exceptions=False)
    assert "room for 8 participations that are at least 8 apart. Accounted for 8, not for 9." in found.stderr
    assert json.loads(found.stdout) == told(*words, "--participations", "8") and json.loads(found.stdout)["participations"] == 8
    assert "note" not in CliRunner().invoke(app, [*words, "--participations", "8"]).stderr


def test_more_bands_than_rounds_between_participations_cost_what_is_said():
    words = ("account", "--strategy", "banded", "--rounds", "128", "--separation", "8", "--delta", "1e-5")
    found = CliRunner().invoke(app, [*words, "--bands", "16", "--noise-multiplier", "1", "--json"], catch_exceptions=False)
    cost = json.loads(found.stdout)["sensitivity"] / 16**0.5 - 1
    assert cost > 0.2 and f"the sensitivity is {cost:.0%} above the root of 16" in found.stderr
    enough = CliRunner().invoke(app, [*words, "--bands", "8", "--noise-multiplier", "1"], catch_exceptions=False)
    assert "note" not in enough.stderr


def test_buffers_that_stand_for_toeplitz_noise_say_how_near_they_are():
    words = ("account", "--strategy", "toeplitz", "--damping", "0.00197", "--buffers", "5", *LONG, "--noise-multiplier", "4")
    found = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    numbers = json.loads(found.stdout)
    assert numbers["memory_vectors"] == 5 and numbers["loss"] == approx(11.49757, rel=1e-3)
    assert "5 buffers stand for all 2048 rounds. Coefficients differ by at most 2.3" in found.stderr


def test_plan_compares_strategies_and_draws_them(tmp_path):
    picture = tmp_path / "strategies.svg"
    words = ("plan", "--strategy", "all", "--rounds", "64", "--separation", "8", "--dim", "1000", "--picture", str(picture))
    rows = told(*words, "--claim", "8", "--delta", "1e-5")["strategies"]
    assert list(rows) == ["independent", "toeplitz", "banded", "blt", "tree"]
    assert rows["independent"]["loss"] > rows["toeplitz"]["loss"] > rows["blt"]["loss"] > rows["banded"]["loss"]
    needed = {row["noise_multiplier"] / row["sensitivity"] for row in rows.values()}
    assert max(needed) == approx(min(needed)), "the same epsilon"
    assert picture.read_text().count("<svg") == 1
    shown = CliRunner().invoke(app, [*words])
    assert "8 times, 8 rounds apart" in shown.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("account", "--strategy", "banded", "--epsilon", "8", "--delta", "1e-5"), "needs --rounds"),
        (("account", "--bands", "4", "--epsilon", "8", "--delta", "1e-5"), "--bands belongs to --strategy"),
        (("account", "--strategy", "blt", "--rounds", "9", "--delta", "1e-5"), "--noise-multiplier or --epsilon"),
        (
            ("account", "--strategy", "blt", "--rounds", "9", "--separation", "0", "--epsilon", "1", "--delta", "1e-5"),
            "separation",
        ),
        (("account", "--zcdp", "1", "--epsilon", "3", "--delta", "1e-5"), "--zcdp goes with --delta"),
        (("account", "--zcdp", "1", "--strategy", "banded", "--delta", "1e-5"), "--strategy means nothing beside it"),
        (("account", "--zcdp", "1", "--rounds", "9", "--delta", "1e-5"), "--rounds means nothing beside it"),
        (
            ("account", "--strategy", "blt", "--rounds", "9", "--honest", "3", "--epsilon", "1", "--delta", "1e-5"),
            "--honest means nothing beside --strategy",
        ),
        (
            ("account", "--strategy", "blt", "--rounds", "9", "--noise-multiplier", "nan", "--delta", "1e-5"),
            "noise_multiplier is NaN",
        ),
        (
            ("account", "--strategy", "blt", "--rounds", "9", "--groups", "3", "--epsilon", "1", "--delta", "1e-5"),
            "--sampling-rate",
        ),
        (
            (
                "account",
                "--strategy",
                "banded",
                "--rounds",
                "1000000",
                "--bands",
                "1000000",
                "--epsilon",
                "1",
                "--delta",
                "1e-5",
            ),
            "at most 100,000",
        ),
        (
            ("account", "--strategy", "toeplitz", "--rounds", "1000000000", "--epsilon", "1", "--delta", "1e-5"),
            "at most 100,000",
        ),
        (("plan",), "--claim and --delta"),
        (("plan", "--strategy", "all", "--rounds", "9", "--claim", "3"), "belong together"),
    ],
)
def test_options_that_do_not_go_together(words, message):
    with pytest.raises(ValueError, match=message):
        CliRunner().invoke(app, [*words], catch_exceptions=False)
