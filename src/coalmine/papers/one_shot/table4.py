"""Table 4: are the cosines with the final model normal? Anderson–Darling by noise and presentations.

Exactly: how often the statistic of 1,000 normals exceeds its critical values, and what the table's own sentence about chance
should say. On real runs: the statistic of the cosines, and how many of fifteen exceed the 15 % value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from coalmine._random import stream
from coalmine.estimators.diagnostics import anderson_darling, anderson_p_value
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart, RowVerdict
from coalmine.papers.kit.rules import RISK
from coalmine.papers.one_shot.numbers import TABLE4

if TYPE_CHECKING:
    from coalmine.papers.one_shot.trained import OneShotRun

CRITICAL = {0.15: 0.561, 0.05: 0.752, 0.01: 1.035}  # of A*, D'Agostino & Stephens
PAPERS = {0.15: 0.574, 0.01: 1.088}  # the paper's limits
CANARIES = 1000
_ENOUGH = 1000  # draws, for a verdict
_RISK = RISK / 5  # of each check: three of the null, two of runs
_PAPERS_CHANCE = 0.68


def reproduce(ask: Ask) -> PaperResult:
    """The exact part and the runs."""
    note = "“same shape”: not rejected at 1 %, as in the paper; of 15 right ones one or more is with probability 0.14."
    return PaperResult.of(
        ask.named("table4"),
        f"{ask.heading('Table 4', model='exactly', runs='on chats')}: Anderson–Darling statistics of the cosines with the "
        "final model",
        [ResultPart((), notes=(note,), about=ask.about(canaries=CANARIES)), *ask.parts(model=_exact, runs=_runs)],
    )


def _exact(ask: Ask) -> ResultPart:
    rows, checks = _null(ask)
    return ResultPart([*rows, _sentence(), *_printed_rows()], checks)


def _runs(ask: Ask) -> ResultPart:
    from coalmine.papers.kit.trained import records, seconds_of
    from coalmine.papers.one_shot.families import CHATS  # these need torch, the exact part does not

    runs = _trained(ask)
    rows, checks = _judged(runs)
    return ResultPart(rows, checks, (CHATS,), {"training_seconds": seconds_of(runs.values())}, {"runs": records(runs.values())})


def _null(ask: Ask) -> tuple[list[PaperRow], list[PaperCheck]]:
    """How often normals exceed the paper's limits, which are a little too large, and those that we use, which are not."""
    from scipy.stats import binomtest

    draws = ask.repeat(full=20_000, quick=2_000)
    rng = stream(ask.seed, "anderson-darling of normals")
    found = np.empty(draws)
    for place in range(draws):
        values = rng.standard_normal(CANARIES)
        found[place] = anderson_darling((values - values.mean()) / values.std(ddof=1))

    def judged(level: float, limit: float) -> tuple[float, float, bool]:
        above = int((found > limit).sum())
        share = above / draws
        return share, float(np.sqrt(share * (1 - share) / draws)), bool(binomtest(above, draws, level).pvalue >= _RISK)

    rows: list[PaperRow] = []
    checks: list[PaperCheck] = []
    for level, limit in PAPERS.items():
        share, error, good = judged(level, limit)
        verdict: RowVerdict | None = ("exact" if good else "differs") if draws >= _ENOUGH else None
        what, where = f"{CANARIES:,} normals, statistic above {limit:g}", {"how": "exact", "level": level}
        rows.append(PaperRow(what, f"{level:g}", share, error, verdict, f"{draws:,} draws", where))
    for level, limit in CRITICAL.items() if draws >= _ENOUGH else ():
        share, _, good = judged(level, limit)
        text = f"{CANARIES:,} normals exceed {limit:g}, our {100 * level:g} % value, in {share:.2%} of {draws:,} draws"
        checks.append(PaperCheck(text, good))
    return rows, checks


def _sentence() -> PaperRow:
    """'The probability of observing three or more values … would be 68 %.'"""
    from scipy.stats import binom

    three, two = (float(binom.sf(least - 1, 15, 0.15)) for least in (3, 2))
    return PaperRow(
        "three or more of 15 normal samples above the 15 % value",
        f"{_PAPERS_CHANCE:g}",
        three,
        verdict="exact" if abs(three - _PAPERS_CHANCE) < 0.005 else "differs",
        note=f"two or more: {two:.3f}, which is what the paper prints",
        place={"how": "exact"},
    )


def _printed_rows() -> list[PaperRow]:
    """The paper's own 15 statistics against the exact null."""
    from scipy.stats import binom

    values = [float(value) for row in TABLE4.values() for value in row.values()]
    above = sum(value > PAPERS[0.15] for value in values)
    chance = float(binom.sf(above - 1, len(values), 0.15))
    note = f"as many or more among 15 normal samples: probability {chance:.2f}"
    return [PaperRow(f"the paper's statistics above {PAPERS[0.15]:g}, counted", "3 of 15", float(above), note=note)]


def _trained(ask: Ask) -> dict[tuple[float, int], OneShotRun]:
    """By noise and presentations."""
    from coalmine.papers.one_shot.families import chat
    from coalmine.papers.one_shot.trained import obtain

    wanted = {(noise, times): chat(ask, noise, times) for noise, row in TABLE4.items() for times in row}
    runs = obtain(ask, dict(wanted.values()))
    return {place: runs[name] for place, (name, _) in wanted.items()}


def _judged(runs: Mapping[tuple[float, int], OneShotRun]) -> tuple[list[PaperRow], list[PaperCheck]]:
    from scipy.stats import binom

    rows = []
    for (noise, times), run in runs.items():
        statistic = run.anderson_darling()
        rows.append(
            PaperRow(
                f"chats, noise {noise:g}, {times} {'presentation' if times == 1 else 'presentations'}",
                TABLE4[noise][times],
                statistic,
                None,
                "same shape" if statistic <= CRITICAL[0.01] else "differs",
                f"{run.seen.final.size} canaries",
                {"how": "runs", "noise": noise, "times": times},
            )
        )
    found = [row.ours or 0.0 for row in rows]
    above = sum(value > CRITICAL[0.15] for value in found)
    chance = float(binom.sf(above - 1, len(rows), 0.15))
    largest = min(len(rows) * anderson_p_value(max(found)), 1.0)
    return rows, [
        PaperCheck(
            f"{above} of {len(rows)} runs above the 15 % value: as many by chance with probability {chance:.2g}",
            chance >= _RISK,
        ),
        PaperCheck(
            f"the largest is {max(found):.3g}: as large a one by chance with probability {largest:.2g}", largest >= _RISK
        ),
    ]
