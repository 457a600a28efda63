"""Adversaries that do not know the rounds: the cosine with the final model, and the largest cosine over all releases.

    paper (Andrew et al. 2024)           here
    Algorithm 2, cosine with theta_T     WholeModel()
    Algorithm 3, max over rounds         EveryRelease()

Where we depart, and why:

* `FinalModel` looks at theta_T - theta_0. Everybody knows theta_0, and it only dilutes the cosine.
* `EveryRelease` looks at the released mean, as Algorithm 3 is printed. The released code looks at the model's step, after
  the server's momentum (`EveryStep`).
* The maximum gets its bound from the union bound over rounds (`MaxNull`) or from the unused directions. The papers fit two
  normals to it; `estimate_gaussian(variance="fitted")` does so by name and flags it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Array, Canaries, Null, Projections
from coalmine.errors import MismatchError
from coalmine.nulls import MaxNull
from coalmine.scores import Scores
from coalmine.views.view import NullChoice, Threat, check, law_of_one, spreads_of, table


@dataclass(frozen=True)
class FinalModel(Threat):
    """The adversary of a published model: cosine of the canary with all that training changed."""

    key: ClassVar[str] = "final-model"
    adversary: ClassVar[str] = "sees only the final model, and knows how it began"
    short: ClassVar[str] = "the final model only"
    needs: ClassVar[str] = "total_change"

    def scores(
        self, projections: Projections, schedule: Schedule, canaries: Canaries, *, null: NullChoice = "theory"
    ) -> Scores:
        """The cosine of each canary of the pool with the last vector."""
        check(projections, schedule, canaries, self.needs, null)
        if projections.rounds.size != 1:
            raise MismatchError(f"the final model is one vector; these projections have {projections.rounds.size} rows.")
        cosines, norm = _largest(projections), float(projections.norm[0])
        spread = float(spreads_of(projections, schedule, canaries)[0]) / norm if norm > 0 else projections.dim**-0.5
        law = law_of_one(canaries, projections, spread) if null == "theory" else None
        return _cosine_table(self, "cosine", projections, schedule, cosines, law)


@dataclass(frozen=True)
class WholeModel(FinalModel):
    """The cosine with the final parameters themselves, their start included, as the papers print it."""

    key: ClassVar[str] = "whole-model"
    adversary: ClassVar[str] = "sees only the final model, its start included"
    short: ClassVar[str] = "final model with its start"
    needs: ClassVar[str] = "model"


@dataclass(frozen=True)
class EveryRelease(Threat):
    """The adversary who sees every release but not who took part when: the largest cosine over rounds."""

    key: ClassVar[str] = "every-release"
    adversary: ClassVar[str] = "sees every release, but not who took part when"
    short: ClassVar[str] = "all releases"
    needs: ClassVar[str] = "mean"
    combined: ClassVar[str] = "maximum"

    def scores(
        self, projections: Projections, schedule: Schedule, canaries: Canaries, *, null: NullChoice = "theory"
    ) -> Scores:
        """The largest cosine of each canary of the pool, over all rounds.

        The law of one round has a variance of at most 1/d whatever else was released (the canaries of a transform leave less to
        each other), and P(max >= t) <= rounds P(one >= t).
        """
        check(projections, schedule, canaries, self.needs, null)
        one = law_of_one(canaries, projections, projections.dim**-0.5) if null == "theory" else None
        law = None if one is None else MaxNull(one, projections.rounds.size)
        statistic = "maximum over rounds of the cosine"
        return _cosine_table(self, statistic, projections, schedule, _largest(projections), law)


@dataclass(frozen=True)
class EveryStep(EveryRelease):
    """The cosines are with the steps of the model, after the server's momentum, as in the papers' code."""

    key: ClassVar[str] = "every-step"
    adversary: ClassVar[str] = "sees every step of the model, but not who took part when"
    short: ClassVar[str] = "all steps of the model"
    needs: ClassVar[str] = "step"


def _largest(projections: Projections) -> Array:
    """By column, the largest cosine over the rows; with a vector that is 0 the cosine is 0."""
    found = np.full(projections.inner.shape[1], -np.inf)
    for inner, norm in zip(projections.inner, projections.norm, strict=True):
        np.maximum(found, inner / norm if norm > 0 else 0.0, out=found)
    return np.asarray(np.clip(found, -1.0, 1.0))  # beyond by rounding alone


def _cosine_table(
    view: Threat, statistic: str, projections: Projections, schedule: Schedule, cosines: Array, law: Null | None
) -> Scores:
    pool = projections.pool
    return table(
        view,
        statistic,
        projections,
        schedule,
        members=np.arange(pool),
        values=cosines[:pool],
        law=law,
        columns=np.arange(pool, cosines.size),
        unused=cosines[pool:],
    )
