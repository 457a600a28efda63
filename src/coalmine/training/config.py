"""What a run is told: a TOML file or a preset, with changes on top; checked as a whole before anything runs.

Sections and keys are in `coalmine.training.sections`. An unknown key is an error that suggests the nearest known one. The
secret seed is no part of the configuration: it would end up in files.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from coalmine import renamed
from coalmine.errors import InputFileError
from coalmine.mechanisms.registry import defaults_of
from coalmine.training.sections import Config, nearest

__all__ = [
    "Config",
    "about_run",
    "changed",
    "checked",
    "fingerprint",
    "located",
    "parse_config",
    "parse_toml",
    "preset_names",
    "read_config",
    "read_toml",
    "write_config",
]

_LARGEST = 1_000_000  # bytes of a TOML file


def preset_names() -> list[str]:
    """The presets of this package."""
    return sorted(Path(entry.name).stem for entry in _presets().iterdir() if entry.name.endswith(".toml"))


def read_config(source: str | Path, changes: Sequence[str] = ()) -> Config:
    """The configuration of a TOML file or a preset, with `section.key=value` changes."""
    name = str(source)
    if name in preset_names():
        text = _presets().joinpath(f"{name}.toml").read_text(encoding="utf-8")
    elif Path(name).is_file():
        text = read_toml(Path(name))
    else:
        raise InputFileError(
            f"{name!r} is neither a file nor a preset{nearest(name, preset_names())} Presets: {', '.join(preset_names())}."
        )
    return parse_config(text, changes, where=name)


def parse_config(text: str, changes: Sequence[str] = (), *, where: str = "the configuration", quiet: bool = False) -> Config:
    """The configuration of a TOML document; sections that a run adds (`versions`, …) are left out.

    `quiet`: without a notice of names that changed, for files that a run wrote and nobody edits.
    """
    data = parse_toml(text, where)
    data.pop("about", None)  # what a run writes about itself
    data = renamed.section(data, quiet=quiet)
    for change in changes:
        _apply(data, change)
    return checked(data, where=where)


def read_toml(path: Path) -> str:
    """The text of a configuration or a grid, which somebody wrote by hand."""
    size = path.stat().st_size
    if size > _LARGEST:
        raise InputFileError(f"{str(path)!r} has {size / 1e6:,.1f} MB; a TOML file of settings has at most 1 MB.")
    return path.read_text(encoding="utf-8", errors="replace")


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """A TOML document."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputFileError(f"{where} is not TOML: {error}.") from None
    except RecursionError:
        raise InputFileError(f"{where}: its values are nested too deeply.") from None


def changed(config: Config, changes: Sequence[str]) -> Config:
    """The same configuration with `section.key=value` changes."""
    data = config.model_dump(exclude_none=True)
    for change in changes:
        _apply(data, change)
    return checked(data)


def checked(data: dict[str, Any], *, where: str = "the configuration") -> Config:
    """The configuration of sections and keys, checked as a whole."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ValueError(f"{where}: " + "; ".join(_in_words(data, dict(each)) for each in error.errors())) from None


def write_config(config: Config, about: Mapping[str, Any]) -> str:
    """As TOML, everything resolved; keys without a value are left out."""
    import tomli_w

    return tomli_w.dumps({"about": dict(about), **config.model_dump(mode="json", exclude_none=True)})


def about_run(text: str) -> Mapping[str, Any]:
    """What a run wrote about itself into its configuration."""
    found: dict[str, Any] = tomllib.loads(text)["about"]
    return found


def fingerprint(config: Config) -> str:
    """The SHA-256 of all that can change a result: not of the number of workers, who listens, nor of where files are.

    Nor of whether a key of the mechanism is stated or has its default: the first version wrote all of them.
    """
    import tomli_w

    kept = config.model_dump(mode="json", exclude_none=True)
    del kept["run"]["workers"], kept["run"]["hooks"]
    if config.run.repeats == 1:  # keys that earlier versions did not have
        del kept["run"]["repeats"], kept["audit"]["lifted"]
    usual = defaults_of(config.mechanism.kind)
    stated = {name: value for name, value in config.mechanism.options.items() if name not in usual or usual[name] != value}
    kept["mechanism"] = {"kind": config.mechanism.kind, **dict(sorted(stated.items()))}
    kept["data"]["options"].pop("data_dir", None)
    kept["participation"].pop("trace", None)
    return hashlib.sha256(tomli_w.dumps(kept).encode()).hexdigest()


def located(config: Config) -> Config:
    """The same with files named by where they are, so that a run can go on from another folder."""
    who, data = config.participation, config.data
    if who.trace is not None:
        who = who.model_copy(update={"trace": str(Path(who.trace).resolve())})
    if "data_dir" in data.options:
        options = {**data.options, "data_dir": str(Path(data.options["data_dir"]).resolve())}
        data = data.model_copy(update={"options": options})
    return config.model_copy(update={"participation": who, "data": data})


def _presets() -> Any:
    return resources.files("coalmine").joinpath("presets")


def _apply(data: dict[str, Any], change: str) -> None:
    """One 'section.key=value'; the value is TOML, or text if it is none."""
    path, separator, value = change.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not separator or len(keys) < 2 or not all(keys):
        raise ValueError(f"--set {change!r}: write section.key=value, as mechanism.noise_multiplier=0.5.")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        parsed = value.strip()
    name, parsed = renamed.path(".".join(keys), parsed)
    keys, section = name.split("."), data
    for key in keys[:-1]:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            raise ValueError(f"--set {change!r}: {key} is not a section.")
    section[keys[-1]] = parsed


def _in_words(data: Mapping[str, Any], error: Mapping[str, Any]) -> str:
    """What came, what is allowed, what to do."""
    place = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        section: Any = Config
        for part in place[:-1]:
            section = section.model_fields[part].annotation
            section = next((each for each in get_args(section) if hasattr(each, "model_fields")), section)  # of an optional one
        known = list(section.model_fields)
        return f"unknown key {'.'.join(place)!r}{nearest(place[-1], known)} Known here: {', '.join(known)}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"]).rstrip(".")
    return f"{'.'.join(place[:2])}={error.get('input')!r} is not allowed: {error['msg'][0].lower()}{error['msg'][1:]}"
