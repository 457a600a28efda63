"""The common result, its files, and the registry."""

import csv
import io
import json
import runpy
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from coalmine import papers
from coalmine.papers.kit.experiment import Ask, Experiment
from coalmine.papers.kit.paper_result import MADE, PaperCheck, PaperResult, PaperRow
from coalmine.papers.kit.registry import EXPERIMENTS, entry, experiment, listing
from coalmine.papers.kit.rules import in_order
from coalmine.papers.kit.saving import folder_of, save
from coalmine.papers.one_shot.assumptions import NEEDS, needs_of

DOCS = Path(__file__).parents[2] / "docs" / "papers"
ROWS = (
    PaperRow("first, noise 0.1", "9.89 ± 0.71", 9.8, 0.7, "exact", "z +0.1", {"noise": 0.1}),
    PaperRow("second | pipe", "", None, note="no such number", place={"noise": 0.0}),
    PaperRow("third", "45800", 46_321.0, 10.0, "differs", place={"column": "est-all"}),
    PaperRow("fourth", "inf", float("inf")),
)
OUTCOME = PaperResult(
    "made-up", "A table", ROWS, "standard deviation", (PaperCheck("a thing", True), PaperCheck("another", False)), ("a note",)
)


def test_as_text():
    lines = str(OUTCOME).splitlines()
    assert lines[0] == "A table" and lines[1] == "± is the standard deviation"
    assert lines[3].split()[:3] == ["first,", "noise", "0.1"] and "9.80 ± 0.70  exact" in lines[3]
    assert "46,300 ± 10" in lines[5] and "∞" in lines[6]
    assert "ok    a thing" in lines and "FAIL  another" in lines and "note: a note" in lines
    assert lines[-1] == "1 exact, 1 differs; 1 of 2 checks failed" and not OUTCOME.passed


@pytest.mark.parametrize(
    ("ours", "error", "shown"),
    [
        (0.1357, 0.0024, "0.136 ± 0.002"),
        (6.2171, 0.00031, "6.2171 ± 0.0003"),
        (1.43, 0.33, "1.43 ± 0.33"),
        (382.1, 0.2, "382 ± 0"),
        (45_800.0, 512.0, "45,800 ± 512"),
        (1.0, 0.0, "1.00 ± 0.00"),
        (2.0, None, "2.00"),
        (2.0, float("inf"), "2.00 ± ∞"),
    ],
)
def test_an_error_is_seen(ours, error, shown):
    assert PaperRow("a number", "", ours, error).shown == shown


def test_files_of_an_experiment(tmp_path):
    paths = save(OUTCOME, folder_of(tmp_path / "new", "quick", 3))
    assert {path.parent for path in paths} == {tmp_path / "new" / "quick-3"}
    assert [path.suffix for path in paths] == [".json", ".csv", ".svg", ".md"]
    found = json.loads(paths[0].read_text())
    assert found["schema"] == "coalmine-paper/1" and found["rows"][0]["verdict"] == "exact"
    table = list(csv.DictReader(io.StringIO(paths[1].read_text())))
    assert table[0]["ours"] == "9.8" and table[1]["ours"] == "" and table[2]["column"] == "est-all"
    assert ElementTree.fromstring(paths[2].read_text()).tag.endswith("svg")
    page = paths[3].read_text()
    assert "| second / pipe | — | — | — | no such number |" in page and "](made-up.svg)" in page


def test_an_experiment_says_how_it_was_made():
    made = Experiment("made-up", "nothing", lambda ask: OUTCOME)(Ask(seed=3, simulations=4))
    assert made.about["command"] == "coalmine reproduce made-up --scale quick --seed 3 --simulations 4"
    assert {"seconds", "machine", "versions"} <= set(made.about)


def test_order_is_a_matter_of_errors():
    assert in_order([3, 2, 1], [30, 20, 20.1], [1, 1, 1]) == ["same shape"] * 3
    assert in_order([3, 2, 1], [30, 20, 28], [1, 1, 1]) == ["same shape", "differs", "differs"]


