"""User inference: was a user's data used in fine-tuning? (Kandpal et al. 2024, "User Inference Attacks on LLMs").

    symbol    here              meaning
    x_i       attack texts      m texts of a user that the adversary has; none of them was trained on
    p, p_ref  fine-tuned, reference model, the reference trained without any target user
    T_u       `statistic`       (1/m) Sum_i [log p(x_i) - log p_ref(x_i)], each log p a sum over the tokens of the text

The game: texts of a user are cut into a training part and m attack texts before anything else; then each user joins by a fair
coin of its own, from the secret. Padding does not count, bos is not predicted, eos is. The ranking has the user as unit. The
coins also make it an audit in one run: `Scores` with assignment "coins", for `bound_one_run` with guesses that were fixed
beforehand. A ranking is never turned into an epsilon.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from coalmine import _validate
from coalmine._random import stream
from coalmine.contracts import Array, Game, Ranking, Streams
from coalmine.errors import AuditError
from coalmine.estimators.ranking import estimate_auroc
from coalmine.scores import Scores

STATISTICS = ("log ratio", "log ratio per token")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
LogLikelihood = Callable[[Sequence[str]], Array]  # of texts, each a sum over its tokens


@dataclass(frozen=True)
class Target:
    """A user who may or may not take part: training texts, attack texts, and for canary users the length of their string."""

    user: str
    training: tuple[str, ...]
    attack: tuple[str, ...]
    shared: int = 0  # characters that all texts of a canary user begin with; 0: a real user


@dataclass(frozen=True)
class Targets:
    """Targets, and how many texts were left out on the way."""

    targets: tuple[Target, ...]
    repeated: int = 0  # attack texts that also occur in the user's training part
    duplicates: int = 0  # of deduplication within users


def fold(text: str) -> str:
    """A text with every run of white space as one space, as deduplication compares them."""
    return " ".join(text.split())


def _different(texts: Sequence[str]) -> list[str]:
    """The first of equal texts, in their order."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(fold(text), text)
    return list(found.values())


def split_texts(
    texts: Mapping[str, Sequence[str]], *, attack_texts: int, cap: int | None = None, dedup: bool = False, seed: int = 0
) -> Targets:
    """Training part and `attack_texts` attack texts of every user, before any coin; users with too few texts are left out.

    An attack text that also occurs in the user's own training part would measure that the model knows the text: it is left out
    and counted. With `dedup` equal texts of a user are kept once, the first of them.
    """
    count = _validate.whole("attack_texts", attack_texts, least=1)
    most = None if cap is None else _validate.whole("cap", cap, least=1)
    targets, repeated, duplicates = [], 0, 0
    for user in sorted(texts):
        own = list(texts[user])
        if dedup:
            kept = _different(own)
            duplicates, own = duplicates + len(own) - len(kept), kept
        order = stream(seed, "attack texts", user).permutation(len(own)).tolist()
        attack = [own[place] for place in order[:count]]
        training = [own[place] for place in sorted(order[count:])][:most]
        known = {fold(text) for text in training}
        fresh = [text for text in attack if fold(text) not in known]
        repeated += len(attack) - len(fresh)
        if training and len(fresh) == count:  # T_u of users with other m is not comparable
            targets.append(Target(user, tuple(training), tuple(fresh)))
    return Targets(tuple(targets), repeated, duplicates)


def canary_users(
    texts: Mapping[str, Sequence[str]], *, count: int, shared: Sequence[int], attack_texts: int, most: int, secret: Streams
) -> tuple[Target, ...]:
    """Users made of other users' texts, each text with the same random characters in front, another string for each user.

    What the model can only have learned from this user is the string; `shared` has the lengths, taken in turn. Equal texts are
    taken once, so that no attack text is a training text.
    """
    different = {user: _different(own) for user, own in texts.items()}
    sources = [user for user in sorted(different) if len(different[user]) >= attack_texts + 1]
    if not sources:
        raise AuditError(f"no reference user has {attack_texts + 1} different texts to make canary users of.")
    made = []
    for number in range(count):
        rng, size = secret("canary user", number), int(shared[number % len(shared)])
        string = "".join(_LETTERS[place] for place in rng.integers(0, len(_LETTERS), size))
        own = [string + " " + text for text in different[sources[number % len(sources)]]][: attack_texts + most]
        made.append(Target(f"canary user {number:04d}", tuple(own[attack_texts:]), tuple(own[:attack_texts]), size))
    return tuple(made)


