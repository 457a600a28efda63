"""What `account` answers about secure aggregation: water-filling noise, noise shared by clients, and gradients in a file."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from coalmine import _validate
from coalmine.accounting.gaussian_sampling import record_epsilon
from coalmine.accounting.water_filling import FORMULAS, WaterFillingEvent, claim_waterfilling, floor_for, noises_of
from coalmine.contracts import plain
from coalmine.errors import InputFileError
from coalmine.mechanisms.spectrum import LARGEST_SIDE, leverages
from coalmine.score_files import read_arrays

_SKETCH = 2_000  # random directions for gradients that are too many for an exact decomposition
_NEEDED = ("users", "examples", "batch", "clip_norm")


def account_water_filling(
    asked: dict[str, Any], others: dict[str, Any], epsilon: float | None, delta: float | None, as_json: bool
) -> None:
    """The claim of water-filling noise; of floor, epsilon and delta two are given."""
    _refuse("--water-filling", {**others, "users_key": asked["users_key"]})
    asked = {**asked, "formula": asked["formula"] or FORMULAS[0]}
    missing = [f"--{name.replace('_', '-')}" for name in _NEEDED if asked[name] is None]
    if missing:
        raise ValueError(f"--water-filling needs {', '.join(missing)}.")
    floor, rounds = asked["floor"], asked["rounds"] or 1
    if sum(each is not None for each in (floor, epsilon, delta)) != 2:
        raise ValueError("give exactly two of --floor, --epsilon and --delta with --water-filling.")
    users = noises_of(_validate.whole("users", asked["users"], least=1), asked["honest"], asked["survivors"])
    event = WaterFillingEvent(asked["clip_norm"], asked["examples"], asked["batch"], users, floor or 1.0, asked["formula"])
    if floor is None:
        floor = floor_for(event, _given(epsilon), _given(delta), rounds)
    elif delta is None:
        delta = replace(event, floor=floor).delta(_validate.non_negative("epsilon", _given(epsilon)), rounds)
        if not 0 < delta < 1:
            raise ValueError(f"floor {floor:g} has delta = {delta:g} at epsilon = {epsilon:g}: nothing to state.")
    setting = {name: asked[name] for name in (*_NEEDED, "formula", "honest", "survivors")}
    found = claim_waterfilling(**setting, floor=floor, rounds=rounds, delta=_given(delta))
    tighter = claim_waterfilling(**setting, floor=floor, rounds=rounds, delta=_given(delta), conversion="tight").epsilon
    about = {
        "floor": f"{floor:.6g} (variance of each user)",
        "tighter conversion": f"epsilon = {tighter:.4g}",
        "relation": found.game.relation,
        "unit": "example",
        **{f"assumption {place}": words for place, words in enumerate(found.assumptions, 1)},
    }
    document = {
        **plain(found),
        "floor": floor,
        "tighter_epsilon": plain(tighter),
        "half_noise_epsilon": plain(found.at_noise(0.5)),
    }
    _show(str(found), about, document, as_json)


def shared_noise(noise: float, honest: int | None, survivors: int | None) -> tuple[float, dict[str, str]]:
    """The noise multiplier in the sum where each client adds its share for `honest` ones, and `survivors` of them are in it;
    and what is to be said of it."""
    if honest is None:
        raise ValueError("--survivors needs --honest: the number of noises that the claim was made for.")
    honest = _validate.whole("honest", honest, least=1)
    there = honest if survivors is None else _validate.whole("survivors", survivors, least=1)
    few = f"fewer survivors than promised: {there} of {honest}; the claim is that of the survivors"
    alone = "one client's noise alone: local differential privacy, which needs no secure aggregation"
    said = {"survivors": few} if there < honest else {"noise of clients": alone} if there == honest == 1 else {}
    return noise * math.sqrt(there / honest), said


def account_gradients(path: Path, asked: dict[str, Any], others: dict[str, Any], delta: float | None, as_json: bool) -> None:
    """Leverages, span test and epsilon of every record of a file, for a sum without noise."""
    _refuse("--gradients", {**others, **{name: value for name, value in asked.items() if name not in ("batch", "users_key")}})
    gradients, users = _read(path, asked["users_key"] or "user")
    counts = np.unique(users, return_counts=True)[1]
    if counts.min() != counts.max():
        raise ValueError(
            f"users have between {counts.min()} and {counts.max()} records; the formula needs the same number of all."
        )
    examples = int(counts[0])
    batch = asked["batch"] if asked["batch"] is not None else examples
    delta = _validate.delta(1e-5 if delta is None else delta)
    sketch = _SKETCH if min(gradients.shape) > LARGEST_SIDE else None
    found = leverages(gradients, sketch=sketch)
    epsilons = np.asarray(record_epsilon(found, batch, examples, delta))
    outside = int(np.isinf(epsilons).sum())
    document = {
        "records": len(found),
        "users": len(counts),
        "examples": examples,
        "batch": batch,
        "delta": delta,
        "rank": round(float(found.sum())),
        "largest_epsilon": plain(float(epsilons.max())),
        "median_epsilon": plain(float(np.median(epsilons))),
        "outside_span": outside,
        "valid_for": "these data",
        "sketch": sketch,
        "leverages": [float(value) for value in found],
    }
    about = {
        "records": f"{len(found)} of {len(counts)} users, rank {document['rank']}",
        "largest epsilon": f"{epsilons.max():.4g}",
        "median epsilon": f"{np.median(epsilons):.4g}",
        "leverage": f"largest {found.max():.4g}, median {np.median(found):.4g} (1: outside the span of all others)",
        "outside the span": f"{outside} of {len(found)} records: no finite epsilon" if outside else "no record",
        "valid for": "these data only; epsilon of one round, one record against none, Gaussian weights",
        **({} if sketch is None else {"approximate": f"by {sketch:,} random directions: the true numbers are larger"}),
        "keep secret": "these numbers are functions of the data",
    }
    _show(f"secure aggregation without noise, delta = {delta:g}", about, document, as_json)


def _read(path: Path, users_key: str) -> tuple[np.ndarray, np.ndarray]:
    arrays = read_arrays(path, f"not a matrix of gradients and {users_key!r}, which names the user of each row.")
    matrices = [name for name, array in arrays.items() if array.ndim == 2 and name != users_key]
    if len(matrices) != 1:
        raise InputFileError(f"{path} must have one matrix of gradients, a row for every record; it has {len(matrices)}.")
    gradients = arrays[matrices[0]]
    if users_key not in arrays:
        raise InputFileError(
            f"{path} has no array {users_key!r} that names the user of each record; it has {', '.join(arrays)}. Name it by "
            "--users-key; records of one user have the same number in it."
        )
    users = arrays[users_key]
    if not gradients.size or gradients.dtype.kind not in "fiub":
        raise InputFileError(f"{path}: {matrices[0]!r} must be a matrix of real numbers, a row for every record.")
    if users.shape != gradients.shape[:1]:
        raise InputFileError(f"{path}: {users_key!r} must name the user of each of the {len(gradients)} records.")
    return gradients, users


def _refuse(verb: str, others: dict[str, Any]) -> None:
    """What would be ignored is refused."""
    stated = [name for name, value in others.items() if value is not None]
    if stated:
        raise ValueError(f"--{stated[0].replace('_', '-')} means nothing with {verb}: leave it out.")


def _given(value: float | None) -> float:
    if value is None:
        raise ValueError("give exactly two of --floor, --epsilon and --delta with --water-filling.")
    return value


def _show(head: str, about: dict[str, Any], document: dict[str, Any], as_json: bool) -> None:
    lines = [head, *(f"  {name:<18} {value}" for name, value in about.items())]
    typer.echo(json.dumps(document, indent=2) if as_json else "\n".join(lines))
