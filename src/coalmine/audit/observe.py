"""From an observed round to rows of inner products, and to the epsilon measured so far.

A row holds the round, the length of the released vector, what taking part adds to a canary's inner product, and all inner
products: with the pool, then with directions that were never to be inserted. Rows are kept in a record, and read back as
`Projections`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from coalmine import accounting
from coalmine.audit.spec import OF_THE_MODEL, AuditSpec
from coalmine.canaries import TransformCanaries
from coalmine.canaries.setup import CanarySetup
from coalmine.contracts import Array, Canaries, Description, IndexArray, Observed, Participation, Projections, State, Vector
from coalmine.estimators.anytime import anytime_interval
from coalmine.gaussian import gaussian_epsilon
from coalmine.views import (
    AIMED_VIEWS,
    ProjectionRow,
    Threat,
    Weighted,
    WhitenedRounds,
    aimed_row,
    groups_of,
    project_row,
    round_scores,
)
from coalmine.views.power import LEAST_NOISE

_HEAD = 3  # round, norm, amplitude
_RUNNING = ("residual", "mean")  # kinds whose noise is new in every round
_CLAIMS = 32  # of a run, while it goes on
_MEASURED = ("epsilon_measured", "epsilon_estimated", "epsilon_at_most")


class Record(Protocol):
    """Where an audit keeps what it saw: a run directory, or memory."""

    @property
    def path(self) -> Path | None:
        """The directory; None in memory."""

    def save(
        self, rounds: int, state: State, rows: Mapping[str, Array], event: Mapping[str, Any], *, checkpoint: bool = True
    ) -> dict[str, Any]:
        """What a finished round leaves, with its state or without; returns the line of events."""

    def rows(self, name: str) -> Array:
        """All rows of a log."""

    def has_rows(self, name: str) -> bool:
        """Whether a log has any row."""

    def events(self) -> Sequence[Mapping[str, Any]]:
        """What was recorded of every round."""

    def write(self, name: str, data: bytes) -> None:
        """A whole file."""

    def seal(self, name: str, data: bytes) -> None:
        """Fingerprints of all files, and of the last one, which comes next."""


@dataclass(frozen=True, eq=False)
class MemoryRecord:
    """A record in memory; files are kept nowhere."""

    seen: list[dict[str, Array]] = field(default_factory=list)
    recorded: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def path(self) -> None:
        """None: nothing is written."""
        return None

    def save(
        self, rounds: int, state: State, rows: Mapping[str, Array], event: Mapping[str, Any], *, checkpoint: bool = True
    ) -> dict[str, Any]:
        """What a finished round leaves."""
        line = {"round": rounds - 1, **event}
        self.seen.append(dict(rows))
        self.recorded.append(line)
        return line

    def rows(self, name: str) -> Array:
        """All rows of a log."""
        return np.stack([row[name] for row in self.seen])

    def has_rows(self, name: str) -> bool:
        """Whether a log has any row."""
        return any(name in row for row in self.seen)

    def events(self) -> Sequence[Mapping[str, Any]]:
        """What was recorded of every round."""
        return self.recorded

    def write(self, name: str, data: bytes) -> None:
        """Nothing is written."""

    def seal(self, name: str, data: bytes) -> None:
        """Nothing is written."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A group of parameters that is looked at on its own."""

    name: str
    place: slice
    norm_in_group: Array  # how long the directions are within it


