"""The sections of a configuration: small classes whose fields are the allowed keys, checked as a whole."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from coalmine._validate import MOST_WORKERS
from coalmine.audit.spec import LARGEST_LEVEL, LEAST_POOL, SHOWN, AuditSpec
from coalmine.contracts.conformance import LEVEL
from coalmine.mechanisms.registry import MECHANISMS, defaults_of, keys_of
from coalmine.participation import PATTERNS, Pattern
from coalmine.training.crafting_section import CraftingSection

Whole = Annotated[int, Field(ge=1, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=3e38, allow_inf_nan=False)]  # of float32
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSection(_Section):
    """The data set, the part of it that is used, and how texts become examples."""

    source: str = Field("chat", description="a name of `coalmine.data.SOURCES`")
    at_least: int | None = Field(None, ge=1, description="users with fewer examples (texts) are left out")
    cap: int | None = Field(None, ge=1, description="largest number of examples (texts) of a user")
    users: int | None = Field(None, ge=2, description="number of users, the first ones of the data set; none: all")
    held_out: float = Field(0.1, ge=0, description="share (below 1) or number held out for evaluations; 0: none")
    held_out_kind: Literal["users", "examples"] = Field(
        "users", description="what is held out: whole users, or some examples of each user"
    )
    unit: Literal["characters", "words", "tokens"] = Field("words", description="what a text is split into")
    vocabulary: int | Literal["ascii"] | None = Field(None, description="tokens with a number of their own; none: all")
    length: Whole = Field(20, description="tokens in a window")
    packing: Literal["separate", "joined", "first"] = Field(
        "separate",
        description="windows of each text separately, of all texts of a user joined, or the first window of each text",
    )
    in_memory: bool = Field(
        True,
        description="texts are tokenized once and kept in memory; false, or above 100,000 users: again for every client",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="further arguments of the source")


class ModelSection(_Section):
    """The model."""

    name: str = Field("chat-lstm", description="a name of `coalmine.models.MODELS`")
    options: dict[str, Any] = Field(default_factory=dict, description="arguments of the model that the data do not determine")


class ClientSection(_Section):
    """Local training. FedSGD and central DP-SGD: batch_size = "all", epochs = 1, learning_rate = 1."""

    epochs: Whole = Field(1, le=10_000, description="passes over a client's examples")
    batch_size: Whole | Literal["all"] = Field(16, description="examples in a step")
    learning_rate: Rate = Field(0.1, description="learning rate of local SGD")
    momentum: Decay = Field(0.0, description="momentum of local SGD, zero at the beginning of every round")
    max_steps: Whole | None = Field(None, description="largest number of steps")
    max_examples: Whole | None = Field(None, description="largest number of examples, chosen again in every round")


class ServerSection(_Section):
    """What the server does with the released mean."""

    optimiser: Literal["sgd", "adam"] = Field("sgd", description="adam is FedAdam")
    learning_rate: Positive = Field(1.0, description="learning rate of the server")
    momentum: Decay = Field(0.0, description="momentum of sgd")
    first_decay: Decay = Field(0.9, description="decay of the first moment of adam")
    second_decay: Decay = Field(0.99, description="decay of the second moment of adam")
    stabiliser: Positive = Field(1e-3, description="adam: added to the root of the second moment")


class PrivacySection(_Section):
    """What is protected, and the delta that everything is stated for."""

    delta: Share = Field(1e-5, description="delta of every statement")
    unit: Literal["client", "example"] = Field("client", description="who is protected; example: clients are single examples")
    relation: Literal["add-or-remove-one", "replace-one"] | None = Field(
        None, description="what neighbouring data sets differ in; none: what is usual for the participation pattern"
    )


class MechanismSection(_Section):
    """What turns the updates of a round into a release. Each kind has its own keys; none means the default of the kind."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str = Field(
        "gaussian",
        description='"gaussian", "adaptive" (the clip norm follows a quantile), "correlated" (noise is correlated over rounds, '
        'DP-FTRL), "adaptive-correlated" (both), "distributed", "full-gradient", "batch-gradient", "water-filling" (keys: '
        '[secure aggregation](secure-aggregation.md#mechanisms)), or "package.module:Name"',
    )
    clip_norm: Positive | None = Field(
        None, description="longer updates are clipped to it; adaptive: the first clip norm; default 1.0"
    )
    noise_multiplier: NonNegative | None = Field(None, description="noise on the sum, in clip norms; default 1.0")
    divide_by_actual_cohort: bool | None = Field(
        None, description="divide by the actual cohort, as Algorithm 2 is printed, not by the expected one; shown as a caveat"
    )
    target_quantile: Share | None = Field(
        None, description="adaptive: share of updates that should stay unclipped; default 0.5"
    )
    clip_learning_rate: Positive | None = Field(None, description="adaptive: learning rate of the clip norm; default 0.2")
    count_noise: NonNegative | None = Field(
        None, description="adaptive: noise on the number of unclipped updates; default: cohort / 20 (adaptive-correlated: more)"
    )

    strategy: str | dict[str, Any] | None = Field(
        None,
        description='correlated: "independent", "toeplitz", "banded", "blt", "tree" or "matrix": see '
        "[correlated noise](correlated-noise.md)",
    )
    bands: Whole | None = Field(None, description="strategy banded: coefficients; default: the separation of the participation")
    buffers: Whole | None = Field(
        None, description="strategy blt: buffers; default 3; toeplitz: buffers in the place of all rounds"
    )
    damping: Decay | None = Field(None, description="strategy toeplitz: damping ν; default 0, the square root of prefix sums")
    objective: Literal["mean", "max"] | None = Field(
        None, description="strategies banded, blt: the error over rounds that is minimised; default mean"
    )
    honaker: Literal["none", "below", "full"] | None = Field(
        None, description="strategy tree: which nodes a release is estimated from; default below"
    )
    file: str | None = Field(None, description="strategy matrix: a lower triangular matrix in .npy, .npz or .csv")
    restart_every: Whole | None = Field(None, description="correlated: the strategy begins anew after so many rounds")
    momentum: Decay | None = Field(
        None, description="correlated: momentum that the strategy is optimised for; default: that of the server"
    )

    @property
    def options(self) -> dict[str, Any]:
        """The keys of this kind: those that are stated; clip norm and noise are 1 where the kind has no default of its own."""
        stated = {name: value for name, value in self.model_dump(exclude={"kind"}).items() if value is not None}
        known, own = keys_of(self.kind) or [], defaults_of(self.kind)
        usual = [name for name in ("clip_norm", "noise_multiplier") if name in known and name not in own]
        return {**dict.fromkeys(usual, 1.0), **stated}

    @model_validator(mode="after")
    def _has_known_keys(self) -> MechanismSection:
        known = keys_of(self.kind)
        for name in self.options:
            if known is not None and name not in known:
                having = [repr(each) for each in MECHANISMS if set(self.options) <= set(keys_of(each) or ())]
                remedy = f"; take kind {' or '.join(having)}." if having else nearest(name, known)
                raise ValueError(f"mechanism: kind {self.kind!r} has no key {name!r}{remedy} It has {', '.join(known)}.")
        return self


