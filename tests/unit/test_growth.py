"""What grows with rounds, dimension or canaries is bounded, and gives what the plain way gives."""

import numpy as np
import pytest
from pytest import approx

from coalmine import accounting, simulate_gaussian_mechanism, simulation
from coalmine._random import stream
from coalmine.audit.observe import MemoryRecord, Recorder, RunningEpsilon
from coalmine.audit.spec import AuditSpec
from coalmine.canaries import TransformCanaries
from coalmine.canaries.schedule import Schedule
from coalmine.canaries.setup import CanarySetup
from coalmine.conformance import CHECKS, Subject, by_round
from coalmine.conformance.simulated import simulate
from coalmine.contracts import Clip, Description, Noise, Observed, Release, RoundCanaries
from coalmine.estimators.anytime import anytime_gaps, anytime_interval
from coalmine.participation import Poisson
from coalmine.views import matched_filter


def test_the_interval_at_any_time_needs_the_number_and_the_sum_alone():
    scores = np.random.default_rng(1).standard_normal(500) + 0.3
    for count in (1, 7, 500):
        some = scores[:count]
        low, high = anytime_interval(count, float(np.cumsum(some)[-1]), 0.95)
        assert (low, high) == (anytime_gaps(some, 0.95)[-1], -anytime_gaps(-some, 0.95)[-1])


def test_running_numbers_take_few_claims_and_go_on_from_a_record(monkeypatch):
    """A claim that differs in every round is computed some 32 times; what goes on from a record has the same numbers."""
    dim, rounds, rng = 2000, 200, np.random.default_rng(2)
    schedule = Schedule.draw(Poisson(0.1, rounds), pool=20, rounds=rounds, secret_seed=1)
    setup, spec = CanarySetup(TransformCanaries(dim, 20, secret_seed=1), schedule), AuditSpec(delta=1e-5, unused_rows=100)
    recorder, record, asked = Recorder.of(spec, setup, {}, 1), MemoryRecord(), []
    real = accounting.claim_of
    monkeypatch.setattr(accounting, "claim_of", lambda *words, **how: asked.append(1) or real(*words, **how))
    described = Description(Clip(1.0), Noise(1.0, 1.0))
    running, found = RunningEpsilon(spec, described, recorder, record), []
    for number in range(rounds):
        release = Release(number, rng.standard_normal(dim), 1.0, 1.0)
        rows = recorder.rows(Observed(number, release, RoundCanaries(np.zeros(0, np.int64)), others=np.zeros(dim)))
        if number == 150:
            going_on = RunningEpsilon(spec, described, recorder, record)
            assert (
                going_on.after(number, rows)["epsilon_estimated"]
                == RunningEpsilon.after(running, number, rows)["epsilon_estimated"]
            )
            running = going_on
            found.append({})
        else:
            found.append(running.after(number, rows))
        record.save(number + 1, {}, rows, {})
    assert 25 <= len(asked) <= 50 and "epsilon_claimed" in found[-1] and "epsilon_measured" in found[-1]


@pytest.fixture
def few(monkeypatch):
    """Blocks of 16 rounds."""
    monkeypatch.setattr(matched_filter, "WHOLE", 16)


def test_in_blocks_of_rounds_independent_noise_gives_the_plain_sum(few):
    rng = np.random.default_rng(3)
    signals, inner, spreads = (rng.random((40, 5)) < 0.2) * 1.0, rng.standard_normal((40, 300)), np.ones(40)
    found = matched_filter.fit(signals, inner, spreads)
    assert found.diagonal and not found.estimated and found.weights is signals


def test_in_blocks_of_rounds_noise_that_is_reused_within_one_is_subtracted(few):
    rng = np.random.default_rng(4)
    inner = rng.standard_normal((40, 600))
    inner[5] = inner[3] + 0.1 * rng.standard_normal(600)
    signals = np.zeros((40, 2))
    signals[3, 0] = signals[30, 1] = 1.0
    found = matched_filter.fit(signals, inner, np.ones(40))
    assert found.estimated and not found.diagonal and found.weights[5, 0] < -0.5
    assert found.norms[0] > 2 and found.norms[1] == approx(1.0, rel=0.3)


def test_the_spread_of_scores_is_the_same_without_the_covariance(monkeypatch):
    rng = np.random.default_rng(5)
    weights, inner, spreads = rng.standard_normal((40, 7)), rng.standard_normal((40, 300)), rng.random(40) + 0.5
    whole = matched_filter.spreads_of_scores(weights, inner, spreads)
    monkeypatch.setattr(matched_filter, "WHOLE", 16)
    monkeypatch.setattr(matched_filter, "_CELLS", 100)
    assert matched_filter.spreads_of_scores(weights, inner, spreads) == approx(whole, rel=1e-10)


@pytest.mark.parametrize(
    "fault", [None, lambda z, t: z * (t != 37), lambda z, t: z * (1 + 0.002 * t)], ids=["none", "one", "trend"]
)
def test_rounds_beyond_what_is_kept_one_by_one(monkeypatch, fault):
    """64 rounds in 8 rows: a round without noise and a trend are found, and correct noise is not (p > 0.001, fixed seed)."""
    monkeypatch.setattr(by_round, "MOST", 8)
    checks = [check for check in CHECKS if check.key == "noise-by-round"]
    subject = Subject(Description(Clip(1.0), Noise(1.0, 1.0)), 400, rounds=64)
    found = simulate(subject, tuple(checks), 6, fault)
    (finding,) = found.findings
    assert finding.p_value > 1e-3 if fault is None else finding.p_value < 1e-6
    assert len(found.noise_by_round) * found.rounds_per_point == 64


def test_many_simulated_canaries_take_no_matrix(monkeypatch):
    plain = simulation._bartlett(10**6, 300, 0.5, 3.0, stream(1, "x"))
    assert simulation._bartlett_by_row(10**6, 300, 0.5, 3.0, stream(1, "x")) == approx(plain, rel=1e-9)
    before = simulate_gaussian_mechanism(10**6, 50, 0.5, seed=1, held_out=20).value
    monkeypatch.setattr(simulation, "_WHOLE", 10)
    assert simulate_gaussian_mechanism(10**6, 50, 0.5, seed=1, held_out=20).value == approx(before, rel=1e-9)
    with pytest.raises(ValueError, match="too many"):
        simulate_gaussian_mechanism(10**7, 200_001, 1.0, seed=1)