@dataclass(frozen=True, eq=False)
class Recorder:
    """The views of a run, and how released vectors become rows of inner products."""

    views: tuple[Threat, ...]  # the primary one first
    setup: CanarySetup
    spare: int
    unused: Canaries | None  # further directions, for families that have no spare ones
    layers: tuple[Layer, ...]

    @staticmethod
    def of(spec: AuditSpec, setup: CanarySetup, groups: Mapping[str, slice], secret_seed: int) -> Recorder:
        """The views that a specification names, and the directions that they need."""
        canaries, unused = setup.canaries, None
        spare = min(canaries.spare, spec.unused_rows)
        views = spec.threats()
        if (setup.aim is not None) != (views[0].key in AIMED_VIEWS):
            raise ValueError(f"audit: view {views[0].key!r} does not fit these canaries: see `AuditSpec.for_family`.")
        if not canaries.spare and setup.aim is None:
            rows = min(spec.unused_rows, canaries.dim // 2)
            unused = TransformCanaries(canaries.dim, rows, secret_seed=secret_seed)
        layers: tuple[Layer, ...] = ()
        if spec.layers:
            layers = _layers(canaries, groups_of(groups), spare, unused)
        return Recorder(views, setup, spare, unused, layers)

    @property
    def canaries(self) -> Canaries:
        """The pool."""
        return self.setup.canaries

    @property
    def kinds(self) -> list[str]:
        """The kinds of vectors that are looked at in every round."""
        return sorted({view.needs for view in self.views} - set(OF_THE_MODEL))

    def rows(self, seen: Observed) -> dict[str, Array]:
        """By the name of the log, what is seen of a round."""
        if self.setup.aim is not None:
            assigned = self.setup.schedule.assigned[seen.round]
            x, ratios, gaps = aimed_row(self.setup.aim, self.canaries.count, assigned, seen)
            head = [seen.round, float(np.linalg.norm(seen.release.vector)), gaps[assigned].mean() if assigned.size else 0.0]
            return {"whitened": np.concatenate([head, x]), "ratio": np.concatenate([head, ratios])}
        release = seen.release
        vectors: dict[str, Vector] = {"mean": release.vector, "step": release.vector if seen.step is None else seen.step}
        if "residual" in self.kinds:
            vectors["residual"] = release.vector - (0.0 if seen.others is None else seen.others)
            if seen.canaries.noise is not None:
                vectors["residual"] = vectors["residual"] - seen.canaries.noise
            if self.unused is not None and seen.canaries.part is not None:
                # independent directions are not orthogonal: no canary sees another
                vectors["residual"] = vectors["residual"] - seen.canaries.part
        found = {}
        for kind in self.kinds:
            for layer in (None, *self.layers):
                row = self._see(vectors[kind], layer)
                if self.unused is not None and kind == "residual":
                    row = self._with_its_own(row, seen, layer)
                found[_log(kind, layer)] = np.concatenate([[seen.round, row.norm, seen.amplitude], row.inner])
        return found

    def kept(self, rows: Mapping[str, Array], indices: IndexArray) -> Array:
        """What came through of these canaries in a round, as a share of what they would add."""
        return np.asarray(rows["mean"][_HEAD:][indices] / rows["mean"][2])

    def _with_its_own(self, row: ProjectionRow, seen: Observed, layer: Layer | None) -> ProjectionRow:
        """Each canary alone among the noise: what it added itself is put back, and nothing of the others."""
        inner, present = row.inner.copy(), seen.canaries.indices
        own = np.zeros(0) if seen.canaries.own is None else seen.canaries.own
        inner[present] += own if layer is None else own * layer.norm_in_group[present]
        return ProjectionRow(inner, max(row.norm, LEAST_NOISE * seen.amplitude * float(np.sqrt(self.canaries.dim))))

    def projections(self, record: Record, kind: str, layer: Layer | None = None) -> Projections:
        """What was seen of all rounds."""
        table = record.rows(_log(kind, layer))
        return self._projections(kind, layer, table[:, 0].astype(np.int64), table[:, _HEAD:], table[:, 1], table[:, 2])

    def final(self, kind: str, vector: Vector, rounds: int, layer: Layer | None = None) -> Projections:
        """What is seen of the final model, or of all that training changed in it."""
        row, last = self._see(vector, layer), np.array([rounds - 1])
        return self._projections(kind, layer, last, row.inner[None], np.array([row.norm]), np.ones(1))

    def running_scores(self, record: Record, white: WhitenedRounds | None = None) -> Iterator[Weighted]:
        """By round, the standardised scores of all presentations so far, for the epsilon measured at any time."""
        kind = self._running
        if kind is not None and record.has_rows(kind):
            for row in record.rows(kind):
                yield self.running_scores_of(int(row[0]), {kind: row}, white)

    def running_scores_of(self, number: int, rows: Mapping[str, Array], white: WhitenedRounds | None = None) -> Weighted:
        """Those of one round; where noise is correlated, of rows whitened up to it, in the order of rounds."""
        kind = self._running
        if kind is None:
            return Weighted.equally(np.zeros(0))
        row = ProjectionRow(rows[kind][_HEAD:], float(rows[kind][1]))
        if white is not None:
            return white.scores(row, float(rows[kind][2]), number)
        return Weighted.equally(round_scores(row, self.setup.schedule, self.canaries, number))

    @property
    def _running(self) -> str | None:
        return next((kind for kind in _RUNNING if kind in self.kinds), None)

    def _see(self, vector: Vector, layer: Layer | None) -> ProjectionRow:
        how: dict[str, Any] = {"spare": self.spare, "unused": self.unused}
        if layer is not None:
            how |= {"group": layer.place, "norm_in_group": layer.norm_in_group}
        return project_row(self.canaries, vector, **how)

    def _projections(
        self, kind: str, layer: Layer | None, rounds: Array, inner: Array, norm: Array, amplitude: Array
    ) -> Projections:
        return Projections(
            kind=kind,
            rounds=rounds.astype(np.int64),
            inner=inner,
            norm=norm,
            amplitude=amplitude,
            pool=self.canaries.count,
            dim=self.canaries.dim if layer is None else layer.place.stop - layer.place.start,
            norm_in_group=None if layer is None else layer.norm_in_group,
            group=None if layer is None else layer.name,
        )


class RunningEpsilon:
    """What is known while a run goes on: epsilon claimed and measured so far. A round costs the same, however many there were:
    of all scores their number and their sum are kept, and claims that differ in every round are computed `_CLAIMS` times.
    """

    def __init__(self, spec: AuditSpec, description: Description, recorder: Recorder, record: Record):
        self._spec, self._description, self._recorder = spec, description, recorder
        self._claimed: dict[Participation, float] = {}
        design = description.design
        self._white = None if design is None else WhitenedRounds(design, recorder.setup.schedule)
        self._gaps = None if self._white is None else self._white.gaps()
        self._count, self._sum = 0.0, 0.0  # a score counts 1, or by how much its row should show
        for scores in recorder.running_scores(record, self._white):
            self._add(scores)

    def after(self, number: int, rows: Mapping[str, Array]) -> dict[str, float]:
        """Epsilon claimed for a canary, and measured at any time, after this round.

        Measured are a lower bound, an estimate and an upper bound, each bound at all times at once with the confidence of the
        audit, under a Gaussian shape.
        """
        self._add(self._recorder.running_scores_of(number, rows, self._white))
        found = {"epsilon_claimed": self._claim_after(number + 1)}
        if self._count:
            low, high = anytime_interval(self._count, self._sum, self._spec.confidence)
            gaps = np.maximum([low, self._sum / self._count, high], 0.0)
            found |= zip(_MEASURED, gaussian_epsilon(0.0, 1.0, gaps, 1.0, self._spec.delta).tolist(), strict=True)
        return {name: value for name, value in found.items() if np.isfinite(value)}

    def _add(self, scores: Weighted) -> None:
        self._count += scores.information
        self._sum = float(np.cumsum(np.concatenate([[self._sum], scores.values]))[-1])  # in order, as `anytime_gaps` does

    def _claim_after(self, done: int) -> float:
        """The claim for a canary whose rounds are known, as they are to what is measured, had the run ended here.

        NaN where it would be another one in every round and this is none of those that are looked at.
        """
        if self._description.noise is None:
            return float("inf")
        schedule = self._recorder.setup.schedule
        if self._gaps is not None:
            moved = accounting.MOVED["replace-one" if self._recorder.setup.replace else "add-or-remove-one"]
            gap = moved * float(self._gaps[done - 1]) / max(self._description.noise.accounted, np.finfo(float).tiny)
            return float(gaussian_epsilon(0.0, 1.0, gap, 1.0, self._spec.delta))
        pattern = schedule.pattern.until(done, schedule.rounds)
        every = -(-schedule.rounds // _CLAIMS)
        if pattern not in self._claimed and done % every and done != schedule.rounds and len(self._claimed) > 1:
            return float("nan")
        if pattern not in self._claimed:
            relation = "replace-one" if self._recorder.setup.replace else None
            claim = accounting.claim_of(
                self._description, pattern, delta=self._spec.delta, relation=relation, rounds_known=True, rounds=schedule.rounds
            )
            self._claimed[pattern] = claim.epsilon
        return self._claimed[pattern]


def in_words(record: Mapping[str, Any], accuracy: float | None = None) -> str:
    """A round for the progress bar; `accuracy` is that of the last evaluation."""
    parts = [f"loss {record['training_loss']:.3g}"] if record.get("training_loss") is not None else []
    if accuracy is not None:
        parts.append(f"accuracy {100 * accuracy:.1f}%")
    parts.append(f"clip {record['clip_norm']:.3g}")
    if "epsilon_claimed" in record:
        parts.append(f"ε claimed {record['epsilon_claimed']:.3g}")
    if record.get("epsilon_estimated") is not None:  # the verdict's "about"; its "at least" is another number
        parts.append(f"about {record['epsilon_estimated']:.3g}")
    return " · ".join(parts)


def with_schedule(recorder: Recorder, setup: CanarySetup) -> Recorder:
    """The same with canaries that took part in other rounds than was planned: an engine decided about that."""
    return replace(recorder, setup=setup)


def _log(kind: str, layer: Layer | None) -> str:
    return kind if layer is None else f"{kind}@{layer.place.start}"


def _layers(canaries: Canaries, groups: Mapping[str, slice], spare: int, unused: Canaries | None) -> tuple[Layer, ...]:
    places = list(groups.values())
    lengths = canaries.norms(places, spare=spare) / canaries.norm
    if unused is not None:
        lengths = np.concatenate([lengths, unused.norms(places) / unused.norm], axis=1)
    return tuple(Layer(name, place, norms) for (name, place), norms in zip(groups.items(), lengths, strict=True))
