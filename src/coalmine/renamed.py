"""Names that configurations, files and a few classes once had, translated. The only module that may hold them.

A key that moved is a pair of paths; a value that changed is a pair of values. A file of an older version, and `--set` in its
words, go through here before anything else reads them, with a notice. Result files of the first schema said in sentences what
is data now; `first_result` reads those sentences, as nothing else does.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from operator import attrgetter
from typing import Any

MOVED = {
    "privacy.noise_multiplier": "mechanism.noise_multiplier",
    "privacy.clip_norm": "mechanism.clip_norm",
    "privacy.adaptive_clipping": "mechanism.kind",
    "privacy.target_quantile": "mechanism.target_quantile",
    "privacy.clip_learning_rate": "mechanism.clip_learning_rate",
    "privacy.count_noise": "mechanism.count_noise",
    "privacy.realised_denominator": "mechanism.divide_by_actual_cohort",
    "canaries.over_long": "canaries.canary_norm",
    "canaries.as_vectors": "canaries.full_vectors",
}
VALUES: dict[str, dict[Any, Any]] = {
    "mechanism.kind": {True: "adaptive", False: "gaussian", "true": "adaptive", "false": "gaussian"},
    "audit.null": {"law": "theory", "unused": "empirical"},
}
_OF_ADAPTIVE = ("target_quantile", "clip_learning_rate", "count_noise")
VIEWS = {
    "final model": "final-model",
    "final model, with its start": "whole-model",
    "every release": "every-release",
    "every release, after momentum": "every-step",
    "known rounds": "known-rounds",
    "known others": "known-others",
    "unknown rounds": "unknown-rounds",
}
OF_MECHANISMS = {"below": "unclipped"}  # what a mechanism of one's own may still write or read
_said: set[str] = set()


def path(old: str, value: Any = None, *, quiet: bool = False) -> tuple[str, Any]:
    """The path and the value that a key has now; a notice is given once for every name that changed."""
    new = MOVED.get(old, old)
    now = VALUES.get(new, {}).get(value, value) if isinstance(value, str | bool) else value
    if (new, now) != (old, value) and not quiet:
        _notice(*((old, new) if now is value else (f"{old} = {_toml(value)}", f"{new} = {_toml(now)}")))
    return new, now


def section(data: Mapping[str, Any], *, quiet: bool = False) -> dict[str, Any]:
    """The sections of a configuration in the names of today."""
    found: dict[str, Any] = {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items()}
    for name, value in data.items():
        for key, item in value.items() if isinstance(value, Mapping) else ():
            new, now = path(f"{name}.{key}", item, quiet=quiet)
            home, _, last = new.rpartition(".")
            if new != f"{name}.{key}":
                del found[name][key]
                if isinstance(found.setdefault(home, {}), dict) and found[home].setdefault(last, now) != now:
                    raise ValueError(
                        f"{name}.{key} is the old name of {new}, and the two disagree: {_toml(item)} and "
                        f"{_toml(found[home][last])}. Leave out the old one."
                    )
            else:
                found[name][key] = now
    mechanism, old = found.get("mechanism"), data.get("privacy")
    if isinstance(mechanism, dict) and isinstance(old, Mapping):
        _without_what_was_always_written(mechanism, old)
    return found


def _without_what_was_always_written(mechanism: dict[str, Any], old: Mapping[str, Any]) -> None:
    """The first version wrote keys of all mechanisms whichever it was, and the denominator always."""
    if "adaptive_clipping" in old and mechanism["kind"] == "gaussian":
        for name in _OF_ADAPTIVE:
            mechanism.pop(name, None)
    if "realised_denominator" in old and not mechanism["divide_by_actual_cohort"]:
        del mechanism["divide_by_actual_cohort"]


def accepting(**names: str) -> Callable[[type[Any]], type[Any]]:
    """A class decorator: the constructor also takes these old keywords, and old attributes give the new ones."""

    def translate(kind: type[Any]) -> type[Any]:
        made = kind.__init__

        @wraps(made)
        def init(self: Any, *values: Any, **options: Any) -> None:
            for old in names.keys() & options.keys():
                options[names[old]] = options.pop(old)
                _notice(f"{kind.__name__}({old}=...)", f"{kind.__name__}({names[old]}=...)")
            made(self, *values, **options)

        kind.__init__ = init
        for old, new in names.items():
            setattr(kind, old, property(attrgetter(new), doc=f"Now called `{new}`."))
        return kind

    return translate


def _toml(value: Any) -> str:
    return json.dumps(value, default=str)


def _notice(old: str, new: str) -> None:
    if old not in _said:
        _said.add(old)
        sys.stderr.write(f"coalmine: {old} is now called {new}; the old name still works.\n")


def view(words: str) -> tuple[str, str | None]:
    """The key and the layer of a view that was named in words."""
    name, _, layer = words.partition(", within ")
    return VIEWS.get(name, name), layer or None


def combined(statistic: Any) -> str:
    """How rounds became one score, from the words of a table that does not say it as data."""
    words = str(statistic)
    return "maximum" if words.startswith("maximum") else "likelihood-ratio" if words == "likelihood ratio" else "sum"


def attendance(words: Any) -> Any:
    """How often and when somebody takes part, from a sentence."""
    if not isinstance(words, str):
        return words
    empty = dict.fromkeys(("times", "most", "separation", "rounds", "rate", "cohort_size", "population", "text"))
    for pattern, kind in _ATTENDANCES:
        if found := re.fullmatch(pattern, words):
            stated = {name: value for name, value in found.groupdict().items() if value is not None}  # "once" has no number
            numbers = {name: float(value) if name == "rate" else int(value) for name, value in stated.items()}
            return {"kind": kind, **empty, **({"times": 1} if words == "once" else {}), **numbers}
    return {"kind": "stated", **empty, "text": words}


_ATTENDANCES = (
    (r"once|(?P<times>\d{1,9}) times", "repeated"),
    (r"Poisson sampling at rate (?P<rate>[-+.\de]+) for (?P<rounds>\d{1,9}) rounds", "poisson"),
    (
        r"(?P<cohort_size>\d{1,9}) of (?P<population>\d{1,9}) clients without replacement for (?P<rounds>\d{1,9}) rounds",
        "fixed-size",
    ),
    (r"at most (?P<most>\d{1,9}) times, at least (?P<separation>\d{1,9}) rounds apart", "min-separation"),
    (r"at most (?P<most>\d{1,9}) times, by a trace of (?P<rounds>\d{1,9}) rounds", "trace"),
)
_BOUNDS = {  # how the name of a bound began, and its key
    "simultaneous band": "band",
    "anytime": "anytime",
    "Bayesian": "bayesian",
    "Gaussian trade-off": "gdp",
    "lifted": "lifted",
    "pointwise": "pointwise",
}
_COSINE = r"(?:maximum over (\d{1,9}) rounds \(union bound\) of: )?cosine with a random direction in [\d,]+ dimensions, exact"


def first_result(data: Mapping[str, Any]) -> dict[str, Any]:
    """A result file of the first schema as one of the second; what is not there is left out, and found missing later."""
    found = dict(data)
    half = _of(found.get("claim"), "half_noise_epsilon")
    found["claim"] = _claim(found.get("claim"))
    found["game"] = game(found.get("game"))
    found["bounds"] = [_bound(each) for each in _list(found.get("bounds"))]
    found["estimates"] = [_estimate(each) for each in _list(found.get("estimates"))]
    found["caveats"] = [_caveat(each) for each in _list(found.get("caveats"))]
    found["views"] = [_secondary(each) for each in _list(found.get("views"))]
    found["setting"] = _setting(found.get("setting"))
    found["verdict"] = _verdict(found, half)
    training = found.get("training")
    if isinstance(training, Mapping) and "participation" in training:
        found["training"] = {**training, "participation": attendance(training["participation"])}
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def game(stored: Any) -> Any:
    """A game of a result or of a table of scores."""
    if not isinstance(stored, Mapping):
        return stored
    return {**stored, "participation": attendance(stored.get("participation")), "randomness": None}


def _claim(claim: Any) -> Any:
    if not isinstance(claim, Mapping):
        return claim
    kept = {name: value for name, value in claim.items() if name not in ("noise_multiplier", "half_noise_epsilon")}
    noise, described = claim.get("noise_multiplier"), None
    if isinstance(noise, int | float):
        kinds = {"rounds": "fresh", "coordinates": "isotropic", "added_by": "server"}
        parts = {name: {"kind": kind, "parameters": {}} for name, kind in kinds.items()}
        described = {
            "clip": {"norm": None, "over": "update", "by": "client"},
            "noise": {"accounted": noise, "multiplier": noise, **parts},
            "denominator": "expected",
            "extras": [],
        }
    return {**kept, "game": game(claim.get("game")), "description": described, "valid_for": "any data"}


def _bound(bound: Any) -> Any:
    if not isinstance(bound, Mapping):
        return bound
    method = str(bound.get("method", ""))
    return {"key": next((key for begins, key in _BOUNDS.items() if method.startswith(begins)), ""), **bound}


def _estimate(estimate: Any) -> Any:
    if not isinstance(estimate, Mapping):
        return estimate
    key = "gaussian-mean" if str(estimate.get("method", "")).startswith("Gaussian, mean only") else "gaussian-fitted"
    return {**estimate, "key": key, "flags": [_caveat(each) for each in _list(estimate.get("flags"))]}


def _caveat(words: Any) -> Any:
    if not isinstance(words, str):
        return words
    name, _, text = words.partition(": ")
    if name == "secret seed":
        return {"code": "secret-given", "data": {}}
    return {"code": "note", "data": {"name": name, "text": text} if text else {"name": "note", "text": name}}


def _secondary(shown: Any) -> Any:
    if not isinstance(shown, Mapping):
        return shown
    key, layer = view(str(shown.get("view", "unstated")))
    caveats = [_caveat(each) for each in _list(shown.get("caveats"))]
    about = {"view": key, "layer": layer, "claim": _claim(shown.get("claim")), "caveats": caveats}
    return {**shown, **about, "bound": _bound(shown.get("bound")), "estimate": _estimate(shown.get("estimate"))}


def _setting(setting: Any) -> Any:
    if not isinstance(setting, Mapping):
        return setting
    key, layer = view(str(setting.get("view", "unstated")))
    null, dim = str(setting.get("null", "")), setting.get("dim")
    law: Any = None if null == "held-out scores" else {"law": "unknown"}
    if (cosine := re.fullmatch(_COSINE, null)) and isinstance(dim, int):
        law = {"law": "cosine", "dim": dim}
        law = {"law": "max", "base": law, "rounds": int(cosine[1])} if cosine[1] else law
    return {**setting, "view": key, "layer": layer, "law": law}


def _verdict(result: Mapping[str, Any], half: Any) -> Any:
    """The reason as a code, by the same rules that made the sentence."""
    verdict, claim, bounds = result.get("verdict"), result.get("claim"), result.get("bounds")
    if not isinstance(verdict, Mapping):
        return verdict
    factor, detectable = verdict.get("noticeable_noise_factor"), verdict.get("detectable")
    power = {"detectable": detectable, "noise_factor": factor, "half_noise_epsilon": half}
    claimed, bound = _number(_of(claim, "epsilon")), bounds[0] if bounds else {}
    numbers: dict[str, Any] = {"factor": factor}
    code, hidden = "consistent", re.search(r"in only ([\d.]+)% of runs", str(verdict.get("reason", "")))
    if verdict.get("word") == "VIOLATED":
        code, numbers = "bound-above-claim", {"bound": _of(bound, "epsilon"), "claim": claimed}
        numbers["confidence"] = _of(bound, "confidence")
    elif verdict.get("word") == "INCONCLUSIVE":
        code = "half-noise-missed"
        if hidden:
            code, numbers = "maximum-hidden", {"share": float(hidden[1]) / 100}
        elif math.isinf(claimed):
            code, numbers = "claim-infinite", {}
        elif not _number(_of(bound, "ceiling")) > claimed:
            code, numbers = "ceiling-below-claim", {"ceiling": _of(bound, "ceiling"), "claim": claimed}
        elif math.isinf(_number(detectable)):
            code, numbers = ("delta-zero" if _of(claim, "delta") == 0 else "nothing-detectable"), {}
    return {"word": verdict.get("word"), "code": code, "numbers": numbers, "power": power}


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.inf
