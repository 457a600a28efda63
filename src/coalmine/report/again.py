"""How to make an audit of scores again: the command that `coalmine estimate` needs, and what a result does not record of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from shlex import quote
from typing import cast

from coalmine import accounting
from coalmine.contracts import Claim, LowerBound
from coalmine.participation import Repeated
from coalmine.result import AuditResult

_HELD_OUT = "held-out scores"
_COSINE = r"cosine with a random direction in [\d,]+ dimensions, exact"
_BOUNDS = {  # how the name of a bound begins in a result, and what the command line calls it
    "simultaneous band": "band",
    "anytime": "anytime",
    "Bayesian": "bayesian",
    "Gaussian trade-off": "gdp",
    "lifted": "lifted",
    "pointwise": "pointwise",
}


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
    name, dim = str(result.setting.get("null")), result.setting.get("dim")
    if name == _HELD_OUT:
        return [], []
    law = re.fullmatch(rf"(?:maximum over (\d+) rounds \(union bound\) of: )?{_COSINE}", name)
    if law is None or not isinstance(dim, int):
        return [], [f"the null law ({name}), unless the file of the scores holds it"]
    return [f"--dim {dim}", *([f"--max-over-rounds {law[1]}"] if law[1] else [])], []


def _methods(result: AuditResult) -> _Found:
    others = [_named(bound) for bound in result.bounds[1:]]
    found = [f"--method {name}" for name in (result.method, *others) if name is not None]
    return found, ["the other bounds"] if None in others else []


def _named(bound: LowerBound) -> str | None:
    return next((name for begins, name in _BOUNDS.items() if bound.method.startswith(begins)), None)


def _options(result: AuditResult) -> _Found:
    stated = result.setting.get("options") or {}
    if not isinstance(stated, Mapping):
        return [], ["further arguments of the bound"]
    found: list[str] = []
    missing: list[str] = []
    for name, value in stated.items():
        word = _typed(str(name), str(value))
        (missing if word is None else found).append(word or f"{name} = {value}")
    return found, missing


def _typed(name: str, value: str) -> str | None:
    """An argument of a bound as it is typed, if it can be."""
    if name == "threshold" and (fixed := re.fullmatch(r"Fixed\(value=([-+.\de]+)\)", value)):
        return f"--threshold {fixed[1]}"
    if name == "guesses" and (guessed := re.fullmatch(r"Guesses\(positive=(\d+), negative=(\d+)\)", value)):
        return f"--guesses {guessed[1]}+{guessed[2]}"
    words = {"Split(fraction=0.5, seed=0)": "--threshold split", "AllThresholds()": "--threshold all"}
    return words.get(value) if name == "threshold" else None


def _claim(claim: Claim | None) -> _Found:
    if claim is None:
        return [], []
    typed = _accounted(claim)
    if typed is not None:
        return typed, []
    stated = claim.accountant == "stated" and claim.half_noise_epsilon is None
    return [f"--claim {_exact(claim.epsilon)}"], [] if stated else ["how the claim was computed"]


def _accounted(claim: Claim) -> list[str] | None:
    """The options from which the same claim is computed, for a number of participations in known rounds."""
    times = re.fullmatch(r"once|(\d{1,9}) times", claim.game.participation or "")
    noise, relation = claim.noise_multiplier, claim.game.relation
    if times is None or not noise or not 0 < claim.delta < 1 or relation not in accounting.RELATIONS:
        return None
    how = cast("accounting.Relation", relation)
    again = accounting.claim(Repeated(int(times[1] or 1)), noise_multiplier=noise, delta=claim.delta, relation=how)
    if (again.epsilon, again.half_noise_epsilon) != (claim.epsilon, claim.half_noise_epsilon):
        return None
    often = [f"--participations {times[1]}"] if times[1] else []
    return [f"--noise-multiplier {_exact(noise)}", *often, *([f"--relation {how}"] if how == "replace-one" else [])]


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
