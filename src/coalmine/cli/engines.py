"""Which engine trains: our own loop on this machine, on those of a Ray cluster, or by Flower's messages."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from coalmine import _validate


def trainer(engine: str, address: str | None = None) -> Callable[..., Any]:
    """The function that trains and audits on this engine."""
    _validate.one_of("--engine", engine, ("embedded", "ray", "flower"))
    if address is not None and engine != "ray":
        raise ValueError("--address is that of a Ray cluster; give --engine ray too.")
    if engine == "ray":
        return _ray().engine(address)  # type: ignore[no-any-return]
    if engine == "embedded":
        from coalmine.training import run

        return run
    try:
        from coalmine.adapters.flower.engine import run as simulated
    except ModuleNotFoundError as error:
        raise ValueError(f'--engine flower needs {error.name}; pip install "coalmine[flower]"') from None
    return simulated


@contextmanager
def engine_workers(
    engine: str, address: str | None, count: int, out: Path, slurm: Mapping[str, Any]
) -> Iterator[Callable[..., Any]]:
    """What makes the workers of a sweep, while this context lasts."""
    _validate.one_of("--engine", engine, ("local", "ray", "slurm"))
    if address is not None and engine != "ray":
        raise ValueError("--address is that of a Ray cluster; give --engine ray too.")
    if engine == "ray":
        engine_of_ray = _ray()
        with engine_of_ray.cluster(address, count):
            yield engine_of_ray.RayWorkers
        return
    if engine == "slurm":
        try:
            from coalmine.adapters.slurm import SlurmWorkers
        except ModuleNotFoundError as error:
            raise ValueError(f'--engine slurm needs {error.name}; pip install "coalmine[slurm]"') from None
        yield partial(SlurmWorkers, out / "slurm", slurm)
        return
    from coalmine.workers import Workers

    yield Workers


def _ray() -> Any:
    try:
        from coalmine.adapters import ray_engine
    except ModuleNotFoundError as error:
        raise ValueError(f'--engine ray needs {error.name}; pip install "coalmine[ray]"') from None
    return ray_engine
