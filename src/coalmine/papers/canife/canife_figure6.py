"""Figure 6: rounds of Shakespeare, with noise (a) and without (b), for a perfect canary and for crafted texts."""

from __future__ import annotations

from coalmine.estimators.composed import largest_finite
from coalmine.papers.canife.tasks import DELTA, DRAWS, gap_row, round_row, shown
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart, RowVerdict
from coalmine.papers.kit.rules import NOT_A_BOUND


def reproduce(ask: Ask) -> PaperResult:
    """Without noise, every finite estimate is at the limit of its number of scores."""
    return PaperResult.of(
        ask.named("canife-figure6"),
        ask.heading("CANIFE, Figure 6: rounds of Shakespeare,", model="perfect canary", runs="crafted texts"),
        [ResultPart([], about=ask.about()), *ask.parts(model=_model, runs=_runs)],
        error="standard deviation from round to round",
    )


def _model(ask: Ask) -> ResultPart:
    last = shown(ask)[-1]
    limit = largest_finite(DRAWS // 2, DRAWS // 2, DELTA)
    verdict: RowVerdict = "exact" if f"{limit:.2f}" == "3.89" else "differs"
    without = PaperRow("without noise: limit of a finite estimate", "3.89", limit, verdict=verdict, place={"column": "limit"})
    return ResultPart(
        [round_row(last), gap_row(last), without], (), ("A gap is model-based if a perfect canary has 4 to 5 too.", NOT_A_BOUND)
    )


def _runs(ask: Ask) -> ResultPart:
    from coalmine.papers.canife.attack import OURS, Attack, mean_of, repeated  # needs torch, the model does not
    from coalmine.papers.canife.canife_figure4 import LAST, judged
    from coalmine.papers.canife.families import SHAKESPEARE, noises
    from coalmine.papers.canife.grounds import Where
    from coalmine.papers.canife.monitoring import monitor

    noise = noises(SHAKESPEARE)[LAST]
    noisy = judged(SHAKESPEARE, noise, monitor(ask, SHAKESPEARE, {LAST: noise}, [0])[LAST][0])
    shares, pool = ask.pick(full=(0.2, 1.0), quick=(1.0,)), ask.pick(full=64, quick=16)
    told = {**OURS, "iterations": ask.pick(full=20, quick=3)}
    wanted = {share: Attack(Where.of(ask, "shakespeare", share), SHAKESPEARE.cohort, pool, 0.0, told) for share in shares}
    rows = list(noisy.rows)
    for share, found in repeated(ask, wanted, 1, "without noise").items():
        value, _ = mean_of(found, "epsilon")
        limit = largest_finite(len(found[0]["with"]), len(found[0]["without"]), 1 / DRAWS)
        verdict: RowVerdict = "same shape" if value >= limit - 1e-9 else "differs"
        note = f"limit of these scores {limit:.2f}; accuracy {found[0]['accuracy']:.2f}, spread {found[0]['spread']:.3f}"
        what = f"without noise, model with accuracy {found[0]['model_accuracy']:.2f}, one round"
        rows.append(PaperRow(what, "3.89", value, None, verdict, note,
                              {"column": "without noise", "share": share}))  # fmt: skip
    check = PaperCheck(
        "without noise some measured round reaches the limit", any(row.verdict == "same shape" for row in rows[-len(shares) :])
    )
    return ResultPart(rows, (*noisy.checks, *((check,) if ask.full else ())), noisy.notes, {}, noisy.details)
