"""How to make an audit of scores again: the command that `coalmine estimate` needs, and what a result does not record of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from shlex import quote

from coalmine import accounting
from coalmine.contracts import Claim
from coalmine.participation import Repeated
from coalmine.result import AuditResult


def estimate_again(result: AuditResult) -> tuple[str, tuple[str, ...]]:
    """(what to type, what has to be known besides): only if there is nothing besides, the same numbers come out."""
    parts: list[str] = [f"--delta {_exact(result.bound.delta)}", f"--confidence {_exact(result.bound.confidence)}"]
    missing: list[str] = ["the configuration of the run that made the scores"] if result.training else []
    for found, unknown in (_null(result), _methods(result), _options(result), _claim(result.claim)):
        parts += found
        missing += unknown
    return " ".join(["coalmine estimate SCORES", *parts, *_about(result)]), tuple(missing)


_Found = tuple[list[str], list[str]]


def _null(result: AuditResult) -> _Found:
    law = result.setting.get("law")
    match law:
        case None:
            return [], []
        case {"law": "cosine", "dim": int(dim)}:
            return [f"--dim {dim}"], []
        case {"law": "max", "base": {"law": "cosine", "dim": int(dim)}, "rounds": int(rounds)}:
            return [f"--dim {dim}", f"--max-over-rounds {rounds}"], []
    return [], [f"the null law ({result.setting.get('null')}), unless the file of the scores holds it"]


def _methods(result: AuditResult) -> _Found:
    others = [bound.key for bound in result.bounds[1:]]
    found = [f"--method {name}" for name in (result.method, *others) if name]
    return found, ["the other bounds"] if "" in others else []


def _options(result: AuditResult) -> _Found:
    stated = result.setting.get("options") or {}
    if not isinstance(stated, Mapping):
        return [], ["further arguments of the bound"]
    found: list[str] = []
    missing: list[str] = []
    for name, value in stated.items():
        word = _typed(str(name), value)
        (missing if word is None else found).append(word or f"{name} = {value}")
    return found, missing


def _typed(name: str, value: object) -> str | None:
    """An argument of a bound as it is typed, if it can be."""
    match name, value:
        case "threshold", {"kind": "Fixed", "value": float(fixed) | int(fixed)}:
            return f"--threshold {_exact(fixed)}"
        case "threshold", {"kind": "Split", "fraction": 0.5, "seed": 0}:
            return "--threshold split"
        case "threshold", {"kind": "AllThresholds"}:
            return "--threshold all"
        case "guesses", {"kind": "Guesses", "positive": int(positive), "negative": int(negative)}:
            return f"--guesses {positive}+{negative}"
    return None


def _claim(claim: Claim | None) -> _Found:
    if claim is None:
        return [], []
    typed = _accounted(claim)
    if typed is not None:
        return typed, []
    stated = claim.accountant == "stated"
    return [f"--claim {_exact(claim.epsilon)}"], [] if stated else ["how the claim was computed"]


def _accounted(claim: Claim) -> list[str] | None:
    """The options from which the same claim is computed, for a number of participations in known rounds."""
    how, described, relation = claim.game.participation, claim.description, claim.game.relation
    times = how.times if how is not None else None
    noise = described.noise.accounted if described is not None and described.noise is not None else 0.0
    if times is None or not noise or not 0 < claim.delta < 1 or relation not in accounting.RELATIONS:
        return None
    again = accounting.claim(Repeated(times), noise_multiplier=noise, delta=claim.delta, relation=relation)
    if again.epsilon != claim.epsilon:
        return None
    often = [f"--participations {times}"] if times > 1 else []
    return [f"--noise-multiplier {_exact(noise)}", *often, *([f"--relation {relation}"] if relation == "replace-one" else [])]


def _about(result: AuditResult) -> list[str]:
    """What the scores were said to be."""
    stated = [(item.name, getattr(result.game, item.name)) for item in fields(result.game)]
    found = [f"--game {quote(f'{name}={value}')}" for name, value in stated if value is not None]
    if result.setting.get("assignment") in ("coins", "fixed"):
        found.append(f"--assignment {result.setting['assignment']}")
    view = result.setting["view"]
    return found if view == "unstated" else [*found, f"--view {quote(view)}"]


def _exact(value: float) -> str:
    """All digits."""
    return repr(float(value)).replace("e-0", "e-").removesuffix(".0")
