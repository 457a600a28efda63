"""Words for people and names for machines are two things.

Sentences may be reworded: nothing reads them back. Names that random numbers or files depend on may not be changed. Names that
were given up do not come back.
"""

import ast
import codecs
import json
import re
import shutil
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coalmine import cli, manifest, score_files
from coalmine.audit.statements import with_conformance
from coalmine.contracts import finding_sentences, power_sentences, sentences, training_sentences
from coalmine.report import conforming, words
from coalmine.report.compare import compare
from coalmine.report.page import report
from coalmine.result import AuditResult
from coalmine.views import VIEWS
from conforming import conformance

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "coalmine"

# sentences ###########################################################################################################

CODES = {"coalmine", "CONSISTENT", "INCONCLUSIVE", "VIOLATED", "DEVIATES", "inf", "nan"}


def gibberish(text):
    """The same numbers between other words, of another length."""
    return re.sub(r"[A-Za-z]{2,}", lambda word: word[0] if word[0] in CODES else codecs.encode(word[0], "rot13") + "q", text)


def gibbered(value):
    """Text, or lists, pairs and tables of texts."""
    if isinstance(value, str):
        return gibberish(value)
    if isinstance(value, dict):
        return {name: gibbered(each) for name, each in value.items()}
    return type(value)(gibbered(each) for each in value) if isinstance(value, list | tuple) else value


def says_gibberish(function):
    return lambda *arguments, **options: gibbered(function(*arguments, **options))


