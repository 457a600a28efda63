"""What our own training sends to Flower's nodes: the tasks of a round, and the mechanism that clips there.

A node must clip with the very mechanism that releases. One that the configuration names is made there from the configuration,
as on the server. One that was handed over travels in every message as {"path": "package.module:Name", "fields": {...}}; what
would not be the same on the other side is refused before anything is sent.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from coalmine.contracts import ByClients, Mechanism, Public
from coalmine.errors import MismatchError
from coalmine.mechanisms.registry import find
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.training.work import ClientBatch, Evaluate, Outcome

TASK, PUBLIC, ARRAYS = "task", "public", "arrays"
_TUPLE, _NUMPY, _PATH, _FIELDS = "tuple", "numpy", "path", "fields"
_SCALARS = (np.float64, np.float32, np.float16, np.integer, np.bool_)
_REMEDY = (
    "Nodes of Flower make the mechanism anew: write it as a frozen dataclass of numbers and texts, in a module that Python "
    "finds, or train with the embedded engine."
)


def refuse_noise_of_clients(mechanism: Mechanism) -> None:
    """Noise that clients add needs a secret for every round and user, which nodes do not have."""
    noise = mechanism.describe().noise
    if noise is not None and isinstance(noise.added_by, ByClients):
        raise MismatchError(
            f"{type(mechanism).__name__} lets clients add the noise, and nodes of Flower have no secret for it: train with the "
            "embedded engine."
        )


def written_mechanism(mechanism: Mechanism) -> str:
    """A mechanism as text, from which `read_mechanism` makes an equal one; what cannot travel so is refused."""
    refuse_noise_of_clients(mechanism)
    name = type(mechanism).__name__
    try:
        text = json.dumps(_written(mechanism))
    except _CannotTravelError as why:
        raise MismatchError(f"the mechanism {name} cannot be sent to nodes: {why}. {_REMEDY}") from None
    if json.dumps(_written(read_mechanism(text))) != text:
        raise MismatchError(f"the mechanism {name} cannot be sent to nodes: made anew, it has other values. {_REMEDY}")
    return text


def read_mechanism(text: str) -> Mechanism:
    """The inverse of `written_mechanism`."""
    mechanism: Mechanism = _read(json.loads(text))
    return mechanism


def packed(task: ClientBatch | Evaluate, place: int, mechanism: str = "") -> RecordDict:
    """A task as records; a `mechanism` as it was written, or none, for the one of the configuration."""
    about = ConfigRecord({"place": place, "users": list(task.users), "mechanism": mechanism})
    compared = np.array(task.compared if isinstance(task, ClientBatch) else (), np.int64)
    arrays = ArrayRecord({"parameters": Array(np.asarray(task.parameters)), "compared": Array(compared)})
    content = RecordDict({ARRAYS: arrays, TASK: about})
    if task.public is not None:
        content[PUBLIC] = ConfigRecord(_numbers(task.public))
    return content


def task_of(content: RecordDict) -> ClientBatch | Evaluate:
    """The inverse of `packed`."""
    parameters = content[ARRAYS]["parameters"].numpy()
    users = tuple(str(user) for user in content[TASK]["users"])
    if PUBLIC not in content:
        return Evaluate(parameters, users)
    compared = tuple(content[ARRAYS]["compared"].numpy().tolist())
    return ClientBatch(Public(**dict(content[PUBLIC].items())), parameters, users, compared)


def packed_outcome(outcome: Outcome, place: int) -> RecordDict:
    """What a node sends back."""
    total = outcome.total
    about = {"place": place, "count": total.count, "unclipped": total.unclipped, "clip_norm": total.clip_norm}
    about["short"] = outcome.unclipped
    found = {"total": total.total(), "values": outcome.values, "compared": outcome.compared}
    arrays = ArrayRecord({name: Array(value) for name, value in found.items()})
    return RecordDict({ARRAYS: arrays, TASK: ConfigRecord(about)})


def outcome_of(content: RecordDict) -> Outcome:
    """The inverse of `packed_outcome`."""
    about, arrays = content[TASK], content[ARRAYS]
    counted = int(about["count"]), int(about["unclipped"])
    total = FixedPointSum.of(arrays["total"].numpy(), float(about["clip_norm"]), *counted)
    return Outcome(total, arrays["values"].numpy(), arrays["compared"].numpy(), int(about["short"]))


def _numbers(public: Public) -> dict[str, int | float]:
    """All that is announced, by name: a node that lacked one of the numbers would clip by other rules than were announced."""
    if type(public) is not Public:
        raise MismatchError(
            f"the mechanism announces a {type(public).__name__}, and nodes of Flower know Public alone: train with the "
            "embedded engine."
        )
    found: dict[str, int | float] = {}
    for each in fields(public):
        value = getattr(public, each.name)
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, int | float):
            raise MismatchError(
                f"the mechanism announces {each.name}, a {type(value).__name__}, and nodes of Flower are sent plain numbers "
                "alone: train with the embedded engine."
            )
        found[each.name] = float(value) if isinstance(value, float) else value
    return found


class _CannotTravelError(Exception):
    """Why a value cannot be written for another process."""


def _written(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, _SCALARS):  # with its precision, which decides about that of products with it
        return {_NUMPY: [value.dtype.str, value.item()]}
    if type(value) is tuple:
        return {_TUPLE: [_written(each) for each in value]}
    if type(value) is list:
        return [_written(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _written_dataclass(value)
    raise _CannotTravelError(f"{value!r} is neither a number, a text nor a frozen dataclass of these")


def _written_dataclass(value: Any) -> dict[str, Any]:
    kind = type(value)
    path = f"{kind.__module__}:{kind.__qualname__}"
    if not kind.__dataclass_params__.frozen:
        raise _CannotTravelError(f"{kind.__name__} is a dataclass that can change")
    if kind.__module__ == "__main__":  # which is another file on a node
        raise _CannotTravelError(f"{kind.__name__} is written in the program itself, and not in a module")
    try:
        found = find(path)
    except ValueError:
        found = None
    if found is not kind:
        raise _CannotTravelError(f"there is no {path} to import")
    names = [each.name for each in fields(value)]
    added = [
        name for name in vars(value) if name not in names and not isinstance(getattr_static(kind, name, None), cached_property)
    ]
    if added:
        raise _CannotTravelError(f"{kind.__name__} has {', '.join(added)} beside its fields")
    return {_PATH: path, _FIELDS: {each.name: _written(getattr(value, each.name)) for each in fields(value) if each.init}}


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(each) for each in value]
    if isinstance(value, dict):
        if _TUPLE in value:
            return tuple(_read(each) for each in value[_TUPLE])
        if _NUMPY in value:
            kind, number = value[_NUMPY]
            return np.dtype(kind).type(number)
        return find(value[_PATH])(**{name: _read(each) for name, each in value[_FIELDS].items()})
    return value
