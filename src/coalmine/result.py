"""`AuditResult`: everything an audit says, printable, and the same on disk (JSON, schema v2; files of schema v1 are read).

The file holds no time, host or path, so that equal audits have equal files. Infinity is written as the string "inf";
NaN does not occur.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, TextIO

from coalmine import _validate, manifest, notebook, renamed, terminal
from coalmine.contracts import Caveat, Claim, Conformance, Game, LowerBound, PointEstimate, Verdict, from_plain, plain
from coalmine.contracts.finding_sentences import chance, conformance_lines
from coalmine.contracts.power_sentences import attacker as said
from coalmine.contracts.power_sentences import could_find
from coalmine.contracts.sentences import view_name
from coalmine.contracts.training_sentences import training_words
from coalmine.drawing import Picture
from coalmine.errors import AuditError, InputFileError
from coalmine.estimators import BOUNDS
from coalmine.estimators.power import Design
from coalmine.gaussian import gaussian_gap
from coalmine.histogram import Histogram, check_histogram, picture
from coalmine.rounding import rounded_down
from coalmine.trade_off import Attacker, attacker

SCHEMA = "coalmine-result/2"
FIRST_SCHEMA = "coalmine-result/1"
_LATER = {"later": True}  # fields that the first files of this schema need not have
_LONGEST = 18  # digits of a whole number in a file
_DEEPEST = 40  # lists in lists


@dataclass(frozen=True)
class SecondaryView:
    """Another view of the same run: shown beside the primary one, decides nothing."""

    view: str
    statistic: str
    claim: Claim | None
    bound: LowerBound
    estimate: PointEstimate | None
    caveats: tuple[Caveat, ...] = ()
    layer: str | None = None

    def __str__(self) -> str:
        about = f"about {self.estimate.epsilon:.3g}" if self.estimate else "no estimate"
        return f"{view_name(self.view, self.layer)}: epsilon at least {rounded_down(self.bound.epsilon):.3g}, {about}"


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
    caveats: tuple[Caveat, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    views: tuple[SecondaryView, ...] = ()  # what other adversaries see of the same run
    training: Mapping[str, Any] = field(default_factory=dict)  # what the run recorded: learning, canaries' share, fingerprints
    histogram: Histogram = field(default_factory=dict, repr=False)  # edges, inserted, held_out: the scores in units of the null
    conformance: Conformance | None = field(default=None, metadata=_LATER)  # tests of the mechanism's description
    rankings: tuple[Mapping[str, Any], ...] = field(default=(), metadata=_LATER)  # of attacks; never an epsilon
    computed: tuple[Mapping[str, Any], ...] = field(default=(), metadata=_LATER)  # under assumptions; decide nothing

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
        data["attacker"] = plain(self.attacker)
        if self.verdict is not None:
            data["verdict"]["reason"] = self.verdict.reason
        return data

    def to_json(self) -> str:
        """As a JSON document that `from_json` reads back."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> AuditResult:
        """Read what `to_json` wrote."""
        try:
            data = _harmless(json.loads(text, parse_constant=_refuse, parse_int=_whole))
        except (ValueError, RecursionError) as error:
            raise InputFileError(f"not a JSON document: {error}.") from None
        found = data.pop("schema", None) if isinstance(data, dict) else None
        if found not in (SCHEMA, FIRST_SCHEMA):
            raise InputFileError(f"not an audit result of schema {SCHEMA!r} or {FIRST_SCHEMA!r}: found {found!r}.")
        try:
            return _from_dict(renamed.first_result(data) if found == FIRST_SCHEMA else data)
        except ValueError as error:
            raise InputFileError(f"not a complete audit result: {str(error).rstrip('.')}.") from None

    def save(self, path: str | Path) -> None:
        """Write the JSON document. A device, as /dev/null, is written to; a link stays a link."""
        manifest.put(path, self.to_json())  # a kill leaves the old file or the new one, never half of it

    @classmethod
    def load(cls, path: str | Path) -> AuditResult:
        """Read a result file, or the `result.json` of a run directory."""
        path = Path(path)
        manifest.check(path)
        path = path / "result.json" if path.is_dir() else path
        try:
            text = manifest.content(path).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputFileError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}.") from None
        try:
            return cls.from_json(text)
        except InputFileError as error:
            raise InputFileError(f"{str(path)!r}: {error} `coalmine estimate SCORES -o result.json` writes one.") from None

    @property
    def attacker(self) -> Attacker | None:
        """How many targets an attacker with few false alarms finds, by the claim and by what was shown."""
        return attacker(self.claim, self.bound, self.training)

    @property
    def shifted_normal(self) -> bool:
        """Whether the scores are taken for normal ones that move; a maximum over rounds or a likelihood ratio is not."""
        return any(estimate.key == "gaussian-mean" for estimate in self.estimates)

    @property
    def picture(self) -> Picture:
        """Inserted against held-out scores, to be drawn; with a mark where inserted ones would be, were the claim used up."""
        claim, mark, shifted = self.claim, None, self.shifted_normal
        if shifted and claim is not None and claim.delta > 0 and math.isfinite(claim.epsilon):
            mark = gaussian_gap(claim.epsilon, claim.delta)
        return picture(self.histogram, normal=shifted, mark=mark)

    @property
    def in_words(self) -> dict[str, str]:
        """What the run recorded, as sentences by their names; empty for scores from elsewhere."""
        stored = self.training.get("in_words")  # files of the first schema hold sentences
        if isinstance(stored, Mapping):
            return {str(name): str(text) for name, text in stored.items()}
        try:
            return training_words(self.training)
        except (KeyError, TypeError, ValueError, AttributeError):  # a file of somebody else
            return {}

    @property
    def in_numbers(self) -> dict[str, Any]:
        """The audit for trackers: verdict and reason, claim, bound and estimate, each None where there is none."""
        bound, estimate = self.bound, self.estimate
        return {
            "verdict": _word(self),
            "reason": _reason(self),
            "claim": self.claim.epsilon if self.claim else None,
            "lower_bound": bound.epsilon,
            "ceiling": bound.ceiling,
            "estimate": estimate.epsilon if estimate else None,
            "estimate_low": estimate.low if estimate else None,
            "estimate_high": estimate.high if estimate else None,
            "delta": bound.delta,
            "confidence": bound.confidence,
        }

    def show(self, file: TextIO | None = None) -> None:
        """Print for people: with colour and a sketch of the scores where the terminal allows, else the same as `print`."""
        terminal.show("\n".join(_lines(self)), word=_word(self), picture=self.picture, file=file)

    def __str__(self) -> str:
        """Plain text; with the sketch, but without colour, where standard output is a terminal that can show it."""
        return "\n".join([*map(terminal.harmless, _lines(self)), *terminal.sketch_for(self.picture)])

    def _repr_html_(self) -> str:
        others = [str(view) for view in self.views]
        return notebook.card(_word(self), _reason(self), _table(self), self.picture, others=others, caveats=self.caveats)


