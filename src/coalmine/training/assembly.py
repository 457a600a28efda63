"""From a configuration to the objects of a run: data, model, mechanism, server, participation, canaries."""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from coalmine import _validate, data
from coalmine._random import stream
from coalmine.accounting.events import event_of
from coalmine.canaries import FAMILIES
from coalmine.canaries.aimed import AimedCanaries
from coalmine.canaries.schedule import Schedule
from coalmine.canaries.setup import CanarySetup
from coalmine.clients import LocalTraining
from coalmine.contracts import Context, Mechanism, Participation, ServerOptimiser
from coalmine.data import SPECIAL, FederatedDataset, FederatedTexts, Vocabulary
from coalmine.mechanisms.registry import check, fingerprint, make_mechanism
from coalmine.mechanisms.strategies import Plan
from coalmine.models import MODELS, Model
from coalmine.participation import Periods, Separated
from coalmine.training import sections
from coalmine.training.aiming import aim_canaries
from coalmine.training.config import Config
from coalmine.training.federation import Federation
from coalmine.training.server import ServerAdam, ServerSGD

LARGE = 100_000  # users above whom nothing looks at everybody's data before the first round, `SAMPLED` if they are in files
_MOST_ROUNDS = 1_000_000  # of a training: their schedule is drawn and kept before the first one
SAMPLED = 10_000  # users who are looked at instead


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
        counts: Counter[int] = Counter()
        for _, examples in _sampled(self.train):  # user by user: all together may not fit
            counts.update(dict(enumerate(np.bincount(_counted(examples.targets, least)).tolist())))
        frequent = max(counts, key=lambda target: (counts[target], -target))
        found = [_counted(examples.targets, least) == frequent for _, examples in self.held_out]
        return clustered_accuracy(
            np.array([float(each.sum()) for each in found]), np.array([float(each.size) for each in found])
        )


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
        source = source.first(config.data.users)
    if not len(source):
        raise ValueError("data: no user is left; lower data.at_least.")
    train, held_out = _split(source, config)
    if train.texts:
        vocabulary = _vocabulary(train, config.data)
        cut = partial(_windows, vocabulary=vocabulary, config=config.data)
        train, held_out = cut(train), None if held_out is None else cut(held_out)
        return Task(train, held_out, _model(config.model, vocabulary=len(vocabulary.tokens) + SPECIAL), texts=True)
    examples = train.examples_of(train.users[0])
    parts = [train] if held_out is None else [train, held_out]  # how many classes there are is public
    known = config.model.options.get("classes")  # else everybody's targets are read
    classes = known or 1 + max(int(each.targets.max(initial=0)) for part in parts for _, each in part)
    return Task(train, held_out, _model(config.model, shape=examples.features.shape[1:], classes=classes), texts=False)


def federation(config: Config, task: Task, secret_seed: int, mechanism: Mechanism | None = None) -> Federation:
    """Everything that is fixed before the run. Canaries, their rounds and coins, and the noise come from the secret seed."""
    participation, rounds = _participation(config.participation, task.train)
    if mechanism is None:
        cohort = participation.expected_size(len(task.train), rounds)
        momentum = config.server.momentum if config.server.optimiser == "sgd" else 0.0
        context = Context(cohort, len(task.train), rounds, participation, task.model.groups, momentum)
        mechanism = make_mechanism(config.mechanism.kind, config.mechanism.options, context)
    check(mechanism, reference=config.run.reference)
    single = mechanism.describe().examples is not None
    if config.privacy.unit == "example" and not single and int(task.train.sizes.max(initial=0)) > 1:
        raise ValueError(
            'privacy.unit = "example" needs clients of one example each; these have up to '
            f"{int(task.train.sizes.max())}. Group the data by ones (data.options.group = 1), or protect clients."
        )
    return Federation(
        model=task.model,
        data=task.train,
        held_out=task.held_out,
        training=_training(config.client),
        participation=participation,
        rounds=rounds,
        mechanism=mechanism,
        server=_server(config.server),
        canary_setup=_canary_setup(config, task, participation, rounds, secret_seed, mechanism)
        if config.canaries.pool
        else None,
        seed=config.run.seed,
        secret=partial(stream, secret_seed),
    )


def _canary_setup(
    config: Config, task: Task, clients: Participation, rounds: int, secret_seed: int, mechanism: Mechanism
) -> CanarySetup:
    canaries, aim = config.canaries, None
    pattern: Participation = Periods(canaries.presentations)
    if canaries.pattern == "separated":
        pattern = Separated(canaries.presentations, canaries.separation or Plan.of(clients.constraint(rounds)).separation)
    elif canaries.pattern == "as-clients":
        pattern = clients.among(canaries.pool, len(task.train))
    if canaries.family == "aimed":
        aim = aim_canaries(
            canaries.aim,
            pool=canaries.pool,
            data=task.train,
            model=task.model,
            training=_training(config.client),
            description=mechanism.describe(),
            cohort=clients.expected_size(len(task.train), rounds),
            seed=config.run.seed,
            secret_seed=secret_seed,
            delta=config.privacy.delta,
            times=pattern.most,
        )
    setup = CanarySetup(
        FAMILIES[canaries.family](task.model.dim, canaries.pool, secret_seed=secret_seed)
        if aim is None
        else AimedCanaries(aim, canaries.pool, secret_seed=secret_seed),
        Schedule.draw(pattern, pool=canaries.pool, rounds=rounds, secret_seed=secret_seed),
        full_vectors=canaries.full_vectors,
        replace=canaries.replace_clients,
        canary_norm=canaries.canary_norm,
        examples=canaries.examples or int(_sampled(task.train).sizes.max(initial=1)),
        aim=aim,
    )
    if not any(setup.schedule.taking_part(number).size for number in range(rounds)):
        raise ValueError("canaries: none of them would take part in any round. Insert more of them, or train for more rounds.")
    return setup


