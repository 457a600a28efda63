"""Cohorts: each pattern keeps what its description promises, is reproducible, and goes on from any round."""

import itertools
import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from coalmine import (
    Epochs,
    FixedSize,
    MinSeparation,
    Once,
    Periods,
    Poisson,
    Repeated,
    Trace,
    calibrate_noise,
    claim,
)
from coalmine._random import stream
from coalmine.errors import InputFileError

OFTEN = settings(deadline=None, derandomize=True, max_examples=60, database=None)
FALSE_ALARM = 1e-6  # of each statistical test below

seeds = st.integers(0, 2**64)
populations = st.integers(0, 80)
lengths = st.integers(1, 25)


@st.composite
def patterns(draw):
    """A pattern with a population and a number of rounds that fit it."""
    population, rounds = draw(st.integers(1, 60)), draw(lengths)
    size = draw(st.integers(1, population))
    times = draw(st.integers(1, rounds))
    trace = draw(st.lists(st.lists(st.integers(0, population - 1), unique=True), min_size=rounds, max_size=rounds).filter(any))
    pattern = draw(
        st.sampled_from(
            [
                Once(),
                Repeated(times),
                Periods(times),
                Epochs(times),
                Epochs(times, reshuffled=False),
                Poisson(draw(st.floats(0.01, 1.0)), rounds),
                FixedSize(size, population, rounds),
                MinSeparation(draw(st.integers(1, population // size)), size, rounds),
                Trace(tuple(map(tuple, trace))),
            ]
        )
    )
    return pattern, population, rounds


def counts(cohorts, population):
    return np.bincount(np.concatenate(cohorts), minlength=population) if cohorts else np.zeros(population, int)


@OFTEN
@given(patterns(), seeds)
def test_cohorts_are_increasing_positions_one_for_each_round(case, seed):
    pattern, population, rounds = case
    cohorts = list(pattern.cohorts(population, rounds, seed))
    assert len(cohorts) == rounds
    for cohort in cohorts:
        assert cohort.dtype == np.int64
        assert np.all(np.diff(cohort) > 0)
        assert cohort.size == 0 or (cohort[0] >= 0 and cohort[-1] < population)


@OFTEN
@given(patterns(), seeds, st.data())
def test_a_run_that_stopped_goes_on_with_the_same_cohorts(case, seed, data):
    pattern, population, rounds = case
    whole = list(pattern.cohorts(population, rounds, seed))
    start = data.draw(st.integers(0, rounds + 1))
    rest = list(pattern.cohorts(population, rounds, seed, start=start))
    assert len(rest) == max(rounds - start, 0)
    assert all(map(np.array_equal, rest, whole[start:]))


@OFTEN
@given(patterns(), seeds)
def test_nobody_takes_part_more_often_than_the_accountant_is_told(case, seed):
    pattern, population, rounds = case
    if isinstance(pattern, (Poisson, FixedSize)):
        return
    found = counts(list(pattern.cohorts(population, rounds, seed)), population)
    assert found.max() <= pattern.most
    if isinstance(pattern, (Once, Repeated)):
        assert np.all(found == pattern.most)
    if isinstance(pattern, Trace):
        assert found.max() == pattern.most


@OFTEN
@given(patterns(), seeds)
def test_the_expected_size_is_the_mean_of_what_is_drawn(case, seed):
    pattern, population, rounds = case
    drawn = sum(cohort.size for cohort in pattern.cohorts(population, rounds, seed)) / rounds
    if not isinstance(pattern, Poisson):
        assert pattern.expected_size(population, rounds) == pytest.approx(drawn)


@OFTEN
@given(populations, lengths, seeds, st.data())
def test_each_pass_has_everybody_once_in_nearly_equal_cohorts(population, rounds, seed, data):
    times = data.draw(st.integers(1, rounds))
    for pattern in (Epochs(times), Periods(times), Repeated(times), Epochs(times, reshuffled=False)):
        cohorts = list(pattern.cohorts(population, rounds, seed))
        bounds = [rounds * number // times for number in range(times + 1)]
        for begin, end in itertools.pairwise(bounds):
            sizes = [cohort.size for cohort in cohorts[begin:end]]
            assert np.array_equal(np.sort(np.concatenate(cohorts[begin:end])), np.arange(population))
            assert max(sizes) - min(sizes) <= 1


@OFTEN
@given(populations, lengths, seeds)
def test_once_is_one_pass(population, rounds, seed):
    once, epoch = (list(pattern.cohorts(population, rounds, seed)) for pattern in (Once(), Epochs(1)))
    assert all(map(np.array_equal, once, epoch))


def test_passes_are_shuffled_anew_unless_told_otherwise():
    anew, same = (list(pattern.cohorts(100, 20, 3)) for pattern in (Epochs(2), Epochs(2, reshuffled=False)))
    assert all(map(np.array_equal, same[:10], same[10:]))
    assert not any(map(np.array_equal, anew[:10], anew[10:]))


@OFTEN
@given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 20), lengths, seeds)
def test_separation_is_kept(separation, size, more, rounds, seed):
    population = size * separation + more
    cohorts = list(MinSeparation(separation, size, rounds).cohorts(population, rounds, seed))
    assert all(cohort.size == size for cohort in cohorts)
    for first, cohort in enumerate(cohorts):
        for other in cohorts[first + 1 : first + separation]:
            assert not np.intersect1d(cohort, other).size


def test_with_no_room_to_spare_separation_is_a_rotation():
    cohorts = list(MinSeparation(4, 5, rounds=12).cohorts(20, 12, 0))
    assert all(map(np.array_equal, cohorts[:8], cohorts[4:]))


@OFTEN
@given(st.integers(1, 30), lengths, seeds)
def test_a_fixed_size_is_kept(population, rounds, seed):
    size = 1 + seed % population
    assert all(cohort.size == size for cohort in FixedSize(size, population, rounds).cohorts(population, rounds, seed))


def test_poisson_cohorts_have_the_promised_sizes_and_are_independent():
    population, rounds, rate = 2_000, 300, 0.03
    cohorts = list(Poisson(rate, rounds).cohorts(population, rounds, 5))
    total = sum(cohort.size for cohort in cohorts)
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], population * rounds, rate)
    assert low <= total <= high
    both = sum(np.intersect1d(left, right).size for left, right in itertools.pairwise(cohorts))
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], population * (rounds - 1), rate**2)
    assert low <= both <= high


