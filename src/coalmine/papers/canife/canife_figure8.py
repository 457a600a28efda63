"""Figure 8: the two losses by mock clients (a); accuracy of the attack (b) and composed epsilon (c) by clients per round.

On MNIST by writer with the paper's small network. Panel a is without noise; b and c are at the noise that gives CelebA's
training an epsilon of 50, and compose the estimate of one model over thirty epochs of its population.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from coalmine.papers.canife.attack import OURS, Attack, Outcome, mean_of, repeated
from coalmine.papers.canife.drawings import Line, lines
from coalmine.papers.canife.grounds import Where
from coalmine.papers.canife.tasks import TRAININGS, Training
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, RowVerdict

TASK, COHORT, EPOCHS = "writers", 100, 30
NOISE = TRAININGS[1].noises[-1]
LOSSES = {"mean": "Loss 1 (mean)", "covariance": "Loss 2 (covariance)"}
Found = dict[Any, list[Outcome]]


def reproduce(ask: Ask) -> PaperResult:
    """All three panels."""
    where, pools = Where.of(ask, TASK), ask.pick(full=(16, 64), quick=(12, 24))
    cohorts, times = ask.pick(full=(25, 100, 400), quick=(10, 40)), ask.pick(full=2, quick=1)
    told = {"learning_rate": 1.0, "stop_overlap": 0.0, "iterations": ask.pick(full=200, quick=10)}
    losses: Found = repeated(
        ask,
        {(loss, m): Attack(where, COHORT, m, 0.0, {**told, "loss": loss}) for loss in LOSSES for m in pools},
        times,
        "losses",
    )
    ours = {**OURS, "iterations": ask.pick(full=150, quick=10)}
    rounds: Found = repeated(
        ask, {k: Attack(where, k, pools[1], NOISE, ours) for k in cohorts}, ask.pick(full=2, quick=1), "clients per round"
    )
    composed = {k: _composed(k, found) for k, found in rounds.items()}
    rows = [*_of_losses(losses, pools), *_of_rounds(rounds, composed)]
    panels = {words: _curve(losses, loss, pools) for loss, words in LOSSES.items()}
    by_cohort = [mean_of(found, "accuracy") for found in rounds.values()]
    accuracy = Line(cohorts, [value for value, _ in by_cohort], [error for _, error in by_cohort])
    return PaperResult(
        "canife-figure8",
        "CANIFE, Figure 8: losses, and clients per round; MNIST by writer for CelebA",
        tuple(rows),
        "standard error over attacks",
        (_check(losses, pools),),
        (f"b and c: noise {NOISE}; {EPOCHS} epochs of 3,072 clients, composed as printed, not a bound.",),
        ask.about(attacks=times, steps=where.steps),
        figure=partial(lines, {"a: overlap with a cohort of 100, in clip norms": panels},
                       "mock clients", log_x=True, log_y=True),
        further={"clients": partial(lines, {
            "b: accuracy of the attack": {"our design": accuracy},
            "c: composed epsilon": {"our design": Line(cohorts, list(composed.values()))},
        }, "clients in a round", log_x=True)},
    )  # fmt: skip


def _curve(found: Found, loss: str, pools: Any) -> Line:
    values = [mean_of(found[loss, m], "overlap") for m in pools]
    return Line(pools, [value for value, _ in values], [error for _, error in values])


def _composed(cohort: int, found: list[Outcome]) -> float:
    population = 3_072
    training = Training("", population, cohort, EPOCHS * population // cohort, ())
    return training.composed(mean_of(found, "epsilon")[0])


def _of_losses(found: Found, pools: Any) -> list[PaperRow]:
    rows = []
    for (loss, m), each in found.items():
        value, error = mean_of(each, "accuracy")
        note = f"overlap {mean_of(each, 'overlap')[0]:.3f}, health {mean_of(each, 'health')[0]:.4f}"
        rows.append(PaperRow(f"a: {LOSSES[loss]}, {m} mock clients, accuracy", "", value, error or None, None, note,
                             {"panel": "a", "loss": loss, "pool": m}))  # fmt: skip
    worse = [mean_of(found["mean", m], "overlap")[0] / mean_of(found["covariance", m], "overlap")[0] for m in pools]
    verdict: RowVerdict = "same shape" if min(worse) > 1 else "differs"
    rows.append(PaperRow("a: overlap, Loss 1 over Loss 2, smallest over mock clients", "above 1", min(worse), None, verdict, "",
                         {"panel": "a", "loss": "ratio"}))  # fmt: skip
    return rows


def _of_rounds(found: dict[int, list[Outcome]], composed: dict[int, float]) -> list[PaperRow]:
    rows = []
    for k, each in found.items():
        value, error = mean_of(each, "accuracy")
        note = f"overlap {mean_of(each, 'overlap')[0]:.3f}, efficiency {mean_of(each, 'efficiency')[0]:.3f}"
        rows.append(PaperRow(f"b: {k} clients, accuracy", "", value, error or None, None, note, {"panel": "b", "cohort": k}))
        rows.append(PaperRow(f"c: {k} clients, composed", "", composed[k], None, None, "", {"panel": "c", "cohort": k}))
    few, many = min(found), max(found)
    change = mean_of(found[many], "accuracy")[0] - mean_of(found[few], "accuracy")[0]
    rows.append(PaperRow(f"b: accuracy, {many} less {few} clients", "slightly below 0", change, None,
                         "same shape" if change < 0 else "differs", "", {"panel": "b", "cohort": "difference"}))  # fmt: skip
    rows.append(PaperRow(f"c: composed, {few} less {many} clients", "below 0", composed[few] - composed[many], None,
                         "same shape" if composed[few] < composed[many] else "differs", "",
                         {"panel": "c", "cohort": "difference"}))  # fmt: skip
    return rows


def _check(found: Found, pools: Any) -> PaperCheck:
    values = [mean_of(found["covariance", m], "accuracy")[0] for m in pools]
    return PaperCheck(f"Loss 2 is nearly flat in mock clients: accuracies {values[0]:.2f} to {values[-1]:.2f}",
                      abs(values[0] - values[-1]) < 0.1)  # fmt: skip
