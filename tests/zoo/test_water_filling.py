"""Bugs of noise for single records, in the setting of their own. What is caught is tested with all others, in test_study.py."""

from coalmine.zoo import BUGS
from coalmine.zoo.records import PROBES


def test_every_bug_of_the_setting_has_a_place_to_look():
    assert {name for name, each in BUGS.items() if each.setting == "records"} == set(PROBES)
