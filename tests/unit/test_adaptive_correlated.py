"""Correlated noise under a clip norm that moves: the budget shared with a count, the same bits after a kill, and its audit."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from pytest import approx

from coalmine import accounting
from coalmine._random import stream
from coalmine.audit.conclude import conclude
from coalmine.contracts import Public, Release, Separation
from coalmine.mechanisms import AdaptiveCorrelated, AdaptiveGaussian, FixedPointSum
from coalmine.mechanisms.adaptive import followed
from coalmine.mechanisms.gaussian import normals
from coalmine.mechanisms.strategies import Banded, Blt, Given, Independent, Restarted, Toeplitz, Tree
from coalmine.participation import Separated
from coalmine.training import resume, run, run_in_memory
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config

DELTA = 1e-5
STRATEGIES = [
    *(Independent(10), Toeplitz(10), Toeplitz(10, 0.1), Banded.optimal(10, 4), Blt.optimal(10, 2)),
    *(Tree(10), Tree(8, "none"), Tree(9, "full"), Restarted(10, Tree(4)), Given.of(Toeplitz(10).matrix())),
]
every = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: f"{each.kind}-{each.rounds}")


def patterns(rounds):
    """A column for every set of rounds but the empty one."""
    return ((np.arange(1, 2**rounds) >> np.arange(rounds)[:, None]) & 1).astype(float)


# the budget


@every
def test_the_smallest_column_is_what_a_participation_shows_at_least(strategy):
    """By brute force over all sets of rounds, of runs of all lengths; and no larger number would do."""
    found = []
    for rounds in range(1, strategy.rounds + 1):
        seen = patterns(rounds)
        found.append((np.linalg.norm(strategy.after(rounds) @ seen, axis=0) / np.sqrt(seen.sum(axis=0))).min())
    assert strategy.least_column() == approx(min(found), rel=1e-9)


@every
def test_updates_and_counts_together_show_no_more_than_is_claimed_for_any_set_of_rounds(strategy):
    mechanism = AdaptiveCorrelated(1.0, 0.8, strategy=strategy, count_noise=2.0)
    noise, seen = mechanism.describe().noise, patterns(strategy.rounds)
    gaps = np.linalg.norm(strategy.matrix() @ seen, axis=0)
    together = (gaps / noise.multiplier) ** 2 + seen.sum(axis=0) / (2 * mechanism.count_noise) ** 2
    left = ((gaps / noise.accounted) ** 2 - together).min()
    assert left > -1e-9
    assert left < 1e-9 or strategy.kind in ("tree", "restarted"), "the last round shows all of it"
    claim = accounting.claim_of(
        mechanism.describe(), Separated(2, 4), delta=DELTA, rounds=8, constraint=Separation(2, 4, 8), rounds_known=True
    )
    assert claim.epsilon == approx(_gaussian(strategy.sensitivity(Separation(2, 4, 8)) / 0.8))


def test_dp_accounting_agrees_with_the_budget():
    """A client of four rounds: one Gaussian for the updates, four for the counts. By its grid at most 0.5 % more."""
    import dp_accounting as dp
    from dp_accounting import pld

    strategy = Blt.optimal(16, 2)
    mechanism = AdaptiveCorrelated(1.0, 1.0, strategy=strategy, count_noise=1.5)
    limits = Separation(4, 4, 16)
    updates = dp.GaussianDpEvent(mechanism.describe().noise.multiplier / strategy.sensitivity(limits))
    counts = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2 * mechanism.count_noise), 4)
    found = pld.PLDAccountant(value_discretization_interval=1e-3).compose(dp.ComposedDpEvent([updates, counts]))
    claim = accounting.claim_of(
        mechanism.describe(), Separated(4, 4), delta=DELTA, rounds=16, constraint=limits, rounds_known=True
    )
    bare = accounting.claim_of(
        replace(mechanism, count_noise=1e6).describe(), Separated(4, 4), delta=DELTA, rounds=16, constraint=limits,
        rounds_known=True,
    )  # fmt: skip
    assert bare.epsilon == claim.epsilon, "what is accounted does not depend on how it is shared"
    assert 0.85 * claim.epsilon < found.get_epsilon(DELTA) < claim.epsilon * 1.005


def _gaussian(gap):
    from coalmine.gaussian import gaussian_epsilon

    return float(gaussian_epsilon(0.0, 1.0, gap, 1.0, DELTA))


def test_a_strategy_whose_columns_hide_each_other_is_refused():
    matrix = np.eye(4) + np.diag([-0.5] * 3, -1)
    with pytest.raises(ValueError, match=r"negative products.*'correlated'"):
        AdaptiveCorrelated(1.0, 1.0, strategy=Given.of(matrix))


def test_a_count_that_uses_up_the_budget_is_refused():
    with pytest.raises(ValueError, match=r"count_noise=0.6 uses up .* 'toeplitz' it must be above 0.6"):
        AdaptiveCorrelated(1.0, 1.0, strategy=Toeplitz(16), count_noise=0.6)
    AdaptiveCorrelated(1.0, 1.0, strategy=Independent(16), count_noise=0.6)


# the mechanism


def test_independent_noise_releases_the_bits_of_adaptive_clipping():
    options = {"target_quantile": 0.7, "clip_learning_rate": 0.3, "count_noise": 4.0}
    ours, theirs = AdaptiveCorrelated(1.0, 0.7, strategy=Independent(4), **options), AdaptiveGaussian(1.0, 0.7, **options)
    assert ours.describe() == theirs.describe()
    found = []
    for mechanism in (ours, theirs):
        state, made = mechanism.init(30), []
        for number in range(4):
            public = mechanism.announce(state, number, 5.0)
            total = FixedPointSum(30, public.clip_norm)
            for each in range(5):
                total.add(mechanism.client(stream(1, "update", each).standard_normal(30).astype(np.float32), public))
            release, state = mechanism.release(state, total, public, partial(stream, 9))
            made.append(release.vector)
        found.append((np.array(made), float(state["clip_norm"])))
    assert np.array_equal(found[0][0], found[1][0]) and found[0][1] == found[1][1] != 1.0


SMALL = (
    *("data.users=48", "data.held_out=0", "participation.rounds=8", "participation.epochs=2", "participation.pattern=epochs"),
    *("participation.reshuffled=false", "canaries.pool=40", "audit.unused_rows=200", "run.workers=1"),
    *("mechanism.kind=adaptive-correlated", 'audit.views=["known-others","final-model"]', "mechanism.clip_norm=0.3"),
)


class Killed:
    def __call__(self, event):
        if event["event"] == "round" and event["round"] == 4:
            raise KeyboardInterrupt


@pytest.mark.parametrize("strategy", ["banded", "blt"])
def test_a_killed_run_goes_on_with_the_same_bits(strategy, tmp_path):
    config = read_config("tiny", [*SMALL, f"mechanism.strategy={strategy}"])
    whole = run(config, tmp_path / "whole", secret_seed=7, quiet=True)
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "cut", secret_seed=7, quiet=True, hooks=[Killed()])
    assert (tmp_path / "cut/strategy.json").is_file()
    done = resume(tmp_path / "cut", quiet=True, workers=2)
    assert (tmp_path / "cut/scores.npz").read_bytes() == (tmp_path / "whole/scores.npz").read_bytes()
    assert done.result.training["model_sha256"] == whole.result.training["model_sha256"]
    (said,) = (each for each in done.result.caveats if each.code == "correlated-clipping")
    assert said.data["least"] < said.data["largest"] and said.data["more"] > 0.5 and "clip norm" in said


def test_the_configuration_says_which_kind_has_both():
    with pytest.raises(ValueError, match="take kind 'correlated' or 'adaptive-correlated'"):
        read_config("tiny", ["mechanism.kind=adaptive", "mechanism.strategy=banded"])
    for noise, expected in ((0.5, 0.6), (2.0, 2.0)):  # a twentieth of 12; never less than the noise itself
        config = read_config("tiny", [*SMALL, "mechanism.strategy=blt", f"mechanism.noise_multiplier={noise}"])
        made = federation(config, load_task(config), 1).mechanism
        assert made.count_noise == approx(expected / made.strategy.least_column())


# its audit


def audited(*changes, mechanism=None, seed=3):
    config = read_config("zoo", [*FTRL, *changes])
    job = federation(config, load_task(config), seed)
    if mechanism is not None:
        own = job.mechanism
        job = federation(
            config, load_task(config), seed, mechanism(**{name: getattr(own, name) for name in own.__match_args__})
        )
    scorer = run_in_memory(config.spec, job, seed)
    return scorer, conclude(scorer)


FTRL = (
    *("participation.pattern=epochs", "participation.epochs=4", "participation.reshuffled=false", "participation.rounds=32"),
    *("canaries.presentations=4", "canaries.pattern=separated", "mechanism.noise_multiplier=1.0", "audit.null=theory"),
    *("mechanism.kind=adaptive-correlated", "mechanism.strategy=banded", "mechanism.clip_norm=2.0"),
    *("mechanism.clip_learning_rate=0.4", "mechanism.target_quantile=0.5", "server.learning_rate=0.02"),
)


def clip_norms(scorer):
    return np.array([event["clip_norm"] for event in scorer.record.events() if "round" in event])


@pytest.mark.parametrize("strategy", ["banded", "toeplitz", "tree"])
def test_what_is_measured_under_a_moving_clip_norm_is_what_the_matrix_says(strategy, one_thread):
    scorer, result = audited(f"mechanism.strategy={strategy}")
    sizes, schedule, noise = clip_norms(scorer), scorer.recorder.setup.schedule, scorer.description.noise
    assert sizes.max() > 2 * sizes.min()
    seen = np.linalg.norm(noise.rounds.whiten(schedule.presence.astype(float), {})[0], axis=0)
    scores = scorer.deciding()[0].scores
    inserted = scores.value[scores.inserted]
    expected = seen[schedule.inserted].mean() / noise.multiplier
    assert inserted.mean() == approx(expected, abs=4 / np.sqrt(inserted.size) + 0.02)
    assert result.claim.epsilon == approx(_gaussian(noise.rounds.gaps(schedule.presence).max() / noise.accounted))
    assert result.verdict.word in ("CONSISTENT", "INCONCLUSIVE")
    assert result.conformance.noise.measured == approx(noise.multiplier, rel=0.01)


@dataclass(frozen=True)
class InAbsoluteUnits(AdaptiveCorrelated):
    """The noise of earlier rounds is taken back as it was added, in the clip norms of those rounds."""

    def init(self, dim):
        return {"clip_norm": np.array(self.clip_norm), "sizes": np.zeros(0)}

    def release(self, state, total, public, secret):
        sizes = np.append(state["sizes"], public.clip_norm)
        silent = replace(self, noise_multiplier=0.0)
        release, kept = AdaptiveCorrelated.release(silent, {"clip_norm": state["clip_norm"]}, total, public, secret)
        weights = self.strategy.row(public.round) * sizes
        made = sum(
            weight * normals(release.vector.size, secret, "noise", past) for past, weight in enumerate(weights) if weight
        )
        vector = release.vector + self.update_noise_multiplier * made / release.denominator
        return Release(release.round, vector, release.clip_norm, release.denominator), {**kept, "sizes": sizes}


@dataclass(frozen=True)
class InFirstUnits(AdaptiveCorrelated):
    """The noise of all rounds is in units of the first clip norm: too much, or too little, as the clip norm moves."""

    def release(self, state, total, public, secret):
        first = Public(public.round, self.clip_norm, public.denominator)
        release, kept = super().release(state, total, first, secret)
        kept = {**kept, "clip_norm": kept["clip_norm"] * public.clip_norm / self.clip_norm}
        return Release(release.round, release.vector, public.clip_norm, release.denominator), kept


@dataclass(frozen=True)
class CountForNothing(AdaptiveCorrelated):
    """The count has its noise, and the updates pay nothing for it."""

    @property
    def update_noise_multiplier(self):
        return self.noise_multiplier


@dataclass(frozen=True)
class BareCount(AdaptiveCorrelated):
    """The count that the clip norm follows has no noise."""

    def release(self, state, total, public, secret):
        release, kept = super().release(state, total, public, secret)
        rates = self.target_quantile, self.clip_learning_rate
        return release, {**kept, "clip_norm": np.array(followed(total, public, release.denominator, *rates, 0.0, secret))}


@pytest.mark.parametrize(
    ("wrong", "changes"),
    [
        (InAbsoluteUnits, ()),
        (InFirstUnits, ("mechanism.clip_norm=0.02",)),
        (CountForNothing, ()),
        (BareCount, ()),
    ],
)
def test_noise_in_wrong_units_is_never_consistent(wrong, changes, one_thread):
    scorer, result = audited(*changes, mechanism=wrong)
    assert clip_norms(scorer).max() > 2 * clip_norms(scorer).min()
    assert result.verdict.word in ("DEVIATES", "VIOLATED")
    _, right = audited(*changes)
    assert right.verdict.word not in ("DEVIATES", "VIOLATED")
