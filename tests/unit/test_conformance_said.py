"""What is said about tests of a mechanism: printed, in files, on pages and cards, in comparisons, and by the gate."""

import copy
import json
import re
import sys
from dataclasses import replace

import jsonschema
import pytest

from coalmine import AuditResult, Once, audit_scores, claim, cli, simulate_gaussian_mechanism
from coalmine.audit.conforming import in_words_of
from coalmine.audit.spec import AuditSpec, Statement
from coalmine.audit.statements import with_conformance
from coalmine.contracts import Clip, Conformance, Description, Noise
from coalmine.errors import InputFileError
from coalmine.mechanisms.strategies import Banded
from coalmine.report import conforming as panel
from coalmine.report import words
from coalmine.report.card import card
from coalmine.report.compare import Audited
from coalmine.report.noise_chart import noise_by_round
from coalmine.report.page import report
from coalmine.result import schema
from coalmine.training.config import read_config
from conforming import conformance, finding

DELTA = 1e-5
UNSEEN = ("noise-scale", "noise-independent", "noise-unpredictable")
MADE = {
    "as claimed": conformance(),
    "less": conformance({"noise-scale": "less", "noise-by-round": "less"}),
    "unknown": conformance({"noise-independent": "unknown"}),
    "more": conformance({"noise-scale": "more"}),
    "partial": conformance(missing={"cohorts": "no-cohorts", "clipping": "no-samples", "treated-alike": "no-samples"}),
    "no noise seen": conformance(missing=dict.fromkeys(UNSEEN, "no-residual"), noticed=None, noise_by_round=(),
                                 epsilon_at_measured=()),
    "nothing": Conformance(()),
}  # fmt: skip
every = pytest.mark.parametrize("made", MADE.values(), ids=MADE)


@pytest.fixture(scope="module")
def plain():
    """An audit whose canaries alone cannot tell."""
    scores = simulate_gaussian_mechanism(dim=100_000, canaries=12, sigma=0.63, seed=7)
    found = audit_scores(scores, delta=DELTA, claim=claim(Once(), noise_multiplier=0.63, delta=DELTA))
    assert found.verdict.word == "INCONCLUSIVE" and found.estimate.low < found.claim.epsilon
    return found


@pytest.fixture
def check(plain, tmp_path, monkeypatch, capsys):
    """(exit code, standard output, standard error) of `coalmine check`."""

    def check(made, limit, *options):
        with_conformance(plain, made).save(tmp_path / "result.json")
        monkeypatch.setattr(
            sys, "argv", ["coalmine", "check", str(tmp_path / "result.json"), "--max-epsilon", str(limit), *options]
        )
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return (stopped.value.code, *capsys.readouterr())

    return check


# print ###############################################################################################################


def test_the_line_of_the_mechanism(plain):
    shown = str(with_conformance(plain, MADE["as claimed"])).splitlines()
    line = "  mechanism     noise 0.6289 ± 0.0012 (claimed 0.63), clip 1.0000, fresh every round, 16 tests, smallest p 0.21"
    assert line in shown and not any(each.startswith(("  found false", "  not tested")) for each in shown)
    assert shown[0].startswith("CONSISTENT  the code does what was claimed, and no leak above the claim was found")
    assert not any(each.startswith("  mechanism") for each in str(plain).splitlines())


def test_what_was_found_false_and_what_was_not_tested_has_lines(plain):
    shown = [each for each in str(with_conformance(plain, MADE["less"])).splitlines() if each.startswith("  found false")]
    assert len(shown) == 2 and "measured 0.3100 ± 0.0012, claimed 0.63 (p = 1e-09, less than claimed)" in shown[0]
    shown = [each for each in str(with_conformance(plain, MADE["partial"])).splitlines() if each.startswith("  not tested")]
    assert len(shown) == 2 and shown[1].endswith("once: no contribution was seen before and after clipping")
    stale = conformance({"noise-fresh": "unknown"})
    assert "fresh every round" not in str(with_conformance(plain, stale))


def test_correlated_noise_is_not_said_to_be_fresh(plain):
    """It is new in every round only once its strategy has whitened it."""
    described = Description(Clip(1.0), Noise(0.63, 0.63, rounds=Banded(8, (0.8, 0.6))))
    assert in_words_of(MADE["as claimed"], Description(Clip(1.0), Noise(0.63, 0.63))) == MADE["as claimed"]
    shown = str(with_conformance(plain, in_words_of(MADE["as claimed"], described)))
    assert "independent between rounds after whitening" in shown and "fresh every round" not in shown
    result = with_conformance(plain, in_words_of(conformance({"noise-fresh": "unknown"}), described))
    assert "Found false: whitened by its strategy, the noise is new in every round" in str(result)


