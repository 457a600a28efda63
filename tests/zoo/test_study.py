"""A slice of the study: every bug that can be seen is caught, correct code is not called wrong. `make zoo` is the whole of it.

The seeds are fixed. In the whole study every visible bug is caught in at least 19 of 20 runs; should a change make one of
them rarer, these tests say so for some of its seeds. A correct run is called VIOLATED with probability 0.05 at most.
"""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from coalmine.audit.conclude import conclude
from coalmine.contracts.finding_sentences import finding
from coalmine.estimators.power import plan
from coalmine.gaussian import gaussian_epsilon
from coalmine.zoo import BUGS, SETTINGS, audit_all, audit_once, listing
from coalmine.zoo.page import page
from coalmine.zoo.power import TooLittle, check, curve
from coalmine.zoo.reading import bugs_told
from coalmine.zoo.study import BugRow, SeedVerdict, Study, most_false_alarms

INNOCENT = [name for name, each in BUGS.items() if each.innocent]
VISIBLE = [name for name, each in BUGS.items() if each.canaries and not each.innocent]
BLIND = [name for name, each in BUGS.items() if not each.canaries]


@cache
def audited(setting, bug, seed):
    """The audit of a setting and a bug by their names, for all tests that look at it."""
    return audit_once(SETTINGS[setting], None if bug is None else BUGS[bug], seed)


@pytest.fixture(autouse=True)
def quiet(one_thread):
    """Every run in one thread, as in the study."""


@pytest.mark.parametrize("name", INNOCENT)
def test_odd_code_that_leaks_no_more_than_is_claimed_is_not_accused(name):
    each = BUGS[name]
    assert audited(each.setting, name, 0).verdict.word != "VIOLATED"


@pytest.mark.parametrize("name", VISIBLE)
def test_a_bug_that_can_be_seen_is_caught_and_located(name):
    each = BUGS[name]
    result = audited(each.setting, name, 0)
    assert result.verdict.word == "VIOLATED"
    if each.sentence:  # (of some, the mechanism is as it is described, and the accountant is wrong about it)
        assert result.conformance.finding(each.sentence).deviates
    if each.where is not None:
        assert result.setting["layer"] == each.where


@pytest.mark.parametrize("name", BLIND)
def test_a_bug_that_canaries_cannot_see_is_caught_by_the_tests_of_the_description(name):
    each = BUGS[name]
    result = audited(each.setting, name, 0)
    assert result.verdict.word == "DEVIATES" and result.verdict.failed
    assert result.conformance.finding(each.sentence).deviates


@pytest.mark.parametrize("name", SETTINGS)
def test_correct_code_is_not_accused(name):
    """Two runs each; with independent runs that use up their risk, both are accused by canaries once in 400.

    The tests of the mechanism accuse a correct run once in a thousand times: of some two dozen runs, one in 2 % of all cases.
    """
    results = [audited(name, None, seed) for seed in range(2)]
    assert sum(result.verdict.word == "VIOLATED" for result in results) < 2
    if not SETTINGS[name].records:  # (releases of a mechanism alone: there is no training to test)
        assert [result.conformance.deviations for result in results] == [(), ()]


@pytest.mark.parametrize(
    "name", [name for name in SETTINGS if not name.startswith(("adaptive", "correlated", "records"))]
)  # (those have bugs of their own, which are caught)
def test_every_setting_could_accuse(name):
    """Otherwise that correct code is not accused would say nothing."""
    assert audited(name, "no-noise", 0).verdict.word == "VIOLATED"


@pytest.mark.parametrize("bug", [BUGS["clip-the-average"], BUGS["no-noise"], None], ids=lambda bug: getattr(bug, "name", ""))
def test_a_fault_everywhere_is_located_nowhere(bug):
    """A fault of the whole shows in the larger layers too, and is not theirs."""
    result = audit_once(SETTINGS["layers"], bug or replace(BUGS["half-noise"], kind=TooLittle(8.0)), 0)
    assert result.verdict.word == "VIOLATED"
    assert "within" not in result.setting["view"]


def test_bug_and_correct_twin_are_seen_by_the_same_view():
    for each in BUGS.values():
        assert not hasattr(each, "view"), each.name
    bug, right = audited("dealt", "shuffled", 0), audited("dealt", None, 0)
    assert (bug.bound.epsilon, bug.setting) == (right.bound.epsilon, right.setting)  # the same run, but for what is claimed
    assert bug.claim.epsilon < right.bound.epsilon < right.claim.epsilon


