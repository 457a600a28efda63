"""Figure 9: the length that the loss asks of a canary's gradient, in clip norms; accuracy of the attack, health of the canary.

On MNIST by writer with the paper's small network, without noise. As in the published code the update of the canary is
multiplied by 1 / learning rate here, so that the length asked for is that of the paper; our own designs never do so.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from coalmine.papers.canife.attack import OURS, Attack, Outcome, mean_of, repeated
from coalmine.papers.canife.drawings import Line, lines
from coalmine.papers.canife.grounds import Where
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult, PaperRow, RowVerdict

TASK, COHORT, LARGE, HEALTHY = "writers", 100, 50, 600
DESIGNS: dict[str, dict[str, Any]] = {
    "covariance": {"loss": "covariance", "learning_rate": 1.0},
    "log": dict(OURS),
}
Found = dict[Any, list[Outcome]]


def reproduce(ask: Ask) -> PaperResult:
    """Accuracy and health by the length asked for, with the paper's loss and with ours."""
    lengths = ask.pick(full=(0.1, 1.0, 50.0, 300.0, 1000.0), quick=(1.0, 200.0))
    times, where = ask.pick(full=2, quick=1), Where.of(ask, TASK)
    told = {"stop_overlap": 0.0, "undo_learning_rate": True, "iterations": ask.pick(full=150, quick=10)}
    pool = ask.pick(full=64, quick=24)
    found: Found = repeated(
        ask,
        {(name, c): Attack(where, COHORT, pool, 0.0, {**told, **options, "norm_margin": c})
         for name, options in DESIGNS.items() for c in lengths},
        times,
        "lengths",
    )  # fmt: skip
    rows = [_row(name, c, each) for (name, c), each in found.items()]
    rows += _shapes(found, lengths)
    return PaperResult(
        "canife-figure9",
        "CANIFE, Figure 9: the length asked of the canary's gradient; MNIST by writer for CelebA",
        tuple(rows),
        "standard error over attacks",
        (),
        ("The loss is in clip norms; its health is that of the loss with the length asked for.",),
        ask.about(cohort=COHORT, attacks=times, steps=where.steps),
        figure=partial(lines, {title: _curves(found, name, lengths) for title, name in (
            ("accuracy of the attack", "accuracy"), ("health of the canary", "health"), ("overlap, in clip norms", "overlap"))},
            "length asked for, in clip norms", log_x=True),
    )  # fmt: skip


def _row(name: str, c: float, each: list[Outcome]) -> PaperRow:
    value, error = mean_of(each, "accuracy")
    note = ", ".join(f"{key} {mean_of(each, key)[0]:.3f}" for key in ("health", "reach", "overlap"))
    return PaperRow(f"{name}, length {c:g}, accuracy", "", value, error or None, None, note, {"loss": name, "length": c})


def _shapes(found: Found, lengths: Any) -> list[PaperRow]:
    near = mean_of(found["covariance", 1.0], "accuracy")[0]
    far = mean_of(found["covariance", max(lengths)], "accuracy")[0]
    low: RowVerdict = "same shape" if near >= 0.95 else "differs"
    drop: RowVerdict = "same shape" if far < near - 0.05 else "differs"
    rows = [
        PaperRow("covariance, accuracy near the clip norm", "high", near, None, low, "", {"loss": "covariance", "at": "near"}),
        PaperRow(f"covariance, accuracy at {max(lengths):g} less near the clip norm", "a large drop above 50", far - near, None,
                 drop, "", {"loss": "covariance", "at": "far"}),
    ]  # fmt: skip
    ill = [c for c in lengths if c > HEALTHY]
    if ill:
        kept = min(mean_of(found["covariance", c], "health")[0] for c in lengths if LARGE <= c <= HEALTHY)
        lost = mean_of(found["covariance", ill[-1]], "health")[0]
        verdict: RowVerdict = "same shape" if lost < kept else "differs"
        rows.append(PaperRow("covariance, health above 600 less between 50 and 600", "below 0", lost - kept, None, verdict, "",
                             {"loss": "covariance", "at": "health"}))  # fmt: skip
    return rows


def _curves(found: Found, name: str, lengths: Any) -> dict[str, Line]:
    curves = {}
    for design in DESIGNS:
        values = [mean_of(found[design, c], name) for c in lengths]
        curves[design] = Line(lengths, [value for value, _ in values], [error for _, error in values])
    return curves