class ParticipationSection(_Section):
    """When clients take part. Of rounds and cohort_size one is enough where the other follows."""

    model_config = ConfigDict(extra="allow", frozen=True)

    pattern: str = Field(
        "once", description="who takes part in which round: see [participation patterns](data.md#participation-patterns)"
    )
    rounds: Whole | None = Field(None, description="number of rounds")
    cohort_size: Positive | None = Field(None, description="clients in a round, on average")
    epochs: Whole = Field(1, description="pattern epochs: passes over all clients")
    separation: Whole | None = Field(
        None, description="pattern min-separation: smallest distance between two rounds of a client"
    )
    reshuffled: bool | None = Field(
        None, description="pattern epochs: each pass in a new order; false: all in the same order; default true"
    )
    groups: Whole | None = Field(None, description="pattern cyclic-poisson: groups that take turns, at least as many as bands")
    trace: str | None = Field(None, description="pattern trace: a csv or JSON file of rounds and clients")

    @property
    def kind(self) -> type[Pattern]:
        """The class of the pattern."""
        return PATTERNS[self.pattern]

    @model_validator(mode="after")
    def _fits_its_pattern(self) -> ParticipationSection:
        if self.pattern not in PATTERNS:
            raise ValueError(f"participation.pattern={self.pattern!r} is not allowed: it must be one of {', '.join(PATTERNS)}")
        known = list(dict.fromkeys([*type(self).model_fields, *self.kind.keys]))
        for name in self.model_extra or ():
            if name not in known:
                raise ValueError(f"unknown key 'participation.{name}'{nearest(name, known)} Known here: {', '.join(known)}")
        if self.trace is not None and "trace" not in self.kind.keys:
            raise ValueError("participation: pattern 'trace' and the key trace (a file) belong together.")
        return self


