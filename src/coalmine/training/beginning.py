"""Whether a run goes on with what it was begun with: other data, mechanisms or versions would give other bits."""

from __future__ import annotations

from importlib.metadata import version

from coalmine.errors import RunDirectoryError
from coalmine.runs import RunDirectory
from coalmine.training.assembly import inputs
from coalmine.training.config import about_run
from coalmine.training.federation import Federation

_PACKAGES = ("coalmine", "numpy", "scipy", "torch", "dp-accounting")


def check_inputs(directory: RunDirectory, job: Federation) -> None:
    """Whether a run goes on with what it was begun with."""
    begun, rounds = about_run(directory.config).get("inputs"), directory.load()[0]
    if rounds and begun == "":
        raise RunDirectoryError(
            f"{str(directory.path)!r} was begun with a mechanism whose values cannot be read, so that nobody can know whether "
            f"this {type(job.mechanism).__name__} is the same. Make it a dataclass of numbers, texts and arrays to be able to "
            "resume, or start a new run."
        )
    if inputs(job) != begun:
        raise RunDirectoryError(
            f"{str(directory.path)!r} was begun with other data, another model, mechanism or trace. "
            "Hand `resume` the same `task` and `mechanism`, and put back the files of the data."
        )


def versions() -> dict[str, str]:
    """Of the packages on which the bits depend."""
    return {name: version(name) for name in _PACKAGES}


def check_versions(directory: RunDirectory) -> None:
    """Other versions would give other bits."""
    then, now = about_run(directory.config)["versions"], versions()
    changed = [f"{name} {then.get(name)} (here: {now[name]})" for name in now if then.get(name) != now[name]]
    if changed:
        raise RunDirectoryError(
            f"{str(directory.path)!r} was begun with {', '.join(changed)}; going on would not give the result of an "
            "uninterrupted run. Install the versions that config.toml names, or start a new run."
        )
