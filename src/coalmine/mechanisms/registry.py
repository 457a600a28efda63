"""Mechanisms by their names in a configuration: those of this package, of other packages, and classes by their path.

`[mechanism] kind` is a key of `MECHANISMS`, the name of an entry point of the group `coalmine.mechanisms`, or a path
"package.module:Name". Whatever it is, `from_config(options, context)` makes the mechanism from the other keys of the section; a
class without it is called with these keys.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, get_args

import numpy as np

from coalmine import _validate, contracts
from coalmine.contracts import Context, Description, Mechanism, description, known_part
from coalmine.mechanisms.adaptive import AdaptiveGaussian
from coalmine.mechanisms.adaptive_correlated import AdaptiveCorrelated
from coalmine.mechanisms.correlated import Correlated
from coalmine.mechanisms.distributed import Distributed
from coalmine.mechanisms.examples import BatchGradient, FullGradient
from coalmine.mechanisms.gaussian import Gaussian
from coalmine.mechanisms.strategies import KINDS, read_strategy
from coalmine.mechanisms.water_filling import WaterFilling

MECHANISMS: dict[str, Any] = {
    "gaussian": Gaussian,
    "adaptive": AdaptiveGaussian,
    "correlated": Correlated,
    "adaptive-correlated": AdaptiveCorrelated,
    "distributed": Distributed,
    "full-gradient": FullGradient,
    "batch-gradient": BatchGradient,
    "water-filling": WaterFilling,
}
STRATEGIES: dict[str, Any] = {**KINDS}  # parts of a description by their kind, beside those of the contracts
GROUP = "coalmine.mechanisms"
_METHODS = {  # what a run calls, beside `describe`
    "init": "dim",
    "announce": "state, round_number, denominator",
    "client": "update, public, examples",
    "release": "state, total, public, secret",
}
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
    accepted = _parameters(found)
    return None if accepted is None else list(accepted)


def defaults_of(kind: str) -> dict[str, Any]:
    """By key, what a section [mechanism] of this kind means if it does not say; keys that depend on the run are left out."""
    found = find(kind)
    accepted, of_the_run = _parameters(found) or {}, getattr(found, "of_the_run", ())
    keys = getattr(found, "config_keys", tuple(accepted))
    stated = {name: each.default for name, each in accepted.items() if each.default is not each.empty and name in keys}
    return {name: value for name, value in stated.items() if name not in of_the_run}


def _parameters(found: Any) -> Mapping[str, inspect.Parameter] | None:
    """The arguments that are keys of a section; None: it does not say, or takes any."""
    if hasattr(found, "from_config") and not is_dataclass(found):
        return None
    try:
        accepted = inspect.signature(found).parameters
    except ValueError:  # a built-in, which does not say
        return None
    return None if any(each.kind is each.VAR_KEYWORD for each in accepted.values()) else accepted


def make_mechanism(kind: str, options: Mapping[str, Any], context: Context) -> Mechanism:
    """The mechanism that a section [mechanism] describes.

    A configuration is data that somebody else may have written: only classes of mechanisms are called, and nothing else that
    Python happens to find under a path.
    """
    found = find(kind)
    makes = callable(getattr(found, "from_config", None))
    if not makes and not inspect.isclass(found):
        raise ValueError(f"mechanism.kind={kind!r} is neither a class nor has it a `from_config`, so that it is not called.")
    if not makes:
        _check_describes(found, found.__name__)
    try:
        made = found.from_config(dict(options), context) if makes else found(**options)
    except (TypeError, KeyError) as error:
        raise ValueError(f"mechanism: {kind!r} cannot be made from {', '.join(options) or 'no keys'}: {error}.") from None
    check(made)
    mechanism: Mechanism = made
    return mechanism


def check(mechanism: Any, *, reference: bool = False) -> None:
    """Whether this can be trained with and audited: it has the methods of a mechanism, and says what it is.

    `reference`: the same without noise is wanted too.
    """
    if inspect.isclass(mechanism):
        raise ValueError(f"mechanism={mechanism.__name__} is a class; make an object of it: {mechanism.__name__}(...).")
    name = type(mechanism).__name__
    _check_describes(mechanism, name)
    missing = [each for each in (*_METHODS, "without_noise") if not callable(getattr(mechanism, each, None))]
    missing = [each for each in missing if reference or each != "without_noise"]
    if missing:
        raise ValueError(f"{name} is no mechanism: it has no {', '.join(missing)}. See coalmine.contracts.Mechanism.")
    for method, arguments in _METHODS.items():
        _check_takes(getattr(mechanism, method), f"{name}.{method}", arguments)
    described = mechanism.describe()
    if not isinstance(described, Description):
        raise ValueError(f"{name}.describe() gave a {type(described).__name__}; it must return a Description:\n{_EXAMPLE}")
    try:
        _check_values(described)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}.describe() cannot be right: {error}") from None


def _check_takes(method: Any, name: str, arguments: str) -> None:
    """That a method can be called as a run calls it, before the run has begun."""
    try:
        takes = inspect.signature(method)
    except ValueError:  # what is not written in Python does not say
        return
    try:
        takes.bind_partial(*arguments.split(", "))
    except TypeError:
        raise ValueError(f"{name}{takes} cannot be called with ({arguments}). See coalmine.contracts.Mechanism.") from None


def _check_values(said: Description) -> None:
    """That words and numbers of a description are allowed ones: an accountant would take them as they are."""
    norm = said.clip.norm
    for each in () if norm is None else norm if isinstance(norm, tuple) else (norm,):
        _validate.positive("clip.norm", each)
    for words, kind in (("clip.over", description.Over), ("denominator", description.Denominator)):
        _validate.one_of(words, attrgetter(words)(said), get_args(kind))
    _validate.one_of("clip.by", said.clip.by, ("client", "server"))
    if said.noise is not None:
        _validate.non_negative("noise.accounted", said.noise.accounted)
        _validate.non_negative("noise.multiplier", said.noise.multiplier)


def _check_describes(found: Any, name: str) -> None:
    if not callable(getattr(found, "describe", None)):
        raise ValueError(
            f"{name} does not say what it is, and nothing can be claimed for it. Add to the class, with "
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
    stated = [item.name for item in fields(value)] if is_dataclass(value) else []
    names = [*stated, *sorted(name for name in getattr(value, "__dict__", ()) if name not in stated and not _kept(value, name))]
    return f"{kind}({', '.join(f'{name}={_text(getattr(value, name))}' for name in names)})"


def _kept(value: Any, name: str) -> bool:
    """Whether this is the value of a cached property, which is there only after somebody asked for it."""
    return isinstance(inspect.getattr_static(type(value), name, None), cached_property)


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
