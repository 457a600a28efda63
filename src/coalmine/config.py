"""What a run is told: a TOML file or a preset, with changes on top; checked as a whole before anything runs.

Every section is a small class whose fields are the allowed keys. An unknown key is an error that suggests the nearest known
one. The secret seed is no part of the configuration: it would end up in files.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from coalmine.errors import InputFileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Whole = Annotated[int, Field(ge=1, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
ViewName = Literal["final-model", "every-release", "known-rounds", "known-others"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Section):
    """Whose data, how much of it, and how texts become examples."""

    source: str = "chat"
    at_least: int | None = Field(None, ge=1, description="users with fewer examples (texts) are left out")
    cap: int | None = Field(None, ge=1, description="at most so many examples (texts) of a user")
    users: int | None = Field(None, ge=2, description="the first so many users only")
    held_out: float = Field(0.1, ge=0, description="share (below 1) or number of users for evaluations")
    held_out_kind: Literal["users", "examples"] = "users"
    unit: Literal["characters", "words", "tokens"] = "words"
    vocabulary: int | Literal["ascii"] | None = Field(None, description="tokens with a number of their own; None: all")
    length: Whole = 20
    packing: Literal["separate", "joined", "first"] = "separate"
    options: dict[str, Any] = Field(default_factory=dict, description="further arguments of the source")


class Model(_Section):
    """Which model; `options` are arguments of its constructor beyond what the data determines."""

    name: str = "chat-lstm"
    options: dict[str, Any] = Field(default_factory=dict)


class Client(_Section):
    """Local training. FedSGD and central DP-SGD: batch_size = "all", epochs = 1, learning_rate = 1."""

    epochs: Whole = 1
    batch_size: Whole | Literal["all"] = 16
    learning_rate: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    max_steps: Whole | None = None
    max_examples: Whole | None = None


class Server(_Section):
    """What the server does with the released mean."""

    optimiser: Literal["sgd", "adam"] = "sgd"
    learning_rate: Positive = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    first_decay: Annotated[float, Field(ge=0, lt=1)] = 0.9
    second_decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    stabiliser: Positive = 1e-3


class Privacy(_Section):
    """Clipping and noise, and the delta that everything is stated for."""

    noise_multiplier: NonNegative = 1.0
    clip_norm: Positive = 1.0
    delta: Share = 1e-5
    unit: Literal["client", "example"] = "client"
    adaptive_clipping: bool = False
    target_quantile: Share = 0.5
    clip_learning_rate: Positive = 0.2
    count_noise: NonNegative | None = Field(None, description="None: a twentieth of the cohort")
    realised_denominator: bool = False


class Participation(_Section):
    """When clients take part. Of rounds and cohort_size one is enough where the other follows."""

    pattern: Literal["once", "epochs", "poisson", "fixed-size", "min-separation", "trace"] = "once"
    rounds: Whole | None = None
    cohort_size: Positive | None = None
    epochs: Whole = 1
    separation: Whole | None = None
    trace: str | None = Field(None, description="a csv or JSON file of rounds and clients")


class Canaries(_Section):
    """The pool: each canary is inserted by its own fair coin; `pool = 0` trains without canaries and audits nothing."""

    pool: Annotated[int, Field(ge=0, strict=True)] = 2000
    family: Literal["transform", "sphere"] = "transform"
    pattern: Literal["periods", "as-clients"] = "periods"
    presentations: Whole = 1
    replace_clients: bool = False
    as_vectors: bool = False
    over_long: Positive = 1e4


class Audit(_Section):
    """The primary statement, which alone decides, and what is shown beside it; all named before the run."""

    view: ViewName = "known-others"
    bound: str = "band"
    also: tuple[str, ...] = ()
    views: tuple[ViewName, ...] = ("final-model", "every-release", "known-rounds", "known-others")
    paper_views: bool = Field(
        False,
        description="also the papers' variants: the whole model, steps after momentum, and two normals fitted to a maximum",
    )
    null: Literal["auto", "law", "unused"] = "auto"
    confidence: Share = 0.95
    layers: bool = Field(False, description="also every layer of at least 500 parameters: where does it leak?")
    unused_rows: Whole = 4096


class Run(_Section):
    """How the work is done; nothing here but the seed changes a result."""

    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    workers: Whole = 2
    evaluate_every: Annotated[int, Field(ge=0)] = Field(10, description="rounds between evaluations; 0: at the end only")
    reference: bool = Field(False, description="afterwards the same without noise and canaries, for comparison")


class Config(_Section):
    """A whole run."""

    data: Data = Data()
    model: Model = Model()
    client: Client = Client()
    server: Server = Server()
    privacy: Privacy = Privacy()
    participation: Participation = Participation()
    canaries: Canaries = Canaries()
    audit: Audit = Audit()
    run: Run = Run()

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        who, pattern = self.participation, self.participation.pattern
        if pattern in ("once", "epochs") and who.rounds is None and who.cohort_size is None:
            raise ValueError(f"participation: pattern {pattern!r} needs rounds or cohort_size.")
        if pattern in ("poisson", "fixed-size", "min-separation") and (who.rounds is None or who.cohort_size is None):
            raise ValueError(f"participation: pattern {pattern!r} needs rounds and cohort_size.")
        if pattern == "min-separation" and who.separation is None:
            raise ValueError("participation: pattern 'min-separation' needs separation, the rounds that a client stays away.")
        if (pattern == "trace") != (who.trace is not None):
            raise ValueError("participation: pattern 'trace' and the key trace (a file) belong together.")
        if self.canaries.pattern == "as-clients" and pattern == "trace":
            raise ValueError("canaries: a trace says nothing about canaries; use pattern 'periods'.")
        if self.canaries.pattern == "as-clients" and self.canaries.presentations != 1:
            raise ValueError("canaries: presentations belong to pattern 'periods'.")
        if self.canaries.replace_clients and self.canaries.pattern == "as-clients" and pattern == "poisson":
            raise ValueError("canaries: Poisson sampling is accounted for adding and removing, not for replacing, clients.")
        if self.canaries.pool and self.audit.view not in self.audit.views:
            raise ValueError(f"audit: the primary view {self.audit.view!r} must be one of the views {list(self.audit.views)}.")
        return self


def preset_names() -> list[str]:
    """The presets of this package."""
    return sorted(Path(entry.name).stem for entry in _presets().iterdir() if entry.name.endswith(".toml"))


def read_config(source: str | Path, changes: Sequence[str] = ()) -> Config:
    """The configuration of a TOML file or a preset, with `section.key=value` changes."""
    name = str(source)
    if name in preset_names():
        text = _presets().joinpath(f"{name}.toml").read_text(encoding="utf-8")
    elif Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8", errors="replace")
    else:
        raise InputFileError(
            f"{name!r} is neither a file nor a preset{_nearest(name, preset_names())}. Presets: {', '.join(preset_names())}."
        )
    return parse_config(text, changes, where=name)


def parse_config(text: str, changes: Sequence[str] = (), *, where: str = "the configuration") -> Config:
    """The configuration of a TOML document; sections that a run adds (`versions`, …) are left out."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputFileError(f"{where} is not TOML: {error}.") from None
    data.pop("about", None)  # what a run writes about itself
    for change in changes:
        _apply(data, change)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ValueError(f"{where}: " + "; ".join(_in_words(data, dict(each)) for each in error.errors())) from None


