"""Strategies of correlated noise in a run: kept in its directory, and what a reader of its audit must know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from coalmine.contracts import Caveat, Description, State
from coalmine.errors import RunDirectoryError
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
    if config.mechanism.strategy in (None, "matrix") or not path.is_file():
        return config
    try:
        found = json.loads(path.read_bytes())
        if not {"kind", "parameters"} <= set(found):
            raise ValueError
    except (ValueError, TypeError):
        raise directory.damaged(FILE, "Put the file back, or start a new run.") from None
    return config.model_copy(update={"mechanism": config.mechanism.model_copy(update={"strategy": found})})


def check_state(mechanism: Any, state: State, dim: int) -> None:
    """Whether a checkpoint holds what the mechanism of this version remembers, where the mechanism can say it."""
    asked = getattr(mechanism, "unknown_state", None)
    own = {name.removeprefix("mechanism."): value for name, value in state.items() if name.startswith("mechanism.")}
    found = None if asked is None else asked(own, dim)
    if found is not None:
        raise RunDirectoryError(
            f"the checkpoint of this run holds {found}: its noise cannot go on from there. Finish the run with the version "
            "that its config.toml names, or start a new run."
        )


def caveats(description: Description, clip_norms: Sequence[float]) -> list[Caveat]:
    """What correlated noise means for the final model, for clip norms that changed, and for a denominator that varies."""
    design = description.design
    of_sum: Any = getattr(design, "noise_of_sum", None)
    if design is None or of_sum is None or description.noise is None or not description.has_noise or not clip_norms:
        return []
    sizes, noise = np.asarray(clip_norms, dtype=np.float64), description.noise
    weights = sizes / sizes.mean()
    made = of_sum(weights)
    numbers = {
        "strategy": design.kind,
        "gap": 1 / (noise.multiplier * made),
        "independent": 1 / (noise.accounted * float(np.linalg.norm(weights))),
    }
    found = [Caveat("correlated-final", numbers)]
    if description.clip.norm is None:
        more = made / of_sum(np.ones(weights.size))
        found.append(Caveat("correlated-clipping", {"least": float(sizes.min()), "largest": float(sizes.max()), "more": more}))
    return [*found, Caveat("correlated-denominator")] if description.denominator == "realised" else found


def _part(description: Description) -> Any:
    return None if description.design is None else description.to_dict()["noise"]["rounds"]