def check_claims(config: Config, job: Federation) -> None:
    """Whether some accountant can speak of this run, for its clients and against every adversary that is named."""
    if job.canary_setup is not None:
        config.spec.check_noise(job.mechanism.describe())
    said = job.mechanism.describe()
    if said.examples is not None and config.privacy.unit != "example":
        raise ValueError(
            f"privacy.unit={config.privacy.unit!r} does not fit mechanism.kind={config.mechanism.kind!r}, which protects "
            'single examples of a client: set privacy.unit = "example".'
        )
    event_of(said, job.participation, relation=config.privacy.relation, rounds=job.rounds)
    if job.canary_setup is not None:
        pattern = job.canary_setup.schedule.pattern
        for view in config.spec.threats():
            revealed = view.knows_rounds and pattern.sampling is not None
            event_of(said, pattern, relation=view.relation, revealed=revealed, rounds=job.rounds)


def inputs(job: Federation) -> str:
    """The SHA-256 of what a run is made of beside its configuration: users, model, mechanism and who takes part when.

    Empty if the mechanism has values that cannot be read: then nobody can know whether another one is the same.
    """
    mechanism = fingerprint(job.mechanism)
    if mechanism is None:
        return ""
    digest = hashlib.sha256()
    described = (job.model.name, job.model.dim, sorted((name, place.start) for name, place in job.model.groups.items()))
    for part in (described, mechanism, job.participation.fingerprint, *job.data.identity):
        digest.update(repr(part).encode("utf-8", "surrogatepass"))
    digest.update(job.model.initial(job.seed).tobytes())
    return digest.hexdigest()


def _split(source: Any, config: Config) -> tuple[Any, Any]:
    share = config.data.held_out
    if not share:
        return source, None
    split = source.split_examples if config.data.held_out_kind == "examples" else source.split_users
    train, held_out = split(share, seed=config.run.seed)
    return train, held_out


def _vocabulary(train: FederatedTexts, config: sections.DataSection) -> Vocabulary:
    if config.vocabulary == "ascii":
        if config.unit != "characters":
            raise ValueError('data.vocabulary = "ascii" is a vocabulary of characters; set data.unit = "characters".')
        return Vocabulary.ascii()
    counted: FederatedTexts = _sampled(train)
    return counted.vocabulary(config.unit, size=config.vocabulary)


def _windows(texts: FederatedTexts, vocabulary: Vocabulary, config: sections.DataSection) -> FederatedDataset:
    """Windows of texts: in memory, or cut anew when a client needs them, for sources that are large or do not fit."""
    windows = texts.windows(vocabulary, length=config.length, packing=config.packing)
    return windows if not config.in_memory or _large(texts) else windows.in_memory()


def _sampled(users: Any) -> Any:
    """Everybody, or of very many users some, evenly spaced: for what is public or only shown, and would need all data."""
    return users.spaced(SAMPLED) if _large(users) else users


def _large(users: Any) -> bool:
    """Whether there are too many users to look at everybody's data. Where they are grouped in files, it is soon too many: all
    texts of 100,000 users take minutes to cut, and those of one user are found at once when they are needed."""
    return len(users) > (SAMPLED if users.indexed else LARGE)


def _counted(targets: Any, least: int) -> Any:
    flat = np.asarray(targets).reshape(-1)
    return flat[flat >= least].astype(np.int64)


def _model(config: sections.ModelSection, **determined: Any) -> Model:
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


def _training(config: sections.ClientSection) -> LocalTraining:
    return LocalTraining(
        learning_rate=config.learning_rate,
        epochs=config.epochs,
        batch_size=None if config.batch_size == "all" else config.batch_size,
        momentum=config.momentum,
        max_steps=config.max_steps,
        max_examples=config.max_examples,
    )


def _server(config: sections.ServerSection) -> ServerOptimiser:
    if config.optimiser == "sgd":
        return ServerSGD(config.learning_rate, config.momentum)
    return ServerAdam(config.learning_rate, config.first_decay, config.second_decay, config.stabiliser)


def _participation(config: sections.ParticipationSection, train: FederatedDataset) -> tuple[Participation, int]:
    """(the clients' pattern, the number of rounds): the pattern knows how to make itself."""
    pattern, rounds = config.kind.from_config({**config.model_dump(), "users": train.users}, len(train))
    return pattern, _validate.whole("participation.rounds", rounds, least=1, most=_MOST_ROUNDS)
