"""Every mechanism through one battery: those of the package, and a toy of each kind that a description can express.

A new mechanism costs one line in CASES.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pytest
import toys
from scipy import stats

from coalmine import accounting
from coalmine._random import stream
from coalmine.contracts import AtLeast, ByClients, Clip, Description, Extra, Noise, Opaque, Public
from coalmine.errors import NonFiniteError, RunDirectoryError
from coalmine.mechanisms import (
    STRATEGIES,
    AdaptiveCorrelated,
    AdaptiveGaussian,
    Correlated,
    Distributed,
    FixedPointSum,
    Gaussian,
    fingerprint,
    read_description,
)
from coalmine.mechanisms.strategies import Banded, Blt, Tree
from coalmine.participation import Once
from coalmine.report.page import report
from coalmine.result import AuditResult
from coalmine.runs import RunDirectory
from coalmine.training import resume, run
from coalmine.training.config import read_config

FALSE_ALARM = 1e-6  # of every statistical statement here, by chance
DIM, ROUNDS, CLIENTS = 1500, 12, 8


@dataclass(frozen=True)
class Case:
    name: str
    mechanism: object
    other: object  # the same with other values
    exact: bool = True  # the noise has the described law; False: at least that of the description
    claimable: bool = True  # some accountant here can handle it


BANDED, BLT = Banded(ROUNDS, (0.8, 0.5, 0.2)), Blt(ROUNDS, (0.9, 0.5), (0.2, 0.2))
CASES = [
    Case("gaussian", Gaussian(2.0, 0.7), Gaussian(2.0, 0.8)),
    Case("adaptive", AdaptiveGaussian(2.0, 0.7, count_noise=2.0), AdaptiveGaussian(2.0, 0.7, count_noise=3.0)),
    Case("banded", Correlated(2.0, 0.7, strategy=BANDED), Correlated(2.0, 0.7, strategy=Banded(ROUNDS, (0.8, 0.3)))),
    Case("blt", Correlated(2.0, 0.7, strategy=BLT), Correlated(2.0, 0.8, strategy=BLT)),
    Case(
        "adaptive-blt",
        AdaptiveCorrelated(2.0, 0.7, strategy=BLT, count_noise=2.0),
        AdaptiveCorrelated(2.0, 0.7, strategy=BLT, count_noise=3.0),
    ),
    Case("tree", Correlated(2.0, 0.7, strategy=Tree(ROUNDS)), Correlated(2.0, 0.7, strategy=Tree(ROUNDS, "none"))),
    Case("correlated", toys.Correlated(2.0, 0.7, coupling=0.8), toys.Correlated(2.0, 0.7, coupling=0.7)),
    Case("lifted", toys.Lifted(2.0, 0.7), toys.Lifted(2.0, 0.8), exact=False, claimable=False),
    Case("by-clients", toys.ByTheClients(2.0, 0.7, honest=CLIENTS), toys.ByTheClients(2.0, 0.7, honest=CLIENTS + 1)),
    Case("distributed", Distributed(2.0, 0.7, honest=CLIENTS), Distributed(2.0, 0.7, honest=CLIENTS + 1)),
    Case("plain-class", toys.Plain(2.0, 0.7), toys.Plain(2.0, 0.8)),
]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
CLAIMABLE = [case for case in CASES if case.claimable]


@dataclass(frozen=True)
class Rounds:
    """What some rounds released, and what their noise was in units of the description."""

    releases: list
    noise: np.ndarray
    state: dict


def by_clients(mechanism):
    noise = mechanism.describe().noise
    return noise.added_by.kind == "clients"


def rounds_of(mechanism, *, rounds=ROUNDS, order=None, dtype=np.float32, secret_seed=3):
    """`rounds` rounds of eight clients, half of whose updates are too long."""
    secret, state = partial(stream, secret_seed), mechanism.init(DIM)
    sizes = np.linspace(0.2, 1.8, CLIENTS) * 2.0
    updates = [stream(1, "update", each).standard_normal(DIM).astype(np.float32) for each in range(CLIENTS)]
    updates = [
        (update * np.float32(size / np.linalg.norm(update))).astype(dtype) for update, size in zip(updates, sizes, strict=True)
    ]
    releases, rows, described = [], [], mechanism.describe().noise
    for number in range(rounds):
        public = mechanism.announce(state, number, float(CLIENTS))
        total = FixedPointSum(DIM, public.clip_norm)
        for each in order or range(CLIENTS):
            own = {"secret": partial(secret, "client", number, each)} if by_clients(mechanism) else {}
            total.add(mechanism.client(updates[each], public, 3, **own))
        release, state = mechanism.release(state, total, public, secret)
        noise = release.vector * release.denominator - total.without_noise()
        if described.multiplier:
            rows.append(noise / (described.multiplier * public.clip_norm))
        releases.append(release)
    return Rounds(releases, np.array(rows), dict(state))


def normal(values, kept=1):
    """p-values of standard normal noise, new in every round: its mean, its spread, its shape, neighbouring rounds."""
    flat, neighbours = values.ravel(), (values[1:] * values[:-1]).ravel()
    spread = stats.chi2(flat.size).cdf(np.square(flat).sum())
    return [
        2 * stats.norm.sf(abs(flat.sum()) / np.sqrt(flat.size)),
        2 * min(spread, 1 - spread),
        stats.kstest(flat, "norm").pvalue,
        2 * stats.norm.sf(abs(neighbours.sum()) / np.sqrt(neighbours.size)),
    ]


def whitened(mechanism, rows):
    return mechanism.describe().noise.rounds.whiten(rows, {})[0]


# what it says of itself


@every
def test_a_description_goes_through_json_and_back(case, monkeypatch):
    monkeypatch.setitem(STRATEGIES, toys.TwoTap.kind, toys.TwoTap)
    said = case.mechanism.describe()
    assert isinstance(said, Description) and said.has_noise
    assert read_description(json.loads(json.dumps(said.to_dict()))) == said
    assert case.other.describe() != said or case.name == "by-clients"


def test_a_strategy_that_is_not_registered_stays_opaque_and_is_written_as_it_was():
    data = json.loads(json.dumps(toys.Correlated(2.0, 0.7, coupling=0.8).describe().to_dict()))
    read = read_description(data)
    assert read.noise.rounds == Opaque("two-tap", {"coupling": 0.8})
    assert read.to_dict() == data
    assert read_description(read.scaled(0.5).to_dict()).noise.accounted == 0.35
    with pytest.raises(ValueError, match="'two-tap' is not known here"):
        accounting.claim_of(read, Once(), delta=1e-5)


def test_what_a_later_version_adds_to_a_description_is_left_out():
    said = Description(Clip(1.0), Noise(1.0, 1.0, added_by=ByClients(3, 2)), extras=(Extra("quantile", 2.0),))
    data = said.to_dict() | {"later": 1}
    data["clip"]["later"] = data["noise"]["later"] = data["extras"][0]["later"] = 1
    assert read_description(data) == said
    data["noise"]["added_by"]["parameters"]["later"] = 1  # of which nobody here knows what it changes
    assert read_description(data).noise.added_by == Opaque("clients", {"count": 3, "honest": 2, "later": 1})


@pytest.mark.parametrize("damage", [{"noise": 1}, {"clip": None}, {"extras": [{}]}, {"noise": {"accounted": 1}}])
def test_a_description_that_does_not_fit_is_a_value_error(damage):
    with pytest.raises(ValueError, match="description of the mechanism cannot be read"):
        read_description({**Gaussian(1.0, 1.0).describe().to_dict(), **damage})


@every
def test_half_the_noise_is_half_of_everything_that_is_noise(case):
    said = case.mechanism.describe()
    half = said.scaled(0.5)
    assert (half.noise.accounted, half.noise.multiplier) == (said.noise.accounted / 2, said.noise.multiplier / 2)
    assert [each.noise for each in half.extras] == [each.noise / 2 for each in said.extras]
    if isinstance(said.noise.coordinates, AtLeast):
        assert half.noise.coordinates.floor == said.noise.coordinates.floor / 2
    assert half.noise.rounds == said.noise.rounds and half.clip == said.clip
    if case.claimable:
        claim = accounting.claim_of(said, Once(), delta=1e-5, rounds=ROUNDS)
        assert claim.at_noise(0.5) == accounting.claim_of(half, Once(), delta=1e-5, rounds=ROUNDS).epsilon > claim.epsilon


def test_what_has_no_noise_stated_stays_so():
    stated = Description(Clip(1.0), None)
    assert stated.scaled(0.5) == stated and not stated.has_noise
    assert read_description(json.loads(json.dumps(stated.to_dict()))) == stated
    several = Description(Clip((1.0, 2.0), over="layer"), Noise(1.0, 1.0), extras=(Extra("quantile", 2.0),))
    assert read_description(json.loads(json.dumps(several.to_dict()))) == several


# what it does


@every
def test_the_noise_is_the_described_one(case):
    """The release without the noise-free part, whitened, in units of multiplier · clip, is N(0, 1); four p-values."""
    found = whitened(case.mechanism, rounds_of(case.mechanism).noise)
    assert found.shape == (ROUNDS, DIM)
    if case.exact:
        assert min(normal(found)) > FALSE_ALARM / 4
    else:  # at least that much, in every coordinate
        per_coordinate = np.square(found).sum(axis=0)
        assert stats.chi2(ROUNDS).cdf(per_coordinate.min()) > FALSE_ALARM / DIM
        assert min(normal(found)) < FALSE_ALARM, "the toy has more than it says"


def test_correlated_noise_is_no_fresh_noise_and_fresh_noise_no_correlated_one():
    toy = next(case for case in CASES if case.name == "correlated")
    correlated, fresh = (rounds_of(case.mechanism).noise for case in (toy, CASES[0]))
    assert min(normal(correlated)) < FALSE_ALARM
    assert min(normal(toy.mechanism.describe().noise.rounds.whiten(fresh, {})[0])) < FALSE_ALARM


def test_whitening_piece_by_piece_is_whitening_at_once():
    strategy, rows = toys.TwoTap(0.8), stream(0, "rows").standard_normal((7, 5))
    state, pieces = {}, []
    for piece in (rows[:1], rows[1:4], rows[4:]):
        found, state = strategy.whiten(piece, state)
        pieces.append(found)
    assert np.array_equal(np.concatenate(pieces), strategy.whiten(rows, {})[0])


@every
def test_without_noise_the_plain_mean_is_released(case):
    quiet = case.mechanism.without_noise()
    assert not quiet.describe().has_noise
    for noisy, plain in zip(rounds_of(case.mechanism).releases[:1], rounds_of(quiet).releases[:1], strict=True):
        assert not np.array_equal(noisy.vector, plain.vector)
    public = quiet.announce(quiet.init(DIM), 0, float(CLIENTS))
    total = FixedPointSum(DIM, public.clip_norm)
    updates = [stream(1, "short", each).standard_normal(DIM) / DIM for each in range(CLIENTS)]
    for each, update in enumerate(updates):
        own = {"secret": partial(stream, 0, "client", each)} if by_clients(quiet) else {}
        total.add(quiet.client(update, public, 1, **own))
    release, _ = quiet.release(quiet.init(DIM), total, public, partial(stream, 3))
    assert np.allclose(release.vector, np.mean(updates, axis=0), rtol=0, atol=1e-11)


@every
def test_the_order_of_clients_changes_nothing(case):
    there, back = rounds_of(case.mechanism), rounds_of(case.mechanism, order=list(reversed(range(CLIENTS))))
    assert all(np.array_equal(a.vector, b.vector) for a, b in zip(there.releases, back.releases, strict=True))
    assert all(np.array_equal(there.state[name], back.state[name]) for name in there.state)


@every
def test_single_and_double_precision_are_released_alike(case):
    """Within a grain of single precision."""
    single, double = rounds_of(case.mechanism, dtype=np.float32), rounds_of(case.mechanism, dtype=np.float64)
    for a, b in zip(single.releases, double.releases, strict=True):
        assert a.vector.dtype == b.vector.dtype == np.float64
        assert np.abs(a.vector - b.vector).max() <= 2 * np.finfo(np.float32).eps * np.abs(b.vector).max()


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused(case, bad):
    update = np.zeros(10, np.float32)
    update[4] = bad
    own = {"secret": partial(stream, 0)} if by_clients(case.mechanism) else {}
    with pytest.raises(NonFiniteError, match="first at coordinate 4"):
        case.mechanism.client(update, Public(0, 2.0, 8.0), 1, **own)


@every
def test_nothing_is_longer_than_the_clip_norm_but_for_noise(case):
    own = {"secret": partial(stream, 0)} if by_clients(case.mechanism) else {}
    sent = case.mechanism.client(np.full(50, 1e6, np.float32), Public(0, 2.0, 8.0), 1, **own)
    kept = sent.vector if sent.without_noise is None else sent.without_noise
    assert np.linalg.norm(kept) == pytest.approx(2.0, rel=1e-6) and not sent.unclipped


@every
def test_the_state_is_named_arrays_and_rounds_go_on_from_it(case):
    """From a state that was saved as bytes, the rounds after it have the same bits."""
    whole = rounds_of(case.mechanism)
    half = rounds_of(case.mechanism, rounds=ROUNDS // 2)
    state = {name: np.frombuffer(value.tobytes(), value.dtype).reshape(value.shape) for name, value in half.state.items()}
    public = case.mechanism.announce(state, ROUNDS // 2, float(CLIENTS))
    assert public.clip_norm == whole.releases[ROUNDS // 2].clip_norm
    if case.name == "correlated":
        assert state["last"].size == DIM, "larger than a scalar"


# fingerprints


@every
def test_the_fingerprint_is_that_of_the_values(case):
    assert fingerprint(case.mechanism) != fingerprint(case.other)
    assert fingerprint(case.mechanism) is not None


def test_the_fingerprint_is_the_same_in_another_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import toys; from coalmine.mechanisms import *\n"
        "print(*map(fingerprint, (Gaussian(2.0, 0.7), toys.Correlated(2.0, 0.7, coupling=0.8), toys.Plain(2.0, 0.7, "
        "{'b': (1, 2.5), 'a': [None, True, 'x']}))), sep='\\n')"
    )
    here = [Gaussian(2.0, 0.7), toys.Correlated(2.0, 0.7, coupling=0.8)]
    here.append(toys.Plain(2.0, 0.7, {"a": [None, True, "x"], "b": (1, 2.5)}))
    for seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", code, str(Path(toys.__file__).parent)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert told.stdout.splitlines() == [fingerprint(each) for each in here]


class Slotted:
    __slots__ = ("values",)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (1, 2),
        (1.0, 1.5),
        ("a", "b"),
        (None, False),
        (np.arange(3), np.arange(3.0)),
        (np.arange(3), np.arange(1, 4)),
        (np.float32(1), np.float32(2)),
        ((1, 2), (1, 3)),
        ({"a": 1}, {"a": 2}),
        ({1: "x", "a": 2}, {1: "y", "a": 2}),
        (Gaussian(1.0, 1.0), Gaussian(1.0, 2.0)),
        (slice(0, 3), slice(0, 4)),
    ],
)
def test_values_that_can_be_read_tell_mechanisms_apart(one, two):
    first, again, other = (fingerprint(toys.Plain(quirk=value)) for value in (one, one, two))
    assert first == again is not None
    assert other is not None and other != first


def test_a_number_of_numpy_is_that_number():
    assert fingerprint(toys.Plain(quirk=np.float64(0.5))) == fingerprint(toys.Plain(quirk=0.5))
    assert fingerprint(toys.Plain(quirk=np.int64(3))) == fingerprint(toys.Plain(quirk=3))


@pytest.mark.parametrize(
    "hidden",
    [
        object(),
        lambda: 1,
        (1, object()),
        {"a": object()},
        np.array([object()], dtype=object),
        np.random.default_rng(0),
        Slotted(),
    ],
)
def test_a_value_that_cannot_be_read_is_no_fingerprint(hidden):
    assert fingerprint(toys.Plain(quirk=hidden)) is None


def test_a_class_with_slots_has_no_values_to_read():
    assert fingerprint(Slotted()) is None


class Beside(Gaussian):
    """A subclass that is no dataclass of its own: what it keeps is beside the fields that it inherits."""

    def __init__(self, factor):
        super().__init__(1.0, 1.0)
        object.__setattr__(self, "factor", factor)

    @cached_property
    def twice(self):
        return 2 * self.factor


def test_values_beside_the_fields_tell_subclasses_apart():
    assert fingerprint(Beside(0.5)) == fingerprint(Beside(0.5)) != fingerprint(Beside(0.25))
    assert fingerprint(Beside(object())) is None
    asked = Beside(0.5)
    assert asked.twice == 1.0 and fingerprint(asked) == fingerprint(Beside(0.5)), "what was asked for does not matter"


# in a run directory


SMALL = (
    *("data.users=48", "data.held_out=0", "participation.rounds=6", "participation.epochs=1"),
    *("canaries.pool=20", "audit.unused_rows=100", "run.workers=1"),
    'audit.views=["known-others","final-model"]',
)


def small(*changes):
    return read_config("tiny", [*SMALL, *changes])


class Killed:
    """A hook that interrupts after so many rounds."""

    def __init__(self, after):
        self.after = after

    def __call__(self, event):
        if event["event"] == "round" and event["round"] + 1 == self.after:
            raise KeyboardInterrupt


def bits(done):
    """All that must be the same: scores, model, estimate and claim."""
    result = done.result
    return (
        result.setting["sha256"],
        result.training["model_sha256"],
        result.claim.epsilon,
        result.bound.epsilon,
        result.estimate.epsilon,
    )


def test_killed_and_resumed_the_bits_are_those_of_an_uninterrupted_run(case_of_runs, tmp_path):
    """The first with one worker, the second with two: the number of workers changes nothing either."""
    whole = run(small(), tmp_path / "whole", mechanism=case_of_runs.mechanism, secret_seed=7, quiet=True)
    with pytest.raises(KeyboardInterrupt):
        run(
            small("run.workers=2"),
            tmp_path / "cut",
            mechanism=case_of_runs.mechanism,
            secret_seed=7,
            quiet=True,
            hooks=[Killed(3)],
        )
    rounds, state = RunDirectory.open(tmp_path / "cut").load()
    assert rounds == 3
    assert {name.removeprefix("mechanism.") for name in state if name.startswith("mechanism.")} == set(
        case_of_runs.mechanism.init(3)
    )
    with pytest.raises(RunDirectoryError, match="another model, mechanism or trace"):
        resume(tmp_path / "cut", mechanism=case_of_runs.other, quiet=True)
    done = resume(tmp_path / "cut", mechanism=case_of_runs.mechanism, workers=1, quiet=True)
    assert bits(done) == bits(whole)
    assert (tmp_path / "cut/scores.npz").read_bytes() == (tmp_path / "whole/scores.npz").read_bytes()
    page = report(tmp_path / "cut")
    assert page.count("<svg") >= 1 and whole.result.verdict.word in page
    read = AuditResult.load(tmp_path / "cut")
    assert read.claim.description.clip == case_of_runs.mechanism.describe().clip
    if case_of_runs.name == "correlated":  # nobody registered it
        assert read.claim.description.noise.rounds == Opaque("two-tap", {"coupling": 0.8})
        assert report(read).count("<table") == report(replace(read, claim=replace(read.claim, description=None))).count(
            "<table"
        )


@pytest.fixture(params=CLAIMABLE, ids=lambda case: case.name)
def case_of_runs(request):
    return request.param


def test_a_mechanism_whose_values_cannot_be_read_cannot_be_resumed_and_is_told_why(tmp_path):
    mechanism = toys.Plain(2.0, 0.7, quirk=object())
    with pytest.raises(KeyboardInterrupt):
        run(small(), tmp_path / "run", mechanism=mechanism, secret_seed=7, quiet=True, hooks=[Killed(2)])
    with pytest.raises(RunDirectoryError, match=r"values cannot be read.* this Plain is the same.*dataclass of numbers"):
        resume(tmp_path / "run", mechanism=mechanism, quiet=True)


def test_the_comparison_without_noise_runs_for_every_kind(tmp_path):
    """A mechanism of one's own, with its own state, also runs beside the audit without noise and canaries."""
    config = small("run.reference=true", "data.held_out=0.2", "participation.rounds=4")
    done = run(config, tmp_path / "run", mechanism=toys.Correlated(2.0, 0.7), secret_seed=7, quiet=True)
    assert done.result.training["reference_finished"]


