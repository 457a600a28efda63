"""The sentences of a report: right for every view, unit, verdict and kind of bound."""

import math
import re
from dataclasses import replace

import pytest

from coalmine import Claim, Game, MinSeparation, Once, Poisson, Repeated, audit_scores, claim, simulate_gaussian_mechanism
from coalmine.contracts import Attendance, Caveat, Power, Verdict, plain
from coalmine.report import words
from coalmine.report.card import card
from coalmine.report.compare import Audited
from coalmine.report.page import report

DELTA = 1e-5


@pytest.fixture(scope="module")
def audit():
    scores = simulate_gaussian_mechanism(dim=100_000, canaries=300, sigma=1.0, seed=7)
    return audit_scores(scores, delta=DELTA, claim=claim(Once(), noise_multiplier=1.0, delta=DELTA))


def changed(result, *, word=None, bound=None, claimed=None, **setting):
    """The same audit with another verdict, bound, claim or setting."""
    if bound:
        result = replace(result, bounds=(replace(result.bound, **bound), *result.bounds[1:]))
    if claimed:
        result = replace(result, claim=replace(result.claim, **claimed))
    if word:
        result = replace(result, verdict=Verdict(word, f"because of {word}", Power(8.9, 1.84)))
    return replace(result, setting={**result.setting, **setting})


def test_the_whole_sentence(audit):
    shown = changed(audit, word="CONSISTENT", bound={"epsilon": 1.839}, view="known-others", assignment="coins")
    shown = replace(shown, design=replace(shown.design, inserted=300, pool=600))
    assert words.quote(shown) == (
        "An adversary who sees every release and knows the rounds of its target and all other updates tried to tell which "
        "of 600 test clients (canaries) took part (300 did, by coin flips). It showed with 95% confidence that epsilon is at "
        "least 1.83 at delta = 1e-5 (client level, add or remove one). The claim is epsilon = 4.38 for one participation."
    )


@pytest.mark.parametrize(
    ("participation", "said"),
    [
        (Repeated(1), "epsilon = 4.38 for one participation."),
        (Repeated(8), "epsilon = 4.38 for 8 participations."),
        (MinSeparation(5, 2, 15), "epsilon = 4.38 for at most 3 participations, at least 5 rounds apart."),
        (Poisson(0.1, 9), "epsilon = 4.38 under Poisson sampling at rate 0.1 for 9 rounds."),
        (Attendance("stated", text="on Sundays"), "epsilon = 4.38 for on Sundays."),
        (None, "epsilon = 4.38."),
    ],
)
def test_for_how_many_participations_the_claim_is(audit, participation, said):
    how = getattr(participation, "attendance", participation)
    game = replace(audit.claim.game, participation=how)
    assert words.quote(changed(audit, word="CONSISTENT", claimed={"game": game})).endswith(said)


def test_what_is_claimed_for_the_clients(audit):
    often = replace(audit, training={"participation": plain(Repeated(12).attendance), "epsilon_of_clients": 37.84})
    said = "For a real client, taking part 12 times, the claim is epsilon = 37.8."
    assert words.quote(often).endswith(said) and said in card(often) and said in report(often)
    alike = replace(audit, training={"participation": plain(Once().attendance), "epsilon_of_clients": 4.4})
    for other in (alike, audit):
        assert words.people(other) == "" and "a real client" not in report(other)
    assert report(often).count("a real client") > report(often).count(said)  # on the number line too
    assert "by the claim for a real client, at most 100%" in words.attacker(often)


def test_where_the_claim_is_refuted_nobody_relies_on_that_for_the_clients(audit):
    """Without a word, a bound below the claim for the clients read as if that one held."""
    often = replace(audit, training={"participation": plain(Repeated(12).attendance), "epsilon_of_clients": 37.84})
    refuted = changed(often, word="VIOLATED", bound={"epsilon": 10.5})
    said = "the claim is epsilon = 37.8, for the same code, and cannot be relied on either."
    deviates = changed(often, word="DEVIATES")
    more = replace(deviates, verdict=replace(deviates.verdict, side="more"))
    assert words.quote(deviates).endswith(said) and "relied" not in words.quote(more)
    assert words.quote(refuted).endswith(said) and "relied" not in words.quote(changed(often, word="CONSISTENT"))


def test_the_numbers_for_people_who_do_not_read_epsilon(audit):
    said = words.attacker(changed(audit, bound={"epsilon": 1.839}))
    assert said == (
        "An attacker with 1% false alarms finds at most 9.3% of the targets by the claim, at least 3.1% by what was shown "
        "(95% confidence)."
    )
    assert said in report(changed(audit, bound={"epsilon": 1.839})) and said in card(changed(audit, bound={"epsilon": 1.839}))
    nothing = words.attacker(changed(audit, bound={"epsilon": 0.0}))
    assert nothing.endswith("by the claim, and no more than by guessing by what was shown.")
    assert words.attacker(replace(audit, claim=None, verdict=None)) == ""
    stated = words.attacker(changed(audit, claimed={"description": None}))
    assert stated == "An attacker with 1% false alarms finds at most 79.7% of the targets by the claim."


