import dataclasses
import hashlib
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.contracts import Game
from coalmine.errors import AuditError, CoalmineError, NonFiniteError, NotEnoughCanariesError
from coalmine.nulls import CosineNull, GaussianNull
from coalmine.scores import Scores

OFTEN = settings(deadline=None, derandomize=True, max_examples=100, database=None)


def test_two_lists_are_enough():
    scores = Scores.of([0.3, 0.2], [0.1, -0.1, 0.0])
    assert scores.value.tolist() == [0.3, 0.2, 0.1, -0.1, 0.0]
    assert scores.inserted.tolist() == [True, True, False, False, False]
    assert scores.inserted_values.tolist() == [0.3, 0.2]
    assert scores.held_out_values.tolist() == [0.1, -0.1, 0.0]
    assert (scores.value.dtype, scores.inserted.dtype) == (np.float64, np.bool_)
    assert (scores.labels, scores.null, scores.dim, scores.assignment) == ({}, None, None, "unknown")
    assert (scores.statistic, scores.view, scores.game) == ("score", "unstated", Game())


def test_a_dimension_brings_the_law_of_cosines():
    scores = Scores.of([0.3], dim=100)
    assert scores.null == CosineNull(100)
    assert scores.dim == 100
    assert scores.held_out_values.size == 0


def test_a_law_of_ones_own_wins_over_the_dimension():
    assert Scores.of([0.3], null=GaussianNull(), dim=100).null == GaussianNull()
    assert Scores.of([0.3], [0.1], dim=100).null == CosineNull(100)


def test_single_numbers_small_floats_and_whole_numbers_are_scores():
    assert Scores.of(0.5, 0.25).value.tolist() == [0.5, 0.25]
    scores = Scores.of(np.array([1, 2], dtype=np.int8), np.array([0.5], dtype=np.float16))
    assert scores.value.tolist() == [1.0, 2.0, 0.5]
    assert Scores.of((0.5, 1), range(3)).value.tolist() == [0.5, 1.0, 0.0, 1.0, 2.0]


def test_the_table_keeps_its_own_copy_and_does_not_change():
    value, inserted, run = np.array([1.0, 2.0]), np.array([True, False]), np.array([3, 4])
    scores = Scores(value, inserted, labels={"run": run})
    value[0], inserted[0], run[0] = 9.0, False, 9
    assert (scores.value[0], scores.inserted[0], scores.labels["run"][0]) == (1.0, True, 3)
    for column in (scores.value, scores.inserted, scores.labels["run"]):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        scores.value = value


def test_without_inserted_canaries_there_is_nothing_to_audit():
    for scores in (lambda: Scores.of([], [0.1]), lambda: Scores([0.1], np.array([False]))):
        with pytest.raises(NotEnoughCanariesError, match="no inserted canary among the scores"):
            scores()


def test_without_a_null_there_is_nothing_to_compare_with():
    for scores in (lambda: Scores.of([0.1]), lambda: Scores.of([0.1], []), lambda: Scores([0.1], np.array([True]))):
        with pytest.raises(NotEnoughCanariesError, match=r"give held-out scores, or the law .*null=.*dim="):
            scores()


def test_sampled_drops_the_law():
    scores = Scores.of([0.3], [0.1], dim=100)
    assert scores.sampled().null is None
    assert scores.sampled().dim == 100
    assert scores.sampled().sha256 == scores.sha256
    with pytest.raises(NotEnoughCanariesError):
        Scores.of([0.3], dim=100).sampled()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_stops_everything(bad):
    with pytest.raises(NonFiniteError, match=r"inserted contains 1 NaN or infinite scores \(positions 1\)"):
        Scores.of([0.1, bad], [0.2])
    with pytest.raises(NonFiniteError, match=r"held_out contains 5 NaN .*\(positions 0, 1, 2, \.\.\.\).*nothing was computed"):
        Scores.of([0.1], [bad] * 5)
    with pytest.raises(NonFiniteError, match="value contains 1"):
        Scores([bad, 0.1], np.array([True, False]))


def test_errors_can_be_caught_as_a_family():
    for family in (CoalmineError, AuditError, ValueError):
        with pytest.raises(family):
            Scores.of([math.nan], [0.1])


@pytest.mark.parametrize(
    "bad",
    [["high"], [[1.0], [1.0, 2.0]], [1j], np.array([1 + 0j]), [10**400], [{}], np.ma.masked_array([1.0, 2.0], [False, True])],
    ids=["text", "ragged", "complex", "complex array", "huge", "object", "masked"],
)
def test_what_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="inserted must hold numbers only"):
        Scores.of(bad, [0.1])


def test_missing_values_are_not_zero():
    with pytest.raises(NonFiniteError):
        Scores.of([None], [0.1])


def test_wide_floats_out_of_range_are_not_finite():
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        with pytest.raises(NonFiniteError):
            Scores.of(np.array(["1e400"]).astype(np.longdouble), [0.1])


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"flat columns; got shapes \(1, 2\) and \(1,\)"):
        Scores.of([[0.1, 0.2]], [0.1])
    with pytest.raises(ValueError, match=r"two equally long columns; got shapes \(2,\) and \(3,\)"):
        Scores([0.1, 0.2], np.array([True, False, True]))
    with pytest.raises(ValueError, match=r"two equally long columns; got shapes \(1, 1\) and \(1, 1\)"):
        Scores([[0.1]], np.array([[True]]))