# what no accountant here can handle is refused before anything runs


def test_lifted_noise_is_refused_by_name_before_there_is_a_directory(tmp_path):
    with pytest.raises(ValueError, match="coordinates is of kind 'at-least' has no accountant"):
        run(small(), tmp_path / "run", mechanism=toys.Lifted(2.0, 0.7), secret_seed=7, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("pool", [0, 20])
def test_correlated_noise_of_sampled_clients_is_refused_by_name_before_there_is_a_directory(tmp_path, pool):
    config = small("participation.pattern=poisson", "participation.cohort_size=8", f"canaries.pool={pool}")
    with pytest.raises(ValueError, match=r"Poisson sampling .* no accountant for noise correlated over rounds \('two-tap'\)"):
        run(config, tmp_path / "run", mechanism=toys.Correlated(2.0, 0.7), secret_seed=7, quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_relation_that_no_accountant_has_is_refused_before_there_is_a_directory(tmp_path):
    changes = ("participation.pattern=poisson", "participation.cohort_size=8", "privacy.relation=replace-one")
    with pytest.raises(ValueError, match="Poisson sampling is accounted under relation='add-or-remove-one' only"):
        run(small(*changes), tmp_path / "run", secret_seed=7, quiet=True)
    assert not (tmp_path / "run").exists()
