"""Clipping, cohorts, quantiles and state: exact cases, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import hypergeom

from coalmine._random import stream
from coalmine.conformance import CHECKS, Battery, Subject, check, compare
from coalmine.conformance.cohort_pairs import different_histories, kept, nothing, pair_tails
from coalmine.conformance.laws import hypergeometric_above
from coalmine.conformance.simulated import rounds_of
from coalmine.contracts import (
    ByClients,
    Clip,
    Description,
    Extra,
    LowRank,
    Noise,
    Observed,
    Public,
    Release,
    RoundCanaries,
)  # fmt: skip
from coalmine.participation import CyclicPoisson, Epochs, FixedSize, MinSeparation, Poisson

NEW = (
    "totals.magnitudes",
    "noise-mean.means",
    "noise-by-layer.varied",
    "noise-fresh.squares",
    "earlier-rounds.last",
    "clipping.smaller",
    "denominator.fixed",
    "noise-unpredictable.secrets",
    "cohorts.who",
    "cohorts.each",
)  # what checkpoints of older versions do not have
DESCRIPTION = Description(Clip(1.0), Noise(0.5, 0.5))


def test_a_contribution_is_compared_with_the_clip_of_its_update():
    update = np.array([3.0, 4.0])
    right = compare(update, update / 5, Clip(1.0), 1.0, {})
    assert (right.sent, right.kept) == (5.0, 1.0) and right.difference < 1e-12
    twice = compare(update, update * 0.4, Clip(1.0), 1.0, {})
    assert math.isclose(twice.kept, 2.0) and math.isclose(twice.difference, 1.0)
    short = compare(update / 10, update / 10, Clip(1.0), 1.0, {})
    assert short.difference == 0 and short.kept == 0.5
    layers = {"a": slice(0, 1), "b": slice(1, 2)}
    by_layer = compare(update, np.array([1.0, 2.0]), Clip((1.0, 2.0), over="layer"), math.sqrt(5), layers)
    assert by_layer.difference == 0 and math.isclose(by_layer.kept, 1.0)
    assert compare(update, np.array([1.0, 1.0]), Clip(1.0, over="coordinate"), 1.0, {}).difference == 0
    assert compare(update, update, Clip(1.0, over="example"), 1.0, {}) is None


def run_cohorts(claimed, done, population=200, rounds=24, seed=1 << 80):
    subject = Subject(DESCRIPTION, 300, participation=claimed, population=population, rounds=rounds)
    battery = Battery(subject, tuple(check for check in CHECKS if check.key == "cohorts"))
    drawn = done.cohorts(population, rounds, seed) if hasattr(done, "cohorts") else done
    for number, cohort in enumerate(drawn):
        release = Release(number, np.zeros(300), 1.0, 1.0)
        battery.observe(Observed(number, release, RoundCanaries(np.zeros(0, np.int64)), cohort=np.asarray(cohort)))
    return battery.conclude().finding("cohorts")


@pytest.mark.parametrize(
    "pattern",
    [Poisson(0.25, 24), FixedSize(50, 200, 24), Epochs(6), MinSeparation(3, 50, 24), CyclicPoisson(0.5, 4, 24)],
    ids=lambda each: type(each).__name__,
)
def test_cohorts_that_are_drawn_as_claimed_pass(pattern):
    assert not run_cohorts(pattern, pattern).deviates


@pytest.mark.parametrize(
    ("claimed", "done"),
    [
        (Poisson(0.25, 24), Epochs(6)),
        (Poisson(0.25, 24), Poisson(0.3, 24)),
        (Poisson(0.25, 24), FixedSize(50, 200, 24)),
        (Poisson(0.25, 24), [stream(1 << 81, t // 4).permutation(200)[:50] for t in range(24)]),
        (FixedSize(50, 200, 24), Epochs(6)),
        (FixedSize(50, 200, 24), Poisson(0.25, 24)),
        (FixedSize(50, 200, 24), [np.append(0, 1 + stream(1 << 82, t).permutation(199)[:49]) for t in range(24)]),
        (Epochs(6), FixedSize(50, 200, 24)),
        (MinSeparation(3, 50, 24), FixedSize(50, 200, 24)),
    ],
    ids=str,
)  # fmt: skip
def test_cohorts_that_are_drawn_otherwise_are_found(claimed, done):
    assert run_cohorts(claimed, done).deviates


def test_cohorts_that_come_out_the_same_under_another_secret_are_public():
    """Half of the clients by a public hash: every law of the cohorts holds, and they can be computed."""

    subject = Subject(DESCRIPTION, 300, participation=Poisson(1 / 6, 24), population=144, rounds=24)
    for public, found in ((72, True), (0, False)):
        battery = Battery(subject, tuple(check for check in CHECKS if check.key == "cohorts"))
        for number in range(24):
            lots = [
                np.r_[stream(1 << 99, number).random(public), stream(1 << 99, secret, number).random(144 - public)]
                for secret in ("one", "another")
            ]
            cohorts = [np.flatnonzero(each < 1 / 6) for each in lots]
            release = Release(number, np.zeros(300), 1.0, 1.0)
            nobody = RoundCanaries(np.zeros(0, np.int64))
            battery.observe(Observed(number, release, nobody, cohort=cohorts[0], cohort_again=cohorts[1]))
        finding = battery.conclude().finding("cohorts")
        assert finding.deviates == found and (not found or "another secret" in finding.where)


def replayed(cohorts):
    return [cohorts[12] if number == 13 else each for number, each in enumerate(cohorts)]


def poisson(number, rate=1 / 6, population=144):
    return np.flatnonzero(stream(1 << 95, number).random(population) < rate)


def in_pairs(number):
    return np.flatnonzero(np.repeat(stream(1 << 96, number).random(72) < 1 / 6, 2))


RARE = {
    "a round's cohort again": (Poisson(1 / 6, 24), replayed([poisson(t) for t in range(24)]), "rounds 13 and 14"),
    "the same, of a fixed size": (
        FixedSize(24, 144, 24), replayed([stream(1 << 97, t).permutation(144)[:24] for t in range(24)]), "rounds 13 and 14"
    ),
    "two by two": (Poisson(1 / 6, 24), [in_pairs(t) for t in range(24)], "pairs of clients"),
    "a trend": (Poisson(1 / 6, 24), [poisson(t, (0.5 + t / 23) / 6) for t in range(24)], "trend"),
    "more in the end": (Poisson(1 / 6, 24), [poisson(t, 1 / 6 if t < 16 else 0.25) for t in range(24)], "third 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", RARE)
def test_what_sums_over_all_rounds_do_not_show(name):
    claimed, done, where = RARE[name]
    found = run_cohorts(claimed, done, population=144)
    assert found.deviates and where in found.where


def test_of_a_large_population_few_rounds_are_kept():
    bits = nothing(1 << 20)
    for number in range(6):
        bits = kept(bits, np.array([number, 1000]), 1 << 20)
    assert bits.shape[0] == 4 and pair_tails(bits, 1 << 20, Poisson(2**-19, 6).sampling)


def test_overlaps_and_histories_have_the_laws_that_are_said():
    for size in range(12):
        assert math.isclose(hypergeometric_above(size, 60, 20, 11), hypergeom.sf(size - 1, 60, 20, 11), rel_tol=1e-9)
    counts = [len({tuple(row) for row in (stream(1 << 98, run).random((30, 5)) < 0.3).tolist()}) for run in range(2000)]
    error = np.std(counts) / math.sqrt(2000)
    assert abs(np.mean(counts) - different_histories(30, 5, 0.3)) < 6 * error  # once in half a billion


def quantile(spread, rounds=12, seed=1 << 83):
    extra = Extra("quantile", 5.0, target=0.5, rate=0.2)
    subject = Subject(Description(Clip(None), Noise(1.0, 1.0), extras=(extra,)), 300, rounds=rounds)
    battery, clip, rng = (
        Battery(subject, tuple(each for each in CHECKS if each.key == "quantile-noise")),
        1.0,
        stream(seed, str(spread)),
    )
    for number in range(rounds):
        seen = Observed(
            number, Release(number, np.zeros(300), clip, 100.0), RoundCanaries(np.zeros(0, np.int64)),
            public=Public(number, clip, 100.0), count=100, unclipped=40,
        )  # fmt: skip
        battery.observe(seen)
        share = min(max((40 - 50 + spread * rng.standard_normal()) / 100 + 0.5, 0.0), 1.0)
        clip *= math.exp(-0.2 * (share - 0.5))
    return battery.conclude().finding("quantile-noise")


def test_the_noise_of_a_quantile_is_read_off_the_clip_norms():
    assert not quantile(5.0).deviates and 2 < quantile(5.0).measured < 10
    assert quantile(0.0).side == "less" and quantile(0.5).side == "less" and quantile(50.0).deviates


def test_state_goes_through_arrays_and_back():
    subject = Subject(
        DESCRIPTION, 3000, {"a": slice(0, 1000), "b": slice(1000, 3000)}, Poisson(0.25, 40), population=100, rounds=40
    )
    whole, first = Battery(subject, CHECKS), Battery(subject, CHECKS)
    seen = list(rounds_of(subject, 1 << 84))
    for each in seen:
        whole.observe(each)
    for each in seen[:37]:
        first.observe(each)
    second = Battery(subject, CHECKS, {name: value.copy() for name, value in first.state.items()})
    for each in seen[37:]:
        second.observe(each)
    assert second.conclude() == whole.conclude()
    assert {name: value.tobytes() for name, value in second.state.items()} == {
        name: value.tobytes() for name, value in whole.state.items()
    }  # fmt: skip


def test_a_sum_that_is_made_where_it_is_read_gives_the_same_bits(monkeypatch):
    subject = Subject(DESCRIPTION, 70_000, {"a": slice(0, 40_000), "b": slice(40_000, 70_000)}, rounds=4)
    seen, found = list(rounds_of(subject, 3)), []
    for short in (70_000, 69_999):
        monkeypatch.setattr(check, "_SHORT", short)
        battery = Battery(subject, CHECKS)
        for each in seen:
            battery.observe(each)
        found.append(battery.state)
    assert all(np.array_equal(found[0][name], found[1][name], equal_nan=True) for name in found[0])
    assert any(name.startswith("earlier-rounds") for name in found[0])


def test_a_contribution_of_many_pieces_is_compared_as_a_short_one_is():
    """Lengths of inner products that are whole, one less and one more than the pieces that are made at once."""
    for size in (1, 8191, 8193, 65_536, 65_537, 140_000):
        update = stream(8, size).standard_normal(size).astype(np.float32)
        norm = float(np.linalg.norm(update.astype(np.float64)))
        clipped = update * np.float64(0.5)
        seen = compare(update, clipped, Clip(norm / 2), norm / 2, {})
        assert (seen.sent, seen.kept) == (pytest.approx(2.0), pytest.approx(1.0)) and seen.difference <= 1e-6
        clipped[-1] += norm / 20  # a tenth of the clip norm in the last coordinate alone
        seen = compare(update, clipped, Clip(norm / 2), norm / 2, {})
        assert seen.difference == pytest.approx(0.1, rel=1e-4)


def test_a_checkpoint_of_coarser_layers_goes_on():
    """An older version kept sums by module, and no means of rounds: what cannot be used begins anew."""
    layers = {"a": slice(0, 1000), "b": slice(1000, 3000)}
    subject = Subject(DESCRIPTION, 3000, layers, participation=Poisson(0.25, 12), population=200, rounds=12)
    finer = replace(subject, groups={"a.weight": slice(0, 990), "a.bias": slice(990, 1000), "b": slice(1000, 3000)})
    seen, first = list(rounds_of(subject, 1 << 93)), Battery(subject, CHECKS)
    for each in seen[:6]:
        first.observe(each)
    kept = {name: value for name, value in first.state.items() if name not in NEW}
    for rest in (seen[6:], []):
        second = Battery(finer, CHECKS, kept)
        for each in rest:
            second.observe(each)
        assert not second.conclude().deviations


def test_state_does_not_grow_with_rounds_but_for_a_few_numbers():
    subject = Subject(DESCRIPTION, 500, rounds=200)
    battery, sizes = Battery(subject, CHECKS), []
    for each in rounds_of(subject, 1 << 85):
        battery.observe(each)
        sizes.append(sum(value.nbytes for value in battery.state.values()))
    assert sizes[-1] - sizes[99] < 100 * 64 + 3 * 4 * 500  # a row of numbers for every round; a block for every doubling


def battery_of(description, released, total, **more):
    subject = Subject(description, total.size, rounds=4)
    battery = Battery(subject, CHECKS)
    for number in range(4):
        battery.observe(
            Observed(
                number,
                Release(number, released(number), 1.0, 1.0),
                RoundCanaries(np.zeros(0, np.int64)),
                others=total,
                public=Public(number, 1.0, 1.0),
                **more,
            )
        )
    return battery.conclude()


def test_noise_of_clients_is_tested_against_what_they_add_together():
    description = Description(Clip(1.0), Noise(2.0, 2.0, added_by=ByClients(8, 8)))
    total = stream(1 << 86, "sum").standard_normal(5000)
    spread = 2.0 * math.sqrt(32 / 8)
    for factor, deviates in ((1.0, False), (0.9, True)):
        found = battery_of(
            description, lambda t, f=factor: total + f * spread * stream(1 << 86, t).standard_normal(5000), total, count=32
        )
        assert found.finding("noise-scale").deviates == deviates


def test_a_promised_covariance_is_whitened():
    factors = stream(1 << 87, "factors").standard_normal((5000, 3))
    total = np.zeros(5000)

    def released(number):
        rng = stream(1 << 87, number)
        return 0.5 * rng.standard_normal(5000) + factors @ rng.standard_normal(3)

    found = battery_of(DESCRIPTION, released, total, covariance=LowRank(0.25, factors))
    assert not found.deviations
    assert battery_of(DESCRIPTION, released, total, covariance=LowRank(0.36, factors)).deviations


def test_releases_in_single_precision_are_no_deviation():
    total = stream(1 << 88, "sum").standard_normal(50_000)
    found = battery_of(DESCRIPTION, lambda t: (total + 0.5 * stream(1 << 88, t).standard_normal(50_000)).astype("f4"), total)
    assert not found.deviations


def test_noise_within_the_rounding_is_not_tested():
    total = 1e5 * stream(1 << 89, "sum").standard_normal(5000)
    found = battery_of(DESCRIPTION, lambda t: (total + 0.5 * stream(1 << 89, t).standard_normal(5000)).astype("f4"), total)
    assert {each.code for each in found.not_tested if each.key == "noise-scale"} == {"noise-too-small"}


def test_where_contributions_are_not_known_only_too_little_noise_is_found():
    subject = Subject(DESCRIPTION, 5000, rounds=4)
    for scale, deviates in ((1.0, False), (3.0, False), (0.9, True)):
        battery = Battery(subject, CHECKS)
        for number in range(4):
            noise = 0.5 * scale * stream(1 << 92, number).standard_normal(5000)
            battery.observe(Observed(number, Release(number, noise, 1.0, 1.0), RoundCanaries(np.zeros(0, np.int64))))
        found = battery.conclude()
        assert found.finding("noise-scale").deviates == deviates and found.finding("noise-scale").measured is None
        assert "noise-gaussian" in {each.key for each in found.not_tested}


def test_a_clip_norm_that_is_announced_is_the_one_that_was_described():
    subject, verdicts = Subject(DESCRIPTION, 500, rounds=3), {}
    for name, announced in (("as described", 1.0), ("shorter", 0.9), ("longer", 1.1)):
        battery = Battery(subject, tuple(check for check in CHECKS if check.key == "clipping"))
        for seen in rounds_of(subject, 1 << 101):
            battery.observe(replace(seen, public=Public(seen.round, announced if seen.round == 1 else 1.0, 70.0)))
        verdicts[name] = battery.conclude().finding("clipping").side
    assert verdicts == {"as described": "none", "shorter": "unknown", "longer": "less"}


def test_a_number_that_is_announced_does_not_follow_the_data():
    """Twice what was expected is a public number; one that changes from round to round is not."""
    subject = Subject(DESCRIPTION, 500, rounds=4)
    for announced, deviates in (((140.0,) * 4, False), ((70.0, 70.0, 71.0, 70.0), True)):
        battery = Battery(subject, tuple(check for check in CHECKS if check.key == "denominator"))
        for seen in rounds_of(subject, 1 << 102):
            divisor = announced[seen.round]
            scaled = replace(seen.release, vector=seen.release.vector * 70 / divisor, denominator=divisor)
            others, part = seen.others * 70 / divisor, seen.canaries.part * 70 / divisor
            public = replace(seen.public, denominator=divisor)
            canaries = replace(seen.canaries, part=part)
            battery.observe(replace(seen, release=scaled, public=public, others=others, canaries=canaries, expected=70.0))
        found = battery.conclude().finding("denominator")
        assert found.deviates == deviates and (not deviates or "round 3 announced" in found.where)


def test_canaries_that_were_read_off_the_release_accuse_nobody():
    """Forty canaries are most of each sum, and the noise along them is counted with them: it is missing in what is left."""
    subject = Subject(DESCRIPTION, 1000, rounds=60)
    directions, _ = np.linalg.qr(stream(1 << 103, "directions").standard_normal((1000, 60)))
    battery = Battery(subject, tuple(check for check in CHECKS if check.key in ("denominator", "earlier-rounds")))
    for seen in rounds_of(subject, 1 << 104):
        rng, scale, clients = stream(1 << 105, seen.round), seen.release.denominator, 0.1 * seen.others
        present = np.sort(rng.permutation(60)[:40])
        vector = clients + (directions[:, present].sum(axis=1) + 0.5 * rng.standard_normal(1000)) / scale
        own = directions[:, present].T @ (vector - clients)
        canaries = RoundCanaries(present, own, directions[:, present] @ own, fitted=True)
        release = replace(seen.release, vector=vector)
        battery.observe(replace(seen, release=release, others=clients, canaries=canaries, bare=None, again=None))
    assert not battery.conclude().deviations
