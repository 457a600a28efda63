"""Finished runs, and the one-shot paper's numbers of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from coalmine._random import stream
from coalmine.estimators.diagnostics import anderson_darling
from coalmine.papers.kit import making
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.trained import TrainedRun
from coalmine.papers.one_shot.linear import left_by_canaries
from coalmine.papers.one_shot.noise_model import STATISTICS, SeenCosines
from coalmine.training.config import Config
from coalmine.views import EveryStep, FinalModel, KnownOthers, KnownRounds, WholeModel

LARGEST, FINAL = EveryStep.key, WholeModel.key  # what the papers' code looks at
VIEWS = OTHERS, ROUNDS, DRIFT = KnownOthers.key, KnownRounds.key, FinalModel.key  # our own
_DRAWS = 60  # of a standard error


def obtain(ask: Ask, wanted: Mapping[str, Config], *, apart: bool = False) -> dict[str, OneShotRun]:
    """All these runs, finished; see `coalmine.papers.kit.making`."""
    return {name: OneShotRun(path) for name, path in making.obtain(ask, wanted, apart=apart).items()}


@dataclass(frozen=True)
class OneShotRun(TrainedRun):
    """A finished run, and the papers' numbers of it: cosines are in units of 1/sqrt(d)."""

    @property
    def record(self) -> dict[str, Any]:
        """What it trained, how well, what each view says of it, and its cosines."""
        from scipy.stats import skew

        kept = super().record
        if self.finished.result is None:
            return kept
        cosines = self.seen.final
        final = {"canaries": cosines.size, "mean": self.mean_cosine, "width": float(cosines.std(ddof=1))}
        final |= {"predicted_mean": self.predicted_cosine, "anderson_darling": self.anderson_darling()}
        final["skewness"] = float(skew(cosines))
        seen, error = self.gap(ROUNDS)
        gap = {"seen": seen, "error": error, "if_clients_were_noise": self.least_gap}
        return {**kept, "known_rounds_gap": gap, "final_cosines": final}

    @cached_property
    def seen(self) -> SeenCosines:
        """The papers' cosines: the largest over rounds, after momentum, and with the final model."""
        largest, final, root = self.pool(LARGEST), self.pool(FINAL), self.dim**0.5
        return SeenCosines(
            self.dim, largest.inserted_values * root, largest.held_out_values * root, final.inserted_values * root
        )

    def column(self, name: str) -> float:
        """One of the papers' four columns."""
        return STATISTICS[name](self.seen, self.delta)

    def standard_error(self, name: str) -> float:
        """Of a column, by drawing canaries again. Near zero, where these estimates have a kink, it is too small."""
        rng = stream(0, "standard error", name)
        values = [STATISTICS[name](self.seen.drawn_again(rng), self.delta) for _ in range(_DRAWS)]
        return float(np.std(values)) if np.isfinite(values).all() else math.inf

    @property
    def mean_cosine(self) -> float:
        """Of inserted canaries with the final model, in units of the null's width."""
        return float(self.seen.final.mean())

    @property
    def mean_cosine_error(self) -> float:
        """Its standard error over canaries."""
        return float(self.seen.final.std(ddof=1)) / math.sqrt(self.seen.final.size)

    @cached_property
    def predicted_cosine(self) -> float:
        """The mean cosine of an inserted canary with the final model, if what it added stayed there; in the same units."""
        server = self.config.server
        left = left_by_canaries(self.evidence.rounds, learning_rate=server.learning_rate, momentum=server.momentum)
        return left / self.seen.final.size / self._length * math.sqrt(self.dim)

    @property
    def _length(self) -> float:
        """Of the final model."""
        from safetensors.numpy import load_file

        return float(np.linalg.norm(load_file(self.path / "model.safetensors")["parameters"].astype(np.float64)))

    def anderson_darling(self) -> float:
        """A* of the cosines with the final model, against a normal with their own mean and width."""
        cosines = self.seen.final
        return anderson_darling((cosines - cosines.mean()) / cosines.std(ddof=1))

    @property
    def least_gap(self) -> float:
        """What `known rounds` sees if clients' sums X_t are like noise: sqrt(m) times the mean of 1/sqrt(sigma² + |X_t|²/d).

        Over the rounds t of canaries, of which each has m; sqrt(m) of a mean is a little less than the mean of the roots.
        """
        rounds = self.evidence.rounds
        clients, canaries = (np.array([float(each[name]) for each in rounds]) for name in ("clients_norm", "canaries"))
        seen = 1 / np.sqrt(self.noise**2 + clients**2 / self.dim)
        return math.sqrt(self.config.canaries.presentations) * float(np.average(seen, weights=canaries))
