"""The table of scores: one number per canary, whoever produced it.

`Scores` is a small table. Everything before it (training, canaries, views) only has to fill it; everything after it (estimates,
bounds, verdict) only reads it. Higher scores must mean "more likely inserted".
"""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine import _validate, renamed, score_files
from coalmine.contracts import Array, Game, Null, from_plain, plain
from coalmine.errors import AuditError, InputFileError, NonFiniteError, NotEnoughCanariesError
from coalmine.nulls import CosineNull, as_cosine, describe, described, is_maximum, of_one_round

ASSIGNMENTS = ("coins", "fixed", "unknown")
COMBINED = ("sum", "maximum", "likelihood-ratio")
_ABOUT = (
    "assignment",
    "dim",
    "statistic",
    "combined",
    "view",
    "layer",
)  # what a saved file says about its scores, beside null and game


@dataclass(frozen=True, eq=False)
class Scores:
    """Canary scores, and which of the canaries took part.

    `assignment` says how it was decided who takes part: "coins" (each by its own fair coin), "fixed" or "unknown".
    `null` is the law of a held-out score where one is known; without it the held-out scores speak for themselves.
    `combined` says how several rounds became one score: by a "sum" (or there was one round), by their "maximum", or by a
    "likelihood-ratio". Only sums are shifted normals.

    Args:
        value: One number for each canary: higher means more likely inserted.
        inserted: Whether it took part.
        labels: Columns beside them, as round or run.
        assignment: "coins", "fixed" or "unknown".
        null: The law of a held-out score, if one is known.
        dim: Dimensions of the directions, if scores are cosines.
        statistic: What was computed, for people.
        combined: "sum", "maximum" or "likelihood-ratio".
        view: A key of `coalmine.views.VIEWS`, or your own words.
        layer: The parameters that were looked at; None: all.
        game: Who is protected from whom.
    """

    value: Array
    inserted: NDArray[np.bool_]
    labels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    assignment: str = "unknown"
    null: Null | None = None
    dim: int | None = None
    statistic: str = "score"  # in words, for people
    combined: str = "sum"
    view: str = "unstated"  # a key of `coalmine.views.VIEWS`, or somebody's own words
    layer: str | None = None  # the group of parameters that was looked at; None: all
    game: Game = field(default_factory=Game)

    def __post_init__(self) -> None:
        _validate.one_of("assignment", self.assignment, ASSIGNMENTS)
        _validate.one_of("combined", self.combined, COMBINED)
        if self.dim is not None:
            object.__setattr__(self, "dim", _validate.whole("dim", self.dim, least=2))
        value = _readonly(_finite("value", self.value))
        inserted = np.asarray(self.inserted)
        if inserted.dtype != np.bool_:
            raise ValueError(f"inserted must hold True and False, one per score; got values of type {inserted.dtype}.")
        if value.ndim != 1 or inserted.shape != value.shape:
            raise ValueError(
                f"value and inserted must be two equally long columns; got shapes {value.shape} and {inserted.shape}."
            )
        if not inserted.any():
            raise NotEnoughCanariesError("no inserted canary among the scores: an audit needs at least one.")
        self._check_range(value)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "inserted", _readonly(inserted))
        object.__setattr__(self, "labels", {name: self._label(name, column) for name, column in self.labels.items()})
        if self.null is None and self.held_out_values.size == 0:
            raise NotEnoughCanariesError(
                "nothing to compare the inserted canaries with: give held-out scores, or the law they would follow "
                "(null=..., or dim=... (--dim) if the scores are cosines with random directions)."
            )

    @classmethod
    def of(
        cls,
        inserted: ArrayLike,
        held_out: ArrayLike | None = None,
        null: Null | None = None,
        assignment: str = "unknown",
        dim: int | None = None,
    ) -> Scores:
        """Scores of canaries that took part, and of others that did not.

        With `dim` the scores are cosines with random directions of R^dim, whose exact law `CosineNull(dim)` then is the null.

        >>> Scores.of([0.31, 0.22, 0.35], dim=100).null
        CosineNull(dim=100)
        """
        took_part = np.atleast_1d(_finite("inserted", inserted))
        did_not = np.atleast_1d(_finite("held_out", [] if held_out is None else held_out))
        if took_part.ndim != 1 or did_not.ndim != 1:
            raise ValueError(f"scores must be flat columns; got shapes {took_part.shape} and {did_not.shape}.")
        if null is None and dim is not None:
            null = CosineNull(dim)
        mask = np.arange(took_part.size + did_not.size) < took_part.size
        statistic = "score" if as_cosine(null) is None else "cosine"
        value = np.concatenate([took_part, did_not])
        return cls(value, mask, assignment=assignment, null=null, dim=dim, statistic=statistic)

    @classmethod
    def from_csv(cls, path: str | Path, **about: Any) -> Scores:
        """Read a csv file; see `coalmine.score_files` for the two layouts."""
        return cls._from_columns(score_files.read_csv(path), about)

    @classmethod
    def from_npz(cls, path: str | Path, **about: Any) -> Scores:
        """Read a numpy archive with the same columns."""
        return cls._from_columns(score_files.read_npz(path), about)

    @classmethod
    def from_parquet(cls, path: str | Path, **about: Any) -> Scores:
        """Read a parquet file with the same columns (needs the extra `coalmine[parquet]`)."""
        return cls._from_columns(score_files.read_parquet(path), about)

    @classmethod
    def from_file(cls, path: str | Path, **about: Any) -> Scores:
        """Read a score file of any known format, told by its ending."""
        return cls._from_columns(score_files.read(path), about)

    @property
    def inserted_values(self) -> Array:
        """Scores of the canaries that took part."""
        return self.value[self.inserted]

    @property
    def held_out_values(self) -> Array:
        """Scores of the canaries that did not."""
        return self.value[~self.inserted]

    @property
    def maximum(self) -> bool:
        """Whether these are maxima over rounds, whichever null they have: no shifted normal describes them."""
        return is_maximum(self.null) or self.combined == "maximum"

    @property
    def likelihood_ratio(self) -> bool:
        """Whether these are likelihood ratios: no shifted normal describes them either."""
        return self.combined == "likelihood-ratio"

    @property
    def sha256(self) -> str:
        """A fingerprint of the table that does not depend on the order of its rows."""
        value = self.value + 0.0  # -0.0 sorts like 0.0, but has other bytes
        columns = [value, self.inserted, *(self.labels[name] for name in sorted(self.labels))]
        order = np.lexsort(columns[::-1])
        digest = hashlib.sha256("|".join(["value", "inserted", *sorted(self.labels)]).encode())
        for column in columns:
            digest.update(np.ascontiguousarray(column[order]).tobytes())
        return digest.hexdigest()

    def sampled(self) -> Scores:
        """The same scores with the held-out canaries as the only null."""
        return replace(self, null=None)

    def save(self, path: str | Path | BinaryIO) -> None:
        """Write a numpy archive that `Scores.from_npz` reads back, with all that the scores say about themselves."""
        about = {"null": describe(self.null), "game": plain(self.game), **{name: getattr(self, name) for name in _ABOUT}}
        columns: dict[str, Any] = {"value": self.value, "inserted": self.inserted, **self.labels}
        with Path(path).open("wb") if isinstance(path, str | Path) else nullcontext(path) as file:
            np.savez_compressed(file, about=np.array(json.dumps(about, sort_keys=True)), **columns)

    @classmethod
    def _from_columns(cls, columns: dict[str, Any], about: dict[str, Any]) -> Scores:
        """From a file's columns; what the caller says goes before what the file says about itself."""
        said = {name: value for name, value in about.items() if value is not None}
        if "null" not in said and "dim" in said:
            said["null"] = CosineNull(said["dim"])
        if as_cosine(said.get("null")) is not None:
            said.setdefault("statistic", "cosine")
        stored = dict(columns.pop("about", {}))
        if stored:
            stored.setdefault("combined", renamed.combined(stored.get("statistic")))
            if "layer" not in stored:  # a file of the first version, which named views in words
                stored["view"], stored["layer"] = renamed.view(str(stored.get("view", "unstated")))
                stored["game"] = renamed.game(stored.get("game"))
            try:
                stored["null"], stored["game"] = described(stored["null"]), from_plain(Game, stored["game"], "game")
            except (ValueError, TypeError) as error:
                raise InputFileError(f"what the file says about its scores cannot be read: {error}") from None
        return cls(**columns, **{**stored, **said})

    def _check_range(self, value: Array) -> None:
        """Scores that the null law cannot produce are a mistake, not a leak."""
        largest = float(np.abs(value).max(initial=0.0))
        law = None if self.null is None else of_one_round(self.null)
        if as_cosine(law) is not None and largest > 1 + 1e-6:
            raise AuditError(
                f"the scores are not cosines: they reach {largest:.4g}, a cosine lies between -1 and 1. "
                "Divide by both norms, or leave out dim and give held-out scores."
            )

    def _label(self, name: str, column: ArrayLike) -> NDArray[np.int64]:
        _validate.one_of("label", name, score_files.LABELS)
        array = np.asarray(column)
        if array.shape != self.value.shape:
            raise ValueError(f"{name} must have one entry per score ({self.value.size}); got shape {array.shape}.")
        whole = score_files.whole_numbers(array)
        if whole is None:
            raise ValueError(f"{name} must hold whole numbers.")
        frozen: NDArray[np.int64] = _readonly(whole)
        return frozen


