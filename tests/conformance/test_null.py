"""Correct runs: false alarms of the whole family and of every check. `make conformance` is the long version."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2, kstest

from coalmine._random import stream
from coalmine.conformance import CHECKS, Battery, Subject, noise_again, noise_left
from coalmine.conformance.cohort_pairs import pair_tails
from coalmine.conformance.laws import cosine
from coalmine.conformance.simulated import rounds_of, simulate
from coalmine.contracts import Clip, Description, Noise
from coalmine.mechanisms.strategies import Banded
from coalmine.participation import FixedSize, Poisson

FALSE_ALARM = 1e-6  # each test of this file fails by chance once in a million
RUNS = 100
CONTINUOUS = ("noise-scale", "canaries-whole")  # checks that are one statistic: their p-values are uniform


@pytest.fixture(scope="module")
def findings():
    """By check, the p-values of correct runs; and those of the family."""
    groups = {"first": slice(0, 1500), "second": slice(1500, 1600), "third": slice(1600, 4000)}
    subject = Subject(
        Description(Clip(1.0), Noise(0.5, 0.5)), 4000, groups, participation=Poisson(0.25, 6), population=200, rounds=6
    )
    by_check, family = {}, []
    for run in range(RUNS):
        found = simulate(subject, CHECKS, 7_000_000_000 + run)
        family.append(found.p_value)
        for each in found.findings:
            by_check.setdefault(each.key, []).append(each.p_value)
    return by_check, np.array(family)


def test_the_family_alarms_no_more_often_than_it_says(findings):
    for level in (0.05, 0.2):
        assert (findings[1] <= level).sum() <= binom.ppf(1 - FALSE_ALARM, RUNS, level)


def test_every_check_alarms_no_more_often_than_it_says(findings):
    for key, values in findings[0].items():
        for level in (0.02, 0.1, 0.3):
            assert (np.array(values) <= level).sum() <= binom.ppf(1 - FALSE_ALARM, RUNS, level), key


def test_two_coordinates_are_no_reason_for_an_alarm():
    """In two dimensions a cosine is 1 up to rounding now and then, and one magnitude follows from the other."""
    subject = Subject(Description(Clip(1.0), Noise(0.5, 0.5)), 2, rounds=40)
    family = np.array([simulate(subject, CHECKS, 7_300_000_000 + run).p_value for run in range(20)])
    assert (family <= 0.05).sum() <= binom.ppf(1 - FALSE_ALARM, family.size, 0.05)


def test_p_values_of_single_statistics_are_uniform(findings):
    for key in CONTINUOUS:
        assert kstest(findings[0][key], "uniform").pvalue > FALSE_ALARM, key


def test_means_of_rounds_vary_by_their_law_in_layers_of_any_size():
    """Σ mean² by layer, 300 runs: uniform tails, of a layer of one coordinate too."""
    groups = {"a": slice(0, 150), "b": slice(150, 160), "c": slice(160, 161), "d": slice(161, 200)}
    subject = Subject(Description(Clip(1.0), Noise(0.5, 0.5)), 200, groups, rounds=5)
    check = tuple(each for each in CHECKS if each.key == "noise-mean")
    tails = []
    for run in range(300):
        battery = Battery(subject, check)
        for seen in rounds_of(subject, 7_100_000_000 + run):
            battery.observe(seen)
        tails.append(chi2.cdf(*battery.state["noise-mean.means"]))
    for place in np.array(tails).T:
        assert kstest(place, "uniform").pvalue > FALSE_ALARM


def test_noise_under_two_secrets_is_compared_by_an_exact_law():
    """300 runs of one round that is released twice: the cosine's tail is uniform."""
    subject = Subject(Description(Clip(1.0), Noise(0.5, 0.5)), 300, rounds=1)
    check = tuple(each for each in CHECKS if each.key == "noise-unpredictable")
    tails = []
    for run in range(300):
        battery, (seen,) = Battery(subject, check), rounds_of(subject, 7_200_000_000 + run)
        noise = 0.5 * stream(7_200_000_000 + run, "again").standard_normal(300)
        battery.observe(replace(seen, bare=seen.others + noise / seen.release.denominator))
        same, dim = battery.state["noise-unpredictable.others"][0]
        tails.append(cosine(same, int(dim)))
    assert kstest(tails, "uniform").pvalue > FALSE_ALARM


