"""Several runs beside each other: axes from what differs, one table, one page; and the verbs `report` and `compare`."""

import json
import re
import sys

import pytest

from coalmine import AuditResult, Once, audit_scores, claim, cli, simulate_gaussian_mechanism
from coalmine.errors import InputFileError, RunDirectoryError
from coalmine.report.compare import Audited, Comparison, compare, page
from coalmine.report.presented import across_runs, presentations_of

LOUD, OFTEN = "mechanism.noise_multiplier=1.0", "canaries.presentations=2"


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["coalmine", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return (stopped.value.code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def simulated():
    scores = simulate_gaussian_mechanism(dim=100_000, canaries=100, sigma=1.0, seed=7)
    return audit_scores(scores, delta=1e-5, claim=claim(Once(), noise_multiplier=1.0, delta=1e-5))


def test_one_key_that_differs(finished, monkeypatch):
    found = compare([finished(LOUD), finished()])
    assert found.axes == ("noise multiplier",)
    assert [row.columns["noise multiplier"] for row in found.rows] == ["0.5", "1"]  # by size, not as given
    assert found.grid is None
    monkeypatch.setenv("COLUMNS", "140")
    shown = str(found)
    assert "2 runs by noise multiplier" in shown and "at least" in shown and "accuracy" in shown


def test_on_a_narrow_terminal_no_verdict_and_no_number_is_broken(finished, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = str(compare([finished(LOUD), finished()]))
    assert "CONSISTENT" in shown and all(row.cells()["about"] in shown for row in compare([finished(LOUD), finished()]).rows)


def test_two_keys_make_a_grid(finished):
    found = compare([finished(), finished(LOUD), finished(OFTEN), finished(LOUD, OFTEN)])
    assert found.axes == ("presentations", "noise multiplier")
    firsts, seconds, cells = found.grid
    assert (firsts, seconds, len(cells)) == (["1", "2"], ["0.5", "1"], 4)
    assert "presentations \\ noise multiplier" in str(found)
    assert 'id="presentations-' in found.to_html()  # the figure


def test_three_keys_are_columns(finished):
    found = compare([finished(), finished(LOUD, OFTEN, "canaries.family=sphere")])
    assert set(found.axes) == {"presentations", "noise multiplier", "family"} and found.grid is None
    assert all(name in str(found) for name in ("presentations", "noise multiplier", "family"))


def test_runs_that_differ_in_much_have_a_table_of_settings(simulated, monkeypatch):
    """Twenty settings beside the numbers left two letters to a column."""
    monkeypatch.setenv("COLUMNS", "100")
    axes = tuple(f"setting {number}" for number in range(20))
    rows = tuple(Audited(run, simulated, {name: f"{run} of {name}" for name in axes}) for run in ("one", "two"))
    shown = str(Comparison(axes, rows))
    assert "2 runs, 20 settings differ" in shown and "CONSISTENT" in shown
    assert all(f"{run} of {name}" in shown for run in ("one", "two") for name in axes)
    assert max(map(len, shown.split("\n"))) <= 100
    made = Comparison(axes, rows).to_html()
    assert "Settings that differ" in made and '<td data-name="one">one of setting 3</td>' in made
    assert '<th scope="col">setting 3</th>' not in made and '<th scope="row">setting 3</th>' in made


def test_keys_of_one_name_keep_their_section(finished):
    found = compare([finished(), finished("server.momentum=0.5", "client.momentum=0.5")])
    assert set(found.axes) == {"server.momentum", "client.momentum"}


def test_seeds_and_workers_do_not_differ(finished):
    found = compare([finished(), finished("run.seed=9", "run.evaluate_every=3")])
    assert found.axes == () and "2 runs of one configuration" in str(found)


def test_with_and_without_canaries(finished):
    found = compare([finished(), finished("canaries.pool=0")])
    without, with_canaries = found.rows
    assert found.axes == ("canaries",) and without.result is None and without.accuracy is not None
    assert with_canaries.result is not None
    assert "no audit" in str(found) and "no audit" in found.to_html()
    assert found.to_dict()["runs"][0]["result"] is None


def test_what_cannot_be_compared(finished, tmp_path):
    with pytest.raises(ValueError, match="at least two"):
        compare([finished()])
    with pytest.raises(ValueError, match="given twice"):
        compare([finished(), finished()])
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        compare([finished(), tmp_path])
    with pytest.raises(RunDirectoryError, match="is a file"):
        compare([finished(), finished() / "result.json"])
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(RunDirectoryError, match="coalmine resume"):
        compare([finished(), tmp_path])
    (tmp_path / "training.json").write_text("[]")
    with pytest.raises(InputFileError, match=r"training\.json"):
        compare([finished(), tmp_path])


def test_directories_of_one_name_are_told_apart(finished, tmp_path):

    for name in ("a", "b"):
        finished.copy(tmp_path / name / "run")
    assert [row.label for row in compare([tmp_path / "a" / "run", tmp_path / "b" / "run"]).rows] == ["a/run", "b/run"]


def test_a_page_of_any_audits(simulated, hostile_text):
    rows = [
        Audited("right", simulated),
        Audited(hostile_text, simulated, {"bug": hostile_text}),
        Audited("none", None),
    ]
    text = page(hostile_text, rows, lead=hostile_text)
    assert text.count("<script") == 1 and "<img" not in text and "&lt;script&gt;" in text
    assert page(hostile_text, rows, lead=hostile_text) == text and len(text.encode()) < 250_000
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    inside = re.search(r'<script type="application/json" id="results">(.*?)</script>', text, re.DOTALL)[1]
    assert [entry["label"] for entry in json.loads(inside)] == ["right", hostile_text, "none"]


def test_hostile_labels_in_the_terminal(simulated):
    assert "[red]x[/red]" in str(Comparison((), (Audited("[red]x[/red]", simulated), Audited("b", simulated))))


def test_presentations_across_runs(simulated, finished):
    assert presentations_of(simulated) == 1 and across_runs([simulated, simulated]) == []
    results = [AuditResult.load(finished()), AuditResult.load(finished(OFTEN))]
    assert [point.times for point in across_runs(results)] == [1, 2]
    assert {point.series for point in across_runs(results)} == {"noise multiplier 0.5"}


def test_the_verb_report(run, finished, tmp_path, simulated):
    page_of_run = (finished() / "report.html").read_text()
    (finished() / "report.html").unlink()
    code, out, err = run("report", finished())
    assert (code, out) == (0, "") and "wrote" in err and (finished() / "report.html").read_text() == page_of_run
    simulated.save(tmp_path / "result.json")
    assert run("report", tmp_path / "result.json", "--quiet") == (0, "", "")
    assert (tmp_path / "report.html").is_file()
    code, out, err = run("report", tmp_path / "result.json", "-o", tmp_path / "audit.html", "--json")
    assert json.loads(out) == simulated.to_dict() and (tmp_path / "audit.html").is_file()
    code, out, err = run("report", finished(), "--format", "md")
    assert (code, err) == (0, "") and out.startswith("## Privacy audit")
    code, out, _ = run("report", finished(), "--format", "md", "--json")
    assert json.loads(out)["schema"] == "coalmine-result/2"
    code, out, err = run("report", finished(), "--format", "md", "-o", tmp_path / "card.md")
    assert (code, out) == (0, "") and (tmp_path / "card.md").read_text().startswith("## Privacy audit")


def test_the_verb_compare(run, finished, tmp_path):
    code, out, err = run("compare", finished(), finished(LOUD), "-o", tmp_path / "compare.html")
    assert code == 0 and "noise multiplier" in out and "wrote" in err
    assert "privacy audits compared" in (tmp_path / "compare.html").read_text()
    code, out, _ = run("compare", finished(), finished(LOUD), "--json", "--quiet")
    assert json.loads(out)["axes"] == ["noise multiplier"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("report", "nowhere"), 4, "cannot read"),
        (("report", "nowhere", "--format", "pdf"), 2, "'html', 'md'"),
        (("compare", "nowhere"), 2, "at least two"),
        (("compare", "nowhere", "elsewhere"), 4, "not a run directory"),
    ],
)
def test_mistakes_are_one_message(run, words, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, out, err = run(*words)
    assert (found, out) == (code, "") and err.startswith("coalmine: ") and said in err and "Traceback" not in err


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_the_extra_the_remedy_is_named(run, finished, without, missing):
    directory = finished()  # which may be made here, and needs all
    without(missing, "coalmine.report")
    code, out, err = run("report", directory)
    assert (code, out) == (2, "") and err == f'coalmine: a report needs {missing}: pip install "coalmine[report]"\n'


def test_a_mechanism_that_was_handed_is_an_axis(finished, tmp_path):

    for name in ("HalfTheNoise", "Gaussian"):
        finished.copy(tmp_path / name)
        with (tmp_path / name / "config.toml").open("a") as file:
            file.write(f'\n[about.handed]\nmechanism = "{name}"\n')
    found = compare([finished(), tmp_path / "HalfTheNoise", tmp_path / "Gaussian"])
    assert found.axes == ("mechanism",)
    assert [row.columns["mechanism"] for row in found.rows] == ["Gaussian", "Gaussian, handed", "HalfTheNoise"]
    assert "3 runs by mechanism" in str(found) and "HalfTheNoise" in found.to_html()


def test_a_model_that_was_handed_is_an_axis(finished, tmp_path):

    finished.copy(tmp_path / "mine")
    with (tmp_path / "mine" / "config.toml").open("a") as file:
        file.write('\n[about.handed]\ntask = "my model"\n')
    assert [row.columns["data and model"] for row in compare([tmp_path / "mine", finished()]).rows] == [
        "as configured",
        "my model",
    ]