def schema() -> dict[str, Any]:
    """The JSON schema of result files."""
    text = resources.files("coalmine").joinpath("schema/result-v2.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _refuse(word: str) -> float:
    """Python reads NaN and Infinity as numbers, JSON does not know them."""
    raise ValueError(f"{word} is not a number")


def _whole(digits: str) -> int:
    """A whole number of a sensible size: others would not even be turned into a float."""
    if len(digits) > _LONGEST:
        raise ValueError(f"the number {digits[:_LONGEST]}… is too long")
    return int(digits)


def _harmless(value: Any, depth: int = 0) -> Any:
    """The same data with what would steer a terminal spelled out, in names too."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        return terminal.harmless(value)
    if isinstance(value, dict):
        return {terminal.harmless(name): _harmless(item, depth + 1) for name, item in value.items()}
    return [_harmless(item, depth + 1) for item in value] if isinstance(value, list) else value


def _from_dict(data: dict[str, Any]) -> AuditResult:
    first, *others = _bounds(data)
    stored = from_plain(float, first.pop("detectable", None), "bounds[0].detectable")
    data = {name: value for name, value in data.items() if name != "attacker"}  # made again from the numbers
    whole = {"histogram": {}, **data, "bounds": [first, *others]}  # the first files of this schema counted no scores
    result: AuditResult = from_plain(AuditResult, whole, "result")
    _validate.one_of("method", result.method, BOUNDS)
    for bound in result.bounds:
        _validate.delta(bound.delta, allow_zero=True)
        _validate.confidence(bound.confidence)
    _validate.whole("inserted", result.design.inserted, least=1)
    check_histogram(result.histogram)
    _check_verdict(result)
    for name in ("statistic", "view"):
        from_plain(str, result.setting.get(name), f"result.setting.{name}")
    primary = replace(result.bound, finder=_finder(result, stored))
    return replace(result, bounds=(primary, *result.bounds[1:]))


def _check_verdict(result: AuditResult) -> None:
    """A verdict that its own numbers contradict was not written by an audit."""
    if result.verdict is None:
        return
    if result.claim is None:
        raise ValueError(f"the verdict {result.verdict.word} has no claim that it could be about")
    least, claimed = result.bound.epsilon, result.claim.epsilon
    if (result.verdict.word == "VIOLATED") != (result.bound.valid and least > claimed):
        raise ValueError(
            f"the verdict {result.verdict.word} contradicts a bound of {least:.6g} beside a claim of {claimed:.6g}"
        )
    false = result.conformance.deviations if result.conformance is not None else ()
    if result.verdict.word != "VIOLATED" and (result.verdict.word == "DEVIATES") != bool(false):
        raise ValueError(f"the verdict {result.verdict.word} contradicts {len(false)} sentences that were found false")


def _bounds(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Copies of the bounds as they are in the file."""
    bounds = data.get("bounds")
    if not isinstance(bounds, list) or not bounds or not all(isinstance(item, dict) for item in bounds):
        raise ValueError("result.bounds must be a list of at least one bound")
    return [dict(item) for item in bounds]


def _finder(result: AuditResult, stored: float) -> Callable[[float], float]:
    """What the primary bound can detect depends on the design alone, so a stored result can be asked about other claims."""

    def find(claim: float) -> float:
        if claim == 0.0:
            return stored
        if result.setting.get("options"):  # a threshold or guesses that the design does not know: cannot say
            return float("inf")
        try:
            again = result.design.bound(result.method, delta=result.bound.delta, confidence=result.bound.confidence)
        except AuditError:  # several runs, whose sizes the design does not know: cannot say
            return float("inf")
        return again.detectable_above(claim)

    return find


def _lines(result: AuditResult) -> list[str]:
    """The report of about ten lines."""
    bound, setting = result.bound, result.setting
    name = view_name(setting["view"], setting.get("layer"))
    slack = result.design.slack
    null = "exact null" if slack == 0 else f"known null, its tail at most {slack:.3g} nats too large"
    if result.design.directions is not None:
        null = f"null measured on {result.design.directions:,} unused directions" + (f" ({null})" if slack else "")
    held_out = null if result.design.held_out is None else f"{result.design.held_out:,} held out"
    ceiling = "" if math.isinf(bound.ceiling) else f"; so many canaries can show at most {bound.ceiling:.3g}"
    lines = [
        f"{_word(result)}  {_reason(result)}",
        *(f"  {name:<13} {text}" for name, text in _tests(result)),
        f"  claim         {result.claim if result.claim else 'none given'}",
        f"  lower bound   {bound}{ceiling}",
    ]
    if result.estimate:
        floor = f"without leakage: below {result.estimate.floor:.3g} ({chance(result.estimate.p_value)})"
        lines += [f"  estimate      {result.estimate}", f"                {floor}"]
    lines += (
        [f"  in words      {said(found, bound.confidence, result.game.unit or 'client')}"] if (found := result.attacker) else []
    )
    lines += [
        f"  power         {could_find(bound, result.verdict)}",
        f"  scores        {result.design.inserted:,} inserted, {held_out}; {setting['statistic']}, view: {name}",
        f"  game          {_game(result)}",
        f"  assumes       {'; '.join(bound.assumptions)}",
    ]
    lines += [f"  {'other views' if not number else '':<13} {view}" for number, view in enumerate(result.views)]
    lines += [f"  {name:<13} {text}" for name, text in result.in_words.items()]
    lines += [f"  caveat        {caveat}" for caveat in result.caveats]
    return lines


def _word(result: AuditResult) -> str:
    return result.verdict.word if result.verdict else "NO CLAIM"


def _reason(result: AuditResult) -> str:
    return result.verdict.reason if result.verdict else "a measurement without a claim to compare it with"


def _table(result: AuditResult) -> dict[str, str]:
    """The numbers of the short form."""
    return {
        "claim": str(result.claim or "none given"),
        "estimate": str(result.estimate or "none"),
        "lower bound": str(result.bound),
        "ceiling": "none" if math.isinf(result.bound.ceiling) else f"{result.bound.ceiling:.3g}",
        **dict(_tests(result)[:1]),
    }


def _tests(result: AuditResult) -> list[tuple[str, str]]:
    return conformance_lines(result.conformance) if result.conformance is not None else []


def _game(result: AuditResult) -> str:
    game = result.claim.game if result.claim else result.game
    stated = [f"{item.name} {value}" for item in fields(game) if (value := getattr(game, item.name)) is not None]
    return ", ".join(stated) if stated else "not stated"
