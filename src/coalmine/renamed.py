"""Names that configurations once had, translated with a notice. The only module that may hold them.

A key that moved is a pair of paths; a value that changed is a pair of values. A file of an older version, and `--set` in its
words, go through here before anything else reads them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
_OF_ADAPTIVE = ("target_quantile", "clip_learning_rate", "count_noise")  # the first version wrote them for every mechanism
VIEWS = {
    "final model": "final-model",
    "final model, with its start": "whole-model",
    "every release": "every-release",
    "every release, after momentum": "every-step",
    "known rounds": "known-rounds",
    "known others": "known-others",
    "unknown rounds": "unknown-rounds",
}
_said: set[str] = set()


def path(old: str, value: Any = None) -> tuple[str, Any]:
    """The path and the value that a key has now; a notice is given once for every name that changed."""
    new = MOVED.get(old, old)
    now = VALUES.get(new, {}).get(value, value) if isinstance(value, str | bool) else value
    if (new, now) != (old, value):
        _notice(f"{old}" if new != old else f"{old} = {value!r}", f"{new}" if new != old else f"{new} = {now!r}")
    return new, now


def section(data: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a configuration in the names of today."""
    found: dict[str, Any] = {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items()}
    for name, value in data.items():
        for key, item in value.items() if isinstance(value, Mapping) else ():
            new, now = path(f"{name}.{key}", item)
            home, _, last = new.rpartition(".")
            if new != f"{name}.{key}":
                del found[name][key]
                if isinstance(found.setdefault(home, {}), dict):
                    found[home].setdefault(last, now)
            else:
                found[name][key] = now
    mechanism = found.get("mechanism")
    if isinstance(mechanism, dict) and "adaptive_clipping" in dict(data.get("privacy", {})) and mechanism["kind"] == "gaussian":
        for name in _OF_ADAPTIVE:
            mechanism.pop(name, None)
    return found


def _notice(old: str, new: str) -> None:
    if old not in _said:
        _said.add(old)
        sys.stderr.write(f"coalmine: {old} is now called {new}; the old name still works.\n")