def test_more_without_noise_does_not_make_an_order_of_the_others():
    paper, apart = [5.72, 1.2, 1.15, 1.08, 0.818, 0.737], [True] + [False] * 5
    assert in_order(paper, [9.0, 1, 1, 1, 1, 1], [0.1] * 6, apart=apart) == ["same shape"] + [None] * 5
    assert in_order(paper, [9.0, 1, 1.2, 1.3, 1.4, 1.5], [0.1] * 6, apart=apart) == ["same shape"] + ["differs"] * 5
    assert in_order(paper, [1.0, 9.0, 8.0, 7.0, 6.0, 5.0], [0.1] * 6, apart=apart) == ["differs"] * 6


@pytest.mark.parametrize("count", [4, 5])
def test_without_a_trend_few_numbers_have_a_shape(count):
    """As the page says: of 5,000 columns without any trend about 7 % of the numbers have one, and as many the opposite."""
    values = np.random.default_rng(count).standard_normal((5000, count))
    found = [verdict for line in values for verdict in in_order(range(count), line, [1.0] * count)]
    shares = [sum(each == verdict for each in found) / len(found) for verdict in ("same shape", "differs")]
    assert all(0.03 < share < 0.09 for share in shares), shares


def test_without_a_difference_there_is_no_shape():
    assert in_order([1, 2, 4, 8], [1, 1, 1, 1], [0.1] * 4) == [None] * 4
    assert in_order([1, 2, 4, 8], [2, 1.9, 1.8, 1.75], [0.2] * 4) == [None] * 4
    assert in_order([1, 2], [5, 1], [float("inf"), 0.1]) == [None, None]
    assert in_order([1, 2], [0.0, 0.0], [0.0, 0.0]) == [None, None]
    assert in_order([1, 2], [float("inf"), 1.0], [float("inf"), 0.1]) == [None, None]


def test_every_experiment_of_the_papers_has_a_command():
    promised = {"table1", "table2", "table3", "table4", "table5", "table6", "figure1", "figure2", "figure3"}
    promised |= {"v1-table1", "v1-table2", "v1-table3", "assumptions", "lifted", "user-inference"}
    promised |= {f"secagg-{name}" for name in ("blocked", "figure4", "figure5", "span", "table1", "users", "wfna-audit")}
    promised |= {f"correlated-{name}" for name in ("mean", "linear", "rates", "training")}
    promised |= {f"canife-figure{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9)}
    promised |= {f"canife-{name}" for name in ("table-perfect", "table1", "time", "pools")}
    assert set(EXPERIMENTS) == promised
    assert len(listing().splitlines()) == len(promised)


def test_a_new_experiment_is_a_file_and_a_line(tmp_path, monkeypatch):
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "a_table.py").write_text(
        "from coalmine.papers.kit.paper_result import PaperResult, PaperRow\n"
        "def reproduce(ask):\n"
        "    return PaperResult(ask.named('a-table'), 'A toy', (PaperRow('a number', '2', 2.0, verdict='exact'),))\n"
    )
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(tmp_path)])
    made = entry("toy", "a-table", "a toy", parts=("one",))
    assert str(made) == "a-table      a toy (parts one)"
    found = made(Ask(part="one"))
    assert found.name == "a-table-one" and found.in_short() == "1 exact"
    assert save(found, folder_of(tmp_path / "out", "quick", 0))[0].name == "a-table-one.json"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_where_its_line_says(name):
    (module,) = EXPERIMENTS[name].run.args
    assert find_spec(module) is not None


@pytest.mark.parametrize(("part", "words"), [("model", "has no parts"), (None, None)])
def test_parts_belong_to_experiments_that_have_them(part, words):
    made = Experiment("made-up", "nothing", lambda ask: OUTCOME)
    if words is None:
        assert made(Ask(part=part)).name == "made-up"
    else:
        with pytest.raises(ValueError, match=words):
            made(Ask(part=part))


