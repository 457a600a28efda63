"""What a mechanism gives back, which may be somebody else's: what is wrong is said here, and not deep inside a round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine.contracts import Mechanism, Public, Release, State
from coalmine.errors import NonFiniteError

_NUMBERS = "biuf"  # kinds of arrays that a checkpoint holds


def state_of(mechanism: Mechanism, found: Any, method: str) -> State:
    """The state that `init` or `release` gave: arrays by name."""
    said = f"{type(mechanism).__name__}.{method} gave"
    if not isinstance(found, Mapping):
        raise ValueError(
            f"{said} {_shown(found)} as its state; it must be a mapping of names to arrays, {{}} if there are none."
        )
    for name, value in found.items():
        if not (isinstance(name, str) and isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _NUMBERS):
            raise ValueError(f"{said} the state {name!r} as {_shown(value)}; it must be an array of numbers (numpy.array).")
    return found


def public_of(mechanism: Mechanism, found: Any, number: int) -> Public:
    """What `announce` gave: the round, a clip norm, a denominator."""
    name = f"{type(mechanism).__name__}.announce"
    if not isinstance(found, Public):
        raise ValueError(
            f"{name} gave {_shown(found)}; it must return Public(round, clip_norm, denominator) of coalmine.contracts."
        )
    if found.round != number:
        raise ValueError(f"{name} gave round={found.round!r} in round {number}; hand on the number that it was called with.")
    try:
        for value in (found.clip_norm, found.denominator):
            if isinstance(value, str):
                raise ValueError(f"{value!r} is text, not a number.")
        _validate.clip_norm(found.clip_norm)
        _validate.positive("denominator", found.denominator)
    except ValueError as error:
        raise ValueError(f"{name} in round {number}: {error}") from None
    return found


def released(mechanism: Mechanism, found: Any, number: int, dim: int) -> tuple[Release, State]:
    """What `release` gave: the release of the round and the next state."""
    name = f"{type(mechanism).__name__}.release"
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Release)):
        raise ValueError(
            f"round {number}: {name} gave {_shown(found)}; it must return a Release (coalmine.contracts) and the next state, "
            "as `return Release(public.round, vector, public.clip_norm, denominator), state`."
        )
    vector = found[0].vector
    if not isinstance(vector, np.ndarray) or vector.dtype.kind not in _NUMBERS:
        raise ValueError(f"round {number}: {name} gave {_shown(vector)} as its vector; it must be an array of {dim} numbers.")
    if vector.shape != (dim,):
        raise ValueError(
            f"round {number}: {name} gave a vector of shape {vector.shape}; the model has {dim} parameters, so that it must be "
            f"({dim},)."
        )
    if not (np.isfinite(vector.min()) and np.isfinite(vector.max())):
        raise NonFiniteError(f"round {number}: the release of {type(mechanism).__name__} has NaN or infinite entries.")
    try:
        _validate.positive("denominator", found[0].denominator)
    except ValueError as error:
        raise ValueError(f"round {number}: {name}: {error}") from None
    return found[0], state_of(mechanism, found[1], "release")


def _shown(found: Any) -> str:
    if found is None:
        return "None (is a `return` missing?)"
    return f"an array of {found.dtype}" if isinstance(found, np.ndarray) else f"{found!r:.60} ({type(found).__name__})"
