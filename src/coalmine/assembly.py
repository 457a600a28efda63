"""From a configuration to the objects of a run: data, model, mechanism, server, participation, canaries."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from coalmine import _validate, data
from coalmine import config as sections
from coalmine._random import stream
from coalmine.canaries import FAMILIES
from coalmine.canaries.schedule import Schedule
from coalmine.clients import LocalTraining
from coalmine.config import Config
from coalmine.contracts import Mechanism, Server
from coalmine.data import SPECIAL, FederatedDataset, FederatedTexts, Vocabulary
from coalmine.federation import CanarySetup, Federation
from coalmine.mechanisms import AdaptiveGaussian, Gaussian
from coalmine.models import MODELS, Model
from coalmine.participation import Epochs, FixedSize, MinSeparation, Once, Participation, Periods, Poisson, Trace
from coalmine.server import ServerAdam, ServerSGD


@dataclass(frozen=True)
class Task:
    """What the data of a configuration determine: training users, held-out users, and the model that fits them."""

    train: FederatedDataset
    held_out: FederatedDataset | None
    model: Model
    texts: bool = False  # targets are tokens, of which special ones do not count

    @cached_property
    def classes(self) -> bool:
        """Whether targets are classes, so that an accuracy means something."""
        targets = self.train.examples_of(self.train.users[0]).targets
        return bool(np.issubdtype(targets.dtype, np.integer) and targets.min(initial=0) >= 0)

    @cached_property
    def baseline(self) -> tuple[float, float]:
        """(accuracy, standard error over users) of always predicting what is most frequent among the training users."""
        if self.held_out is None:
            return float("nan"), float("nan")
        least = SPECIAL if self.texts else 0  # special tokens do not count
        frequent = np.bincount(np.concatenate([_counted(examples.targets, least) for _, examples in self.train])).argmax()
        targets = [_counted(examples.targets, least) for _, examples in self.held_out]
        right = np.array([float((each == frequent).sum()) for each in targets])
        return clustered_accuracy(right, np.array([float(each.size) for each in targets]))


def clustered_accuracy(right: np.ndarray[Any, Any], counted: np.ndarray[Any, Any]) -> tuple[float, float]:
    """(accuracy, its standard error over users): the predictions of one user are not independent of each other.

    >>> clustered_accuracy(np.array([5.0, 5.0]), np.array([10.0, 10.0]))
    (0.5, 0.0)
    """
    total = counted.sum()
    if not total:
        return float("nan"), float("nan")
    share, users = right.sum() / total, counted.size
    residuals = right - share * counted
    factor = users / (users - 1) if users > 1 else 1.0
    return float(share), float(np.sqrt(factor * np.square(residuals).sum()) / total)


def load_task(config: Config) -> Task:
    """Read the data and make the model."""
    source = data.read(config.data.source, **config.data.options)
    if config.data.at_least:
        source = source.at_least(config.data.at_least)
    if config.data.cap:
        source = source.capped(config.data.cap)
    if config.data.users:
        source = source.only(source.users[: config.data.users])
    if not len(source):
        raise ValueError("data: no user is left; lower data.at_least.")
    train, held_out = _split(source, config)
    if isinstance(train, FederatedTexts):
        vocabulary = _vocabulary(train, config.data)
        cut = partial(_windows, vocabulary=vocabulary, config=config.data)
        train, held_out = cut(train), cut(held_out) if isinstance(held_out, FederatedTexts) else None
        return Task(train, held_out, _model(config.model, vocabulary=len(vocabulary.tokens) + SPECIAL), texts=True)
    assert isinstance(train, FederatedDataset) and not isinstance(held_out, FederatedTexts)
    examples = train.examples_of(train.users[0])
    parts = [train] if held_out is None else [train, held_out]  # how many classes there are is public
    classes = 1 + max(int(each.targets.max(initial=0)) for part in parts for _, each in part)
    return Task(train, held_out, _model(config.model, shape=examples.features.shape[1:], classes=classes), texts=False)


def federation(config: Config, task: Task, secret_seed: int, mechanism: Mechanism | None = None) -> Federation:
    """Everything that is fixed before the run. Canaries, their rounds and coins, and the noise come from the secret seed."""
    if config.privacy.unit == "example" and int(task.train.sizes.max(initial=0)) > 1:
        raise ValueError(
            'privacy.unit = "example" needs clients of one example each; these have up to '
            f"{int(task.train.sizes.max())}. Group the data by ones (data.options.group = 1), or protect clients."
        )
    participation, rounds = _participation(config.participation, task.train)
    canary_setup = None
    if config.canaries.pool:
        pattern = _canary_pattern(config, participation, rounds, len(task.train))
        family = FAMILIES[config.canaries.family]
        canary_setup = CanarySetup(
            family(task.model.dim, config.canaries.pool, secret_seed=secret_seed),
            Schedule.draw(pattern, pool=config.canaries.pool, rounds=rounds, secret_seed=secret_seed),
            as_vectors=config.canaries.as_vectors,
            replace=config.canaries.replace_clients,
            over_long=config.canaries.over_long,
            examples=config.canaries.examples or int(task.train.sizes.max(initial=1)),
        )
        if not any(canary_setup.schedule.taking_part(number).size for number in range(rounds)):
            raise ValueError("canaries: none of them would take part in any round. Plant more of them, or for more rounds.")
    cohort = participation.expected_size(len(task.train), rounds)
    return Federation(
        model=task.model,
        data=task.train,
        held_out=task.held_out,
        training=_training(config.client),
        participation=participation,
        rounds=rounds,
        mechanism=mechanism or _mechanism(config.privacy, cohort),
        server=_server(config.server),
        canary_setup=canary_setup,
        seed=config.run.seed,
        secret=partial(stream, secret_seed),
    )


def inputs(job: Federation) -> str:
    """The SHA-256 of what a run is made of beside its configuration: users, model, mechanism and who takes part when."""
    digest = hashlib.sha256()
    described = (job.model.name, job.model.dim, sorted((name, place.start) for name, place in job.model.groups.items()))
    members = job.participation.members if isinstance(job.participation, Trace) else ()
    kind = f"{type(job.mechanism).__module__}.{type(job.mechanism).__qualname__}"
    for part in (
        described,
        kind,
        repr(job.mechanism),
        repr(job.participation),
        members,
        job.data.users,
        job.data.sizes.tolist(),
    ):
        digest.update(repr(part).encode("utf-8", "surrogatepass"))
    digest.update(job.model.initial(job.seed).tobytes())
    return digest.hexdigest()


def reference_config(config: Config) -> Config:
    """The same run for comparison: what the privacy and the audit cost in accuracy."""
    privacy = config.privacy.model_copy(update={"noise_multiplier": 0.0})
    return config.model_copy(update={"privacy": privacy, "canaries": config.canaries.model_copy(update={"pool": 0})})


def _split(source: Any, config: Config) -> tuple[Any, Any]:
    share = config.data.held_out
    if not share:
        return source, None
    split = source.split_examples if config.data.held_out_kind == "examples" else source.split_users
    train, held_out = split(share, seed=config.run.seed)
    return train, held_out


def _vocabulary(train: FederatedTexts, config: sections.Data) -> Vocabulary:
    if config.vocabulary == "ascii":
        if config.unit != "characters":
            raise ValueError('data.vocabulary = "ascii" is a vocabulary of characters; set data.unit = "characters".')
        return Vocabulary.ascii()
    return train.vocabulary(config.unit, size=config.vocabulary)


def _windows(texts: FederatedTexts, vocabulary: Vocabulary, config: sections.Data) -> FederatedDataset:
    return texts.windows(vocabulary, length=config.length, packing=config.packing).in_memory()


def _counted(targets: Any, least: int) -> Any:
    flat = np.asarray(targets).reshape(-1)
    return flat[flat >= least].astype(np.int64)


def _model(config: sections.Model, **determined: Any) -> Model:
    """The model by its name; what the data determine is told to it unless the configuration says otherwise."""
    make = MODELS[_validate.one_of("model.name", config.name, MODELS)]
    allowed = list(inspect.signature(make).parameters)
    for option in config.options:
        _validate.one_of(f"an option of model {config.name!r}", option, allowed)
    arguments = {name: value for name, value in determined.items() if name in allowed} | config.options
    missing = [name for name in ("vocabulary", "classes", "shape") if name in allowed and name not in arguments]
    if missing:
        raise ValueError(f"model {config.name!r} needs {', '.join(missing)}, which this kind of data does not determine.")
    return make(**arguments)


def _training(config: sections.Client) -> LocalTraining:
    return LocalTraining(
        learning_rate=config.learning_rate,
        epochs=config.epochs,
        batch_size=None if config.batch_size == "all" else config.batch_size,
        momentum=config.momentum,
        max_steps=config.max_steps,
        max_examples=config.max_examples,
    )


def _mechanism(config: sections.Privacy, cohort: float) -> Mechanism:
    if not config.adaptive_clipping:
        return Gaussian(config.clip_norm, config.noise_multiplier, config.realised_denominator)
    return AdaptiveGaussian(
        config.clip_norm,
        config.noise_multiplier,
        config.realised_denominator,
        target_quantile=config.target_quantile,
        clip_learning_rate=config.clip_learning_rate,
        count_noise=max(cohort / 20, config.noise_multiplier) if config.count_noise is None else config.count_noise,
    )


def _server(config: sections.Server) -> Server:
    if config.optimiser == "sgd":
        return ServerSGD(config.learning_rate, config.momentum)
    return ServerAdam(config.learning_rate, config.first_decay, config.second_decay, config.stabiliser)


def _participation(config: sections.Participation, train: FederatedDataset) -> tuple[Participation, int]:
    """(the clients' pattern, the number of rounds)."""
    population = len(train)
    if config.pattern == "trace":
        trace = Trace.read(config.trace or "", users=train.users)
        return trace, trace.rounds
    rounds = config.rounds or max(1, round(config.epochs * population / (config.cohort_size or population)))
    cohort = config.cohort_size or 1.0
    follows = config.epochs * population / rounds if config.pattern == "epochs" else population / rounds
    if config.pattern in ("once", "epochs") and config.rounds and config.cohort_size and abs(cohort - follows) >= 1:
        raise ValueError(
            f"participation: {population:,} clients in {rounds} rounds make cohorts of {follows:.1f}, not of {cohort:g}. "
            "Leave out rounds or cohort_size, or change the number of users (data.users)."
        )
    if config.pattern in ("poisson", "fixed-size", "min-separation") and cohort > population:
        raise ValueError(f"participation: a cohort_size of {cohort:g} is more than the {population:,} clients that there are.")
    if config.pattern in ("fixed-size", "min-separation") and cohort != int(cohort):
        raise ValueError(f"participation: cohort_size={cohort:g} must be a whole number for pattern {config.pattern!r}.")
    match config.pattern:
        case "once":
            return Once(), rounds
        case "epochs":
            return Epochs(config.epochs), rounds
        case "poisson":
            return Poisson(cohort / population, rounds), rounds
        case "fixed-size":
            return FixedSize(int(cohort), population, rounds), rounds
    return MinSeparation(config.separation or 1, int(cohort), rounds), rounds


def _canary_pattern(config: Config, clients: Participation, rounds: int, population: int) -> Participation:
    """When canaries take part: in periods of their own, or as often as a client would."""
    if config.canaries.pattern == "periods":
        return Periods(config.canaries.presentations)
    pool = config.canaries.pool
    match clients:
        case FixedSize(cohort_size, _, _):
            return FixedSize(max(1, round(cohort_size * pool / population)), pool, rounds)
        case MinSeparation(separation, cohort_size, _):
            return MinSeparation(separation, max(1, round(cohort_size * pool / population)), rounds)
    return clients
