"""An audit of water-filling noise: canaries aimed at the least-noise directions, and others beside them.

Softmax on 7 x 7 MNIST (K = 450), 50 users of 1,200 images, 100 rounds at the same model. One record of each user is a canary,
+C c or -C c by a coin. The sum is drawn from its exact law, which `tests` compare with the mechanism's own draws.
"""

from __future__ import annotations

import math

import numpy as np

from coalmine._random import stream
from coalmine.accounting.water_filling import claim_waterfilling
from coalmine.audit.statements import audit_scores
from coalmine.canaries.aimed import aimed_directions
from coalmine.contracts import Array, Claim
from coalmine.estimators.band import bound_band
from coalmine.estimators.gaussian_fit import estimate_gaussian
from coalmine.gaussian import gaussian_epsilon
from coalmine.gaussian_pairs import pair_epsilon
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, number
from coalmine.papers.secure_aggregation.aimed import AimedGame, lifted
from coalmine.papers.secure_aggregation.mnist import Users, users_of
from coalmine.scores import Scores
from coalmine.views.whitened import LikelihoodRatioNull, log_ratios

USERS, EXAMPLES, BATCH, CLIP, FLOOR, ROUNDS, DELTA = 50, 1200, 32, 2.0, 1 / 120_000, 100, 1e-4
AIMS = (("least", "whitened"), ("random", "whitened"), ("random", "plain"), ("top", "whitened"))  # directions, statistic
SEEDS = 20


def reproduce(ask: Ask) -> PaperResult:
    """Estimates beside the epsilon of the canaries' own pairs, and the claims."""
    users = users_of(ask, users=USERS, examples=EXAMPLES, side=7)
    gradients = [users.gradients(user, users.started, CLIP) for user in range(USERS)]
    claims = {formula: _claim(formula) for formula in ("tight", "theorem4")}
    plain = float(gaussian_epsilon(0.0, 1.0, _gap(FLOOR * USERS), 1.0, DELTA))
    rows, checks, found = [], [], {}
    for aim, statistic in AIMS:
        game = _game(users, gradients, aim, ask.seed)
        pairs = [float(gaussian_epsilon(0.0, 1.0, math.sqrt(ROUNDS) * gap, 1.0, DELTA)) for gap in game.gaps(statistic)]
        scores = game.scores(ROUNDS, ask.pick(full=40, quick=40), ask.seed, statistic)
        result = audit_scores(scores, delta=DELTA, claim=claims["tight"])
        estimate = result.estimate
        found[aim, statistic] = (estimate, pairs, result)
        if estimate is None or result.verdict is None:
            continue
        note = (
            f"pairs {number(min(pairs))} to {number(max(pairs))}; interval {number(estimate.low)} to {number(estimate.high)}; "
            f"bound {number(result.bound.epsilon)}; {result.verdict.word}"
        )
        name = f"{aim}, {statistic}"
        rows.append(PaperRow(f"canaries {name}: estimate", "–", estimate.epsilon, note=note, place={"aim": name}))
    rows += [PaperRow(f"claim, {name}", "–", claim.epsilon) for name, claim in claims.items()]
    rows.append(PaperRow("plain noise of the same floor on full gradients", "–", plain))
    rows += _orthogonal(ask)
    aimed, pairs, _ = found[AIMS[0]]
    middle = float(np.median(pairs))
    if aimed is not None:
        checks.append(PaperCheck(
            f"aimed: the interval {aimed.low:.3g} to {aimed.high:.3g} holds the analytic pair, {middle:.4g}",
            aimed.low <= middle <= aimed.high,
        ))  # fmt: skip
        random = found[AIMS[2]][0]
        if random is not None:
            checks.append(PaperCheck(
                f"random canaries with inner products show {random.epsilon:.3g}, below half of {middle:.3g}",
                random.epsilon < middle / 2,
            ))  # fmt: skip
    checks += _false_alarms(ask, _game(users, gradients, "least", ask.seed), claims["tight"])
    return PaperResult(
        "secagg-wfna-audit",
        f"Audit of water-filling noise: sigma² = {FLOOR:g}, {ROUNDS} rounds, delta = {DELTA:g}",
        tuple(rows),
        checks=tuple(checks),
        notes=("Epsilon of one record of one user, replaced; the auditor knows all data, models and spectra.",),
        about=ask.about(users=USERS, examples=EXAMPLES, batch=BATCH, clip_norm=CLIP, floor=FLOOR, rounds=ROUNDS),
    )