def test_what_bounds_need_is_found_out():
    """By name, from what each of them refuses: null law for validity, coins, several runs, Gaussian shape, independence."""
    found = {name: needs_of(name).marks for name in ("band", "one-run", "lifted", "gdp", "anytime")}
    assert found == {
        "band": (False, False, False, False, True),
        "one-run": (False, True, False, False, False),
        "lifted": (False, False, True, False, False),
        "gdp": (False, False, False, True, True),
        "anytime": (True, False, False, True, False),
    }
    assert len(NEEDS) == 5
    assert not needs_of("pointwise").valid and not needs_of("bayesian").valid


def test_the_page_of_assumptions_is_current():
    """`coalmine reproduce assumptions` writes it."""
    made = experiment("assumptions")(Ask())
    written = (DOCS / "assumptions.md").read_text(encoding="utf-8")
    assert written.split(MADE)[0] == made.to_markdown(drawing=True).split(MADE)[0]


def test_the_page_on_the_papers_has_the_published_numbers():
    """`python docs/papers/make.py` writes it."""
    make = runpy.run_path(str(DOCS / "make.py"))
    assert (DOCS.parent / "papers.md").read_text(encoding="utf-8") == make["page"]()
    assert "@" not in make["page"]()


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.json")), ids=lambda path: path.stem)
def test_published_results_are_whole(path):
    """Each has its page, its table and its drawing, and the page has the numbers of the document."""
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["schema"] == "coalmine-paper/1" and found["name"] == path.stem
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert found["title"] in page and found["about"]["command"] in page
    rows, checks = (tuple(kind(**each) for each in found[name]) for kind, name in ((PaperRow, "rows"), (PaperCheck, "checks")))
    whole = PaperResult(found["name"], found["title"], rows, found["error"], checks, tuple(found["notes"]), found["about"])
    assert path.with_suffix(".csv").read_text(encoding="utf-8") == whole.to_csv()
    table = whole.to_markdown().partition(MADE)[0]  # drawings stand between
    assert page.startswith(table)
    assert "mathdefault" not in path.with_suffix(".svg").read_text(encoding="utf-8")  # a label that nobody can read


def test_where_nothing_can_be_written_is_found_out_first(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="nothing can be written there"):
        folder_of(tmp_path / "file", "quick", 0)


def test_drawings_have_labels_that_can_be_read(tmp_path):
    wide = replace(OUTCOME, rows=tuple(PaperRow(f"row {value}", f"{value}", 2 * value) for value in (0.001, 1.0, 1000.0)))
    drawing = save(wide, tmp_path)[2].read_text()
    assert "mathdefault" not in drawing and ">1000<" in drawing.replace(" ", "").replace("\n", "")


def test_a_huge_seed_is_refused():
    with pytest.raises(ValueError, match="must be below 1,000,000,000"):
        Ask(seed=10**20)


def test_a_quick_trial_says_that_it_is_one():
    made = Experiment("made-up", "nothing", lambda ask: OUTCOME, trains=True)
    assert any(note.startswith("Quick: ") for note in made(Ask()).notes) and "torch" in made(Ask()).about["versions"]
    assert made(Ask(scale="full")).notes == OUTCOME.notes


def test_pages_with_an_epsilon_of_canife_say_that_it_is_no_bound():
    epsilons = ("table-perfect", "figure1-model", "figure1-runs", "figure4-writers", "figure4-shakespeare", "figure6-model")
    names = [f"canife-{each}" for each in (*epsilons, "figure6-runs", "figure7", "figure8")]
    for name in (*names, "table6-canife", "table6-canife-runs"):
        assert "not a bound" in (DOCS / f"{name}.md").read_text(encoding="utf-8"), name
