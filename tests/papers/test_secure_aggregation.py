"""Experiments of the secure-aggregation paper that need no data, and the setting of the audit."""

import math

import pytest

from coalmine.gaussian import gaussian_epsilon
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.registry import experiment
from coalmine.papers.secure_aggregation import secagg_wfna_audit as audit
from coalmine.papers.secure_aggregation.secagg_figure5 import floor_of, ordered
from coalmine.papers.secure_aggregation.secagg_table1 import _composed_floor


def test_table_1_and_the_counterexample():
    assert experiment("secagg-table1")(Ask()).passed
    found = experiment("secagg-span")(Ask(part="counterexample"))
    assert found.passed and found.rows[0].ours == 20


def test_parts_have_the_names_that_scripts_use():
    figure5 = experiment("secagg-figure5")
    for part in ("linear", "cnn-small", "cnn", "noniid", "efficiency"):
        figure5.check(Ask(part=part))
    with pytest.raises(ValueError, match="part"):
        figure5.check(Ask(part="cnn-large"))


def test_the_order_of_accuracies_is_the_verdict():
    assert ordered([0.9, 0.8, 0.7]) == "same shape"
    assert ordered([0.9, 0.8, 0.8]) == "differs" == ordered([0.8, 0.9, 0.7])


def test_the_pairs_of_the_audit_are_the_analytic_ones():
    own = (audit.USERS - 1) * audit.FLOOR + audit.CLIP**2 / (audit.BATCH * audit.EXAMPLES)
    opposite = float(gaussian_epsilon(0.0, 1.0, audit._gap(own), 1.0, audit.DELTA))
    plain = float(gaussian_epsilon(0.0, 1.0, audit._gap(audit.USERS * audit.FLOOR), 1.0, audit.DELTA))
    assert (opposite, plain) == (pytest.approx(6.0646, abs=1e-4), pytest.approx(6.8889, abs=1e-4))
    higher = 1 / 12_000  # a higher floor: the record lifts its own direction, and the pair is a hair below plain noise
    own = (audit.USERS - 1) * higher + audit.CLIP**2 / (audit.BATCH * audit.EXAMPLES)
    both = [gaussian_epsilon(0.0, 1.0, audit._gap(each), 1.0, audit.DELTA) for each in (own, audit.USERS * higher)]
    assert both == [pytest.approx(1.7570, abs=1e-4), pytest.approx(1.7620, abs=1e-4)]
    exact, bound, linear = (row.ours for row in audit._orthogonal(Ask()))
    assert exact == pytest.approx(11.4954, abs=1e-4) and linear < exact / 2 < exact and bound < exact
    assert audit._claim("theorem4").epsilon == pytest.approx(611, abs=0.5)


@pytest.mark.parametrize(("name", "known"), [("gd", 0.0523), ("gsgd", 0.104), ("sgd", 0.180)])
def test_the_papers_way_costs_many_times_the_noise(name, known):
    assert _composed_floor(name, 2.0) == pytest.approx(known, rel=5e-3)


def test_floors_of_the_three_mechanisms_in_the_papers_setting():
    """sigma² for epsilon 1, 100 rounds: full gradients by the exact curve, batches by dp-accounting."""
    assert floor_of("GD-DP", 1.0, 50, 1200, 100) == pytest.approx(0.00564, rel=2e-3)
    assert floor_of("SGD-DP", 1.0, 50, 1200, 100) == pytest.approx(0.0345, rel=5e-2)
    assert math.isfinite(floor_of("GSGD-DP", 1.0, 50, 1200, 100))
