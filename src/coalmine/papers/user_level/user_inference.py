"""User inference (Kandpal et al. 2024): who was in the fine-tuning, by users, texts and phrases, and what helps against it.

    users         AUROC by the number of users who join: n-gram model of characters, chats
    texts         AUROC by texts of a user and attack texts: the same
    phrases       canary users with a shared string, by its length and by epochs: small transformer
    mitigations   cap, deduplication, DP for examples and for users: a model of counts that learns with DP
    transformer   the same and early stopping with the small transformer, which hardly learns with DP
    secrets       exposure of secrets that users repeat, with and without DP: the model of counts

The paper fine-tunes GPT-Neo on Enron, CC News and Reddit; no such model can be had here, and the chats are other data. Its
numbers stand beside ours as shapes, never as equals. An AUROC is never turned into an epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from coalmine import data
from coalmine._random import stream
from coalmine.attacks import user_inference as attacks
from coalmine.attacks.ngram import NGram
from coalmine.estimators.ranking import estimate_auroc
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart
from coalmine.papers.user_level.lifted import drawer
from coalmine.papers.user_level.mitigations import draw_exposure, draw_losses, mitigations, secrets
from coalmine.papers.user_level.phrases import phrases, transformer

ATTACK_TEXTS = (1, 3, 10)
REFERENCE_USERS = 60


def reproduce(ask: Ask) -> PaperResult:
    """All parts, or the one that is asked for."""
    parts = ask.parts(
        users=users, texts=texts, phrases=phrases, mitigations=mitigations, transformer=transformer, secrets=secrets
    )
    title = "User inference on chats: AUROC of telling who was in the fine-tuning"
    if ask.part == "secrets":
        title = "Exposure of secrets that users repeat, by number of times and by protection"
    found = PaperResult.of(ask.named("user-inference"), title, parts, error="standard error over seeds")
    figures: dict[str, Callable[[Any], Callable[[], Any]]] = {
        "mitigations": draw_losses,
        "secrets": draw_exposure,
        "users": partial(drawer, "by_texts"),
        "texts": partial(drawer, "by_texts"),
        "phrases": partial(drawer, "by_string"),
    }
    return replace(found, figure=figures[ask.part](found.rows)) if ask.part in figures else found


def users(ask: Ask) -> ResultPart:
    """By the number of users who join."""
    return _table(ask, [(20, 30), (80, 30)] if not ask.full else [(20, 30), (80, 30), (150, 30)], "users")


def texts(ask: Ask) -> ResultPart:
    """By the number of training texts of a user."""
    return _table(ask, [(20, 30), (20, 200)] if not ask.full else [(20, 10), (20, 30), (20, 200)], "texts")


def _table(ask: Ask, sizes: list[tuple[int, int]], part: str) -> ResultPart:
    seeds = ask.repeat(full=20, quick=4)
    jobs = [(count, most, ask.seed * 1000 + seed) for count, most in sizes for seed in range(seeds)]
    found = np.array(ask.each(rank_users, jobs, f"user inference, {part}")).reshape(len(sizes), seeds, len(ATTACK_TEXTS))
    rows = []
    for (count, most), block in zip(sizes, found, strict=True):
        for column, m in enumerate(ATTACK_TEXTS):
            own, where = block[:, column], {"users": count, "texts": most, "m": m}
            error = float(own.std(ddof=1) / math.sqrt(seeds))
            rows.append(
                PaperRow(f"{count} users, at most {most} texts, m = {m}", "", float(own.mean()), error, None, "", where)
            )
    chosen = -1 if part == "texts" else 0  # where the most is expected, chosen before any run
    gain = found[chosen, :, 2] - found[chosen, :, 0]
    error = float(gain.std(ddof=1) / math.sqrt(seeds))
    check = PaperCheck(
        f"{sizes[chosen][0]} users, {sizes[chosen][1]} texts: ten attack texts rank better than one, AUROC "
        f"{gain.mean():+.3f} ± {error:.3f}",
        bool(gain.mean() > 2 * error),
    )
    note = "Character n-grams of order 6 with Witten–Bell smoothing; half of the users join, by coins."
    return ResultPart(rows, (check,), notes=(note,), about=ask.about(seeds=seeds))


@lru_cache(maxsize=1)
def _chats() -> Any:
    return data.read("chat").at_least(max(ATTACK_TEXTS) + 10)


def rank_users(job: tuple[int, int, int]) -> tuple[float, ...]:
    """AUROC by number of attack texts for one seed: about `count` users join, with at most `most` texts."""
    count, most, seed = job
    source = _chats()
    order = stream(seed, "users of user inference").permutation(len(source))
    chosen = [source.users[place] for place in order[: REFERENCE_USERS + 2 * count]]
    reference = NGram()
    for user in chosen[:REFERENCE_USERS]:
        reference.add(source.texts_of(user)[:100])
    own = {user: source.texts_of(user) for user in chosen[REFERENCE_USERS:]}
    split = attacks.split_texts(own, attack_texts=max(ATTACK_TEXTS), cap=most, seed=seed)
    inserted = attacks.throw_coins(split.targets, partial(stream, seed))
    joined = [text for target, joins in zip(split.targets, inserted, strict=True) if joins for text in target.training]
    tuned = reference.with_texts(joined)
    ratios, found = attacks.log_ratios(split.targets, tuned.log_likelihoods, reference.log_likelihoods), []
    for m in ATTACK_TEXTS:
        value = np.array([own[:m].mean() for own in ratios])
        found.append(estimate_auroc(value[inserted], value[~inserted]).auroc)
    return tuple(found)
