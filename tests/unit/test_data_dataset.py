"""The data set itself: users in order, lazy loading, and selections that depend on the seed and the user alone."""

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.data import SOURCES, Examples, FederatedDataset, group_examples, group_texts, read, read_digits
from coalmine.data.dataset import Cap, Part

OFTEN = settings(deadline=None, derandomize=True, max_examples=60, database=None)
seeds = st.integers(0, 2**64)


class Counted:
    """A source that notes who was loaded; user i has i examples, numbered."""

    def __init__(self, people):
        self.users = tuple(f"{place:03d}" for place in range(people))
        self.loaded = []

    def sizes(self, users):
        return np.array([int(user) for user in users], np.int64)

    def load(self, user, rows):
        self.loaded.append((user, rows))
        numbers = np.arange(int(user))[rows]
        return Examples(numbers[:, None] + 1000 * int(user), numbers)


def counted(people=12):
    source = Counted(people)
    return FederatedDataset("counted", source.users, source)


def rows_of(dataset):
    return {user: examples.targets.tolist() for user, examples in dataset}


def test_users_are_loaded_one_by_one_and_only_when_asked_for():
    dataset = counted()
    dataset.capped(3).at_least(2).split_users(0.5, seed=1)
    assert dataset.source.loaded == []
    assert dataset.examples_of("005").features[:, 0].tolist() == [5000, 5001, 5002, 5003, 5004]
    assert [user for user, _ in dataset.source.loaded] == ["005"]


def test_a_cap_asks_the_source_for_no_more_than_the_first_examples():
    dataset = counted().capped(3)
    assert len(dataset.examples_of("009")) == 3
    assert dataset.source.loaded == [("009", slice(0, 3))]


def test_sizes_are_those_of_what_is_loaded_and_cannot_be_changed():
    dataset = counted().capped(7, seed=0)
    assert dataset.sizes.tolist() == [min(place, 7) for place in range(12)]
    with pytest.raises(ValueError, match="read-only"):
        dataset.sizes[0] = 5
    assert str(dataset) == "counted: 12 users, 56 examples"
    assert len(dataset) == 12


def test_at_least_keeps_the_order():
    assert counted(6).at_least(3).users == ("003", "004", "005")
    assert counted(6).capped(2).at_least(3).users == ()


@OFTEN
@given(seeds, st.integers(1, 12))
def test_a_random_cap_keeps_the_order_and_does_not_depend_on_the_other_users(seed, most):
    many, few = counted(12).capped(most, seed=seed), counted(12).only(["010", "007"]).capped(most, seed=seed)
    for user in few.users:
        chosen = few.examples_of(user).targets
        assert np.all(np.diff(chosen) > 0)
        assert len(chosen) == min(most, int(user))
        assert np.array_equal(chosen, many.examples_of(user).targets)


@OFTEN
@given(seeds, st.floats(0.01, 0.99))
def test_held_out_examples_are_a_partition_of_each_user(seed, share):
    dataset = counted(20).at_least(1)
    train, rest = dataset.split_examples(share, seed=seed)
    assert train.users == dataset.users
    assert min(train.sizes) >= 1
    assert min(rest.sizes, default=1) >= 1
    left, held = rows_of(train), rows_of(rest)
    for user in dataset.users:
        assert sorted(left[user] + held.get(user, [])) == list(range(int(user)))
        if int(user) > 1:
            assert abs(len(held.get(user, [])) - share * int(user)) <= 1
    assert {user: len(rows) for user, rows in left.items()} == dict(zip(train.users, train.sizes.tolist(), strict=True))
    assert {user: len(rows) for user, rows in held.items()} == dict(zip(rest.users, rest.sizes.tolist(), strict=True))


@OFTEN
@given(seeds, st.integers(2, 40), st.data())
def test_held_out_users_are_a_partition_of_the_users(seed, people, data):
    wanted = data.draw(st.one_of(st.integers(1, people - 1), st.floats(0.01, 0.99)))
    dataset = counted(people)
    train, rest = dataset.split_users(wanted, seed=seed)
    assert sorted((*train.users, *rest.users)) == list(dataset.users)
    assert list(train.users) == sorted(train.users)
    count = wanted if isinstance(wanted, int) else min(max(int(wanted * people + 0.5), 1), people - 1)
    assert len(rest) == count


@OFTEN
@given(seeds, st.permutations(range(12)))
def test_who_is_held_out_does_not_depend_on_the_order_of_the_users(seed, order):
    dataset = counted(12)
    shuffled = replace(dataset, users=tuple(dataset.users[place] for place in order))
    assert set(dataset.split_users(4, seed=seed)[1].users) == set(shuffled.split_users(4, seed=seed)[1].users)


def test_other_seeds_split_otherwise():
    held_out = {counted(40).split_users(0.5, seed=seed)[1].users for seed in range(5)}
    assert len(held_out) == 5
    assert len({tuple(rows_of(counted(40).split_examples(0.5, seed=seed)[1])["039"]) for seed in range(5)}) == 5


def test_users_with_as_many_examples_are_split_and_capped_differently():
    dataset = group_examples(["a"] * 30 + ["b"] * 30, np.zeros(60), np.tile(np.arange(30), 2))
    for chosen in (dataset.split_examples(0.5, seed=0)[1], dataset.capped(15, seed=0)):
        rows = rows_of(chosen)
        assert rows["a"] != rows["b"]
    assert len({tuple(rows_of(dataset.capped(15, seed=seed))["a"]) for seed in range(5)}) == 5


