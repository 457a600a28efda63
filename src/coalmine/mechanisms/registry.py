"""Mechanisms by their names in a configuration: those of this package, of other packages, and classes by their path.

`[mechanism] kind` is a key of `MECHANISMS`, the name of an entry point of the group `coalmine.mechanisms`, or a path
"package.module:Name". Whatever it is, `from_config(options, context)` makes the mechanism from the other keys of the section; a
class without it is called with these keys.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from coalmine import contracts
from coalmine.contracts import Context, Description, Mechanism, known_part
from coalmine.mechanisms.adaptive import AdaptiveGaussian
from coalmine.mechanisms.correlated import Correlated
from coalmine.mechanisms.gaussian import Gaussian
from coalmine.mechanisms.strategies import KINDS, read_strategy

MECHANISMS: dict[str, Any] = {"gaussian": Gaussian, "adaptive": AdaptiveGaussian, "correlated": Correlated}
STRATEGIES: dict[str, Any] = {**KINDS}  # parts of a description by their kind, beside those of the contracts
GROUP = "coalmine.mechanisms"
_EXAMPLE = """
    def describe(self):
        return Description(
            clip=Clip(self.clip_norm),
            noise=Noise(accounted=self.noise_multiplier, multiplier=self.noise_multiplier),
        )
"""


def kinds() -> list[str]:
    """The names that `[mechanism] kind` may have, beside paths."""
    return [*MECHANISMS, *(each.name for each in entry_points(group=GROUP))]


def find(kind: str) -> Any:
    """What makes mechanisms of this kind."""
    if kind in MECHANISMS:
        return MECHANISMS[kind]
    module, separator, name = kind.partition(":")
    registered = [each for each in entry_points(group=GROUP) if each.name == kind]
    try:
        if separator:
            found = getattr(import_module(module), name)
            if not callable(found):
                raise AttributeError(f"{name} is no class")
            return found
        if registered:
            return registered[0].load()
    except (ImportError, AttributeError, ValueError) as error:
        remedy = "Write package.module:Name, of a module that Python finds." if separator else "Its package is not complete."
        raise ValueError(f"mechanism.kind={kind!r} cannot be loaded: {error}. {remedy}") from None
    near = get_close_matches(kind, kinds(), n=1)
    hint = f", did you mean {near[0]!r}?" if near else "."
    raise ValueError(f'mechanism.kind={kind!r} is not known{hint} Known are {", ".join(kinds())}, and "package.module:Name".')


def keys_of(kind: str) -> list[str] | None:
    """The keys that a section [mechanism] of this kind may have; None: they are its own affair."""
    found = find(kind)
    if hasattr(found, "config_keys"):
        return list(found.config_keys)
    if hasattr(found, "from_config") and not is_dataclass(found):
        return None
    try:
        accepted = inspect.signature(found).parameters.values()
    except ValueError:  # a built-in, which does not say
        return None
    return None if any(each.kind is each.VAR_KEYWORD for each in accepted) else [each.name for each in accepted]


def defaults_of(kind: str) -> dict[str, Any]:
    """By key, what a section [mechanism] of this kind means if it does not say; keys that depend on the run are left out."""
    found = find(kind)
    if not is_dataclass(found):
        return {}
    left_out = {*getattr(found, "of_the_run", ()), *(item.name for item in fields(found) if item.default is MISSING)}
    keys = keys_of(kind) or ()
    return {item.name: item.default for item in fields(found) if item.name in keys and item.name not in left_out}


def make_mechanism(kind: str, options: Mapping[str, Any], context: Context) -> Mechanism:
    """The mechanism that a section [mechanism] describes."""
    found = find(kind)
    try:
        made = found.from_config(dict(options), context) if hasattr(found, "from_config") else found(**options)
    except (TypeError, KeyError) as error:
        raise ValueError(f"mechanism: {kind!r} cannot be made from {', '.join(options) or 'no keys'}: {error}.") from None
    check(made)
    mechanism: Mechanism = made
    return mechanism


def check(mechanism: Any) -> None:
    """Whether this can be audited: it must say what it is."""
    if not callable(getattr(mechanism, "describe", None)):
        raise ValueError(
            f"{type(mechanism).__name__} does not say what it is, and nothing can be claimed for it. Add to the class, with "
            f"from coalmine.contracts import Clip, Description, Noise:\n{_EXAMPLE}"
        )


def read_description(data: Mapping[str, Any]) -> Description:
    """A description from its JSON form; parts whose kind is not registered here stay `Opaque`."""
    return contracts.read_description(data, _part)


def _part(kind: str, parameters: Mapping[str, Any]) -> Any:
    if kind not in STRATEGIES:
        return known_part(kind, parameters)
    return read_strategy({"kind": kind, "parameters": parameters}) if kind in KINDS else STRATEGIES[kind](**parameters)


def fingerprint(mechanism: Mechanism) -> str | None:
    """The class and the plain values of a mechanism, as text that is the same in every process.

    None if some value cannot be read: then nobody can know whether two mechanisms are the same.
    """
    try:
        return _fields(mechanism, f"{type(mechanism).__module__}.{type(mechanism).__qualname__}")
    except _UnreadableError:
        return None


class _UnreadableError(Exception):
    """A value of which nobody knows whether two are equal."""


def _fields(value: Any, kind: str) -> str:
    if not is_dataclass(value) and not hasattr(value, "__dict__"):
        raise _UnreadableError
    names = [item.name for item in fields(value)] if is_dataclass(value) else sorted(vars(value))
    return f"{kind}({', '.join(f'{name}={_text(getattr(value, name))}' for name in names)})"


def _text(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str | slice):
        return repr(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"array({value.dtype.str}, {value.shape}, {value.tobytes().hex()})"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{key!r}: {_text(each)}' for key, each in value.items()))}}}"
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value, type(value).__qualname__)
    raise _UnreadableError
