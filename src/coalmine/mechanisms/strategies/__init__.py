"""Strategies of noise that is correlated over rounds: one file for each, by their names in a configuration.

    strategy      noise of a round                                       vectors kept     sensitivity of repeated rounds
    independent   new                                                    0                exact
    toeplitz      all rounds before, damped by ν                         all, or buffers  exact
    banded        the last rounds; sampling may amplify                  bands - 1        exact
    blt           a few buffers that forget exponentially                buffers          exact
    tree          nodes of a binary tree over the rounds                 log₂(rounds)     upper bound
    matrix        any lower triangular matrix from a file                all              upper bound, exact if banded

>>> strategy = make_strategy("banded", {"bands": 4}, Plan(rounds=16))
>>> round(strategy.rms_error(), 6)
1.93753
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coalmine import _validate
from coalmine.mechanisms.strategies.approximation import in_buffers, off_by
from coalmine.mechanisms.strategies.banded import Banded
from coalmine.mechanisms.strategies.blt import Blt
from coalmine.mechanisms.strategies.given import Given
from coalmine.mechanisms.strategies.independent import Independent
from coalmine.mechanisms.strategies.restarts import Restarted
from coalmine.mechanisms.strategies.sensitivity import Sensitivity
from coalmine.mechanisms.strategies.strategy import CorrelatedStrategy, Plan
from coalmine.mechanisms.strategies.toeplitz import Toeplitz
from coalmine.mechanisms.strategies.tree import Tree

__all__ = [
    "KINDS",
    "NAMES",
    "OPTIONS",
    "Banded",
    "Blt",
    "CorrelatedStrategy",
    "Given",
    "Independent",
    "Plan",
    "Restarted",
    "Sensitivity",
    "Toeplitz",
    "Tree",
    "in_buffers",
    "make_strategy",
    "off_by",
    "read_strategy",
]

NAMES: dict[str, type[CorrelatedStrategy]] = {each.kind: each for each in (Independent, Toeplitz, Banded, Blt, Tree, Given)}
KINDS: dict[str, type[CorrelatedStrategy]] = {**NAMES, Restarted.kind: Restarted}  # that a description may name
OPTIONS = ("bands", "buffers", "damping", "objective", "honaker", "file", "restart_every")


def read_strategy(written: Mapping[str, Any]) -> CorrelatedStrategy:
    """A strategy from its kind and parameters, as a description holds them."""
    inner, kind = written["parameters"], KINDS[_validate.one_of("strategy", str(written["kind"]), KINDS)]
    parameters: dict[str, Any] = {
        key: read_strategy(value) if isinstance(value, Mapping) else value for key, value in inner.items()
    }
    return kind(**parameters)


def make_strategy(name: str, options: Mapping[str, Any], plan: Plan) -> CorrelatedStrategy:
    """A strategy by its name and the options that are stated; None counts as not stated."""
    kind = NAMES[_validate.one_of("strategy", name, NAMES)]
    stated = {key: value for key, value in options.items() if value is not None}
    if "restart_every" in stated:
        every = _validate.whole("restart_every", stated.pop("restart_every"), least=1)
        block = make_strategy(name, stated, replace(plan, rounds=min(every, plan.rounds)))
        return Restarted.from_options({"strategy": block}, plan)
    for key in stated:
        if key not in kind.options:
            has = f"it has {', '.join(kind.options)}" if kind.options else "it has none"
            raise ValueError(f"strategy {name!r} has no option {key!r}: {has}.")
    if kind is Toeplitz and "buffers" in stated:
        buffers = stated.pop("buffers")
        return in_buffers(Toeplitz(plan.rounds, stated.get("damping", 0.0)), buffers)
    return kind.from_options(stated, plan)