def test_poisson_at_rate_one_is_everybody():
    assert all(np.array_equal(cohort, np.arange(7)) for cohort in Poisson(1.0, 3).cohorts(7, 3, 0))


@pytest.mark.parametrize(
    ("pattern", "population"),
    [(Once(), 40), (Periods(3), 40), (FixedSize(10, 40, 30), 40), (MinSeparation(2, 10, 30), 40)],
    ids=str,
)
def test_every_client_is_as_likely_as_the_others(pattern, population):
    """Membership in one round, over many seeds, against equal shares: the statistic of Pearson, scaled for a fixed cohort."""
    trials, number = 2_000, 17
    found = np.zeros(population)
    sizes = np.zeros(trials)
    for seed in range(trials):
        cohort = next(pattern.cohorts(population, 30, seed, start=number))
        found[cohort] += 1
        sizes[seed] = cohort.size
    share = sizes.mean() / population
    statistic = ((found - trials * share) ** 2).sum() / (trials * share * (1 - share)) * (population - 1) / population
    assert statistic <= chi2.isf(FALSE_ALARM, population - 1)


def test_streams_of_other_names_give_other_cohorts():
    cohorts = {
        name: np.concatenate(list(Poisson(0.5, 5).cohorts(50, 5, partial(stream, 1, name)))).tobytes()
        for name in ("clients", "canaries")
    }
    assert cohorts["clients"] != cohorts["canaries"]


def test_a_seed_is_the_stream_of_that_seed_and_the_cohort_of_a_round_has_a_stream_of_its_own():
    by_seed, by_stream = (list(Poisson(0.5, 5).cohorts(50, 5, rng)) for rng in (9, partial(stream, 9)))
    assert all(map(np.array_equal, by_seed, by_stream))
    assert np.array_equal(by_seed[3], np.flatnonzero(stream(9, "cohort", 3).random(50) < 0.5))