def _claim(formula: str) -> Claim:
    return claim_waterfilling(
        users=USERS, examples=EXAMPLES, batch=BATCH, clip_norm=CLIP, floor=FLOOR, rounds=ROUNDS, delta=DELTA, formula=formula
    )  # fmt: skip


def _gap(variance: float) -> float:
    return math.sqrt(ROUNDS / variance) * 2 * CLIP / EXAMPLES


def _orthogonal(ask: Ask) -> list[PaperRow]:
    """C c against C c', where nobody else has more than the floor: both covariances change; a linear score hardly sees it."""
    base = USERS * FLOOR
    own = (USERS - 1) * FLOOR + max(FLOOR, CLIP**2 / (BATCH * EXAMPLES))
    mean = CLIP / EXAMPLES / math.sqrt(base)
    # in coordinates in which the second law is standard normal: variances (own, base/own), means (m, -m sqrt(base/own))
    variances, means = (own / base, base / own), (mean, -mean / math.sqrt(own / base))
    exact = pair_epsilon(variances, means, DELTA, times=ROUNDS)
    rng, count = stream(ask.seed, "orthogonal records"), ask.pick(full=1500, quick=300)
    worlds = [
        np.array(means) + np.sqrt(variances) * rng.standard_normal((count, ROUNDS, 2)),
        rng.standard_normal((count, ROUNDS, 2)),
    ]
    ratios = [log_ratios(rows, variances, means).sum(axis=1) for rows in worlds]
    law = bound_band(Scores.of(ratios[0], ratios[1], null=LikelihoodRatioNull(variances, means, ROUNDS)), delta=DELTA)
    slope = np.array(means)  # the best linear score for the second law's variances
    linear = estimate_gaussian(Scores.of(*((rows @ slope).sum(axis=1) for rows in worlds)), delta=DELTA)
    return [
        PaperRow("two orthogonal records: exact epsilon of the pair", "–", exact),
        PaperRow("two orthogonal records: bound by likelihood ratio, exact null", "–", law.epsilon, note=f"{count} of each"),
        PaperRow("two orthogonal records: estimate by a linear score", "–", linear.epsilon),
    ]


def _game(users: Users, gradients: list[Array], aim: str, seed: int) -> AimedGame:
    """One canary in each user's records, in its own direction."""
    scale = 1 / (BATCH * EXAMPLES)
    clean = sum((lifted(rows.T @ rows * scale, FLOOR) for rows in gradients), np.zeros((users.dim, users.dim)))
    if aim == "random":
        directions = stream(seed, "random directions").standard_normal((users.dim, USERS))
        directions /= np.linalg.norm(directions, axis=0)
    else:
        directions = aimed_directions(clean, USERS, aim)
    total = np.zeros_like(clean)
    for user, rows in enumerate(gradients):
        planted = np.vstack([rows[1:], CLIP * directions[:, user]])
        total += lifted(planted.T @ planted * scale, FLOOR)
    return AimedGame((total + total.T) / 2, np.asarray(directions), CLIP / EXAMPLES)


def _false_alarms(ask: Ask, game: AimedGame, claim: Claim) -> list[PaperCheck]:
    """Correct noise is called VIOLATED in at most one of 20 seeds."""
    words = [
        audit_scores(game.scores(ROUNDS, 4, ask.seed * 1000 + seed + 1, "whitened"), delta=DELTA, claim=claim).verdict
        for seed in range(SEEDS)
    ]
    wrong = sum(verdict is not None and verdict.word == "VIOLATED" for verdict in words)
    return [PaperCheck(f"correct water-filling is VIOLATED in {wrong} of {SEEDS} seeds", wrong <= 1)]