def everywhere(monkeypatch, original, new):
    """Replace a function in every module that has it under its name."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "coalmine" and getattr(module, original.__name__, None) is original:
            monkeypatch.setattr(module, original.__name__, new)


SAID_BY_A_PAGE = (
    "reason",
    "gloss",
    "adversary",
    "shown_view",
    "quote",
    "noticed",
    "people",
    "attacker",
    "answer",
    "label",
    "not_shown",
    "diagnostics",
    "caveats",
)


@pytest.fixture
def speaking_gibberish(monkeypatch):
    for table in (finding_sentences.FINDINGS, finding_sentences.NOT_TESTED, finding_sentences.MARKS):
        for code, text in list(table.items()):
            monkeypatch.setitem(table, code, gibberish(text) if isinstance(text, str) else says_gibberish(text))
    for table in (sentences.REASONS, sentences.ATTENDANCES):
        for code, made in list(table.items()):
            monkeypatch.setitem(table, code, says_gibberish(made))
    for code, text in list(sentences.BRIEF.items()):
        monkeypatch.setitem(sentences.BRIEF, code, gibberish(text))
    for code, (name, text) in list(sentences.CAVEATS.items()):
        told = gibberish(text) if isinstance(text, str) else says_gibberish(text)
        monkeypatch.setitem(sentences.CAVEATS, code, (name and gibberish(name), told))
    said = (sentences.view_name, training_sentences.training_words, power_sentences.strength, power_sentences.could_find)
    for function in said:
        everywhere(monkeypatch, function, says_gibberish(function))
    for name in SAID_BY_A_PAGE:
        everywhere(monkeypatch, getattr(words, name), says_gibberish(getattr(words, name)))
    everywhere(monkeypatch, conforming.at_measured, says_gibberish(conforming.at_measured))
    monkeypatch.setattr(conforming, "said", says_gibberish(lambda result, said=conforming.said: list(said(result))))
    for view in VIEWS.values():
        monkeypatch.setattr(view, "adversary", gibberish(view.adversary))
        monkeypatch.setattr(view, "short", gibberish(view.short))


FREE_TEXT = {"method", "multiplicity", "assumptions", "accountant", "null", "reason", "sentence", "name", "text"}


def with_gibberish(stored):
    """A result file whose every sentence is another one; codes, keys and numbers stay."""
    if isinstance(stored, dict):
        free = {name for name in stored if name in FREE_TEXT and not (name == "method" and "setting" in stored)}
        return {name: gibbered(each) if name in free else with_gibberish(each) for name, each in stored.items()}
    return [with_gibberish(each) for each in stored] if isinstance(stored, list) else stored


class Structure(HTMLParser):
    """The tags of a page with their classes, and the numbers of its text; drawings are counted, not read."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.numbers, self._hidden = Counter(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if not self._hidden and ("class", "nobr") not in attributes:  # where lines may break depends on words
            self.tags[tag, dict(attributes).get("class")] += 1
        if tag in ("svg", "script", "style"):
            self._hidden.append(tag)

    def handle_endtag(self, tag):
        if self._hidden and self._hidden[-1] == tag:
            self._hidden.pop()

    def handle_data(self, data):
        if not self._hidden:
            self.numbers += re.findall(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", data)


def structure(page):
    found = Structure(page)
    return found.tags, found.numbers


def without_words(value):
    """Names, numbers and codes of a document; no sentence."""
    if isinstance(value, dict):
        return {name: without_words(each) for name, each in value.items() if name not in FREE_TEXT - {"method"}}
    if isinstance(value, list):
        return [without_words(each) for each in value]
    return None if isinstance(value, str) and " " in value else value


def verb(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["coalmine", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code, json.loads(capsys.readouterr().out)


RUNS = {
    "layers and papers' views": ("audit.paper_views=true", "audit.layers=true", 'audit.also=["one-run","pointwise"]'),
    "sampled": ("participation.pattern=poisson", "participation.epochs=1", "participation.cohort_size=30"),
    "an inconclusive maximum": ("audit.view=every-release", "mechanism.noise_multiplier=4.0"),
}


@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS)
def test_pages_numbers_and_gates_do_not_depend_on_words(finished, changes, tmp_path, monkeypatch, capsys, request):
    before = finished.copy(tmp_path / "before" / "run", *changes)
    other, after = finished("mechanism.noise_multiplier=2.0"), tmp_path / "run"
    limits = (0.01, 8.0, 1e6)

    def gates(path):
        return [verb(monkeypatch, capsys, "check", path, "--max-epsilon", limit, "--json") for limit in limits]

    page, together, table = report(before), compare([before, other]), gates(before)
    request.getfixturevalue("speaking_gibberish")
    shutil.copytree(before, after)
    stored = json.loads((after / "result.json").read_text())
    (after / "result.json").write_text(json.dumps(with_gibberish(stored)))
    rewritten = report(after)
    assert AuditResult.load(after).verdict.reason != AuditResult.load(before).verdict.code
    assert sentences.reason("consistent", {"factor": 2.0}) != "no leak above the claim was found" and rewritten != page
    assert structure(rewritten) == structure(page)
    again = compare([after, other])
    assert structure(again.to_html()) == structure(together.to_html())
    assert without_words(again.to_dict()) == without_words(together.to_dict())
    for (code, shown), (first_code, first) in zip(gates(after), table, strict=True):
        assert code == first_code and without_words(shown) == without_words(first) and shown["reason"] != first["reason"]


SAID = {
    "as claimed": conformance(),
    "less noise": conformance({"noise-scale": "less", "clipping": "unknown"}, {"cohorts": "no-cohorts"}),
    "more noise": conformance({"noise-scale": "more"}),
}


@pytest.mark.parametrize("made", SAID.values(), ids=SAID)
def test_tests_of_the_mechanism_do_not_depend_on_words(finished, made, tmp_path, monkeypatch, capsys, request):
    for name in ("before", "after"):
        finished.copy(tmp_path / name)
        with_conformance(AuditResult.load(tmp_path / name), made).save(tmp_path / name / "result.json")
    page, gate = (
        report(tmp_path / "before"),
        verb(monkeypatch, capsys, "check", tmp_path / "before", "--max-epsilon", 50, "--json"),
    )
    request.getfixturevalue("speaking_gibberish")
    stored = with_gibberish(json.loads((tmp_path / "after" / "result.json").read_text()))
    (tmp_path / "after" / "result.json").write_text(json.dumps(stored))
    rewritten = report(tmp_path / "after")
    assert structure(rewritten) == structure(page) and rewritten != page
    code, shown = verb(monkeypatch, capsys, "check", tmp_path / "after", "--max-epsilon", 50, "--json")
    assert code == gate[0] and without_words(shown) == without_words(gate[1]) and shown["reason"] != gate[1]["reason"]


def test_a_run_made_with_other_words_has_the_same_numbers(finished, tmp_path, monkeypatch, request):
    """Training, scores, statements and files do not depend on words either."""
    from coalmine.training import run
    from coalmine.training.config import parse_config

    before = finished(*RUNS["sampled"])
    request.getfixturevalue("speaking_gibberish")
    run(parse_config((before / "config.toml").read_text()), tmp_path / "run", secret_seed=5, quiet=True)
    first, second = (json.loads((path / "result.json").read_text()) for path in (before, tmp_path / "run"))
    assert without_words(second) == without_words(first) and second["verdict"] != first["verdict"]
    pages = [
        (path / "report.html").read_text().replace(manifest.digest(path), "") for path in (before, tmp_path / "run")
    ]  # the digest is that of the files, whose sentences differ
    assert structure(pages[1]) == structure(pages[0])


# names that bits depend on ###########################################################################################

# The labels of all random streams, in the order of the modules. A label that is renamed, removed or moved changes bits of
# runs and studies: add new ones here, and leave the others alone.
STREAMS = {
    "adapters.opacus.optimizer": ["audited steps"],
    "attacks.exposure": ["secrets"],
    "attacks.fine_tuning": ["batch", "noise", "order of windows"],
    "attacks.noisy_counts": ["noise"],
    "attacks.user_inference": ["attack texts", "canary user", "user coins"],
    "audit.statements": ["power of a maximum"],
    "calibration": ["calibration", "ever wrong", "intervals"],
    "canaries._pool": ["canary"],
    "canaries.crafted.design": ["client"],
    "canaries.crafted.image": ["images", "images"],
    "canaries.crafted.pool": ["order of examples", "mock client", "steps", "steps"],
    "canaries.crafted.search": ["label", "text"],
    "canaries.crafted.text": ["text"],
    "canaries.schedule": ["canaries' rounds", "coins"],
    "canaries.transform": ["rows", "rows", "rest", "signs"],
    "conformance.simulated": [
        "bare",
        "cohorts",
        "cohorts drawn again",
        "count noise",
        "released again",
        "simulated round",
        "unclipped",
    ],
    "data.dataset": ["capped examples", "held-out examples", "held-out user"],
    "data.synthetic": ["synthetic", "synthetic"],
    "estimators._detect": ["detectable"],
    "estimators._rates": ["split"],
    "estimators.anytime": ["detectable anytime"],
    "estimators.band": ["detectable"],
    "estimators.composed": ["mock threshold", "null of one round", "perfect canary"],
    "estimators.gaussian_fit": ["zero leakage"],
    "estimators.lifted": ["detectable lifted", "split runs", "split runs", "held out"],
    "estimators.lifted_plan": ["plan of lifted bounds"],
    "estimators.one_run": ["detectable one run"],
    "estimators.power": ["guesses"],
    "mechanisms.adaptive": ["count noise"],
    "mechanisms.examples": ["batch", "noise"],
    "mechanisms.gaussian": ["noise"],
    "mechanisms.spectrum": ["sketch of gradients"],
    "mechanisms.water_filling": ["noise", "weights", "weights"],
    "models.model": ["initial parameters"],
    "papers.canife.attack": ["cohorts and coins"],
    "papers.canife.grounds": ["checkpoint", "clients of an attack", "order of examples"],
    "papers.kit.making": ["secret of a paper's run"],
    "papers.one_shot.assumptions": ["assumptions"],
    "papers.one_shot.noise_model": ["pure noise", "split threshold"],
    "papers.one_shot.table4": ["anderson-darling of normals"],
    "papers.one_shot.table6_canife": ["training of Table 6"],
    "papers.one_shot.trained": ["standard error"],
    "papers.one_shot.v1_table3": ["exchange within runs"],
    "papers.one_shot.vectors": ["noise of table 1"],
    "papers.secure_aggregation.aimed": ["aimed canaries"],
    "papers.secure_aggregation.secagg_figure5": ["shards"],
    "papers.secure_aggregation.secagg_span": ["counterexample", "outside the span", "user"],
    "papers.secure_aggregation.secagg_wfna_audit": ["orthogonal records", "random directions"],
    "papers.user_level.clipped": ["clipped regression"],
    "papers.user_level.correlated_linear": ["linear regression"],
    "papers.user_level.correlated_mean": ["mean estimation"],
    "papers.user_level.lifted_fashion": ["resampled runs", "secret of a lifted run"],
    "papers.user_level.lifted_gaussian": ["bootstrap over seeds", "runs of few canaries", "runs without"],
    "papers.user_level.mitigations": ["noise of mitigations", "part of an epoch", "users of mitigations"],
    "papers.user_level.phrases": ["secret of user inference"],
    "papers.user_level.user_inference": ["users of user inference"],
    "participation.cyclic": ["cohort", "cohort", "first rounds", "cohort", "groups"],
    "participation.examples": ["cohort"],
    "participation.patterns": ["cohort", "cohort", "pass"],
    "participation.sampled": ["cohort", "cohort"],
    "selftest": ["selftest band"],
    "simulation": ["gaussian mechanism"],
    "testing.steps": ["gradients of a test"],
    "training.aiming": ["aimed"],
    "training.campaign": ["secret of a campaign's run"],
    "training.crafted_round": ["places of crafted canaries"],
    "training.crafted_run": ["crafting", "coins"],
    "training.crafting": ["crafting", "crafting", "population"],
    "training.federation": ["cohorts", "cohorts", "cohorts drawn again", "looked at", "clients", "replaced"],
    "training.frozen": ["replicate", "replicate", "cohort", "replicate", "coins"],
    "training.inference": ["fine-tuning", "reference", "reference users"],
    "training.inserted": ["looked at", "canaries", "looked at", "canaries", "noise of a canary"],
    "training.known_noise": ["noise of a canary"],
    "training.mock_clients": ["crafting", "pool"],
    "training.trials": ["noise of a trial", "trial"],
    "training.work": ["noise of a client", "order of examples"],
    "zoo.noise": ["worker"],
    "zoo.records": ["coins of records", "record", "records of the zoo"],
    "zoo.shape": ["again", "laplace"],
    "zoo.water_filling": ["batch", "noise", "noise", "noise", "water", "weights", "weights"],
}
MAKERS = {"stream", "streams", "secret", "lots", "normals"}


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def labels(tree):
    """The texts among the arguments of every call that makes a random stream, or a function that makes some."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        maker, arguments = name_of(node.func), node.args
        if maker == "partial" and arguments:
            maker, arguments = name_of(arguments[0]), arguments[1:]
        checking = isinstance(node.func, ast.Attribute) and name_of(node.func.value) == "_validate"
        if maker in MAKERS and not checking:
            found.append([each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)])
    return [label for call in sorted(found) for label in call]


def modules():
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in sorted(SOURCE.rglob("*.py"))}


def test_labels_of_random_streams_are_frozen():
    found = {module: labels(ast.parse(path.read_text(encoding="utf-8"))) for module, path in modules().items()}
    assert {module: names for module, names in found.items() if names} == STREAMS


def test_columns_of_scores_are_frozen():
    """`Split` draws by the fingerprint of the table, which holds the names of its columns."""
    from coalmine import Scores

    assert score_files.LABELS == ("canary", "run", "round", "replicate", "group")
    scores = Scores([0.5, -0.25, 0.125], [True, False, True], labels={"canary": [4, 2, 0], "group": [1, 2, 1]})
    assert scores.sha256 == "85611ec8cd221dae4b25feaadc2cadee2101ce8eb52c01c5cdb6e8461316e51c"


# names that were given up ############################################################################################

# As identifiers, attributes, keywords and keys; what they are called now is in docs/developer/names.md.
REMOVED = (
    *("Plants", "Planting", "Planted", "Sight", "Sightings", "Inmate", "Material", "Finished", "Beside", "Telling", "Notebook"),
    *("rehearse", "over_long", "as_vectors", "realised_denominator", "came_through", "sees", "_despair", "PETALS", "BLOOM"),
    *("Watch", "Examination", "Exam", "InPlaceOfTheRightOne", "INMATES", "most_accused", "reach_of", "_ears", "_voice"),
)
_AUDIT = ("contracts", "canaries", "views", "audit", "training", "mechanisms", "adapters", "zoo")
REMOVED_IN = {  # words that mean something else in other packages
    "reach": _AUDIT,
    "drift": _AUDIT,
    "told": ("training", "cli", "audit", "front"),
    "given": ("training", "cli", "front"),
    "sit": ("zoo",),
    "sharing": ("training", "adapters", "cli"),
    "stay": ("training", "cli", "hooks"),
    "adaptive_clipping": (*_AUDIT, "report", "cli"),  # the papers' records have a column of that name
}
WORDS = ("sighting", "inmate")  # that no sentence has either
MAY_HOLD_THEM = ("src/coalmine/renamed.py", "docs/developer/names.md")
WRITTEN_BY_A_PROGRAM = ("docs/gallery/", "docs/papers/")  # from finished runs, of whichever version
SEARCHED = ("src", "examples", "docs", "README.md", "CONTRIBUTING.md")


def identifiers(tree):
    """Everything that is a name in a module: of variables, arguments, attributes, classes, functions, keywords and imports."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(found := getattr(node, field, None), str):
                yield found
        if isinstance(node, ast.Dict):
            yield from (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def files(*endings):
    for place in SEARCHED:
        for path in sorted((ROOT / place).rglob("*") if (ROOT / place).is_dir() else [ROOT / place]):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in endings and name not in MAY_HOLD_THEM and not name.startswith(WRITTEN_BY_A_PROGRAM):
                yield path


def removed(path):
    if path.relative_to(ROOT).as_posix().startswith("src/coalmine/canaries/crafted/"):
        return set(REMOVED)  # the paper's words: there, `reach` is the share of a clip norm that a canary's update has
    package = (*path.relative_to(ROOT).with_suffix("").parts, "", "", "")[2]  # src/coalmine/<package>
    return {*REMOVED, *(name for name, packages in REMOVED_IN.items() if package in packages)}


def test_removed_names_do_not_come_back_in_python():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files(".py")
        for name in identifiers(ast.parse(path.read_text(encoding="utf-8")))
        if name in removed(path)
    }
    assert not found


def test_removed_keys_do_not_come_back_in_files_and_pages():
    pattern = re.compile(r"(?<![\w.])(" + "|".join(REMOVED) + r")(?=\s*=|`)")
    found = {
        f"{path.relative_to(ROOT)}: {each}"
        for path in files(".toml", ".md", ".html", ".json", ".css")
        for each in pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert not found


def test_removed_words_do_not_come_back_in_sentences():
    found = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in files(".py", ".html", ".md")
        for word in WORDS
        if word in path.read_text(encoding="utf-8").lower()
    }
    assert not found
