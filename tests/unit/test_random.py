"""Random streams: named, independent of the order of asking and of each other, and the same on every machine."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from coalmine._random import stream

FALSE_ALARM = 1e-6  # each statistical test below would fail by chance once in a million choices of the seed


def test_the_same_words_give_the_same_numbers_whoever_asks_first():
    names = [("noise", number) for number in range(20)] + [("coins",), ("noise",)]
    forward = {name: stream(7, *name).random(5) for name in names}
    backward = {name: stream(7, *name).random(5) for name in reversed(names)}
    for name in names:
        assert (forward[name] == backward[name]).all()


def test_drawing_from_one_stream_leaves_the_others_alone():
    first, second = stream(0, "a"), stream(0, "b")
    expected = stream(0, "b").random(10)
    first.random(1000)
    assert (second.random(10) == expected).all()


@pytest.mark.parametrize(
    "words",
    [
        (0, "noise", 17),
        (1, "noise", 17),
        (0, "noise", 18),
        (0, "noise", "17"),
        (0, "noise", -17),
        (0, 17, "noise"),
        (0, "noise17"),
        (0, "noise"),
        (0, "Noise", 17),
        (0, "noise", 17, 0),
        (0, "noise ", 17),
        (-1, "noise", 17),
        (2**200, "noise", 17),
        (0,),
    ],
)
def test_other_words_give_other_numbers(words):
    """Compared with one further stream each; 53 random bits do not agree by chance."""
    seed, *names = words
    others = [(0, "other"), (seed, *names, "more"), (seed + 1, *names)]
    for other in others:
        assert stream(seed, *names).random() != stream(other[0], *other[1:]).random()


def test_all_of_many_streams_differ():
    drawn = {stream(seed, name, number).random() for seed in range(5) for name in ("a", "b") for number in range(100)}
    assert len(drawn) == 1000


@pytest.mark.parametrize("number", [np.int64(17), np.uint8(17), np.int32(17)], ids=lambda number: type(number).__name__)
def test_a_number_is_its_value_whatever_its_type(number):
    assert stream(0, "noise", number).random() == stream(0, "noise", 17).random()
    assert stream(number, "noise").random() == stream(17, "noise").random()


@pytest.mark.parametrize("word", [1.5, 17.0, None, ("a",), b"noise"])
def test_what_is_neither_word_nor_whole_number_is_refused(word):
    with pytest.raises(TypeError):
        stream(0, word)
    with pytest.raises(TypeError):
        stream(word, "noise")


def test_golden_values():
    """These numbers are part of every published result with a seed: they must not change."""
    assert stream(0, "noise", 17).random(3).tolist() == [0.05542495641788758, 0.15497919527727055, 0.7135759366270958]
    assert stream(2024, "gaussian mechanism").standard_normal(2).tolist() == [-1.652081117521105, -0.28098824181853305]
    assert stream(-1).integers(0, 1000, 4).tolist() == [447, 233, 209, 85]


def test_numbers_within_and_across_streams_are_normal_and_uncorrelated():
    table = np.array([stream(3, "independence", row).standard_normal(200) for row in range(200)])
    assert kstest(table.ravel(), norm.cdf).pvalue > FALSE_ALARM
    for first, second in ((table[:-1], table[1:]), (table[:, :-1], table[:, 1:])):  # neighbouring streams, neighbouring draws
        correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
        assert abs(correlation) < -norm.ppf(FALSE_ALARM / 2) / np.sqrt(first.size)