class ChoosesItsClaim:
    def observe(self, finished):
        pass

    def conclude(self, scorer):
        lower = replace(scorer, stated=replace(scorer.stated, epsilon=0.01))
        return conclude(lower)


def test_no_other_auditor_is_said_to_have_seen_records():
    with pytest.raises(ValueError, match="no rounds that another auditor"):
        audit_once(SETTINGS["records"], None, 0, ChoosesItsClaim)


def test_an_auditor_cannot_choose_the_claim():
    with pytest.raises(ValueError, match="do not choose the claim"):
        audit_once(SETTINGS["once"], None, 0, ChoosesItsClaim)


def test_the_plan_says_what_the_power_curve_says():
    from coalmine.cli.options import design

    point = curve(0.5, 316, [1.5])[0]
    claim = float(gaussian_epsilon(0.0, 1.0, 2.0, 1.0, 1e-5))
    assert plan(claim, delta=1e-5, design=design(316, None, "transform")).power["1.5"] == point.simulated


def test_clipping_after_averaging_is_invisible_to_canaries_of_the_clip_norm():
    """Why canaries are sent over-long: one that already has the clip norm is not changed by any clipping."""
    setting, bug = SETTINGS["once"], BUGS["clip-the-average"]
    short = replace(setting, changes=("canaries.canary_norm=1.0",))
    assert audited("once", "clip-the-average", 0).verdict.word == "VIOLATED"
    assert audit_once(short, bug, 0).verdict.word != "VIOLATED"


def test_only_the_matched_filter_sees_noise_that_is_reused():
    """A view of single rounds, the largest cosine of all, sees no more of it than of new noise."""
    setting, bug = SETTINGS["rounds"], BUGS["reused-noise"]
    single = replace(setting, changes=("audit.view=every-release",))
    assert audited("rounds", "reused-noise", 0).verdict.word == "VIOLATED"
    assert audit_once(single, bug, 0).verdict.word != "VIOLATED"


def test_momentum_before_the_noise_is_invisible_in_the_canaries_own_rounds():
    setting, bug = SETTINGS["afterwards"], BUGS["momentum-first"]
    own = replace(setting, changes=tuple(change.replace("afterwards", "known-others") for change in setting.changes))
    assert audit_once(own, bug, 0).verdict.word != "VIOLATED"


def test_bare_quantiles_are_seen_by_looking_at_the_clip_norms():
    """What the zoo says would see it: each step of the clip norm is the exact number of unclipped updates."""
    setting, bug = SETTINGS["adaptive"], BUGS["bare-quantile"]
    for each, whole in ((bug, True), (None, False)):
        job = setting.job(0) if each is None else each.kind.into(setting.job(0), 0)
        seen = []

        class Looks:
            def observe(self, finished, seen=seen):
                seen.append((finished.release, finished.record))

            def conclude(self, scorer):
                return conclude(scorer)

        audit_once(setting, each, 0, Looks)
        mechanism, recovered = job.mechanism, []
        for (first, record), (second, _) in pairwise(seen):
            step = np.log(second.clip_norm / first.clip_norm) / -mechanism.clip_learning_rate + mechanism.target_quantile
            took_part = record["clients"] + record["canaries"]
            if 1e-6 < step < 1 - 1e-6:  # shares are cut to between 0 and 1
                recovered.append((step - 0.5) * first.denominator + took_part / 2)
        assert len(recovered) > 2
        assert all(abs(count - round(count)) < 1e-6 for count in recovered) == whole


def test_sparse_noise_is_seen_by_looking_at_coordinates_that_do_not_move():
    """Digits have pixels that are always blank. In a round without canaries their weights stay where they are, to the bit."""
    setting, bug = SETTINGS["once"], BUGS["sparse-noise"]
    for each, still in ((bug, True), (None, False)):
        job = replace(setting.job(0) if each is None else each.kind.into(setting.job(0), 0), canary_setup=None)
        from coalmine.workers import Workers

        with Workers(1, job.work()) as workers:
            first = next(iter(job.rounds_from(0, job.start(), workers)))
        assert bool((first.observed.release.vector == 0).any()) == still


def test_shuffling_is_seen_by_counting_rounds():
    """Dealt out, a canary is in one of the two rounds of every epoch; sampled, it is as often in none or in both."""
    setting = SETTINGS["poisson"]
    for job, dealt in ((setting.job(0), False), (BUGS["shuffled-in-secret"].kind.into(setting.job(0), 0), True)):
        epochs = job.canary_setup.schedule.presence.reshape(8, 2, -1).sum(axis=1)
        assert bool((epochs == 1).all()) == dealt


