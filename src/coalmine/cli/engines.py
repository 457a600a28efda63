"""Which engine trains: our own loop, or Flower's simulation around it."""

from collections.abc import Callable
from typing import Any

from coalmine import _validate


def trainer(engine: str) -> Callable[..., Any]:
    """The function that trains and audits on this engine."""
    if _validate.one_of("--engine", engine, ("embedded", "flower")) == "embedded":
        from coalmine.training import run

        return run
    try:
        from coalmine.adapters.flower.engine import run as simulated
    except ModuleNotFoundError as error:
        raise ValueError(f'--engine flower needs {error.name}; pip install "coalmine[flower-simulation]"') from None
    return simulated
