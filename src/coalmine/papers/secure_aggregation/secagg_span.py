"""Secure aggregation alone against a stated claim: canaries outside the span of all gradients (Theorem 1).

Canaries are records whose gradient lies in coordinates that no image uses: pixels that are 0 in all of MNIST. The score is
|<c, x>|, since the sign of a Gaussian weight is random. Secure aggregation has no claim of its own; the audit is against
epsilon = 1 at delta = 1e-4.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from coalmine._random import stream
from coalmine.accounting.gaussian_sampling import batch_delta
from coalmine.accounting.water_filling import example_game
from coalmine.audit.statements import audit_scores
from coalmine.contracts import Claim
from coalmine.mechanisms import BatchGradient, WaterFilling
from coalmine.mechanisms.spectrum import leverages, outside_span
from coalmine.nulls import GaussianNull
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart
from coalmine.papers.secure_aggregation.mnist import CLASSES, users_of
from coalmine.result import AuditResult
from coalmine.scores import Scores

USERS, EXAMPLES, BATCH, CLIP, DELTA, SEEDS = 50, 1200, 32, 10.0, 1e-4, 20
STATED = Claim(1.0, DELTA, "stated", game=example_game("zero-out", 1))
POOL = 400
ROUNDING = 1e-8  # of what is there without a canary: nothing but that


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
        violated = sum(all(_violated(result) for result in both) for both in found)
        held_out, law = (min(both[place].bound.epsilon for both in found) for place in (0, 1))
        rows.append(PaperRow(
            f"{weights} weights, {rounds} rounds: VIOLATED in {SEEDS} seeds", "no DP", float(violated),
            verdict="same shape" if violated == SEEDS else "differs",
            note=f"bounds from {held_out:.3g} by held-out scores, and by the law of rounding {_large(law)}",
            place={"weights": weights},
        ))  # fmt: skip
        checks.append(PaperCheck(f"{weights} weights: VIOLATED in every one of {SEEDS} seeds", violated == SEEDS))
    rows.append(PaperRow("pixels that no image uses", "–", float(dead.size), note=f"{places} coordinates of the model"))
    rows.append(PaperRow("delta of one batch without noise, at every epsilon", "B/D", batch_delta(BATCH, EXAMPLES)))
    return ResultPart(rows, checks, ("Audited against a stated claim of epsilon = 1 at delta = 1e-4.",),
                      ask.about(users=USERS, examples=EXAMPLES, batch=BATCH, canaries=POOL, delta=DELTA))  # fmt: skip


def _audited(weights: str, rounds: int, places: int, seed: int) -> tuple[AuditResult, AuditResult]:
    """One training: what canaries in coordinates of their own show in the sum, by held-out scores and by the law of rounding.

    Every user has some canaries among its records. All other records of all users are zero in these coordinates, whatever the
    model is, so that the mechanism needs to see nothing of them.
    """
    rng = stream(seed, "outside the span", weights)
    chosen = min(POOL, places)
    coins = rng.random(chosen) < 0.5
    make: Any = partial(WaterFilling, separate=True) if weights == "gaussian" else BatchGradient
    mechanism = make(CLIP, 0.0, EXAMPLES, USERS, batch=BATCH)
    public, seen = mechanism.announce({}, 0, float(USERS)), np.zeros(chosen)
    for number in range(rounds):
        for user in range(USERS):
            own = slice(user, chosen, USERS)  # coordinates, and canaries
            records = np.diag(np.where(coins[own], CLIP, 0.0))
            secret = partial(stream, seed, "user", weights, number, user)
            sent = mechanism.client(records[0], public, EXAMPLES, own=records, secret=secret).vector
            seen[own] = np.maximum(seen[own], np.abs(sent))
    laws = (None, GaussianNull(ROUNDING, slack=math.log(2)))
    tables = [
        Scores(seen, coins, assignment="coins", null=law, statistic="size of a projection",
               view="the sum, all data and models known", game=STATED.game)
        for law in laws
    ]  # fmt: skip
    by_held_out, by_law = (audit_scores(table, delta=DELTA, claim=STATED, method="band") for table in tables)
    return by_held_out, by_law


def _large(epsilon: float) -> str:
    return "above a million" if epsilon > 1e6 else f"from {epsilon:.3g}"


def _violated(result: AuditResult) -> bool:
    return result.verdict is not None and result.verdict.word == "VIOLATED"


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
