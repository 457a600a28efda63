"""Secure aggregation alone against a stated claim: canaries outside the span of all gradients (Theorem 1).

Canaries are records whose gradient lies in coordinates that no image uses: pixels that are 0 in all of MNIST. The score is
|<c, x>|, since the sign of a Gaussian weight is random. Secure aggregation has no claim of its own; the audit is against
epsilon = 1 at delta = 1e-4.
"""

from __future__ import annotations

import math

import numpy as np

from coalmine._random import stream
from coalmine.accounting.gaussian_sampling import batch_delta
from coalmine.accounting.water_filling import example_game
from coalmine.audit.statements import audit_scores
from coalmine.contracts import Claim
from coalmine.mechanisms.spectrum import leverages, outside_span
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart
from coalmine.papers.secure_aggregation.mnist import CLASSES, users_of
from coalmine.scores import Scores

USERS, EXAMPLES, BATCH, CLIP, DELTA, SEEDS = 50, 1200, 32, 10.0, 1e-4, 20
STATED = Claim(1.0, DELTA, "stated", game=example_game("zero-out", 1))
POOL = 400


def reproduce(ask: Ask) -> PaperResult:
    """MNIST by both kinds of weights, and the counterexample of Figure 3."""
    return PaperResult.of(
        ask.named("secagg-span"),
        "Theorem 1: secure aggregation without noise, canaries outside the span of all gradients",
        ask.parts(mnist=_mnist, counterexample=_counterexample),
    )


def _mnist(ask: Ask) -> ResultPart:
    users = users_of(ask, users=USERS, examples=EXAMPLES, side=None)
    dead = np.flatnonzero(~users.features.any(axis=(0, 1)))
    places = dead.size * (CLASSES - 1)
    rows, checks = [], []
    for weights, rounds in (("gaussian", 1), ("batch", 100)):
        found = [_audited(weights, rounds, places, ask.seed * 1000 + seed) for seed in range(SEEDS)]
        violated = sum(word == "VIOLATED" for word, _ in found)
        rows.append(PaperRow(
            f"{weights} weights, {rounds} rounds: VIOLATED in {SEEDS} seeds", "no DP", float(violated),
            verdict="same shape" if violated == SEEDS else "differs",
            note=f"bounds from {min(bound for _, bound in found):.3g}", place={"weights": weights},
        ))  # fmt: skip
        checks.append(PaperCheck(f"{weights} weights: VIOLATED in every one of {SEEDS} seeds", violated == SEEDS))
    rows.append(PaperRow("pixels that no image uses", "–", float(dead.size), note=f"{places} coordinates of the model"))
    rows.append(PaperRow("delta of one batch without noise, at every epsilon", "B/D", batch_delta(BATCH, EXAMPLES)))
    return ResultPart(rows, checks, ("Audited against a stated claim of epsilon = 1 at delta = 1e-4.",),
                      ask.about(users=USERS, examples=EXAMPLES, batch=BATCH, canaries=POOL, delta=DELTA))  # fmt: skip


def _audited(weights: str, rounds: int, places: int, seed: int) -> tuple[str, float]:
    """One sum of all users over so many rounds, seen in the coordinates that only canaries use."""
    rng = stream(seed, "outside the span", weights)
    chosen = min(POOL, places)
    coins = rng.random(chosen) < 0.5
    seen = np.zeros(chosen)
    for _ in range(rounds):
        if weights == "gaussian":
            drawn = 1 / EXAMPLES + rng.standard_normal(chosen) / math.sqrt(BATCH * EXAMPLES)
        else:
            drawn = (rng.random(chosen) < BATCH / EXAMPLES) / BATCH
        seen = np.maximum(seen, np.abs(np.where(coins, CLIP * drawn, 0.0)))  # of all others nothing is there
    table = Scores(seen, coins, assignment="coins", statistic="size of a projection",
                   view="the sum, all data and models known", game=STATED.game)  # fmt: skip
    found = audit_scores(table, delta=DELTA, claim=STATED, method="band")
    return (found.verdict.word if found.verdict else ""), found.bound.epsilon


def _counterexample(ask: Ask) -> ResultPart:
    """Figure 3: four users, of whom three have zeros in the last quarter of their updates."""
    rng = stream(ask.seed, "counterexample")
    gradients = rng.standard_normal((4 * 20, 40))
    gradients[: 3 * 20, 30:] = 0.0
    others, mine = gradients[:60], gradients[60:]
    outside = np.asarray(outside_span(others, mine))
    found = leverages(gradients)
    rows = [
        PaperRow("records of user 4 outside the span of users 1 to 3", "all", float(outside.sum()),
                 verdict="same shape" if outside.all() else "differs", note=f"of {len(mine)}"),
        PaperRow("leverage of user 4, mean, over that of the others", "–", float(found[60:].mean() / found[:60].mean())),
    ]  # fmt: skip
    return ResultPart(rows, [PaperCheck("every record of user 4 is outside the others' span", bool(outside.all()))])
