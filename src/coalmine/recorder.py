"""What the canaries look at in a run: a row of inner products for every round, read back as
`Projections`.

A row holds the round, the length of the released vector, what taking part adds to a canary's inner product, and all inner
products: with the pool, then with directions that were never to be inserted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from coalmine import accounting
from coalmine.canaries import TransformCanaries
from coalmine.config import Audit, Config
from coalmine.contracts import Array, Canaries, Projections, Vector
from coalmine.estimators.anytime import anytime_gaps
from coalmine.federation import CanarySetup, Federation, Round
from coalmine.gaussian import gaussian_epsilon
from coalmine.participation import FixedSize, MinSeparation, Participation, Poisson, Repeated
from coalmine.runs import RunDirectory
from coalmine.views import (
    VIEWS,
    Afterwards,
    EveryRelease,
    FinalModel,
    ProjectionRow,
    UnknownRounds,
    View,
    groups_of,
    project_row,
    round_scores,
)

_HEAD = 3  # round, norm, amplitude
_LEAST_NOISE = 1e-3  # of what else is in a vector: less is the rounding of single precision
_STANDARD_ERRORS = 5.0  # of the squared length of noise
_RUNNING = ("residual", "mean")  # kinds whose noise is new in every round
_MEASURED = ("epsilon_measured", "epsilon_estimated", "epsilon_at_most")
_FINAL = ("total_change", "model")  # kinds that exist once, at the end


class Rows(Protocol):
    """Where rows of sightings are kept, as in a run directory."""

    def rows(self, name: str) -> Array:
        """All rows of a log."""


class Trained(Protocol):
    """What an audit must know of a training: a `Federation`, or an application that another engine runs."""

    @property
    def rounds(self) -> int:
        """The number of rounds."""

    @property
    def noise_multiplier(self) -> float:
        """Noise on the sum of updates, in clip norms, all that is released taken together."""

    @property
    def initial(self) -> Vector:
        """The parameters before the first round."""

    @property
    def canary_setup(self) -> CanarySetup | None:
        """The canaries."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A group of parameters that is looked at on its own."""

    name: str
    place: slice
    norm_in_group: Array  # how long the directions are within it