def test_selections_compose_from_left_to_right():
    train, rest = counted(12).at_least(4).capped(5, seed=3).split_examples(0.4, seed=4)
    capped = rows_of(counted(12).capped(5, seed=3))
    for user, rows in rows_of(train).items():
        assert sorted(rows + rows_of(rest)[user]) == capped[user]
    assert train.split_users(2, seed=0)[0].capped(1).sizes.tolist() == [1] * 6


@OFTEN
@given(st.integers(0, 50), st.integers(1, 60), seeds, st.floats(0.01, 0.99))
def test_counts_are_the_lengths_of_the_rows(size, most, seed, share):
    for selection in (Cap(most), Cap(most, seed), Part(share, seed, held_out=True), Part(share, seed, held_out=False)):
        assert selection.count(np.array([size]))[0] == len(selection.rows("u", size))


def test_everything_in_memory_is_the_same_data_set():
    lazy = counted(9).capped(4, seed=0)
    loaded = lazy.in_memory()
    assert (loaded.name, loaded.users, loaded.sizes.tolist()) == (lazy.name, lazy.users, lazy.sizes.tolist())
    for user in lazy.users:
        assert np.array_equal(loaded.examples_of(user).features, lazy.examples_of(user).features)
        assert np.array_equal(loaded.examples_of(user).targets, lazy.examples_of(user).targets)
    assert rows_of(loaded.capped(2)) == rows_of(lazy.capped(2))


def test_what_is_loaded_may_be_changed_without_harm():
    dataset = group_examples(["a", "a"], [[1.0], [2.0]], [0, 1])
    dataset.examples_of("a").features[:] = 7
    assert dataset.examples_of("a").features.tolist() == [[1.0], [2.0]]


def test_a_data_set_can_go_to_another_process():
    dataset = pickle.loads(pickle.dumps(group_examples(["b", "a"], [[1.0], [2.0]], [0, 1]).capped(1, seed=0)))
    assert dataset.examples_of("a").features.tolist() == [[2.0]]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: counted().examples_of("ann"), "'ann' is not one of the 12 users of counted"),
        (lambda: counted().at_least(5).examples_of("004"), "'004' is not one of the 7 users"),
        (lambda: counted().only(["001", "ann"]), "'ann' is not one of the 12 users"),
        (lambda: counted(1).split_users(0.5, seed=0), "counted has 1 users; a split needs at least 2"),
        (lambda: counted().split_users(12, seed=0), "held_out=12 leaves no training user"),
        (lambda: counted().split_users(0, seed=0), "held_out=0"),
        (lambda: counted().split_users(1.5, seed=0), "held_out=1.5"),
        (lambda: counted().split_users(float("nan"), seed=0), "held_out is NaN"),
        (lambda: counted().split_users(0.5, seed=0.5), "seed=0.5"),
        (lambda: counted().split_examples(1, seed=0), "held_out=1"),
        (lambda: counted().capped(0), "examples=0"),
        (lambda: counted().capped(3, seed=-1), "seed=-1"),
        (lambda: counted().at_least(-1), "examples=-1"),
        (lambda: counted(0).all_examples(), "counted has no users"),
        (lambda: FederatedDataset("twice", ("a", "a"), Counted(1)), "twice: a user id occurs twice"),
        (lambda: Examples(np.zeros(2), np.zeros(3)), "2 features do not fit 3 targets"),
        (lambda: read("chats"), "source='chats' is not allowed: it must be one of 'chat', 'digits'"),
        (lambda: read("digits", groups=3), "an option of source 'digits'='groups' is not allowed: it must be one of 'group'"),
        (lambda: read_digits(group=0), "group=0"),
    ],
)
def test_what_cannot_be_is_said(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


def test_digits_are_clients_of_one_image_or_of_several():
    alone, grouped = read_digits(), read_digits(group=10)
    assert (len(alone), len(grouped), grouped.sizes[-1]) == (1797, 180, 7)
    image = alone.examples_of("0000")
    assert image.features.shape == (1, 8, 8)
    assert (image.features.dtype, image.targets.dtype) == (np.float32, np.int64)
    everything = grouped.all_examples()
    assert (everything.features.min(), everything.features.max()) == (0.0, 1.0)
    assert np.bincount(everything.targets).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.array_equal(everything.features, alone.all_examples().features)


def test_every_source_has_a_name_and_users_can_be_split_whatever_they_have():
    assert set(SOURCES) >= {"chat", "digits", "mnist-writers", "shakespeare", "leaf", "table"}
    texts = group_texts([3, 1, 3, 20], ["c", "a", "d", "t"], name="letters")
    assert texts.users == ("1", "3", "20")  # by value
    train, rest = texts.split_users(1, seed=0)
    assert sorted((*train.users, *rest.users)) == ["1", "20", "3"]
    assert texts.capped(1).texts_of("3") == ("c",)


def test_importing_the_room_loads_numpy_alone():
    heavy = "torch", "h5py", "sklearn", "pyarrow", "scipy", "pandas"
    code = f"import coalmine.data, sys; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_very_many_users_are_told_apart_without_their_sizes(monkeypatch):
    """Sizes of all of them would take minutes; what makes them is enough."""
    from coalmine.data import dataset
    from coalmine.data.synthetic import _Synthetic, synthetic_texts

    few = synthetic_texts(20).identity
    assert few[1] == synthetic_texts(20).sizes.tolist()
    monkeypatch.setattr(dataset, "_MANY", 10)
    monkeypatch.setattr(_Synthetic, "sizes", lambda *_: pytest.fail("sizes were counted"))
    one, other, capped, fewer = (
        synthetic_texts(20), synthetic_texts(20, seed=1), synthetic_texts(20).capped(3), synthetic_texts(20).first(15),
    )  # fmt: skip
    assert one.identity == synthetic_texts(20).identity
    assert len({one.identity, other.identity, capped.identity, fewer.identity}) == 4
