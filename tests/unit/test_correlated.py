"""Correlated noise beyond its matrices: patterns, accounting, the mechanism in a run, what an audit makes of it, commands."""

import json
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from pytest import approx

from coalmine import accounting
from coalmine._random import stream
from coalmine.audit.conclude import conclude
from coalmine.contracts import Clip, Description, Explicit, Fresh, Noise, PerPeriod, Public, Separation
from coalmine.errors import RunDirectoryError
from coalmine.mechanisms import Correlated, FixedPointSum, Gaussian
from coalmine.mechanisms.strategies import Banded, Blt, Independent, Toeplitz, Tree
from coalmine.mechanisms.strategies.sensitivity import Sensitivity
from coalmine.participation import CyclicPoisson, Epochs, FixedSize, MinSeparation, Periods, Poisson, Separated
from coalmine.training import resume, run, run_in_memory
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config
from coalmine.views import matched_filter

DELTA = 1e-5
SMALL = (
    *("data.users=48", "data.held_out=0", "participation.rounds=8", "participation.epochs=2", "participation.pattern=epochs"),
    *("participation.reshuffled=false", "canaries.pool=40", "audit.unused_rows=200", "run.workers=1"),
    *("mechanism.kind=correlated", 'audit.views=["known-others","final-model"]'),
)


def described(strategy, noise=1.0):
    return Description(Clip(1.0), Noise(noise, noise, rounds=strategy))


# who takes part


@pytest.mark.parametrize(("times", "rounds"), [(3, 12), (3, 13), (4, 10), (2, 5), (5, 5)])
@pytest.mark.parametrize("population", [7, 20, 101])
def test_passes_in_the_same_order_are_among_the_sets_of_their_constraint(times, rounds, population):
    pattern = Epochs(times, reshuffled=False)
    presence = np.zeros((rounds, population), dtype=bool)
    for number, cohort in enumerate(pattern.cohorts(population, rounds, 3)):
        presence[number, cohort] = True
    allowed = {column.tobytes() for column in pattern.constraint(rounds).presence.T}
    assert all(column.tobytes() in allowed for column in presence.T)
    if population == 101:
        assert len({column.tobytes() for column in presence.T}) == len(allowed), "and all of them occur"


def test_cyclic_sampling_draws_from_one_group_at_a_time():
    pattern = CyclicPoisson(0.5, 4, 40)
    cohorts = list(pattern.cohorts(400, 40, 1))
    groups = [set(np.concatenate(cohorts[turn::4]).tolist()) for turn in range(4)]
    assert not any(a & b for a, b in pairwise(groups))
    assert np.mean([cohort.size for cohort in cohorts]) == approx(pattern.expected_size(400, 40), abs=5)
    assert [a.tolist() for a in pattern.cohorts(400, 40, 1, start=7)] == [a.tolist() for a in cohorts[7:]]
    assert pattern.constraint(40) == Separation(10, 4, 40) and pattern.most == 10


def test_separated_canaries_have_the_sets_of_their_constraint():
    pattern = Separated(3, 4)
    presence = np.zeros((12, 200), dtype=bool)
    for number, cohort in enumerate(pattern.cohorts(200, 12, 5)):
        presence[number, cohort] = True
    assert {each.tobytes() for each in presence.T} == {each.tobytes() for each in pattern.constraint(12).presence.T}
    with pytest.raises(ValueError, match="need 9"):
        pattern.cohorts(5, 8, 0)
    assert str(pattern) == "3 times, 4 rounds apart" and str(Separated(1, 4)) == "once"


# what is claimed


@pytest.mark.parametrize(
    ("strategy", "at_four", "for_eight"),
    [(Independent(2048), 2.94323, 1.697704), (Toeplitz(2048), 4.52408, 2.470287), (Toeplitz(2048, 0.01), 2.96936, 1.710988)],
)
def test_epsilons_and_noise_of_eight_participations(strategy, at_four, for_eight):
    limits, pattern = Separation(8, 256, 2048), Separated(8, 256)
    claim = accounting.claim_of(described(strategy, 4.0), pattern, delta=DELTA, constraint=limits)
    assert claim.epsilon == approx(at_four, abs=1e-5)
    noise = accounting.calibrate_noise(pattern, epsilon=8.0, delta=DELTA, description=described(strategy), constraint=limits)
    assert noise == approx(for_eight, abs=1e-6)


