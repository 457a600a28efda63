"""Old names: configurations and `--set` in the words of the first version mean the same, with one notice for each."""

import json

import pytest

from coalmine import renamed
from coalmine.training.config import fingerprint, parse_config, read_config

ROUNDS = "[participation]\nrounds = 4\n"
FIRST = """
[privacy]
noise_multiplier = 0.5
clip_norm = 2.0
adaptive_clipping = {adaptive}
target_quantile = 0.4
clip_learning_rate = 0.3
count_noise = 6.0
realised_denominator = {actual}
[canaries]
over_long = 100.0
as_vectors = true
[audit]
null = "law"
"""
NOW = """
[mechanism]
noise_multiplier = 0.5
clip_norm = 2.0
kind = "{kind}"
{more}
[canaries]
canary_norm = 100.0
full_vectors = true
[audit]
null = "theory"
"""


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch):
    monkeypatch.setattr(renamed, "_said", set())


@pytest.mark.parametrize(
    ("adaptive", "actual", "kind", "more"),
    [
        (True, False, "adaptive", "target_quantile = 0.4\nclip_learning_rate = 0.3\ncount_noise = 6.0"),
        (False, True, "gaussian", "divide_by_actual_cohort = true"),
        (False, False, "gaussian", ""),
    ],
)
def test_a_configuration_of_the_first_version_means_the_same(adaptive, actual, kind, more, capsys):
    old = parse_config(ROUNDS + FIRST.format(adaptive=json.dumps(adaptive), actual=json.dumps(actual)))
    notices = capsys.readouterr().err
    new = parse_config(ROUNDS + NOW.format(kind=kind, more=more))
    assert old == new and fingerprint(old) == fingerprint(new)
    assert capsys.readouterr().err == "", "names of today need no notice"
    for name in (*renamed.MOVED, 'audit.null = "law"'):
        assert notices.count(f"coalmine: {name} ") == 1, name


def test_a_notice_says_what_to_write_and_is_given_once(capsys):
    for _ in range(2):
        read_config("tiny", ["privacy.adaptive_clipping=true", "canaries.over_long=100", "audit.null=unused"])
    assert capsys.readouterr().err.splitlines() == [
        'coalmine: privacy.adaptive_clipping = true is now called mechanism.kind = "adaptive"; the old name still works.',
        "coalmine: canaries.over_long is now called canaries.canary_norm; the old name still works.",
        'coalmine: audit.null = "unused" is now called audit.null = "empirical"; the old name still works.',
    ]


def test_a_change_in_old_words_goes_over_a_file_in_new_ones():
    changed = read_config("tiny", ["privacy.noise_multiplier=0.125", "canaries.as_vectors=true"])
    assert changed == read_config("tiny", ["mechanism.noise_multiplier=0.125", "canaries.full_vectors=true"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("noise_multiplier = 0.5", "noise_multiplier = 2.0"),
        ("adaptive_clipping = false", 'kind = "adaptive"'),
        ("realised_denominator = false", "divide_by_actual_cohort = true"),
    ],
)
def test_an_old_and_a_new_name_that_disagree_are_an_error(old, new):
    with pytest.raises(ValueError, match=r"is the old name of mechanism\.\w+, and the two disagree: .* Leave out the old one"):
        parse_config(f"{ROUNDS}[privacy]\n{old}\n[mechanism]\n{new}")
    same = f"{ROUNDS}[privacy]\nnoise_multiplier = 0.5\n[mechanism]\nnoise_multiplier = 0.5"
    assert parse_config(same).mechanism.noise_multiplier == 0.5


@pytest.mark.parametrize("text", ["privacy = 3", "mechanism = 3\n[privacy]\nrealised_denominator = true"])
def test_what_is_no_section_is_one_error(text):
    with pytest.raises(ValueError, match="=3 is not allowed"):
        parse_config(text)