def independent_scores(scores: object) -> Scores:
    """The scores, if no canary has two of them in one run: several rows of one canary are not independent evidence.

    Frozen replicates are: there each row has a coin, a cohort and noise of its own.
    """
    if not isinstance(scores, Scores):
        raise TypeError(f"scores must be a table, as Scores.of(inserted, held_out) makes; got {type(scores).__name__}.")
    if "canary" in scores.labels:
        canary = scores.labels["canary"]
        replicates = "replicate" in scores.labels and "round" in scores.labels and scores.assignment == "coins"
        keys = ("run", "round", "replicate") if replicates else ("run",)
        columns = [scores.labels.get(name, np.zeros_like(canary)) for name in keys]
        distinct = np.unique(np.stack([*columns, canary]), axis=1).shape[1]
        if distinct < canary.size:
            raise AuditError(
                f"{canary.size} scores of {distinct} canaries: this statement needs one number per canary. "
                "Combine the rounds or replicates of a canary first, by their sum say; the anytime bound takes them one by one."
            )
    return scores


def _finite(name: str, value: ArrayLike) -> Array:
    try:
        if np.iscomplexobj(value) or np.ma.is_masked(value):  # numpy would drop the imaginary part, or the mask
            raise ValueError
        with np.errstate(over="ignore"):
            array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must hold numbers only.") from None
    bad = ~np.isfinite(array)
    if bad.any():
        places = ", ".join(str(place) for place in np.flatnonzero(bad)[:3])
        more = ", ..." if bad.sum() > 3 else ""
        raise NonFiniteError(
            f"{name} contains {int(bad.sum())} NaN or infinite scores (positions {places}{more}). "
            "An audit after a NaN is meaningless, so nothing was computed: find the release or the score that was not finite."
        )
    return array


def _readonly(array: Any) -> Any:
    array = np.array(array)
    array.flags.writeable = False
    return array
