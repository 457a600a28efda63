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

from coalmine.errors import InputFileError
from coalmine.estimators import BOUNDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Whole = Annotated[int, Field(ge=1, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
LEAST_POOL = 10
ViewName = Literal["final-model", "every-release", "known-rounds", "known-others", "afterwards", "unknown-rounds"]


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
    """Clipping and noise, and the delta that everything is stated for."""

    noise_multiplier: NonNegative = Field(1.0, description="noise on the sum, in clip norms")
    clip_norm: Positive = Field(1.0, description="longer updates are cut to it; where adaptive clipping begins")
    delta: Share = Field(1e-5, description="of every statement")
    unit: Literal["client", "example"] = Field("client", description="who is protected; example: clients are single examples")
    adaptive_clipping: bool = Field(False, description="the clip norm follows a quantile of the norms (Andrew et al. 2021)")
    target_quantile: Share = Field(0.5, description="share of updates that should pass unclipped")
    clip_learning_rate: Positive = Field(0.2, description="how fast the clip norm follows")
    count_noise: NonNegative | None = Field(None, description="noise on the number of unclipped updates; none: cohort / 20")
    realised_denominator: bool = Field(False, description="divide by who came, as Algorithm 2 is printed; flagged")


class Participation(_Section):
    """When clients take part. Of rounds and cohort_size one is enough where the other follows."""

    pattern: Literal["once", "epochs", "poisson", "fixed-size", "min-separation", "trace"] = Field(
        "once", description="see [data](data.md#who-takes-part-when)"
    )
    rounds: Whole | None = Field(None, description="number of rounds")
    cohort_size: Positive | None = Field(None, description="clients in a round, on average")
    epochs: Whole = Field(1, description="passes over all clients, of pattern epochs")
    separation: Whole | None = Field(None, description="rounds that a client stays away, of pattern min-separation")
    trace: str | None = Field(None, description="a csv or JSON file of rounds and clients, of pattern trace")


class Canaries(_Section):
    """The pool: each canary is inserted by its own fair coin; `pool = 0` trains without canaries and audits nothing."""

    pool: Annotated[int, Field(ge=0, strict=True)] = Field(2000, description="inserted and held-out canaries together")
    family: Literal["transform", "sphere"] = Field("transform", description="fast orthogonal rows, or independent directions")
    pattern: Literal["periods", "as-clients"] = Field("periods", description="once in each period, or when a client would")
    presentations: Whole = Field(1, description="number of periods")
    replace_clients: bool = Field(False, description="a canary takes the place of a client; neighbours replace one")
    as_vectors: bool = Field(False, description="each as a full vector through the clients' door; slower, same release")
    over_long: Positive = Field(1e4, description="clip norms that a canary sends: the code under audit must cut it")
    examples: Whole | None = Field(None, description="that a canary says it has; none: as many as the largest client")


class Audit(_Section):
    """The primary statement, which alone decides, and what is shown beside it; all named before the run."""

    view: ViewName = Field("known-others", description="the adversary of the primary statement")
    bound: str = Field("band", description="its bound, a name of `coalmine.estimators.BOUNDS`")
    also: tuple[str, ...] = Field((), description="further bounds, shown")
    views: tuple[ViewName, ...] = Field(
        ("final-model", "every-release", "known-rounds", "known-others"),
        description="views that are taken, besides the primary one",
    )
    paper_views: bool = Field(False, description="also the papers' variants: whole model, steps after momentum, fitted maximum")
    null: Literal["auto", "law", "unused"] = Field("auto", description="what inserted canaries are compared with")
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
        self._check_audit()
        return self

    def _check_audit(self) -> None:
        audit = self.audit
        for name in (audit.bound, *audit.also):
            if name not in BOUNDS or name == "lifted":
                known = ", ".join(bound for bound in BOUNDS if bound != "lifted")
                raise ValueError(f"audit: {name!r} is no bound of one run; known are {known}.")
        if audit.bound in ("pointwise", "bayesian"):
            raise ValueError(f"audit: {audit.bound!r} is approximate and cannot decide; name it in audit.also.")
        if audit.view == "every-release" and audit.bound == "anytime":
            raise ValueError("audit: the anytime bound is for sums of scores, not for the maximum of view 'every-release'.")
        unfit = [name for name in (audit.bound, *audit.also) if name == "anytime" or name.startswith("one-run")]
        if audit.view == "unknown-rounds" and unfit:
            raise ValueError(
                f"audit: {unfit[0]!r} does not go with view 'unknown-rounds', whose likelihood ratios are no shifted normals "
                "and are compared with unused directions, which had no coins; use 'band'."
            )
        if audit.bound.startswith("one-run") and audit.null == "unused":
            raise ValueError("audit: one-run bounds need coins, which unused directions did not have; use null = 'law'.")
        if 0 < self.canaries.pool < LEAST_POOL:
            raise ValueError(f"canaries: a pool of {self.canaries.pool} shows nothing; at least {LEAST_POOL}, or 0 for none.")


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
    for change in changes:
        _apply(data, change)
    return checked(data, where=where)


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
        return f"unknown key {'.'.join(place)!r}{_nearest(place[-1], known)} Known here: {', '.join(known)}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"]).rstrip(".")
    return f"{'.'.join(place[:2])}={error.get('input')!r} is not allowed: {error['msg'][0].lower()}{error['msg'][1:]}"


def _nearest(word: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {found[0]!r}?" if found else "."