def test_the_question_comes_first_and_is_answered(audit):
    page = report(audit)
    assert page.index("Is the DP implementation right?") < page.index('id="verdict"') < page.index('id="quote"')
    answers = {"CONSISTENT": "As far as this audit sees, yes: ", "VIOLATED": "No: ", "INCONCLUSIVE": "Not known: "}
    for word, answer in answers.items():
        assert words.answer(changed(audit, word=word)).startswith(answer)
    assert words.answer(replace(audit, verdict=None)).startswith("Not asked: ")


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ("final-model", "who sees only the final model"),
        ("whole-model", "its start included"),
        ("every-release", "but not who took part when"),
        ("every-step", "every step of the model"),
        ("known-rounds", "knows in which rounds its target took part"),
        ("known-others", "and all other updates"),
        ("one-release", "who sees one release "),
        ("unstated", "whose view was not stated"),
        ("my own", "with the view “my own”"),
    ],
)
def test_every_view_has_its_adversary(audit, view, said):
    assert said in words.quote(changed(audit, view=view))


def test_a_layer_is_named(audit):
    said = words.quote(changed(audit, view="known-rounds", layer="encoder.weight"))
    assert "took part, limited to the layer encoder.weight" in said


def test_a_violation_is_said_to_be_one(audit):
    said = words.quote(changed(audit, word="VIOLATED", bound={"epsilon": 6.13}))
    assert "showed with 95% confidence that epsilon is at least 6.13 at delta = 1e-5" in said
    assert said.endswith(
        "(client level, add or remove one). That is more than the epsilon = 4.38 that is claimed for one participation."
    )


def test_a_narrow_violation_is_said_with_as_many_digits_as_it_takes(audit):
    said = words.quote(changed(audit, word="VIOLATED", bound={"epsilon": 4.3783}, claimed={"epsilon": 4.3772}))
    assert "at least 4.378 at" in said and "epsilon = 4.377 that is claimed" in said


def test_a_weak_audit_is_said_to_be_weak(audit):
    assert words.quote(changed(audit, word="INCONCLUSIVE")).endswith(
        "4.38 for one participation, and this audit was too weak to test it."
    )


def test_nothing_shown_is_not_a_bound(audit):
    said = words.quote(changed(audit, word="CONSISTENT", bound={"epsilon": 0.0}))
    assert "could not show with 95% confidence any leakage: epsilon is at least 0 at delta" in said


def test_no_claim(audit):
    said = words.quote(replace(audit, claim=None, verdict=None))
    assert said.endswith(". There is no claim to compare it with.")
    assert words.verdict_word(replace(audit, verdict=None)) == "NO CLAIM"


def test_infinite_numbers(audit):
    assert "no finite epsilon holds" in words.quote(changed(audit, word="VIOLATED", bound={"epsilon": math.inf}))
    assert "The claim is infinite" in words.quote(changed(audit, word="INCONCLUSIVE", claimed={"epsilon": math.inf}))


def test_an_approximate_method_proves_nothing():
    scores = simulate_gaussian_mechanism(dim=100_000, canaries=100, sigma=1.0, seed=7)
    approximate = audit_scores(scores, delta=DELTA, method="pointwise")
    said = words.quote(approximate)
    assert "approximate method" in said and "which proves nothing" in said
    assert "showed" not in said and "could show" not in said and "confidence" not in said
    assert any(limit.startswith("A proof.") for limit in words.not_shown(approximate))


@pytest.mark.parametrize(
    ("game", "targets", "level"),
    [
        (Game("client", "replace-one"), "test clients (canaries).", "(client level, replace one)"),
        (Game("example", "add-or-remove-one"), "test examples (canaries).", "(example level, add or remove one)"),
        (Game(), "300 canaries.", "at delta = 1e-5."),
    ],
)
def test_every_unit_and_relation(audit, game, targets, level):
    shown = changed(audit, word="CONSISTENT", claimed={"game": game}, assignment="fixed")
    assert targets in words.quote(shown) and level in words.quote(shown)


def test_confidence_is_not_rounded(audit):
    assert "with 99.9% confidence" in words.quote(changed(audit, bound={"confidence": 0.999}))


def test_what_would_have_been_noticed(audit):
    noticed = words.noticed
    assert noticed(changed(audit, word="CONSISTENT")).startswith(
        "Noise at 54% of its claimed strength or less would have been noticed, which is an epsilon of 8.90 instead of the 4.38"
    )
    assert noticed(changed(audit, word="INCONCLUSIVE")).startswith("Only noise at 54% of its claimed strength or less")
    assert noticed(changed(audit, word="CONSISTENT")).endswith("(in 4 of 5 such audits, if scores are Gaussian).")
    blind = replace(audit, verdict=replace(audit.verdict, power=replace(audit.verdict.power, noise_factor=math.inf)))
    assert noticed(blind) == "No lack of noise would have been noticed."
    assert "Any leak from epsilon" in noticed(replace(audit, verdict=None))