@every
def test_every_statement_can_be_printed_shown_and_put_on_a_page(plain, made):
    result = with_conformance(plain, made)
    assert str(made) in str(result) and str(made) in result._repr_html_()
    page, text = report(result), card(result)
    assert "Does the code do what was claimed?" in page and "Does the code do what was claimed?" in text
    assert page.count('<tr class="side-') == len(made.findings) + len(made.not_tested)


def test_words_have_signs_everywhere(plain, monkeypatch):
    result = with_conformance(plain, MADE["less"])
    assert "≠ DEVIATES" in result._repr_html_() and Audited("x", result).mark == "≠"
    assert '<main class="deviates">' in report(result)
    assert '<main class="more deviates">' in report(with_conformance(plain, MADE["more"]))


# files ###############################################################################################################


@every
def test_there_and_back(plain, made):
    result = with_conformance(plain, made)
    text = result.to_json()
    again = AuditResult.from_json(text)
    assert again.to_json() == text and str(again) == str(result) and again.conformance == made
    validator = jsonschema.Draft202012Validator(schema())
    assert [error.message for error in validator.iter_errors(json.loads(text))] == []
    stored = json.loads(text)["conformance"]
    assert [each["sentence"] for each in stored["findings"]] == [each.sentence for each in made.findings]
    assert [each["reason"] for each in stored["not_tested"]] == [each.reason for each in made.not_tested]


def test_the_schema_and_the_reader_refuse_what_does_not_fit(plain):
    document = json.loads(with_conformance(plain, MADE["partial"]).to_json())
    validator = jsonschema.Draft202012Validator(schema())
    places = [("conformance",), ("conformance", "findings", 0), ("conformance", "not_tested", 0)]
    for place in places:
        holder = document
        for key in place:
            holder = holder[key]
        for name in holder:
            if name in ("sentence", "reason"):  # copies that nothing reads back
                continue
            for change in ("missing", True, [[]]):
                broken = copy.deepcopy(document)
                part = broken
                for key in place:
                    part = part[key]
                if change == "missing":
                    del part[name]
                else:
                    part[name] = change
                assert not validator.is_valid(broken), (place, name, change)
                with pytest.raises(InputFileError):
                    AuditResult.from_json(json.dumps(broken))


@pytest.mark.parametrize(("made", "word"), [("as claimed", "DEVIATES"), ("less", "CONSISTENT"), ("more", "INCONCLUSIVE")])
def test_a_verdict_that_the_tests_contradict_is_refused(plain, made, word):
    document = json.loads(with_conformance(plain, MADE[made]).to_json())
    document["verdict"]["word"] = word
    with pytest.raises(InputFileError, match=f"the verdict {word} contradicts"):
        AuditResult.from_json(json.dumps(document))


def test_a_result_of_before_has_no_panel_and_no_line(plain):
    document = json.loads(plain.to_json())
    del document["conformance"]
    for name in ("side", "found_false", "otherwise"):
        del document["verdict"][name]
    old = AuditResult.from_json(json.dumps(document))
    assert old.verdict == plain.verdict and str(old) == str(plain)
    assert 'id="conformance"' not in report(old) and "noise" not in Audited("old", old).cells()


# pages ###############################################################################################################


def test_rows_have_what_was_claimed_and_measured_the_false_ones_first(plain):
    rows = panel.rows(conformance({"treated-alike": "less"}, {"cohorts": "no-cohorts"}))
    assert [rows[0].kind, rows[0].mark] == ["less", "✕ less than claimed"]
    assert [row.kind for row in rows[-2:]] == ["untested"] * 2 and rows[-2].note == "who took part is not recorded"
    scale = next(row for row in rows if row.measured)
    assert (scale.claimed, scale.measured, scale.note) == ("0.63", "0.6289 ± 0.0012", "p = 0.21")
    somewhere = panel.SentenceRow.of(finding("noise-by-round", "less", where="round 12"))
    assert somewhere.note == "p = 1e-09, round 12"


def test_the_epsilon_at_the_measured_noise_is_called_an_estimate(plain):
    said = panel.at_measured(with_conformance(plain, MADE["as claimed"]))
    assert "the same accountant gives epsilon = 7.56 [7.53, 7.60]" in said and "an estimate under the mechanism" in said
    assert panel.at_measured(with_conformance(plain, MADE["nothing"])) == panel.at_measured(plain) == ""