class CanariesSection(_Section):
    """The pool: each canary is inserted by its own fair coin; `pool = 0` trains without canaries and audits nothing."""

    pool: Annotated[int, Field(ge=0, strict=True)] = Field(2000, description="inserted and held-out canaries together")
    family: Literal["transform", "sphere", "aimed"] = Field(
        "transform", description="rows of a fast orthogonal transform, independent random directions, or aimed by a covariance"
    )
    aim: Literal["least", "top", "outside-span"] = Field(
        "least", description="family aimed: at the least noise, the most of it, or where no gradient has anything"
    )
    pattern: Literal["periods", "separated", "as-clients"] = Field(
        "periods",
        description="once in each period, at a fixed distance, or by the participation pattern of the clients",
    )
    presentations: Whole = Field(1, description="patterns periods, separated: number of participations")
    separation: Whole | None = Field(
        None, description="pattern separated: distance of two participations; default: that of the clients"
    )
    replace_clients: bool = Field(False, description="a canary takes the place of a client; neighbours replace one")
    full_vectors: bool = Field(
        False, description="every canary is a full vector that passes through the client's code; slower, same release"
    )
    canary_norm: Positive = Field(1e4, description="norm of a canary's update in clip norms: the code under audit must clip it")
    examples: Whole | None = Field(
        None, description="number of examples that a canary states; none: that of the largest client"
    )


class AuditSection(_Section):
    """The primary statement, which alone decides, and what is shown beside it; all named before the run."""

    view: str = Field("known-others", description="the threat model of the primary statement, a name of `coalmine.views.VIEWS`")
    bound: str = Field("band", description="its bound, a name of `coalmine.estimators.BOUNDS`")
    also: tuple[str, ...] = Field((), description="further bounds, shown beside it")
    views: tuple[str, ...] = Field(SHOWN, description="further threat models, shown beside the primary one")
    paper_views: bool = Field(False, description="also the papers' variants: whole model, steps after momentum, fitted maximum")
    null: Literal["auto", "theory", "empirical"] = Field(
        "auto",
        description="null distribution: theory (no ceiling), or empirical (scores of held-out canaries and unused directions)",
    )
    confidence: Share = Field(0.95, description="confidence of bounds and intervals")
    layers: bool = Field(False, description="also audit every layer of at least 500 parameters, to find where it leaks")
    unused_rows: Annotated[int, Field(ge=100, strict=True)] = Field(
        8192, description="random directions that are scored and never inserted"
    )
    lifted: dict[str, Any] = Field(
        default_factory=dict, description="with run.repeats: order (1, 2 or 4) and kind (bernstein) of the lifted bound"
    )
    conformance_level: Annotated[float, Field(gt=0, le=LARGEST_LEVEL)] = Field(
        LEVEL, description="rate of false alarms of all tests together that ask whether the code does what was claimed"
    )