def test_inserted_must_be_true_or_false():
    with pytest.raises(ValueError, match="inserted must hold True and False, one per score; got values of type int64"):
        Scores([0.1, 0.2], np.array([1, 0]))


def test_the_other_fields_are_checked():
    with pytest.raises(ValueError, match=r"assignment='coin' is not allowed: it must be one of 'coins', 'fixed', 'unknown'"):
        Scores.of([0.1], [0.2], assignment="coin")
    for dim in (1, 2.5, math.nan, "many"):
        with pytest.raises(ValueError, match="dim"):
            Scores.of([0.1], [0.2], dim=dim)
    assert Scores.of([0.1], dim=64.0).dim == 64


def test_labels_are_whole_numbers_one_per_score():
    scores = Scores([0.1, 0.2], [True, False], labels={"run": [1.0, 2.0], "canary": [True, False], "group": [-1, 2**63 - 1]})
    assert {name: column.tolist() for name, column in scores.labels.items()} == {
        "run": [1, 2],
        "canary": [1, 0],
        "group": [-1, 2**63 - 1],
    }
    assert all(column.dtype == np.int64 for column in scores.labels.values())


@pytest.mark.parametrize(
    "bad",
    [
        [1.5, 2],
        ["a", "b"],
        [math.nan, 1],
        [math.inf, 1],
        [1e300, 1],
        [2.0**63, 1],
        [None, 1],
        np.array([2**63, 1], dtype=np.uint64),
        np.array([2**64 - 1, 1], dtype=np.uint64),
        [1j, 1],
    ],
    ids=str,
)
def test_labels_that_are_no_whole_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="run must hold whole numbers"):
        Scores([0.1, 0.2], [True, False], labels={"run": bad})


def test_labels_of_another_length_or_name_are_refused():
    with pytest.raises(ValueError, match=r"run must have one entry per score \(2\); got shape \(3,\)"):
        Scores([0.1, 0.2], [True, False], labels={"run": [1, 2, 3]})
    with pytest.raises(ValueError, match=r"label='epoch' is not allowed: it must be one of 'canary', 'run', 'round'"):
        Scores([0.1, 0.2], [True, False], labels={"epoch": [1, 2]})


# --------------------------------------------------------------------------- fingerprint


def permuted(scores, order):
    labels = {name: column[order] for name, column in scores.labels.items()}
    return dataclasses.replace(scores, value=scores.value[order], inserted=scores.inserted[order], labels=labels)


TABLES = st.lists(st.tuples(st.sampled_from([-1.5, -0.0, 0.0, 0.1, 1e300]), st.booleans(), st.integers(0, 2)), min_size=1)


@OFTEN
@given(TABLES, st.randoms(use_true_random=False))
def test_the_fingerprint_does_not_depend_on_the_order_of_rows(rows, random):
    value, inserted, run = (list(column) for column in zip(*rows, strict=True))
    scores = Scores([*value, 1.0], [*inserted, True], labels={"run": [*run, 0]}, null=GaussianNull())
    order = list(range(scores.value.size))
    random.shuffle(order)
    assert permuted(scores, order).sha256 == scores.sha256


def test_the_fingerprint_depends_on_every_cell():
    base = Scores([0.1, 0.2, 0.3], [True, False, True], labels={"run": [1, 2, 3]})
    others = [
        Scores([0.1, 0.2, np.nextafter(0.3, 1)], [True, False, True], labels={"run": [1, 2, 3]}),
        Scores([0.1, 0.2, 0.3], [True, False, False], labels={"run": [1, 2, 3]}),
        Scores([0.1, 0.2, 0.3], [True, False, True], labels={"run": [1, 3, 2]}),
        Scores([0.1, 0.2, 0.3], [True, False, True], labels={"round": [1, 2, 3]}),
        Scores([0.1, 0.2, 0.3], [True, False, True]),
        Scores([0.1, 0.2], [True, False], labels={"run": [1, 2]}),
    ]
    assert len({base.sha256, *(other.sha256 for other in others)}) == 1 + len(others)
    assert len(base.sha256) == 64


def test_the_fingerprint_is_stable():
    """Written out by hand: a report may be checked years later, so the recipe must not change."""
    recipe = b"value|inserted" + struct.pack("=4d", -1.0, 0.0, 0.25, 0.5) + bytes([0, 0, 1, 1])
    assert Scores.of([0.5, 0.25], [-0.0, -1.0]).sha256 == hashlib.sha256(recipe).hexdigest()


def test_the_order_of_labels_does_not_matter():
    columns = {"run": [1, 2], "canary": [3, 4]}
    backwards = dict(reversed(columns.items()))
    one, other = (Scores([0.1, 0.2], [True, False], labels=labels) for labels in (columns, backwards))
    assert one.sha256 == other.sha256