def test_the_chart_of_noise_by_round(plain):
    drawn = noise_by_round(MADE["as claimed"])
    (points,) = (line for line in drawn.axes[0].lines if line.get_label() == "measured")
    assert list(points.get_ydata()) == list(MADE["as claimed"].noise_by_round)
    assert list(points.get_xdata()) == [1, 2, 3, 4, 5, 6, 7, 8]
    blocks = noise_by_round(replace(MADE["as claimed"], rounds_per_point=10))
    assert list(blocks.axes[0].lines[-1].get_xdata())[:2] == [5.5, 15.5]
    many = noise_by_round(replace(MADE["as claimed"], noise_by_round=(0.63,) * 5000))
    assert len(many.axes[0].lines[-1].get_xdata()) <= 160
    assert noise_by_round(MADE["nothing"]) is None and 'id="figure-noise"' not in report(
        with_conformance(plain, MADE["nothing"])
    )
    assert 'id="figure-noise"' in report(with_conformance(plain, MADE["as claimed"]))


def test_names_of_others_stay_text(plain):
    hostile = replace(MADE["as claimed"], findings=(finding("<script>x</script>", where="<b>here</b>"),))
    page, text = report(with_conformance(plain, hostile)), card(with_conformance(plain, hostile))
    page = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)
    assert "<script>" not in page + text and "<b>here" not in page + text


def test_what_is_not_shown_where_nobody_looked_at_the_noise(plain):
    """Noise with structure and predictable noise are named."""
    named = "Noise with structure, or noise that can be predicted."
    for result in (plain, *(with_conformance(plain, MADE[name]) for name in ("no noise seen", "nothing"))):
        assert any(limit.startswith(named) for limit in words.not_shown(result))
    for name in ("as claimed", "less", "more", "partial"):
        assert not any(limit.startswith(named) for limit in words.not_shown(with_conformance(plain, MADE[name])))


def test_sentences_of_a_page_go_with_the_word(plain):
    deviating, conforming = (with_conformance(plain, MADE[name]) for name in ("less", "as claimed"))
    assert words.quote(deviating).endswith("computed for another mechanism than the code that ran.")
    assert words.not_shown(deviating)[0].startswith("What epsilon is.")
    assert "too weak" in words.quote(plain) and "too weak" not in words.quote(conforming)
    assert words.noticed(conforming).startswith(
        "Had the code added 0.25% less noise than claimed, the tests would have noticed it"
    )
    assert words.gloss(conforming) == "the code does what was claimed, and no leak above the claim was found"


def test_a_comparison_has_the_noise(plain):
    cells = Audited("x", with_conformance(plain, MADE["less"])).cells()
    assert cells["noise"] == "0.3100 ± 0.0012 (claimed 0.63)" and cells["verdict"] == "≠ DEVIATES"
    assert cells["would notice"] == "noise 0.25% less"
    assert Audited("x", with_conformance(plain, MADE["no noise seen"])).cells()["noise"] == "not measured"


# the gate ############################################################################################################


@pytest.mark.parametrize(
    ("name", "limit", "code", "word"),
    [
        ("as claimed", 8, 0, "CONSISTENT"),
        ("as claimed", 7, 3, "INCONCLUSIVE"),  # less than the accountant claims
        ("as claimed", 0.1, 1, "VIOLATED"),
        ("less", 8, 1, "DEVIATES"),
        ("less", 1000, 1, "DEVIATES"),
        ("unknown", 8, 1, "DEVIATES"),
        ("more", 8, 0, "DEVIATES"),
        ("more", 7, 3, "DEVIATES"),
        ("partial", 8, 3, "INCONCLUSIVE"),
    ],
)
def test_exit_codes_of_check(check, name, limit, code, word):
    found, out, _ = check(MADE[name], limit, "--json")
    shown = json.loads(out)
    assert (found, shown["exit_code"], shown["word"]) == (code, code, word)
    assert (shown["side"] if word == "DEVIATES" else "none") == shown["side"]
    assert check(MADE[name], limit)[1].startswith(f"{word}: ")


def test_more_noise_passes_with_a_notice(check):
    code, out, error = check(MADE["more"], 8)
    assert code == 0 and "more noise than was claimed" in out and "notice: more noise than claimed" in error
    assert check(MADE["more"], 8, "--quiet")[2] == "" and "more noise" not in check(MADE["as claimed"], 8)[2]


def test_check_says_its_exit_codes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["coalmine", "check", "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    shown = capsys.readouterr().out
    assert "DEVIATES to more noise than claimed" in shown and "DEVIATES to less protection" in shown


# the level ###########################################################################################################


def test_the_level_is_a_key_of_the_configuration():
    assert read_config("tiny", []).spec.conformance_level == AuditSpec(DELTA).conformance_level == 0.001
    assert read_config("tiny", ["audit.conformance_level=0.01"]).spec.conformance_level == 0.01
    assert Statement(conformance_level=0.02).spec(DELTA).conformance_level == 0.02
    for wrong in (0.0, -0.1, 0.2, float("nan")):
        with pytest.raises(ValueError, match="conformance_level"):
            AuditSpec(DELTA, conformance_level=wrong)
        with pytest.raises(ValueError, match="conformance_level"):
            read_config("tiny", [f"audit.conformance_level={wrong}"])