@dataclass(frozen=True, eq=False)
class Recorder:
    """The views of a run, and how released vectors become rows of sightings."""

    views: tuple[View, ...]  # the primary one first
    canary_setup: CanarySetup
    dim: int
    spare: int
    unused: Canaries | None  # further directions, for families that have no spare ones
    layers: tuple[Layer, ...]
    kept_share: float | None = None  # of a canary, on average, where an unknown strategy may keep less of it: measured

    @staticmethod
    def of(config: Config, job: Federation, secret_seed: int) -> Recorder:
        """The views that a configuration names, and the directions that they need."""
        if job.canary_setup is None:
            raise ValueError("a run without canaries has nothing to look for.")
        return Recorder.among(config, job.canary_setup, job.model.groups, secret_seed)

    @staticmethod
    def among(config: Config, canary_setup: CanarySetup, groups: Mapping[str, slice], secret_seed: int) -> Recorder:
        """The same for canaries and parameter groups of any training."""
        canaries, wanted = canary_setup.canaries, config.audit.unused_rows
        dim, unused = canaries.dim, None
        spare = min(canaries.spare, wanted)
        if not canaries.spare:
            unused = TransformCanaries(dim, min(wanted, dim // 2), secret_seed=secret_seed)
        layers: tuple[Layer, ...] = ()
        if config.audit.layers:
            layers = _layers(canaries, groups_of(groups), spare, unused)
        return Recorder(_views(config.audit, config), canary_setup, dim, spare, unused, layers)

    @property
    def canaries(self) -> Canaries:
        """The pool."""
        return self.canary_setup.canaries

    @property
    def _kinds(self) -> list[str]:
        return sorted({view.needs for view in self.views} - set(_FINAL))

    def rows(self, finished: Round) -> dict[str, Array]:
        """By the name of the log, what is seen of a round."""
        release = finished.release
        vectors: dict[str, Vector] = {"mean": release.vector, "step": finished.step}
        if "residual" in self._kinds:
            vectors["residual"] = release.vector - finished.others
        amplitude = release.clip_norm / release.denominator
        if (
            self.unused is not None and "residual" in vectors
        ):  # independent directions are not orthogonal: no canary sees another
            vectors["residual"] = vectors["residual"] - finished.taking_part.part
        found = {}
        for kind in self._kinds:
            for layer in (None, *self.layers):
                seen = self._see(vectors[kind], layer)
                if self.unused is not None and kind == "residual":
                    seen = self._with_its_own(seen, finished, layer, amplitude)
                found[_log(kind, layer)] = np.concatenate([[finished.number, seen.norm, amplitude], seen.inner])
        return found

    def _with_its_own(self, seen: ProjectionRow, finished: Round, layer: Layer | None, amplitude: float) -> ProjectionRow:
        """Each canary alone among the noise: what it added itself is put back, and nothing of the others."""
        inner, taking_part = seen.inner.copy(), finished.taking_part
        inner[taking_part.indices] += (
            taking_part.own if layer is None else taking_part.own * layer.norm_in_group[taking_part.indices]
        )
        return ProjectionRow(inner, max(seen.norm, _LEAST_NOISE * amplitude * float(np.sqrt(self.dim))))

    def visible(self, view: View, records: Sequence[Mapping[str, Any]], noise: float, delta: float) -> Callable[[float], float]:
        """The epsilon that a view's canaries would show, were the noise too small by a factor: closed form, from the records.

        In clip norms, a canary adds min(over_long, 1) in each of its rounds. It is hidden by the noise, and from whoever does
        not know them by the clients' sum X_t and, among independent directions, by the k_t other canaries:
        sigma² + (|X_t|² + k_t)/d. What a final model hides has no closed form for every server. Neither has the power of a
        largest cosine over rounds, where a canary's own rounds compete with all others, nor that of a likelihood ratio. Nothing
        is promised for these.
        """
        if isinstance(view, (FinalModel, EveryRelease, UnknownRounds)):
            return lambda factor: 0.0
        if view.needs != "residual" and not all("clients_norm" in record for record in records):
            return self._visible_among_unknown_clients(records, noise, delta)
        kept, schedule = min(self.canary_setup.over_long, 1.0), self.canary_setup.schedule
        canaries = np.array([record["canaries"] for record in records]) / self.dim
        hidden = _LEAST_NOISE**2 * (canaries + noise**2)
        if view.needs != "residual":
            hidden += np.square([record["clients_norm"] for record in records]) / self.dim
            hidden += canaries if self.unused is not None else 0.0
        released = [record.get("round", place) for place, record in enumerate(records)]  # a failed round shows nothing
        presence = schedule.presence[released][:, schedule.times > 0].astype(np.float64)

        def epsilon(factor: float) -> float:
            squares = kept**2 / ((noise / factor) ** 2 + hidden)
            if isinstance(view, Afterwards):  # equal weights from the first round on, and the canary is in its own only
                looked_at = view.looked_at(presence > 0).astype(np.float64)
                effect = float(np.mean(np.sqrt(squares) @ presence / np.sqrt(looked_at.sum(axis=0))))
            else:
                effect = float(np.sqrt(squares @ presence).mean())
            return float(gaussian_epsilon(0.0, 1.0, effect, 1.0, delta))

        return epsilon

    def _visible_among_unknown_clients(
        self, records: Sequence[Mapping[str, Any]], noise: float, delta: float
    ) -> Callable[[float], float]:
        """The same where nobody knows the clients' sums X_t: they may point the same way in all of a canary's rounds.

        A row of g releases (one, as a rule) holds the canary g times, noise of variance g sigma² and clients. Rows count with
        g/s², s² = g sigma² + |X|²/d, so that the score of a canary has

            mean       sum of g²/s²
            variance   sum of g sigma² g²/s⁴  +  (sum of |X| g/s²)²/d          all clients in one direction, in all rounds

        For T rounds alike that is T/(sigma² + T |X|²/d), as a square of signal to noise. What an unknown strategy keeps of a
        canary is measured, since an optimiser on the server may shrink it. Releases that are shorter than their noise alone are
        not what was stated: nothing is promised about them.
        """
        if _too_short(records, noise, self.dim):
            return lambda factor: 0.0
        came = self.kept_share
        if came is None:
            came = float(np.mean([record.get("kept_share", 0.0) for record in records]))
        kept, schedule = min(self.canary_setup.over_long, max(came, 0.0), 1.0), self.canary_setup.schedule
        released = [record.get("round", place) for place, record in enumerate(records)]
        presence = schedule.presence[released][:, schedule.times > 0].astype(np.float64)
        spans = _spans(records)
        rounding = _LEAST_NOISE**2 * (np.array([record["canaries"] for record in records]) / self.dim + noise**2)

        def epsilon(factor: float) -> float:
            clients = norms_of_unknown_clients(records, noise, self.dim, factor)
            own = spans * (noise / factor) ** 2 + rounding
            weights = spans / (own + clients**2 / self.dim)
            mean, variance = (weights * spans) @ presence, (weights**2 * own) @ presence
            variance += ((weights * clients) @ presence) ** 2 / self.dim
            effects = np.divide(kept * mean, np.sqrt(variance), out=np.zeros_like(mean), where=variance > 0)
            return float(gaussian_epsilon(0.0, 1.0, float(effects.mean()), 1.0, delta))

        return epsilon

    def projections(self, record: Rows, kind: str, layer: Layer | None = None) -> Projections:
        """What was seen of all rounds."""
        table = record.rows(_log(kind, layer))
        return self._sightings(kind, layer, table[:, 0].astype(np.int64), table[:, _HEAD:], table[:, 1], table[:, 2])

    def final(self, kind: str, vector: Vector, rounds: int, layer: Layer | None = None) -> Projections:
        """What is seen of the final model, or of all that training changed in it."""
        seen, last = self._see(vector, layer), np.array([rounds - 1])
        return self._sightings(kind, layer, last, seen.inner[None], np.array([seen.norm]), np.ones(1))

    def running_scores(self, directory: RunDirectory) -> Array:
        """The standardised scores of all presentations so far, for the epsilon measured at any time."""
        kind = self._running
        if kind is None or not directory.has_rows(kind):
            return np.zeros(0)
        table = directory.rows(kind)
        return np.concatenate([self.running_scores_of(int(row[0]), {kind: row}) for row in table])

    def running_scores_of(self, number: int, rows: Mapping[str, Array]) -> Array:
        """Those of one round."""
        kind = self._running
        if kind is None:
            return np.zeros(0)
        seen = ProjectionRow(rows[kind][_HEAD:], float(rows[kind][1]))
        scores: Array = round_scores(seen, self.canary_setup.schedule, self.canaries, number)
        return scores

    @property
    def _running(self) -> str | None:
        return next((kind for kind in _RUNNING if kind in self._kinds), None)

    def _see(self, vector: Vector, layer: Layer | None) -> ProjectionRow:
        if layer is None:
            return project_row(self.canaries, vector, spare=self.spare, unused=self.unused)
        return project_row(
            self.canaries, vector, spare=self.spare, unused=self.unused, group=layer.place, norm_in_group=layer.norm_in_group
        )

    def _sightings(
        self, kind: str, layer: Layer | None, rounds: Array, inner: Array, norm: Array, amplitude: Array
    ) -> Projections:
        return Projections(
            kind=kind,
            rounds=rounds.astype(np.int64),
            inner=inner,
            norm=norm,
            amplitude=amplitude,
            pool=self.canaries.count,
            dim=self.dim if layer is None else layer.place.stop - layer.place.start,
            norm_in_group=None if layer is None else layer.norm_in_group,
            group=None if layer is None else layer.name,
        )


class Running:
    """What is known while a run goes on: epsilon claimed and measured so far."""

    def __init__(self, config: Config, job: Trained, recorder: Recorder | None, directory: RunDirectory | None):
        self._config, self._job, self._watch = config, job, recorder
        self._scores: Array = recorder.running_scores(directory) if recorder and directory else np.zeros(0)
        self._claimed: dict[Participation, float] = {}

    def after(self, finished: Round, rows: Mapping[str, Array]) -> dict[str, float]:
        """Epsilon claimed for a canary, and measured at any time, after this round.

        Measured are a lower bound, an estimate and an upper bound, each bound at all times at once with the confidence of the
        audit, under a Gaussian shape.
        """
        if self._watch is None:
            return {}
        self._scores = np.concatenate([self._scores, self._watch.running_scores_of(finished.number, rows)])
        found = {"epsilon_claimed": self._claim_after(finished.number + 1)}
        if self._scores.size:
            confidence = self._config.audit.confidence
            low, high = (sign * anytime_gaps(sign * self._scores, confidence)[-1] for sign in (1, -1))
            gaps = np.maximum([low, self._scores.mean(), high], 0.0)
            found |= zip(_MEASURED, gaussian_epsilon(0.0, 1.0, gaps, 1.0, self._config.privacy.delta).tolist(), strict=True)
        return {name: value for name, value in found.items() if np.isfinite(value)}

    def in_words(self, record: Mapping[str, Any]) -> str:
        """For the progress bar."""
        parts = [f"loss {record['training_loss']:.3g}"] if record.get("training_loss") is not None else []
        self._accuracy = record.get("accuracy", getattr(self, "_accuracy", None))
        if self._accuracy is not None:
            parts.append(f"accuracy {100 * self._accuracy:.1f}%")
        parts.append(f"clip {record['clip_norm']:.3g}")
        if "epsilon_claimed" in record:
            parts.append(f"ε claimed {record['epsilon_claimed']:.3g}")
        if "epsilon_measured" in record:
            parts.append(f"measured ≥ {record['epsilon_measured']:.3g}")
        return " · ".join(parts)

    def _claim_after(self, rounds: int) -> float:
        """The claim for a canary whose rounds are known, as they are to what is measured, had the run ended here."""
        canary_setup = self._job.canary_setup
        if canary_setup is None:
            return 0.0
        pattern: Participation = canary_setup.schedule.pattern
        if isinstance(pattern, Repeated):
            pattern = Repeated(max(1, -(-pattern.times * rounds // self._job.rounds)))
        elif isinstance(pattern, (Poisson, FixedSize, MinSeparation)):
            pattern = replace(pattern, rounds=rounds)
        if pattern not in self._claimed:
            noise, delta = self._job.noise_multiplier, self._config.privacy.delta
            relation: accounting.Relation | None = "replace-one" if canary_setup.replace else None
            claim = accounting.claim(pattern, noise_multiplier=noise, delta=delta, relation=relation, rounds_known=True)
            self._claimed[pattern] = claim.epsilon
        return self._claimed[pattern]


def norms_of_unknown_clients(records: Sequence[Mapping[str, Any]], noise: float, dim: int, factor: float = 1.0) -> Array:
    """Norms of the clients' sums that nobody knows, in clip norms, were the noise too small by a factor.

    With the noise that is stated, clients are what noise and canaries leave of a release. With less noise they may be more:
    its length does not tell one from the other. Then they are at most all of the rest, and at most all in one direction.
    """
    spans, squares = _spans(records), _squares(records)
    canaries, clients = (np.array([record[name] for record in records]) for name in ("canaries", "clients"))
    stated, lacking = (
        np.maximum(squares - spans * (noise / much) ** 2 * dim - spans**2 * canaries, 0.0) for much in (1.0, factor)
    )
    return np.asarray(np.sqrt(np.maximum(stated, np.minimum(lacking, (spans * clients) ** 2))))


def _too_short(records: Sequence[Mapping[str, Any]], noise: float, dim: int) -> bool:
    """Whether some release is shorter than its noise alone, by more than chance."""
    least = 1 - _STANDARD_ERRORS * np.sqrt(2 / dim)
    return bool((_squares(records) < least * _spans(records) * noise**2 * dim).any())


def _squares(records: Sequence[Mapping[str, Any]]) -> Array:
    """Squared lengths of what was released, as sums and in clip norms."""
    return np.square([record["release_norm"] * record["denominator"] / record["clip_norm"] for record in records])


def _spans(records: Sequence[Mapping[str, Any]]) -> Array:
    """How many releases each record is of."""
    return np.array([float(record.get("releases", 1)) for record in records])


def _log(kind: str, layer: Layer | None) -> str:
    return kind if layer is None else f"{kind}@{layer.place.start}"


def _views(config: Audit, whole: Config) -> tuple[View, ...]:
    """The views by their names, the primary one first, then the papers' variants if asked for."""
    relation = "replace-one" if whole.canaries.replace_clients else None
    game: dict[str, Any] = {"unit": whole.privacy.unit, "relation": relation}
    made: dict[str, View] = {name: kind(**game) for name, kind in VIEWS.items()}
    names = [config.view, *(name for name in config.views if name != config.view)]
    papers = (FinalModel(**game, whole_model=True), EveryRelease(**game, post_momentum=True)) if config.paper_views else ()
    return (*(made[name] for name in dict.fromkeys(names)), *papers)


def _layers(canaries: Canaries, groups: Mapping[str, slice], spare: int, unused: Canaries | None) -> tuple[Layer, ...]:
    places = list(groups.values())
    lengths = canaries.norms(places, spare=spare) / canaries.norm
    if unused is not None:
        lengths = np.concatenate([lengths, unused.norms(places) / unused.norm], axis=1)
    return tuple(
        Layer(name, place, norm_in_group) for (name, place), norm_in_group in zip(groups.items(), lengths, strict=True)
    )
