"""Block-wise decomposition with shared weights: the least noise of the sum, and the epsilon of its worst pair.

Section 5 of the paper decomposes blocks of coordinates separately "without affecting the bound". With one weight per
example for all blocks the covariance between blocks stays, and the least eigenvalue falls below the floor.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from coalmine.gaussian import gaussian_epsilon
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow
from coalmine.papers.secure_aggregation.aimed import lifted
from coalmine.papers.secure_aggregation.mnist import users_of

USERS, EXAMPLES, BATCH, CLIP, FLOOR, ROUNDS, DELTA, BLOCKS = 50, 1200, 32, 2.0, 1 / 120_000, 100, 1e-4, (1, 3, 9, 45)


def reproduce(ask: Ask) -> PaperResult:
    """By the number of blocks."""
    users = users_of(ask, users=USERS, examples=EXAMPLES, side=7)
    totals = {blocks: np.zeros((users.dim, users.dim)) for blocks in BLOCKS}
    for user in range(USERS):
        rows = users.gradients(user, users.started, CLIP)
        covariance = rows.T @ rows / (BATCH * EXAMPLES)
        for blocks in BLOCKS:
            totals[blocks] += covariance
            ends = np.linspace(0, users.dim, blocks + 1).astype(int)
            for start, stop in itertools.pairwise(ends):
                part = covariance[start:stop, start:stop]
                totals[blocks][start:stop, start:stop] += lifted(part, FLOOR) - part
    rows_out, found = [], []
    for blocks, total in totals.items():
        least = float(np.linalg.eigvalsh(total)[0])
        gap = 2 * CLIP / EXAMPLES * math.sqrt(ROUNDS / least)
        found.append(least / (USERS * FLOOR))
        rows_out.append(PaperRow(
            f"{blocks} blocks, least noise over the floor", "1", found[-1],
            verdict="same shape" if found[-1] > 1 - 1e-6 else "differs",
            note=f"epsilon of the opposite pair there, {ROUNDS} rounds: {float(gaussian_epsilon(0, 1, gap, 1, DELTA)):.4g}",
            place={"blocks": blocks},
        ))  # fmt: skip
    small = np.outer([1.0, -1.0], [1.0, -1.0])
    smallest = float(np.linalg.eigvalsh(small + np.diag(np.maximum(0.5 - np.diag(small), 0.0)))[0])
    rows_out.append(PaperRow("g = (1, -1), floor 0.5, blocks of one coordinate: least noise", "0.5", smallest,
                             verdict="differs" if smallest < 0.5 else "same shape"))  # fmt: skip
    return PaperResult(
        "secagg-blocked",
        "Blocks with shared weights break the guarantee: least noise of the sum over the floor",
        tuple(rows_out),
        checks=(
            PaperCheck("one block has the floor", found[0] > 1 - 1e-6),
            PaperCheck("more blocks have less than half of it", max(found[1:]) < 0.5),
        ),
        notes=("New weights for every block repair it (`WaterFilling(blocks=...)`): the covariance is then block-diagonal.",),
        about=ask.about(users=USERS, examples=EXAMPLES, batch=BATCH, clip_norm=CLIP, floor=FLOOR, rounds=ROUNDS, delta=DELTA),
    )