class RunSection(_Section):
    """How the work is done; nothing here but the seed changes a result."""

    seed: Annotated[int, Field(ge=0, strict=True)] = Field(
        0, description="public seed: initialisation, order of examples, public sampling"
    )
    workers: Whole = Field(2, le=MOST_WORKERS, description="worker processes; results do not depend on it")
    evaluate_every: Annotated[int, Field(ge=0)] = Field(10, description="rounds between evaluations; 0: at the end only")
    reference: bool = Field(False, description="afterwards train the same without noise and canaries, for comparison")
    repeats: Whole = Field(
        1, le=10_000, description="runs with a secret each; more than one are audited together, by the lifted bound"
    )
    keep_every: Annotated[int, Field(ge=0)] = Field(0, description="rounds between models that are kept for `craft`; 0: none")
    hooks: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = Field(
        (), description="trackers that every round is logged to: see [hooks](hooks.md)"
    )


class InferenceSection(_Section):
    """User inference, for `coalmine infer`: reference model, fine-tuning, and attack."""

    attack_texts: Whole = Field(10, le=10_000, description="texts of each user that the adversary has; never trained on")
    canary_users: Annotated[int, Field(ge=0, le=100_000, strict=True)] = Field(
        80, description="users with a shared random string"
    )
    shared: tuple[Whole, ...] = Field((4, 16), min_length=1, description="lengths of these strings, in characters")
    reference_users: Whole = Field(100, description="users of the reference model; no target is one of them")
    reference_steps: Whole = Field(400, le=10_000_000, description="training steps of the reference model")
    epochs: Positive = Field(4.0, le=10_000, description="passes over the texts of those who join")
    statistic: Literal["log ratio", "log ratio per token"] = Field(
        "log ratio", description="mean over attack texts of the log-likelihood ratio, or of its mean over tokens"
    )
    dedup: Literal["within-user"] | None = Field(None, description="equal texts of a user are kept once")
    protection: Literal["none", "example", "user"] = Field("none", description="DP-SGD on examples, on users, or none")
    epsilon: Positive | None = Field(None, description="user-level epsilon that the noise is calibrated to")
    guesses: Literal["tenth"] | Whole = Field(
        "tenth", description="guesses at each end for the bound, fixed before the run: a tenth of the users, or a number"
    )

    @model_validator(mode="after")
    def _epsilon_needs_protection(self) -> InferenceSection:
        if self.epsilon is not None and self.protection == "none":
            raise ValueError(f"inference.epsilon={self.epsilon:g} needs DP: set inference.protection to user or example.")
        return self


class Config(_Section):
    """A whole run."""

    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    client: ClientSection = ClientSection()
    server: ServerSection = ServerSection()
    privacy: PrivacySection = PrivacySection()
    mechanism: MechanismSection = MechanismSection()
    participation: ParticipationSection = ParticipationSection()
    canaries: CanariesSection = CanariesSection()
    audit: AuditSection = AuditSection()
    run: RunSection = RunSection()
    inference: InferenceSection | None = None
    crafting: CraftingSection = CraftingSection()

    @property
    def spec(self) -> AuditSpec:
        """What the audit is told."""
        relation = "replace-one" if self.canaries.replace_clients else self.privacy.relation
        stated = {name: value for name, value in dict(self.audit).items() if name != "lifted"}
        if self.run.repeats > 1 and self.audit.bound == "lifted":
            stated["bound"] = "band"  # of each run by itself
        spec = AuditSpec(self.privacy.delta, **stated, unit=self.privacy.unit, relation=relation)
        return spec.for_family(self.canaries.family, self.canaries.aim)

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
        if self.run.repeats == 1 and (self.audit.bound == "lifted" or self.audit.lifted):
            raise ValueError("audit: the lifted bound compares several runs; set run.repeats to their number.")
        for name in self.audit.lifted:
            if name not in ("order", "kind"):
                raise ValueError(f"audit.lifted has no key {name!r}{nearest(name, ('order', 'kind'))} It has order, kind.")
        self.crafting.check(canaries.pool)
        _ = self.spec  # which checks itself
        return self


def nearest(word: str, known: Sequence[str]) -> str:
    """What somebody may have meant, as the end of a sentence."""
    found = [name for name in known if word and name.startswith(word)] or difflib.get_close_matches(word, known, n=1)
    return f", did you mean {found[0]!r}?" if found else "."
