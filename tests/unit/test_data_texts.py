"""Texts: vocabularies by hand, windows against a slow twin, and the chats."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.data import SPECIAL, Vocabulary, group_texts, read_chat
from coalmine.data.vocabulary import BOS, EOS, PAD, UNK, cut
from coalmine.errors import InputFileError

OFTEN = settings(deadline=None, derandomize=True, max_examples=100, database=None)
anything = st.text(st.characters(codec="utf-8"), max_size=30)
units = st.sampled_from(["characters", "words", "tokens"])


def slow_windows(sequences, length):
    """Windows by the definition: (features, targets) of each piece of `length` + 1 tokens, overlapping by one."""
    found = []
    for sequence in sequences:
        for start in range(0, len(sequence) - 1, length):
            piece = sequence[start : start + length + 1]
            piece = piece + [PAD] * (length + 1 - len(piece))
            found.append((piece[:-1], piece[1:]))
    return found


@OFTEN
@given(st.lists(anything, max_size=6), st.integers(1, 12), units, st.sampled_from(["separate", "joined", "first"]))
def test_windows_are_those_of_the_slow_twin(texts, length, unit, packing):
    vocabulary = Vocabulary.count(texts[:3], unit=unit, size=5)
    known = {token: SPECIAL + place for place, token in enumerate(vocabulary.tokens)}
    sequences = [[BOS, *(known.get(token, UNK) for token in cut(text, unit)), EOS] for text in texts]
    if packing == "joined":
        sequences = [[token for sequence in sequences for token in sequence]] if texts else []
    if packing == "first":
        sequences = [sequence[: length + 1] for sequence in sequences]
    expected = slow_windows(sequences, length)
    dataset = group_texts(["u"] * len(texts) + ["v"], [*texts, "x"]).windows(vocabulary, length=length, packing=packing)
    if texts:
        found = dataset.examples_of("u")
        assert found.features.dtype == found.targets.dtype == np.int64
        assert found.features.shape == found.targets.shape == (len(expected), length)
        assert list(zip(found.features.tolist(), found.targets.tolist(), strict=True)) == expected
        assert dataset.sizes[0] == len(expected)
        assert dataset.capped(2).examples_of("u").features.tolist() == [features for features, _ in expected[:2]]


@OFTEN
@given(st.lists(anything, min_size=1, max_size=6), st.integers(1, 12), units)
def test_every_token_but_the_first_is_a_target_exactly_once(texts, length, unit):
    dataset = group_texts(["u"] * len(texts), texts)
    vocabulary = dataset.vocabulary(unit)
    targets = dataset.windows(vocabulary, length=length).examples_of("u").targets
    assert (targets != PAD).sum() == sum(len(cut(text, unit)) + 1 for text in texts)
    assert not (targets == UNK).any()


@OFTEN
@given(st.lists(anything, max_size=5))
def test_characters_survive_encoding_and_decoding(texts):
    vocabulary = Vocabulary.count(texts, unit="characters")
    for text in texts:
        assert vocabulary.decode(vocabulary.encode(text)[1:-1]) == text


def test_half_a_surrogate_pair_is_a_character_like_others():
    vocabulary = Vocabulary.count(["a\ud800"], unit="characters")
    assert vocabulary.encode("\ud800b").tolist() == [BOS, 5, UNK, EOS]


def test_words_are_lower_case_and_punctuation_stands_alone():
    assert cut("I'm well-read, OK?  C_3 é 3.5\n", "words") == [
        "i'm",
        "well-read",
        ",",
        "ok",
        "?",
        "c",
        "_",
        "3",
        "é",
        "3",
        ".",
        "5",
    ]
    assert cut("already cut , by spaces", "tokens") == ["already", "cut", ",", "by", "spaces"]


def test_the_most_frequent_tokens_come_first_and_ties_by_their_text():
    vocabulary = Vocabulary.count(["b a c a", "c d"], unit="words", size=3)
    assert vocabulary.tokens == ("a", "c", "b")
    assert len(vocabulary) == SPECIAL + 3
    assert vocabulary.encode("d A b").tolist() == [BOS, UNK, 4, 6, EOS]
    assert Vocabulary.count(["c d", "b a c a"], unit="words", size=3) == vocabulary


def test_a_vocabulary_knows_nothing_of_held_out_users():
    texts = group_texts([f"user {place}" for place in range(10)], [f"word{place} common" for place in range(10)])
    train, held_out = texts.split_users(3, seed=0)
    vocabulary = train.vocabulary("words")
    assert vocabulary.tokens[0] == "common"
    assert len(vocabulary.tokens) == 8
    unknown = held_out.windows(vocabulary, length=3).all_examples().targets[:, 0]
    assert np.all(unknown == UNK)


def test_ascii_needs_no_text():
    vocabulary = Vocabulary.ascii()
    assert len(vocabulary) == SPECIAL + 96
    assert not (vocabulary.encode("Hello,\nworld~ {}") == UNK).any()
    assert vocabulary.encode("é\t").tolist() == [BOS, UNK, UNK, EOS]


def test_an_empty_vocabulary_knows_nothing():
    assert Vocabulary((), "characters").encode("ab").tolist() == [BOS, UNK, UNK, EOS]


def test_texts_with_classes():
    texts = group_texts(["a", "b", "a"], ["good day", "no", "bad day today"], labels=[1, 0, 0])
    dataset = texts.labelled(Vocabulary.count(["good bad day"], unit="words"), length=4)
    found = dataset.examples_of("a")
    # bad, day and good are 4, 5 and 6
    assert found.features.tolist() == [[BOS, 6, 5, EOS], [BOS, 4, 5, UNK]]
    assert found.targets.tolist() == [1, 0]
    assert dataset.examples_of("b").features.tolist() == [[BOS, UNK, EOS, PAD]]
    assert dataset.sizes.tolist() == [2, 1]
    assert dataset.capped(1).examples_of("a").targets.tolist() == [1]
    assert texts.capped(1).labelled(Vocabulary.ascii(), length=4).sizes.tolist() == [1, 1]


def test_selecting_texts_selects_their_classes():
    texts = group_texts(["a"] * 20, [str(place) for place in range(20)], labels=np.arange(20))
    loaded = texts.capped(5, seed=1).load("a")
    assert loaded.texts == tuple(str(label) for label in loaded.labels)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Vocabulary(("a", "a")), "a token of the vocabulary occurs twice"),
        (lambda: Vocabulary(("ab",), "characters"), "single characters only"),
        (lambda: Vocabulary(("ab",), "letters"), "unit='letters'"),
        (lambda: Vocabulary.count([], unit="letters"), "unit='letters'"),
        (lambda: Vocabulary.count([], unit="words", size=0), "size=0"),
        (lambda: group_texts(["a"], ["x"]).windows(Vocabulary.ascii(), length=0), "length=0"),
        (lambda: group_texts(["a"], ["x"]).windows(Vocabulary.ascii(), length=1, packing="last"), "packing='last'"),
        (
            lambda: group_texts(["a"], ["x"]).labelled(Vocabulary.ascii(), length=3).examples_of("a"),
            "the texts have no classes; use windows",
        ),
    ],
)
def test_what_cannot_be_is_said(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


@pytest.fixture(scope="module")
def chat():
    return read_chat()


def test_the_chats_of_real_users(chat):
    assert str(chat) == "chat: 1,315 users, 258,145 examples"
    assert (len(chat.at_least(20)), len(chat.at_least(50))) == (628, 399)
    assert (np.median(chat.sizes), chat.sizes.max()) == (17, 25_272)
    assert list(chat.users) == sorted(chat.users)
    assert chat.texts_of("720840be-e522-47ba-9e9f-143f66372673")[:2] == ("Hello", "How are you doing today?")


def test_the_chats_as_windows_of_characters_and_of_words(chat):
    train, held_out = chat.at_least(20).capped(20, seed=0).split_users(0.1, seed=0)
    assert (len(train), len(held_out)) == (565, 63)
    words = train.vocabulary("words", size=500)
    assert len(words) == SPECIAL + 500
    assert {"i", "the", "you"} <= set(words.tokens[:20])
    dataset = train.windows(words, length=20, packing="joined")
    examples = dataset.all_examples()
    assert examples.features.shape == (dataset.sizes.sum(), 20)
    assert examples.features.max() < len(words)
    characters = held_out.windows(Vocabulary.ascii(), length=80).all_examples()
    assert not (characters.targets == UNK).any()
    again = read_chat().at_least(20).capped(20, seed=0).split_users(0.1, seed=0)[0]
    assert np.array_equal(again.windows(words, length=20, packing="joined").all_examples().features, examples.features)


def test_a_file_of_chats_in_the_same_layout(tmp_path):
    said = [("ann", "hi"), ("bob", "hello"), ("ann", "bye")]
    chats = {"1": {"messages": [[{"sender": who, "text": what, "timestamp": ""}] for who, what in said], "start": ""}}
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(chats))
    assert dict(read_chat(path)) == {"ann": ("hi", "bye"), "bob": ("hello",)}
    for content in ("", "[]", "{", '{"1": {}}', '{"1": {"messages": [[{"sender": 3, "text": "x"}]]}}', "[" * 100_000, "\xff"):
        path.write_bytes(content.encode("latin-1"))
        with pytest.raises(InputFileError, match=r"chats.json is not a JSON file of chats") as caught:
            read_chat(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputFileError, match="there is no file"):
        read_chat(tmp_path / "none.json")


def test_users_of_the_chats_cut_into_clients(chat, tmp_path):
    said = [("ann", "1"), ("ann", "2"), ("ann", "3"), ("ann", "4"), ("ann", "5"), ("bob", "6")]
    chats = {"1": {"messages": [[{"sender": who, "text": what} for who, what in said]]}}
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(chats))
    cut_up = read_chat(path, per_client=2)
    assert dict(cut_up) == {"ann/0000": ("1", "2"), "ann/0001": ("3", "4"), "ann/0002": ("5",), "bob/0000": ("6",)}
    assert cut_up.name == "chat, each user cut into clients of 2 utterances"
    assert set(read_chat(path, per_client=2, clients_of_a_user=1).users) == {"ann/0000", "bob/0000"}
    with pytest.raises(ValueError, match="clients_of_a_user belongs to per_client"):
        read_chat(path, clients_of_a_user=1)
    with pytest.raises(ValueError, match="per_client=0"):
        read_chat(path, per_client=0)
    assert read_chat(per_client=8).sizes.sum() == chat.sizes.sum()


def test_counting_words_is_counting_words(chat):
    few = chat.only(chat.users[:30])
    by_hand = Counter(token for _, texts in few for text in texts for token in cut(text, "words"))
    best = few.vocabulary("words", size=50).tokens
    assert [by_hand[token] for token in best] == sorted(by_hand.values(), reverse=True)[:50]
