"""Lifted bounds in their three designs: valid without leakage and with it, in the game that each of them proves."""

import numpy as np
import pytest
from scipy.stats import binom

from coalmine import Claim, Fixed, Game, Scores, audit_scores, bound_lifted, gaussian_epsilon
from coalmine._random import stream
from coalmine.errors import AssignmentError, MismatchError, NotEnoughCanariesError
from coalmine.estimators.lifted_plan import lifted_ceiling, plan_lifted

FALSE_ALARM = 1e-6
AUDITS, RUNS, BITS, DELTA = 400, 60, 8, 1e-5
DESIGNS = ("separate", "same-run", "coins")


def simulated(design, mu, rng, runs=RUNS, bits=BITS):
    """Scores of canaries with gap mu; the scores of a run share a part of their noise, which correlates them."""
    shared = rng.standard_normal((runs, 1))
    value = (0.5**0.5) * (shared + rng.standard_normal((runs, 2 * bits)))
    if design == "separate":
        inserted = np.repeat(np.arange(runs) % 2 == 0, bits).reshape(runs, bits)
        value = value[:, :bits]
    elif design == "same-run":
        inserted = np.tile(np.arange(2 * bits) < bits, (runs, 1))
    else:
        inserted = rng.random((runs, 2 * bits)) < 0.5
    run = np.repeat(np.arange(runs), value.shape[1])
    assignment = "coins" if design == "coins" else "fixed"
    return Scores((value + mu * inserted).ravel(), inserted.ravel(), {"run": run}, assignment=assignment)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("mu", [0.0, 1.0])
@pytest.mark.parametrize("threshold", [Fixed(0.7), None])
def test_every_design_is_valid(design, mu, threshold):
    truth = float(gaussian_epsilon(0, 1, mu, 1, DELTA)) if mu else 0.0
    wrong = 0
    for audit in range(AUDITS):
        scores = simulated(design, mu, stream(audit, "designs", design, str(mu)))
        wrong += bound_lifted(scores, delta=DELTA, design=design, threshold=threshold).epsilon > truth
    assert wrong <= binom.isf(FALSE_ALARM, AUDITS, 0.05)


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_shows_a_leak(design):
    """At mu = 3 the split finds a threshold: no bound of 0 because all candidates looked equally bad."""
    scores = simulated(design, 3.0, stream(0, "shown", design), runs=200)
    found = bound_lifted(scores, delta=DELTA)
    assert found.epsilon > 0.4 and found.ceiling > found.epsilon
    assert found.neighbours == ("replace-one" if design == "same-run" else "add-or-remove-one")


def test_the_joint_bound_by_hand():
    """Two canaries in each of 400 runs; x and y from the counts, and both sides of the bound."""
    rng = stream(0, "joint by hand")
    coins = rng.random((400, 2)) < 0.5
    value = np.where(coins, 2.0, 0.0) + rng.standard_normal(coins.shape)
    run = np.repeat(np.arange(400), 2)
    found = bound_lifted(
        Scores(value.ravel(), coins.ravel(), {"run": run}, assignment="coins"), delta=0.01, threshold=Fixed(1.0)
    )
    from coalmine.estimators.lifted import XBern

    x, y = (((value >= 1.0) & mask).mean(axis=1) for mask in (coins, ~coins))
    left = XBern.of(x, np.full(400, 2), 2).interval(0.025, order=2, kind="bernstein")[0]
    right = XBern.of(y, np.full(400, 2), 2).interval(0.025, order=2, kind="bernstein")[1]
    both = np.log((left - 0.005) / right), np.log((0.5 - 0.005 - right) / (0.5 - left))
    assert found.epsilon == pytest.approx(max(both), rel=1e-12)


def centred(draws, rng):
    """One of two canaries inserted, noise 1, scores centred by the pool: a score then tells about the other canary too."""
    first = rng.random(draws) < 0.5
    inserted = np.stack([first, ~first], axis=1)
    raw = inserted + rng.standard_normal((draws, 2))
    return (raw - raw.mean(axis=1, keepdims=True)).ravel(), inserted.ravel(), np.repeat(np.arange(draws), 2)