def test_blocks_coordinates_and_pairs_of_rounds_vary_by_their_laws():
    """200 runs of 4 rounds: Σ of squared normals by length of the blocks, and of squared cosines, has a uniform tail."""
    subject = Subject(Description(Clip(1.0), Noise(0.5, 0.5)), 1000, rounds=4)
    checks = tuple(each for each in CHECKS if each.key in ("noise-by-coordinate", "noise-fresh"))
    blocks, pairs = [], []
    for run in range(200):
        battery = Battery(subject, checks)
        for seen in rounds_of(subject, 7_400_000_000 + run):
            battery.observe(seen)
        squares, count, *_ = battery.state["noise-by-coordinate.blocks"].T
        blocks.append(chi2.cdf(squares, count))
        pairs.append(chi2.cdf(battery.state["noise-fresh.together"][0], battery.state["noise-fresh.tried"][0]))
    for tails in (*np.array(blocks).T, np.array(pairs)):
        assert kstest(tails, "uniform").pvalue > FALSE_ALARM


@pytest.mark.parametrize("pattern", [Poisson(1 / 6, 24), FixedSize(24, 144, 24)], ids=lambda each: type(each).__name__)
def test_cohorts_alarm_no_more_often_than_they_say(pattern):
    """300 runs: the whole check, and the pairs of rounds and of clients alone."""
    check = tuple(each for each in CHECKS if each.key == "cohorts")
    subject = Subject(Description(Clip(1.0), Noise(0.5, 0.5)), 10, participation=pattern, population=144, rounds=24)
    together, pairs = [], []
    for run in range(300):
        battery = Battery(subject, check)
        for seen in rounds_of(subject, 7_300_000_000 + run):
            battery.observe(seen)
        together.append(battery.conclude().finding("cohorts").p_value)
        pairs.append([each.p_value for each in pair_tails(battery.state["cohorts.who"], 144, pattern.sampling)])
    for values in (np.array(together), *np.array(pairs).T):
        for level in (0.02, 0.1, 0.3):
            assert (values <= level).sum() <= binom.ppf(1 - FALSE_ALARM, 300, level)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_cohorts_of_just_the_mean_size_are_no_deviation(rounds):
    """Three Poisson cohorts of exactly 50 of 200 happen once in 3,600 runs, one in fifteen."""
    check = tuple(each for each in CHECKS if each.key == "cohorts")
    pattern = Poisson(0.25, rounds)
    subject = Subject(Description(Clip(1.0), Noise(0.5, 0.5)), 10, participation=pattern, population=200, rounds=rounds)
    battery = Battery(subject, check)
    for seen in rounds_of(subject, 7_500_000_000):
        cohort = stream(7_500_000_000, "of the mean", seen.round).permutation(200)[:50]
        battery.observe(replace(seen, cohort=cohort))
    assert battery.conclude().finding("cohorts").p_value > 1e-3


def test_every_sentence_but_the_quantile_was_tested(findings):
    assert set(findings[0]) == {check.key for check in CHECKS} - {"quantile-noise"}


def test_parts_that_come_back_and_noise_that_is_left_have_the_laws_that_are_said():
    """150 runs of layers of 1 to 200 coordinates: each statistic is at most as often unlikely as it says."""
    strategy, groups = Banded.optimal(10, 4), {"a": slice(0, 200), "b": slice(200, 210), "c": slice(210, 211)}
    told = Description(Clip(1.0), Noise(0.5, 0.5, rounds=strategy))
    subject = Subject(told, 211, groups, rounds=10)
    checks, weights = tuple(each for each in CHECKS if each.key in ("noise-by-coordinate", "noise-fresh")), strategy.inverse()
    found = []
    for run in range(150):
        made = weights @ stream(7_500_000_000 + run, "normals").standard_normal((10, 211))
        battery = Battery(subject, checks)
        for seen in rounds_of(subject, 7_500_000_000 + run, lambda _, number, made=made: made[number]):
            battery.observe(seen)
        memories = [{name.partition(".")[2]: value for name, value in battery.state.items() if name.startswith(check.key)}
                    for check in checks]  # fmt: skip
        left, again = sorted(memories, key=lambda memory: "layers" in memory)
        tails = [noise_left.tail(left, subject), *noise_again.tails(again, list(groups), 211)]
        found.append([tail.p_value for tail in tails])
    assert left["left_rounds"] == 10 and again["cosine"][4] == 45 * 3
    for level in (0.02, 0.1, 0.3):
        assert ((np.array(found) <= level).sum(axis=0) <= binom.ppf(1 - FALSE_ALARM, 150, level)).all()
    assert (np.array(found)[:, [0, 2]] <= 0.5).mean() > 0.2  # and they are no empty bounds