def test_the_reason_does_not_repeat_what_would_have_been_noticed(audit):
    seen = replace(audit, verdict=Verdict("CONSISTENT", "consistent", Power(8.9, 1.9), {"factor": 1.9}))
    assert words.gloss(seen) == "no leak above the claim was found"
    assert words.gloss(audit).startswith("the 95% interval of the estimate, 4.45 to 5.63, lies wholly above the 4.38 claimed")
    power = Power(8.9, 2.2)
    shown = replace(audit, verdict=Verdict("INCONCLUSIVE", "half-noise-missed", power, {"factor": 2.2}))
    assert words.gloss(shown) == "half the noise would probably have been missed"
    assert words.reason(shown).startswith("the canaries would have noticed only noise at 45% of its claimed strength")
    shown = replace(audit, verdict=Verdict("INCONCLUSIVE", "nothing-detectable", power))
    assert words.gloss(shown) == words.reason(shown) == "no violation would have been noticed"


@pytest.mark.parametrize("word", ["VIOLATED", "CONSISTENT", "INCONCLUSIVE", None])
def test_what_is_not_shown_begins_with_the_verdict(audit, word):
    shown = changed(audit, word=word) if word else replace(audit, verdict=None)
    first = {"VIOLATED": "Why", "CONSISTENT": "That the training is private", "INCONCLUSIVE": "Whether the claim holds"}
    limits = words.not_shown(shown)
    assert limits[0].startswith(first.get(word, "Whether any claim holds"))
    assert any("single examples" in limit for limit in limits)


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ("known-rounds", "random directions"),
        ("whitened", "aimed"),
        ("crafted-canaries", "data crafted for the model"),
        ("mine", "One kind"),
    ],
)
def test_canaries_are_called_what_they_are(audit, view, said):
    limits = words.not_shown(replace(audit, setting={**audit.setting, "view": view}))
    stronger = next(each for each in limits if each.startswith("What a stronger attack"))
    assert said in stronger and ("random" in stronger) == (view == "known-rounds")


def test_clients_that_take_part_more_often_are_named(audit):
    shown = replace(audit, training={"participation": plain(Repeated(12).attendance), "epsilon_of_clients": "inf"})
    assert any("clients 12 times" in limit and "epsilon = ∞" in limit for limit in words.not_shown(shown))


def test_diagnostics_in_words(audit):
    found = dict(words.diagnostics(audit))
    assert "as assumed" in found["Width"] and "standard deviations above the null" in found["Gap"]
    suspicious = replace(audit, diagnostics={**audit.diagnostics, "variance_p_value": 1e-9})
    assert "not as assumed" in dict(words.diagnostics(suspicious))["Width"]
    assert "not tested" in dict(words.diagnostics(replace(audit, diagnostics={})))["Shape"]


def test_caveats_have_names(audit):
    shown = replace(audit, caveats=(Caveat("reversed"), Caveat("note", {"name": "mine", "text": "my words"})))
    assert [name for name, _ in words.caveats(shown)] == ["reversed", "mine"] and words.caveats(shown)[1][1] == "my words"


def test_a_stated_claim_without_a_game(audit):
    stated = replace(audit, claim=Claim(3.0, DELTA), game=Game())
    assert "canaries" in words.quote(stated) and "level" not in words.quote(stated)


def test_no_rounding_turns_a_verdict_round(audit):
    """Bounds are rounded down, and a violation is always seen to be one."""
    for bound, claimed in ((4.3849, 4.3751), (1.0001, 1.0), (9.999, 9.99), (123.9, 123.6), (2e6, 1.99e6)):
        said = words.quote(changed(audit, word="VIOLATED", bound={"epsilon": bound}, claimed={"epsilon": claimed}))
        least, most = (
            float(found.replace(",", "")) for found in re.findall(r"at least (\S+) at .*epsilon = (\S+) that", said)[0]
        )
        assert most < least <= bound, said
    assert "at least 1.82 at" in words.quote(changed(audit, word="CONSISTENT", bound={"epsilon": 1.8299}))
    assert "| 1.82 |" in card(changed(audit, word="CONSISTENT", bound={"epsilon": 1.8299}))


def test_a_factor_that_is_none_is_left_out(audit):
    blank = replace(audit, verdict=replace(audit.verdict, power=replace(audit.verdict.power, noise_factor=1.0)))
    assert words.noticed(blank) == "" and 'id="noticed"' not in report(blank)
    assert Audited("x", blank).cells()["would notice"] == "–"
    exact = replace(audit, verdict=replace(audit.verdict, power=replace(audit.verdict.power, noise_factor=2.01)))
    assert "at 49% of" in words.noticed(exact) and Audited("x", exact).cells()["would notice"] == "noise ÷ 2.1"


def test_a_law_that_does_not_fit_is_said_not_to(audit):
    wrong = replace(audit, diagnostics={**audit.diagnostics, "normality_p_value": 1.3e-67, "skewness_p_value": 0.0})
    found = dict(words.diagnostics(wrong))
    assert found["Shape"].startswith("the normal law does not fit") and "p = 1.3e-67, not as assumed" in found["Shape"]
    assert "p < 1e-300, not as assumed" in found["Symmetry"]
    assert dict(words.diagnostics(audit))["Shape"].startswith("the normal law fits")