def test_one_of_two_inserted_is_no_game_of_adding_or_removing():
    """Centred by the pool the scores show more than adding one canary may, and the verdict is a mismatch, never VIOLATED."""
    value, inserted, run = centred(20_000, stream(0, "centred"))
    game = Game("client", "add-or-remove-one")
    scores = Scores(value, inserted, {"run": run}, assignment="fixed", game=game)
    claim = Claim(float(gaussian_epsilon(0, 1, 1, 1, 0.3)), 0.3, game=game)
    bound = bound_lifted(scores, delta=0.3, order=1, threshold=Fixed(0.0))
    assert bound.epsilon > claim.epsilon  # taken for the other game it would convict correct noise
    with pytest.raises(MismatchError, match="'add-or-remove-one' against 'replace-one'"):
        audit_scores(scores, delta=0.3, claim=claim, method="lifted", options={"order": 1, "threshold": Fixed(0.0)})
    replaced = Claim(float(gaussian_epsilon(0, 1, 2**0.5, 1, 0.3)), 0.3, game=Game("client", "replace-one"))
    result = audit_scores(scores, delta=0.3, claim=replaced, method="lifted", options={"order": 1, "threshold": Fixed(0.0)})
    assert result.verdict.word != "VIOLATED" and result.game.relation == "replace-one"


def test_the_lift_pays_in_the_mean():
    """Order 2 with 64 canaries above order 1 with one, at 250 + 250 runs of independent canaries, over 25 seeds."""
    gains = []
    for seed in range(25):
        rng = stream(seed, "lift")
        inserted = np.repeat(np.arange(500) % 2 == 0, 64)
        scores = Scores(rng.standard_normal(32_000) + inserted, inserted, {"run": np.repeat(np.arange(500), 64)})
        alone = Scores(scores.value[::64], inserted[::64], {"run": np.arange(500)})
        how = {"delta": DELTA, "threshold": Fixed(1.2), "kind": "wilson"}
        gains.append(bound_lifted(scores, order=2, **how).epsilon - bound_lifted(alone, order=1, **how).epsilon)
    assert np.mean(gains) > 3 * np.std(gains, ddof=1) / len(gains) ** 0.5


def test_what_so_many_runs_can_show_is_known_before():
    """Of 250 + 250 runs with 64 canaries 2.09, of 100 + 100 1.13; and the runs needed are the fewest that exceed the claim."""
    most = {n: lifted_ceiling(2 * n, 64, delta=DELTA, design="separate") for n in (100, 250)}
    assert most == pytest.approx({100: 1.131, 250: 2.091}, abs=1e-3)
    found = plan_lifted(1.0, delta=DELTA, runs=40, canaries=4, design="coins")
    assert found.ceiling == 0 and "INCONCLUSIVE, whatever comes out" in str(found)
    below, enough = (lifted_ceiling(n, 4, delta=DELTA) for n in (found.runs_needed * 95 // 100, found.runs_needed))
    assert below <= 1.0 < enough


def test_designs_that_do_not_fit_the_scores_are_refused():
    rng = stream(0, "refused")
    with pytest.raises(AssignmentError, match="runs have both"):
        bound_lifted(simulated("same-run", 1.0, rng), delta=DELTA, design="separate")
    with pytest.raises(AssignmentError, match="these scores say fixed"):
        bound_lifted(simulated("same-run", 1.0, rng), delta=DELTA, design="coins")
    with pytest.raises(AssignmentError, match="design='coins'"):
        bound_lifted(simulated("coins", 1.0, rng), delta=DELTA, design="same-run")
    with pytest.raises(NotEnoughCanariesError, match="at least 0 inserted"):
        bound_lifted(simulated("separate", 1.0, rng), delta=DELTA, design="same-run")
    with pytest.raises(ValueError, match="design='paired'"):
        bound_lifted(simulated("separate", 1.0, rng), delta=DELTA, design="paired")
