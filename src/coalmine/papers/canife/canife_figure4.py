"""Figure 4, a and b: the epsilon of measured rounds along a private training to epsilon 50, beside what a perfect canary shows.

The estimate is as printed: 100 draws, the best threshold, delta = 0.01. Beside it stand the paper's theoretical epsilon of a
round at delta = 1e-5, the same estimator on a perfect canary, and the same canaries read with the others' part known.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from coalmine.accounting.rounds import one_round_epsilon
from coalmine.gaussian import gaussian_epsilon
from coalmine.papers.canife.attack import Outcome, mean_of
from coalmine.papers.canife.drawings import Line, lines
from coalmine.papers.canife.families import FAMILIES, noises
from coalmine.papers.canife.monitoring import Monitored, mean_perfect, monitor
from coalmine.papers.canife.tasks import DELTA, LEAST_GAP, MOST_GAP
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart, RowVerdict
from coalmine.papers.kit.rules import NOT_A_BOUND, RISK

LAST = "epsilon50"


def reproduce(ask: Ask) -> PaperResult:
    """Both trainings, or the part that is asked for."""
    found = {key: _measured(ask, family) for key, family in FAMILIES.items() if ask.part in (None, key)}
    result = PaperResult.of(
        ask.named("canife-figure4"),
        "CANIFE, Figure 4: measured rounds of trainings to epsilon 50, 100 draws each",
        [ResultPart([], about=ask.about()), *(judged(FAMILIES[key], *each) for key, each in found.items())],
        error="standard deviation from round to round",
    )
    first = next(iter(found))
    figure = partial(picture, FAMILIES[first], *found[first])
    further = {key: partial(picture, FAMILIES[key], *each) for key, each in list(found.items())[1:]}
    return PaperResult(**{**result.__dict__, "figure": figure, "further": further})


def _measured(ask: Ask, family: Monitored) -> tuple[float, list[Outcome]]:
    noise = noises(family)[LAST]
    return noise, monitor(ask, family, {LAST: noise}, [0])[LAST][0]


def judged(family: Monitored, noise: float, rounds: list[Outcome]) -> ResultPart:
    """The rows of one training."""
    theory, (perfect, varies, most) = one_round_epsilon(noise, DELTA), mean_perfect(noise, rounds)
    mean, _ = mean_of(rounds, "epsilon")
    spread = float(np.std([each["epsilon"] for each in rounds], ddof=1)) if len(rounds) > 1 else 0.0
    gap, place = theory / mean, {"task": family.key}
    verdict: RowVerdict = "same shape" if LEAST_GAP <= gap <= MOST_GAP else "differs"
    exact = float(gaussian_epsilon(0.0, noise, 1.0, noise, DELTA))
    calibrated, _ = mean_of(rounds, "calibrated")
    rows = [
        PaperRow(f"{family.words}, one round", "", mean, spread, None,
                 f"noise {noise:g}, {len(rounds)} rounds; at a threshold from mock rounds {calibrated:.2f}",
                 {**place, "column": "round"}),
        PaperRow(f"{family.words}, one round, perfect canary", "", perfect, varies, None,
                 f"at most {most:.2f} with so many scores of each kind", {**place, "column": "perfect"}),
        PaperRow(f"{family.words}, gap to the theoretical {theory:.1f}", "4 - 5", gap, None, verdict,
                 f"perfect canary {theory / perfect:.1f}", {**place, "column": "gap"}),
        _known(family, rounds, exact),
    ]  # fmt: skip
    for name in ("health", "efficiency"):
        rows.append(PaperRow(f"{family.words}, {name}", "0.970 ± 0.098" if name == "health" else "", *_of(rounds, name), None,
                             "the paper's is of Sent140" if name == "health" else "", {**place, "column": name}))  # fmt: skip
    return ResultPart(rows, _checks(family, rounds, exact), (
        "A perfect canary has the gap in the note, by 100 scores and delta = 1/100 alone; the rest is the canary's. The noise "
        "is not the paper's: the gap grows with the theoretical value.", NOT_A_BOUND), {},
        {family.key: [{k: v for k, v in each.items() if k not in ("with", "without")} for each in rounds]})  # fmt: skip


def _checks(family: Monitored, rounds: list[Outcome], exact: float) -> tuple[PaperCheck, ...]:
    """Intervals of 95 % hold the exact value in so many rounds that fewer would be chance in one of a thousand experiments.

    Of fewer than three rounds no number is so unlikely: then there is no check.
    """
    from scipy.stats import binom

    least = int(binom.ppf(RISK, len(rounds), 0.95))
    holds = sum(each["known"]["low"] <= exact <= each["known"]["high"] for each in rounds)
    text = f"{family.words}: with the others known the interval holds the exact value in {holds} of {len(rounds)} rounds"
    return (PaperCheck(text, holds >= least),) if least > 0 else ()


def _of(rounds: list[Outcome], name: str) -> tuple[float, float]:
    values = [each[name] for each in rounds]
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _known(family: Monitored, rounds: list[Outcome], exact: float) -> PaperRow:
    known = [each["known"] for each in rounds]
    mean, spread = _of(known, "epsilon")
    holds = sum(each["low"] <= exact <= each["high"] for each in known)
    note = (
        f"exactly {exact:.2f}, in the 95 % interval of {holds} of {len(known)} rounds; valid bound {_of(known, 'bound')[0]:.2f}"
    )
    place = {"task": family.key, "column": "known others"}
    return PaperRow(f"{family.words}, same canaries, others known, delta 1e-5", "", mean, spread, None, note, place)


def picture(family: Monitored, noise: float, rounds: list[Outcome]) -> Any:
    """Estimates with their intervals, the theory, and a perfect canary."""
    perfect = mean_perfect(noise, rounds)[0]
    where = [family.every * (place + 1) for place in range(len(rounds))]
    ends = [where[0], where[-1]]
    theory = one_round_epsilon(noise, DELTA)
    curves = {
        "measured, as printed": Line(where, [each["epsilon"] for each in rounds]),
        "measured, others known, delta 1e-5": Line(where, [each["known"]["epsilon"] for each in rounds]),
        "theory, delta 1e-5, as printed": Line(ends, [theory, theory], dashed=True),
        "a perfect canary would show, by the paper's estimator": Line(ends, [perfect, perfect], dotted=True),
    }
    return lines({f"{family.words}, noise {noise:g}: epsilon of one round": curves}, "round")