@pytest.mark.parametrize(("bands", "epsilon"), [(1, 1.829), (5, 4.766), (10, 7.047), (100, 17.857)])
def test_banded_noise_is_amplified_by_sampling_in_turns(bands, epsilon):
    pattern = CyclicPoisson(0.01 * bands, bands, 1000)
    strategy = Banded(1000, tuple(0.9**lag for lag in range(bands)))
    claim = accounting.claim_of(described(strategy), pattern, delta=DELTA, rounds=1000)
    assert claim.epsilon == approx(epsilon, abs=5e-3) and claim.game.knowledge == "rounds unknown"
    once = accounting.claim(Poisson(0.01 * bands, -(-1000 // bands)), noise_multiplier=1.0, delta=DELTA)
    assert claim.epsilon == once.epsilon


@pytest.mark.parametrize("pattern", [Poisson(0.1, 12), FixedSize(2, 20, 12), CyclicPoisson(0.1, 2, 12)])
def test_sampling_that_does_not_amplify_names_the_one_that_does(pattern):
    with pytest.raises(ValueError, match="CyclicPoisson with at least 3 groups"):
        accounting.claim_of(described(Banded(12, (0.8, 0.5, 0.2))), pattern, delta=DELTA, rounds=12)
    with pytest.raises(ValueError, match="a banded strategy and CyclicPoisson"):
        accounting.claim_of(described(Blt.optimal(12, 2)), pattern, delta=DELTA, rounds=12)


def test_a_claim_says_whether_its_sensitivity_is_an_upper_bound():
    for strategy, upper in ((Toeplitz(12), False), (Tree(12), True)):
        claim = accounting.claim_of(described(strategy), MinSeparation(3, 1, 12), delta=DELTA)
        assert any("upper bound" in each for each in claim.assumptions) == upper


def test_without_stated_rounds_the_length_is_that_of_pattern_or_strategy():
    """A shorter length would cut rounds off, and claim too little."""
    stated, unstated = (
        accounting.claim_of(described(Toeplitz(12)), Separated(3, 4), delta=DELTA, **how) for how in ({"rounds": 12}, {})
    )
    assert stated.epsilon == unstated.epsilon > accounting.claim(Periods(3), noise_multiplier=1.0, delta=DELTA).epsilon


# the mechanism


def test_one_band_releases_the_bits_of_independent_noise():
    secret = partial(stream, 9)
    for mechanism in (Correlated(1.0, 0.7, strategy=Banded(4, (1.0,))), Correlated(1.0, 0.7, strategy=Independent(4))):
        assert mechanism.describe() == Gaussian(1.0, 0.7).describe()
        total, public = FixedPointSum(30, 1.0), Public(2, 1.0, 5.0)
        release, _ = mechanism.release(mechanism.init(30), total, public, secret)
        other, _ = Gaussian(1.0, 0.7).release(Gaussian(1.0, 0.7).init(30), FixedPointSum(30, 1.0), public, secret)
        assert np.array_equal(release.vector, other.vector)


def test_state_that_is_too_large_is_refused_and_names_the_remedy():
    with pytest.raises(ValueError, match=r"723 MB in every checkpoint.*blt"):
        Correlated(1.0, 1.0, strategy=Banded(64, (1.0,) * 64)).init(1_200_000)
    with pytest.raises(ValueError, match="'blt' or 'banded'"):
        Correlated(1.0, 1.0, strategy=Toeplitz(1024)).init(1_200_000)


def test_a_round_beyond_the_strategy_is_refused():
    mechanism = Correlated(1.0, 1.0, strategy=Blt.optimal(4, 1))
    with pytest.raises(ValueError, match="5 rounds are more than the 4"):
        mechanism.release(mechanism.init(3), FixedPointSum(3, 1.0), Public(4, 1.0, 1.0), partial(stream, 0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((), "needs strategy"),
        (("mechanism.strategy=bandit",), "strategy='bandit'"),
        (("mechanism.strategy=banded", "mechanism.buffers=2"), "has no option 'buffers'"),
        (("mechanism.strategy=banded", "mechanism.bands=9"), "there are 8 rounds"),
        (("mechanism.strategy=banded", "mechanism.target_quantile=0.5"), "has no key 'target_quantile'"),
        (("mechanism.strategy=blt", "participation.pattern=poisson", "participation.cohort_size=8"), "CyclicPoisson"),
    ],
)
def test_configurations_that_do_not_fit_are_refused_before_there_is_a_directory(changes, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        run(read_config("tiny", [*SMALL, *changes]), tmp_path / "run", secret_seed=1, quiet=True)
    assert not (tmp_path / "run").exists()


class Killed:
    def __call__(self, event):
        if event["event"] == "round" and event["round"] == 4:
            raise KeyboardInterrupt


@pytest.mark.parametrize("strategy", ["banded", "blt", "tree", "toeplitz"])
def test_a_killed_run_goes_on_with_the_strategy_it_was_begun_with(strategy, tmp_path, monkeypatch):
    config = read_config("tiny", [*SMALL, f"mechanism.strategy={strategy}", "mechanism.restart_every=6"])
    whole = run(config, tmp_path / "whole", secret_seed=7, quiet=True)
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "cut", secret_seed=7, quiet=True, hooks=[Killed()])
    kept = json.loads((tmp_path / "cut/strategy.json").read_text())
    assert kept["parameters"]["strategy"]["kind"] == strategy

    def forbidden(*_, **__):
        raise AssertionError("searched again")

    monkeypatch.setattr(Banded, "optimal", forbidden)
    monkeypatch.setattr(Blt, "optimal", forbidden)
    done = resume(tmp_path / "cut", quiet=True, workers=2)
    assert (tmp_path / "cut/scores.npz").read_bytes() == (tmp_path / "whole/scores.npz").read_bytes()
    assert done.result.training["model_sha256"] == whole.result.training["model_sha256"]
    assert any(each.code == "correlated-final" for each in done.result.caveats)
    (tmp_path / "cut/training.json").unlink()
    (tmp_path / "cut/strategy.json").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"strategy\.json"):
        resume(tmp_path / "cut", quiet=True)


# what an audit makes of it


def audited(*changes, seed=3):
    config = read_config("zoo", ["mechanism.kind=correlated", *changes])
    scorer = run_in_memory(config.spec, federation(config, load_task(config), seed), seed)
    return scorer, conclude(scorer)


FTRL = (
    *("participation.pattern=epochs", "participation.epochs=4", "participation.reshuffled=false", "participation.rounds=32"),
    *("canaries.presentations=4", "mechanism.noise_multiplier=1.0"),
)
STRATEGIES = ("toeplitz", "banded", "blt", "tree")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("pattern", ["periods", "separated"])
def test_what_is_measured_is_what_the_matrix_says(strategy, pattern, one_thread):
    """The gap of inserted canaries is the mean of |C s|/z, within four standard errors; the claim that of the worst of them."""
    scorer, result = audited(*FTRL, f"mechanism.strategy={strategy}", f"canaries.pattern={pattern}", "audit.null=theory")
    schedule, noise = scorer.recorder.setup.schedule, scorer.description.noise
    gaps = noise.rounds.gaps(schedule.presence)
    assert result.claim.epsilon == approx(_epsilon(gaps.max()))
    seen = np.linalg.norm(noise.rounds.whiten(schedule.presence.astype(float), {})[0], axis=0)
    scores = scorer.deciding()[0].scores
    inserted = scores.value[scores.inserted]
    assert inserted.mean() == approx(seen[schedule.inserted].mean(), abs=4 / np.sqrt(inserted.size) + 0.02)
    assert result.verdict.word != "VIOLATED" and seen.max() <= gaps.max() * (1 + 1e-9)
    last = scorer.record.events()[-1]
    assert last["epsilon_measured"] <= last["epsilon_claimed"] <= result.claim.epsilon * (1 + 1e-9)


def _epsilon(gap):
    from coalmine.gaussian import gaussian_epsilon

    return float(gaussian_epsilon(0.0, 1.0, gap, 1.0, DELTA))


def test_the_root_of_the_participations_is_never_claimed_for_overlapping_columns(one_thread):
    _, result = audited(*FTRL, "mechanism.strategy=toeplitz")
    assert result.claim.epsilon > 14 > result.estimate.epsilon > 12.5 > _epsilon(2.0)


@pytest.mark.parametrize("strategy", [Toeplitz(64), Banded.optimal(64, 8), Blt.optimal(64, 3), Tree(64)])
def test_the_described_filter_sees_almost_everything_there_is(strategy):
    """At least 99.5 % of the exact gap, whatever the directions that were measured on; and it is the one that is chosen."""
    rng = np.random.default_rng(8)
    made = strategy.inverse()
    inner = made @ rng.standard_normal((made.shape[1], 1000))
    signals = Separated(4, 16).constraint(64).presence.astype(float)
    spreads = np.linalg.norm(made, axis=1)
    white = strategy.whitening()
    design = spreads[:, None] * (white.T @ white) * spreads
    found = matched_filter.fit(signals / spreads[:, None], inner, spreads, design)
    covariance = made @ made.T / spreads[:, None] / spreads
    share = np.einsum("tp,tp->p", signals / spreads[:, None], found.weights)
    share /= np.sqrt(np.einsum("tp,tp->p", found.weights, covariance @ found.weights))
    assert not found.diagonal and not found.estimated
    assert (share / np.linalg.norm(white @ signals, axis=0)).min() > 0.995


def test_a_description_that_is_wrong_chooses_no_weights():
    rng = np.random.default_rng(9)
    strategy = Toeplitz(32)
    white = strategy.whitening()
    signals = Separated(2, 8).constraint(32).presence.astype(float)
    found = matched_filter.fit(signals, rng.standard_normal((32, 400)), np.ones(32), white.T @ white)
    assert found.diagonal


def watched(strategy, schedule, noise, rng, signal=1.0):
    """By round, the weighted scores of a simulated run; rows have any unit."""
    from coalmine.views import ProjectionRow, WhitenedRounds

    rows = noise * strategy.inverse() @ rng.standard_normal((strategy.inverse().shape[1], schedule.pool + 1000))
    rows[:, : schedule.pool] += signal * (schedule.presence & schedule.inserted)
    white = WhitenedRounds(strategy, schedule)
    return white, [white.scores(ProjectionRow(3.0 * row, 1.0), 3.0, number) for number, row in enumerate(rows)]


def test_running_scores_of_correct_noise_are_new_in_every_round():
    from coalmine.canaries.schedule import Schedule

    strategy = Banded.optimal(40, 6)
    schedule = Schedule.draw(Separated(5, 8), pool=400, rounds=40, secret_seed=4)
    white, scores = watched(strategy, schedule, 0.7, np.random.default_rng(10), signal=0.0)
    found, information = np.concatenate([each.values for each in scores]), sum(each.information for each in scores)
    assert abs(found.sum()) < 4.5 * np.sqrt(information)
    assert 0.8 < np.square(found).sum() / information < 1.0, "a spread that was measured counts as a little larger"
    assert white.gaps()[-1] == approx(strategy.gaps(schedule.presence).max())
    assert information == approx(np.square(strategy.gaps(schedule.presence[:, schedule.inserted])).sum())


@pytest.mark.parametrize("strategy", [Toeplitz(24), Banded.optimal(24, 5), Tree(24)], ids=lambda each: each.kind)
def test_the_running_interval_of_whitened_rows_holds_at_all_times_at_once(strategy):
    """It misses 1/z, one presentation, in at most 5 % of runs in each direction, and comes near it.

    False alarms: by a binomial of 5 % of 200 runs, once in a million.
    """
    from scipy.stats import binom

    from coalmine.canaries.schedule import Schedule
    from coalmine.estimators.anytime import anytime_interval

    rng, noise, missed, last = np.random.default_rng(11), 2.0, 0, []
    for number in range(200):
        schedule = Schedule.draw(Separated(3, 7), pool=60, rounds=24, secret_seed=number)
        _, scores = watched(strategy, schedule, noise, rng)
        counts, sums = np.cumsum([each.information for each in scores]), np.cumsum([each.values.sum() for each in scores])
        lows = [anytime_interval(*each, 0.95)[0] for each in zip(counts, sums, strict=True) if each[0] > 0]
        missed += max(lows) > 1 / noise
        last.append(sums[-1] / counts[-1])
    assert missed <= binom.ppf(1 - 1e-6, 200, 0.05)
    assert np.mean(last) == approx(1 / noise, rel=0.12), "all of a presentation is seen, not its first row alone"


def test_the_bound_for_any_time_goes_with_noise_that_can_be_whitened(one_thread):
    _, result = audited(*FTRL, "mechanism.strategy=toeplitz", "audit.bound=anytime", "audit.null=theory")
    bound = result.bounds[0]
    assert bound.key == "anytime" and 5 < bound.epsilon < result.claim.epsilon and bound.valid
    assert result.verdict.word != "VIOLATED"


def sampled_in_turns(strategy, pattern, noise, seed, pool=600, unused=1500):
    """What is seen of a run that samples its canaries in turns: no clients, noise of the strategy along every direction."""
    from coalmine.canaries import TransformCanaries
    from coalmine.canaries.schedule import Schedule
    from coalmine.contracts import Projections

    rounds = pattern.rounds
    schedule, canaries = (
        Schedule.draw(pattern, pool=pool, rounds=rounds, secret_seed=seed),
        TransformCanaries(1 << 12, pool, secret_seed=seed),
    )
    inner = noise * strategy.inverse() @ np.random.default_rng(seed).standard_normal((rounds, pool + unused))
    inner[:, :pool] += schedule.presence & schedule.inserted
    norms = np.sqrt(np.square(inner).mean(axis=1) * canaries.dim)
    seen = Projections("residual", np.arange(rounds), 3.0 * inner, 3.0 * norms, np.full(rounds, 3.0), pool, canaries.dim)
    return replace(seen, design=strategy), schedule, canaries


def exact_ratios(strategy, pattern, noise, count, taking_part, seed):
    """Likelihood ratios of the reduction: independent Gaussians with gaps |C e_t|/z in the rounds of a group."""
    rng, lengths = np.random.default_rng(seed), np.linalg.norm(strategy.matrix(), axis=0)
    found = np.zeros(count)
    for turn in range(pattern.groups):
        mine, gaps = np.arange(turn, count, pattern.groups), lengths[turn :: pattern.groups] / noise
        present = rng.random((mine.size, gaps.size)) < (pattern.rate if taking_part else 0.0)
        seen = gaps * present + rng.standard_normal(present.shape)
        found[mine] = np.log1p(pattern.rate * np.expm1(gaps * seen - gaps**2 / 2)).sum(axis=1)
    return found


@pytest.mark.parametrize("bands", [1, 3, 4])
def test_the_likelihood_ratio_of_sampling_in_turns_is_exact(bands):
    """The mean of the ratio over directions without a canary is 1, and the scores have the law of the amplified mechanism.

    False alarms: twice once in 10,000.
    """
    from scipy.stats import ks_2samp

    from coalmine.views import UnknownRounds

    noise, pattern = 0.6, CyclicPoisson(0.3, 4, 24)
    strategy = Banded.optimal(24, bands)
    scores = UnknownRounds().scores(*sampled_in_turns(strategy, pattern, noise, 12), null="empirical")
    out = scores.value[~scores.inserted]
    assert abs(np.exp(out).mean() - 1) < 4.5 * np.exp(out).std() / np.sqrt(out.size)
    for taking_part in (True, False):
        law = exact_ratios(strategy, pattern, noise, 20_000, taking_part, 13)
        assert ks_2samp(scores.value[scores.inserted == taking_part], law).pvalue > 1e-4
    assert scores.game.knowledge == "rounds unknown"


def test_sampling_in_turns_is_audited_beside_its_amplified_claim(one_thread):
    turns = (
        *("participation.pattern=cyclic-poisson", "participation.groups=4", "participation.rounds=24"),
        *("participation.cohort_size=6", "mechanism.strategy=banded", "mechanism.bands=4", "mechanism.noise_multiplier=0.7"),
    )
    scorer, result = audited(*turns, "canaries.pattern=as-clients", "audit.view=unknown-rounds")
    alone = accounting.claim(Poisson(scorer.recorder.setup.schedule.rate, 6), noise_multiplier=0.7, delta=DELTA)
    assert result.claim.epsilon == approx(alone.epsilon) and result.claim.game.knowledge == "rounds unknown"
    assert result.verdict.word != "VIOLATED" and result.bounds[0].epsilon > 0


def test_views_without_a_statistic_for_correlated_noise_refuse(one_thread):
    from coalmine.errors import AuditError

    with pytest.raises(AuditError, match="no likelihood ratio"):
        audited(*FTRL, "mechanism.strategy=blt", "audit.view=unknown-rounds")


@pytest.mark.parametrize("bands", [5, 6])
def test_columns_that_overlap_have_no_likelihood_ratio(bands):
    """More bands than groups: nothing is claimed for it either."""
    from coalmine.errors import AuditError
    from coalmine.views import UnknownRounds

    pattern = CyclicPoisson(0.3, 4, 24)
    with pytest.raises(AuditError, match="at least as many groups as bands"):
        UnknownRounds().scores(*sampled_in_turns(Banded.optimal(24, bands), pattern, 0.6, 12), null="empirical")


def planted(strategy, times, separation, seed=6):
    """What is seen of canaries at fixed distances, without clients."""
    from coalmine.canaries.schedule import Schedule
    from coalmine.contracts import Projections

    pattern, rng = Separated(times, separation), np.random.default_rng(seed)
    schedule = Schedule.draw(pattern, pool=200, rounds=strategy.rounds, secret_seed=seed)
    made = strategy.inverse()
    inner = made @ rng.standard_normal((made.shape[1], 1200))
    inner[:, :200] += schedule.presence & schedule.inserted
    rounds = np.arange(strategy.rounds)
    seen = Projections("residual", rounds, inner, np.ones(rounds.size), np.ones(rounds.size), 200, 5000)
    return replace(seen, design=strategy), schedule


@pytest.mark.parametrize(
    ("strategy", "claimed", "described"),
    [
        (Tree(64, "none"), 2.507, 2.066),
        (Tree(64, "full"), 2.507, 2.507),
        (Toeplitz(64), 2.563, 2.426),
        (Toeplitz(64, 0.01), 2.464, 2.367),
        (Banded.optimal(64, 8), 2.0, 1.974),
    ],
    ids=["tree", "full tree", "root", "damped", "banded"],
)
def test_who_sees_how_much_of_a_canary(strategy, claimed, described):
    """Four participations, 16 rounds apart, of 64: the numbers of the method; means are over canaries' first rounds."""
    from coalmine.views.filters import gaps_seen

    found = gaps_seen(*planted(strategy, 4, 16), 1.0)
    assert found["claimed"] == approx(claimed, abs=1e-3) and found["described"] == approx(described, abs=0.015)
    assert found["diagonal"] < 0.75 * found["described"] and found["diagonal"] < found["estimated"] <= found["described"]
    assert found["estimated"] > 0.9 * found["described"]
    assert found["described"] <= found["most"] <= found["claimed"] * (1 + 1e-9)
    half = gaps_seen(*planted(strategy, 4, 16), 2.0, kept=0.5)
    assert half["described"] == approx(found["described"] / 4)


def test_a_page_of_correlated_noise_shows_its_strategy_and_who_sees_through_it(tmp_path, one_thread):
    from coalmine.contracts.sentences import caveat
    from coalmine.report.evidence import Evidence
    from coalmine.report.strategies import plates

    config = read_config("tiny", [*SMALL, "mechanism.strategy=tree", "canaries.pattern=separated", "canaries.presentations=2"])
    done = run(config, tmp_path / "run", secret_seed=7, quiet=True)
    for source in (done.result, tmp_path / "run"):
        drawn = {name: make() for name, _, make, _ in plates(Evidence.of(source))}
        assert set(drawn) == {"strategy", "gaps"}
        assert "tree" in [each.get_text() for each in drawn["strategy"].axes[0].get_legend().get_texts()]
    seen = next(each for each in done.result.caveats if each.code == "correlated-seen")
    assert seen.data["most"] < seen.data["claimed"] and "no canary by more than" in caveat(seen.code, seen.data)[1]
    assert (tmp_path / "run/report.html").read_text().count("How the noise cancels in the model") >= 1


# descriptions


def test_a_description_names_its_design():
    assert described(Fresh()).design is None
    assert described(Toeplitz(4)).design == Toeplitz(4)
    assert isinstance(Separated(2, 2).constraint(4), Explicit)


# the talk's theory


def test_the_exact_error_of_linear_regression_in_another_way():
    """Variance of a first-order recursion in closed form; with correlated noise by the recursion's own matrix."""
    from coalmine.papers.user_level import clipped, theory

    steps, rate, values = 30, 0.3, theory.skewed(clipped.DIM)
    spread = (clipped.CLIP / clipped.BATCH) ** 2 / (2 * clipped.RHO)
    left = 1 - rate * values
    bias = 0.5 * np.sum(values * left ** (2 * steps) / clipped.DIM)
    closed = bias + 0.5 * spread * rate**2 * np.sum(values * (1 - left ** (2 * steps)) / (1 - left**2))
    assert clipped.expected_risk("SGD", steps, rate) == approx(closed)
    made = Toeplitz(steps, rate * values.min())
    noise = made.inverse() * made.inverse_column()[0] / made.inverse()[0, 0]
    moved = [np.sum(np.square(each ** np.arange(steps - 1, -1, -1) @ noise)) for each in left]
    assert clipped.expected_risk("FTRL", steps, rate) == approx(bias + 0.5 * spread * rate**2 * float(values @ moved))


# checkpoints of other versions


@pytest.mark.parametrize(
    ("strategy", "name", "words"),
    [
        ("banded", "mechanism.noise.past", r"holds 1 vectors of past noise \(past\) where strategy 'banded' .* keeps"),
        ("toeplitz", "audit.totals.sum", r"the noise of 7 coordinates so far, and this version of coalmine looks at"),
    ],
)
def test_a_checkpoint_that_another_version_wrote_says_what_to_do(strategy, name, words, tmp_path, monkeypatch):
    from coalmine.runs import RunDirectory

    with pytest.raises(KeyboardInterrupt):
        run(
            read_config("tiny", [*SMALL, f"mechanism.strategy={strategy}"]), tmp_path / "cut", secret_seed=7, quiet=True,
            hooks=[Killed()],
        )  # fmt: skip
    load = RunDirectory.load

    def older(self):
        done, state = load(self)
        assert name in state
        return done, {**state, name: state[name][:1] if name.endswith("past") else np.zeros(7)}

    monkeypatch.setattr(RunDirectory, "load", older)
    with pytest.raises(RunDirectoryError, match=f"(?s){words}.*version that its config.toml names, or start a new run"):
        resume(tmp_path / "cut", quiet=True)


@dataclass(frozen=True)
class RootOfTimes(Toeplitz):
    """Of somebody else: columns that overlap are counted as orthogonal."""

    def bound(self, constraint):
        return Sensitivity(float(np.sqrt(constraint.most)), True)


@pytest.mark.parametrize(
    "constraint",
    [Separation(4, 8, 32), PerPeriod(4, 32), Explicit(np.eye(32)[:, :1] + np.eye(32)[:, 8:9])],
    ids=lambda each: type(each).__name__,
)
def test_a_strategy_of_ones_own_that_understates_its_sensitivity_is_refused(constraint):
    claimed = partial(accounting.claim_of, participation=Separated(4, 8), delta=1e-5, rounds=32, constraint=constraint)
    with pytest.raises(ValueError, match=r"states a sensitivity of .* shows .* would be too small"):
        claimed(described(RootOfTimes(32)))
    right = claimed(described(Toeplitz(32)))

    @dataclass(frozen=True)
    class Own(Toeplitz):
        pass

    assert claimed(described(Own(32))).epsilon == right.epsilon
    assert claimed(described(RootOfTimes(32)), constraint=Separation(1, 1, 32)).epsilon > 0  # one round: it is right


@dataclass(frozen=True)
class LateIsMore(Toeplitz):
    """Of somebody else: the last round counts twice, and the sensitivity is that of the first."""

    def bound(self, constraint):
        return Sensitivity(1.0, True)

    def whiten(self, rows, state):
        return np.vstack([rows[:-1], 2 * rows[-1:]]), state


def test_a_sensitivity_is_compared_wherever_a_client_may_begin():
    for rounds in (32, 3_000):  # of many rounds some are looked at, the first and the last among them
        found = partial(accounting.claim_of, described(LateIsMore(rounds)), participation=Separated(1, 1), delta=1e-5)
        with pytest.raises(ValueError, match="shows 2 in the rows"):
            found(rounds=rounds, constraint=Separation(1, 1, rounds))
