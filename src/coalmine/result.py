"""`AuditResult`: everything an audit says, printable, and the same on disk (JSON, schema v1).

The file holds no time, host or path, so that equal audits have equal files. Infinity is written as the string "inf";
NaN does not occur.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from coalmine.contracts import Claim, Game, LowerBound, PointEstimate, Verdict, plain
from coalmine.errors import InputFileError
from coalmine.estimators.power import Design

SCHEMA = "coalmine-result/1"


@dataclass(frozen=True)
class AuditResult:
    """Claim, estimates, bounds and verdict of one audit, with the setting they hold in; the primary ones come first."""

    bounds: tuple[LowerBound, ...]
    estimates: tuple[PointEstimate, ...]
    claim: Claim | None
    verdict: Verdict | None
    method: str  # name of the primary bound in `coalmine.estimators.BOUNDS`
    design: Design
    setting: Mapping[str, Any]  # statistic, view, dim, null, assignment, counts, fingerprint of the scores
    game: Game = field(default_factory=Game)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def bound(self) -> LowerBound:
        """The primary lower bound, which alone decides."""
        return self.bounds[0]

    @property
    def estimate(self) -> PointEstimate | None:
        """The headline estimate, if the view has one."""
        return self.estimates[0] if self.estimates else None

    def to_dict(self) -> dict[str, Any]:
        """As plain data: dicts, lists, strings, numbers."""
        data = {"schema": SCHEMA, **plain(self)}
        data["bounds"][0]["detectable"] = plain(self.bound.detectable)
        return data

    def to_json(self) -> str:
        """As a JSON document that `from_json` reads back."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> AuditResult:
        """Read what `to_json` wrote."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputFileError(f"not a JSON document: {error}.") from None
        found = data.get("schema") if isinstance(data, dict) else None
        if found != SCHEMA:
            raise InputFileError(f"not an audit result of schema {SCHEMA!r}: found {found!r}.")
        try:
            return _from_dict(data)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputFileError(f"not a complete audit result: {error}.") from None

    def save(self, path: str | Path) -> None:
        """Write the JSON document."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> AuditResult:
        """Read a result file, or the `result.json` of a run directory."""
        path = Path(path)
        path = path / "result.json" if path.is_dir() else path
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputFileError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}.") from None
        return cls.from_json(text)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def schema() -> dict[str, Any]:
    """The JSON schema of result files."""
    text = resources.files("coalmine").joinpath("schema/result-v1.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _from_dict(data: dict[str, Any]) -> AuditResult:
    design = Design(**_numbers(data["design"]))
    bounds = []
    for item in data["bounds"]:
        item = {key: value for key, value in _numbers(item).items() if key != "detectable"}
        bounds.append(LowerBound(**{**item, "assumptions": tuple(item["assumptions"])}))
    # what the primary bound can detect depends on the design alone, so it can still be asked about other claims
    again = design.bound(data["method"], delta=bounds[0].delta, confidence=bounds[0].confidence)
    bounds[0] = replace(bounds[0], finder=again.finder)
    claim, verdict = data["claim"], data["verdict"]
    return AuditResult(
        bounds=tuple(bounds),
        estimates=tuple(PointEstimate(**{**_numbers(item), "flags": tuple(item["flags"])}) for item in data["estimates"]),
        claim=None
        if claim is None
        else Claim(**{**_numbers(claim), "game": Game(**claim["game"]), "assumptions": tuple(claim["assumptions"])}),
        verdict=None if verdict is None else Verdict(**_numbers(verdict)),
        design=design,
        game=Game(**data["game"]),
        caveats=tuple(data["caveats"]),
        **{name: data[name] for name in ("method", "setting", "diagnostics", "versions")},
    )


def _numbers(item: dict[str, Any]) -> dict[str, Any]:
    """The strings "inf" and "-inf" as numbers again, at any depth of mappings."""
    infinite = {"inf": float("inf"), "-inf": float("-inf")}
    return {
        key: _numbers(value) if isinstance(value, dict) else infinite.get(value, value) if isinstance(value, str) else value
        for key, value in item.items()
    }


def _lines(result: AuditResult) -> list[str]:
    """The report of about ten lines."""
    bound, setting = result.bound, result.setting
    held_out = "exact null" if result.design.held_out is None else f"{result.design.held_out:,} held out"
    word = result.verdict.word if result.verdict else "NO CLAIM"
    lines = [
        f"{word}  {result.verdict.reason if result.verdict else 'a measurement without a claim to compare it with'}",
        f"  claim         {result.claim if result.claim else 'none given'}",
    ]
    if result.estimate:
        floor = f"no leakage gives up to {result.estimate.floor:.3g} (p = {result.estimate.p_value:.2g})"
        lines += [f"  estimate      {result.estimate}", f"                {floor}"]
    ceiling = "no ceiling" if bound.ceiling == float("inf") else f"ceiling {bound.ceiling:.3g}"
    lines += [
        f"  lower bound   {bound}, {ceiling}",
        f"  could find    any leak from epsilon {bound.detectable:.3g} on (probability 0.8, Gaussian scores)",
        f"  scores        {result.design.inserted:,} inserted, {held_out}; {setting['statistic']}, view: {setting['view']}",
        f"  game          {_game(result)}",
        f"  assumes       {'; '.join(bound.assumptions)}",
    ]
    lines += [f"  caveat        {caveat}" for caveat in result.caveats]
    return lines


def _game(result: AuditResult) -> str:
    game = result.claim.game if result.claim else result.game
    stated = [f"{item.name} {value}" for item in fields(game) if (value := getattr(game, item.name)) is not None]
    return ", ".join(stated) if stated else "not stated"
