"""Table 7 for this package: what every method needs and sees, found out by using it.

Views are asked what they look at and which game they play, for sampled clients. Bounds are handed scores with and without a
null law, coins and several runs; what they refuse, they need. So the table cannot say what the code does not do.

    paper, Table 7                     here
    auditor controls                   what the auditor puts in: for all views a client's update (a canary)
    auditor receives                   what a view looks at (`sees`), and what it is told besides
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalmine._random import stream
from coalmine.canaries.schedule import Schedule
from coalmine.contracts import LowerBound
from coalmine.contracts.sentences import view_name
from coalmine.errors import AuditError
from coalmine.estimators import BOUNDS
from coalmine.estimators._rates import INDEPENDENT
from coalmine.estimators.gdp import SHAPE
from coalmine.nulls import CosineNull
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult, PaperRow, RowVerdict
from coalmine.participation import Poisson
from coalmine.scores import Scores
from coalmine.views import AIMED_VIEWS, PAPER_VIEWS, VIEWS

CONTROLS = "client model update"
_MODELS = {
    "total_change": "final model",
    "model": "final model",
    "mean": "intermediate models",
    "residual": "intermediate models",
}
_SEES = {
    "total_change": "the final model, and how it started",
    "mean": "every released mean",
    "residual": "every released mean, and what all other clients sent",
}
TABLE7 = {  # (auditor controls, auditor receives) of the methods that this package has
    "final-model": ("Algorithm 2", CONTROLS, "final model"),
    "every-release": ("Algorithm 3", CONTROLS, "intermediate models"),
}
PAPERS = {  # where a bound comes from, and what Table 7 says of that paper
    "threshold": "Jagielski et al. (2020): train data; final model",
    "bayesian": "Zanella-Béguelin et al. (2023): train data; final model",
    "lifted": "Pillutla et al. (2024): train data; final model",
    "one-run": "Steinke et al. (2024): train data; final model",
    "gdp": "Nasr et al. (2023): train data, privacy noise, minibatch; intermediate models",
}
DELTA, COUNT, DIM, RUNS = 1e-5, 200, 10_000, 40
NEEDS = ("null law", "coins", "several runs", "Gaussian shape", "independent canaries")


@dataclass(frozen=True)
class Needs:
    """What a bound turned out to need."""

    name: str
    null_law: str  # "no", "for validity"
    coins: bool
    runs: bool
    shape: bool
    independent: bool
    valid: bool
    ceiling: str
    multiplicity: str

    @property
    def words(self) -> str:
        """In one sentence."""
        needed = [
            *(["fair coins"] if self.coins else []),
            *(["several runs"] if self.runs else []),
            *(["a Gaussian trade-off curve"] if self.shape else []),
            *(["independent canaries"] if self.independent else []),
            *(["a known null law"] if self.null_law == "for validity" else []),
        ]
        kind = "valid" if self.valid else "approximate, decides nothing"
        return f"{kind}; needs {', '.join(needed) or 'nothing else'}; {self.multiplicity}; {self.ceiling}"

    @property
    def marks(self) -> tuple[bool, ...]:
        """By the names of `NEEDS`."""
        return (self.null_law == "for validity", self.coins, self.runs, self.shape, self.independent)


def reproduce(ask: Ask) -> PaperResult:
    """Views, then bounds."""
    found = [needs_of(name) for name in BOUNDS]
    rows = [
        *_view_rows(),
        *(PaperRow(f"bound {each.name}", PAPERS.get(each.name, ""), None, note=each.words) for each in found),
    ]

    def figure() -> Any:
        from coalmine.papers.one_shot.drawings import matrix

        return matrix([each.name for each in found], NEEDS, [each.marks for each in found])

    return PaperResult(
        "assumptions",
        "Table 7 for this package: what every method needs and sees",
        tuple(rows),
        notes=(
            "A bound reads scores, of whichever view. The view decides what the auditor controls and receives.",
            "All views control a client's update: canaries are directions, not examples.",
        ),
        about=ask.about(),
        details={"bounds": found},
        figure=figure,
    )


def _view_rows() -> list[PaperRow]:
    """Every view of random directions under Poisson sampling, where knowing the rounds makes a difference."""
    schedule = Schedule.draw(Poisson(0.1, 20), pool=40, rounds=20, secret_seed=1)
    rows = []
    for name in (name for name in VIEWS if name not in (*PAPER_VIEWS, *AIMED_VIEWS)):
        view = VIEWS[name]()
        game = view.game(schedule)
        receives = _SEES[view.needs] + ("; the rounds of its target" if game.knowledge == "rounds known" else "")
        paper, verdict = "", None
        if name in TABLE7:
            called, controls, models = TABLE7[name]
            paper = f"{called}: {controls}; {models}"
            same = (controls, models) == (CONTROLS, _MODELS[view.needs])
            verdict = _exact(same)
        note = f"controls a {CONTROLS}; receives {receives}; claim: {game.relation}, {game.knowledge}"
        rows.append(PaperRow(f"view {view_name(name)}", paper, None, None, verdict, note))
    return rows


def _exact(same: bool) -> RowVerdict:
    return "exact" if same else "differs"


def needs_of(name: str) -> Needs:
    """What a bound needs, from what it refuses and from what it says of itself."""
    bound: Callable[..., LowerBound] = BOUNDS[name]
    runs = not _accepts(bound, runs=False)
    with_law, sampled = (bound(_scores(law=law, coins=True, runs=runs), delta=DELTA) for law in (True, False))
    unbounded, limit = with_law.ceiling == float("inf"), sampled.ceiling
    return Needs(
        name,
        null_law="for validity" if with_law.valid and not sampled.valid else "no",
        coins=not _accepts(bound, coins=False, runs=runs),
        runs=runs,
        shape=SHAPE in with_law.assumptions,
        independent=INDEPENDENT in with_law.assumptions,
        valid=with_law.valid,
        ceiling=f"{'no ceiling' if unbounded else f'ceiling {with_law.ceiling:.2f}'} with a null law, "
        f"{'none' if limit == float('inf') else f'{limit:.2f}'} without (of {COUNT} + {COUNT} canaries, delta {DELTA:g})",
        multiplicity=with_law.multiplicity,
    )


def _accepts(bound: Callable[..., LowerBound], *, coins: bool = True, runs: bool = True) -> bool:
    try:
        bound(_scores(law=True, coins=coins, runs=runs), delta=DELTA)
    except AuditError:
        return False
    return True


def _scores(*, law: bool, coins: bool, runs: bool) -> Scores:
    """Canaries two standard deviations apart, as cosines."""
    rng = stream(0, "assumptions")
    value = np.concatenate([rng.normal(2.0, 1.0, COUNT), rng.normal(0.0, 1.0, COUNT)]) / DIM**0.5
    return Scores(
        value,
        np.arange(2 * COUNT) < COUNT,
        labels={"run": np.arange(2 * COUNT) % RUNS} if runs else {},
        assignment="coins" if coins else "fixed",
        null=CosineNull(DIM) if law else None,
        dim=DIM if law else None,
    )
