"""The command line as users meet it, clumsy ones included: exit codes, one JSON document, one message, never a traceback.

A few cases run as processes of their own, the others in this one through the same entry point.
"""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import jsonschema
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from pytest import approx

from coalmine import AuditResult, Scores, claim, cli, simulate_gaussian_mechanism
from coalmine.estimators import BOUNDS
from coalmine.participation import FixedSize, Once, Poisson, Repeated
from coalmine.result import schema

VERBS = [command.name or command.callback.__name__ for command in cli.app.registered_commands]
COALMINE = Path(sys.executable).with_name("coalmine")
DIM, COUNT = 10_000, 60
QUICK = ("--delta", "1e-5", "--dim", str(DIM))  # an exact null; cosines in DIM dimensions


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        """Standard output as exactly one JSON document."""
        return json.loads(self.out, parse_constant=lambda word: pytest.fail(word))

    def failed(self, code, *words):
        """One message on standard error, nothing on standard output."""
        assert (self.code, self.out) == (code, "")
        assert "Traceback" not in self.err
        message = " ".join(self.err.split())
        assert all(word in message for word in words), message
        return True


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["coalmine", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return Outcome(stopped.value.code, *capsys.readouterr())

    return run


def process(*arguments, cwd):
    done = subprocess.run([COALMINE, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Score files of one simulated release with noise 0.5, in every format and layout, and files of other kinds."""
    folder = tmp_path_factory.mktemp("scores")
    scores = simulate_gaussian_mechanism(DIM, COUNT, 0.5, seed=1, held_out=COUNT)
    inserted, others = scores.inserted_values, scores.held_out_values
    long = "".join(f"{value!r},{int(truth)}\n" for value, truth in zip(scores.value.tolist(), scores.inserted, strict=True))
    two = "".join(f"{a!r},{b!r}\n" for a, b in zip(inserted.tolist(), others.tolist(), strict=True))
    runs = "".join(f"{float(value)!r},{number % 2},{number // 12}\n" for number, value in enumerate(np.linspace(0, 1, 120)))
    texts = {
        "long.csv": "value,inserted\n" + long,
        "two.csv": "inserted,held_out\n" + two,
        "long.tsv": ("value,inserted\n" + long).replace(",", "\t"),
        "alone.csv": "inserted\n" + "".join(f"{value!r}\n" for value in inserted.tolist()),
        "runs.csv": "value,inserted,run\n" + runs,
        "nan.csv": "value,inserted\nnan,1\n0.1,0\n",
        "text.csv": "value,inserted\nmuch,1\n",
        "header.csv": "value,inserted\n",
        "wrong.csv": "score_of_canary,member\n1,2\n",
        "ragged.csv": "value,inserted\n0.1,1\n0.2\n",
        "nobody.csv": "value,inserted\n0.1,0\n0.2,0\n",
        "empty.csv": "",
        "empty.npz": "",
        "empty.parquet": "",
        "scores.json": "{}",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    for ending in ("csv", "npz", "parquet", "json"):
        (folder / f"garbage.{ending}").write_bytes(bytes(range(256)) * 16)
    np.savez(folder / "columns.npz", value=scores.value, inserted=scores.inserted)
    np.savez(folder / "two.npz", inserted=inserted, held_out=others)
    np.save(folder / "array.npy", scores.value)
    scores.save(folder / "saved.npz")
    table = pyarrow.table({"value": scores.value, "inserted": scores.inserted})
    pyarrow.parquet.write_table(table, folder / "columns.parquet")
    return folder


@pytest.fixture(scope="module")
def result(folder):
    """A stored result of an audit without a claim."""
    path = folder / "result.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["coalmine", "estimate", str(folder / "long.csv"), *QUICK, "-o", str(path)])
        with pytest.raises(SystemExit):
            cli.main()
    return path


# processes of their own


def test_help_loads_little():
    """So that it is there at once. Counted is what would make it slow: a time depends on what else the machine does."""
    code = "import sys; from coalmine.cli import main; sys.argv = ['coalmine', '--help']; main()"
    shown = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, timeout=300)
    loaded = {line.rpartition("|")[2].strip() for line in shown.stderr.splitlines() if line.startswith("import time:")}
    assert shown.returncode == 0 and all(verb in shown.stdout for verb in VERBS)
    assert {"typer", "coalmine.cli"} <= loaded
    slow = {"numpy", "scipy", "torch", "pydantic", "rich", "matplotlib", "jinja2", "pyarrow", "sklearn", "dp_accounting"}
    assert not {name.partition(".")[0] for name in loaded} & slow
    assert len(loaded) < 400  # of numpy alone there are more than a hundred


def test_zero_consistent_with_one_json_document(folder):
    shown = process("estimate", "long.csv", *QUICK, "--noise-multiplier", 0.5, "--json", cwd=folder)
    assert (shown.code, shown.err) == (0, "")
    jsonschema.validate(shown.json, schema())
    assert shown.json["verdict"]["word"] == "CONSISTENT"
    assert AuditResult.from_json(shown.out).to_json() == shown.out


def test_one_violated(folder):
    shown = process("estimate", "long.csv", *QUICK, "--noise-multiplier", 3, cwd=folder)
    assert (shown.code, shown.err) == (1, "")
    assert shown.out.startswith("VIOLATED")


def test_two_usage(folder):
    assert process("estimate", "long.csv", "--delta", "nan", cwd=folder).failed(2, "coalmine: delta is NaN")


def test_three_inconclusive(folder):
    held_out = process("estimate", "two.csv", "--delta", "1e-5", "-o", "sampled.json", cwd=folder)
    assert held_out.code == 0
    shown = process("check", "sampled.json", "--max-epsilon", 5, cwd=folder)
    assert shown.code == 3 and shown.err.startswith("notice: unverified")
    assert shown.out.startswith("INCONCLUSIVE: the 95% interval of the estimate,")
    assert "lies wholly above the 5 claimed" in shown.out and "even perfect separation would show only" in shown.out


def test_four_broken_input(folder):
    assert process("check", "garbage.json", "--max-epsilon", 1, cwd=folder).failed(4, "cannot read 'garbage.json'")


def test_progress_is_on_standard_error_and_does_not_depend_on_the_workers(folder, run):
    shown = process("reproduce", "table1", "--simulations", 2, "--json", cwd=folder)
    assert shown.code in (0, 1)  # two simulations may miss a check
    lines = shown.err.splitlines()
    assert 5 <= sum(line.startswith("table 1: ") for line in lines) <= 11
    assert all(line.startswith(("table 1", "figure 4", "wrote")) for line in lines)
    assert len(shown.json["cells"]) == 24 and set(shown.json["worst_z"]) == {"mean", "fitted"}
    alone = run("reproduce", "table1", "--simulations", 2, "--json", "--workers", 1, "--quiet", "--out", folder / "alone")
    assert (alone.code, alone.err) == (shown.code, "")
    numbers = ("cells", "worst_z", "rows", "figure4")
    assert [alone.json[name] for name in numbers] == [shown.json[name] for name in numbers]


def test_standard_output_that_nobody_reads_is_no_traceback(folder):
    command = subprocess.Popen(
        [COALMINE, "account", "--noise-multiplier", "1", "--delta", "1e-5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    command.stdout.close()
    assert "Traceback" not in command.stderr.read()
    command.stderr.close()
    command.wait()


@pytest.mark.slow
def test_the_self_test_passes(run):
    shown = run("selftest", "--json")
    assert shown.code == 0
    assert shown.json["passed"] is True
    assert all(item["passed"] and item["name"] and item["seen"] for item in shown.json["checks"])
    assert shown.err.splitlines()[-1].startswith("self-test: ")


# help


def test_the_list_of_verbs_is_not_cut(run):
    listed = run("--help").out.partition("Commands:")[2].strip().splitlines()
    assert len(listed) >= 18 and not any(line.endswith("...") for line in listed)


def test_no_verb_is_a_usage_error_with_help(run):
    shown = run()
    assert shown.code == 2
    assert all(verb in shown.out + shown.err for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_and_the_common_options(run, verb):
    shown = run(verb, "--help")
    assert (shown.code, shown.err) == (0, "")
    assert f"coalmine {verb}" in shown.out.split("Example", 1)[1]
    assert "--json" in shown.out and "--quiet" in shown.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], ["nonsense"]),
        (["--nonsense"], ["--nonsense"]),
        (["estimate"], ["scores"]),
        (["estimate", "long.csv"], ["--delta"]),
        (["estimate", "long.csv", "--delta", "small"], ["--delta"]),
        (["estimate", "long.csv", "two.csv", "--delta", "1e-5"], ["two.csv"]),
        (["estimate", "long.csv", "--delta", "1e-5", "--dim", "2.5"], ["--dim"]),
        (["plan"], ["--claim"]),
        (["plan", "--claim", "3"], ["--delta"]),
        (["check"], ["result"]),
        (["check", "result.json"], ["--max-epsilon"]),
        (["reproduce"], ["table1", "--list"]),
        (["selftest", "--fast"], ["--fast"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_the_command_line_itself_refuses(run, arguments, words):
    assert run(*arguments).failed(2, *words)


# estimate


@pytest.mark.parametrize("name", ["long.csv", "two.csv", "long.tsv", "columns.npz", "two.npz", "columns.parquet"])
def test_every_format_and_layout_gives_the_same_result(run, folder, name):
    expected = run("estimate", folder / "long.csv", "--delta", "1e-5", "--json")
    found = run("estimate", folder / name, "--delta", "1e-5", "--json")
    assert (found.code, found.err) == (0, "")
    assert found.json == expected.json
    assert found.json["setting"]["held_out"] == COUNT


def test_a_saved_table_knows_its_null_and_its_game(run, folder):
    found = run("estimate", folder / "saved.npz", "--delta", "1e-5", "--json").json
    assert found["design"]["held_out"] is None and found["setting"]["dim"] == DIM
    assert found["game"]["knowledge"] == "rounds known"
    wrong = ("--noise-multiplier", 0.5, "--participations", 2)
    shown = run("estimate", folder / "saved.npz", "--delta", "1e-5", *wrong)
    assert shown.failed(2, "participation: '2 times' against 'once'")


def test_scores_without_others_need_a_dimension(run, folder):
    assert run("estimate", folder / "alone.csv", "--delta", "1e-5").failed(4, "nothing to compare", "dim=...")
    found = run("estimate", folder / "alone.csv", *QUICK, "--json")
    assert found.code == 0
    assert found.json["design"] == {"inserted": COUNT, "held_out": None, "slack": 0.0, "pool": COUNT, "directions": None}


def test_the_text_for_people(run, folder):
    shown = run("estimate", folder / "long.csv", *QUICK, "--claim", 8)
    lines = shown.out.splitlines()
    assert (shown.code, shown.err) == (0, "")
    assert lines[0].split()[0] in ("CONSISTENT", "INCONCLUSIVE")
    assert "epsilon = 8 at delta = 1e-05 (stated)" in shown.out
    assert 9 <= len(lines) <= 14


def test_inconclusive_is_a_failure_of_check_only(run, folder):
    shown = run("estimate", folder / "two.csv", "--delta", "1e-5", "--claim", 8, "--json")
    assert (shown.code, shown.json["verdict"]["word"]) == (0, "INCONCLUSIVE")


def test_the_first_method_decides_and_others_are_shown(run, folder):
    methods = [name for name in BOUNDS if name != "lifted"]
    options = [part for name in ["gdp", *methods] for part in ("--method", name)]
    found = run("estimate", folder / "long.csv", "--delta", "1e-5", "--assignment", "coins", *options, "--json").json
    assert found["method"] == "gdp"
    assert len(found["bounds"]) == len(methods)
    assert "Gaussian trade-off" in found["bounds"][0]["method"]
    assert found["setting"]["assignment"] == "coins"


def test_several_runs(run, folder):
    found = run("estimate", folder / "runs.csv", "--delta", "1e-5", "--method", "lifted", "--json")
    assert (found.code, found.json["method"]) == (0, "lifted")


def test_the_maximum_over_rounds_has_a_bound(run, folder):
    found = run("estimate", folder / "alone.csv", *QUICK, "--max-over-rounds", 20, "--json").json
    assert found["estimates"] == []
    assert found["design"]["slack"] == approx(math.log(20))


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ([], Once()),
        (["--participations", "3"], Repeated(3)),
        (["--sampling-rate", "0.5", "--rounds", "2"], Poisson(0.5, 2)),
    ],
    ids=str,
)
def test_the_claim_of_a_mechanism(run, folder, options, pattern):
    found = run("estimate", folder / "long.csv", *QUICK, "--noise-multiplier", 9, *options, "--json").json
    expected = claim(pattern, noise_multiplier=9.0, delta=1e-5)
    assert found["claim"]["epsilon"] == approx(expected.epsilon)
    assert found["claim"]["game"]["participation"]["text"] == str(pattern)


def test_confidence_is_passed_on(run, folder):
    low, high = (run("estimate", folder / "long.csv", *QUICK, "--confidence", level, "--json").json for level in (0.5, 0.999))
    assert low["bounds"][0]["epsilon"] > high["bounds"][0]["epsilon"]
    assert (low["estimates"][0]["confidence"], high["bounds"][0]["confidence"]) == (0.5, 0.999)


def test_the_output_file_is_what_json_shows(run, folder, tmp_path):
    shown = run("estimate", folder / "long.csv", *QUICK, "--output", tmp_path / "out.json", "--json", "--quiet")
    assert (tmp_path / "out.json").read_text() == shown.out


@pytest.mark.parametrize("where", ["no/such/folder/out.json", "."])
def test_an_output_that_cannot_be_written(run, folder, tmp_path, where):
    assert run("estimate", folder / "long.csv", *QUICK, "-o", tmp_path / where).failed(4, "coalmine: ", "directory")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--delta", "1"], ["delta=1.0 is not allowed", "at least 0 and below 1"]),
        (["--delta", "-1"], ["delta=-1.0 is not allowed"]),
        (["--delta", "nan"], ["delta is NaN"]),
        (["--delta", "inf"], ["delta=inf"]),
        (["--delta", "1e-5", "--confidence", "95"], ["confidence=95.0", "for 95 percent write 0.95"]),
        (["--delta", "1e-5", "--confidence", "nan"], ["confidence is NaN"]),
        (["--delta", "1e-5", "--confidence", "0"], ["confidence=0.0"]),
        (["--delta", "1e-5", "--method", "magic"], ["method='magic'", *(repr(name) for name in BOUNDS)]),
        (["--delta", "1e-5", "--method", "band", "--method", "magic"], ["method='magic'"]),
        (["--delta", "1e-5", "--dim", "1"], ["dim=1", "at least 2"]),
        (["--delta", "1e-5", "--dim", "-7"], ["dim=-7"]),
        (["--delta", "1e-5", "--assignment", "dice"], ["assignment='dice'", "'coins', 'fixed', 'unknown'"]),
        (["--delta", "1e-5", "--max-over-rounds", "5"], ["--max-over-rounds needs --dim"]),
        (["--delta", "1e-5", "--dim", "100", "--max-over-rounds", "0"], ["rounds=0"]),
        (["--delta", "1e-5", "--claim", "3", "--noise-multiplier", "1"], ["--claim or --noise-multiplier, not both"]),
        (["--delta", "1e-5", "--claim", "-3"], ["claim=-3.0"]),
        (["--delta", "1e-5", "--claim", "nan"], ["claim is NaN"]),
        (["--delta", "1e-5", "--claim", "inf"], ["claim=inf"]),
        (["--delta", "1e-5", "--noise-multiplier", "-1"], ["noise_multiplier=-1.0"]),
        (["--delta", "1e-5", "--participations", "3"], ["describe the claim of --noise-multiplier"]),
        (["--delta", "1e-5", "--claim", "3", "--sampling-rate", "0.1", "--rounds", "5"], ["--noise-multiplier; give that too"]),
        (["--delta", "1e-5", "--noise-multiplier", "1", "--sampling-rate", "0.1"], ["need --rounds"]),
        (["--delta", "1e-5", "--noise-multiplier", "1", "--rounds", "5"], ["--rounds", "--sampling-rate"]),
        (["--delta", "1e-5", "--noise-multiplier", "1", "--sampling-rate", "1.5", "--rounds", "5"], ["rate=1.5 is not a prob"]),
        (["--delta", "1e-5", "--noise-multiplier", "1", "--participations", "0"], ["times=0"]),
        (["--delta", "1e-5", "--noise-multiplier", "1", "--participations", "2", "--sampling-rate", "0.1"], ["give one of"]),
        (["--delta", "0", "--noise-multiplier", "1"], ["infinite epsilon at delta=0"]),
        (["--delta", "0", "--method", "gdp"], ["infinite epsilon at delta=0"]),
        (["--delta", "1e-5", "--method", "one-run"], ["fair coins", "use the band"]),
        (["--delta", "1e-5", "--method", "lifted"], ["a 'run' column"]),
        (["--delta", "1e-5", "--method", "bayesian", "--claim", "3"], ["approximate and cannot decide"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_mistakes_in_the_options_of_estimate(run, folder, options, words):
    assert run("estimate", folder / "long.csv", *options).failed(2, "coalmine: ", *words)


def test_delta_zero_is_allowed_where_it_makes_sense(run, folder):
    shown = run("estimate", folder / "long.csv", "--delta", "0", "--dim", DIM, "--claim", 0.5, "--json")
    assert (shown.code, shown.json["verdict"]["word"], shown.json["estimates"]) == (1, "VIOLATED", [])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.csv", ["there is no file"]),
        ("missing/deep.npz", ["there is no file"]),
        ("", ["ending must be one of"]),
        ("scores.json", ["ending must be one of .csv", ".npz", ".parquet"]),
        ("array.npy", ["ending must be one of"]),
        ("wrong.csv", ["Found 'score_of_canary', 'member'", "Known layouts"]),
        ("header.csv", ["no inserted canary"]),
        ("nobody.csv", ["no inserted canary"]),
        ("ragged.csv", ["line 3: 1 cells where the header has 2"]),
        ("text.csv", ["line 2: cannot read"]),
        ("nan.csv", ["value contains 1 NaN", "positions 0"]),
        ("empty.csv", ["empty.csv is empty"]),
        ("empty.npz", ["not a complete npz file"]),
        ("empty.parquet", ["not a readable parquet file"]),
        ("garbage.csv", ["not a text file"]),
        ("garbage.npz", ["not a complete npz file"]),
        ("garbage.parquet", ["not a readable parquet file"]),
    ],
)
def test_broken_score_files(run, folder, name, words):
    assert run("estimate", folder / name, *QUICK).failed(4, "coalmine: ", *words)


def test_a_directory_with_the_name_of_a_file(run, tmp_path):
    (tmp_path / "scores.csv").mkdir()
    assert run("estimate", tmp_path / "scores.csv", *QUICK).failed(4, "there is no file")


# plan


def test_plan(run):
    task = ("--claim", 10, "--delta", "1e-5", "--canaries", 20)
    shown, found = run("plan", *task), run("plan", *task, "--json", "--quiet")
    assert (shown.code, found.code) == (0, 0)
    assert shown.err == "planning by simulation, a few seconds\n" and found.err == ""
    assert shown.out.startswith("Plan for a claim: epsilon = 10 at delta = 1e-05, confidence 95%")
    design = {"inserted": 20, "held_out": None, "slack": pytest.approx(math.log(3.18)), "pool": None, "directions": None}
    assert found.json["design"] == design  # of the canaries that `run` plants
    assert run("plan", *task, "--family", "sphere", "--json", "--quiet").json["design"]["slack"] == 0.0
    assert found.json["ceilings"]["band"] == "inf"
    assert found.json["sufficient"] is True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--claim", "0"], ["claim=0.0"]),
        (["--claim", "nan"], ["claim is NaN"]),
        (["--claim", "3", "--canaries", "0"], ["canaries=0", "at least 1"]),
        (["--claim", "3", "--canaries", "-5"], ["canaries=-5"]),
        (["--claim", "3", "--held-out", "0"], ["held_out=0"]),
        (["--claim", "3", "--held-out", "-1"], ["held_out=-1"]),
        (["--claim", "3", "--confidence", "95"], ["confidence=95.0"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_mistakes_in_the_options_of_plan(run, options, words):
    assert run("plan", "--delta", "1e-5", *options).failed(2, *words)


@pytest.mark.parametrize("delta", ["0", "1", "-1", "nan"])
def test_plan_needs_a_delta(run, delta):
    assert run("plan", "--claim", "3", "--delta", delta).failed(2, "delta")


# account


@pytest.mark.parametrize(
    ("options", "pattern", "how"),
    [
        ([], Once(), {}),
        (["--participations", "4"], Repeated(4), {}),
        (["--sampling-rate", "0.1", "--rounds", "5"], Poisson(0.1, 5), {}),
        (["--sampling-rate", "0.1", "--rounds", "5", "--accountant", "rdp"], Poisson(0.1, 5), {"accountant": "rdp"}),
        (["--cohort-size", "5", "--population", "50", "--rounds", "2"], FixedSize(5, 50, 2), {}),
        (["--relation", "replace-one"], Once(), {"relation": "replace-one"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_account(run, options, pattern, how):
    expected = claim(pattern, noise_multiplier=9.0, delta=1e-5, **how)
    shown = run("account", "--noise-multiplier", 9, "--delta", "1e-5", *options)
    found = run("account", "--noise-multiplier", 9, "--delta", "1e-5", *options, "--json")
    assert (shown.code, shown.err, found.code, found.err) == (0, "", 0, "")
    assert shown.out.splitlines()[0] == str(expected)
    assert str(pattern) in shown.out and expected.game.relation in shown.out
    assert found.json["epsilon"] == approx(expected.epsilon)
    assert found.json["accountant"] == expected.accountant


def test_account_computes_what_is_left_out(run):
    noise = run("account", "--epsilon", 3, "--delta", "1e-5", "--json").json
    delta = run("account", "--epsilon", 3, "--noise-multiplier", noise["noise_multiplier"], "--json").json
    assert noise["epsilon"] == approx(3.0) == delta["epsilon"]
    assert delta["delta"] == approx(1e-5)
    assert run("account", "--noise-multiplier", 0, "--delta", "1e-5", "--json").json["epsilon"] == "inf"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["exactly two of", "got none"]),
        (["--delta", "1e-5"], ["exactly two of", "got --delta"]),
        (["--delta", "1e-5", "--epsilon", "3", "--noise-multiplier", "1"], ["exactly two of"]),
        (["--noise-multiplier", "1", "--delta", "0"], ["delta=0.0"]),
        (["--noise-multiplier", "1", "--delta", "1"], ["delta=1.0"]),
        (["--noise-multiplier", "nan", "--delta", "1e-5"], ["noise_multiplier is NaN"]),
        (["--noise-multiplier", "inf", "--delta", "1e-5"], ["noise_multiplier=inf"]),
        (["--noise-multiplier", "0", "--epsilon", "1"], ["noise_multiplier=0.0"]),
        (["--noise-multiplier", "1", "--epsilon", "500"], ["delta = 0", "nothing to state"]),
        (["--noise-multiplier", "1e-9", "--epsilon", "1", "--sampling-rate", "0.1", "--rounds", "5"], ["delta = 1"]),
        (["--epsilon", "0", "--delta", "1e-5"], ["epsilon=0.0"]),
        (["--epsilon", "-1", "--delta", "1e-5"], ["epsilon=-1.0"]),
        (["--epsilon", "0.01", "--delta", "1e-300", "--sampling-rate", "0.1", "--rounds", "5"], ["larger epsilon or delta"]),
        (["--noise-multiplier", "1", "--delta", "1e-5", "--sampling-rate", "0.1"], ["need --rounds"]),
        (["--noise-multiplier", "1", "--delta", "1e-5", "--rounds", "3"], ["--sampling-rate or --cohort-size"]),
        (["--noise-multiplier", "1", "--delta", "1e-5", "--cohort-size", "3", "--rounds", "3"], ["needs --population"]),
        (["--noise-multiplier", "1", "--delta", "1e-5", "--population", "3"], ["--population"]),
        (
            ["--noise-multiplier", "1", "--delta", "1e-5", "--sampling-rate", "0.1", "--rounds", "3", "--population", "9"],
            ["--population belongs to --cohort-size"],
        ),
        (
            ["--noise-multiplier", "1", "--delta", "1e-5", "--cohort-size", "9", "--population", "3", "--rounds", "3"],
            ["cohort_size=9 exceeds population=3"],
        ),
        (["--noise-multiplier", "1", "--delta", "1e-5", "--accountant", "prv"], ["'auto', 'analytic', 'pld', 'rdp'"]),
        (["--noise-multiplier", "1", "--delta", "1e-5", "--relation", "swap"], ["'add-or-remove-one', 'replace-one'"]),
        (
            [
                "--noise-multiplier",
                "1",
                "--delta",
                "1e-5",
                "--sampling-rate",
                "0.1",
                "--rounds",
                "3",
                "--accountant",
                "analytic",
            ],
            ["use accountant='pld' or 'rdp'"],
        ),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_mistakes_in_the_options_of_account(run, options, words):
    assert run("account", *options).failed(2, "coalmine: ", *words)


@pytest.mark.parametrize("noise", ["1e-9", "1e-200"])
def test_hardly_any_noise_is_an_infinite_claim_and_no_traceback(run, noise):
    shown = run("account", "--noise-multiplier", noise, "--delta", "1e-5", "--sampling-rate", 0.1, "--rounds", 5, "--json")
    assert (shown.code, shown.err, shown.json["epsilon"]) == (0, "", "inf")


# check


def test_check_of_a_result(run, result):
    consistent, violated = (run("check", result, "--max-epsilon", limit) for limit in (20, 0.5))
    assert consistent.code == 0 and consistent.err.startswith("notice: unverified")  # a lone file has no manifest
    assert consistent.out.startswith("CONSISTENT: no leak above the claim was found")
    assert violated.code == 1 and violated.err == consistent.err
    assert violated.out.startswith("VIOLATED: with 95% confidence")
    assert run("check", result, "--max-epsilon", 20, "--json", "--quiet").json["word"] == "CONSISTENT"


def test_check_of_a_directory(run, result, tmp_path):
    (tmp_path / "result.json").write_text(result.read_text())
    assert run("check", tmp_path, "--max-epsilon", 20).code == 0


def test_check_of_an_approximate_number(run, folder, tmp_path):
    run("estimate", folder / "two.csv", "--delta", "1e-5", "--method", "pointwise", "-o", tmp_path / "result.json")
    assert run("check", tmp_path, "--max-epsilon", 1).failed(2, "approximate and cannot decide")


def test_check_at_delta_zero_cannot_tell(run, folder, tmp_path):
    run("estimate", folder / "long.csv", "--delta", "0", "--dim", DIM, "-o", tmp_path / "result.json")
    assert run("check", tmp_path, "--max-epsilon", 0.1).code == 1
    assert run("check", tmp_path, "--max-epsilon", 50).code == 3


@pytest.mark.parametrize("limit", ["nan", "-1", "inf"])
def test_check_needs_a_limit(run, result, limit):
    assert run("check", result, "--max-epsilon", limit).failed(2, "max_epsilon")


@pytest.mark.parametrize("name", ["missing.json", "garbage.json", "long.csv", "empty.csv", "scores.json", "saved.npz", ""])
def test_check_of_something_else(run, folder, tmp_path, name):
    path = folder / name if name else tmp_path
    assert run("check", path, "--max-epsilon", 1).failed(4, "coalmine: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"epsilon": ', '"epsilon": "much", "was": '),
        ('"design": {', '"design": [], "was": {'),
        ('"method": "band"', '"method": "magic"'),
        ('"confidence": 0.95', '"confidence": 95'),
        ('"confidence": 0.95', '"confidence": NaN'),
        ('"claim": null', '"claim": 3'),
        ("coalmine-result/2", "coalmine-result/3"),
    ],
)
def test_check_of_a_result_that_somebody_changed(run, result, tmp_path, old, new):
    text = result.read_text()
    assert old in text
    (tmp_path / "result.json").write_text(text.replace(old, new, 1))
    assert run("check", tmp_path, "--max-epsilon", 1).failed(4, "result.json': not a", "writes one")


# reproduce


def test_reproduce_as_text(run, tmp_path):
    shown = run("reproduce", "table1", "--simulations", 2, "--workers", 1, "--seed", 5, "--quiet", "--out", tmp_path)
    assert shown.code in (0, 1) and shown.err == ""
    lines = shown.out.splitlines()
    assert (
        "2 simulations, seed 5" in lines[0] and len([line for line in lines if line.startswith(("mean, d", "fitted, d"))]) == 27
    )
    written = {path.name for path in (tmp_path / "quick-5").iterdir()}
    assert written == {"table1.csv", "table1.json", "table1.md", "table1.svg", "table1-figure4.svg"}


def test_an_interrupted_experiment_says_how_to_go_on(run, monkeypatch, tmp_path):
    from coalmine.papers.kit import registry

    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "experiment", interrupted)
    shown = run("reproduce", "table2", "--out", tmp_path)
    assert (shown.code, shown.out) == (130, "") and "the same command goes on" in shown.err


def test_a_part_that_there_is_not_leaves_nothing_behind(run, tmp_path):
    shown = run("reproduce", "table1", "--part", "model", "--out", tmp_path / "papers")
    assert shown.code == 2 and "has no parts" in shown.err and not (tmp_path / "papers").exists()


def test_reproduce_lists_what_there_is(run):
    shown = run("reproduce", "--list")
    assert shown.code == 0 and all(name in shown.out for name in ("table1", "figure3", "v1-table3", "assumptions", "MNIST"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], ["name='nothing'", "one of 'table1'"]),
        (["table1", "--simulations", "1"], ["simulations=1", "at least 2"]),
        (["table1", "--workers", "0"], ["workers=0"]),
        (["table1", "--scale", "half"], ["scale='half'", "'quick'", "'full'"]),
        (["table1", "--part", "model"], ["has no parts"]),
        (["table2", "--part", "nothing"], ["part='nothing'", "'model'", "'runs'"]),
        (["table1", "--seed", "0.5"], ["--seed"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_mistakes_in_the_options_of_reproduce(run, arguments, words):
    assert run("reproduce", *arguments).failed(2, *words)


# selftest


def test_a_failed_self_test_says_so(run, monkeypatch):
    from coalmine import selftest

    monkeypatch.setattr(
        selftest,
        "selftest",
        lambda track: (selftest.InstallationCheck("sums", True, "2"), selftest.InstallationCheck("gaps", False, "3")),
    )
    shown, found = run("selftest"), run("selftest", "--json", "--quiet")
    assert (shown.code, found.code) == (1, 1)
    assert shown.out.splitlines() == [
        "ok    sums: 2",
        "FAIL  gaps: 3",
        "SELF-TEST FAILED: do not trust results of this installation",
    ]
    assert found.json == {
        "passed": False,
        "checks": [{"name": "sums", "passed": True, "seen": "2"}, {"name": "gaps", "passed": False, "seen": "3"}],
    }


# other mistakes


def test_too_little_memory_is_a_message(run, folder, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(Scores, "from_file", full)
    assert run("estimate", folder / "long.csv", *QUICK).failed(4, "not enough memory")


def test_an_error_in_code_that_was_given_names_its_place(run, tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(
        "from coalmine.mechanisms import Gaussian\n"
        "class Broken(Gaussian):\n"
        "    def noise(self, dim, public, secret):\n"
        "        return {}['sigma']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("COALMINE_TRACEBACK", raising=False)
    named = ["--set", "mechanism.kind=theirs:Broken", "--set", "participation.rounds=8"]
    shown = run("run", "tiny", "--out", tmp_path / "out", "--quiet", *named)
    assert shown.failed(4, "KeyError: 'sigma'", "`noise`, line 4 of", "theirs.py", "code that this run was given")
    assert "report it" not in shown.err


def test_a_fault_of_the_program_is_not_taken_for_a_violation(run, folder, monkeypatch):
    monkeypatch.setattr(Scores, "from_file", Mock(side_effect=ZeroDivisionError("by zero")))
    monkeypatch.delenv("COALMINE_TRACEBACK", raising=False)
    shown = run("estimate", folder / "long.csv", *QUICK)
    assert shown.failed(4, "internal error, ZeroDivisionError: by zero", "report it")
    monkeypatch.setenv("COALMINE_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["coalmine", "estimate", str(folder / "long.csv"), *QUICK])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_guesses_threshold_and_game_can_be_stated(run, folder):
    coins = ("--method", "one-run", "--assignment", "coins", "--guesses", "10+10")
    found = run("estimate", folder / "long.csv", "--delta", "1e-5", *coins, "--json")
    assert found.json["bounds"][0]["details"]["guesses"] == 20
    assert list(found.json["setting"]["options"]) == ["guesses"]
    fixed = run("estimate", folder / "long.csv", "--delta", "1e-5", "--method", "threshold", "--threshold", "0.5", "--json")
    assert "fixed threshold 0.5" in fixed.json["bounds"][0]["method"]
    game = ("--game", "participation=8 times", "--view", "every release")
    assert (
        run("estimate", folder / "long.csv", "--delta", "1e-5", *game, "--json").json["game"]["participation"]["text"]
        == "8 times"
    )
    mismatch = run("estimate", folder / "long.csv", "--delta", "1e-5", *game, "--noise-multiplier", 1)
    assert mismatch.failed(2, "participation: 'once' against '8 times'")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--guesses", "10+10"], "--guesses belongs to"),
        (["--method", "one-run", "--assignment", "coins", "--guesses", "ten"], "as 40+40"),
        (["--threshold", "1"], "--threshold belongs to"),
        (["--method", "threshold", "--threshold", "high"], "not a number"),
        (["--game", "who=me"], "write unit="),
        (["--cohort-size", "5", "--population", "50", "--rounds", "3"], "--noise-multiplier"),
    ],
)
def test_mistakes_in_what_is_stated(run, folder, words, said):
    assert run("estimate", folder / "long.csv", "--delta", "1e-5", *words).failed(2, said)
