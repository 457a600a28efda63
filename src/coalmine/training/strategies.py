"""Strategies of correlated noise in a run: kept in its directory, and what a reader of its audit must know."""

from __future__ import annotations

import json
import math
from typing import Any

from coalmine.contracts import Caveat, Description
from coalmine.runs import RunDirectory
from coalmine.training.config import Config
from coalmine.training.federation import Federation

FILE = "strategy.json"


def keep(directory: RunDirectory, job: Federation) -> None:
    """Coefficients that were searched for are written once: another machine might find others, in the last digits."""
    found = _part(job.mechanism.describe())
    if found is not None and not (directory.path / FILE).exists():
        directory.write(FILE, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())


def kept(directory: RunDirectory, config: Config) -> Config:
    """The configuration with the strategy that the run was begun with, if it has one."""
    path = directory.path / FILE
    if config.mechanism.kind != "correlated" or config.mechanism.strategy == "matrix" or not path.is_file():
        return config
    try:
        found = json.loads(path.read_bytes())
        if not {"kind", "parameters"} <= set(found):
            raise ValueError
    except (ValueError, TypeError):
        raise directory.damaged(FILE, "Put the file back, or start a new run.") from None
    return config.model_copy(update={"mechanism": config.mechanism.model_copy(update={"strategy": found})})


def caveats(description: Description, rounds: int) -> list[Caveat]:
    """What correlated noise means for the final model, and for a denominator that varies."""
    design = description.design
    final: Any = getattr(design, "final_gap", None)
    if design is None or final is None or description.noise is None or not description.has_noise:
        return []
    noise = description.noise.accounted
    numbers = {"strategy": design.kind, "gap": final / noise, "independent": 1 / (noise * math.sqrt(rounds))}
    varies = [Caveat("correlated-denominator")] if description.denominator == "realised" else []
    return [Caveat("correlated-final", numbers), *varies]


def _part(description: Description) -> Any:
    return None if description.design is None else description.to_dict()["noise"]["rounds"]
