"""Finished runs: what they recorded, and what each view says of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import renamed
from coalmine.contracts import Array, Attendance, LowerBound, PointEstimate
from coalmine.contracts.sentences import view_name
from coalmine.errors import RunDirectoryError
from coalmine.estimators.band import bound_band
from coalmine.estimators.diagnostics import anderson_darling, anderson_p_value
from coalmine.estimators.gaussian_fit import Variance, estimate_gaussian, standardise
from coalmine.gaussian import gaussian_epsilon
from coalmine.report.evidence import Evidence
from coalmine.result import AuditResult
from coalmine.runs import RunDirectory
from coalmine.scores import Scores
from coalmine.training import RunResult, resume
from coalmine.training.config import Config, parse_config
from coalmine.training.facts import diverged

# Documents of this schema name views in the words of the first version, so that a run that is made again gives the document
# that is published.
_IN_DOCUMENTS = {key: words for words, key in renamed.VIEWS.items()}
_RECORDED = (
    "model",
    "parameters",
    "users",
    "rounds",
    "participation",
    "accuracy",
    "accuracy_error",
    "baseline_accuracy",
    "loss",
    "mean_clients",
    "mean_canary_share",
    "mean_unclipped_clients",
    "mean_clients_norm",
    "config_sha256",
    "model_sha256",
)
_AT_95, _SURE = 1.96, 6.0  # standard errors of a 95 % interval, and the largest that are told apart
_STEP = 1e-3  # of mean and width, for derivatives


def seconds_of(runs: Iterable[TrainedRun]) -> int:
    """How long the rounds of all these runs took, whenever they were made."""
    return round(sum(run.seconds for run in runs))


def records(runs: Iterable[TrainedRun]) -> dict[str, dict[str, Any]]:
    """By name, what is behind the numbers: for the JSON document of an experiment."""
    return {run.path.name: run.record for run in runs}


@dataclass(frozen=True)
class TrainedRun:
    """A finished run. Views are named by their keys (`coalmine.views.VIEWS`), and are of everything, not of a layer."""

    path: Path

    @cached_property
    def finished(self) -> RunResult:
        """What it left."""
        return resume(self.path)

    @cached_property
    def evidence(self) -> Evidence:
        """Its scores."""
        return Evidence.of(self.path)

    @cached_property
    def config(self) -> Config:
        """What it was told, in the names of today."""
        return parse_config(RunDirectory.open(self.path).config, quiet=True)

    @property
    def result(self) -> AuditResult:
        """Its audit."""
        found = self.finished.result
        if found is None:
            raise ValueError(f"{str(self.path)!r} had no canaries.")
        return found

    @property
    def noise(self) -> float:
        """The noise multiplier that was asked for."""
        return float(self.config.mechanism.options["noise_multiplier"])

    @property
    def adaptive(self) -> bool:
        """Whether its clip norm followed the updates."""
        return self.config.mechanism.kind == "adaptive"

    @property
    def delta(self) -> float:
        """Of all its statements."""
        return self.result.bound.delta

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return int(self.finished.training["parameters"])

    @property
    def accuracy(self) -> tuple[float, float]:
        """(accuracy, standard error over clients)."""
        training = self.finished.training
        return float(training["accuracy"]), float(training["accuracy_error"])

    @property
    def baseline(self) -> float:
        """The accuracy of always saying the most frequent."""
        return float(self.finished.training["baseline_accuracy"])

    @property
    def learned(self) -> bool:
        """Whether it predicts better than always the most frequent, by two standard errors."""
        accuracy, error = self.accuracy
        return accuracy > self.baseline + 2 * error

    @property
    def diverged(self) -> bool:
        """Whether it ended worse than it began."""
        return diverged(RunDirectory.open(self.path).events(), adaptive=self.adaptive) is not None

    @property
    def seconds(self) -> float:
        """How long its rounds took."""
        return sum(float(event["seconds"]) for event in RunDirectory.open(self.path).events() if "seconds" in event)

    @property
    def clip_norms(self) -> list[float]:
        """Of the first round, and of the last."""
        return [self._clip_norms[place] for place in (0, -1)]

    @cached_property
    def _clip_norms(self) -> list[float]:
        events = RunDirectory.open(self.path).events()
        return [float(event["clip_norm"]) for event in events if "clip_norm" in event]

    @property
    def record(self) -> dict[str, Any]:
        """What it trained, how well, and what each view says of it."""
        training = self.finished.training
        kept: dict[str, Any] = {"noise": self.noise, "presentations": self.config.canaries.presentations}
        kept |= {"adaptive_clipping": self.adaptive, "clip_norms": self.clip_norms}
        kept["largest_clip_norm"] = max(self._clip_norms)
        kept |= {name: training.get(name) for name in _RECORDED} | {"seconds": round(self.seconds)}
        kept["participation"] = _how_often(training["participation"])
        if self.finished.result is None:
            return {**kept, "presentations": 0}
        said = {}
        for view in (self.result.setting["view"], *(each.view for each in self.result.views if each.layer is None)):
            estimate, bound, claim = self.stated(view)
            about = (
                None if estimate is None else {name: getattr(estimate, name) for name in ("epsilon", "low", "high", "method")}
            )
            at_least = {"epsilon": bound.epsilon, "method": bound.method, "valid": bound.valid}
            said[_IN_DOCUMENTS.get(view, view)] = {"estimate": about, "bound": at_least, "claim": claim}
        return {**kept, "delta": self.delta, "views": said}

    def scores(self, view: str) -> Scores:
        """The scores of a view."""
        found = self.evidence.scores.get((view, None))
        if found is None:
            name = view_name(view)
            raise RunDirectoryError(f"{str(self.path)!r} has no scores of {name!r} any more. Remove it, and it is made again.")
        return found

    def pool(self, view: str) -> Scores:
        """The scores of the pool in a view, without directions that were never to be inserted."""
        scores = self.scores(view)
        keep = scores.labels["canary"] < self.config.canaries.pool
        return Scores.of(scores.value[keep & scores.inserted], scores.value[keep & ~scores.inserted])

    def stated(self, view: str) -> tuple[PointEstimate | None, LowerBound, float]:
        """(estimate, valid bound, claim) of a view.

        With noise the estimate is by the mean alone in every run, so that runs can be compared; without noise, where canaries
        stand out unequally, it is by mean and width. An audit chooses by a test, and says which one.
        """
        result = self.result
        if result.setting["view"] == view:
            estimate, bound, claim = result.estimate, result.bound, result.claim
        else:
            beside = next(each for each in result.views if (each.view, each.layer) == (view, None))
            estimate, bound, claim = beside.estimate, beside.bound, beside.claim
        scores = self.evidence.scores.get((view, None))
        if estimate is not None and scores is not None and not scores.maximum:
            variance: Variance = "null" if self.noise else "fitted"
            estimate = estimate_gaussian(scores, delta=estimate.delta, variance=variance, confidence=estimate.confidence)
        return estimate, bound, claim.epsilon if claim is not None else float("inf")

    def error(self, view: str) -> float:
        """Standard error of what `stated` estimates."""
        estimate, _, _ = self.stated(view)
        if estimate is None or not math.isfinite(estimate.high):
            return math.nan
        if not self.noise:
            return linear_error(estimate, *standardise(self.scores(view)))
        above = (estimate.high - estimate.epsilon) / _AT_95
        return above if estimate.low == 0 else (estimate.high - estimate.low) / 2 / _AT_95  # below zero it is cut off

    def beyond(self, view: str) -> float:
        """How sure it is that a bound is above its claim, in standard errors of a normal; -inf if it is not above."""
        _, bound, claim = self.stated(view)
        if bound.epsilon <= claim:
            return -math.inf
        scores, sure = self.scores(view), _AT_95
        while sure < _SURE and bound_band(scores, delta=bound.delta, confidence=math.erf(sure / math.sqrt(2))).epsilon > claim:
            sure += 0.1
        return sure

    def gap(self, view: str) -> tuple[float, float]:
        """(mean of inserted scores in units of the null, its standard error)."""
        scores, null = standardise(self.scores(view))
        mean, error = float(scores.mean()), float(scores.std(ddof=1)) / math.sqrt(scores.size)
        return mean, math.sqrt(error**2 + (1 / null + mean**2 / (2 * null) if null else 0.0))

    def normality(self, view: str) -> float:
        """The p-value of Anderson and Darling for the scores of inserted canaries."""
        scores, _ = standardise(self.scores(view))
        return anderson_p_value(anderson_darling((scores - scores.mean()) / scores.std(ddof=1)))


def linear_error(estimate: PointEstimate, scores: Array, null: int | None) -> float:
    """Of mean and width by their derivatives, for scores of any shape; `null` is how many scores their unit comes from."""
    from scipy.stats import kurtosis, skew

    at = np.array([estimate.details["mean"], estimate.details["std"]])
    if not at.all():
        return math.nan
    unit, crossed = (1 / (2 * null) if null else 0.0), float(skew(scores)) / 2
    shape = np.array([[1.0, crossed], [crossed, (float(kurtosis(scores, fisher=False)) - 1) / 4]])
    covariance = at[1] ** 2 / scores.size * shape + unit * np.outer(at, at)
    covariance[0, 0] += 2 * unit
    steps = _STEP * np.diag(at)
    (means, widths), (less, narrower) = at[:, None] + steps, at[:, None] - steps
    above, below = (
        gaussian_epsilon(0.0, 1.0, mean, width, estimate.delta) for mean, width in ((means, widths), (less, narrower))
    )
    slopes = np.asarray(above - below) / (2 * _STEP * at)
    return float(np.sqrt(slopes @ covariance @ slopes))


def _how_often(stored: Any) -> str:
    """How clients took part, in words; the first version kept the words themselves."""
    return str(Attendance(**stored)) if isinstance(stored, Mapping) else str(stored)
