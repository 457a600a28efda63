"""report.html: self-contained, escaped, small, equal for equal audits, and with fewer figures where less is known."""

import html
import json
import math
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from coalmine import AuditResult, Claim, GaussianNull, Once, Scores, audit_scores, claim, simulate_gaussian_mechanism
from coalmine.contracts import Caveat
from coalmine.errors import InputFileError, RunDirectoryError
from coalmine.report import facts
from coalmine.report.card import card
from coalmine.report.evidence import Evidence
from coalmine.report.page import report
from coalmine.report.style import VARIABLES

LARGEST = 250_000
FIGURES = ["densities", "quantiles", "rounds", "training", "share"]


class Elements(HTMLParser):
    """All elements of a page with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def values(self, name):
        return [attributes[name] for _, attributes in self.found if name in attributes]


@pytest.fixture(scope="module")
def simulated():
    scores = simulate_gaussian_mechanism(dim=100_000, canaries=200, sigma=1.0, seed=7)
    return scores, audit_scores(scores, delta=1e-5, claim=claim(Once(), noise_multiplier=1.0, delta=1e-5))


@pytest.fixture(scope="module")
def page(finished):
    return report(finished())


@pytest.fixture(scope="module")
def unsealed(finished, tmp_path_factory):
    return report(finished.copy(tmp_path_factory.mktemp("unsealed") / "run"))


def test_the_run_writes_the_same_page(finished, page):
    assert (finished() / "report.html").read_text(encoding="utf-8") == page


def test_verdict_sentence_and_all_sections(page):
    text = Elements(page).text
    for words in (
        "An adversary who",
        "of its claimed strength",
        "Setting",
        "Diagnostics",
        "What this does not show",
        "Reproduce this",
    ):
        assert words in text, words
    for name in FIGURES:
        assert f'id="figure-{name}"' in page
    for words in ("coalmine run config.toml", "Public seed", "given: whoever has it", "if the scores are Gaussian"):
        assert words in text, words


def test_nothing_is_loaded(page):
    elements = Elements(page)
    assert not re.search(r"https?://(?!www\.w3\.org)", page) and "@import" not in page and "src=" not in page
    assert all(target.startswith("#") for target in elements.values("href"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    scripts = [attributes for tag, attributes in elements.found if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "result"}]
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]


def test_it_is_small_and_has_no_id_twice(page):
    assert len(page.encode()) < LARGEST
    ids = Elements(page).values("id")
    assert len(ids) == len(set(ids)) and len(ids) > 10


def test_figures_follow_the_theme(page):
    drawn = "".join(re.findall(r"<svg role.*?</svg>", page, re.DOTALL))
    assert "<text" in drawn and "var(--ink)" in drawn  # text as text
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawn)) <= {"#000000"}  # what matplotlib writes for its defaults
    for name in VARIABLES.values():
        assert page.count(f"--{name}:") == 3, name  # light, dark, print


def test_no_time_host_path_or_secret(finished, page):
    assert str(finished().parent) not in page and "workers" not in page and "seconds" not in page
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", page)
    assert json.loads((finished() / "result.json").read_text())["training"]["secret_sha256"] is None


def test_the_result_is_inside(finished, page):
    inside = re.search(r'<script type="application/json" id="result">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(inside) == AuditResult.load(finished()).to_dict()
    assert AuditResult.from_json(inside).to_json() == (finished() / "result.json").read_text()


def test_equal_runs_have_equal_pages(finished, unsealed, tmp_path):
    finished.copy(tmp_path / "elsewhere")
    config = (tmp_path / "elsewhere" / "config.toml").read_text()
    (tmp_path / "elsewhere" / "config.toml").write_text(config.replace("workers = 1", "workers = 7"))
    assert report(tmp_path / "elsewhere") == unsealed


def test_hostile_strings_are_text(hostile, hostile_text):
    page = report(hostile)
    elements = Elements(page)
    assert [tag for tag, _ in elements.found].count("script") == 1
    assert not [tag for tag, _ in elements.found if tag in ("img", "iframe", "object", "link", "base")]
    assert elements.text.count(hostile_text) >= 15
    assert len([tag for tag, _ in elements.found if tag == "style"]) == 1
    assert len(page.encode()) < LARGEST


def test_hostile_strings_in_a_card(hostile):
    text = card(hostile)
    assert "<script" not in text and "<img" not in text and "&lt;script&gt;" in text


def test_a_lone_result(simulated, tmp_path):
    _, result = simulated
    result.save(tmp_path / "result.json")
    page = report(tmp_path / "result.json")
    assert "CONSISTENT" in page or "INCONCLUSIVE" in page
    assert "coalmine estimate SCORES --delta 1e-5 --confidence 0.95 --dim 100000 --method band --noise-multiplier 1" in page
    assert 'id="figure-quantiles"' not in page
    assert "unverified" in page  # a file may have been edited; a result in memory was not read from one
    assert "unverified" not in report(result) and len(report(result)) < len(page)


def test_a_lone_result_with_counts_of_its_scores(simulated):
    kept = {"edges": [-3.0, -1.0, 1.0, 3.0], "inserted": [1, 5, 4], "held_out": [2, 6, 2]}
    result = AuditResult.from_json(simulated[1].to_json())
    object.__setattr__(result, "histogram", kept)
    assert 'id="figure-densities"' in report(Evidence(result))
    for broken in ({}, {"edges": [1.0], "inserted": []}, {**kept, "edges": ["a", "b"]}, {**kept, "inserted": [1]}):
        object.__setattr__(result, "histogram", broken)
        assert 'id="figure-densities"' not in report(Evidence(result))


def test_no_claim_and_no_estimate():
    scores = Scores.of([3.0, 4.0, 5.0, 4.5], [0.0, 1.0, 0.5, 0.2])
    page = report(audit_scores(scores, delta=0.0))
    assert "NO CLAIM" in page and "no claim was given" in page


def test_everything_infinite():
    scores = Scores.of(np.full(200, 1e6), null=GaussianNull())
    found = audit_scores(scores, delta=1e-5, claim=Claim(math.inf, 1e-5))
    endless = replace(found, bounds=(replace(found.bound, epsilon=math.inf),))
    page = report(endless)
    assert "INCONCLUSIVE" in page and "claim ∞" in page and "at least ∞" in page and "no finite epsilon holds" in page


def test_a_fresh_secret_shows_its_fingerprint_and_a_given_one_does_not(finished):
    evidence = Evidence.of(finished())
    assert evidence.given_secret and evidence.secret is None
    fresh = json.loads((finished() / "result.json").read_text())
    fresh["caveats"] = [caveat for caveat in fresh["caveats"] if caveat["code"] != "secret-given"]
    fresh["training"]["secret_sha256"] = "ab" * 32
    found = Evidence(AuditResult.from_json(json.dumps(fresh)), config=evidence.config)
    assert found.secret == "ab" * 32
    assert f"SHA-256 {'ab' * 32}" in report(found) and "not the same bits" in report(found)


def test_what_a_run_was_handed_is_named(tmp_path):
    from coalmine.mechanisms import Gaussian
    from coalmine.training import run
    from coalmine.training.config import read_config

    class Mine(Gaussian):
        pass

    small = ["participation.rounds=4", "canaries.pool=20", "audit.unused_rows=100", "run.workers=1", "audit.bound=anytime"]
    run(read_config("tiny", small), tmp_path / "run", mechanism=Mine(1.0, 0.5), secret_seed=1, quiet=True)
    text = Elements((tmp_path / "run" / "report.html").read_text(encoding="utf-8")).text
    assert 'coalmine.training.run(read_config("config.toml"), "again", mechanism=…, secret_seed=…)' in text
    assert "handed beside it: mechanism (Mine)" in text and "Mine, handed to the run" in text


def test_the_shown_configuration_is_toml_that_a_run_takes(finished):
    from coalmine.training.config import fingerprint, parse_config

    shown = facts.toml(Evidence.of(finished()).config)
    assert fingerprint(parse_config(shown)) == AuditResult.load(finished()).training["config_sha256"]


def test_the_configuration_of_the_page_names_no_folder(tmp_path):
    (tmp_path / "config.toml").write_text(
        '[data.options]\ndata_dir = "/home/someone/data"\n[participation]\ntrace = "/home/someone/trace.csv"\n'
        '[run]\nworkers = 9\nhooks = ["mlflow"]\n'
    )
    from coalmine.report.evidence import run_config

    config, about = run_config(tmp_path)
    assert "someone" not in json.dumps(config) and about == {}
    assert config["run"] == {}
    assert config["participation"]["trace"] == "trace.csv"


def test_directories_that_have_no_audit(finished, tmp_path):
    with pytest.raises(RunDirectoryError, match="without canaries"):
        report(finished("canaries.pool=0"))
    assert not (finished("canaries.pool=0") / "report.html").exists()
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        report(tmp_path)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(RunDirectoryError, match="coalmine resume"):
        report(tmp_path)


def test_scores_of_another_run_are_refused(finished, tmp_path):
    out = tmp_path / "run"
    finished.copy(out)
    shutil.copy(finished("mechanism.noise_multiplier=2.0") / "scores.npz", out / "scores.npz")
    with pytest.raises(InputFileError, match="not those that its result"):
        report(out)


def test_broken_events_and_configurations(finished, unsealed, tmp_path):
    out = tmp_path / "run"
    finished.copy(out)
    with (out / "events.jsonl").open("a") as file:
        file.write('{"round": "x", "training_loss": "y"}\n[1]\n{"round": null}\n{"round": 7, "canary_sh')
    assert report(out) == unsealed
    (out / "events.jsonl").write_bytes(b"\xff\xfe")
    assert 'id="figure-rounds"' not in report(out)
    (out / "config.toml").write_text("no toml")
    with pytest.raises(InputFileError, match=r"config\.toml"):
        report(out)


def test_canaries_of_several_presentations_are_shown_by_them(finished):
    out = finished(
        *("participation.pattern=poisson", "participation.cohort_size=40", "canaries.pattern=as-clients", "canaries.pool=400"),
        "participation.rounds=12",
    )
    page = report(out)
    assert 'id="figure-presentations"' in page and "claim for one presentation" in page


def test_a_model_card(finished):
    text = card(finished())
    assert text.startswith("## Privacy audit\n\n**") and "\n> An adversary who" in text
    assert "| all but the target known (known others): decides |" in text and "What this does not show:" in text
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 6
    assert html.unescape(text).count("Scores SHA-256 `") == html.unescape(text).count("All files: SHA-256 `") == 1


def test_a_failing_page_does_not_lose_the_audit(monkeypatch, capsys, tmp_path, without):
    from coalmine.report import page
    from coalmine.training import run
    from coalmine.training.config import read_config

    def fail(source):
        raise ZeroDivisionError("no page today")

    monkeypatch.setattr(page, "report", fail)
    small = ["participation.rounds=4", "canaries.pool=20", "audit.unused_rows=100", "run.workers=1", "audit.bound=anytime"]
    done = run(read_config("tiny", small), tmp_path / "run", secret_seed=1, quiet=True)
    assert done.result is not None and (tmp_path / "run" / "training.json").exists()
    assert not (tmp_path / "run" / "report.html").exists()
    assert capsys.readouterr().err == "coalmine: no report.html was written: ZeroDivisionError, no page today\n"
    monkeypatch.undo()
    without("matplotlib", "coalmine.report")
    run(read_config("tiny", small), tmp_path / "other", secret_seed=1, quiet=True)
    assert 'pip install "coalmine[report]"' in capsys.readouterr().err


def test_the_epsilon_so_far_names_its_adversary_and_its_confidence(finished):
    seen = Evidence.of(finished())
    caption = re.search(r'id="figure-rounds">.*?<figcaption>(.*?)</figcaption>', report(seen), re.DOTALL)[1]
    assert "all other updates could say this" in caption and "with 95% confidence at all times" in caption
    alone = replace(
        seen,
        result=replace(seen.result, setting={**seen.result.setting, "view": "known-rounds", "layer": None}, views=()),
        scores={},
    )
    assert seen.watching == "known-others" and alone.watching == "known-rounds"
    for view in ("every-release", "final-model", "unknown-rounds"):
        other = replace(alone, result=replace(alone.result, setting={**seen.result.setting, "view": view}))
        assert other.watching is None and 'id="figure-rounds"' not in report(other)


def test_what_the_claim_allows_to_know_is_not_said_of_the_view(simulated):
    result = replace(simulated[1], setting={**simulated[1].setting, "view": "every release"})
    assert dict(facts.setting(Evidence.of(result)))["Threat model"] == "every release; claimed for: rounds known"


COMMANDS = {
    "law and claim": ("--dim", "100000", "--noise-multiplier", "1.3", "--participations", "2", "--confidence", "0.9"),
    "threshold": ("--method", "threshold", "--method", "gdp", "--threshold", "0.004", "--claim", "4.123456789"),
    "guesses": ("--method", "one-run", "--guesses", "30+20", "--assignment", "coins", "--game", "unit=example"),
    "split": ("--dim", "100000", "--method", "threshold", "--threshold", "split", "--view", "my own view"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_of_an_estimate_gives_the_same_numbers(name, tmp_path, monkeypatch):
    """The shown command is typed again."""
    import shlex

    from coalmine import cli

    scores = simulate_gaussian_mechanism(dim=100_000, canaries=60, sigma=1.0, seed=7)
    held_out = simulate_gaussian_mechanism(dim=100_000, canaries=60, sigma=1e6, seed=8)
    rows = [(value, 1) for value in scores.inserted_values] + [(value, 0) for value in held_out.inserted_values]
    (tmp_path / "scores.csv").write_text("value,inserted\n" + "".join(f"{float(value)!r},{kind}\n" for value, kind in rows))

    def estimate(arguments, output):
        monkeypatch.setattr(sys, "argv", ["coalmine", "estimate", *arguments, "-o", str(output), "--quiet"])
        with pytest.raises(SystemExit):
            cli.main()
        return Evidence.of(AuditResult.load(output))

    path = str(tmp_path / "scores.csv")
    first = estimate([path, "--delta", "1e-5", *COMMANDS[name]], tmp_path / "first.json")
    typed = shlex.split(facts.command(first))
    assert typed[:3] == ["coalmine", "estimate", "SCORES"] and "the same numbers" in facts.meaning(first)
    again = estimate([path, *typed[3:]], tmp_path / "again.json")
    assert again.result.to_json() == first.result.to_json()


def test_where_something_is_not_recorded_the_same_numbers_are_not_promised(simulated):
    scores = Scores.of([3.0, 4.0, 5.0], [0.0, 0.5, -0.5], null=GaussianNull())
    unknown = Evidence.of(audit_scores(scores, delta=1e-5))
    assert "the null law" in facts.meaning(unknown) and "same numbers" not in facts.meaning(unknown)
    limit = replace(simulated[1], claim=replace(simulated[1].claim, epsilon=4.0))
    assert "how the claim was computed" in facts.meaning(Evidence.of(limit))
    of_a_run = replace(simulated[1], training={"rounds": 4})
    assert "the configuration of the run" in facts.meaning(Evidence.of(of_a_run))


def test_the_shown_configuration_is_toml_whatever_it_holds():
    import datetime

    from coalmine.report.evidence import tomllib

    config = {"a b": {"list": [{"x": 1}, {"y": [1.5, float("inf")]}], "when": datetime.date(2020, 1, 1), "text": 'é\u007f"\\'}}
    assert tomllib.loads(facts.toml(config)) == config


ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


@pytest.fixture
def steering(finished, tmp_path):
    """A run directory whose strings try to steer a terminal."""
    out = tmp_path / "run"
    finished.copy(out)
    result = json.loads((out / "result.json").read_text())
    result["caveats"].append({"code": "note", "data": {"name": ESCAPE, "text": ESCAPE}})
    result["versions"][ESCAPE] = ESCAPE
    result["training"] |= {"model": ESCAPE, "in_words": {ESCAPE: ESCAPE}}
    result["verdict"]["reason"] = ESCAPE
    result["views"][0]["view"] = ESCAPE
    (out / "result.json").write_text(json.dumps(result))
    return out


def test_control_characters_do_not_get_through(steering, tmp_path, monkeypatch, capsys):
    from coalmine import cli
    from coalmine.report.compare import compare

    result = AuditResult.load(steering)
    shutil.copytree(steering, tmp_path / "again")
    by_hand = replace(
        result, caveats=(Caveat("note", {"name": ESCAPE, "text": ESCAPE}),), setting={**result.setting, "view": ESCAPE}
    )
    print(by_hand)
    by_hand.show()
    shown = [str(result), str(by_hand), card(by_hand), card(steering), report(steering), capsys.readouterr().out]
    shown.append(str(compare([steering, tmp_path / "again"])))
    for arguments in (("report", "--format", "md", steering), ("report", tmp_path / ESCAPE.replace("\x07", ""))):
        monkeypatch.setattr(sys, "argv", ["coalmine", *map(str, arguments)])
        with pytest.raises(SystemExit):
            cli.main()
        shown += capsys.readouterr()
    for text in shown:
        assert not set(ESCAPE) & set(text) - set("]0;owned[2J31m")
    assert "\\x1b]0;owned" in str(result)


@pytest.mark.parametrize("words", [["a"], "text", 7, None])
def test_sentences_that_are_none(finished, tmp_path, words):
    finished.copy(tmp_path / "run")
    data = json.loads((tmp_path / "run" / "result.json").read_text())
    data["training"]["in_words"] = words
    (tmp_path / "run" / "result.json").write_text(json.dumps(data))
    result = AuditResult.load(tmp_path / "run")
    assert "training" in result.in_words and "CONSISTENT" in str(result) + report(tmp_path / "run") + card(result)


def test_numbers_beyond_all_measure(finished, unsealed, tmp_path):
    out, huge = tmp_path / "run", 10**400
    finished.copy(out)
    events, text = (out / "events.jsonl").read_text(), (out / "result.json").read_text()
    (out / "events.jsonl").write_text(
        events + f'{{"round": {huge}, "epsilon_measured": {huge}}}\n{{"round": 1, "canary_share": {huge}}}\n'
    )
    assert report(out) == unsealed
    for place in (("training", "epsilon_of_clients"), ("design", "inserted"), ("diagnostics", "std"), ("claim", "epsilon")):
        data = json.loads(text)
        data[place[0]][place[1]] = huge
        (out / "result.json").write_text(json.dumps(data))
        with pytest.raises(InputFileError, match="is too long"):
            report(out)
    (out / "result.json").write_text(json.dumps(json.loads(text) | {"training": json.loads("[" * 60 + "]" * 60)}))
    with pytest.raises(InputFileError, match="nested too deeply"):
        report(out)
    (out / "result.json").write_text(text)
    config = (out / "config.toml").read_text()
    (out / "config.toml").write_text(config + f"\n[canaries_too]\nover_long = {huge}\n")
    with pytest.raises(InputFileError, match="longer than 64 bits"):
        report(out)
