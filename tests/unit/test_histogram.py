"""Scores as two rows of counts: every score in one bin, whatever the scores; and what a file may hold."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from coalmine import AuditResult, CosineNull, GaussianNull, MaxNull, Scores, audit_scores
from coalmine.errors import InputFileError
from coalmine.histogram import BINS, check_histogram, count_scores


def middle(counted, kind):
    """Where the counts are on average, by the middles of the bins."""
    edges, counts = np.array(counted["edges"]), np.array(counted[kind])
    return float((edges[:-1] + edges[1:]) @ counts / 2 / counts.sum())


def width(counted):
    return counted["edges"][1] - counted["edges"][0]


CASES = {
    "theory": Scores.of(np.full(5, 0.03), dim=10_000),
    "law and held out": Scores.of([0.03, 0.02], [0.0, 0.01, -0.01], dim=10_000),
    "normal law": Scores.of([130.0], null=GaussianNull(10.0, 100.0)),
    "held out": Scores.of(np.arange(50) + 30.0, np.arange(100.0)),
    "one canary": Scores.of([0.3], dim=400),
    "one of each": Scores.of([1.0], [0.0]),
    "all equal": Scores.of([2.0, 2.0], [2.0, 2.0]),
    "held out equal": Scores.of([3.0, 1.0], [0.0, 0.0]),
    "all zero": Scores.of([0.0], [0.0, 0.0]),
    "maximum": Scores.of([0.05, 0.04], null=MaxNull(CosineNull(10_000), 30)),
    "maximum, held out": Scores.of([0.05, 0.04], [0.02, 0.03, 0.01], null=MaxNull(CosineNull(10_000), 30)),
    "far away": Scores.of(np.arange(10) + 700.0, np.arange(-5.0, 6.0)),
    "huge": Scores.of([1e308, -1e308], [1e307, -1.7e308, 3.0]),
    "tiny": Scores.of([5e-324, 1e-310], [0.0, 5e-324]),
    "nearly no spread": Scores.of([1.0], null=GaussianNull(1e-300)),
    "one outlier": Scores.of([1e9, 1.0], np.linspace(-1, 1, 1000)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_score_is_in_one_bin(name):
    scores, counted = CASES[name], count_scores(CASES[name])
    assert np.isfinite(counted["edges"]).all()
    assert len(counted["edges"]) == BINS + 1
    assert np.allclose(np.diff(counted["edges"]), width(counted))
    assert sum(counted["inserted"]) == scores.inserted_values.size
    assert sum(counted["held_out"]) == scores.held_out_values.size
    check_histogram(counted)
    assert json.loads(json.dumps(counted, allow_nan=False)) == {name: list(row) for name, row in counted.items()}


@given(
    arrays(float, some.integers(1, 20), elements=some.floats(allow_nan=False, allow_infinity=False)),
    arrays(float, some.integers(1, 20), elements=some.floats(allow_nan=False, allow_infinity=False)),
)
@settings(deadline=None)
def test_any_finite_scores_are_counted(inserted, held_out):
    counted = count_scores(Scores.of(inserted, held_out))
    check_histogram(counted)
    assert (sum(counted["inserted"]), sum(counted["held_out"])) == (inserted.size, held_out.size)


@pytest.mark.parametrize(
    ("scores", "where"),
    [
        (Scores.of(np.full(7, 0.03), dim=10_000), 3.0),
        (Scores.of(np.full(7, 130.0), null=GaussianNull(10.0, 100.0)), 3.0),
        (Scores.of(np.full(7, 0.05), null=MaxNull(CosineNull(10_000), 30)), 5.0),  # in units of one round
        (Scores.of(np.full(7, 25.0), [0.0, 10.0, 20.0]), 1.5),
        (Scores.of(np.full(7, 500.0), null=GaussianNull()), 500.0),
    ],
    ids=["cosines", "normal", "maximum", "held out", "far away"],
)
def test_the_unit_is_the_spread_of_the_null(scores, where):
    counted = count_scores(scores)
    assert abs(middle(counted, "inserted") - where) <= width(counted) / 2 * (1 + 1e-9)


def test_an_ordinary_null_is_seen_in_detail():
    counted = count_scores(Scores.of(np.linspace(-2, 4, 400), null=GaussianNull()))
    assert (counted["edges"][0], counted["edges"][-1]) == (-4.0, 4.0)


def test_the_edges_span_scores_that_are_far_away():
    counted = count_scores(CASES["far away"])
    assert counted["edges"][-1] >= 700.0 / np.std(np.arange(-5.0, 6.0), ddof=1)
    assert counted["held_out"][0] + counted["held_out"][1] == 11
    assert counted["inserted"][-1] + counted["inserted"][-2] == 10


def test_the_order_of_the_rows_does_not_matter():
    values, inserted = np.arange(64.0), np.arange(64) % 3 == 0
    shuffled = np.random.default_rng(0).permutation(64)
    assert count_scores(Scores(values, inserted)) == count_scores(Scores(values[shuffled], inserted[shuffled]))


def document():
    return json.loads(audit_scores(CASES["law and held out"], delta=1e-5).to_json())


def test_a_result_holds_its_histogram_on_disk_too():
    result = audit_scores(CASES["law and held out"], delta=1e-5)
    assert result.histogram == count_scores(CASES["law and held out"])
    assert AuditResult.from_json(result.to_json()).histogram == result.histogram


def test_a_result_without_a_histogram_is_read():
    assert AuditResult.from_json(json.dumps({**document(), "histogram": {}})).histogram == {}


@pytest.mark.parametrize(
    "change",
    [
        {"edges": []},
        {"edges": [1.0, 0.0, *range(2, 49)]},
        {"edges": ["inf"] * 49},
        {"inserted": [1]},
        {"inserted": [-1] * 48},
        {"held_out": [0.5] * 48},
        {"further": [1]},
    ],
    ids=str,
)
def test_what_is_no_histogram_is_refused(change):
    data = document()
    data["histogram"].update(change)
    with pytest.raises(InputFileError, match="histogram"):
        AuditResult.from_json(json.dumps(data))