def write_config(config: Config, about: Mapping[str, Any]) -> str:
    """As TOML, everything resolved; keys without a value are left out."""
    import tomli_w

    return tomli_w.dumps({"about": dict(about), **config.model_dump(mode="json", exclude_none=True)})


def _presets() -> Any:
    return resources.files("coalmine").joinpath("presets")


def _apply(data: dict[str, Any], change: str) -> None:
    """One 'section.key=value'; the value is TOML, or text if it is none."""
    path, separator, value = change.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not separator or len(keys) < 2 or not all(keys):
        raise ValueError(f"--set {change!r}: write section.key=value, as privacy.noise_multiplier=0.5.")
    section = data
    for key in keys[:-1]:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            raise ValueError(f"--set {change!r}: {key} is not a section.")
    try:
        section[keys[-1]] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        section[keys[-1]] = value.strip()


def _in_words(data: Mapping[str, Any], error: Mapping[str, Any]) -> str:
    """What came, what is allowed, what to do."""
    place = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        section: Any = Config
        for part in place[:-1]:
            section = section.model_fields[part].annotation
        known = list(section.model_fields)
        return f"unknown key {'.'.join(place)!r}{_nearest(place[-1], known)}; known here: {', '.join(known)}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"]).rstrip(".")
    return f"{'.'.join(place[:2])}={error.get('input')!r} is not allowed: {error['msg'][0].lower()}{error['msg'][1:]}"


def _nearest(word: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {found[0]!r}?" if found else ""
