"""The audit of single records, for bugs of noise under secure aggregation: what decides about the setting `records`.

The setting is small and synthetic: 16 users of 12 records in 24 dimensions, whose gradients share one strong direction
across both halves of the coordinates. One record of the first user is +C c or -C c by a coin, over-long; the auditor knows
everything else, subtracts the known mean and looks along c. Every number comes out of the mechanism's own `client`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from coalmine._random import stream
from coalmine.accounting import claim_of
from coalmine.accounting.water_filling import example_game
from coalmine.audit.statements import audit_scores
from coalmine.contracts import Array, Claim
from coalmine.mechanisms import WaterFilling
from coalmine.participation import Once
from coalmine.result import AuditResult
from coalmine.scores import Scores
from coalmine.zoo.bug import Bug

USERS, EXAMPLES, BATCH, DIM, CLIP, FLOOR, DELTA = 16, 12, 4, 24, 1.0, 0.087, 1e-4
RUNS = 1500  # each with one canary
ACROSS = np.zeros(DIM)
ACROSS[[0, DIM // 2]] = 1 / math.sqrt(2), -1 / math.sqrt(2)  # what all gradients share
WITHIN = np.abs(ACROSS)  # orthogonal to it, in the same two coordinates
LONE = np.eye(DIM)[DIM - 1]  # a coordinate that nobody uses


@dataclass(frozen=True, eq=False)
class Probe:
    """Where an auditor who knows the covariance looks, and the bound that decides; both are fixed before any run."""

    direction: Array
    absolute: bool = False  # the weight's sign is random: look at sizes
    method: str = "band"  # "gdp" where right code has two normal laws of one variance


PROBES = {
    "blocked-shared-weights": Probe(WITHIN),
    "wf-on-full-gradient": Probe(-ACROSS),
    "iid-weights": Probe(-ACROSS),
    "floor-as-total": Probe(WITHIN, method="gdp"),
    "clip-after-weights": Probe(WITHIN, method="gdp"),
    "centred-covariance": Probe(WITHIN),
    "inconsistent-models": Probe(LONE, absolute=True),
}


def correct() -> WaterFilling:
    """The mechanism without a bug."""
    return WaterFilling(CLIP, FLOOR, EXAMPLES, USERS, BATCH)


def record_claim() -> Claim:
    """What is claimed for one record that is replaced, in one round."""
    claim = claim_of(correct().describe(), Once(), delta=DELTA, relation="replace-one", unit="example")
    return replace(claim, game=example_game("replace-one", 1))


def audit_record(bug: Bug | None, seed: int, method: str = "gdp") -> AuditResult:
    """Many releases with one canary each, by a coin, and what they prove against the claim; `method` without a bug."""
    probe = PROBES[bug.name] if bug is not None else Probe(WITHIN, method=method)
    direction, method = probe.direction, probe.method
    kind: Any = WaterFilling if bug is None else bug.kind
    mechanism: WaterFilling = kind(CLIP, FLOOR, EXAMPLES, USERS, BATCH)
    size = abs if probe.absolute else float
    rng = stream(seed, "coins of records")
    coins = rng.random(RUNS) < 0.5
    values = [_score(mechanism, direction, bool(coin), seed, run, size) for run, coin in enumerate(coins)]
    scores = Scores(np.array(values), coins, assignment="coins", view="the sum, all data and models known",
                    game=example_game("replace-one", 1))  # fmt: skip
    return audit_scores(scores, delta=DELTA, claim=record_claim(), method=method)


def _score(
    mechanism: WaterFilling, direction: Array, inserted: bool, seed: int, run: int, size: Callable[[float], float]
) -> float:
    """The sum of all users along the canary's direction, the known mean of all other records subtracted."""
    public, total, known = mechanism.announce({}, 0, float(USERS)), 0.0, 0.0
    for user in range(USERS):
        rows = _records(user)
        if user == 0:
            rows = rows.copy()
            rows[0] = (100.0 if inserted else -100.0) * direction
            if size is abs and not inserted:
                rows[0] = 0.0
        own = mechanism.client(rows[0], public, EXAMPLES, own=rows, secret=partial(stream, seed, "record", run, user))
        total += float(own.vector @ direction)
        known += float(np.clip(_records(user)[user == 0 :] @ direction, -CLIP, CLIP).sum()) / EXAMPLES
    return size(total - known)


@cache
def _records(user: int) -> Array:
    """Gradients of norm below C: the shared direction, and a little of everything but the lone coordinate."""
    rng = stream(0, "records of the zoo", user)
    rows = 0.95 * ACROSS + 0.02 * rng.standard_normal((EXAMPLES, DIM))
    rows[:, DIM - 1] = 0.0
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), CLIP))