def test_the_power_curve_is_that_of_real_runs():
    """Few runs here; `make zoo` makes 40 at each of five points."""
    found = check([(0.5, 316, 1.5)], runs=12, workers=1)[0]
    assert found.agrees and 0 < found.caught < 12
    assert not replace(found, caught=12).agrees


def test_the_curve_rises_with_the_factor_and_with_canaries():
    few, many = curve(1.0, 100), curve(1.0, 1000)
    assert [point.simulated for point in few] == sorted(point.simulated for point in few)
    assert all(more.simulated >= less.simulated - 0.05 for less, more in zip(few, many, strict=True))
    assert TooLittle(2.0).into(SETTINGS["once"].job(0), 0).mechanism.update_noise_multiplier == 0.25


def test_every_bug_says_two_sentences_and_shows_the_right_line():
    for each in BUGS.values():
        assert each.fault.endswith(".") and each.seen.endswith(".") and each.fault != each.seen, each.name
        assert each.source.endswith("."), each.name
        assert "# right: " in each.code, each.name
        assert each.setting in SETTINGS, each.name


def test_the_listing_reads_what_the_classes_say_without_loading_them():
    told = bugs_told()
    assert list(told) == list(BUGS)
    words = ("name", "setting", "source", "fault", "seen", "code", "canaries", "sentence", "where", "innocent")
    for name, loaded in BUGS.items():
        assert {word: getattr(told[name], word) for word in words} == {word: getattr(loaded, word) for word in words}
        if loaded.sentence:
            assert f"The sentence that is false: {finding(loaded.sentence, {})}." in str(listing([name]))


@pytest.mark.parametrize("first", ["clipping", "water_filling", "shape"])
def test_the_order_of_bugs_does_not_depend_on_what_was_loaded_first(first):
    program = f"import coalmine.zoo.{first}; from coalmine.zoo import BUGS; print(*BUGS)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == list(bugs_told()) == list(BUGS)


def test_the_listing_explains_all_and_shows_the_code_of_those_that_are_named():
    everything = str(listing())
    assert all(name in everything for name in BUGS) and "class HalfTheNoise" not in everything
    assert "class HalfTheNoise" in str(listing(["half-noise"]))
    assert [entry["name"] for entry in json.loads(listing().to_json())] == list(BUGS)
    with pytest.raises(ValueError, match="'half-nois' is not allowed"):
        listing(["half-nois"])


def paper(word, layer=None, false=()):
    return SeedVerdict(0, word, "known-others", layer, 1.0, 2.0, "band", word in ("VIOLATED", "DEVIATES"), false)


def test_what_passes_the_study():
    assert most_false_alarms(200) == 20
    assert BugRow("bug", "once", (paper("VIOLATED"),) * 19 + (paper("CONSISTENT"),), True).passed
    assert not BugRow("bug", "once", (paper("VIOLATED"),) * 18 + (paper("CONSISTENT"),) * 2, True).passed
    assert not BugRow("bug", "layers", (paper("VIOLATED"),) * 20, True, "dense4").passed
    assert BugRow("bug", "layers", (paper("VIOLATED", "dense4"),) * 20, True, "dense4").passed
    assert not BugRow("bug", "once", (paper("CONSISTENT"),) * 20, False).passed
    found = (paper("DEVIATES", false=("noise-mean", "noise-scale")),) * 20
    assert BugRow("bug", "once", found, False, sentence="noise-scale").passed
    assert not BugRow("bug", "once", found, False, sentence="noise-fresh").passed
    assert not BugRow("bug", "once", found, True, sentence="noise-scale").passed
    accused = (paper("VIOLATED"),) * 20 + (paper("CONSISTENT"),) * 180
    assert BugRow("correct: once", "once", accused, None).passed
    assert not BugRow("correct: once", "once", (paper("VIOLATED"), *accused[:-1]), None).passed
    assert not Study((BugRow("bug", "once", (paper("CONSISTENT"),), True),)).passed


def test_a_study_is_the_same_with_any_number_of_workers_and_makes_a_page():
    one, two = (
        audit_all(["half-noise", "bare-quantile", "half-noise"], seeds=1, correct=1, workers=workers) for workers in (1, 2)
    )
    assert one.to_json() == two.to_json()
    assert one.passed and [row.caught for row in one.rows] == [1, 1, 0, 0]
    text = str(one)
    assert "bugs that canaries cannot see" in text and "1/1" in text and "as it must be" in text
    shown = page(one)
    assert "half-noise" in shown and "<script" not in shown.replace('<script type="application/json"', "")
