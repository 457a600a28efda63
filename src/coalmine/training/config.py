"""What a run is told: a TOML file or a preset, with changes on top; checked as a whole before anything runs.

Every section is a small class whose fields are the allowed keys. An unknown key is an error that suggests the nearest known
one. The secret seed is no part of the configuration: it would end up in files.
"""

from __future__ import annotations

import difflib
import hashlib
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from coalmine import renamed
from coalmine.audit.spec import LEAST_POOL, SHOWN, AuditSpec
from coalmine.errors import InputFileError
from coalmine.mechanisms.registry import keys_of
from coalmine.participation import PATTERNS, Pattern

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Whole = Annotated[int, Field(ge=1, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Section):
    """Whose data, how much of it, and how texts become examples."""

    source: str = Field("chat", description="a name of `coalmine.data.SOURCES`")
    at_least: int | None = Field(None, ge=1, description="users with fewer examples (texts) are left out")
    cap: int | None = Field(None, ge=1, description="at most so many examples (texts) of a user")
    users: int | None = Field(None, ge=2, description="the first so many users only")
    held_out: float = Field(0.1, ge=0, description="share (below 1) or number held out for evaluations; 0: none")
    held_out_kind: Literal["users", "examples"] = Field("users", description="of all users, or of each user's examples")
    unit: Literal["characters", "words", "tokens"] = Field("words", description="what texts are cut into")
    vocabulary: int | Literal["ascii"] | None = Field(None, description="tokens with a number of their own; none: all")
    length: Whole = Field(20, description="tokens in a window")
    packing: Literal["separate", "joined", "first"] = Field("separate", description="where windows begin")
    in_memory: bool = Field(
        True, description="texts are cut once and kept in memory; false: cut anew for every client, if they do not fit"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="further arguments of the source")


class Model(_Section):
    """Which model."""

    name: str = Field("chat-lstm", description="a name of `coalmine.models.MODELS`")
    options: dict[str, Any] = Field(default_factory=dict, description="arguments beyond what the data determine")


class Client(_Section):
    """Local training. FedSGD and central DP-SGD: batch_size = "all", epochs = 1, learning_rate = 1."""

    epochs: Whole = Field(1, description="passes over a client's examples")
    batch_size: Whole | Literal["all"] = Field(16, description="examples of a step")
    learning_rate: Positive = Field(0.1, description="of local SGD")
    momentum: Decay = Field(0.0, description="of local SGD, begun anew in every round")
    max_steps: Whole | None = Field(None, description="at most so many steps")
    max_examples: Whole | None = Field(None, description="at most so many examples, chosen anew in every round")


class Server(_Section):
    """What the server does with the released mean."""

    optimiser: Literal["sgd", "adam"] = Field("sgd", description="adam is FedAdam")
    learning_rate: Positive = Field(1.0, description="of the server")
    momentum: Decay = Field(0.0, description="of sgd")
    first_decay: Decay = Field(0.9, description="of adam")
    second_decay: Decay = Field(0.99, description="of adam")
    stabiliser: Positive = Field(1e-3, description="of adam, added to the root of the second moment")


class Privacy(_Section):
    """What is protected, and the delta that everything is stated for."""

    delta: Share = Field(1e-5, description="delta of every statement")
    unit: Literal["client", "example"] = Field("client", description="who is protected; example: clients are single examples")
    relation: Literal["add-or-remove-one", "replace-one"] | None = Field(
        None, description="what neighbours differ in; none: what is usual for the pattern of participation"
    )


class Mechanism(_Section):
    """What turns updates into a release. Every kind has keys of its own; a class of one's own takes any."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str = Field(
        "gaussian", description='"gaussian", "adaptive" (the clip norm follows a quantile), or "package.module:Name"'
    )
    clip_norm: Positive | None = Field(None, description="longer updates are clipped to it; adaptive: the first one; 1.0")
    noise_multiplier: NonNegative | None = Field(None, description="noise on the sum, in clip norms; 1.0")
    divide_by_actual_cohort: bool | None = Field(
        None, description="divide by the number of updates that came, as Algorithm 2 is printed; the audit says so"
    )
    target_quantile: Share | None = Field(None, description="adaptive: share of updates that should pass unclipped; 0.5")
    clip_learning_rate: Positive | None = Field(None, description="adaptive: how fast the clip norm follows; 0.2")
    count_noise: NonNegative | None = Field(
        None, description="adaptive: noise on the number of unclipped updates; a twentieth of the cohort"
    )

    @property
    def options(self) -> dict[str, Any]:
        """The keys of this kind: those that are stated, and the usual clip norm and noise where the kind has them."""
        stated = {name: value for name, value in self.model_dump(exclude={"kind"}).items() if value is not None}
        known = keys_of(self.kind) or []
        return {**{name: 1.0 for name in ("clip_norm", "noise_multiplier") if name in known}, **stated}

    @model_validator(mode="after")
    def _has_known_keys(self) -> Mechanism:
        known = keys_of(self.kind)
        for name in self.options:
            if known is not None and name not in known:
                raise ValueError(
                    f"mechanism: kind {self.kind!r} has no key {name!r}{_nearest(name, known)} It has {', '.join(known)}."
                )
        return self


class Participation(_Section):
    """When clients take part. Of rounds and cohort_size one is enough where the other follows."""

    model_config = ConfigDict(extra="allow", frozen=True)

    pattern: str = Field("once", description="see [data](data.md#who-takes-part-when)")
    rounds: Whole | None = Field(None, description="number of rounds")
    cohort_size: Positive | None = Field(None, description="clients in a round, on average")
    epochs: Whole = Field(1, description="passes over all clients, of pattern epochs")
    separation: Whole | None = Field(None, description="rounds that a client stays away, of pattern min-separation")
    trace: str | None = Field(None, description="a csv or JSON file of rounds and clients, of pattern trace")

    @property
    def kind(self) -> type[Pattern]:
        """The class of the pattern."""
        return PATTERNS[self.pattern]

    @model_validator(mode="after")
    def _fits_its_pattern(self) -> Participation:
        if self.pattern not in PATTERNS:
            raise ValueError(f"participation.pattern={self.pattern!r} is not allowed: it must be one of {', '.join(PATTERNS)}")
        known = [*type(self).model_fields, *self.kind.keys]
        for name in self.model_extra or ():
            if name not in known:
                raise ValueError(f"unknown key 'participation.{name}'{_nearest(name, known)} Known here: {', '.join(known)}")
        if self.trace is not None and "trace" not in self.kind.keys:
            raise ValueError("participation: pattern 'trace' and the key trace (a file) belong together.")
        return self


class Canaries(_Section):
    """The pool: each canary is inserted by its own fair coin; `pool = 0` trains without canaries and audits nothing."""

    pool: Annotated[int, Field(ge=0, strict=True)] = Field(2000, description="inserted and held-out canaries together")
    family: Literal["transform", "sphere"] = Field("transform", description="fast orthogonal rows, or independent directions")
    pattern: Literal["periods", "as-clients"] = Field("periods", description="once in each period, or when a client would")
    presentations: Whole = Field(1, description="number of periods")
    replace_clients: bool = Field(False, description="a canary takes the place of a client; neighbours replace one")
    full_vectors: bool = Field(
        False, description="every canary is a full vector that passes through the client's code; slower, same release"
    )
    canary_norm: Positive = Field(1e4, description="norm of a canary's update in clip norms: the code under audit must clip it")
    examples: Whole | None = Field(None, description="that a canary says it has; none: as many as the largest client")


class Audit(_Section):
    """The primary statement, which alone decides, and what is shown beside it; all named before the run."""

    view: str = Field("known-others", description="the threat model of the primary statement, a name of `coalmine.views.VIEWS`")
    bound: str = Field("band", description="its bound, a name of `coalmine.estimators.BOUNDS`")
    also: tuple[str, ...] = Field((), description="further bounds, shown")
    views: tuple[str, ...] = Field(SHOWN, description="further threat models, shown beside the primary one")
    paper_views: bool = Field(False, description="also the papers' variants: whole model, steps after momentum, fitted maximum")
    null: Literal["auto", "theory", "empirical"] = Field(
        "auto",
        description="the law of held-out scores: theory (no ceiling), or empirical (held-out canaries and unused directions)",
    )
    confidence: Share = Field(0.95, description="of bounds and intervals")
    layers: bool = Field(False, description="also every layer of at least 500 parameters: where does it leak?")
    unused_rows: Annotated[int, Field(ge=100, strict=True)] = Field(
        8192, description="directions that are looked for and never inserted"
    )


class Run(_Section):
    """How the work is done; nothing here but the seed changes a result."""

    seed: Annotated[int, Field(ge=0, strict=True)] = Field(0, description="public: initialisation, order, public sampling")
    workers: Whole = Field(2, description="processes")
    evaluate_every: Annotated[int, Field(ge=0)] = Field(10, description="rounds between evaluations; 0: at the end only")
    reference: bool = Field(False, description="afterwards the same without noise and canaries, for comparison")
    hooks: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = Field(
        (), description="who hears of every round, see [hooks](hooks.md)"
    )


class Config(_Section):
    """A whole run."""

    data: Data = Data()
    model: Model = Model()
    client: Client = Client()
    server: Server = Server()
    privacy: Privacy = Privacy()
    mechanism: Mechanism = Mechanism()
    participation: Participation = Participation()
    canaries: Canaries = Canaries()
    audit: Audit = Audit()
    run: Run = Run()

    @property
    def spec(self) -> AuditSpec:
        """What the audit is told."""
        relation = "replace-one" if self.canaries.replace_clients else self.privacy.relation
        return AuditSpec(self.privacy.delta, **dict(self.audit), unit=self.privacy.unit, relation=relation)

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        canaries, who = self.canaries, self.participation
        who.kind.check_options(who.model_dump(), who.pattern)
        if canaries.pattern == "as-clients" and who.pattern == "trace":
            raise ValueError("canaries: a trace says nothing about canaries; use pattern 'periods'.")
        if canaries.pattern == "as-clients" and canaries.presentations != 1:
            raise ValueError("canaries: presentations belong to pattern 'periods'.")
        if canaries.replace_clients and canaries.pattern == "as-clients" and who.pattern == "poisson":
            raise ValueError("canaries: Poisson sampling is accounted for adding and removing, not for replacing, clients.")
        if 0 < canaries.pool < LEAST_POOL:
            raise ValueError(f"canaries: a pool of {canaries.pool} shows nothing; at least {LEAST_POOL}, or 0 for none.")
        _ = self.spec  # which checks itself
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
            f"{name!r} is neither a file nor a preset{_nearest(name, preset_names())} Presets: {', '.join(preset_names())}."
        )
    return parse_config(text, changes, where=name)


def parse_config(text: str, changes: Sequence[str] = (), *, where: str = "the configuration") -> Config:
    """The configuration of a TOML document; sections that a run adds (`versions`, …) are left out."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputFileError(f"{where} is not TOML: {error}.") from None
    data.pop("about", None)  # what a run writes about itself
    data = renamed.section(data)
    for change in changes:
        _apply(data, change)
    return checked(data, where=where)


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
    """The SHA-256 of all that can change a result: not of the number of workers, who listens, nor of where files are."""
    import tomli_w

    told = config.model_dump(mode="json", exclude_none=True)
    del told["run"]["workers"], told["run"]["hooks"]
    told["data"]["options"].pop("data_dir", None)
    told["participation"].pop("trace", None)
    return hashlib.sha256(tomli_w.dumps(told).encode()).hexdigest()


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
    except tomllib.TOMLDecodeError:
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
        known = list(section.model_fields)
        return f"unknown key {'.'.join(place)!r}{_nearest(place[-1], known)} Known here: {', '.join(known)}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"]).rstrip(".")
    return f"{'.'.join(place[:2])}={error.get('input')!r} is not allowed: {error['msg'][0].lower()}{error['msg'][1:]}"


def _nearest(word: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {found[0]!r}?" if found else "."
