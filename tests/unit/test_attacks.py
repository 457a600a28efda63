"""User inference and exposure: the game, the statistic, and models whose likelihoods are known."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

from coalmine import Guesses, Scores, bound_one_run
from coalmine._random import stream
from coalmine.attacks import user_inference as attacks
from coalmine.attacks.exposure import exposures, make_secrets
from coalmine.attacks.fine_tuning import LanguageModel, Tuning, windows_of
from coalmine.attacks.ngram import NGram
from coalmine.attacks.noisy_counts import NoisyCounts
from coalmine.data.vocabulary import PAD, Vocabulary
from coalmine.errors import AuditError
from coalmine.models import gpt

FALSE_ALARM = 1e-6
SECRET = partial(stream, 7)


def people(count=8, texts=12):
    return {f"user {number}": [f"text {place} of {number}" for place in range(texts)] for number in range(count)}


def test_texts_are_split_before_the_coins_and_do_not_repeat():
    found = attacks.split_texts(people(), attack_texts=3, cap=5)
    assert len(found.targets) == 8 and found.repeated == 0
    for target in found.targets:
        assert len(target.attack) == 3 and len(target.training) == 5
        assert not set(target.attack) & set(target.training)
    assert found == attacks.split_texts(people(), attack_texts=3, cap=5)


def test_repeated_texts_are_left_out_and_counted():
    found = attacks.split_texts({"a": ["hi", "hi  ", " hi"], "b": ["x", "y", "z"]}, attack_texts=1)
    assert [target.user for target in found.targets] == ["b"] and found.repeated == 1
    kept = attacks.split_texts({"a": ["hi", "hi  ", "you", "hi"], "b": ["x", "y"]}, attack_texts=1, dedup=True)
    assert len(kept.targets) == 2 and kept.duplicates == 2


def test_the_reference_must_not_know_a_target():
    targets = attacks.split_texts(people(3), attack_texts=1).targets
    attacks.check_reference(["somebody else"], targets)
    with pytest.raises(AuditError, match="trained on 1 target users"):
        attacks.check_reference(["user 1"], targets)


def test_the_statistic_by_hand():
    targets = [attacks.Target("a", ("x",), ("one", "three")), attacks.Target("b", ("x",), ("to", "go"))]
    tuned = {"one": -1.0, "three": -2.0, "to": -5.0, "go": -7.0}
    reference = {"one": -2.0, "three": -5.0, "to": -5.5, "go": -6.5}

    found = attacks.statistic(targets, look_up(tuned), look_up(reference))
    assert found.tolist() == [2.0, 0.0]
    assert attacks.statistic(targets, look_up(tuned), look_up(reference), texts=1).tolist() == [1.0, 0.5]
    per_token = attacks.statistic(targets, look_up(tuned), look_up(reference), kind="log ratio per token")
    assert per_token.tolist() == pytest.approx([(1 / 4 + 3 / 6) / 2, (0.5 / 3 - 0.5 / 3) / 2])


def test_canary_users_share_a_string_of_their_own():
    made = attacks.canary_users(people(), count=6, shared=(4, 16), attack_texts=3, most=5, secret=SECRET)
    assert [target.shared for target in made] == [4, 16] * 3
    strings = [target.training[0].split()[0] for target in made]
    assert len(set(strings)) == 6 and [len(each) for each in strings] == [4, 16] * 3
    for target, string in zip(made, strings, strict=True):
        assert all(text.startswith(string + " ") for text in (*target.training, *target.attack))


def test_no_effect_no_epsilon():
    """Coins that are thrown anew have nothing to do with the scores: the one-run bound is above 0 in at most 5 % of trials."""
    value, trials, wrong = stream(0, "scores without effect").standard_normal(300), 1000, 0
    for trial in range(trials):
        coins = stream(trial, "coins anew").random(300) < 0.5
        wrong += bound_one_run(Scores(value, coins, assignment="coins"), delta=1e-5, guesses=Guesses(30, 30)).epsilon > 0
    assert wrong <= binom.isf(FALSE_ALARM, trials, 0.05)


def test_the_statistic_of_a_mixture_is_at_most_its_bound():
    """A model that is alpha P_u + (1 - alpha) Q, on four texts: E T = KL(P_u, Q) - KL(P_u, mixture) <= log(1 + alpha chi²)."""
    p, q = np.array([0.6, 0.2, 0.1, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    texts = ("a", "b", "c", "d")
    for alpha in (0.05, 0.3, 0.9):
        mixed = alpha * p + (1 - alpha) * q
        target = attacks.Target("u", ("x",), texts)
        tables = [dict(zip(texts, np.log(law), strict=True)) for law in (mixed, q)]
        each = [attacks.statistic([replace(target, attack=(text,))], *map(look_up, tables))[0] for text in texts]
        mean = p @ np.array(each)
        assert mean == pytest.approx(p @ np.log(p / q) - p @ np.log(p / mixed), rel=1e-12)
        assert 0 < mean <= np.log(1 + alpha * ((p - q) ** 2 / q).sum()) + 1e-12


def look_up(table):
    return lambda texts: np.array([table[text] for text in texts])


def test_n_grams_are_distributions_and_learn():
    model = NGram(3)
    model.add(["abab", "abba"])
    characters = ["a", "b", "c", "\x03"]
    marked = "\x02ab"
    total = sum(model._chance(marked + each, 3) for each in characters)
    rest = (130 - 4) * model._chance(marked + "z", 3)
    assert total + rest == pytest.approx(1.0)
    more = model.with_texts(["abab"] * 5)
    together = NGram(3)
    together.add(["abab", "abba", *["abab"] * 5])
    for text in ("abab", "ba", "cab"):
        assert more.log_likelihood(text) == pytest.approx(together.log_likelihood(text), rel=1e-12)
    assert more.log_likelihood("abab") > model.log_likelihood("abab")


@pytest.fixture(scope="module")
def small():
    vocabulary = Vocabulary.ascii()
    model = gpt(vocabulary=len(vocabulary), context=16, width=16, heads=2, layers=1)
    return LanguageModel(model, vocabulary, 16, model.initial(0))


def test_likelihoods_add_up_over_windows_and_skip_padding(small, one_thread):
    import torch

    text = "a text of more than sixteen characters"
    rows = windows_of([text], small.vocabulary, 16)
    assert (rows[:-1] != PAD).all() and rows[0, -1] == rows[1, 0]
    flat = small.model.flat()
    flat.put(small.parameters)
    naive = 0.0
    for row in rows:
        chances = torch.log_softmax(flat.module(torch.from_numpy(row[None, :-1]))[0].detach().double(), -1)
        naive += sum(float(chances[place, token]) for place, token in enumerate(row[1:]) if token != PAD)
    both = small.log_likelihoods([text, "b"])
    assert both[0] == pytest.approx(naive, rel=1e-5) and both.shape == (2,)
    assert sum((row[1:] != PAD).sum() for row in rows) == small.vocabulary.encode(text).size - 1


@pytest.mark.parametrize("protection", ["none", "example", "user"])
def test_fine_tuning_repeats_and_private_training_is_noisy(small, protection, one_thread):
    texts = [["hello hello hello"] * 6, ["hello you hello"] * 6]
    tuning = Tuning(1e-2, 4 if protection != "user" else 2, 12, protection, 0.0, 1.0)
    once, again = (small.fine_tuned(texts, tuning, SECRET) for _ in range(2))
    assert np.array_equal(once.parameters, again.parameters)
    assert once.mean_loss(["hello hello"]) < small.mean_loss(["hello hello"]) - 0.1
    if protection != "none":
        noisy = small.fine_tuned(texts, Tuning(1e-2, 4, 12, protection, 50.0, 1.0), SECRET)
        assert noisy.mean_loss(["hello hello"]) > once.mean_loss(["hello hello"])


def test_adapters_alone_are_trained(tmp_path, small, one_thread):
    from coalmine.models.transformer import save_weights

    flat = small.model.flat()
    flat.put(small.parameters)
    save_weights(flat.module, tmp_path / "base.safetensors", {})
    sizes = {"context": 16, "width": 16, "heads": 2, "layers": 1, "vocabulary": len(small.vocabulary)}
    model = gpt(**sizes, lora_rank=2, initial=str(tmp_path / "base.safetensors"))
    assert model.dim == 2 * (16 + 48) + 2 * (16 + 16)
    adapted = LanguageModel(model, small.vocabulary, 16, model.initial(0))
    assert adapted.log_likelihoods(["hello"]) == pytest.approx(small.log_likelihoods(["hello"]), rel=1e-6)
    tuned = adapted.fine_tuned([["hello hello"] * 8], Tuning(5e-2, 4, 20), SECRET)
    assert tuned.mean_loss(["hello hello"]) < small.mean_loss(["hello hello"])


def test_exposure_of_a_known_and_of_unknown_secrets():
    made = make_secrets(1025, SECRET)
    assert len(set(made)) == 1025 and made[0].startswith("My SSN is ")
    likely = dict(zip(made, stream(0, "ranks").permutation(1025).astype(float), strict=True))
    likely[made[0]] = 1e9
    (best,) = exposures(made[:1], made[1:], lambda texts: np.array([likely[text] for text in texts]))
    assert best == pytest.approx(np.log2(1025))
    found = exposures(made[:200], made[200:], lambda texts: np.array([hash_of(text) for text in texts]))
    assert np.mean(np.array(found) > 3) < 0.125 + 5 * (0.125 * 0.875 / 200) ** 0.5


def hash_of(text):
    return float(stream(0, text).random())


def test_a_page_shows_rankings_and_no_normality(tmp_path):
    from coalmine.audit.conclude import make_page
    from coalmine.audit.statements import audit_scores
    from coalmine.contracts import plain

    rng = np.random.default_rng(3)
    targets = [attacks.Target(f"u{place}", ("x",), (f"text {place}",), 16 * (place % 2)) for place in range(40)]
    inserted = rng.random(40) < 0.5
    tuned = {target.attack[0]: float(rng.normal() + joins) for target, joins in zip(targets, inserted, strict=True)}
    found = attacks.attack(targets, inserted, look_up(tuned), look_up(dict.fromkeys(tuned, 0.0)))
    result = replace(audit_scores(found.scores, delta=1e-5), rankings=tuple(plain(each) for each in found.rankings))
    page = make_page(tmp_path, result, [found.scores]).decode()
    assert "How well are users ranked?" in page and "Can users be told apart?" in page
    assert "canary users, 16 shared characters" in page.replace("\n16", ", 16") and "Are the scores normal?" not in page
    without = make_page(tmp_path, replace(result, rankings=()), [found.scores]).decode()
    assert "How well are users ranked?" not in without and "Are the scores normal?" in without


def test_canary_users_do_not_attack_with_their_training_texts():
    """A chat repeats itself: equal texts of a source are taken once, whatever their white space."""
    made = attacks.canary_users(
        {"a": ["hi", "hi ", "yo", "hi", "so", "no"]}, count=2, shared=(4,), attack_texts=2, most=9, secret=SECRET
    )
    for target in made:
        assert len(target.attack) == 2 and len(target.training) == 2
        assert not {attacks.fold(text) for text in target.attack} & {attacks.fold(text) for text in target.training}


def test_hashed_counts_are_those_of_the_n_gram_model():
    """As long as no two contexts share a bucket the tables give the same likelihoods, but for the size of the alphabet."""
    texts = ["abab", "abba", "b a\nb", "é"]
    tables, plain = NoisyCounts(3), NGram(3)
    tables.add(texts)
    plain.add(texts)
    for size, contexts in enumerate([[""], ["a", "b"], ["ab", "ba"]]):
        for context in contexts:
            cells, _ = tables._cells([context + "a"])
            found = tables.tables[size].ravel()[cells[size][len(context)]]
            assert found == plain.after[context]["a"]
    both = tables.log_likelihoods(["ab", "zz zz"])
    assert both.shape == (2,) and both[0] > both[1] and tables.log_likelihoods(["ab"])[0] == both[0]
    everything = [chr(code) for code in (10, *range(32, 127), 233)]  # each next character, then the end of the text
    chances = [np.exp(tables.log_likelihoods(["ab" + each])[0] - end(tables, "ab" + each)) for each in everything]
    stop = np.exp(tables.log_likelihoods(["ab"])[0])
    start = np.exp(sum(np.log(chance_at(tables, "ab", place)) for place in range(2)))
    assert sum(chances) + stop == pytest.approx(start * (1 - chance_of_start(tables)), rel=1e-9)


def chance_at(model, text, place):
    """p of the character at a place, after those before it."""
    cells, _ = model._cells([text])
    chance = 1 / 99
    for table, each in zip(model.tables, cells, strict=True):
        row = table[each[place] // 99]
        if row.sum():
            chance = (row[each[place] % 99] + (row > 0).sum() * chance) / (row.sum() + (row > 0).sum())
    return chance


def end(model, text):
    return np.log(chance_at(model, text, len(text)))


def chance_of_start(model):
    """p that the mark of a start follows "ab", which no text has."""
    chance = 1 / 99
    cells, _ = model._cells(["ab"])
    for table, each in zip(model.tables, cells, strict=True):
        row = table[each[2] // 99]
        if row.sum():
            chance = (row > 0).sum() * chance / (row.sum() + (row > 0).sum())
    return chance


def test_a_user_moves_the_private_tables_by_what_the_claim_says():
    """Neighbouring users differ by one: in units of the noise the tables move by at most 1 / noise multiplier."""
    users, extra = [["hello you", "well"], ["so so so so"]], ["hello " * 20, "x"]
    clip, noise = np.array([3.0, 2.0, 1.0]), 2.0
    without, with_one = NoisyCounts(3), NoisyCounts(3)
    without.add_privately(users, clip, 0.0, SECRET)
    with_one.add_privately([*users, extra], clip, 0.0, SECRET)
    moved = [np.linalg.norm(two - one) for one, two in zip(without.tables, with_one.tables, strict=True)]
    assert np.all(np.array(moved) <= clip + 1e-9) and moved[0] == pytest.approx(3.0)
    scaled = np.linalg.norm(np.array(moved) / (noise * 3**0.5 * clip))
    assert scaled <= 1 / noise + 1e-12
    noisy = NoisyCounts(3)
    noisy.add_privately([], clip, noise, SECRET)
    assert all(np.count_nonzero(table) <= 2 for table in noisy.tables)  # noise alone passes hardly ever
