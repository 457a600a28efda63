"""The verdict with tests of the mechanism: every rule of `coalmine.verdict`, and what holds whatever the tests found."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine import Once, Poisson, claim, gaussian_epsilon, gaussian_gap
from coalmine.contracts import Claim, Game, NotTested, PointEstimate, Power, Verdict
from coalmine.contracts.finding_sentences import FINDINGS, NOT_TESTED
from coalmine.verdict import CORE, NO_PART, PROMISED, judge_conformance, untested
from conforming import conformance, finding

DELTA = 1e-5
KNOWN = claim(Once(), noise_multiplier=0.63, delta=DELTA)
POWER = Power(20.0, 2.4, 18.0)
SILENT = Verdict("INCONCLUSIVE", "half-noise-missed", POWER, {"factor": 2.4})
SEEN = Verdict("CONSISTENT", "consistent", Power(9.0, 1.8, 18.0), {"factor": 1.8})
VIOLATED = Verdict("VIOLATED", "bound-above-claim", POWER, {"bound": 9.0, "claim": 7.5, "confidence": 0.95})
RANK = {"VIOLATED": 0, "DEVIATES": 1, "INCONCLUSIVE": 2, "CONSISTENT": 3}


def estimate(standard_errors, about=KNOWN, error=0.1):
    """An estimate whose gap lies so many standard errors above that of the claim, with its 95 % interval."""
    gap = gaussian_gap(about.epsilon, DELTA) + standard_errors * error
    middle, low, high = (float(gaussian_epsilon(0, 1, gap + z * error, 1, DELTA)) for z in (0.0, -1.96, 1.96))
    return PointEstimate(middle, low, high, DELTA, 0.95, "made up", 0.5, 0.0, key="gaussian-mean")


NEAR = estimate(0.3)


def word(made, verdict=SILENT, about=NEAR, stated=KNOWN):
    return judge_conformance(verdict, made, about, stated).word


# words ###############################################################################################################


def test_a_violation_stays_first():
    for made in (None, conformance(), conformance({"noise-scale": "less"})):
        assert judge_conformance(VIOLATED, made, NEAR, KNOWN) == VIOLATED


@pytest.mark.parametrize("side", ["less", "unknown"])
@pytest.mark.parametrize("key", FINDINGS)
@pytest.mark.parametrize("verdict", [SILENT, SEEN])
def test_a_sentence_found_false_is_a_deviation_that_fails_a_gate(key, side, verdict):
    made = conformance({key: side})
    if key == "quantile-noise":
        made = replace(conformance(), findings=(*conformance().findings, finding(key, side)), not_tested=())
    found = judge_conformance(verdict, made, NEAR, KNOWN)
    assert (found.word, found.side, found.found_false, found.failed) == ("DEVIATES", side, (key,), True)
    assert FINDINGS[key] in found.reason and found.power == verdict.power


def test_only_more_noise_passes():
    found = judge_conformance(SILENT, conformance({"noise-scale": "more", "noise-by-round": "more"}), NEAR, KNOWN)
    assert (found.word, found.side, found.failed, found.otherwise) == ("DEVIATES", "more", False, "CONSISTENT")
    assert "more noise than was claimed (measured 0.9, claimed 0.63)" in found.reason
    for key in ("cohorts", "clipping", "noise-fresh"):  # another mechanism, whatever its test says of the direction
        assert judge_conformance(SILENT, conformance({"noise-scale": "more", key: "more"}), NEAR, KNOWN).failed
    assert judge_conformance(SILENT, conformance({"noise-scale": "more", "clipping": "less"}), NEAR, KNOWN).side == "less"


def test_more_noise_does_not_make_up_for_what_was_not_tested():
    made = conformance({"noise-scale": "more"}, {"treated-alike": "no-samples"})
    found = judge_conformance(SILENT, made, NEAR, KNOWN)
    assert (found.word, found.failed, found.otherwise) == ("DEVIATES", False, "INCONCLUSIVE")


def test_the_reason_begins_with_what_decides():
    found = judge_conformance(SILENT, conformance({"noise-scale": "more", "treated-alike": "less"}), NEAR, KNOWN)
    assert found.found_false == ("treated-alike", "noise-scale")
    found = judge_conformance(SILENT, conformance({"cohorts": "less", "noise-scale": "less"}), NEAR, KNOWN)
    assert found.found_false[0] == "noise-scale" and "(measured 0.31, claimed 0.63), and 1 more sentence" in found.reason


def test_canaries_that_missed_are_not_the_whole_story():
    """Where tests would have seen a few percent, and the claim rests on more than they could test, both are said."""
    found = judge_conformance(SILENT, conformance({}, {"treated-alike": "no-samples"}), NEAR, KNOWN)
    assert (found.word, found.code) == ("INCONCLUSIVE", "half-noise-missed+not-all-tested")
    assert "but 1 of the sentences that the claim rests on could not be tested" in found.reason
    assert judge_conformance(SEEN, conformance({}, {"treated-alike": "no-samples"}), NEAR, KNOWN) == SEEN


def test_a_number_that_equals_the_claimed_one_is_not_shown_as_the_fault():
    """Laplace noise leaves no coordinate without noise: the sentence is false for another reason than that count."""
    made = conformance({"noise-by-coordinate": "less"})
    same = tuple(replace(each, measured=0.0, claimed=0.0) if each.deviates else each for each in made.findings)
    found = judge_conformance(SILENT, replace(made, findings=same), NEAR, KNOWN)
    assert found.reason.endswith("on every coordinate") and "measured" not in str(replace(made, findings=same).deviations[0])


# CONSISTENT by conformance ###########################################################################################


def test_a_run_that_does_what_was_claimed_is_consistent():
    found = judge_conformance(SILENT, conformance(), NEAR, KNOWN)
    assert (found.word, found.code, found.found_false) == ("CONSISTENT", "conforms", ())
    assert "noise weaker by 0.25% would have been noticed" in found.reason and "(16 tests)" in found.reason
    assert judge_conformance(SEEN, conformance(), NEAR, KNOWN).code == "conforms"


@pytest.mark.parametrize(("noticed", "wanted"), [(0.9, "CONSISTENT"), (0.899, "INCONCLUSIVE"), (None, "INCONCLUSIVE")])
def test_noise_ten_percent_too_small_must_have_been_noticed(noticed, wanted):
    assert word(conformance(noticed=noticed)) == wanted
    assert word(conformance(noticed=noticed), SEEN) == "CONSISTENT"  # by its canaries


@pytest.mark.parametrize("key", PROMISED)
def test_every_sentence_of_the_promise_must_have_been_tested(key):
    for code in sorted(set(NOT_TESTED) - set(NO_PART)):
        missing = conformance(missing={key: code})
        assert untested(missing, KNOWN) == (key,) and word(missing) == "INCONCLUSIVE", code
    made = tuple(each for each in conformance().findings if each.key != key)
    forgotten = replace(conformance(), findings=made, not_tested=())
    assert word(forgotten) == "INCONCLUSIVE"
    no_part = conformance(missing={key: "not-described"})
    assert (word(no_part) == "INCONCLUSIVE") == (key in CORE)


def test_canaries_need_not_arrive_whole_for_the_promise():
    assert word(conformance(missing={"canaries-whole": "no-residual"})) == "CONSISTENT"


def test_an_amplified_claim_rests_on_the_sampling():
    sampled = claim(Poisson(0.1, 20), noise_multiplier=1.0, delta=DELTA)
    about = estimate(0.0, sampled)
    assert sampled.game.knowledge != "rounds known" and word(conformance(), about=about, stated=sampled) == "CONSISTENT"
    assert word(conformance(missing={"cohorts": "not-described"}), about=about, stated=sampled) == "INCONCLUSIVE"


def test_a_claim_that_nobody_computed_is_not_promised():
    for stated in (Claim(7.546, DELTA), replace(KNOWN, accountant="stated"), replace(KNOWN, description=None)):
        assert word(conformance(), stated=stated) == "INCONCLUSIVE"
    bare = claim(Once(), noise_multiplier=0.0, delta=DELTA)
    assert word(conformance(), Verdict("INCONCLUSIVE", "claim-infinite", POWER), stated=bare) == "INCONCLUSIVE"


def test_another_limit_is_promised_down_to_the_claim():
    for limit, wanted in ((8.0, "CONSISTENT"), (KNOWN.epsilon, "CONSISTENT"), (7.5, "INCONCLUSIVE")):
        asked = Claim(limit, DELTA, "limit")
        assert judge_conformance(SILENT, conformance(), estimate(-1), asked, KNOWN).word == wanted
        assert judge_conformance(SILENT, conformance(), estimate(-1), asked, None).word == "INCONCLUSIVE"


# an estimate above the claim #########################################################################################


@pytest.mark.parametrize("verdict", [SEEN, SILENT])
@pytest.mark.parametrize("made", [None, conformance(missing={"clipping": "no-samples"})], ids=["none", "partial"])
def test_an_interval_above_the_claim_is_not_consistent(verdict, made):
    found = judge_conformance(verdict, made, estimate(2.1), KNOWN)
    assert found.word == "INCONCLUSIVE" and found.reason.startswith("the 95% interval of the estimate, ")
    assert ("half the noise would probably have been missed" in found.reason) == (verdict is SILENT)
    assert judge_conformance(found, made, estimate(2.1), KNOWN) == found  # said once
    assert judge_conformance(verdict, made, estimate(1.9), KNOWN).word == verdict.word


def test_where_everything_was_tested_chance_explains_what_one_in_forty_runs_shows():
    found = judge_conformance(SILENT, conformance(), estimate(2.1), KNOWN)
    assert found.word == "CONSISTENT" and "lies wholly above the" in found.reason
    for errors, wanted in ((3.28, "CONSISTENT"), (3.30, "INCONCLUSIVE")):  # z of 1 - 0.001 / 2 is 3.2905
        assert word(conformance(), about=estimate(errors)) == wanted
    loose = conformance(level=0.01)  # 2.5758
    assert [word(loose, about=estimate(errors)) for errors in (2.57, 2.59)] == ["CONSISTENT", "INCONCLUSIVE"]


def test_a_deviation_says_that_the_estimate_lies_above():
    found = judge_conformance(SEEN, conformance({"treated-alike": "unknown"}), estimate(9.0), KNOWN)
    assert found.word == "DEVIATES" and "lies wholly above the 7.55 claimed" in found.reason
    assert "above" not in judge_conformance(SEEN, conformance({"treated-alike": "unknown"}), NEAR, KNOWN).reason


# what holds for whatever the tests say ###############################################################################

SIDES = st.dictionaries(st.sampled_from(sorted(FINDINGS)), st.sampled_from(["none", "less", "more", "unknown"]))
MISSING = st.dictionaries(st.sampled_from(sorted(FINDINGS)), st.sampled_from(sorted({*NOT_TESTED, *NO_PART})))
TESTS = st.builds(conformance, SIDES, MISSING, st.none() | st.floats(0.01, 0.999))
VERDICTS = st.sampled_from([SILENT, SEEN, VIOLATED])
ABOUT = st.none() | st.floats(-5, 8).map(estimate)


@given(st.none() | TESTS, VERDICTS, ABOUT)
def test_whatever_was_found(made, verdict, about):
    found = judge_conformance(verdict, made, about, KNOWN)
    false = made.deviations if made is not None else ()
    assert (found.word == "VIOLATED") == (verdict.word == "VIOLATED")
    assert (found.word == "DEVIATES") == (bool(false) and verdict.word != "VIOLATED")
    if any(each.side in ("less", "unknown") for each in false):
        assert found.failed
    if found.word == "CONSISTENT":
        assert not false and (verdict.word == "CONSISTENT" or not untested(made, KNOWN))
        assert about is None or about.low <= KNOWN.epsilon or found.code == "conforms-estimate-above"
    assert judge_conformance(found, None, about, KNOWN).word in (found.word, "INCONCLUSIVE")
    assert found.reason and "does not know" not in found.reason


@given(TESTS, VERDICTS, ABOUT, st.sampled_from(sorted(FINDINGS)), st.sampled_from(["less", "unknown"]))
def test_a_further_deviation_never_makes_it_better(made, verdict, about, key, side):
    worse = replace(made, findings=(*(each for each in made.findings if each.key != key), finding(key, side)))
    before, after = (judge_conformance(verdict, each, about, KNOWN) for each in (made, worse))
    assert RANK[after.word] <= RANK[before.word] and after.failed >= before.failed and after.failed


@given(TESTS, ABOUT, st.sampled_from(sorted(FINDINGS)))
def test_a_test_that_was_not_made_never_makes_it_better(made, about, key):
    passed = replace(made, findings=tuple(replace(each, side="none") for each in made.findings))
    left = tuple(each for each in passed.findings if each.key != key)
    blind = replace(passed, findings=left, not_tested=(*passed.not_tested, NotTested(key, "no-samples")))
    before, after = (judge_conformance(SILENT, each, about, KNOWN).word for each in (passed, blind))
    assert RANK[after] <= RANK[before]


def test_a_game_that_is_not_stated_is_no_game_of_known_rounds():
    assert "cohorts" in untested(conformance(missing={"cohorts": "not-described"}), replace(KNOWN, game=Game()))