def test_cohorts_are_drawn_lazily():
    asked = []

    def streams(*names):
        asked.append(names)
        return stream(0, *names)

    cohorts = Poisson(0.5, 1_000_000).cohorts(10, 1_000_000, streams)
    assert asked == []
    next(cohorts)
    assert asked == [("cohort", 0)]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Poisson(0.5, 5).cohorts(10, 6, 0), "rounds=6 does not fit: the pattern describes 5 rounds"),
        (lambda: FixedSize(5, 10, 5).cohorts(11, 5, 0), "population=11 does not fit: the pattern draws from 10 clients"),
        (lambda: Repeated(5).cohorts(10, 4, 0), "rounds=4 is too few for clients that take part in 5 of them"),
        (lambda: MinSeparation(4, 5, 30).cohorts(19, 30, 0), "population=19 is too small.*need 20 clients"),
        (lambda: Trace(((3,),)).cohorts(3, 1, 0), "population=3 does not fit: the trace lists client 3"),
        (lambda: Trace(((3,),)).cohorts(9, 2, 0), "rounds=2 does not fit: the pattern describes 1 rounds"),
        (lambda: Once().cohorts(-1, 2, 0), "population=-1"),
        (lambda: Once().cohorts(1, 0, 0), "rounds=0"),
        (lambda: Once().cohorts(1, 1, "seed"), "rng='seed' is not allowed"),
        (lambda: Once().cohorts(1, 1, 0, start=-1), "start=-1"),
        (lambda: Periods(0), "times=0"),
        (lambda: MinSeparation(0, 1, 1), "separation=0"),
        (lambda: Trace(()), "the trace is empty"),
        (lambda: Trace(((1, 1),)), "round 0 of the trace lists a client twice"),
        (lambda: Trace(((-1,),)), "-1"),
        (lambda: Trace.of({}), "the trace is empty"),
        (lambda: Trace.of({0: ["zoe"]}, users=["ann"]), "round 0 lists 'zoe', which is none of the 1 users"),
        (lambda: Trace.of({0: [1], 4: [1]}, first=2), "first=2 is after round 0"),
        (lambda: Trace.of({0.5: [1]}), "a round number of the trace=0.5"),
    ],
)
def test_what_does_not_fit_is_said_before_the_first_cohort(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


def test_a_trace_begins_at_its_first_round_and_keeps_its_gaps():
    assert Trace.of({11: [4, 0], 13: iter([4])}).members == ((4, 0), (), (4,))
    assert Trace.of({1: [4]}, first=0).members == ((), (4,))


@pytest.mark.parametrize("ending", ["csv", "tsv", "json"])
@pytest.mark.parametrize("users", [None, ["ann", "bob", "eve"]], ids=["positions", "ids"])
def test_traces_are_read_from_files(tmp_path, ending, users):
    recorded = {5: [0, 2], 6: [1], 8: [2]}
    shown = {number: [users[place] if users else place for place in places] for number, places in recorded.items()}
    path = tmp_path / f"trace.{ending}"
    if ending == "json":
        path.write_text(json.dumps(shown))
    else:
        comma = "," if ending == "csv" else "\t"
        rows = [("client", "round"), *((str(client), str(number)) for number in shown for client in shown[number])]
        path.write_text("\n".join(comma.join(row) for row in rows) + "\n")
    assert Trace.read(path, users=users) == Trace(((0, 2), (1,), (), (2,)))
    assert Trace.read(path, users=users) == Trace.of(shown, users=users)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "round,user\n1,2\n", "columns must be round and client, found 'round', 'user'"),
        ("a.csv", "", "columns must be round and client, found none"),
        ("a.csv", "round,client\n1,2,3\n", "line 2 has 3 cells"),
        ("a.csv", "round,client\n1,ann\n", "line 2: cannot read"),
        ("a.csv", "round,client\n-1,2\n", "a round number of the trace=-1"),
        ("a.csv", "round,client\n", "the trace is empty"),
        ("a.csv", "round,client\n1,2\n1,2\n", "lists a client twice"),
        ("a.csv", b"round,client\n1,\xff\n", "utf-8"),
        ("a.json", "[1, 2]", "must hold an object"),
        ("a.json", '{"0": 3}', "must hold an object"),
        ("a.json", '{"x": [3]}', "rounds must be whole numbers"),
        ("a.json", '{"0": [3.5]}', "clients whole numbers"),
        ("a.json", '{"0": [3', "not a readable trace"),
        ("a.json", "[" * 100_000, "not a readable trace"),
        ("a.pkl", "", "must be one of .csv"),
    ],
)
def test_a_broken_trace_is_one_clear_error(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputFileError, match=message):
        Trace.read(path)


def test_a_missing_trace_says_what_a_trace_is(tmp_path):
    with pytest.raises(InputFileError, match="columns round, client"):
        Trace.read(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("pattern", "times", "words"),
    [
        (Epochs(5), 5, "5 times"),
        (Epochs(1), 1, "once"),
        (Periods(8), 8, "8 times"),
        (MinSeparation(10, 5, 35), 4, "at most 4 times, at least 10 rounds apart"),
        (Trace(((0, 1), (1,), (), (1, 2))), 3, "at most 3 times, by a trace of 4 rounds"),
    ],
    ids=str,
)
def test_patterns_with_known_rounds_are_accounted_by_the_most_rounds_of_one_client(pattern, times, words):
    found = claim(pattern, noise_multiplier=3.0, delta=1e-5)
    assert found.epsilon == claim(Repeated(times), noise_multiplier=3.0, delta=1e-5).epsilon
    assert found.epsilon == pytest.approx(claim(Once(), noise_multiplier=3.0 / times**0.5, delta=1e-5).epsilon, rel=1e-9)
    assert found.game.knowledge == "rounds known"
    assert found.game.participation == words
    by_rdp = claim(pattern, noise_multiplier=3.0, delta=1e-5, accountant="rdp")
    assert by_rdp.epsilon == claim(Repeated(times), noise_multiplier=3.0, delta=1e-5, accountant="rdp").epsilon


def test_epochs_and_periods_are_the_same_game_as_repeated():
    games = {claim(pattern, noise_multiplier=1.0, delta=1e-5).game for pattern in (Repeated(4), Epochs(4), Periods(4))}
    assert len(games) == 1


def test_many_presentations_are_calibrated_by_every_accountant():
    exact = calibrate_noise(Repeated(400), epsilon=1.0, delta=1e-5)
    assert exact <= calibrate_noise(Repeated(400), epsilon=1.0, delta=1e-5, accountant="rdp") <= 1.5 * exact
