"""Secure aggregation without noise on MNIST: epsilon of single records by the number of users and of pixels.

Gaussian weights, one round, a record against none, exact by its leverage; Theorem 2 beside it.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from coalmine.accounting.gaussian_sampling import claim_gaussian_sampling, record_epsilon
from coalmine.contracts import Array
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, number
from coalmine.papers.secure_aggregation.mnist import Users, users_of

BATCH, EXAMPLES, CLIP, DELTA = 32, 1200, 10.0, 1e-4


def reproduce(ask: Ask) -> PaperResult:
    """Largest and median epsilon of one user's records, and whether Theorem 2 says anything."""
    sides, counts = ask.pick(full=(2, 4, 7), quick=(2, 4)), ask.pick(full=(1, 5, 10, 20, 50), quick=(1, 5, 20))
    rows, checks, details = [], [], {}
    for side in sides:
        users = users_of(ask, users=max(counts), examples=EXAMPLES, side=side)
        medians = []
        for count in counts:
            found = np.asarray(record_epsilon(_leverages(users, count), BATCH, EXAMPLES, DELTA))
            theorem = _theorem(users, count)
            medians.append(float(np.median(found)))
            details[f"{users.dim}-{count}"] = [float(value) if math.isfinite(value) else "inf" for value in found]
            rows.append(PaperRow(
                f"K = {users.dim}, {count} users, largest epsilon of a record", "falls with users", float(found.max()),
                note=f"median {number(medians[-1])}; {int(np.isinf(found).sum())} of {EXAMPLES} infinite; "
                f"Theorem 2: {number(theorem)}", place={"dim": users.dim, "users": count},
            ))  # fmt: skip
            checks.append(PaperCheck(f"K = {users.dim}, {count} users: Theorem 2 does not apply", math.isinf(theorem)))
        falls = all(after < before for before, after in itertools.pairwise(medians))
        checks.append(PaperCheck(f"K = {users.dim}: the median epsilon falls with the number of users", falls))
    return PaperResult(
        "secagg-users",
        "Secure aggregation without noise, softmax regression on pooled MNIST: epsilon of single records",
        tuple(rows),
        checks=tuple(checks),
        notes=(
            "Largest over the 1,200 records of one user; the model before its first round. Valid for these data only.",
            "Infinite: the record is outside the span of all others (Theorem 1).",
        ),
        about=ask.about(delta=DELTA, batch=BATCH, examples=EXAMPLES, clip_norm=CLIP),
        details={"epsilons": details},
        figure=lambda: _figure(found),
    )


def _figure(epsilons: Array) -> Any:
    from coalmine.report.spectrum import epsilons_of_records

    return epsilons_of_records([float(value) for value in epsilons])


def _leverages(users: Users, count: int) -> Array:
    """Of the first user's records among those of `count` users: by a QR decomposition user by user."""
    core = np.zeros((0, users.dim))
    for user in range(count):
        stacked = np.vstack([core, users.gradients(user, users.started, CLIP)])
        core = np.asarray(np.linalg.qr(stacked, mode="r"))
    _, values, right = np.linalg.svd(core, full_matrices=False)
    kept = values > 1e-13 * count * EXAMPLES * values[0]
    inner = users.gradients(0, users.started, CLIP) @ right[kept].T / values[kept]
    return np.asarray(np.minimum(np.einsum("ij,ij->i", inner, inner), 1.0))


def _theorem(users: Users, count: int) -> float:
    least = 0.0
    for user in range(count):
        rows = users.gradients(user, users.started, CLIP)
        least += max(float(np.linalg.eigvalsh(rows.T @ rows / EXAMPLES)[0]), 0.0)
    return claim_gaussian_sampling(
        least_eigenvalue=least, examples=EXAMPLES, batch=BATCH, clip_norm=CLIP, delta=DELTA
    ).epsilon  # fmt: skip