def throw_coins(targets: Sequence[Target], secret: Streams) -> NDArray[np.bool_]:
    """A fair coin for every user: who joins."""
    return np.array([secret("user coins", target.user).random() < 0.5 for target in targets])


def check_reference(reference: Sequence[str], targets: Sequence[Target]) -> None:
    """Refuse a reference model that was trained on users who may be targets."""
    known = {hashed(user) for user in reference}
    if met := [target.user for target in targets if hashed(target.user) in known]:
        raise AuditError(f"the reference model was trained on {len(met)} target users ({met[0]!r}): take others for it.")


def hashed(user: str) -> str:
    """A user's id as a file may name it."""
    return hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()


def log_ratios(
    targets: Sequence[Target], tuned: LogLikelihood, reference: LogLikelihood, *, kind: str = "log ratio"
) -> list[Array]:
    """For every target, log p_tuned - log p_reference of each attack text: the sum over its tokens, or their mean."""
    _validate.one_of("statistic", kind, STATISTICS)
    flat = [text for target in targets for text in target.attack]
    ratios = tuned(flat) - reference(flat)
    if kind == "log ratio per token":
        ratios = ratios / np.array([len(text) + 1 for text in flat])
    return np.split(ratios, np.cumsum([len(target.attack) for target in targets])[:-1])


def statistic(
    targets: Sequence[Target],
    tuned: LogLikelihood,
    reference: LogLikelihood,
    *,
    kind: str = "log ratio",
    texts: int | None = None,
) -> Array:
    """T_u of every target, from its first `texts` attack texts (None: all)."""
    some = [replace(target, attack=target.attack[:texts]) for target in targets]
    return np.array([own.mean() for own in log_ratios(some, tuned, reference, kind=kind)])


@dataclass(frozen=True)
class Inferred:
    """What the attack found: scores of all users, and rankings of real users and of canary users."""

    scores: Scores
    rankings: tuple[Ranking, ...]
    by_texts: Mapping[int, float] = field(default_factory=dict)  # AUROC of real users by number of attack texts


def group_label(shared: int) -> str:
    """What a ranking of users is called: real ones, or canary users by the length of their string."""
    return f"canary users, {shared} shared characters" if shared else "real users"


def attack(
    targets: Sequence[Target],
    inserted: NDArray[np.bool_],
    tuned: LogLikelihood,
    reference: LogLikelihood,
    *,
    kind: str = "log ratio",
    confidence: float = 0.95,
    game: Game | None = None,
) -> Inferred:
    """Scores and rankings of all targets; `inserted` says who joined by coins."""
    ratios = log_ratios(targets, tuned, reference, kind=kind)
    value = np.array([own.mean() for own in ratios])
    shared = np.array([target.shared for target in targets])
    rankings = []
    for size in sorted(set(shared.tolist())):
        mine = shared == size
        if (mine & inserted).any() and (mine & ~inserted).any():
            rankings.append(
                estimate_auroc(value[mine & inserted], value[mine & ~inserted], confidence, label=group_label(size))
            )
    real = [place for place, target in enumerate(targets) if not target.shared]
    by_texts = {}
    if real and inserted[real].any() and not inserted[real].all():
        most = len(targets[real[0]].attack)
        for texts in [each for each in (1, 2, 5, 10, 20, 50) if each <= most]:
            some = np.array([ratios[place][:texts].mean() for place in real])
            by_texts[texts] = estimate_auroc(some[inserted[real]], some[~inserted[real]]).auroc
    scores = Scores(
        value,
        inserted,
        labels={"group": shared},
        assignment="coins",
        statistic=kind,
        view="final-model",
        game=game or Game("client", "add-or-remove-one"),
    )
    return Inferred(scores, tuple(rankings), by_texts)
